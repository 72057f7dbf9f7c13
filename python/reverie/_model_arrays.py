"""A model's parameters, buffers and gradients: tensors of torch, arrays of NumPy, JAX trees."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from reverie import _checks
from reverie._device_copies import to_gpus
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

_HALVES = ("float16", "bfloat16")


def arrays(name: str, given: Any) -> list[Any]:  # noqa: ANN401
    """``given`` as a list, each entry checked to be a tensor or an array."""
    listed = _checks.items(name, given, "tensors or arrays")
    for i, array in enumerate(listed):
        if not (is_torch(array) or isinstance(array, np.ndarray)):
            raise UnsupportedTypeError(
                f"{name}[{i}] is {_checks.shown(array)}; it must be a tensor of torch or an array"
            )
    return listed


def jax_tree(given: Any) -> tuple[list[Any], Any] | None:  # noqa: ANN401
    """The leaves and the structure of a tree of JAX arrays; None where it is no such tree."""
    jax = sys.modules.get("jax")
    if jax is None or isinstance(given, Iterator):
        return None
    leaves, structure = jax.tree_util.tree_flatten(given)
    if not leaves or not all(isinstance(leaf, jax.Array) for leaf in leaves):
        return None
    return leaves, structure


def jax_leaves(name: str, given: Any, structure: Any) -> list[Any]:  # noqa: ANN401
    """The leaves of ``given``, which must have the structure."""
    try:
        return list(structure.flatten_up_to(given))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name} has another structure than the parameters of the accumulator: {error}"
        ) from None


def jax_like(array: Any, model: Any) -> Any:  # noqa: ANN401
    """``array`` as a JAX array of the type of ``model``."""
    import jax.numpy

    return jax.numpy.asarray(np.asarray(array), dtype=model.dtype)


def jax_stepped(given: Any, structure: Any, before: list[Any]) -> list[Any]:  # noqa: ANN401
    """The leaves of ``given``, which must be JAX arrays like those that were there ``before``."""
    stepped = jax_leaves("parameters", given, structure)
    for i, (new, old) in enumerate(zip(stepped, before, strict=True)):
        if not isinstance(new, type(old)) or kind(new) != kind(old):
            raise InvalidArgumentError(
                f"parameters[{i}] is {_checks.shown(new)}; it must be a JAX array as before, "
                f"{kind(old)}"
            )
    return stepped


def is_torch(array: object) -> bool:
    """Whether it is a tensor of torch; without importing it."""
    return hasattr(array, "data_ptr")


def kind(array: Any) -> str:  # noqa: ANN401
    """Its element type and shape, for people."""
    dtype = str(array.dtype).removeprefix("torch.")
    return f"{dtype}{list(array.shape)}"


def kinds(**named: list[Any]) -> dict[str, str]:
    """The kind of each array, by the name of its list and its index."""
    return {
        f"{name}[{i}]": kind(array)
        for name, arrays in named.items()
        for i, array in enumerate(arrays)
    }


def check_kinds(now: dict[str, str], before: dict[str, str], member: str) -> None:
    """Refuse a model whose arrays the program has changed in place: they fit no other member's."""
    for name, was in before.items():
        if now[name] != was:
            raise InvalidArgumentError(
                f"{name} is {now[name]} on '{member}'; it must stay {was}, as when the accumulator "
                "was made; make another accumulator for another model"
            )


def sum_dtype(array: Any) -> np.dtype[Any]:  # noqa: ANN401
    """In which elements its gradients are summed."""
    name = str(array.dtype).removeprefix("torch.")
    return np.dtype("float32" if name in _HALVES else name)


def gradient_like(parameter: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    """An array of zeros, of the shape and type of its summed gradient, without memory for them."""
    return np.broadcast_to(np.zeros((), sum_dtype(parameter)), tuple(parameter.shape))


def grad(parameter: Any) -> Any:  # noqa: ANN401
    """The gradient that torch keeps with it."""
    if not is_torch(parameter):
        raise InvalidArgumentError(
            "gradients is None; arrays of NumPy have no grad, so give one for each parameter"
        )
    return parameter.grad


def dense(gradients: list[Any]) -> list[Any]:
    """Returns them; refuses sparse ones, which cannot be summed element by element."""
    for i, gradient in enumerate(gradients):
        if is_torch(gradient) and str(gradient.layout) != "torch.strided":
            raise UnsupportedTypeError(
                f"gradients[{i}] has the layout {gradient.layout}; make its layer with "
                "sparse=False, or give gradients=, each by its to_dense()"
            )
    return gradients


def wide(array: Any) -> Any:  # noqa: ANN401
    """An array of the host that NumPy can read."""
    if not is_torch(array):
        return array
    tensor = array.detach().resolve_conj().resolve_neg()
    if str(tensor.dtype).removeprefix("torch.") == "bfloat16":
        tensor = tensor.float()
    return tensor.cpu().numpy()


def host(array: Any) -> Any:  # noqa: ANN401
    """The same on the CPU, to be sent."""
    if is_torch(array):
        return array.detach().cpu()
    return np.asarray(array)


def set_grads(parameters: list[Any], arrays: list[np.ndarray[Any, Any]]) -> None:
    """Hand each tensor its gradient; nothing for others."""
    wanting = [i for i, p in enumerate(parameters) if is_torch(p) and p.requires_grad]
    if not wanting:
        return
    import torch

    tensors = [torch.from_numpy(arrays[i]) for i in wanting]
    copies = to_gpus(tensors, [parameters[i] for i in wanting])
    for i, copy in zip(wanting, copies, strict=True):
        parameter = parameters[i]
        new = copy.to(device=parameter.device, dtype=parameter.dtype)
        grad = _own_grad(parameter)
        if grad is None or str(grad.layout) != "torch.strided":  # a sparse one holds no dense one
            parameter.grad = new
        else:
            grad.copy_(new)


def zero_grads(parameters: list[Any]) -> None:
    """Set the gradients that torch keeps to zero."""
    for parameter in parameters:
        grad = _own_grad(parameter)
        if grad is not None:
            grad.zero_()


def _own_grad(parameter: Any) -> Any:  # noqa: ANN401
    """The gradient that torch keeps, without the graph that ``create_graph=True`` leaves there."""
    grad = getattr(parameter, "grad", None)
    if grad is not None and grad.requires_grad:
        parameter.grad = grad = grad.detach()  # in place it is refused for a view
    return grad


def assign(mine: Any, theirs: Any) -> None:  # noqa: ANN401
    """Overwrite what ``mine`` holds."""
    if is_torch(mine):
        import torch

        with torch.no_grad():
            mine.copy_(torch.as_tensor(theirs))
    else:
        mine[...] = theirs
