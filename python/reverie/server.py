"""Tables that clients of other processes share."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from reverie import _checks, _reverie
from reverie._checkpointed import Checkpointed
from reverie._options import CODECS, Codec, Durability, OnCorrupt, native_files, raises_on_corrupt
from reverie._process_bound import ProcessBound
from reverie.checkpointers import DefaultCheckpointer, native_memory, native_options
from reverie.client import Client
from reverie.errors import InvalidArgumentError, UnsupportedTypeError
from reverie.store import checked_tables
from reverie.table import Table

if TYPE_CHECKING:
    from types import TracebackType

    from reverie.external import Files
    from reverie.tls import ServerTls

_POLL_S = 0.25
_GRACE_S = 1.0


class ServerLimits(NamedTuple):
    """What clients together, and each of them, can make a server hold.

    What goes beyond ends the call (a further connection is closed) with ``ResourceExhaustedError``;
    other clients notice nothing. What lies in the tables is bound by their ``max_size`` and
    ``max_bytes``, and by the server's ``max_bytes``.

    Attributes:
        connections: at a time.
        calls: how many one connection may have at a time; a call that waits counts. Further ones
            wait at their client.
        message_bytes: the largest message; at most 2**32 - 1.
        connection_bytes: what may be held for one connection: messages on their way in and out,
            and what was drawn for them. Beyond it nothing further is asked for or drawn; one
            larger message or batch passes alone.
        bytes_in_flight: what may be held for all connections, beyond a megabyte each, and of the
            chunks that writers have sent for items to come; None for an eighth of the machine's
            memory.
        stream_bytes: the chunks that one writer may have sent for items to come.
        unread_bytes: written to one call whose client does not read.
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


class Server(Checkpointed, ProcessBound):
    """A store with a door: clients of reverie and of dm-reverb insert into it and sample from it.

    It listens on this machine only unless told otherwise, and stops when it is deleted. A
    context manager: leaving it stops the server. Thread-safe.

    Args:
        tables: at least one, of different names. Each belongs to this server from now on.
        port: to listen at; None takes a free one.
        checkpointer: of ``reverie.checkpointers``: where ``Client.checkpoint`` has it write, and
            where it begins: with the newest checkpoint there. None for neither.
        host: name or number to listen at. Any but this machine's loopback wants a secret: TLS with
            ``client_authorities``, a token under TLS, or ``insecure=True``.
        token: a secret that clients must send: printable ASCII, with spaces only inside it, of at
            most 4096 bytes. Empty for none.
        tls: how to encrypt; None does not.
        insecure: let in everyone who can reach ``host``.
        unix_path: a Unix socket to listen at too, for clients of this machine and this user:
            ``Client("unix:" + unix_path)``. Half the time of a round trip. None for no such socket.
            Without TLS there is another beside each port, without a file, which such clients of
            ``host:port`` take by themselves.
        max_bytes: the bound of all steps and items together; inserts wait for room. None for no
            bound.
        memory_bytes: how much of the steps may be in memory, at least 16 MiB; what is sampled least
            goes to a file without a name beyond, and comes back for a batch at once. None for all,
            except of tables that have ``memory_bytes`` of their own.
        spill_folder: of that file, on a disk; None for that of temporary files.
        limits: the limits of connections and messages.
        codec: how chunks of all writers are kept: ``"lz4"`` or ``"zstd"`` compresses each
            column of a raw chunk that comes from one of our writers, floats too, where that makes
            it smaller, and is what this process's writers take unless told otherwise. ``"auto"``
            and ``"raw"`` keep what comes as it came. Chunks of dm-reverb's writers are compressed
            by them.
        checkpoint_every: seconds after which a checkpoint is written by itself; None for none.
        checkpoint_every_inserts: the same, counted in items that were inserted.
        durability: of tables that say nothing of their own: what a crash leaves of what was
            confirmed after the last checkpoint, beside which a journal is kept. ``"none"``:
            nothing, and no journal. ``"interval"``: all of it if the process was killed; after a
            power cut all but the last 0.1 s. ``"sync"``: all of it; a call is confirmed once its
            change was synced, together with those of others. See
            ``docs/durability.md``.

    Raises:
        InvalidArgumentError: no tables, a name twice, a port out of range, a limit below 1, a
            malformed token, or TLS files without a certificate that is valid now and its key.
        AlreadyExistsError: the port is in use.
        FailedPreconditionError: a table belongs to a store already, the checkpointer's folder to
            another one, or a table is not what the checkpoint holds.
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
        """Items inserted and samples sent through the door, and what its clients hold of it now.

        ``unsent_samples`` were drawn for clients that went away before they were sent, and
        ``undone_samples`` likewise, of tables that have them back (``undo_unsent``);
        ``held_bytes`` is what ``ServerLimits`` bounds by connection and by all ``connections``;
        ``bytes_received`` and ``bytes_sent`` went through the door.
        """
        return self._native.figures

    def localhost_client(
        self, *, on_corrupt: OnCorrupt = "remove", files: Files | None = None
    ) -> Client:
        """A client that connects to the server as those of other processes do."""
        return Client(
            f"localhost:{self.port}", token=self._token, on_corrupt=on_corrupt, files=files
        )

    def client(self, *, on_corrupt: OnCorrupt = "remove", files: Files | None = None) -> Client:
        """A client within this process, as that of a ``Store``: nothing travels.

        Args:
            on_corrupt: what to do with items that cannot be decoded, as for ``reverie.Client``.
            files: where external columns are, likewise.
        """
        native = self._native.client(raises_on_corrupt(on_corrupt))
        native.set_files(native_files(files))
        return Client._embedded(native, self._codec)

    def stop(self, *, grace_s: float = _GRACE_S) -> None:
        """Ends all that waits, then the connections. Stopping again does nothing.

        Args:
            grace_s: how long clients may take to read what was written to them.
        """
        self._native.stop(_checks.number("grace_s", grace_s, 0.0))
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

    def __repr__(self) -> str:
        return f"Server(tables={list(self._tables)!r}, port={self.port})"


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
    """Does all that a :class:`Server` of these arguments does, but listen.

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
