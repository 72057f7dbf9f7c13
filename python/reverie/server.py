"""A server, whose tables clients in other processes share."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from reverie import _checks, _reverie
from reverie._checkpointed import Checkpointed
from reverie._closing import Scoped
from reverie._options import CODECS, Codec, Durability, OnCorrupt, raises_on_corrupt
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.checkpointers import DefaultCheckpointer, native_memory, native_options
from reverie.client import Client
from reverie.errors import InvalidArgumentError, UnsupportedTypeError
from reverie.store import checked_tables
from reverie.table import Table

if TYPE_CHECKING:
    from reverie.external import Files
    from reverie.tls import ServerTls

_LOCALHOSTS = ("127.0.0.1", "0.0.0.0", "[::1]", "[::]")  # listening there is enough for "localhost"
_POLL_S = 0.25
_GRACE_S = 1.0


class ServerLimits(NamedTuple):
    """How much a server holds for its clients, for each and for all together.

    A call that would send too much ends with ``ResourceExhaustedError``; where a limit says so, it
    waits or its connection is closed instead. Other clients are not affected. The contents of the
    tables are bound by their ``max_size`` and ``max_bytes``, and by the server's ``max_bytes``.

    Attributes:
        connections: how many at a time; a further one is closed.
        calls: how many one connection may have at a time; a call that waits counts. Further ones
            wait at their client.
        message_bytes: the largest message; at most 2**32 - 1.
        connection_bytes: what may be held for one connection: messages being received and sent, and
            samples drawn for them. Beyond it nothing more is read or drawn; a single larger message
            or batch is still accepted.
        bytes_in_flight: what may be held for all connections, beyond a megabyte each, and of chunks
            that writers have sent for later items; None for an eighth of the machine's memory.
        stream_bytes: the chunks that one writer may have sent for later items.
        unread_bytes: how much is buffered for one call whose client does not read.
        first_call_s: seconds from a connection's hello to its first call.
        idle_s: seconds that a connection may be without a call. Its client connects again with the
            next one.
    """

    connections: int = 65_536
    calls: int = 1_024
    message_bytes: int = 1 << 30
    connection_bytes: int = 64 << 20
    bytes_in_flight: int | None = None
    stream_bytes: int = 4 << 30
    unread_bytes: int = 64 << 20
    first_call_s: int = 20
    idle_s: int = 600

    def checked(self) -> ServerLimits:
        """These, if each is one.

        Raises:
            InvalidArgumentError: a limit is out of range.
            UnsupportedTypeError: one is not an integer.
        """
        for name, value in self._asdict().items():
            if value is None and name == "bytes_in_flight":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise UnsupportedTypeError(f"limit {name} is {value!r}; it must be an integer >= 1")
            most = _LIMITS_MAX.get(name, 2**63 - 1)
            if not 1 <= value <= most:
                raise InvalidArgumentError(
                    f"limit {name} is {value}; it must be at least 1 and at most {most}"
                )
        return self

    def _options(self) -> dict[str, int]:
        """Those that are given, as the native server takes them."""
        given = self.checked()._asdict()
        return {name: value for name, value in given.items() if value is not None}


_LIMITS_MAX = {
    "message_bytes": 2**32 - 1,
    "calls": 2**31 - 1,
    "first_call_s": 10**9,
    "idle_s": 10**9,
}


class Server(Checkpointed, ProcessBound, Scoped):
    """A store that clients of reverie and of dm-reverb insert into and sample from, by network.

    It listens on this machine only unless told otherwise, and stops when it is deleted. A
    context manager: leaving it stops the server. Thread-safe.

    Args:
        tables: at least one, of different names. Each then belongs to this server.
        port: the port to listen at; None takes a free one.
        checkpointer: one of ``reverie.checkpointers``: where ``Client.checkpoint`` writes to, and
            whose newest checkpoint is loaded first. None for neither.
        host: the name or address to listen at. Any except this machine's loopback requires a
            secret: TLS with ``client_authorities``, a token under TLS, or ``insecure=True``.
        token: a secret that clients must send: printable ASCII, with spaces only inside it, of at
            most 4096 bytes. Empty for none.
        tls: how to encrypt; None does not.
        insecure: accept every client that can reach ``host``.
        unix_path: a Unix socket to listen at too, for clients of this machine and this user:
            ``Client("unix:" + unix_path)``. A round trip takes half the time. None for no such
            socket. Without TLS there is another one for each port, without a file, which such
            clients of ``host:port`` use automatically.
        max_bytes: the bound of all steps and items together; inserts wait for room. A full table
            makes room itself: it evicts items of its own. None for no bound.
        memory_bytes: how much of the steps may be in memory, at least 16 MiB; what is sampled least
            goes to a temporary file beyond that, and is read back when a batch needs it. None for
            no bound, except for tables with their own ``memory_bytes``.
        spill_folder: the folder of that file, on a disk; None for the folder of temporary files.
        limits: the limits of connections and messages.
        codec: how chunks of all writers are kept: ``"lz4"`` or ``"zstd"`` compresses each
            column of a raw chunk that comes from one of our writers, floats too, if that makes it
            smaller, and is the default of this process's writers. ``"auto"`` and ``"raw"`` store
            chunks as they were received. Chunks of dm-reverb's writers are compressed by them.
        checkpoint_every: a checkpoint is written automatically after so many seconds; None for
            never.
        checkpoint_every_inserts: the same, after so many inserted items.
        durability: the default for tables: which changes that were confirmed after the last
            checkpoint survive a crash; they are kept in a journal. ``"none"``: none of them, and
            there is no journal. ``"interval"``: all of them if the process was killed; after a
            power cut all but the last 0.2 s. ``"sync"``: all of them; a call is confirmed once its
            change was synced, together with those of others. See ``docs/durability.md``.

    Raises:
        InvalidArgumentError: no tables, a name twice, a port out of range, a limit below 1, a
            malformed token, or TLS files without a certificate that is valid now and its key.
        AlreadyExistsError: the port is in use.
        FailedPreconditionError: a table belongs to a store already, the checkpointer's folder to
            another one, a table differs from the checkpoint's, or it refuses an item of the
            checkpoint: the message says which, and what to do.
        DataLossError: the newest checkpoint is damaged.
    """

    _stays_because = (
        "a Server lives in this process and cannot be pickled; give the other process its address"
    )

    _native: _reverie.Server

    def __init__(
        self,
        tables: Sequence[Table],
        port: int | None = None,
        checkpointer: DefaultCheckpointer | None = None,
        *,
        host: str = "localhost",
        token: str = "",
        tls: ServerTls | None = None,
        insecure: bool = False,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        spill_folder: str | os.PathLike[str] | None = None,
        unix_path: str | None = None,
        limits: ServerLimits = ServerLimits(),  # noqa: B008 - immutable
        codec: Codec = "auto",
        checkpoint_every: float | None = None,
        checkpoint_every_inserts: int | None = None,
        durability: Durability = "none",
    ) -> None:
        import logging  # noqa: F401 - a warning may come when no descriptor is left

        self._tables = checked_tables(tables, max_bytes)
        self._native = _reverie.Server(
            [table._options() for table in self._tables],
            max_bytes,
            native_memory(memory_bytes, spill_folder, self._tables),
            _checked_addresses(host, port, unix_path, token, insecure, tls, limits),
            token,
            insecure,
            None if tls is None else tls._options(),
            limits._options(),
            _checks.choice("codec", codec, CODECS),
            native_options(
                checkpointer, checkpoint_every, checkpoint_every_inserts, durability, self._tables
            ),
        )
        self._codec = codec
        self._local_address = _local_address(self._native.addresses[0])
        for table in self._tables:
            table._attach(self._native)
        self._token = token
        self._stopped = threading.Event()
        self._fork_guard = ForkGuard()

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return self._native.port

    @property
    def address(self) -> str:
        """The address at which it listens, as ``Client`` takes it."""
        return self._native.addresses[0]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in the order in which they were given."""
        return self._tables

    @property
    def figures(self) -> dict[str, int]:
        """Items inserted and samples sent by network, and what is held for clients now.

        ``unsent_samples`` were drawn for clients that disconnected before they were sent, and so
        were ``undone_samples``, whose tables took them back (``undo_unsent``); ``held_bytes`` is
        what ``ServerLimits`` bounds for each connection and for all ``connections``;
        ``bytes_received`` and ``bytes_sent`` went over the network.
        """
        self._fork_guard.check("Server")
        return self._native.figures

    def localhost_client(
        self, *, on_corrupt: OnCorrupt = "remove", files: Files | None = None
    ) -> Client:
        """A client that connects to the server as clients in other processes do.

        A server with ``tls`` needs a ``reverie.Client`` with ``tls`` instead.
        """
        return Client(self._local_address, token=self._token, on_corrupt=on_corrupt, files=files)

    def client(self, *, on_corrupt: OnCorrupt = "remove", files: Files | None = None) -> Client:
        """A client within this process, as a ``Store`` has: nothing is sent over a connection.

        Args:
            on_corrupt: what to do with items that cannot be decoded, as for ``reverie.Client``.
            files: where external columns are, as for ``reverie.Client``.
        """
        native = self._native.client(raises_on_corrupt(on_corrupt))
        return Client._embedded(native, self._codec, files)

    def stop(self, *, grace_s: float = _GRACE_S) -> None:
        """Ends all calls that wait, then the connections. Idempotent.

        Args:
            grace_s: seconds that clients have to read what was sent to them.
        """
        self._native.stop(_checks.number("grace_s", grace_s, 0.0))
        self._stopped.set()

    def wait(self) -> None:
        """Returns once the server was stopped, by another thread.

        Raises:
            KeyboardInterrupt: on SIGINT; the server continues.
        """
        self._fork_guard.check("Server")
        while not self._stopped.wait(_POLL_S):
            pass

    def _leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        self.stop()

    def __repr__(self) -> str:
        return f"Server(tables={list(self._tables)!r}, port={self.port})"


