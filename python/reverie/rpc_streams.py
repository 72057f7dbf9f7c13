"""Calls that give many values: how ``Rpc.define_stream`` and ``Rpc.stream`` work.

    caller                                           server
    stream(...)         --call of the name-->        function(*args): an iterator
    next, next, next    --"next" 0, 1, 2-->          value 0, value 1, value 2: one for each
    send(value)         --"send" 0-->                the next value of the function's inbox
    close(), or dies    --"watch" ends-->            the iterator is closed

Each value answers a separate call, so a stream has the guarantees of calls: values arrive in order,
each once, even if connections break. As many "next" as the caller's window are in progress, and no
more values are made: a slow reader blocks the server, and a full inbox the caller.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reverie._closing import Closing, close_in_del
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
    ReverieError,
    UnsupportedTypeError,
)
from reverie.rpc_served_streams import END, STREAMS

if TYPE_CHECKING:
    from reverie.rpc import Future, Rpc


class _OneThread:
    """Refuses a thread while another one is inside."""

    __slots__ = ("_lock", "_what")

    def __init__(self, what: str) -> None:
        self._lock = threading.Lock()
        self._what = what

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise FailedPreconditionError(
                f"this stream is in use by another call, in another thread, which {self._what}; a "
                "stream has one thread to read and one to send"
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Stream(ProcessBound, Closing):
    """The values of a call, as they arrive. Made by ``Rpc.stream``.

    An iterator, and a context manager that closes it. ``result`` is what the function returned,
    once the values have ended. One thread may read while another one sends, and any may close it;
    a second one that reads, or sends, meanwhile is refused.
    """

    _stays_because = (
        "a Stream lives in this process and cannot be pickled or copied; send its values"
    )

    _fork_guard: ForkGuard
    _rpc: Rpc
    _peer: str
    _function: str
    _number: int
    _timeout_s: float | None
    _window: int
    _asked: int
    _sent: int
    _wanted: deque[Future]
    _unread: deque[Future]
    _watch: Future
    _is_over: bool
    _is_finished: bool
    _reading: _OneThread
    _sending: _OneThread
    result: Any

    def __init__(self) -> None:
        raise UnsupportedTypeError("streams are made by Rpc.stream")

    @classmethod
    def _of(
        cls,
        rpc: Rpc,
        peer: str,
        function: str,
        number: int,
        window: int,
        timeout_s: float | None,
    ) -> Stream:
        made = object.__new__(cls)
        made._fork_guard = ForkGuard()
        made._rpc = rpc
        made._peer = peer
        made._function = function
        made._number = number
        made._timeout_s = timeout_s
        made._window = window
        made._asked = 0
        made._sent = 0
        made._wanted = deque()
        made._unread = deque()
        made._is_over = True  # until there is something to close
        made._is_finished = False
        made._reading = _OneThread("reads")
        made._sending = _OneThread("sends")
        made.result = None
        try:
            made._watch = made._call_server("watch", timeout_s=None)
            made._is_over = False
            made._ask_for_all()
        except BaseException:  # more calls than may be under way
            made._is_over = False
            made.close()
            raise
        return made

    def _call_server(self, *what: Any, timeout_s: Any = ...) -> Future:  # noqa: ANN401
        return self._rpc.async_(self._peer, STREAMS, self._number, *what, timeout_s=timeout_s)

    def _result_of(self, future: Future) -> Any:  # noqa: ANN401
        """Its result; errors name the function that the program called."""
        try:
            return future.result()
        except ReverieError as error:
            if error.args and isinstance(error.args[0], str):
                text = error.args[0].replace(f"'{STREAMS}'", f"'{self._function}'", 1)
                if isinstance(error, NotFoundError) and f"no function '{STREAMS}'" in error.args[0]:
                    text = (
                        f"peer '{self._peer}' serves no streams: '{self._function}' gives one "
                        "value there, or the peer was restarted; streams are served by "
                        "define_stream"
                    )
                error.args = (text, *error.args[1:])
            raise

    def _ask_for_all(self) -> None:
        """Have as many values on their way as there is room for."""
        while len(self._wanted) < self._window:
            self._wanted.append(self._call_server("next", self._asked, timeout_s=None))
            self._asked += 1

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        """The next value; waits for it as long as the stream's ``timeout_s``.

        Raises what ``Future.result`` raises, and ``CancelledError`` if another thread closes the
        stream meanwhile. After ``DeadlineExceededError`` the stream continues.
        """
        self._fork_guard.check("stream")
        with self._reading:
            wanted = self._wanted  # another one once it is closed
            if self._is_over:
                raise StopIteration
            if not wanted:
                self._ask_for_all()
            future = wanted[0]
            if not future.wait(self._timeout_s):
                raise DeadlineExceededError(
                    f"no value of the stream arrived within {self._timeout_s} s; ask again, or "
                    "close it"
                )
            wanted.popleft()
            try:
                kind, value = self._result_of(future)
            except BaseException:
                self.close()
                raise
            if kind == END:
                self.result = value
                self._cancel()
                raise StopIteration
            if not self._is_over:
                # Where too many calls are under way now, the value has arrived all the same.
                with contextlib.suppress(ResourceExhaustedError):
                    self._ask_for_all()
            return value

    def send(self, value: object) -> None:
        """Send a value to the function's inbox; waits while it has not taken ``window`` of them.

        Raises:
            DeadlineExceededError: none was taken within ``timeout_s``; the value was not sent.
            FailedPreconditionError: the stream is over, or ``finish`` was called.
            RemoteError: a value before was refused: the function takes none.
        """
        self._fork_guard.check("stream")
        with self._sending:
            unread = self._unread  # another one once it is closed
            if self._is_over or self._is_finished:
                why = "has ended" if self._is_over else "was finished"
                raise FailedPreconditionError(f"this stream {why}; nothing can be sent")
            while unread and (len(unread) >= self._window or unread[0].done()):
                if not unread[0].wait(self._timeout_s):
                    raise DeadlineExceededError(
                        f"{self._window} sent values were not taken within "
                        f"{self._timeout_s} s; send again, or close the stream"
                    )
                self._result_of(unread.popleft())
            unread.append(self._call_server("send", self._sent, value, timeout_s=None))
            self._sent += 1

    def finish(self) -> None:
        """Say that nothing more is sent: the function's inbox ends.

        Raises:
            RemoteError: values were sent to a function that takes none.
        """
        self._fork_guard.check("stream")
        with self._sending:
            if not self._is_over:
                self._is_finished = True
                self._result_of(self._call_server("finish", self._sent))

    def close(self) -> None:
        """End the stream; the function's iterator is closed. Idempotent."""
        if self._cancel():
            with contextlib.suppress(ReverieError):  # the server may never see the watch
                self._call_server("close")

    def _cancel(self) -> bool:
        """Withdraw the calls. False if that was done before, or they are another process's."""
        if self._is_over:
            return False
        self._is_over = True
        wanted, self._wanted = self._wanted, deque()
        unread, self._unread = self._unread, deque()
        if not self._fork_guard.is_here():
            return False
        watch = getattr(self, "_watch", None)
        for future in (*wanted.copy(), *unread.copy(), *([watch] if watch else [])):
            if not future.done():
                self._rpc._native.cancel(future)
        return True

    def __del__(self) -> None:
        if getattr(self, "_is_over", True) is False:
            close_in_del(self._cancel)


__all__ = ["Stream"]
