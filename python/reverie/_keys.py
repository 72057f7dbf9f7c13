"""Keys, tickets and priorities, as the native store takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reverie import _checks
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import numpy.typing as npt

    Keys: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
    Priorities: TypeAlias = Sequence[float] | npt.NDArray[Any]

NO_KEYS: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
NO_VALUES: npt.NDArray[np.float64] = np.empty(0, np.float64)


def keys_of(argument: str, keys: Keys | None) -> npt.NDArray[np.uint64]:
    """Keys or tickets as the native store takes them."""
    _refuse_masked(argument, keys)
    if not isinstance(keys, np.ndarray) and hasattr(keys, "detach"):
        tensor: Any = keys  # torch's, whose elements from 2**63 on are no integers
        keys = tensor.detach().cpu().numpy()
    if isinstance(keys, np.ndarray):
        if keys.shape == (0,):
            return NO_KEYS  # of any type: NumPy makes floats of an empty list
        if keys.dtype.kind not in "iu":
            raise UnsupportedTypeError(f"{argument} holds {keys.dtype}; it must hold integers")
        if keys.ndim != 1:
            raise InvalidArgumentError(
                f"{argument} has shape {keys.shape}; it must be a flat sequence"
            )
        if keys.dtype.kind == "i" and (keys < 0).any():
            raise _no_key(argument, keys.min())
        return np.ascontiguousarray(keys, np.uint64)
    # NumPy would make floats of a list of small and large keys.
    given = [] if keys is None else _checks.items(argument, keys, "keys")
    for i, key in enumerate(given):
        if not isinstance(key, (int, np.integer)):
            if isinstance(key, np.ndarray) or not hasattr(key, "__index__"):
                raise _no_key(argument, key)
            given[i] = key = _checks.integer(argument, key, 0, 2**64 - 1)
        if not 0 <= key < 2**64:
            raise _no_key(argument, key)
    return np.array(given, np.uint64)


def _no_key(argument: str, key: object) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{argument} holds {_checks.shown(key)}; keys are integers in [0, 2**64)"
    )


def priorities_of(
    priorities: Priorities | float, argument: str = "priorities", *, one_for: int | None = None
) -> npt.NDArray[np.float64]:
    """Priorities as the native store takes them; a single number counts ``one_for`` times."""
    _refuse_masked(argument, priorities)
    if not isinstance(priorities, np.ndarray) and hasattr(priorities, "detach"):
        priorities = priorities.detach().cpu()  # torch's, which may belong to a graph
    try:
        array = np.asarray(priorities)
    # A ragged list, what has no elements, or a list of tensors that belong to a graph.
    except (TypeError, ValueError, RuntimeError):
        raise UnsupportedTypeError(
            f"{argument} is {_checks.shown(priorities)}; it must hold numbers"
        ) from None
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise UnsupportedTypeError(f"{argument} holds {array.dtype}; it must hold numbers")
    if array.ndim == 0 and one_for is not None:
        return np.full(one_for, array, np.float64)
    if array.ndim != 1:
        raise InvalidArgumentError(
            f"{argument} has shape {array.shape}; it must be a flat sequence"
        )
    return np.ascontiguousarray(array, np.float64)


def _refuse_masked(argument: str, array: object) -> None:
    if isinstance(array, np.ma.MaskedArray):
        raise UnsupportedTypeError(
            f"{argument} is a masked array, whose mask would be lost; give "
            f"{argument}.compressed(), or .filled(value)"
        )


def check_same_length(
    argument: str, keys: npt.NDArray[np.uint64], values: npt.NDArray[np.float64]
) -> None:
    if len(keys) != len(values):
        raise InvalidArgumentError(
            f"{argument} has {len(keys)} entries and priorities {len(values)}; give one for each"
        )
