"""A ``ReplayBuffer`` read by age: slices, all of it block by block, episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from reverie import _checks, _reverie
from reverie.errors import OutOfRangeError, UnsupportedTypeError

if TYPE_CHECKING:
    from reverie.replay_buffer import ReplayBuffer

_BLOCK = 4096  # items that are read at once


def rows(batch: dict[str, Any], chosen: int | slice) -> dict[str, Any]:
    """A row of each array of a batch, or some."""
    _, leaves, structure = _reverie.flatten(batch)
    made: dict[str, Any] = _reverie.fold(structure, [leaf[chosen] for leaf in leaves])
    return made


def slice_of(buffer: ReplayBuffer, chosen: slice, count: int) -> dict[str, Any]:
    """A batch of the items that a slice of ``count`` has."""
    try:
        places = range(count)[chosen]
    except TypeError:
        raise UnsupportedTypeError(
            f"index is {_checks.shown(chosen)}; a slice holds integers"
        ) from None
    if not places:
        batch = buffer.read(0, 1)
        if batch is None:
            raise OutOfRangeError("the buffer has no items")
        return rows(batch, slice(0, 0))
    low, high = min(places[0], places[-1]), max(places[0], places[-1])
    batch = buffer.read(low, high - low + 1)
    if batch is None:
        raise OutOfRangeError(f"index is {chosen}; the buffer has no items any more")
    if places.step == 1:
        return batch
    return rows(batch, slice(None, None, places.step))


def blocks(buffer: ReplayBuffer) -> Iterator[dict[str, Any]]:
    """All items from the oldest on, a batch at a time."""
    begin = 0
    while len(buffer) > begin:
        batch = buffer.read(begin, _BLOCK)
        if batch is None:
            return
        yield batch
        begin += len(batch["tickets"])


def episodes(buffer: ReplayBuffer) -> Iterator[dict[str, Any]]:
    """Runs of transitions of one episode, of a buffer of single steps of one environment."""
    open_parts: list[dict[str, Any]] = []
    for batch in blocks(buffer):
        if open_parts and not _goes_on(rows(open_parts[-1], slice(-1, None)), batch, 0):
            yield _joined(open_parts)
            open_parts = []
        begin = 0
        count = len(batch["tickets"])
        for end in np.flatnonzero(_ends(batch)).tolist():
            open_parts.append(rows(batch, slice(begin, end + 1)))
            yield _joined(open_parts)
            open_parts, begin = [], end + 1
        if begin < count:
            open_parts.append(rows(batch, slice(begin, count)))
    if open_parts:
        yield _joined(open_parts)


def _ends(batch: dict[str, Any]) -> np.ndarray:
    """Whether each row but the last is the last of its episode, as far as the batch tells."""
    ends: np.ndarray = batch["terminated"].copy()
    _, nexts, _ = _reverie.flatten(batch["next_obs"])
    _, nows, _ = _reverie.flatten(batch["obs"])
    for then, now in zip(nexts, nows, strict=True):
        a, b = then[:-1], now[1:]
        differs = (a != b) & ~((a != a) & (b != b))  # NaN is itself
        ends[:-1] |= differs.any(axis=tuple(range(1, differs.ndim)))
    return ends


def _goes_on(last: dict[str, Any], batch: dict[str, Any], row: int) -> bool:
    """Whether a row of ``batch`` follows ``last``, a batch of one."""
    first = rows(batch, slice(row, row + 1))
    _, one, structure = _reverie.flatten(last)
    _, other, _ = _reverie.flatten(first)
    both = [np.concatenate(pair) for pair in zip(one, other, strict=True)]
    return not _ends(_reverie.fold(structure, both))[0]


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return parts[0]
    flat = [_reverie.flatten(part) for part in parts]
    columns = zip(*[leaves for _, leaves, _ in flat], strict=True)
    made: dict[str, Any] = _reverie.fold(flat[0][2], [np.concatenate(one) for one in columns])
    return made
