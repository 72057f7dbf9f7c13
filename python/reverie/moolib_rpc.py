"""moolib's calls between peers, over ``reverie.Rpc``: its call shapes, error type and texts."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any

from reverie import _checks, rpc, rpc_batches
from reverie._awaiting import Awaiting
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.errors import (
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    RemoteError,
    ReverieError,
    UnavailableError,
    UnsupportedTypeError,
)
from reverie.moolib_settings import DEFAULTS, RpcError, WrongArgumentError, called, create_uid, rpcs

__all__ = [
    "Future",
    "Queue",
    "Rpc",
    "RpcDeferredReturn",
]

RpcDeferredReturn = rpc.DeferredReturn

_FIND_S = 3600.0  # a name, or an address, is looked for as long as its call may take
_Entry = tuple[Callable[[Any], object], "tuple[Any, ...] | None", "dict[str, Any] | None"]


def _translated(error: ReverieError, peer: str, function: str) -> RpcError:
    """The same in moolib's words."""
    if isinstance(error, DeadlineExceededError):
        return RpcError(f"Call ({peer}::{function}) timed out")
    if isinstance(error, CancelledError):
        return RpcError("The operation was cancelled")
    if isinstance(error, NotFoundError):
        return RpcError(f"RPC remote function {peer}::{function!r} does not exist")
    if isinstance(error, RemoteError):
        text = f"{error.error_type}: {error.error_text}\n{error.traceback_text}"
        return RpcError(f"Remote exception during RPC call ({function}): {text}")
    if isinstance(error, DataLossError):
        return RpcError(f"Deserialization error: {error}")
    if isinstance(error, FailedPreconditionError) and "itself" in str(error):
        return RpcError(
            f"Attempt to call function {function} on myself! Self-calling is not supported"
        )
    return RpcError(str(error))


class Future:
    """A call under way; made by ``Rpc.async_``."""

    __slots__ = ("_function", "_future", "_peer")

    def __init__(self, future: rpc.Future, peer: str, function: str) -> None:
        self._future = _checks.instance("future", future, rpc.Future)
        self._peer = _checks.text("peer", peer)
        self._function = _checks.text("function", function)

    def done(self) -> bool:
        """Whether ``result`` returns at once."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the call; ``RpcError`` when ``timeout`` seconds are up first."""
        if not self._future.wait(_checks.timeout("timeout", timeout)):
            raise RpcError("The operation timed out")

    def result(self, timeout: float | None = None) -> Any:  # noqa: ANN401
        """What the function returned; raises ``RpcError`` if the call failed."""
        self.wait(timeout)
        try:
            return self._future.result()
        except ReverieError as error:
            raise _translated(error, self._peer, self._function) from error

    def cancel(self) -> None:
        """Give the call up."""
        self._future.cancel()

    def exception(self) -> RpcError | None:
        """The error that it ended with; None while it is in progress, and if it has a result."""
        error = self._future.exception() if self._future.done() else None
        return None if error is None else _translated(error, self._peer, self._function)

    def __await__(self) -> Generator[Any, None, Any]:
        """``await future`` gives the result."""
        try:
            return (yield from self._future.__await__())
        except ReverieError as error:
            raise _translated(error, self._peer, self._function) from error

    __iter__ = __await__


