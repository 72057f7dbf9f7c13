"""The streams that a peer serves: the server's side of ``rpc_streams``.

``Streams`` begins those of a peer and gives each message to its stream. ``_Served`` is one: the
iterator of a function, and the "next" that wait for its values. ``Inbox`` is what the caller sends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from reverie import _checks, _reverie
from reverie.errors import CancelledError, InvalidArgumentError, ResourceExhaustedError
from reverie.rpc_calls import run_logged

if TYPE_CHECKING:
    from reverie.rpc import DeferredReturn
    from reverie.rpc_calls import ServingThreads

# The function that all streams of a peer use.
STREAMS = "reverie.streams"
# What a "next" is answered with: a value, or the function's result.
VALUE, END = 0, 1
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
            answer((END, None))
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
                answer((VALUE, value))
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
                answer((END, result))
            for other in left:
                other((END, None))


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
        for earlier in lost:  # whether this stream begins or not
            run_logged(earlier.close)
        with self._lock:
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
            answer((END, None))
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


__all__ = ["Inbox", "Streams"]
