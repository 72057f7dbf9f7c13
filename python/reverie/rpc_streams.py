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
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from reverie import _checks, _reverie
from reverie._closing import Closing, close_in_del
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    ReverieError,
    UnsupportedTypeError,
)
from reverie.rpc_calls import run_logged

if TYPE_CHECKING:
    from reverie.rpc import DeferredReturn, Future, Rpc
    from reverie.rpc_calls import ServingThreads

# The function that all streams of a peer use.
STREAMS = "reverie.streams"
_VALUE, _END = 0, 1
_TAKES_NO_VALUES = "this function takes no values from its caller; define it with takes_values=True"
# A stream that its caller does not watch by then is marked once another one begins, and closed once
# one begins as long after that: the caller was lost, or gave up, before it had the stream's number.
# If the caller is only served late, the message that watches it comes before the second one.
_WATCH_TIME_S = 15.0
# A caller decides how many streams it opens, and each that takes values may keep a thread waiting.
TAKING_STREAMS_MAX = 1024


def checked_name(name: object) -> str:
    """Returns the name of a function that a program defines; refuses that of the streams."""
    text = _checks.text("name", name)
    if text == STREAMS:
        raise InvalidArgumentError(
            f"'{STREAMS}' is the function of a peer's streams; choose another name"
        )
    return text


