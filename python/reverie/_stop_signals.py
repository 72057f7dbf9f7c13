"""Signals that end a command, none of which is missed."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator, Sequence
from types import FrameType


@contextlib.contextmanager
def signals_held(numbers: Sequence[signal.Signals]) -> Iterator[socket.socket]:
    """Gives a socket that receives the numbers of these signals, one byte each.

    None is missed from before it opens. They are not blocked: threads that a library started
    earlier would get them, and the process would end.
    """
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        before = {number: signal.signal(number, _do_nothing) for number in numbers}
        fd_before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield receiver
        finally:
            signal.set_wakeup_fd(fd_before)
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def signals_end_at_once(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Lets each of these signals end the process at once, even during a long native call.

    A handler in Python would run only when that call returns.
    """
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _do_nothing(_signal: int, _frame: FrameType | None) -> None:
    pass


__all__ = ["signals_end_at_once", "signals_held"]
