"""Calls between processes by name.

    with reverie.Rpc("learner") as rpc:                 # one process
        rpc.listen("127.0.0.1:7000")
        rpc.define("policy", policy)

    with reverie.Rpc() as rpc:                          # another
        rpc.connect("127.0.0.1:7000")
        action = rpc.sync("learner", "policy", observation)

See docs/concepts/rpc.md. Both sides of a call are here, since an ``Rpc`` is both.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from reverie import _checks, _reverie, rpc_batches, rpc_streams
from reverie._process_bound import ProcessBound
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    ReverieError,
    UnsupportedTypeError,
)

__all__ = ["DeferredReturn", "Future", "Rpc", "create_uid"]

_NOT_FOUND, _INTERNAL = 5, 13
_TRANSPORTS = ("shm", "unix", "tcp")
_Handler = Callable[["DeferredReturn", tuple[Any, ...], dict[str, Any]], None]

_ADJECTIVES = [
    *("able", "amber", "brave", "brisk", "calm", "clear", "clever", "crisp"),
    *("deep", "eager", "early", "fair", "fast", "fine", "firm", "fresh"),
    *("gentle", "glad", "golden", "good", "grand", "green", "happy", "keen"),
    *("kind", "late", "light", "lively", "lucky", "merry", "mild", "neat"),
    *("noble", "novel", "olive", "open", "pale", "plain", "polite", "proud"),
    *("quick", "quiet", "rapid", "ready", "rosy", "round", "sharp", "shiny"),
    *("silent", "silver", "simple", "sleek", "smart", "smooth", "snowy", "solid"),
    *("steady", "still", "strong", "sunny", "swift", "tall", "tidy", "vivid"),
    *("warm", "wide", "wise", "young"),
]
_NOUNS = [
    *("acorn", "anchor", "apple", "arrow", "badger", "beacon", "birch", "bridge"),
    *("brook", "canyon", "cedar", "cloud", "comet", "coral", "crane", "delta"),
    *("dune", "eagle", "ember", "falcon", "fern", "field", "finch", "fjord"),
    *("flame", "forest", "fox", "garden", "glade", "harbor", "hawk", "heron"),
    *("hill", "island", "ivy", "jade", "lake", "lark", "leaf", "lily"),
    *("lynx", "maple", "marsh", "meadow", "moon", "moss", "oak", "ocean"),
    *("orbit", "otter", "owl", "pearl", "pebble", "pine", "planet", "pond"),
    *("raven", "reef", "river", "robin", "rose", "sail", "sand", "shore"),
    *("spruce", "star", "stone", "stream", "swan", "tide", "trail", "valley"),
    *("wave", "willow", "wind", "wolf", "wren"),
]


def create_uid() -> str:
    """A unique name: ``"host:pid:two-words"`` and eight digits."""
    draw = _reverie.random_seed()
    words = f"{_ADJECTIVES[draw % len(_ADJECTIVES)]}-{_NOUNS[(draw >> 16) % len(_NOUNS)]}"
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{words}-{draw >> 32:08x}"


class Future(_reverie.RpcCall):
    """A call under way. Made by ``Rpc.async_``; any thread may use it, and ``await`` it."""

    __slots__ = ()

    if TYPE_CHECKING:  # of the native class, whose stubs leave out what is private
        _pool: _Pool

        def _value(self) -> Any: ...  # noqa: ANN401
        def _value_within(self, timeout_s: float | None) -> Any: ...  # noqa: ANN401

    def __init__(self) -> None:
        raise UnsupportedTypeError("futures are made by Rpc.async_")

    def __reduce__(self) -> tuple[Any, ...]:  # a native base leaves no room for ProcessBound
        raise UnsupportedTypeError(
            "a Future lives in this process and cannot be pickled or copied; send its result"
        )

    def done(self) -> bool:
        """Whether the call has ended, by whatever: ``result`` would return or raise at once."""
        return super().done()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the call has ended; False when ``timeout_s`` is up first.

        None waits as long as the call may take.
        """
        return super().wait(_checks.timeout("timeout_s", timeout_s))

    def result(self, timeout_s: float | None = None) -> Any:  # noqa: ANN401
        """What the function returned. Can be asked for again.

        Raises:
            DeadlineExceededError: the call had no answer in its time, or none within ``timeout_s``;
                then it goes on.
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
                f"no answer within {timeout_s} s; the call goes on, ask again or cancel()"
            )
        try:
            self._value()
        except ReverieError as error:
            return error
        return None

    def cancel(self) -> bool:
        """Give the call up; its peer is told. False if it had ended."""
        if self.done():
            return False
        self._pool.native.cancel(self)
        return isinstance(self.exception(), CancelledError)

    def add_done_callback(self, callback: Callable[[Future], object]) -> None:
        """Call ``callback(future)`` once the call has ended; at once if it has.

        Else on a thread of the Rpc's, where it may wait.
        """
        _checks.function("callback", callback)
        self._pool.help_if_none()
        if not self._pool.native.when_done(self, lambda: callback(self)):
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
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake)

        self.add_done_callback(on_done)
        yield from ended
        return self._value()


_reverie.set_rpc_future_class(Future)


class DeferredReturn(ProcessBound):
    """Answers one call, once, from any thread: ``deferred(value)``, or ``deferred.fail(error)``."""

    __slots__ = ("_answered", "_call", "_native", "_pool", "_session", "caller", "function")

    _stays_because = (
        "a DeferredReturn lives in this process and cannot be pickled or copied; answer here"
    )

    _native: _reverie.RpcPeer
    _pool: _Pool
    _session: int
    _call: int
    _answered: bool
    caller: str
    function: str

    def __init__(self) -> None:
        raise UnsupportedTypeError("functions of Rpc.define_deferred are given one for each call")

    @classmethod
    def _of(
        cls, pool: _Pool, session: int, call: int, caller: str, function: str
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
        """Answer with ``value``. Ignored when the caller has given up."""
        self._take()
        try:
            self._native.answer(self._session, self._call, value)
        except ReverieError as error:
            self._fail(error)
            raise

    def fail(self, error: BaseException | str) -> None:
        """Answer with an error: the caller gets ``RemoteError``."""
        _checks.instance("error", error, (BaseException, str), "an exception or a str")
        self._take()
        self._fail(error)

    def when_withdrawn(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` once no caller waits for the answer, on a thread of the Rpc's.

        The caller has cancelled, its time is up, or it is gone. One callback a call, before the
        answer; it is not called once the call is answered.
        """
        _checks.function("callback", callback)
        self._pool.when_withdrawn((self._session, self._call), callback)

    def _take(self) -> None:
        if self._answered:
            raise FailedPreconditionError(
                f"this call of {self.function!r} by {self.caller!r} has been answered"
            )
        self._answered = True
        if self._pool.withdrawals:
            self._pool.withdrawals.pop((self._session, self._call), None)

    def _fail(self, error: BaseException | str) -> None:
        _fail(self._native, self._session, self._call, error)