class Inbox:
    """What the caller of a stream sends, in order; it ends once the caller calls ``finish``.

    Raises ``CancelledError`` once the caller has closed the stream or disconnected.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sent: dict[int, tuple[Any, DeferredReturn]] = {}
        self._taken = 0
        self._count: int | None = None  # of all, once it is known
        self._is_cancelled = False
        self._takes_values = True
        self._pool: ServingThreads | None = None  # one of whose threads may wait here

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        """The next value; waits for it. ``max_threads`` does not count a thread that waits here."""
        with self._changed:
            while not self._is_cancelled and self._taken not in self._sent:
                if self._taken == self._count:
                    raise StopIteration
                with self._pool.not_counted() if self._pool else contextlib.nullcontext():
                    self._changed.wait()
            if self._is_cancelled:
                raise CancelledError("the caller of this stream has closed it or disconnected")
            value, answer = self._sent.pop(self._taken)
            self._taken += 1
        answer(None)  # there is room for another one
        return value

    def _add(self, number: int, value: object, answer: DeferredReturn) -> None:
        if not self._takes_values:
            answer.fail(_TAKES_NO_VALUES)
            return
        with self._changed:
            is_wanted = not self._is_cancelled
            if is_wanted:
                self._sent[number] = (value, answer)
                self._changed.notify_all()
        if not is_wanted:
            answer(None)

    def _finish(self, count: int, answer: DeferredReturn) -> None:
        if count > 0 and not self._takes_values:
            answer.fail(_TAKES_NO_VALUES)
            return
        with self._changed:
            self._count = count
            self._changed.notify_all()
        answer(None)

    def _cancel(self) -> None:
        with self._changed:
            self._is_cancelled = True
            left = [answer for _, answer in self._sent.values()]
            self._sent.clear()
            self._changed.notify_all()
        for answer in left:
            answer(None)  # the answer is not read, and must not block the caller


class _Served:
    """One stream at its server: an iterator, and the "next" that wait for its values."""

    def __init__(self, values: Iterator[Any], inbox: Inbox, on_over: Callable[[], None]) -> None:
        self.inbox = inbox
        self._values = values
        self._on_over = on_over
        self._lock = threading.Lock()
        self._wanted: dict[int, DeferredReturn] = {}
        self._at = 0
        self._is_running = False
        self._is_closed = False
        self._is_over = False

    def want(self, number: int, answer: DeferredReturn) -> None:
        """The caller has room for the value of this number."""
        with self._lock:
            if not self._is_over:
                self._wanted[number] = answer
                if self._is_running:
                    return
                self._is_running = True
        if self._is_over:
            answer((_END, None))
            return
        self._run()

    def close(self) -> None:
        """The caller wants no more, or has disconnected."""
        self.inbox._cancel()
        with self._lock:
            self._is_closed = True
            if self._is_running or self._is_over:
                return
            self._is_running = True
        self._run()

    def _run(self) -> None:
        while True:
            with self._lock:
                answer = self._wanted.pop(self._at, None)
                is_closed = self._is_closed
                if answer is None and not is_closed:
                    self._is_running = False
                    return
            if is_closed:
                self._end(answer, None)
                return
            assert answer is not None
            try:
                value = next(self._values)
            except StopIteration as end:
                self._end(answer, end.value)
                return
            except BaseException as error:  # the caller is to know
                try:
                    answer.fail(error)
                finally:  # it closes the iterator, which may raise too
                    self._end(None, None)
                return
            self._at += 1
            try:
                answer((_VALUE, value))
            except Exception:  # a value that has no encoding: the caller was told
                self._end(None, None)
                return

    def _end(self, answer: DeferredReturn | None, result: object) -> None:
        with self._lock:
            self._is_over = True
            self._is_running = False
            left = list(self._wanted.values())
            self._wanted.clear()
        self._on_over()
        self.inbox._cancel()
        close = getattr(self._values, "close", None)
        try:
            if close is not None:
                close()
        finally:
            if answer is not None:
                answer((_END, result))
            for other in left:
                other((_END, None))


class Streams:
    """The streams that a peer serves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[int, _Served] = {}
        self._owners: dict[int, str] = {}
        self._taking: set[int] = set()  # those that take values
        self._unwatched: dict[int, float] = {}  # when to mark or close them
        self._marked: set[int] = set()
        self._lost: deque[int] = deque(maxlen=1024)
        # Large numbers, which no other function that a caller takes for a stream's returns.
        self._first = self._next = (1 << 61) + (_reverie.random_seed() >> 4)

    def begin(
        self, answer: DeferredReturn, make: Callable[[Inbox], object], *, takes_values: bool
    ) -> None:
        """Serve the values of ``make(inbox)``, and send the stream's number to the caller.

        Raises:
            ResourceExhaustedError: too many streams that take values are open.
        """
        inbox = Inbox()
        inbox._pool = answer._pool
        with self._lock:
            lost = self._take_unwatched()
            number = self._next
            self._next += 1
            if takes_values:
                if len(self._taking) >= TAKING_STREAMS_MAX:
                    raise ResourceExhaustedError(
                        f"{len(self._taking)} streams that take values are open; there may be "
                        f"{TAKING_STREAMS_MAX}: finish or close some"
                    )
                self._taking.add(number)
        try:
            if not takes_values:
                inbox._takes_values = False
                inbox._count = 0
            values = iter(make(inbox))  # type: ignore[call-overload]
        except BaseException:
            self._forget(number)
            raise
        served = _Served(values, inbox, lambda: self._forget(number))
        with self._lock:
            self._served[number] = served
            self._owners[number] = answer.caller
            self._unwatched[number] = time.monotonic() + _WATCH_TIME_S
        answer.when_withdrawn(served.close)  # the caller gave up, so it will not watch the stream
        answer(number)
        for earlier in lost:
            run_logged(earlier.close)

    def serve(self, answer: DeferredReturn, stream: int, what: str, *rest: Any) -> None:  # noqa: ANN401
        """A caller's message about one of its streams."""
        with self._lock:
            served = self._served.get(stream)
            if served is not None and self._owners[stream] != answer.caller:
                served = None
            if served is not None and what == "watch":
                self._unwatched.pop(stream, None)
                self._marked.discard(stream)
            is_lost = stream in self._lost
            is_any = self._first <= stream < self._next
        if not is_any and what == "next":
            answer.fail(f"{stream} is no stream's number; streams are served by define_stream")
        elif is_lost and what == "next":
            # Without an error the caller would take it for a stream without values.
            answer.fail(
                f"the stream's number was not used within {2 * _WATCH_TIME_S:g} s, so the stream "
                "was closed; begin it again"
            )
        elif served is None:
            answer((_END, None))
        elif what == "next":
            served.want(int(rest[0]), answer)
        elif what == "send":
            served.inbox._add(int(rest[0]), rest[1], answer)
        elif what == "finish":
            served.inbox._finish(int(rest[0]), answer)
        elif what == "watch":
            answer.when_withdrawn(served.close)
        elif what == "close":
            answer(None)
            served.close()
        else:
            answer.fail(f"{what!r} is nothing that a stream knows")

    def close(self) -> None:
        """Close all streams: the peer is closed. Raises Ctrl-C, once all are closed."""
        with contextlib.ExitStack() as all_closed:
            for served in list(self._served.values()):
                all_closed.callback(run_logged, served.close, catches=Exception)

    def _take_unwatched(self) -> list[_Served]:
        """The streams that were not watched in time. REQUIRES: the lock."""
        now = time.monotonic()
        lost = []
        for number in [number for number, due in self._unwatched.items() if due <= now]:
            if number in self._marked:
                del self._unwatched[number]
                self._marked.discard(number)
                lost.append(number)
            else:
                self._marked.add(number)
                self._unwatched[number] = now + _WATCH_TIME_S
        self._lost.extend(lost)
        return [self._served[number] for number in lost]

    def _forget(self, number: int) -> None:
        with self._lock:
            self._unwatched.pop(number, None)
            self._marked.discard(number)
            self._served.pop(number, None)
            self._owners.pop(number, None)
            self._taking.discard(number)


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
            made.close()
            with contextlib.suppress(ReverieError):  # the server may never see the watch
                made._call_server("close")
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
            if kind == _END:
                self.result = value
                self.close()
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
        if self._is_over:
            return
        self._is_over = True
        wanted, self._wanted = self._wanted, deque()
        unread, self._unread = self._unread, deque()
        if not self._fork_guard.is_here():
            return  # the calls are the parent's
        for future in (*wanted.copy(), *unread.copy(), self._watch):
            if not future.done():
                self._rpc._native.cancel(future)

    def __del__(self) -> None:
        if getattr(self, "_is_over", True) is False:
            close_in_del(self.close)


__all__ = ["Inbox", "Stream", "Streams"]
