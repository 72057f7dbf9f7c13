"""Copies between GPUs and the host: queued together, through locked memory, with one wait for all.

A ``tensor.cpu()`` waits for everything that is queued for the GPU, once per tensor, and is copied
through the driver's own buffers. A copy to a GPU from memory that is not locked waits too.
"""

from __future__ import annotations

from typing import Any

_ALIGNMENT = 64
# PyTorch keeps locked memory for later, so there is a bound; larger nests are copied without it.
_LOCKED_MAX = 512 << 20


def _is_on_gpu(leaf: Any) -> bool:  # noqa: ANN401
    """Whether it is a CUDA tensor of torch; without importing it."""
    return getattr(leaf, "is_cuda", False) is True


def _places(models: list[Any]) -> list[Any]:
    """A tensor of the host of each model's type and shape, in one locked block if it can be had."""
    import torch

    begins = []
    end = 0
    for model in models:
        begins.append(end)
        end += -(-model.numel() * model.element_size() // _ALIGNMENT) * _ALIGNMENT
    if 0 < end <= _LOCKED_MAX:
        try:
            block = torch.empty(end, dtype=torch.uint8, pin_memory=True)
        except RuntimeError:  # no memory can be locked
            pass
        else:
            return [
                block[begin : begin + model.numel() * model.element_size()]
                .view(model.dtype)
                .view(model.shape)
                for begin, model in zip(begins, models, strict=True)
            ]
    return [torch.empty(model.shape, dtype=model.dtype) for model in models]


def host_places(leaves: list[Any]) -> dict[int, Any]:
    """For each leaf on a GPU, by its index, a tensor of the host of its type and shape."""
    far = [i for i, leaf in enumerate(leaves) if _is_on_gpu(leaf)]
    if not far:
        return {}
    return dict(zip(far, _places([leaves[i] for i in far]), strict=True))


def to_host(leaves: list[Any]) -> list[Any]:
    """The same leaves, but those on GPUs as contiguous tensors of the host, complete on return."""
    places = host_places(leaves)
    if not places:
        return leaves
    import torch

    for i, place in places.items():
        place.copy_(leaves[i].detach(), non_blocking=True)
    for device in {leaves[i].device for i in places}:
        torch.cuda.current_stream(device).synchronize()
    return [places.get(i, leaf) for i, leaf in enumerate(leaves)]


def to_gpus(tensors: list[Any], models: list[Any]) -> list[Any]:
    """Tensors of the host, each on the device of its model, with its own type.

    The copies are queued on the current streams; the caller may change the tensors at once.
    """
    far = [i for i, model in enumerate(models) if _is_on_gpu(model)]
    if not far:
        return tensors
    copies = list(tensors)
    for i, place in zip(far, _places([tensors[i] for i in far]), strict=True):
        place.copy_(tensors[i])
        copies[i] = place.to(models[i].device, non_blocking=True)
    return copies