def _local_address(address: str) -> str:
    """Where a client of this machine finds a server that listens at ``address``."""
    host, _, port = address.rpartition(":")
    return f"localhost:{port}" if host in _LOCALHOSTS else address


def check_server(
    tables: Sequence[Table],
    port: int | None = None,
    *,
    host: str = "localhost",
    token: str = "",
    tls: ServerTls | None = None,
    insecure: bool = False,
    max_bytes: int | None = None,
    memory_bytes: int | None = None,
    spill_folder: str | os.PathLike[str] | None = None,
    unix_path: str | None = None,
    limits: ServerLimits = ServerLimits(),  # noqa: B008 - immutable
    codec: Codec = "auto",
) -> None:
    """Does what a :class:`Server` with these arguments does, except that it does not listen.

    It takes no checkpointer: no checkpoint is loaded, and no folder of checkpoints is locked.

    Raises:
        ReverieError: as :class:`Server`, except for a port that is in use.
    """
    checked = checked_tables(tables, max_bytes)
    _reverie.check_server(
        [table._options() for table in checked],
        max_bytes,
        native_memory(memory_bytes, spill_folder, checked),
        _checked_addresses(host, port, unix_path, token, insecure, tls, limits),
        token,
        insecure,
        None if tls is None else tls._options(),
        limits._options(),
        _checks.choice("codec", codec, CODECS),
    )


def _checked_addresses(
    host: str,
    port: int | None,
    unix_path: str | None,
    token: str,
    insecure: bool,
    tls: ServerTls | None,
    limits: ServerLimits,
) -> list[str]:
    """Where to listen, if the arguments are of the types that they must be of."""
    if port is not None:
        port = _checks.integer("port", port, 0, 2**16 - 1)
    _checks.text("host", host)
    _checks.text("token", token)
    _checks.flag("insecure", insecure)
    _checks.instance("limits", limits, ServerLimits)
    if tls is not None:
        from reverie.tls import ServerTls

        _checks.instance("tls", tls, ServerTls)
    addresses = [f"[{host}]:{port or 0}" if ":" in host else f"{host}:{port or 0}"]
    if unix_path is not None:
        addresses.append(f"unix:{_checks.path('unix_path', unix_path)}")
    return addresses
