"""moolib's calls between peers, over ``reverie.Rpc``: its call shapes, error type and texts."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any

from reverie import _checks, _reverie, rpc, rpc_batches
from reverie._process_bound import ProcessBound
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    RemoteError,
    ReverieError,
    UnsupportedTypeError,
)

__all__ = [
    "Future",
    "Queue",
    "Rpc",
    "RpcDeferredReturn",
    "RpcError",
    "create_uid",
    "set_log_level",
    "set_logging",
    "set_max_threads",
]

Queue = rpc_batches.Queue
RpcDeferredReturn = rpc.DeferredReturn

_LEVELS = ("none", "error", "info", "verbose", "debug")
_LOGGING = {
    "none": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "info": logging.INFO,
    "verbose": logging.INFO,
    "debug": logging.DEBUG,
}
_FIND_S = 3600.0  # a name is looked for as long as its call may take
_defaults = {"max_threads": 32}


class RpcError(ReverieError, RuntimeError):
    """What a call ended with."""


def create_uid() -> str:
    """16 hexadecimal digits, different at each call."""
    return f"{_reverie.random_seed():016x}"


def set_log_level(level: str | int) -> None:
    """What is logged: ``"none"``, ``"error"``, ``"info"``, ``"verbose"``, ``"debug"``; 0 to 4."""
    if not isinstance(level, str):
        level = _LEVELS[_checks.integer("level", level, 0, len(_LEVELS) - 1)]
    logging.getLogger("reverie").setLevel(_LOGGING[_checks.choice("level", level, _LEVELS)])


def set_logging(logging_module: object = None) -> None:
    """Log by Python's ``logging``, as Reverie always does; None, or that module."""
    if logging_module is not None and not hasattr(logging_module, "getLogger"):
        raise UnsupportedTypeError(
            f"logging_module is {_checks.shown(logging_module)}; it must be the module logging"
        )


def set_max_threads(count: int) -> None:
    """How many handlers and callbacks of an Rpc that is made later run at the same time."""
    _defaults["max_threads"] = _checks.integer("count", count, 1, 1024)


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
        """What the function returned; ``RpcError`` for whatever else happened."""
        self.wait(timeout)
        try:
            return self._future.result()
        except ReverieError as error:
            raise _translated(error, self._peer, self._function) from error

    def cancel(self) -> None:
        """Give the call up."""
        self._future.cancel()

    def exception(self) -> RpcError | None:
        """What the call ended with; None while it goes on, and where it gave a result."""
        error = self._future.exception() if self._future.done() else None
        return None if error is None else _translated(error, self._peer, self._function)

    def __await__(self) -> Generator[Any, None, Any]:
        """``await future`` gives the result."""
        try:
            return (yield from self._future.__await__())
        except ReverieError as error:
            raise _translated(error, self._peer, self._function) from error


def _address(given: object) -> str:
    """Moolib's spellings of an address: a port alone, ``*:port``, ``tcp://``, ``ipc://name``."""
    text = _checks.text("address", given)
    if text.startswith("ipc://"):
        return f"unix:@moolib-{text[len('ipc://') :]}"
    text = text.removeprefix("tcp://")
    if text.isdigit():
        text = f":{text}"
    host, colon, port = text.rpartition(":")
    if colon and host in ("", "*"):
        return f"0.0.0.0:{port}"
    return text