def _fail(native: _reverie.RpcPeer, session: int, call: int, error: BaseException | str) -> None:
    """Tell the caller what went wrong."""
    if isinstance(error, str):
        native.fail(session, call, _INTERNAL, "Error", error, "")
        return
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    trace = "".join(traceback.format_exception(error))
    text, trace = (t.encode(errors="replace").decode() for t in (str(error), trace))
    native.fail(session, call, _INTERNAL, name, text, trace)


class _Pool:
    """The threads that serve an Rpc: one waits for the next task, others run what they took.

    The threads hold this and not the Rpc, so that dropping the Rpc ends them.
    """

    def __init__(self, native: _reverie.RpcPeer, threads_max: int) -> None:
        self.native = native
        self.threads_max = threads_max
        self.handlers: dict[str, _Handler] = {}
        self.withdrawals: dict[tuple[int, int], Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._count = 0

    def help(self) -> None:
        """One more thread, if there may be one."""
        with self._lock:
            if self._count >= self.threads_max:
                return
            self._count += 1
        self.native.expect_thread()
        threading.Thread(target=self._serve, name="reverie-rpc", daemon=True).start()

    def when_withdrawn(self, request: tuple[int, int], callback: Callable[[], object]) -> None:
        self.native.tell_withdrawn()
        self.withdrawals[request] = callback
        # Requests that were withdrawn before are not reported.
        if not self.native.is_wanted(*request):
            self.withdraw(request)

    def withdraw(self, request: tuple[int, int]) -> None:
        callback = self.withdrawals.pop(request, None)
        if callback is not None:
            _run(callback)

    def help_if_none(self) -> None:
        if self._count == 0:
            self.help()

    def _serve(self) -> None:
        try:
            self.native.thread_has_come()
            while (task := self.native.next_task(self._count < self.threads_max)) is not None:
                if not task:
                    self.help()
                elif len(task) == 3:
                    session, call, error = task
                    _fail(self.native, session, call, error)
                elif len(task) == 4:
                    if task[-1]:
                        self.help()
                    self.withdraw(task[:2])
                else:
                    if task[-1]:
                        self.help()
                    if len(task) == 2:
                        for callback in task[0]:
                            _run(callback)
                    else:
                        self._run_request(*task[:-1])
                del task  # what it holds goes now, not with the next one
        finally:
            with self._lock:
                self._count -= 1

    def _run_request(
        self,
        session: int,
        call: int,
        caller: str,
        function: str,
        arguments: Any,  # noqa: ANN401
    ) -> None:
        if arguments is None:
            return  # they could not be read, and the caller knows
        answer = DeferredReturn._of(self, session, call, caller, function)
        handler = self.handlers.get(function)
        if handler is None:
            self.native.fail(session, call, _NOT_FOUND, "", f"{function!r} is not defined", "")
            return
        try:
            args, kwargs = arguments  # a hostile peer may have sent anything
            handler(answer, tuple(args), dict(kwargs))
        except BaseException as error:  # the caller is to know; this thread serves on
            if not answer._answered:
                answer.fail(error)


def _run(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        import logging

        logging.getLogger("reverie").exception("a callback of a call raised")


class Rpc(ProcessBound):
    """A peer: it calls functions of other peers by name, and serves functions of its own.

    Peers find each other from one address: each peer that this one is connected to tells where
    others are. On one machine they talk through Unix sockets, else through TCP. A call runs at
    most once, also where connections are lost meanwhile. See docs/concepts/rpc.md.

    Args:
        name: unique among the peers that meet; None makes one with ``create_uid``.
        token: a secret that all peers share. Without one only peers of this machine get in, unless
            ``insecure`` is set. It is never sent, only proved.
        timeout_s: how long a call may take, where it does not say so itself.
        insecure: lets a peer without a token listen where other machines can reach it.
        transports: which of ``"shm"``, ``"unix"`` and ``"tcp"`` are used; the first that leads to a
            peer is. Shared memory needs both peers to say so, begins with a Unix socket and falls
            back to it. It is faster where there is a core for each peer, and slower where not.
        max_threads: how many handlers and callbacks may run at the same time.
        max_pending_calls: calls without an answer; one more is refused.
        dead_after_s: a peer that is silent or out of reach for so long is dead: its calls fail.
        find_timeout_s: how long a name that no peer knows is looked for.

    Raises:
        InvalidArgumentError: a name or number out of bounds.
    """

    _stays_because = (
        "an Rpc lives in this process and cannot be pickled or copied; make one in the other "
        "process, and connect() it"
    )

    def __init__(
        self,
        name: str | None = None,
        *,
        token: str | None = None,
        timeout_s: float | None = 120.0,
        insecure: bool = False,
        transports: Sequence[str] = ("unix", "tcp"),
        max_threads: int = 32,
        max_pending_calls: int = 65_536,
        dead_after_s: float = 1.5,
        find_timeout_s: float = 2.0,
    ) -> None:
        self._name = create_uid() if name is None else _checks.text("name", name)
        self._timeout_s = _checks.timeout("timeout_s", timeout_s)
        used = [
            _checks.choice("transports", one, _TRANSPORTS)
            for one in _checks.items("transports", transports, "'shm', 'unix' and 'tcp'")
        ]
        if not used:
            raise InvalidArgumentError(
                "transports is empty; it must hold at least one of 'shm', 'unix' and 'tcp'"
            )
        threads_max = _checks.integer("max_threads", max_threads, 1, 1024)
        native = _reverie.RpcPeer(
            self._name,
            "" if token is None else _checks.text("token", token),
            _checks.flag("insecure", insecure),
            "unix" in used or "shm" in used,
            "tcp" in used,
            "shm" in used,
            _checks.integer("max_pending_calls", max_pending_calls, 1, 1 << 24),
            _checks.number("dead_after_s", dead_after_s, 0.1, 3600.0),
            _checks.number("find_timeout_s", find_timeout_s, 0.0, 3600.0),
        )
        self._pool = _Pool(native, threads_max)
        self._native = native
        self._streams: rpc_streams.Streams | None = None
        self._batch_leaves = "stack"

    # --- Who and where.

    @property
    def name(self) -> str:
        """The name that others call this peer by."""
        return self._name

    @property
    def addresses(self) -> list[str]:
        """Where this peer listens, with the ports that were chosen."""
        return self._native.addresses()

    def listen(self, address: str = "127.0.0.1:0") -> str:
        """Let others connect at ``"host:port"`` or ``"unix:/path"``; gives what was chosen.

        Raises:
            InvalidArgumentError: a malformed address, or one that other machines reach although
                there is no token.
            AlreadyExistsError: another process listens there.
        """
        return self._native.listen(address)

    def connect(self, address: str) -> None:
        """Keep a connection to the peer that listens at ``address``, now or later. Never waits.

        Raises:
            InvalidArgumentError: a malformed address.
        """
        self._native.connect(address)

    def peers(self) -> list[str]:
        """The names of the peers that this one is connected to."""
        return sorted(peer["name"] for peer in self._native.peers() if peer["is_connected"])

    def functions(self, peer: str | None = None) -> list[str]:
        """The names of the functions that this peer, or another one, has defined."""
        if peer is None:
            return self._native.functions()
        return list(self.sync(peer, "reverie.functions"))

    def ping(self, peer: str, *, timeout_s: float | None = 5.0) -> float:
        """The seconds that a question to ``peer`` and its answer take.

        No thread of Python's is needed there, so a peer that computes answers too. Raises what
        ``sync`` raises.
        """
        begin = time.perf_counter()
        self.sync(peer, "reverie.ping", timeout_s=timeout_s)
        return time.perf_counter() - begin

    def debug_info(self) -> dict[str, Any]:
        """What there is to know about connections and calls, as plain data.

        Of each peer: its ``transport`` is ``"shared memory"``, ``"Unix socket"`` or ``"TCP"``, and
        ``transport_reason`` says why it is that.
        """
        return {
            "name": self._name,
            "addresses": self._native.addresses(),
            "functions": self._native.functions(),
            "pending_calls": self._native.pending_calls(),
            "threads": self._pool._count,
            "peers": self._native.peers(),
        }

    # --- Functions of this peer.

    def define(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        batch_size: int | None = None,
        max_wait_s: float | None = 0.005,
        dynamic_batching: bool = False,
        cat: bool = False,
        pad: bool = False,
        device: str | None = None,
        is_ready: Callable[[int], bool] | None = None,
    ) -> None:
        """Serve ``function(*args, **kwargs)`` to others as ``name``.

        It runs on a thread of this peer's, beside others. What it returns is copied; what it raises
        becomes ``RemoteError`` at the caller.

        With a ``batch_size`` it runs once for several calls, never beside itself. Arrays and
        numbers of their arguments are stacked along a new first dimension; of other values it gets
        a tuple with one entry for each call. Each array that it returns must have a row for each
        call, and a list or tuple without arrays an entry; each caller gets its own. A result of
        another length fails all calls of the batch.

        Args:
            name: what others call it.
            function: what is called.
            batch_size: calls of a batch, at most.
            max_wait_s: how long the first call of a batch waits for others; None waits until
                ``batch_size`` have come.
            dynamic_batching: do not wait: a batch is what has come while the one before ran.
            cat: callers bring batches, whose arrays are concatenated along their first dimension.
            pad: repeat the last row until there are ``batch_size``.
            device: where torch's tensors go, ``"cuda:0"``.
            is_ready: called with the number of calls that wait; True closes the batch.

        Raises:
            AlreadyExistsError: there is a function of that name.
        """
        _checks.function("function", function)
        if batch_size is not None:
            gatherer = self._gatherer(
                batch_size, max_wait_s, dynamic_batching, cat, pad, device, is_ready
            )

            def gather(
                answer: DeferredReturn, args: tuple[Any, ...], kwargs: dict[str, Any]
            ) -> None:
                gatherer.add(rpc_batches.Waiting(answer, args, kwargs))
                gatherer.serve(function)

            self._define(name, gather)
            return

        self._native.define(_checks.text("name", name), function)
        self._pool.help_if_none()

    def define_deferred(self, name: str, function: Callable[..., Any]) -> None:
        """Serve ``function(deferred, *args, **kwargs)``, which answers by ``deferred(value)``.

        The answer may come later, from any thread; what the function itself returns is dropped.
        """
        _checks.function("function", function)

        def handler(answer: DeferredReturn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            function(answer, *args, **kwargs)

        self._define(name, handler)

    def define_stream(
        self, name: str, function: Callable[..., Any], *, takes_values: bool = False
    ) -> None:
        """Serve the values that ``function(*args, **kwargs)`` gives, one after the other.

        The function is a generator, or returns another iterable. It runs as far as the caller has
        room for values. When the caller closes the stream or is gone, the generator is closed: its
        ``finally`` runs. What it raises reaches the caller as ``RemoteError``, behind the values
        before; what it returns is the ``result`` of the caller's stream.

        With ``takes_values`` it is called as ``function(inbox, *args, **kwargs)``: to iterate over
        ``inbox`` gives what the caller sends.

        Raises:
            AlreadyExistsError: there is a function of that name.
        """
        _checks.function("function", function)
        takes = _checks.flag("takes_values", takes_values)
        if self._streams is None:
            self._streams = streams = rpc_streams.Streams()

            def serve(
                answer: DeferredReturn, args: tuple[Any, ...], kwargs: dict[str, Any]
            ) -> None:
                streams.serve(answer, *args, **kwargs)

            self._define(rpc_streams.STREAMS, serve)
        served = self._streams

        def handler(answer: DeferredReturn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            def make(inbox: rpc_streams.Inbox) -> object:
                return function(inbox, *args, **kwargs) if takes else function(*args, **kwargs)

            served.begin(answer, make, takes_values=takes)

        self._define(name, handler)

    def define_queue(
        self,
        name: str,
        *,
        batch_size: int | None = None,
        max_wait_s: float | None = 0.005,
        dynamic_batching: bool = False,
        cat: bool = False,
        pad: bool = False,
        device: str | None = None,
        is_ready: Callable[[int], bool] | None = None,
    ) -> rpc_batches.Queue:
        """Collect the calls of ``name`` in a queue, from which the program takes them.

        The arguments are those of ``define``. ``queue.get()`` and ``await queue`` give
        ``(answer, args, kwargs)``; ``answer(value)`` answers.
        """
        gatherer = self._gatherer(
            1 if batch_size is None else batch_size,
            max_wait_s,
            dynamic_batching,
            cat,
            pad,
            device,
            is_ready,
        )
        queue = rpc_batches.Queue(gatherer, is_batched=batch_size is not None)

        def handler(answer: DeferredReturn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            gatherer.add(rpc_batches.Waiting(answer, args, kwargs))
            queue._added()

        self._define(name, handler)
        return queue

    def _gatherer(self, *options: Any) -> rpc_batches.Gatherer:  # noqa: ANN401
        chosen = rpc_batches.BatchOptions(*options).checked()
        return rpc_batches.Gatherer(
            chosen._replace(leaves=self._batch_leaves), self._native.check_open
        )

    def undefine(self, name: str) -> bool:
        """Serve ``name`` no more; False if it was not defined. Calls that run go on."""
        self._pool.handlers.pop(_checks.text("name", name), None)
        return self._native.undefine(name)

    def _define(self, name: str, handler: _Handler) -> None:
        self._native.define(_checks.text("name", name), None)
        self._pool.handlers[name] = handler
        self._pool.help_if_none()

    # --- Calls.

    def sync(
        self,
        peer: str,
        function: str,
        /,
        *args: Any,  # noqa: ANN401
        timeout_s: Any = ...,  # noqa: ANN401
        idempotent: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Call ``function(*args, **kwargs)`` of ``peer``, and wait for what it returns.

        ``timeout_s`` replaces the Rpc's own; None waits without limit. A call that is
        ``idempotent`` may run again, on the next run of a peer that died. Raises what
        ``Future.result`` raises, and ``UnsupportedTypeError`` for arguments that cannot be sent.
        """
        limit = self._timeout_s if timeout_s is ... else _checks.timeout("timeout_s", timeout_s)
        if idempotent is not False:
            idempotent = _checks.flag("idempotent", idempotent)
        return self._native.sync(peer, function, args, kwargs, limit, idempotent)

    def async_(
        self,
        peer: str,
        function: str,
        /,
        *args: Any,  # noqa: ANN401
        timeout_s: Any = ...,  # noqa: ANN401
        idempotent: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> Future:
        """Begin a call, and return at once. Its arguments are copied before.

        Raises:
            UnsupportedTypeError: an argument that cannot be sent.
            ResourceExhaustedError: ``max_pending_calls`` calls wait for answers.
        """
        limit = self._timeout_s if timeout_s is ... else _checks.timeout("timeout_s", timeout_s)
        if idempotent is not False:
            idempotent = _checks.flag("idempotent", idempotent)
        future: Future = self._native.begin(
            peer, function, args, kwargs, limit, idempotent, self._pool
        )
        return future

    def async_callback(
        self,
        peer: str,
        function: str,
        callback: Callable[[Any, ReverieError | None], object],
        /,
        *args: Any,  # noqa: ANN401
        timeout_s: Any = ...,  # noqa: ANN401
        idempotent: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Begin a call, and call ``callback(result, error)`` later; one of the two is None."""
        _checks.function("callback", callback)

        def on_done(future: Future) -> None:
            error = future.exception()
            callback(None if error is not None else future.result(), error)

        self.async_(
            peer, function, *args, timeout_s=timeout_s, idempotent=idempotent, **kwargs
        ).add_done_callback(on_done)

    def stream(
        self,
        peer: str,
        function: str,
        /,
        *args: Any,  # noqa: ANN401
        window: int = 16,
        timeout_s: Any = ...,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> rpc_streams.Stream:
        """Call a function that ``peer`` serves with ``define_stream``; gives its values.

            with rpc.stream("server", "rows", 1000) as rows:
                for row in rows:
                    ...

        ``window`` values at most are on their way or not yet read, and as many that ``send`` sent.
        ``timeout_s`` is how long each of them is waited for. Raises what ``Future.result`` raises.
        """
        limit = self._timeout_s if timeout_s is ... else _checks.timeout("timeout_s", timeout_s)
        width = _checks.integer("window", window, 1, 1 << 16)
        number = self.sync(peer, function, *args, timeout_s=limit, **kwargs)
        if type(number) is not int:
            raise FailedPreconditionError(
                f"{function!r} on {peer!r} gives one value; streams are served by define_stream"
            )
        return rpc_streams.Stream._of(self, peer, number, width, limit)

    # --- The end.

    def close(self) -> None:
        """End all calls with ``CancelledError``, and tell the others. Idempotent."""
        self._native.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None:
            native.close()

    def __repr__(self) -> str:
        return f"<reverie.Rpc {self._name!r}>"

    def __enter__(self) -> Rpc:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
