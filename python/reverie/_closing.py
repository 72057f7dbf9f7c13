"""Context managers that close at their end."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

_Self = TypeVar("_Self", bound="Closing")


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
