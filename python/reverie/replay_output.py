"""Batches of a replay buffer as arrays of torch or JAX, on the CPU or a device."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie import dataset as datasets
from reverie.errors import InvalidArgumentError
from reverie.packages import import_package

_log = logging.getLogger("reverie")
_Batch = dict[str, Any]


def converter(output: object, device: object, pin_memory: object) -> Callable[[_Batch], _Batch]:
    """What turns a batch of NumPy arrays into what the user asked for.

    Raises:
        InvalidArgumentError: an unknown library or device, or a device for NumPy.
        UnsupportedTypeError: ``output`` is no name.
        MissingPackageError: the library is not installed.
    """
    name = _checks.choice("output", "numpy" if output is None else output, _NAMES)
    pinned = _checks.flag("pin_memory", pin_memory)
    if name != "torch" and pinned:
        raise InvalidArgumentError(f'pin_memory is True with output "{name}"; it is for "torch"')
    if name == "numpy":
        if device is not None:
            raise InvalidArgumentError(
                f'device is {_checks.shown(device)} with output "numpy"; devices are for "torch" '
                'and "jax"'
            )
        return lambda batch: batch
    move = mover(name, device, pinned=pinned)
    if name == "torch":
        return lambda batch: _mapped(batch, move)

    def converted(batch: _Batch) -> _Batch:
        tickets = batch.pop("tickets")  # 64 bits, which JAX would cut
        _tell_what_narrows(batch)
        return {**_mapped(batch, move), "tickets": tickets}

    return converted


_NAMES = ("numpy", "torch", "jax")


def dataset_converter(
    output: object, device: object, pin_memory: object
) -> Callable[[_Batch], _Batch] | None:
    """As ``converter``, but tickets stay NumPy's; None where nothing changes."""
    if _checks.choice("output", output, _NAMES) == "numpy":
        converter(output, device, pin_memory)  # refuses a device
        return None
    pinned = _checks.flag("pin_memory", pin_memory)
    if output != "torch":
        converter(output, None, pin_memory)
    move = mover(output, device, pinned=pinned)

    def converted(batch: _Batch) -> _Batch:
        tickets = batch.pop("tickets")
        return {**_mapped(batch, move), "tickets": tickets}

    return converted


def mover(output: object, device: object, *, pinned: bool) -> Callable[[Any], Any]:
    """What makes an array of torch or JAX of a NumPy array; raises as ``converter``."""
    return _torch_mover(device, pinned=pinned) if output == "torch" else _jax_mover(device)


def _mapped(batch: _Batch, function: Callable[[Any], Any]) -> _Batch:
    _, leaves, structure = _reverie.flatten(batch)
    made: _Batch = _reverie.fold(structure, [function(leaf) for leaf in leaves])
    return made


def _torch_mover(device: object, *, pinned: bool) -> Callable[[Any], Any]:
    to_torch = datasets.converter("torch")
    assert to_torch is not None
    torch = import_package("torch")
    try:
        place = None if device is None else torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"device is {_checks.shown(device)}, which torch does not know: {error}"
        ) from None
    if place is not None and place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidArgumentError(
            f'device is {_checks.shown(device)}, and torch sees no GPU here; use device="cpu"'
        )
    is_elsewhere = place is not None and place.type != "cpu"

    def move(array: Any) -> Any:  # noqa: ANN401
        tensor = to_torch(array)
        if pinned and torch.cuda.is_available():
            tensor = tensor.pin_memory()
        return tensor.to(place, non_blocking=pinned) if is_elsewhere else tensor

    return move


def _jax_mover(device: object) -> Callable[[Any], Any]:
    to_jax = datasets.converter("jax")
    assert to_jax is not None
    jax = import_package("jax")
    if device is None:
        return to_jax
    if isinstance(device, str):
        try:
            device = jax.devices(device)[0]
        except RuntimeError as error:
            raise InvalidArgumentError(
                f"device is {device!r}, which JAX does not see here: {error}"
            ) from None
    if not hasattr(device, "platform") and not hasattr(device, "device_set"):
        raise InvalidArgumentError(
            f"device is {_checks.shown(device)}; it must be a device of JAX, or its platform's name"
        )
    return lambda array: jax.device_put(array, device)


def _tell_what_narrows(batch: _Batch) -> None:
    if import_package("jax").config.jax_enable_x64:
        return
    paths, leaves, _ = _reverie.flatten(batch)
    for path, leaf in zip(paths, leaves, strict=True):
        if isinstance(leaf, np.ndarray) and leaf.dtype.itemsize == 8:
            _tell_once(path, leaf.dtype.name)


@functools.cache
def _tell_once(path: str, dtype: str) -> None:
    narrow = dtype.replace("64", "32")
    _log.warning(
        "JAX holds the column %s, %s, as %s; set jax_enable_x64, or store it as %s",
        path,
        dtype,
        narrow,
        narrow,
    )
