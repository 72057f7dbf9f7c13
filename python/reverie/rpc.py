"""Calls between processes by name.

    learner = reverie.Rpc("learner")                    # one process, until learner.close()
    learner.listen("127.0.0.1:7000")
    learner.define("policy", policy)

    with reverie.Rpc() as rpc:                          # another
        rpc.connect("127.0.0.1:7000")
        action = rpc.sync("learner", "policy", observation)

See docs/concepts/rpc.md. `reverie.rpc_calls` has both sides of one call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from reverie import _checks, _reverie, rpc_batches, rpc_served_streams, rpc_streams
from reverie._closing import Closing, close_in_del
from reverie._process_bound import ProcessBound
from reverie.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ReverieError,
)
from reverie.rpc_calls import DeferredReturn, Future, Handler, ServingThreads, Withdrawals
from reverie.rpc_names import create_uid
from reverie.tls import PeerTls

__all__ = ["DeferredReturn", "Future", "Rpc", "create_uid"]

_TRANSPORTS = ("shm", "unix", "tcp", "ucx")


def _ways(transports: Sequence[str]) -> tuple[bool, bool, bool, bool]:
    """Whether Unix sockets, TCP, shared memory and UCX are used."""
    used = [
        _checks.choice("transports", one, _TRANSPORTS)
        for one in _checks.items("transports", transports, "'shm', 'unix', 'tcp' and 'ucx'")
    ]
    if not used:
        raise InvalidArgumentError(
            "transports is empty; it must hold at least one of 'shm', 'unix', 'tcp' and 'ucx'"
        )
    return (
        "unix" in used or "shm" in used,
        "tcp" in used or "ucx" in used,
        "shm" in used,
        "ucx" in used,
    )


def checked_pickle(allow_pickle: object, token: str | None) -> bool:
    """The flag; refused without a token."""
    allows = _checks.flag("allow_pickle", allow_pickle)
    if allows and not token:
        raise InvalidArgumentError(
            "allow_pickle is True, but there is no token: any process that reaches a peer could "
            "run code in it; give all peers the same token"
        )
    return allows


class Rpc(ProcessBound, Closing):
    """A peer: it calls functions of other peers by name, and serves functions of its own.

    Peers find each other from one address: each connected peer tells where others are. On one
    machine they communicate through shared memory or Unix sockets, else through TCP. A call runs at
    most once, even if connections are lost meanwhile. See docs/concepts/rpc.md.

    Args:
        name: unique among the connected peers; None makes one with ``create_uid``.
        token: a secret that all peers share. Without one only peers of this machine are accepted,
            unless ``insecure`` or ``tls`` is set. It is never sent, only proved.
        timeout_s: how long a call may take that sets no other limit.
        tls: a `PeerTls`, which encrypts connections by TCP and accepts only peers whose certificate
            its authorities have signed; None does not encrypt. Both ends must have it, or neither.
        insecure: lets a peer without a token or ``tls`` listen where other machines can reach it.
        transports: which of ``"shm"``, ``"unix"``, ``"tcp"`` and ``"ucx"`` are used; the first that
            reaches a peer is. Shared memory must be among those of both peers; it begins with a
            Unix socket and falls back to it. So must ``"ucx"``, which begins with TCP and falls
            back to it; it needs a library that was built with ``REVERIE_UCX``, and no ``tls``.
        max_threads: how many handlers and callbacks may run at the same time.
        max_pending_calls: how many calls may be without an answer; further ones are refused.
        dead_after_s: a peer that is silent or out of reach for this long is dead: its calls fail.
        find_timeout_s: how long to look for a name that no peer knows.
        reach_timeout_s: how long a call waits for an address that was given to ``connect`` and does
            not answer; a peer may be started that much later than the peers that call it.
        allow_pickle: send values that have no encoding by pickle, and read pickles that come, which
            runs code that their sender chose. Both ends must say so, and have a ``token``.

    Raises:
        InvalidArgumentError: a name or number out of bounds, a malformed certificate or key, or
            ``allow_pickle`` without a token, or ``"ucx"`` with ``tls``.
        UnimplementedError: ``"ucx"`` in a library that was built without it.
        OSError: a file of ``tls`` cannot be read.
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
        tls: PeerTls | None = None,
        timeout_s: float | None = 120.0,
        insecure: bool = False,
        transports: Sequence[str] = ("shm", "unix", "tcp"),
        max_threads: int = 32,
        max_pending_calls: int = 65_536,
        dead_after_s: float = 1.5,
        find_timeout_s: float = 2.0,
        reach_timeout_s: float = 30.0,
        allow_pickle: bool = False,
    ) -> None:
        self._name = create_uid() if name is None else _checks.text("name", name)
        self._timeout_s = _checks.timeout("timeout_s", timeout_s)
        uses_unix, uses_tcp, uses_shared_memory, uses_ucx = _ways(transports)
        threads_max = _checks.integer("max_threads", max_threads, 1, 1024)
        pickles = checked_pickle(allow_pickle, token)
        native = _reverie.RpcPeer(
            self._name,
            "" if token is None else _checks.text("token", token),
            _checks.flag("insecure", insecure),
            uses_unix,
            uses_tcp,
            uses_shared_memory,
            uses_ucx,
            _checks.integer("max_pending_calls", max_pending_calls, 1, 1 << 24),
            _checks.number("dead_after_s", dead_after_s, 0.1, 3600.0),
            _checks.number("find_timeout_s", find_timeout_s, 0.0, 3600.0),
            _checks.number("reach_timeout_s", reach_timeout_s, 0.0, 86_400.0),
            None if tls is None else _checks.instance("tls", tls, PeerTls)._options(),
            pickles,
        )
        # The peer and its threads do not hold these: they may lead back to this object.
        self._functions = native.make_functions()
        self._withdrawals = Withdrawals()
        self._pool = ServingThreads(native, threads_max, self._withdrawals)
        self._native = native
        self._streams: rpc_served_streams.Streams | None = None

    # --- Who and where.

    @property
    def name(self) -> str:
        """The name by which others call this peer."""
        return self._name

    @property
    def addresses(self) -> list[str]:
        """Where this peer listens, with the ports that were chosen."""
        return self._native.addresses()

    def listen(self, address: str = "127.0.0.1:0") -> str:
        """Let others connect at ``"host:port"`` or ``"unix:/path"``; returns the chosen address.

        Raises:
            InvalidArgumentError: a malformed address, or one that other machines can reach although
                there is neither a token nor ``tls``, and ``insecure`` is not set.
            AlreadyExistsError: another process listens there.
        """
        return self._native.listen(address)

    def connect(self, address: str) -> None:
        """Keep a connection to the peer that listens at ``address``, now or later. Never waits.

        Raises:
            InvalidArgumentError: a malformed address.
        """
        self._native.connect(address)

    def set_transports(self, transports: Sequence[str]) -> None:
        """Replace the ``transports`` that the Rpc was made with, before it listens or connects.

        Raises:
            InvalidArgumentError: an unknown transport, or none, or ``"ucx"`` with ``tls``.
            UnimplementedError: ``"ucx"`` in a library that was built without it.
            FailedPreconditionError: it listens or connects already.
        """
        self._native.set_ways(*_ways(transports))

    def set_max_threads(self, max_threads: int) -> None:
        """Change how many handlers and callbacks may run at the same time.

        Handlers that run are not stopped: threads above the bound end with what they run.
        """
        self._native.check_open()
        self._pool.set_threads_max(_checks.integer("max_threads", max_threads, 1, 1024))

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
        """The state of connections and calls, as plain data.

        For each peer, ``transport`` is ``"shared memory"``, ``"Unix socket"``, ``"TCP"``,
        ``"TCP with TLS"`` or ``"UCX"``, and ``transport_reason`` says why. ``devices`` counts
        tensors that were ``lent`` to other processes in a GPU's memory, and ``received`` so;
        ``lent_bytes`` are not copied yet, ``open`` allocations of others are open, and ``refusal``
        says why the latest tensor that was not lent was not.
        """
        return {
            "name": self._name,
            "addresses": self._native.addresses(),
            "functions": self._native.functions(),
            "pending_calls": self._native.pending_calls(),
            "threads": self._pool._count,
            "peers": self._native.peers(),
            "devices": self._native.devices(),
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

        It runs on one of this peer's threads, concurrently with others. What it returns is copied;
        what it raises becomes ``RemoteError`` at the caller.

        With a ``batch_size`` it runs once for several calls, one batch at a time. Arrays and
        numbers of their arguments are stacked along a new first dimension; other values become a
        tuple with one entry for each call. Each array that it returns must have a row for each
        call, and a list or tuple without arrays an entry; each caller gets its own. A result of
        another length fails all calls of the batch.

        Args:
            name: the name by which others call it.
            function: the function that is called.
            batch_size: how many calls a batch has at most.
            max_wait_s: how long the first call of a batch waits for others; None waits until
                ``batch_size`` have come.
            dynamic_batching: do not wait: a batch is what has come while the one before ran.
            cat: callers bring batches, whose arrays are concatenated along their first dimension.
                A call whose arrays differ in their number of rows fails alone.
            pad: repeat the last row until there are ``batch_size`` rows.
            device: where torch's tensors go, ``"cuda:0"``.
            is_ready: called with the number of calls that wait; True closes the batch.

        Raises:
            AlreadyExistsError: there is a function of that name.
        """
        _checks.function("function", function)
        if batch_size is not None:
            rpc_batches.BatchOptions(
                batch_size, max_wait_s, dynamic_batching, cat, pad, device, is_ready
            ).checked().define(self._native, name, function)
            self._pool.help_if_none()
            return

        self._native.define(rpc_served_streams.checked_name(name), function)
        self._pool.help_if_none()

    def define_deferred(self, name: str, function: Callable[..., Any]) -> None:
        """Serve ``function(deferred, *args, **kwargs)``, which answers by ``deferred(value)``.

        The answer may come later, from any thread; what the function itself returns is dropped.
        """
        _checks.function("function", function)

        def handler(answer: DeferredReturn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            function(answer, *args, **kwargs)

        self._define(rpc_served_streams.checked_name(name), handler)

    def define_stream(
        self, name: str, function: Callable[..., Any], *, takes_values: bool = False
    ) -> None:
        """Serve the values of ``function(*args, **kwargs)``, one after the other.

        The function is a generator, or returns another iterable. It runs as long as the caller has
        room for values. When the caller closes the stream or disconnects, the generator is closed:
        its ``finally`` runs. What it raises reaches the caller as ``RemoteError``, after the values
        before it; what it returns is the ``result`` of the caller's stream.

        With ``takes_values`` it is called as ``function(inbox, *args, **kwargs)``: iterating over
        ``inbox`` yields what the caller sends.

        Raises:
            AlreadyExistsError: there is a function of that name.
        """
        _checks.function("function", function)
        takes = _checks.flag("takes_values", takes_values)
        name = rpc_served_streams.checked_name(name)
        if self._streams is None:
            self._streams = streams = rpc_served_streams.Streams()

            def serve(
                answer: DeferredReturn, args: tuple[Any, ...], kwargs: dict[str, Any]
            ) -> None:
                streams.serve(answer, *args, **kwargs)

            self._define(rpc_served_streams.STREAMS, serve)
        served = self._streams

        def handler(answer: DeferredReturn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            def make(inbox: rpc_served_streams.Inbox) -> object:
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
        options = rpc_batches.BatchOptions(
            1 if batch_size is None else batch_size,
            max_wait_s,
            dynamic_batching,
            cat,
            pad,
            device,
            is_ready,
        ).checked()
        gatherer = options.define(self._native, name, None, batched=batch_size is not None)
        assert gatherer is not None
        self._pool.help_if_none()
        return rpc_batches.Queue._of(gatherer, self._pool)

    def undefine(self, name: str) -> bool:
        """Stop serving ``name``; False if it was not defined.

        Calls that run, or were taken from a queue, continue. Those that still wait, for their batch
        or in a queue, fail with ``NotFoundError`` at their callers.
        """
        if isinstance(name, str) and name == rpc_served_streams.STREAMS:
            return False  # as other functions of every peer: it was not defined by the program
        return self._native.undefine(name)

    def _define(self, name: str, handler: Handler) -> None:
        self._native.define(name, handler, deferred=True)
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
        """Begin a call, and call ``callback(result, error)`` later; one of the two is None.

        It runs on a thread of the Rpc, where it may wait; on this thread only if the Rpc was closed
        meanwhile.
        """
        _checks.function("callback", callback)

        def on_done(future: Future) -> None:
            error = future.exception()
            callback(None if error is not None else future.result(), error)

        self.async_(
            peer, function, *args, timeout_s=timeout_s, idempotent=idempotent, **kwargs
        )._call_later(on_done)

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
        """Call a function that ``peer`` serves with ``define_stream``; yields its values.

            with rpc.stream("server", "rows", 1000) as rows:
                for row in rows:
                    ...

        At most ``window`` values are in transit or not yet read, and as many that ``send`` sent.
        ``timeout_s`` is how long to wait for each of them. Raises what ``Future.result`` raises.
        """
        limit = self._timeout_s if timeout_s is ... else _checks.timeout("timeout_s", timeout_s)
        width = _checks.integer("window", window, 1, 1 << 16)
        number = self.sync(peer, function, *args, timeout_s=limit, **kwargs)
        if type(number) is not int:
            raise FailedPreconditionError(
                f"{function!r} on {peer!r} gives one value; streams are served by define_stream"
            )
        return rpc_streams.Stream._of(self, peer, function, number, width, limit)

    # --- The end.

    def close(self) -> None:
        """End all calls with ``CancelledError``, and notify other peers. Idempotent."""
        self._native.close()
        if self._streams is not None and self._pool.fork_guard.is_here():
            self._streams.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None:
            close_in_del(native.close)

    def __repr__(self) -> str:
        return f"<reverie.Rpc {self._name!r}>"
