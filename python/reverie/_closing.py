"""Context managers that close, or flush, at their end."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from reverie.errors import ReverieError

_Self = TypeVar("_Self")


def close_in_del(close: Callable[[], object]) -> None:
    """What a ``__del__`` does: ``close()``.

    Python drops what a ``__del__`` raises. So the main thread gets a Ctrl-C that came meanwhile
    once more, from a thread that has its turn when the ``__del__`` has returned.
    """
    try:
        close()
    except KeyboardInterrupt:
        if callable(signal.getsignal(signal.SIGINT)):
            with contextlib.suppress(RuntimeError):  # at the end of the program
                _thread.start_new_thread(os.kill, (os.getpid(), signal.SIGINT))


class Scoped:
    """A mixin for context managers: leaving a ``with`` block calls ``_leave``."""

    __slots__ = ()

    def _leave(self, error: BaseException | None) -> None:
        """Ends the block, which raised ``error`` if that is not None."""
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)


class Closing(Scoped):
    """A mixin for classes with ``close()``: leaving a ``with`` block calls it."""

    __slots__ = ()

    def close(self) -> None:
        """Ends what the object holds. Idempotent."""
        raise NotImplementedError

    def _leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        self.close()


class Flushing(Scoped):
    """A mixin for classes with ``flush()``: leaving a ``with`` block calls it.

    It is not called after an error of the library, which matters more than one of the flush.
    """

    __slots__ = ()

    def flush(self) -> None:
        """Waits until what was given has arrived."""
        raise NotImplementedError

    def _leave(self, error: BaseException | None) -> None:
        if not isinstance(error, ReverieError):
            self.flush()
