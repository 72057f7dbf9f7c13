"""Context managers that close, or flush, at their end."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from reverie.errors import ReverieError

_Self = TypeVar("_Self")


class Closing:
    """A mixin for what has ``close()``: leaving a ``with`` block calls it."""

    __slots__ = ()

    def close(self) -> None:
        """Ends what the object holds. May be repeated."""
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Flushing:
    """A mixin for what has ``flush()``: leaving a ``with`` block calls it.

    Not after an error of the library, which says more than that of the flush would.
    """

    __slots__ = ()

    def flush(self) -> None:
        """Waits until what was given has arrived."""
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or not issubclass(kind, ReverieError):
            self.flush()
