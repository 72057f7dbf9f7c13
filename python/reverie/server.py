"""Tables that clients of other processes share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reverie import _reverie
from reverie.client import Client
from reverie.errors import InvalidArgumentError, UnsupportedTypeError
from reverie.store import checked_tables
from reverie.table import Table

if TYPE_CHECKING:
    from types import TracebackType

    from reverie.tls import ServerTls

_POLL_S = 0.25
_GRACE_S = 1.0


class Server:
    """A store with a door: clients of reverie and of dm-reverb insert into it and sample from it.

    It listens at this machine alone unless it is told otherwise, and stops when it is deleted. A
    context manager: leaving it stops the server. Thread-safe.

    Args:
        tables: at least one, of different names. Each belongs to this server from now on.
        port: to listen at; None takes a free one.
        checkpointer: not supported; must be None.
        host: name or number to listen at. Any but this machine's loopback wants a secret: TLS with
            ``client_authorities``, a token under TLS, or ``insecure=True``.
        token: a secret that clients must send.
        tls: how to encrypt; None does not.
        insecure: let in whoever can reach ``host``.
        max_bytes: of all steps and items together; inserts wait for room. None for no bound.

    Raises:
        InvalidArgumentError: no tables, a name twice, a port that is none.
        AlreadyExistsError: the port is in use.
        FailedPreconditionError: a table belongs to a store already.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        port: int | None = None,
        checkpointer: None = None,
        *,
        host: str = "localhost",
        token: str = "",
        tls: ServerTls | None = None,
        insecure: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        if checkpointer is not None:
            raise UnsupportedTypeError("checkpointer must be None: a Server writes no checkpoints")
        self._tables = checked_tables(tables, max_bytes)
        if port is not None and not 0 <= port < 2**16:
            raise InvalidArgumentError(f"port is {port}; it must lie between 0 and 65535, or None")
        address = f"[{host}]:{port or 0}" if ":" in host else f"{host}:{port or 0}"
        self._native = _reverie.Server(
            [table._options() for table in self._tables],
            max_bytes,
            [address],
            token,
            insecure,
            None if tls is None else tls._options(),
        )
        for table in self._tables:
            table._attach(self._native)
        self._token = token
        self._stopped = threading.Event()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._native.port

    @property
    def address(self) -> str:
        """Where it listens, as ``Client`` takes it."""
        return self._native.addresses[0]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in the order in which they were given."""
        return self._tables

    @property
    def figures(self) -> dict[str, int]:
        """Items inserted and samples sent through the door.

        ``unsent_samples`` were drawn for clients that went away before they were sent.
        """
        return self._native.figures

    def localhost_client(self) -> Client:
        """A client that connects to the server as those of other processes do."""
        return Client(f"localhost:{self.port}", token=self._token)

    def client(self) -> Client:
        """A client within this process, as that of a ``Store``: nothing travels."""
        return Client._embedded(self._native.client(), "auto")

    def stop(self, *, grace_s: float = _GRACE_S) -> None:
        """Ends all that waits, then the connections. Stopping again does nothing.

        Args:
            grace_s: how long clients may take to read what was written to them.
        """
        self._native.stop(grace_s)
        self._stopped.set()

    def wait(self) -> None:
        """Returns once the server was stopped, by another thread.

        Raises:
            KeyboardInterrupt: of SIGINT; the server goes on.
        """
        while not self._stopped.wait(_POLL_S):
            pass

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedTypeError(
            "a Server lives in this process and cannot be pickled; give the other process its "
            "address"
        )

    def __repr__(self) -> str:
        return f"Server(tables={list(self._tables)!r}, port={self.port})"
