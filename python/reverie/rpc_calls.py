"""One call between peers: its future, its answer, and the threads of a peer that serve calls.

    caller   rpc.async_() --> Future             result(), await, add_done_callback()
    callee   ServingThreads --> handler(DeferredReturn, args, kwargs) --> answer or error

See docs/concepts/rpc.md; `reverie.rpc` has the peer.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from reverie import _checks, _reverie
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    ResourceExhaustedError,
    ReverieError,
    UnsupportedTypeError,
)

_INTERNAL = 13
Handler = Callable[["DeferredReturn", tuple[Any, ...], dict[str, Any]], None]
"""Serves a call: it answers through the first argument, now or later."""


class Future(_reverie.RpcCall):
    """A call in progress. Made by ``Rpc.async_``; any thread may use it, and ``await`` it."""

    __slots__ = ()

    if TYPE_CHECKING:  # of the native class, whose stubs leave out what is private
        _pool: ServingThreads

        def _value(self) -> Any: ...  # noqa: ANN401
        def _value_within(self, timeout_s: float | None) -> Any: ...  # noqa: ANN401

    def __init__(self) -> None:
        raise UnsupportedTypeError("futures are made by Rpc.async_")

    def __reduce__(self) -> tuple[Any, ...]:  # a native base leaves no room for ProcessBound
        raise UnsupportedTypeError(
            "a Future lives in this process and cannot be pickled or copied; send its result"
        )

    def done(self) -> bool:
        """Whether the call has ended in any way: ``result`` would return or raise at once."""
        return super().done()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the call has ended; False when ``timeout_s`` is up first.

        None waits as long as the call may take.
        """
        return super().wait(_checks.timeout("timeout_s", timeout_s))

    def result(self, timeout_s: float | None = None) -> Any:  # noqa: ANN401
        """What the function returned. May be called again.

        Raises:
            DeadlineExceededError: the call had no answer in its time, or none within ``timeout_s``;
                then it continues.
            RemoteError: the function raised.
            UnavailableError: the peer is gone, and with it the call.
            PeerRestartedError: the same, and there is a new run of the peer.
            NotFoundError: no peer, or no function, of that name.
            CancelledError: the call was cancelled, or the Rpc was closed.
        """
        if timeout_s is not None:
            timeout_s = _checks.timeout("timeout_s", timeout_s)
        return self._value_within(timeout_s)

    def exception(self, timeout_s: float | None = None) -> ReverieError | None:
        """What ``result`` would raise once the call has ended, or None."""
        if not self.wait(timeout_s):
            raise DeadlineExceededError(
                f"no answer within {timeout_s} s; the call continues, ask again or cancel()"
            )
        try:
            self._value()
        except ReverieError as error:
            return error
        return None

    def cancel(self) -> bool:
        """Cancel the call, and notify its peer. False if it had ended."""
        if self.done():
            return False
        self._pool.native.cancel(self)
        return isinstance(self.exception(), CancelledError)

    def add_done_callback(self, callback: Callable[[Future], object]) -> None:
        """Call ``callback(future)`` once the call has ended; at once if it has.

        Otherwise it runs on a thread of the Rpc, where it may wait.
        """
        _checks.function("callback", callback)
        self._pool.help_if_none()
        if not self._pool.native.when_done(self, lambda: callback(self)):
            callback(self)

    def _call_later(self, callback: Callable[[Future], object]) -> None:
        """The same, on a thread of the Rpc even if the call has ended."""
        self._pool.help_if_none()
        if not self._pool.native.when_done(self, lambda: callback(self), even_if_done=True):
            callback(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """``await future`` gives the result."""
        import asyncio  # costs more to import than all of this package

        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def wake() -> None:
            if not ended.done():
                ended.set_result(None)

        def on_done(_: Future) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(wake)

        self.add_done_callback(on_done)
        yield from ended
        return self._value()


_reverie.set_rpc_future_class(Future)


class DeferredReturn(ProcessBound):
    """Answers one call, once, from any thread: ``deferred(value)``, or ``deferred.fail(error)``.

    Attributes:
        caller: the name of the peer that called.
        function: the name of the function that it called.
    """

    __slots__ = ("_answered", "_call", "_native", "_pool", "_session", "caller", "function")

    _stays_because = (
        "a DeferredReturn lives in this process and cannot be pickled or copied; answer here"
    )

    _native: _reverie.RpcPeer
    _pool: ServingThreads
    _session: int
    _call: int
    _answered: bool
    caller: str
    function: str

    def __init__(self) -> None:
        raise UnsupportedTypeError("Rpc.define_deferred passes one to its function for each call")

    @classmethod
    def _of(
        cls, pool: ServingThreads, session: int, call: int, caller: str, function: str
    ) -> DeferredReturn:
        made = object.__new__(cls)
        made._pool = pool
        made._native = pool.native
        made._session = session
        made._call = call
        made._answered = False
        made.caller = caller
        made.function = function
        return made

    def __call__(self, value: object = None) -> None:
        """Answer with ``value``. Ignored if the caller has cancelled."""
        self._take()
        try:
            self._native.answer(self._session, self._call, value)
        except BaseException as error:  # reading the value may raise anything
            self._fail(error)
            raise

    def fail(self, error: BaseException | str) -> None:
        """Answer with an error: the caller gets ``RemoteError``."""
        _checks.instance("error", error, (BaseException, str), "an exception or a str")
        self._take()
        self._fail(error)

    def when_withdrawn(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` once no caller waits for the answer, on a thread of the Rpc.

        That is when the caller has cancelled, timed out or disconnected. One callback per call, set
        before the answer; it is not called once the call is answered.
        """
        _checks.function("callback", callback)
        self._pool.fork_guard.check("deferred answer")
        self._pool.when_withdrawn((self._session, self._call), callback)

    def _take(self) -> None:
        self._pool.fork_guard.check("deferred answer")
        if self._answered:
            raise FailedPreconditionError(
                f"this call of {self.function!r} by {self.caller!r} has been answered"
            )
        self._answered = True
        self._pool.forget((self._session, self._call))

    def _fail(self, error: BaseException | str) -> None:
        self._native.fail(self._session, self._call, _INTERNAL, *error_parts(error))


def error_parts(error: BaseException | str) -> tuple[str, str, str]:
    """What a caller learns about an error: its class, its text, its traceback."""
    if isinstance(error, str):
        return "Error", error, ""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    trace = "".join(traceback.format_exception(error))
    try:
        text = str(error)
    except BaseException:  # its own text raises; the caller is to know all the same
        text = "an error without a text"
    text, trace = (t.encode(errors="replace").decode() for t in (text, trace))
    return name, text, trace


class Withdrawals(dict[tuple[int, int], Callable[[], object]]):
    """What is called when no caller waits for the answer of a request any more. Of an Rpc."""

    __slots__ = ("__weakref__",)


def _run_all(callbacks: Iterable[Callable[[], object]]) -> None:
    """Runs each; a function of its own, so that an idle thread holds none, nor its call's value."""
    for callback in callbacks:
        run_logged(callback)


class ServingThreads:
    """The threads that serve an Rpc: one waits for the next task, others run what they took.

    The threads hold this, and neither the Rpc nor its functions: dropping the Rpc ends them.
    """

    def __init__(
        self, native: _reverie.RpcPeer, threads_max: int, withdrawals: Withdrawals
    ) -> None:
        self.native = native
        self.fork_guard = ForkGuard()
        self.threads_max = threads_max
        self._withdrawals = weakref.ref(withdrawals)
        self._lock = threading.Lock()
        self._count = 0
        self._waiting = 0  # those in not_counted()
        self._own = threading.local()
        native.set_threads_max(threads_max)

    def help(self) -> None:
        """One more thread, if there may be one.

        Raises:
            ResourceExhaustedError: the system starts none.
        """
        with self._lock:
            if self._count >= self.threads_max + self._waiting:
                return
            self._count += 1
        self.native.expect_thread()
        try:
            threading.Thread(target=self._serve, name="reverie-rpc", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._count -= 1
            self.native.note_thread_failed()
            raise ResourceExhaustedError(
                f"no thread can be started that serves calls: {error}; end other threads, or raise "
                "the limits of processes (ulimit -u) and of the container"
            ) from None

    def _help_or_serve(self) -> None:
        """The same for a serving thread: it does the work where no other can be started."""
        try:
            self.help()
        except ResourceExhaustedError as error:
            import logging

            with self._lock:
                self.threads_max = max(1, self._count - self._waiting)
                self.native.set_threads_max(self.threads_max + self._waiting)
            logging.getLogger("reverie").warning(
                "%s; calls are served by %d threads until set_max_threads()",
                error,
                self.threads_max,
            )

    def set_threads_max(self, count: int) -> None:
        """How many threads there may be; what is above it ends with its task."""
        with self._lock:
            is_raised = count > self.threads_max
            self.threads_max = count
            self.native.set_threads_max(count + self._waiting)
        if is_raised and self._count > 0:
            self.help()  # all others may be busy

    @contextlib.contextmanager
    def not_counted(self) -> Iterator[None]:
        """A wait that only another call of this Rpc can end: its thread does not count meanwhile.

        Otherwise ``threads_max`` such waits would leave no thread for the calls that end them.
        """
        if not getattr(self._own, "is_serving", False):
            yield
            return
        self._change_waiting(1)
        try:
            if self.native.needs_thread():
                self._help_or_serve()
            yield
        finally:
            self._change_waiting(-1)

    def _change_waiting(self, by: int) -> None:
        with self._lock:
            self._waiting += by
            self.native.set_threads_max(self.threads_max + self._waiting)

    def when_withdrawn(self, request: tuple[int, int], callback: Callable[[], object]) -> None:
        """Run ``callback()`` once no caller waits for the request's answer."""
        withdrawals = self._withdrawals()
        if withdrawals is None:  # the Rpc was dropped
            return
        self.native.tell_withdrawn()
        withdrawals[request] = callback
        # Requests that were withdrawn before are not reported.
        if not self.native.is_wanted(*request):
            self.withdraw(request)

    def withdraw(self, request: tuple[int, int]) -> None:
        """Run what waits for the request to be withdrawn, once."""
        callback = self.forget(request)
        if callback is not None:
            run_logged(callback)

    def forget(self, request: tuple[int, int]) -> Callable[[], object] | None:
        """What waits for the request to be withdrawn; it is not called any more."""
        withdrawals = self._withdrawals()
        return withdrawals.pop(request, None) if withdrawals else None

    def help_if_none(self) -> None:
        """Start the first thread, unless there is one."""
        if self._count == 0:
            self.help()

    def _serve(self) -> None:
        self._own.is_serving = True
        try:
            self.native.note_thread_started()
            while (task := self.native.next_task()) is not None:
                if not task:
                    self._help_or_serve()
                elif len(task) == 4:
                    if task[-1]:
                        self._help_or_serve()
                    self.withdraw(task[:2])
                else:
                    if task[-1]:
                        self._help_or_serve()
                    if len(task) == 2:
                        _run_all(task[0])
                    else:
                        self._run_request(*task[:-1])
                del task  # what it holds goes now, not with the next one
        finally:
            with self._lock:
                self._count -= 1
            # A thread that began to wait meanwhile has counted on this one.
            if self.native.needs_thread():
                with contextlib.suppress(ResourceExhaustedError):
                    self.help()

    def _run_request(
        self,
        session: int,
        call: int,
        caller: str,
        function: str,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        handler: Handler,
    ) -> None:
        answer = DeferredReturn._of(self, session, call, caller, function)
        try:
            handler(answer, *arguments)
        except BaseException as error:  # the caller is to know; this thread serves on
            if not answer._answered:
                answer.fail(error)


def run_logged(
    callback: Callable[[], object], *, catches: type[BaseException] = BaseException
) -> None:
    """Run it; exceptions are logged, SystemExit too: the thread serves others."""
    try:
        callback()
    except catches:
        import logging

        logging.getLogger("reverie").exception("a callback of a call raised")