class Queue(ProcessBound):
    """Calls of a function, from ``Rpc.define_queue``; or a separate queue, which a program fills.

    ``await queue`` gives ``(return_callback, args, kwargs)``; ``get`` gives the same to a program
    without an event loop.
    """

    _stays_because = "a Queue lives in this process and cannot be pickled or copied"

    def __init__(self) -> None:
        self._fork_guard = ForkGuard()
        self._calls: rpc_batches.Queue | None = None
        self._changed = threading.Condition()
        self._entries: deque[_Entry] = deque()
        self._awaiting = Awaiting()

    @classmethod
    def _of(cls, calls: rpc_batches.Queue) -> Queue:
        made = cls()
        made._calls = calls
        return made

    def enqueue(
        self,
        return_callback: Callable[[Any], object],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Add an entry, to a queue that the program itself has made.

        Raises:
            FailedPreconditionError: the calls of other peers come in here.
        """
        _checks.function("return_callback", return_callback)
        if args is not None:
            args = tuple(_checks.items("args", args, "arguments, or None"))
        if kwargs is not None:
            kwargs = dict(_checks.instance("kwargs", kwargs, dict, "a dict, or None"))
        if self._calls is not None:
            raise FailedPreconditionError(
                "this queue was made by define_queue, and has the calls of other peers alone; "
                "make a Queue() for entries of the program's own"
            )
        self._fork_guard.check("queue")
        with self._changed:
            self._entries.append((return_callback, args, kwargs))
            self._changed.notify()
        self._awaiting.wake_all()

    def __len__(self) -> int:
        """How many entries wait."""
        self._fork_guard.check("queue")
        return len(self._entries) if self._calls is None else len(self._calls)

    def get(self, timeout_s: float | None = None) -> _Entry:
        """The next entry; ``RpcError`` when ``timeout_s`` seconds are up first.

        Also, with ``define_queue``, once the ``Rpc`` is closed or the function undefined.
        """
        limit = _checks.timeout("timeout_s", timeout_s)
        if self._calls is not None:
            try:
                return called(self._calls.get, limit)
            except DeadlineExceededError as error:
                raise RpcError("The operation timed out") from error
            except CancelledError as error:
                raise RpcError(str(error)) from error
        self._fork_guard.check("queue")
        limit = None if limit is None else min(limit, threading.TIMEOUT_MAX)
        with self._changed:
            if not self._changed.wait_for(lambda: self._entries, limit):
                raise RpcError("The operation timed out")
            return self._entries.popleft()

    def __await__(self) -> Generator[Any, None, _Entry]:
        """``await queue`` takes the next entry; raises as :meth:`get` does, without a limit."""
        taking = self._take() if self._calls is None else self._calls._take()
        try:
            return (yield from taking.__await__())
        except CancelledError as error:
            raise RpcError(str(error)) from error

    async def _take(self) -> _Entry:
        self._fork_guard.check("queue")
        with self._awaiting.woken() as came:
            while True:
                came.clear()
                with self._changed:
                    if self._entries:
                        return self._entries.popleft()
                await came.wait()


def addresses_of(given: object) -> list[str]:
    """Moolib's spellings of an address: only a port, ``*:port``, ``tcp://``, ``ipc://name``.

    A wildcard is that of IPv6, which accepts IPv4 too, or that of IPv4 on machines without IPv6.
    """
    text = _checks.text("address", given)
    if text.startswith("ipc://"):
        return [f"unix:@moolib-{text[len('ipc://') :]}"]
    text = text.removeprefix("tcp://")
    if text.isdigit():
        text = f":{text}"
    host, colon, port = text.rpartition(":")
    if colon and host in ("", "*"):
        return [f"[::]:{port}", f"0.0.0.0:{port}"]
    return [text]


class Rpc(ProcessBound):
    """A peer, as moolib has it. What is None is what ``configure`` has set.

    Args:
        token: a secret that all peers share. Without it, or ``insecure``, an Rpc listens at this
            machine alone.
        insecure: listen where other machines reach it, without a token.
        allow_pickle: send objects by pickle, and read those that come; needs a token.

    Raises:
        InvalidArgumentError: ``allow_pickle`` without a token.
    """

    _stays_because = "an Rpc lives in this process and cannot be pickled or copied"

    def __init__(
        self,
        *,
        token: str | None = None,
        insecure: bool | None = None,
        allow_pickle: bool | None = None,
    ) -> None:
        self._token = DEFAULTS.token if token is None else _checks.text("token", token)
        self._insecure = (
            DEFAULTS.insecure if insecure is None else _checks.flag("insecure", insecure)
        )
        self._pickles = rpc.checked_pickle(
            DEFAULTS.allow_pickle if allow_pickle is None else allow_pickle, self._token
        )
        self._name = f"{create_uid()}-{create_uid()}"
        self._timeout_s = 120.0
        self._transports: tuple[str, ...] = ("shm", "unix", "tcp")
        self._made: rpc.Rpc | None = None
        self._is_closed = False  # before it was made
        self._making = threading.Lock()

    def _rpc(self) -> rpc.Rpc:
        if self._made is None:
            with self._making:  # of threads that use it first, one makes it
                if self._made is None:
                    if self._is_closed:
                        raise RpcError("this Rpc is closed; make another")
                    self._made = rpc.Rpc(
                        self._name,
                        token=self._token,
                        insecure=self._insecure,
                        transports=self._transports,
                        max_threads=DEFAULTS.max_threads,
                        find_timeout_s=_FIND_S,
                        reach_timeout_s=_FIND_S,
                        allow_pickle=self._pickles,
                    )
                    rpcs.add(self._made)
        return self._made

    def _before_use(self, what: str) -> None:
        if self._made is not None:
            raise RpcError(f"{what} must be called before anything else is done with an Rpc")

    def set_name(self, name: str) -> None:
        """The name of this peer; before anything else."""
        _checks.text("name", name)
        self._before_use("set_name")
        self._name = name

    def get_name(self) -> str:
        """The name of this peer."""
        return self._name

    def set_timeout(self, seconds: float) -> None:
        """How long calls of this peer may take."""
        self._timeout_s = _checks.number("seconds", seconds, 0.0, finite=False)

    def set_transports(self, names: Iterable[str]) -> None:
        """``"tcp"``, ``"ipc"`` or both; before anything else.

        ``"ipc"`` is Unix sockets and, between peers that reach each other by those, shared memory.
        """
        known = {"tcp": ("tcp",), "ipc": ("shm", "unix")}
        chosen = [
            way
            for name in _checks.items("names", names, "'tcp' and 'ipc'")
            for way in known[called(_checks.choice, "names", str(name).lower(), known)]
        ]
        if not chosen:
            raise RpcError("names is empty; it must hold 'tcp', 'ipc' or both")
        self._before_use("set_transports")
        self._transports = tuple(chosen)

    def listen(self, address: str) -> None:
        """Let others connect; a ``RuntimeError`` where that cannot be."""
        *preferred, last = addresses_of(address)
        for one in preferred:
            with contextlib.suppress(UnavailableError):  # a machine without IPv6
                called(self._rpc().listen, one)
                return
        called(self._rpc().listen, last)

    def connect(self, address: str) -> None:
        """Keep a connection to the peer that listens there, now or later."""
        called(self._rpc().connect, addresses_of(address)[-1])

    def define(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        """Serve a function. With a ``batch_size``, one run serves that many calls."""
        self._serve(name, function, batch_size, device, deferred=False)

    def define_deferred(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        """Serve ``function(return_callback, *args)``; ``return_callback(value)`` answers."""
        self._serve(name, function, batch_size, device, deferred=True)

    def _serve(
        self,
        name: str,
        function: Callable[..., Any],
        batch_size: int | None,
        device: str | None,
        *,
        deferred: bool,
    ) -> None:
        _checks.function("function", function)
        made = self._rpc()
        if batch_size is None:
            called(made.define_deferred if deferred else made.define, name, function)
            return
        batches = _batches(batch_size, device)
        called(batches.define, made._native, name, function, deferred=deferred)
        made._pool.help_if_none()

    def define_queue(
        self,
        name: str,
        *,
        batch_size: int | None = None,
        device: str | None = None,
        dynamic_batching: bool | None = None,
    ) -> Queue:
        """Collect calls; ``await queue`` gives ``(return_callback, args, kwargs)``."""
        is_dynamic = dynamic_batching is not None and _checks.flag(
            "dynamic_batching", dynamic_batching
        )
        made = self._rpc()
        options = _batches(
            1 if batch_size is None else batch_size,
            None if is_dynamic else device,
            is_dynamic=is_dynamic,
        )
        gatherer = called(options.define, made._native, name, None, batched=batch_size is not None)
        assert gatherer is not None
        made._pool.help_if_none()
        return Queue._of(rpc_batches.Queue._of(gatherer, made._pool))

    def undefine(self, name: str) -> None:
        """Serve it no more; names that are not defined are ignored."""
        self._rpc().undefine(name)

    def sync(self, peer: str, function: str, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call a function and wait; ``RpcError`` for any failure."""
        made = self._rpc()
        try:
            return made._native.sync(peer, function, args, kwargs, self._timeout_s, False)
        except ReverieError as error:
            if _is_argument_error(error):
                raise _as_argument_error(error) from error
            raise _translated(error, peer, function) from error

    def async_(self, peer: str, function: str, /, *args: Any, **kwargs: Any) -> Future:  # noqa: ANN401
        """Begin a call."""
        made = self._rpc()
        try:
            future = made._native.begin(
                peer, function, args, kwargs, self._timeout_s, False, made._pool
            )
        except ReverieError as error:
            if _is_argument_error(error):
                raise _as_argument_error(error) from error
            raise _translated(error, peer, function) from error
        return Future(future, peer, function)

    def async_callback(
        self,
        peer: str,
        function: str,
        callback: Callable[[Any, str | None], object],
        /,
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Begin a call; later ``callback(result, error)``: one is None, the error a str."""
        _checks.function("callback", callback)
        future = self.async_(peer, function, *args, **kwargs)

        def on_done(_: rpc.Future) -> None:
            error = future.exception()
            callback(None if error else future.result(), str(error) if error else None)

        future._future._call_later(on_done)

    def debug_info(self) -> None:
        """Print what there is to know about connections."""
        info = self._rpc().debug_info()
        for key, value in info.items():
            sys.stdout.write(f"{key}: {value}{os.linesep}")

    def close(self) -> None:
        """End it, and free its port. Dropping the last reference does the same."""
        with self._making:
            self._is_closed = True
            made = self._made
        if made is not None:
            made.close()


def _is_argument_error(error: ReverieError) -> bool:
    return isinstance(error, (InvalidArgumentError, UnsupportedTypeError))


def _as_argument_error(error: ReverieError) -> ReverieError:
    """The same; a ``RuntimeError`` too, unless the type of a value is wrong."""
    if isinstance(error, (UnsupportedTypeError, RuntimeError)):
        return error
    if "bytes of values and" in str(error):
        return WrongArgumentError(f"RPC request is too large! {error}")
    return WrongArgumentError(str(error))


def _batches(size: int, device: object, *, is_dynamic: bool = False) -> rpc_batches.BatchOptions:
    where = None if device is None else _checks.written("device", device, "a device of torch")
    leaves = "each" if is_dynamic else "first"
    return called(
        rpc_batches.BatchOptions(size, None, is_dynamic, False, False, where, None, leaves).checked
    )
