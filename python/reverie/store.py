"""The store that lives in the user's own process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reverie import _checks, _options, _reverie
from reverie._checkpointed import Checkpointed
from reverie._closing import Closing
from reverie._options import CODECS, Durability, OnCorrupt, raises_on_corrupt
from reverie._process_bound import ProcessBound
from reverie.checkpointers import DefaultCheckpointer, native_memory, native_options
from reverie.client import Client
from reverie.errors import InvalidArgumentError, NotFoundError, UnsupportedTypeError
from reverie.table import Table

if TYPE_CHECKING:
    from reverie.external import Files


def checked_tables(tables: Sequence[Table], max_bytes: int | None) -> tuple[Table, ...]:
    """The tables for a new store, once they are checked.

    Raises:
        InvalidArgumentError: no tables, a name twice, or a bound below 1.
        UnsupportedTypeError: something that is not a table.
        FailedPreconditionError: a table belongs to a store already.
    """
    if isinstance(tables, Store):
        raise UnsupportedTypeError(
            f"tables is {_checks.shown(tables)}, whose tables are its own; give a list of new "
            "reverie.Table"
        )
    checked = tuple(_checks.items("tables", tables, "reverie.Table, such as [table]"))
    if not checked:
        raise InvalidArgumentError("tables is empty; a store needs at least one table")
    for table in checked:
        if not isinstance(table, Table):
            raise UnsupportedTypeError(
                f"tables holds {_checks.shown(table)}; all must be reverie.Table"
            )
        table._check_unattached()
    names = [table.name for table in checked]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidArgumentError(
            f"tables holds more than one of the names {repeated}; each must be unique"
        )
    if max_bytes is not None:
        _checks.integer("max_bytes", max_bytes)
    return checked


class Store(Checkpointed, ProcessBound, Closing):
    """Tables that share one memory of steps.

    It needs no configuration and no server: :meth:`client` returns a client with the methods of a
    server's. Thread-safe. A context manager: leaving it closes the store, which otherwise lives as
    long as this object or any client or writer of it.

    Args:
        tables: at least one, of different names. Each then belongs to this store.
        max_bytes: the bound of all steps and items together; inserts wait for room, and fail if
            there never will be. A full table makes room itself: it evicts items of its own. None
            for no bound.
        memory_bytes: how much of the steps may be in memory, at least 16 MiB; what is sampled least
            goes to a temporary file beyond that, and is read back when a batch needs it. None for
            no bound, except for tables with their own ``memory_bytes``.
        spill_folder: the folder of that file, on a disk; None for the folder of temporary files.
        seed: seeds the keys that clients choose for items, chunks and episodes, in one thread each;
            None takes one from the system. Each client has its own number, so that two never choose
            the same keys. Selectors have their own seeds.
        codec: how its writers store full chunks of steps, by default:
            ``"auto"``, ``"raw"``, ``"lz4"`` or ``"zstd"``; see ``Client.trajectory_writer``.
        checkpointer: one of ``reverie.checkpointers``: where :meth:`checkpoint` writes to, and
            whose newest checkpoint is loaded first. None for neither.
        checkpoint_every: a checkpoint is written automatically after so many seconds; None for
            never.
        checkpoint_every_inserts: the same, after so many inserted items.
        durability: the default for tables: which changes that were confirmed after the last
            checkpoint survive a crash; they are kept in a journal. ``"none"``: none of them, and
            there is no journal. ``"interval"``: all of them if the process was killed; after a
            power cut all but the last 0.2 s. ``"sync"``: all of them; a call is confirmed once its
            change was synced, together with those of others. See ``docs/durability.md``.

    Raises:
        InvalidArgumentError: no tables, a name twice, a bound below 1, or no such codec.
        FailedPreconditionError: a table belongs to a store already, the checkpointer's folder to
            another store, a table differs from the checkpoint's, or it refuses an item of the
            checkpoint: the message says which, and what to do.
        DataLossError: the newest checkpoint is damaged.
    """

    _stays_because = (
        "a Store lives in this process and cannot be pickled; open one in the other process"
    )

    _native: _reverie.Store

    def __init__(
        self,
        tables: Sequence[Table],
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        spill_folder: str | os.PathLike[str] | None = None,
        codec: str = "auto",
        seed: int | None = None,
        checkpointer: DefaultCheckpointer | None = None,
        checkpoint_every: float | None = None,
        checkpoint_every_inserts: int | None = None,
        durability: Durability = "none",
    ) -> None:
        self._tables = checked_tables(tables, max_bytes)
        self._codec = _checks.choice("codec", codec, CODECS)
        self._native = _reverie.Store(
            [table._options() for table in self._tables],
            max_bytes,
            native_memory(memory_bytes, spill_folder, self._tables),
            _options.checked_seed(seed),
            native_options(
                checkpointer, checkpoint_every, checkpoint_every_inserts, durability, self._tables
            ),
        )
        for table in self._tables:
            table._attach(self._native)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in the order in which they were given."""
        return self._tables

    def client(self, *, on_corrupt: OnCorrupt = "remove", files: Files | None = None) -> Client:
        """A client; it may be used by many threads, and there may be many.

        Args:
            on_corrupt: what to do with items that cannot be decoded, as for ``reverie.Client``.
            files: where external columns are, as for ``reverie.Client``.

        Raises:
            InvalidArgumentError: ``on_corrupt`` is not one of its values, or ``files`` is not a
                folder.
        """
        native = self._native.client(raises_on_corrupt(on_corrupt))
        return Client._embedded(native, self._codec, files)

    def close(self) -> None:
        """Ends all calls that wait, and later ones, with ``CancelledError``. Idempotent."""
        self._native.close()

    def __getitem__(self, name: str) -> Table:
        """The table of that name."""
        for table in self._tables:
            if isinstance(name, str) and table.name == name:
                return table
        names = [table.name for table in self._tables]
        raise NotFoundError(f"table {_checks.shown(name)} does not exist; the tables are {names}")

    def __contains__(self, name: object) -> bool:
        """Whether there is a table of that name."""
        return any(isinstance(name, str) and table.name == name for table in self._tables)

    def __iter__(self) -> Iterator[str]:
        """The names of the tables, in their order."""
        return iter([table.name for table in self._tables])

    def __repr__(self) -> str:
        return f"Store({list(self._tables)!r})"
