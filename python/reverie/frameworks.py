"""NumPy arrays as arrays of torch or JAX: the same memory on the CPU, copies on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from reverie import _checks
from reverie.errors import InvalidArgumentError
from reverie.packages import import_package

Output: TypeAlias = Literal["numpy", "torch", "jax"]
OUTPUTS = ("numpy", "torch", "jax")
Convert: TypeAlias = Callable[[Any], Any]


def converter(output: object, device: object = None, *, pinned: bool = False) -> Convert | None:
    """What makes an array of a library of a NumPy array.

    Args:
        output: one of ``OUTPUTS``.
        device: a device of torch or JAX, or its name; None shares the array's memory on the CPU.
        pinned: has torch copy through locked memory, without waiting.

    Returns:
        The function; None for NumPy.

    Raises:
        InvalidArgumentError: an unknown library or device, or a device for NumPy.
        UnsupportedTypeError: ``output`` is not a str.
        MissingPackageError: the library is not installed.
    """
    name = _checks.choice("output", output, OUTPUTS)
    if name == "torch":
        return _torch(device, pinned=pinned)
    if name == "jax":
        return _jax(device)
    if device is not None:
        raise InvalidArgumentError(
            f'device is {_checks.shown(device)} with output "numpy"; devices are for "torch" and '
            '"jax"'
        )
    return None


def torch_device(device: object) -> Any:  # noqa: ANN401
    """A device of torch that is there.

    Raises:
        InvalidArgumentError: torch does not know it, or it is a GPU that is not there.
    """
    torch = import_package("torch")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"device is {_checks.shown(device)}, which torch does not know: {error}"
        ) from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidArgumentError(
            f'device is {_checks.shown(device)}, and torch sees no GPU here; use device="cpu"'
        )
    return place


def _torch(device: object, *, pinned: bool) -> Convert:
    torch = import_package("torch")
    from_numpy = torch.from_numpy

    def to_torch(array: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401
        if array.dtype.isbuiltin == 1:
            try:
                return from_numpy(array)
            except ValueError:  # a flipped view, as of mirrored pictures: torch has none
                return from_numpy(array.copy())
        # The types of ml_dtypes: torch only accepts their bits.
        bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
        return to_torch(bits).view(getattr(torch, array.dtype.name))

    place = None if device is None else torch_device(device)
    has_gpu = (place is not None or pinned) and torch.cuda.is_available()
    is_elsewhere = place is not None and place.type != "cpu"
    pins = pinned and has_gpu
    if not is_elsewhere and not pins:
        return to_torch

    def move(array: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401
        tensor = to_torch(array)
        if pins:
            tensor = tensor.pin_memory()
        return tensor.to(place, non_blocking=pinned) if is_elsewhere else tensor

    return move


def _jax(device: object) -> Convert:
    jax = import_package("jax")
    from_dlpack = import_package("jax.dlpack").from_dlpack
    if device is None:

        def to_jax(array: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401
            narrowed = array.dtype.itemsize == 8 and not jax.config.jax_enable_x64
            if narrowed or array.dtype.kind in "cV" or array.dtype == np.bool_:
                # Types that JAX would refuse, or store in fewer bits.
                return jax.numpy.asarray(array)
            try:
                return from_dlpack(array)
            except (BufferError, RuntimeError):  # a flipped, strided or read-only view
                return jax.numpy.asarray(array)

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
