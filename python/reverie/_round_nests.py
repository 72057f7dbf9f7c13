"""What an ``all_reduce`` takes and gives: nests of arrays.

All members have the leaves in one order: those of ``{"w": array, "b": [1.0, 2.0]}`` are b/0, b/1
and w.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie._model_arrays import is_torch
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

_DEPTH_MAX = 100  # as of nests in a store
_NUMBERS = (bool, int, float, complex)
_NO_NUMBERS = "OSUmM"  # kinds of NumPy's: objects, text, times


def _keys(nest: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(nest, key=lambda key: (type(key).__name__, key))
    except Exception as error:  # each type raises what it likes
        raise UnsupportedTypeError(
            f"data has a dict with the keys {_checks.shown(list(nest))}, which cannot be sorted as "
            f"all members need: {error}; use text or integers"
        ) from error


def leaves(nest: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """The leaves of dicts, lists and tuples, with their paths, in the same order on all members.

    Raises:
        InvalidArgumentError: it is nested too deep, or contains itself.
        UnsupportedTypeError: a dict with keys that have no order.
    """
    if not isinstance(nest, (dict, list, tuple)):
        yield path, nest
        return
    if depth == _DEPTH_MAX:
        raise InvalidArgumentError(
            f"data is nested more than {_DEPTH_MAX} deep, or contains itself; flatten it"
        )
    keys = _keys(nest) if isinstance(nest, dict) else range(len(nest))
    for key in keys:
        yield from leaves(nest[key], f"{path}/{key}" if path else str(key), depth + 1)


def rebuilt(nest: Any, leaves: Iterator[Any]) -> Any:  # noqa: ANN401
    """The same nest with other leaves."""
    if isinstance(nest, dict):
        values = {key: rebuilt(nest[key], leaves) for key in _keys(nest)}
        return {key: values[key] for key in nest}
    if isinstance(nest, list):
        return [rebuilt(value, leaves) for value in nest]
    if isinstance(nest, tuple):
        parts = [rebuilt(value, leaves) for value in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else tuple(parts)
    return next(leaves)


def checked(leaf: Any) -> Any:  # noqa: ANN401
    """Returns it; refuses an array that has more, or less, than its numbers.

    Raises:
        UnsupportedTypeError: a tensor that is not dense, a masked array.
    """
    if is_torch(leaf):
        if leaf.is_meta or str(leaf.layout) != "torch.strided":
            raise UnsupportedTypeError(
                f"data holds a tensor of layout {leaf.layout} on device {leaf.device}; give a "
                "dense one with values, such as tensor.to_dense()"
            )
    elif isinstance(leaf, np.ma.MaskedArray):
        raise UnsupportedTypeError(
            "data holds a masked array, whose mask would be lost; give array.filled(value), or the "
            "mask as an array of its own"
        )
    return leaf


def as_array(leaf: Any) -> Any:  # noqa: ANN401
    """Memory of the host, row-major.

    Raises:
        UnsupportedTypeError: it is no array of numbers.
    """
    if is_torch(leaf):
        return leaf.detach().cpu().contiguous()
    if isinstance(leaf, _NUMBERS) or hasattr(leaf, "__array__"):
        array = np.asarray(leaf, order="C")
        if array.dtype.kind not in _NO_NUMBERS:
            return array
    raise UnsupportedTypeError(
        f"data holds {_checks.shown(leaf)}; it must hold arrays of numbers, or op be a function"
    )


def like(leaf: Any, done: _reverie.GroupRound, index: int, place: Any) -> Any:  # noqa: ANN401
    """Array ``index`` of the result, as what was brought; ``place``: on its way to a GPU."""
    if place is not None:
        done.copy_to(index, place)
        return place.to(leaf.device, non_blocking=True)
    if is_torch(leaf):
        import torch

        if leaf.dtype == torch.bfloat16:
            out = torch.empty(leaf.shape, dtype=leaf.dtype)
            done.copy_to(index, out)
        else:
            out = torch.from_numpy(done.array(index))
        return out.to(leaf.device)
    array = done.array(index)
    if isinstance(leaf, _NUMBERS):
        return array[()].item()
    if isinstance(leaf, np.generic):
        return array[()]
    if type(leaf).__module__.startswith("jax"):
        import jax.numpy

        return jax.numpy.asarray(array)
    return array
