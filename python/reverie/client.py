"""What a program does with a store: insert, sample, update, ask.

One file, since it is one class, and more than half of its lines are documentation.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np

from reverie import _checks, _keys, _reverie
from reverie._closing import Closing
from reverie._options import checked_seed, native_files, raises_on_corrupt
from reverie.dataset import Dataset, table_dataset
from reverie.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ReverieError,
    UnavailableError,
    UnsupportedTypeError,
)
from reverie.replay_sample import RedeliveredInfo, ReplaySample, SampleInfo
from reverie.table import TableInfo, table_info
from reverie.tls import ClientTls
from reverie.trajectory_writer import TrajectoryWriter
from reverie.writer import Writer

if TYPE_CHECKING:
    import numpy.typing as npt

    from reverie._keys import Keys, Priorities
    from reverie._options import OnCorrupt
    from reverie._reverie import Batch, BlockedReport
    from reverie.external import Files
    from reverie.frameworks import Output
    from reverie.nests import TensorNest
    from reverie.structured import Config, StructuredWriter


class Client(Closing):
    """A client of a store: of a server, or (``reverie.Store.client()``) of this process.

    Thread-safe, except for the writers and iterators that it makes, each of which one thread may
    use. Calls that may wait take ``timeout_s``: None waits without limit, 0 does not wait. The
    answer of a server that is slow may take up to 2 s more.
    ``max_priority``, ``priorities`` and ``why_blocked`` do not: they wait up to ``retry_timeout_s``
    for a server. ``KeyboardInterrupt`` ends any wait of the main thread.

    Servers may be ours or dm-reverb's; calls that their protocol does not have raise
    ``UnimplementedError``. A client connects when it is first used, and reconnects by itself. Items
    that were not confirmed when a connection was lost are sent again; our servers insert none of
    them twice. It can be pickled: the other process connects to the same servers.

    Several servers may share the load as shards of one store: give a list of addresses. Each
    episode of a writer goes to one of them, samples come from all, priorities and deletions go to
    the one that has the item, and unreachable ones are left out until they return. See
    ``docs/concepts/shards.md``.

    Args:
        server_address: ``"localhost:7000"``, ``"unix:/run/x.sock"``, ``"dns:///name:7000"``, or
            several that take turns as if they were one, ``"ipv4:10.0.0.5:7000,10.0.0.6:7000"``. A
            list of such addresses for shards.
        token: the servers' secret, see ``Server``. It is only sent over TLS, to this
            machine, or over a Unix socket.
        tls: how to encrypt; None does not.
        retry_timeout_s: how long calls, and items in flight, wait for a server that does not
            answer, before they raise ``UnavailableError``; None tries without end. A shorter
            ``timeout_s`` of a call ends it earlier. After 2 s a log message says what it waits for.
            Errors that no further attempt can change, such as a certificate that is not accepted,
            are raised at once.
        each_address: make a shard of each address behind ``server_address``: names are looked up
            now.
        sampling: how shards share the samples: ``"even"`` takes equal numbers from each, ``"mass"``
            in proportion to the sum of priorities there, as one prioritised table would.
        seed: seeds the keys that ``insert`` and the writers choose; None takes a seed from the
            system. The server numbers its clients, so that two with one seed, or one that is
            restarted, never choose the same keys. Only for a single Reverie server.
        on_corrupt: what to do with items that cannot be decoded when they are drawn (a chunk is
            damaged, or was never one): ``"remove"`` takes each out of its table, where it is
            counted (``server_info()[table].corrupt_items``) and logged, and draws another in its
            place; ``"raise"`` raises ``DataLossError`` and leaves the item where it is.
        files: how to read :class:`External` columns of sampled items: a folder that contains the
            named files, with raw rows; or a function that gets an :class:`ExternalRows` and returns
            its rows as an array. If it raises ``FileNotFoundError`` for missing rows,
            ``on_corrupt`` decides; after any other exception the call raises
            ``FailedPreconditionError`` and the item stays. None reads no files.
        protocol: ``"grpc"`` reaches every server; ``"peer"`` is faster, for a Reverie server on
            this machine.

    Raises:
        InvalidArgumentError: an address is malformed or is given twice, ``tls`` holds no
            certificates, ``token`` is malformed, ``retry_timeout_s`` is not above 0, there is no
            such ``sampling``, ``on_corrupt`` or ``protocol``, ``seed`` is given with several
            shards, or ``protocol="peer"`` with ``tls`` or several addresses.
        UnavailableError: a name cannot be looked up, with ``each_address``.
    """

    _writer_type: ClassVar[type[Writer]] = Writer  # which `writer` makes

    def __init__(
        self,
        server_address: str | Sequence[str],
        *,
        token: str = "",
        tls: ClientTls | None = None,
        retry_timeout_s: float | None = 120.0,
        each_address: bool = False,
        sampling: Literal["even", "mass"] = "even",
        seed: int | None = None,
        on_corrupt: OnCorrupt = "remove",
        files: Files | None = None,
        protocol: Literal["grpc", "peer"] = "grpc",
    ) -> None:
        is_one = isinstance(server_address, str)
        addresses = _addresses(server_address)
        _checks.text("token", token)
        if tls is not None:
            _checks.instance("tls", tls, ClientTls)
        if retry_timeout_s is not None:
            retry_timeout_s = _checks.number(
                "retry_timeout_s", retry_timeout_s, above=0.0, finite=False
            )
        _checks.choice("sampling", sampling, ("even", "mass"))
        if _checks.flag("each_address", each_address):
            found = [one for target in addresses for one in _reverie.single_targets(target)]
            addresses = list(dict.fromkeys(found))
        if seed is not None and (each_address or not is_one):
            raise InvalidArgumentError(
                f"seed is {seed} with shards, which do not number their clients; leave it out"
            )
        _checks.choice("protocol", protocol, ("grpc", "peer"))
        if protocol == "peer" and (each_address or not is_one or tls is not None):
            raise InvalidArgumentError(
                "protocol is 'peer' with tls or several addresses; it is for one server on this "
                "machine: use 'grpc'"
            )
        options = None if tls is None else tls._options()
        self._native = _reverie.connect(
            addresses,
            token,
            options,
            retry_timeout_s,
            each_address or not is_one,
            sampling,
            checked_seed(seed),
            raises_on_corrupt(on_corrupt),
            protocol,
        )
        self._files = native_files(files)  # kept here, where the collector of cycles sees it
        self._native.set_files(self._files)
        self._codec = "auto"
        # A server's, by table. Other threads may append to a list while one goes through it.
        self._datasets: dict[str, list[weakref.ref[Dataset[Any]]]] = {}
        self._addresses = addresses
        self._is_sharded = each_address or not is_one
        self._connection: tuple[str | tuple[str, ...], dict[str, Any]] | None = (
            server_address if isinstance(server_address, str) else tuple(server_address),
            {
                "token": token,
                "tls": tls,
                "retry_timeout_s": retry_timeout_s,
                "each_address": each_address,
                "sampling": sampling,
                "seed": seed,
                "on_corrupt": on_corrupt,
                "files": files,
                "protocol": protocol,
            },
        )

    @classmethod
    def _embedded(cls, native: _reverie.Client, codec: str, files: Files | None) -> Client:
        client = cls.__new__(cls)
        client._native = native
        client._files = native_files(files)
        native.set_files(client._files)
        client._codec = codec
        client._datasets = {}
        client._addresses = []
        client._is_sharded = False
        client._connection = None
        return client

    @property
    def server_address(self) -> str | None:
        """Where the server is, or its shards, with commas; None for a store of this process."""
        return None if self._connection is None else ",".join(self._addresses)

    @property
    def shards(self) -> list[Client]:
        """One client per shard, in the order of ``batch.shards``.

        They have their own connections. A client of one server is its own only shard.
        """
        if self._connection is None or not self._is_sharded:
            return [self]
        kept = ("token", "tls", "retry_timeout_s", "on_corrupt", "files")
        options = {name: self._connection[1][name] for name in kept}
        connect = self.__reduce__()[0]  # to a client that answers as this one does
        return [connect(address, options) for address in self._addresses]

    def shards_down(self) -> dict[str, str]:
        """The shards that are left out now because they do not answer: address and reason."""
        return {address: why for address, why in _reverie.shard_states(self._native) if why}

    def close(self) -> None:
        """Ends the connections to the servers. May be repeated.

        Calls that wait, in any thread, and all later ones raise ``CancelledError``, and so do the
        client's writers and iterators. Items that were not confirmed and updates that were sent
        without waiting may be lost: call ``flush()`` of the writers, and of the client, before;
        leaving a ``with`` block calls that of the client. A client of a store in this process has
        no connection, and stays open.

        Raises:
            FailedPreconditionError: in a child that was forked; the parent's client goes on.
        """
        self._native.close()

    def _leave(self, error: BaseException | None) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    # --- Writing

    def insert(
        self,
        data: Any,  # noqa: ANN401
        priorities: Mapping[str, float | None],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Inserts one step, as a separate item in each table.

        Args:
            data: a nest of arrays; the columns of the items get a leading axis of 1.
            priorities: by the name of the table, at least one; None for the largest that the table
                has seen, or for 1 over gRPC, which cannot ask for that.
            timeout_s: how long to wait for the rate limiters.

        Raises:
            InvalidArgumentError: no table, a priority that is not a number, another signature.
            NotFoundError: there is no such table.
            DeadlineExceededError: the time is up; the message says how many tables have the item.
                Over gRPC, a table that gets room at that moment may have it all the same.
        """
        if not isinstance(priorities, dict):
            priorities = _checks.mapping("priorities", priorities, "priorities by table")
        if not priorities:
            raise InvalidArgumentError("priorities is empty; name at least one table")
        self._native.insert(data, priorities, timeout_s)

    def insert_rows(
        self,
        data: Any,  # noqa: ANN401
        table: str,
        *,
        items: Sequence[tuple[int, int]] | npt.ArrayLike | None = None,
        priorities: Priorities | float | None = None,
        timeout_s: float | None = None,
    ) -> npt.NDArray[np.uint64]:
        """Inserts items over existing rows, which are stored once as one chunk.

        Columns that are :class:`External` stay where they are: only the file's name and the place
        in it are stored, and a client with ``files=`` reads the rows of the items that it samples.

        Args:
            data: a nest of arrays of fixed size and of ``External``, all with as many rows.
            table: its name.
            items: ``[N, 2]``, the first row of each item and one past its last; None for one item
                over all rows.
            priorities: ``[N]``, or one for all; None for the largest that the table has seen, or
                for 1 over gRPC.
            timeout_s: how long to wait for the rate limiter.

        Returns:
            The keys of the items.

        Raises:
            InvalidArgumentError: columns that differ in rows, a range outside them, a priority that
                is not a number, more than 128 MiB of rows with an external column, more than
                4,092 MiB for a table with a journal, or, over a network, more than 2**24 rows.
            NotFoundError: there is no such table.
            DeadlineExceededError: the time is up; the message says how many items are inserted.
        """
        from reverie.external import External, ranges_of

        begins, ends = ranges_of(items)
        given = None
        if priorities is not None:
            count = max(1, len(begins))
            given = _keys.priorities_of(priorities, one_for=count)
            if len(given) != count:
                raise InvalidArgumentError(
                    f"priorities has {len(given)} entries for {count} items; give one for each"
                )
        return self._native.insert_rows(data, table, begins, ends, given, External, timeout_s)

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
    ) -> Writer:
        """A writer whose items are the last steps, whole.

        Args:
            max_sequence_length: steps of the longest item; >= 1.
            delta_encoded: for Reverb's servers; means nothing to an embedded store.
            chunk_length: steps that share a chunk, at most ``max_sequence_length``; None for
                ``min(10, max_sequence_length)``.
            max_in_flight_items: items that wait for their table before ``create_item`` waits too;
                None for a million.

        Raises:
            InvalidArgumentError: an argument is out of range.
        """
        return self._writer_type(
            self._native,
            max_sequence_length,
            delta_encoded,
            chunk_length,
            max_in_flight_items,
            self._codec,
        )

    def trajectory_writer(
        self,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        chunk_length: int | None = None,
        max_in_flight_items: int = 1000,
        codec: str | None = None,
    ) -> TrajectoryWriter:
        """A writer whose items are any rows of the last steps.

        Args:
            num_keep_alive_refs: steps that items can refer back to; >= 1.
            validate_items: check the table's signature when an item is created, not only when it
                reaches the table.
            chunk_length: steps that share a chunk; None tunes it to how items use the steps.
            max_in_flight_items: items that wait for their table before ``create_item`` waits too.
            codec: how full chunks are encoded: ``"raw"``, ``"lz4"``, ``"zstd"``, or ``"auto"``,
                which uses lz4 for integers of at least 256 bytes per step if it saves a quarter.
                None: the store's; ``"auto"`` over a network. Samples are the same with any codec.

        Raises:
            InvalidArgumentError: an argument is out of range, or there is no such codec.
        """
        return TrajectoryWriter(
            self._native,
            num_keep_alive_refs,
            validate_items=validate_items,
            chunk_length=chunk_length,
            max_in_flight_items=max_in_flight_items,
            codec=self._codec if codec is None else codec,
        )

    def structured_writer(
        self,
        configs: Sequence[Config],
        *,
        chunk_length: int | None = None,
        max_in_flight_items: int = 1000,
        codec: str | None = None,
    ) -> StructuredWriter:
        """A writer that makes items by patterns: see ``reverie.structured``.

        Args:
            configs: at least one, of ``structured.create_config``. They are tried in this order.
            chunk_length: as for :meth:`trajectory_writer`, as are ``max_in_flight_items``, which is
                at least the number of configurations, and ``codec``.
            max_in_flight_items: items that wait for their table before ``append`` waits too.
            codec: how full chunks are kept.

        Raises:
            InvalidArgumentError: there are no configurations, or one cannot make items; the message
                begins "Invalid configuration at position i".
            UnsupportedTypeError: one of them is not a configuration.
        """
        # Loaded here: most programs write without patterns.
        from reverie.structured import open_writer

        return open_writer(
            self._native,
            configs,
            chunk_length,
            max_in_flight_items,
            self._codec if codec is None else codec,
        )

    # --- Reading

    @overload
    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: Literal[True] = True,
        unpack_as_table_signature: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[list[ReplaySample]]: ...
    @overload
    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: Literal[False],
        unpack_as_table_signature: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[ReplaySample]: ...
    @overload
    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool,
        unpack_as_table_signature: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[Any]: ...
    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[Any]:
        """Draws items one by one, for one thread.

        Over a network up to 64 of them, of at most a MiB together, are drawn ahead of the iterator,
        never more than ``num_samples`` in all, and none if ``max_times_sampled`` is set: items
        drawn ahead have the priorities of that time and count as sampled, whether they are used or
        not. In an embedded store each is drawn when it is requested. For a learner use
        :meth:`sample_batch`, which has no loop in Python.

        Args:
            table: its name.
            num_samples: items; >= 1.
            emit_timesteps: return each item as a list of ``ReplaySample``, one for each step; else
                as one ``ReplaySample`` over all its steps.
            unpack_as_table_signature: return ``data`` as the nest that was written, not as a flat
                list. The table must have a signature.
            timeout_s: how long to wait for each item.

        Yields:
            ``list[ReplaySample]``, or ``ReplaySample``.

        Raises:
            InvalidArgumentError: ``num_samples`` is below 1, or the table has no signature to
                unpack by.
            NotFoundError: there is no such table.
            DeadlineExceededError: no item could be drawn in time.
            UnsupportedTypeError: an item with squeezed columns cannot be returned step by step.
        """
        _checks.text("table", table)
        num_samples = _checks.integer("num_samples", num_samples)
        _checks.flag("emit_timesteps", emit_timesteps)
        _checks.flag("unpack_as_table_signature", unpack_as_table_signature)
        timeout_s = _checks.timeout("timeout_s", timeout_s)
        if unpack_as_table_signature and self._table(table, timeout_s).signature is None:
            raise InvalidArgumentError(
                f"table '{table}' has no signature to unpack by; leave "
                "unpack_as_table_signature out"
            )
        return _reverie.SampleItems(
            self._native,
            table,
            num_samples,
            timeout_s,
            emit_timesteps,
            unpack_as_table_signature,
            SampleInfo,
            RedeliveredInfo,
            ReplaySample,
            self._files,
        )

    def sample_batch(
        self,
        table: str,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        beta: float | None = None,
        weights: Literal["batch", "buffer"] = "batch",
        distinct: bool = False,
        pad: bool = False,
        out: Batch | None = None,
    ) -> Batch:
        """Draws items and gathers them into arrays ``[B, T, ...]``.

        Args:
            table: its name.
            batch_size: B; >= 1. The call waits until this many are drawn.
            timeout_s: how long to wait.
            beta: if given, ``weights`` holds ``(1 / (N p)) ** beta`` over the largest weight.
            weights: what weights are divided by: the largest weight of the ``"batch"``, or of the
                ``"buffer"``, all items that the table can draw (as in OpenAI Baselines; only for a
                store of this process, which visits all its items the first time).
            distinct: no item twice in the batch; ``probabilities`` then say how likely each was to
                be in it (``docs/concepts/replay.md``).
            pad: fill items that are shorter than the longest with zeros, and return the lengths of
                all; if False, items of different lengths are refused.
            out: a batch of an earlier call, whose arrays are reused if they match.

        Returns:
            The batch; ``out`` if that was given.

        Raises:
            InvalidArgumentError: an argument is out of range, or the items differ in their columns.
            NotFoundError: there is no such table.
            DeadlineExceededError: the time is up; its ``batch`` has what was drawn, or is None.
        """
        return self._native.sample_batch(
            table, batch_size, timeout_s, beta, weights, distinct, pad, out
        )

    @overload
    def dataset(
        self,
        table: str,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        beta: float | None = None,
        weights: Literal["batch", "buffer"] = "batch",
        distinct: bool = False,
        pad: bool = False,
        drop_last: bool = False,
        prefetch: int | None = None,
        output: Literal["numpy"] = "numpy",
    ) -> Dataset[Batch]: ...
    @overload
    def dataset(
        self,
        table: str,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        beta: float | None = None,
        weights: Literal["batch", "buffer"] = "batch",
        distinct: bool = False,
        pad: bool = False,
        drop_last: bool = False,
        prefetch: int | None = None,
        output: Literal["torch"],
    ) -> Dataset[Batch[TensorNest]]: ...
    @overload
    def dataset(
        self,
        table: str,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        beta: float | None = None,
        weights: Literal["batch", "buffer"] = "batch",
        distinct: bool = False,
        pad: bool = False,
        drop_last: bool = False,
        prefetch: int | None = None,
        output: Output,
    ) -> Dataset[Batch[Any]]: ...
    def dataset(
        self,
        table: str,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        beta: float | None = None,
        weights: Literal["batch", "buffer"] = "batch",
        distinct: bool = False,
        pad: bool = False,
        drop_last: bool = False,
        prefetch: int | None = None,
        output: Output = "numpy",
    ) -> Dataset[Any]:
        """An endless iterator over batches, drawn ahead by its own thread.

        Args:
            table: its name.
            batch_size: items of a batch; >= 1.
            timeout_s: how long to wait for a batch before the iteration ends, counted from the call
                of ``next``; None waits without limit. A last, incomplete batch is returned, unless
                ``drop_last``.
            beta: as for :meth:`sample_batch`, as are ``weights``, ``distinct`` and ``pad``.
            weights: what weights are divided by.
            distinct: no item twice in a batch.
            pad: fill items that are shorter than the longest of the batch with zeros, and return
                the lengths of all.
            drop_last: drop a batch that the time-out cut short, and the items drawn for it.
            prefetch: batches made ahead; in [0, 1024]. They are drawn with the priorities of that
                time, and count as samples. None: 2, or 0 if samples remove items from the table (a
                queue). Unused ones are returned to such a table when the dataset is closed or
                dropped; a server gets them as its newest items. If some cannot be returned, a
                warning gives their number. A server takes whole items back, and no single samples:
                with ``max_times_sampled`` above 1 an item may then be sampled more, or less, often
                than that.
            output: ``"numpy"``, ``"torch"`` or ``"jax"``: the library of the arrays in ``data``,
                ``weights`` and ``lengths``. Tensors of PyTorch, and JAX arrays on the CPU where JAX
                lets it, share the batch's memory.

        Returns:
            An iterator over :class:`Batch`, and a context manager.

        Raises:
            InvalidArgumentError: an argument is out of range, or ``output`` is not one of the
                three.
            MissingPackageError: the package of ``output`` is not installed.
        """
        _checks.choice("output", output, ("numpy", "torch", "jax"))
        made = table_dataset(
            _reverie.TableStream(
                self._native,
                _checks.text("table", table),
                _checks.integer("batch_size", batch_size),
                timeout_s,
                beta,
                _checks.choice("weights", weights, ("batch", "buffer")),
                _checks.flag("distinct", distinct),
                _checks.flag("pad", pad),
                _checks.flag("drop_last", drop_last),
                None if prefetch is None else _checks.integer("prefetch", prefetch, 0, 1024),
            ),
            output,
        )
        made._files = self._files
        if self._connection is not None:
            made._flush = self.flush
            opened = self._datasets.setdefault(table, [])
            opened.append(weakref.ref(made, opened.remove))
        return made

    # --- Priorities

    def update_priorities(
        self,
        table: str,
        tickets: Keys | None = None,
        priorities: Priorities = (),
        *,
        keys: Keys | None = None,
        timeout_s: float | None = None,
        wait: bool | None = None,
    ) -> int:
        """Gives items new priorities; missing items are ignored.

        Args:
            table: its name.
            tickets: those of a batch (``batch.tickets``), found without a look-up.
            priorities: one for each.
            keys: the items' keys, instead of tickets.
            timeout_s: how long to wait for a server.
            wait: whether to wait for its answer. None: not while a :meth:`dataset` of this client
                over the table is open. Updates without waiting take effect in order, at most 32 are
                in flight, those of one millisecond may share a call, and an error of one is raised
                by the next, by :meth:`flush` or by the dataset's ``close``: that call does nothing
                else.

        Returns:
            How many items were updated; over gRPC, or without waiting, how many were sent.

        Raises:
            InvalidArgumentError: the lengths differ, a priority is out of range, or ``tickets``
                cannot be tickets (but are keys, or indices): nothing was updated.
            NotFoundError: there is no such table.
            DeadlineExceededError: no server answered in time; it may still have been applied.
        """
        if (tickets is None) == (keys is None):
            raise InvalidArgumentError("give either tickets or keys, with one priority for each")
        values = _keys.priorities_of(priorities)
        if wait is None:
            wait = not self._has_open_dataset(table)
        if not _checks.flag("wait", wait):
            return self._send_priorities(table, tickets, keys, values, timeout_s)
        if keys is not None:
            given = _keys.keys_of("keys", keys)
            _keys.check_same_length("keys", given, values)
            return self._mutate(table, keys=given, key_priorities=values, timeout_s=timeout_s)[0]
        given = _keys.keys_of("tickets", tickets)
        _keys.check_same_length("tickets", given, values)
        return self._mutate(table, tickets=given, ticket_priorities=values, timeout_s=timeout_s)[0]

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until the server has answered all updates that were sent without waiting.

        Args:
            timeout_s: how long.

        Raises:
            ReverieError: the server refused an earlier update, and no call has reported that yet.
            DeadlineExceededError: the time is up; the message says how many are in flight.
        """
        self._native.flush(_checks.timeout("timeout_s", timeout_s))

    def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | tuple[Keys, Priorities] | None = None,
        deletes: Keys | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Deletes items, then gives others new priorities; missing keys are ignored.

        Args:
            table: its name.
            updates: priorities by key, or a pair of arrays.
            deletes: keys.
            timeout_s: how long to wait for a server.

        Raises:
            InvalidArgumentError: a priority is NaN or, in a table with a `Prioritized` selector,
                negative or infinite: nothing was changed.
            NotFoundError: there is no such table.
            DeadlineExceededError: no server answered in time; it may still have been applied.
        """
        keys, values = _keys.NO_KEYS, _keys.NO_VALUES
        if isinstance(updates, Mapping):
            keys = _keys.keys_of("updates", list(updates))
            values = _keys.priorities_of(list(updates.values()), "updates")
        elif updates is not None:
            pair = _checks.items("updates", updates, "keys, and one of priorities; or a dict")
            if len(pair) != 2:
                raise InvalidArgumentError(
                    f"updates has {len(pair)} entries; it must be a dict of priorities by key, or "
                    "a pair of keys and priorities"
                )
            keys, values = (
                _keys.keys_of("updates", pair[0]),
                _keys.priorities_of(pair[1], "updates"),
            )
            _keys.check_same_length("updates", keys, values)
        gone = _keys.NO_KEYS if deletes is None else _keys.keys_of("deletes", deletes)
        self._mutate(table, gone, keys=keys, key_priorities=values, timeout_s=timeout_s)

    def priorities(self, table: str, keys: Keys) -> npt.NDArray[np.float64]:
        """The priorities of items, float64; NaN for a missing key."""
        return self._native.lookup(table, _keys.keys_of("keys", keys))[0]

    def max_priority(self, table: str) -> float:
        """The largest priority since the table was opened or reset; 1 before the first."""
        return self._table(_checks.text("table", table)).max_priority

    def delete(self, table: str, keys: Keys, *, timeout_s: float | None = None) -> int:
        """Deletes items; returns how many there were. Missing keys are ignored.

        Over gRPC, which does not tell that, it returns the number of ``keys``.
        """
        return self._mutate(table, _keys.keys_of("keys", keys), timeout_s=timeout_s)[1]

    def reset(self, table: str, *, timeout_s: float | None = None) -> None:
        """Drops all items of a table and resets its counts. Waiting calls keep waiting.

        Raises:
            NotFoundError: there is no such table.
            UnavailableError: a shard does not answer; the others are reset.
        """
        self._native.reset(table, timeout_s)

    # --- Asking

    def server_info(self, timeout: float | None = None) -> dict[str, TableInfo]:
        """The options and the state of each table, by name.

        With several shards it is the sum over those that answer; ``[shard.server_info() for shard
        in client.shards]`` gives each.

        Args:
            timeout: seconds to wait for a server; None and 0 wait without limit.

        Raises:
            DeadlineExceededError: no server answered.
        """
        if timeout is not None:
            timeout = _checks.number("timeout", timeout, 0.0, finite=False) or None
        return self._tables(timeout)

    def checkpoint(self, payload: bytes = b"", *, timeout_s: float | None = None) -> str:
        """Has the server, or the store, write a checkpoint; returns its path on the server's disk.

        All tables are written as they are at one moment, and other calls continue meanwhile. A
        server completes it even if the client no longer waits.

        Several shards each write their own, one after another; the result has one path per line.

        Args:
            payload: any bytes to store with it, at most 16 MiB: a step number, the name
                of the weights. :meth:`loaded_payload` returns them after a restart.
            timeout_s: how long to wait for it, at each shard.

        Raises:
            DeadlineExceededError: it was not written in time; the server may still do it.
            InvalidArgumentError: the payload is too large.
            ResourceExhaustedError: the disk is full, or eight other checkpoints wait already.
            UnimplementedError: the server or the store has no checkpointer; or a server of
                dm-reverb, which keeps no payload, wrote the checkpoint without it.
            UnavailableError: a shard does not answer; the message has the paths of the others.
        """
        payload = _checks.payload(payload)
        if not self._is_sharded:
            return self._native.checkpoint(payload, timeout_s)
        down = self.shards_down()
        paths: list[str] = []
        failed: list[ReverieError] = []
        for address, shard in zip(self._addresses, self.shards, strict=True):
            path, error = shard._checkpoint_of(address, down.get(address), payload, timeout_s)
            if error is None:
                paths.append(path)
            else:
                failed.append(error)
        if failed:
            reasons = "; ".join(str(error) for error in failed)
            raise type(failed[0])(f"{reasons} (written: {', '.join(paths) or 'none'})")
        return "\n".join(paths)

    def _checkpoint_of(
        self, address: str, why_down: str | None, payload: bytes, timeout_s: float | None
    ) -> tuple[str, ReverieError | None]:
        """As a shard: the path, or what went wrong there."""
        if why_down is not None:
            return "", UnavailableError(f"shard {address}: {why_down}")
        try:
            return self._native.checkpoint(payload, timeout_s), None
        except ReverieError as error:
            return "", type(error)(f"shard {address}: {error}")

    def loaded_payload(self, *, timeout_s: float | None = None) -> bytes | None:
        """The payload of the checkpoint that the server, or the store, was loaded from.

        None if it began empty; ``b""`` if the checkpoint has no payload. So a learner that finds
        its server restarted learns which of its own steps the tables belong to.

        Args:
            timeout_s: how long to wait for an answer, at each shard; None waits without limit.

        Raises:
            DeadlineExceededError: no server answered in time.
            FailedPreconditionError: shards were loaded from checkpoints of different payloads;
                ``[shard.loaded_payload() for shard in client.shards]`` gives each.
            ResourceExhaustedError: the payload has more than 16 MiB, as a training's may have; it
                does not travel.
            UnimplementedError: a server of dm-reverb, which does not tell.
        """
        timeout_s = _checks.timeout("timeout_s", timeout_s)
        if not self._is_sharded:
            loaded = self._native.loaded_checkpoint(timeout_s)
            return None if loaded is None else loaded[1]
        payloads = [shard.loaded_payload(timeout_s=timeout_s) for shard in self.shards]
        for address, payload in zip(self._addresses, payloads, strict=True):
            if payload != payloads[0]:
                raise FailedPreconditionError(
                    f"shard {address} was loaded with the payload {_checks.shown(payload)}, and "
                    f"{self._addresses[0]} with {_checks.shown(payloads[0])}; ask each of "
                    "client.shards, and load the shards from checkpoints that belong together"
                )
        return payloads[0]

    def why_blocked(self, table: str) -> BlockedReport:
        """Why requests of a table wait; its ``str()`` is a readable line."""
        return self._native.why_blocked(table)

    def can_sample(self, table: str, num_samples: int = 1) -> bool:
        """Whether the rate limiter would allow this many samples now."""
        return self._native.can_sample(table, num_samples)

    def can_insert(self, table: str, num_inserts: int = 1) -> bool:
        """Whether the rate limiter would allow this many inserts now."""
        return self._native.can_insert(table, num_inserts)

    def _send_priorities(
        self,
        table: str,
        tickets: Keys | None,
        keys: Keys | None,
        values: npt.NDArray[np.float64],
        timeout_s: float | None,
    ) -> int:
        """Updates without waiting; returns how many."""
        argument = "keys" if tickets is None else "tickets"
        given = _keys.keys_of(argument, keys if tickets is None else tickets)
        _keys.check_same_length(argument, given, values)
        none = (_keys.NO_KEYS, _keys.NO_VALUES)
        by_ticket, by_key = (none, (given, values)) if tickets is None else ((given, values), none)
        self._native.update(table, *by_ticket, *by_key, timeout_s)
        return len(given)

    def _has_open_dataset(self, table: str) -> bool:
        if not self._datasets or not isinstance(table, str):
            return False
        datasets = (reference() for reference in self._datasets.get(table, ()))
        return any(dataset is not None and dataset._is_open for dataset in datasets)

    def _mutate(
        self,
        table: str,
        deletes: npt.NDArray[np.uint64] | None = None,
        *,
        tickets: npt.NDArray[np.uint64] | None = None,
        ticket_priorities: npt.NDArray[np.float64] | None = None,
        keys: npt.NDArray[np.uint64] | None = None,
        key_priorities: npt.NDArray[np.float64] | None = None,
        timeout_s: float | None,
    ) -> tuple[int, int, int]:
        """How many items were updated, deleted, and not found."""
        return self._native.mutate(
            table,
            _keys.NO_KEYS if deletes is None else deletes,
            _keys.NO_KEYS if tickets is None else tickets,
            _keys.NO_VALUES if ticket_priorities is None else ticket_priorities,
            _keys.NO_KEYS if keys is None else keys,
            _keys.NO_VALUES if key_priorities is None else key_priorities,
            timeout_s,
        )

    def _tables(self, timeout_s: float | None = None) -> dict[str, TableInfo]:
        return {table["name"]: table_info(table) for table in self._native.info(timeout_s)}

    def _table(self, name: str, timeout_s: float | None = None) -> TableInfo:
        tables = self._tables(timeout_s)
        if name not in tables:
            raise NotFoundError(f"table '{name}' does not exist; the tables are {sorted(tables)}")
        return tables[name]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._connection is None:
            raise UnsupportedTypeError(
                "a Client of an embedded Store cannot be pickled: the store lives in this process; "
                "open a store in the other process, or use a Server"
            )
        return _connect, self._connection

    def __repr__(self) -> str:
        if self._connection is None:
            return "<reverie.Client of an embedded store>"
        return f"Client, server_address={self.server_address}"


def _addresses(server_address: object) -> list[str]:
    """The addresses that a client was given."""
    if isinstance(server_address, str):
        return [_checks.text("server_address", server_address)]
    what = "an address such as 'localhost:8000', or a list of them"
    if not hasattr(server_address, "__iter__") or isinstance(server_address, (bytes, Mapping)):
        raise UnsupportedTypeError(
            f"server_address is {_checks.shown(server_address)}; it must be {what}"
        )
    addresses = _checks.items("server_address", server_address, "addresses")
    if not addresses:
        raise InvalidArgumentError(
            "server_address is empty: there are no shards; name at least one"
        )
    for address in addresses:
        if not isinstance(address, str):
            raise UnsupportedTypeError(
                f"server_address holds {_checks.shown(address)}; it must be {what}"
            )
    return addresses


def _connect(server_address: str | tuple[str, ...], options: dict[str, Any]) -> Client:
    return Client(server_address, **options)
