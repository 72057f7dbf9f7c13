"""One pass over a dataset of sampled items."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar

from reverie import _reverie
from reverie._closing import Closing
from reverie._process_bound import ProcessBound

if TYPE_CHECKING:
    from collections.abc import Generator

_Element = TypeVar("_Element")


class SampleIterator(ProcessBound, Closing, Generic[_Element]):
    """One pass over a dataset; see ``TrajectoryDataset``.

    Ends when no item comes in time, when ``max_samples`` were drawn, after an error or Ctrl-C, or
    when it is closed. A context manager: leaving it closes it. Use it from one thread at a time;
    any thread may call ``close()``.
    """

    _stays_because = "an iterator over samples cannot be pickled; make one in the other process"

    def __init__(self, stream: _reverie.SampleStream, elements: Generator[_Element]) -> None:
        self._stream = stream
        self._elements = elements

    def __iter__(self) -> SampleIterator[_Element]:
        return self

    def __next__(self) -> _Element:
        return next(self._elements)

    def close(self) -> None:
        """Ends the threads and the iteration. Idempotent.

        Items that were drawn ahead are dropped; where items leave their table with their samples
        (a queue), they go back to it, or a warning says how many could not.
        """
        self._stream.close()
        with contextlib.suppress(ValueError):  # another thread is in it, and ends it
            self._elements.close()
