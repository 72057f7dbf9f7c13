"""Batches of a replay buffer as arrays of torch or JAX, on the CPU or a device."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from reverie import _checks, _reverie, frameworks
from reverie.errors import InvalidArgumentError
from reverie.packages import import_package

_log = logging.getLogger("reverie")
_Batch = dict[str, Any]


def converter(output: object, device: object, pin_memory: object) -> Callable[[_Batch], _Batch]:
    """What turns a batch of NumPy arrays into what the user asked for.

    Raises:
        InvalidArgumentError: an unknown library or device, or a device for NumPy.
        UnsupportedTypeError: ``output`` is not a str.
        MissingPackageError: the library is not installed.
    """
    name = _checks.choice("output", "numpy" if output is None else output, frameworks.OUTPUTS)
    pinned = _checks.flag("pin_memory", pin_memory)
    if name != "torch" and pinned:
        raise InvalidArgumentError(f'pin_memory is True with output "{name}"; it is for "torch"')
    move = frameworks.converter(name, device, pinned=pinned)
    if move is None:
        return lambda batch: batch
    if name == "torch":
        return lambda batch: _mapped(batch, move)

    def converted(batch: _Batch) -> _Batch:
        arrays, tickets = _parted(batch)  # tickets have 64 bits, which JAX would cut
        _tell_what_narrows(arrays)
        return {**_mapped(arrays, move), **tickets}

    return converted


def dataset_converter(
    output: object, device: object, pin_memory: object
) -> Callable[[_Batch], _Batch] | None:
    """As ``converter``, but tickets stay NumPy's; None where nothing changes."""
    if _checks.choice("output", output, frameworks.OUTPUTS) == "numpy":
        converter(output, device, pin_memory)  # refuses a device
        return None
    pinned = _checks.flag("pin_memory", pin_memory)
    if output != "torch":
        converter(output, None, pin_memory)
    move = frameworks.converter(output, device, pinned=pinned)
    assert move is not None

    def converted(batch: _Batch) -> _Batch:
        arrays, tickets = _parted(batch)
        return {**_mapped(arrays, move), **tickets}

    return converted


def _parted(batch: _Batch) -> tuple[_Batch, _Batch]:
    """A batch without its tickets, and these; a transform may have left them out."""
    arrays = dict(batch)  # the batch may be the caller's `out`
    tickets = arrays.pop("tickets", None)
    return arrays, {} if tickets is None else {"tickets": tickets}


def _mapped(batch: _Batch, function: Callable[[Any], Any]) -> _Batch:
    """The batch with its arrays converted; what else a transform has added stays as it is."""
    _, leaves, structure = _reverie.flatten(batch)
    made: _Batch = _reverie.fold(
        structure,
        [
            function(_native(leaf)) if isinstance(leaf, (np.ndarray, np.generic)) else leaf
            for leaf in leaves
        ],
    )
    return made


def _native(array: Any) -> Any:  # noqa: ANN401
    """An array, of a number too, in the machine's byte order."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.asarray(array)


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