class Rpc(ProcessBound):
    """A peer, as moolib has it.

    Args:
        token: a secret that all peers share. Without it, or ``insecure``, an Rpc listens at this
            machine alone.
        insecure: listen where other machines reach it, without a token.
    """

    _stays_because = "an Rpc lives in this process and cannot be pickled or copied"

    def __init__(self, *, token: str | None = None, insecure: bool = False) -> None:
        self._token = None if token is None else _checks.text("token", token)
        self._insecure = _checks.flag("insecure", insecure)
        self._name = f"{create_uid()}-{create_uid()}"
        self._timeout_s = 120.0
        self._transports: tuple[str, ...] = ("shm", "unix", "tcp")
        self._made: rpc.Rpc | None = None
        self._making = threading.Lock()

    def _rpc(self) -> rpc.Rpc:
        if self._made is None:
            with self._making:  # of threads that use it first, one makes it
                if self._made is None:
                    self._made = rpc.Rpc(
                        self._name,
                        token=self._token,
                        insecure=self._insecure,
                        transports=self._transports,
                        max_threads=_defaults["max_threads"],
                        find_timeout_s=_FIND_S,
                    )
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
        """``"tcp"``, ``"ipc"`` or both; before anything else."""
        known = {"tcp": "tcp", "ipc": "unix"}
        chosen = [
            known[_checks.choice("names", str(name).lower(), known)]
            for name in _checks.items("names", names, "'tcp' and 'ipc'")
        ]
        if not chosen:
            raise RpcError("names is empty; it must hold 'tcp', 'ipc' or both")
        self._before_use("set_transports")
        self._transports = tuple(chosen)

    def listen(self, address: str) -> None:
        """Let others connect; ``RpcError`` where that cannot be."""
        where = _address(address)
        try:
            self._rpc().listen(where)
        except ReverieError as error:
            raise _as_rpc_error(error) from error

    def connect(self, address: str) -> None:
        """Keep a connection to the peer that listens there, now or later."""
        self._rpc().connect(_address(address))

    def define(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        """Serve a function. With a ``batch_size``, one run serves that many calls."""
        made = self._rpc()
        made._batch_leaves = "first"
        try:
            made.define(name, function, batch_size=batch_size, max_wait_s=None, device=device)
        except ReverieError as error:
            raise _as_rpc_error(error) from error

    def define_deferred(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        """Serve ``function(return_callback, *args)``; ``return_callback(value)`` answers."""
        _checks.function("function", function)
        made = self._rpc()
        try:
            if batch_size is None:
                made.define_deferred(name, function)
                return
            made._batch_leaves = "first"
            made._batches(batch_size, None, False, False, False, device, None).define(
                made._native, name, function, deferred=True
            )
            made._pool.help_if_none()
        except ReverieError as error:
            raise _as_rpc_error(error) from error

    def define_queue(
        self,
        name: str,
        *,
        batch_size: int | None = None,
        device: str | None = None,
        dynamic_batching: bool = False,
    ) -> Queue:
        """Collect calls; ``await queue`` gives ``(return_callback, args, kwargs)``."""
        is_dynamic = _checks.flag("dynamic_batching", dynamic_batching)
        made = self._rpc()
        made._batch_leaves = "each" if is_dynamic else "first"
        try:
            return made.define_queue(
                name,
                batch_size=batch_size,
                max_wait_s=None,
                dynamic_batching=is_dynamic,
                device=None if is_dynamic else device,
            )
        except ReverieError as error:
            raise _as_rpc_error(error) from error

    def undefine(self, name: str) -> None:
        """Serve it no more; names that are not defined are ignored."""
        self._rpc().undefine(name)

    def sync(self, peer: str, function: str, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call a function and wait; ``RpcError`` for whatever goes wrong."""
        made = self._rpc()
        try:
            return made._native.sync(peer, function, args, kwargs, self._timeout_s, False)
        except ReverieError as error:
            if _is_argument_error(error):
                raise
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
                raise
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

        future._future.add_done_callback(on_done)

    def debug_info(self) -> None:
        """Print what there is to know about connections."""
        info = self._rpc().debug_info()
        for key, value in info.items():
            sys.stdout.write(f"{key}: {value}{os.linesep}")

    def close(self) -> None:
        """End it, and free its port. Dropping the last reference does the same."""
        if self._made is not None:
            self._made.close()


def _is_argument_error(error: ReverieError) -> bool:
    return isinstance(error, (InvalidArgumentError, UnsupportedTypeError))


def _as_rpc_error(error: ReverieError) -> ReverieError:
    return (
        error
        if isinstance(error, RuntimeError) or _is_argument_error(error)
        else RpcError(str(error))
    )
