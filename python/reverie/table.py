"""Tables, which a store consists of."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from reverie import _checks, _reverie, rate_limiters, selectors, specs
from reverie._options import DURABILITY, Durability
from reverie.errors import FailedPreconditionError, InvalidArgumentError, UnsupportedTypeError
from reverie.extensions import Extension
from reverie.rate_limiters import RateLimiter
from reverie.selectors import Selector


class CallStats(NamedTuple):
    """The outcomes of one kind of request."""

    completed: int  # items
    pending: int = 0  # requests that wait now
    waited_s: float = 0.0  # all of them together, so far


class RateLimiterInfo(NamedTuple):
    """A rate limiter and its counts."""

    samples_per_insert: float
    min_diff: float
    max_diff: float
    min_size_to_sample: int
    insert_stats: CallStats
    sample_stats: CallStats
    deletes: int


class TableInfo(NamedTuple):
    """The settings and the state of a table.

    Attributes:
        size_bytes: the size of its items and their chunks, each counted once; only if ``max_bytes``
            is set.
        num_episodes: episodes with items in the table.
        num_deleted_episodes: episodes whose last item was removed.
        num_unique_samples: items that were sampled at least once.
        max_priority: the largest since the table was opened or reset; 1 before the first.
        missing_updates: priority updates that found no item.
        corrupt_items: items that a reader could not decode, and that were removed.
    """

    name: str
    sampler_options: Selector
    remover_options: Selector
    max_size: int
    max_times_sampled: int
    rate_limiter_info: RateLimiterInfo
    signature: Any
    current_size: int = 0
    num_episodes: int = 0
    num_deleted_episodes: int = 0
    num_unique_samples: int = 0
    max_bytes: int | None = None
    size_bytes: int = 0
    max_priority: float = 1.0
    missing_updates: int = 0
    corrupt_items: int = 0


class Table:
    """A set of items, the orders in which they are sampled and evicted, and a rate limiter.

    A table is opened by the one ``reverie.Store`` it is given to; until then it is empty.

    Args:
        name: not empty, and unique in its store.
        sampler: which item is sampled.
        remover: which item is removed when the table is full.
        max_size: the most items; >= 1.
        rate_limiter: see ``reverie.rate_limiters``.
        max_times_sampled: an item is removed once it was sampled so many times; < 1 for never.
        extensions: see ``reverie.extensions``.
        signature: a nest of ``TensorSpec`` (or of what other libraries specify arrays with) that
            items must match, leading axis included; None for any items.
        max_bytes: the bound of the items and their chunks, each counted once; the remover evicts
            until they fit. None for no bound.
        memory_bytes: how much of its steps may be in memory, at least 16 MiB, and no more than the
            store's; what is sampled least goes to a file in the store's ``spill_folder`` beyond
            that. A chunk of several tables counts only for the one with the largest bound; chunks
            of a table without a bound stay in memory, as far as the store's bound permits. None for
            only the store's bound.
        durability: that of its changes, if it differs from its store's: ``"none"``, ``"interval"``
            or ``"sync"``, as for ``reverie.Store``. After a crash, a table with ``"none"`` is
            restored from the last checkpoint only, others also from the journal.
        undo_unsent: for a server's tables with ``max_times_sampled``: samples that were drawn for a
            reader that disconnected before they were sent are undone. Their items are in the table
            again, first in its order, and ``Server.figures["undone_samples"]`` counts them; other
            readers may have drawn later items meanwhile. From then on the items are marked:
            ``Batch.redelivered`` and ``SampleInfo.redelivered`` say so to their readers. If False,
            they are lost, and counted as ``"unsent_samples"``.
        check_items: refuse items that do not fit the signature. False takes what a writer creates
            with ``validate_items=False``, as Reverb's tables do; a batch cannot be made of it.

    Raises:
        InvalidArgumentError: the name is empty, a size is out of range, or the rate limiter asks
            for more items than the table can hold.
        UnsupportedTypeError: an argument is not a selector, limiter, extension or specification.
    """

    def __init__(
        self,
        name: str,
        sampler: Selector,
        remover: Selector,
        max_size: int,
        rate_limiter: RateLimiter,
        max_times_sampled: int = 0,
        extensions: Sequence[Extension] = (),
        signature: Any = None,  # noqa: ANN401
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        durability: Durability | None = None,
        undo_unsent: bool = False,
        check_items: bool = True,
    ) -> None:
        _require_name(name)
        _require(name, "sampler", sampler, Selector)
        _require(name, "remover", remover, Selector)
        _require(name, "rate_limiter", rate_limiter, RateLimiter)
        extensions = _checks.items(
            f"extensions of table '{name}'", extensions, "reverie.extensions.Extension"
        )
        for extension in extensions:
            _require(name, "extensions", extension, Extension)
        max_size = _require_positive(name, "max_size", max_size)
        if max_bytes is not None:
            max_bytes = _require_positive(name, "max_bytes", max_bytes)
        if memory_bytes is not None:
            memory_bytes = _checks.integer(
                f"memory_bytes of table '{name}'", memory_bytes, _checks.MEMORY_BYTES_MIN
            )
        if durability is not None:
            _checks.choice(f"durability of table '{name}'", durability, DURABILITY)
        if rate_limiter.min_size_to_sample > max_size:
            raise InvalidArgumentError(
                f"table '{name}' has max_size {max_size}, but its rate limiter waits for "
                f"{rate_limiter.min_size_to_sample} items: nothing could ever be sampled"
            )
        try:
            self._columns = specs.signature_columns(signature)
        except (InvalidArgumentError, UnsupportedTypeError) as error:
            raise type(error)(f"table '{name}': {error}") from None
        self._name = name
        self._sampler = sampler
        self._remover = remover
        self._max_size = max_size
        self._rate_limiter = rate_limiter
        self._max_times_sampled = _checks.integer(
            f"max_times_sampled of table '{name}'", max_times_sampled, -(2**31), 2**31 - 1
        )
        self._extensions = tuple(extensions)
        self._signature = signature if self._columns is not None else None
        self._max_bytes = max_bytes
        self._memory_bytes = memory_bytes
        self._durability = durability
        self._undo_unsent = _checks.flag("undo_unsent", undo_unsent)
        self._check_items = _checks.flag("check_items", check_items)
        self._store: _reverie.Store | _reverie.Server | None = None

    @classmethod
    def queue(
        cls,
        name: str,
        max_size: int,
        extensions: Sequence[Extension] = (),
        signature: Any = None,  # noqa: ANN401
    ) -> "Table":
        """A table whose items are sampled once, in the order of their insertion.

        Inserts wait while it is full, samples while it is empty.
        """
        max_size = _require_positive(name, "max_size", max_size)
        return cls(
            name,
            selectors.Fifo(),
            selectors.Fifo(),
            max_size,
            rate_limiters.Queue(max_size),
            1,
            extensions,
            signature,
        )

    @classmethod
    def stack(
        cls,
        name: str,
        max_size: int,
        extensions: Sequence[Extension] = (),
        signature: Any = None,  # noqa: ANN401
    ) -> "Table":
        """A table whose items are sampled once, the newest first.

        Inserts wait while it is full, samples while it is empty.
        """
        max_size = _require_positive(name, "max_size", max_size)
        return cls(
            name,
            selectors.Lifo(),
            selectors.Lifo(),
            max_size,
            rate_limiters.Stack(max_size),
            1,
            extensions,
            signature,
        )

    @property
    def name(self) -> str:
        """The name by which clients refer to the table."""
        return self._name

    @property
    def info(self) -> TableInfo:
        """The settings and the present state of the table."""
        if self._store is not None:
            for table in self._store.info():
                if table["name"] == self._name:
                    return table_info(table)
        return table_info(self._options())

    def can_sample(self, num_samples: int) -> bool:
        """Whether the rate limiter would let this many samples through now.

        Raises:
            InvalidArgumentError: ``num_samples`` is below 1.
        """
        _require_positive(self._name, "num_samples", num_samples)
        if self._store is not None:
            return self._store.client().can_sample(self._name, num_samples)
        return _reverie.empty_table_allows(*self._rate_limiter.numbers, num_samples)[1]

    def can_insert(self, num_inserts: int) -> bool:
        """Whether the rate limiter would let this many inserts through now.

        Raises:
            InvalidArgumentError: ``num_inserts`` is below 1.
        """
        _require_positive(self._name, "num_inserts", num_inserts)
        if self._store is not None:
            return self._store.client().can_insert(self._name, num_inserts)
        return _reverie.empty_table_allows(*self._rate_limiter.numbers, num_inserts)[0]

    def replace(
        self,
        name: str | None = None,
        sampler: Selector | None = None,
        remover: Selector | None = None,
        max_size: int | None = None,
        rate_limiter: RateLimiter | None = None,
        max_times_sampled: int | None = None,
        extensions: Sequence[Extension] | None = None,
        signature: Any = None,  # noqa: ANN401
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        durability: Durability | None = None,
        undo_unsent: bool | None = None,
        check_items: bool | None = None,
    ) -> "Table":
        """A new, empty table with the same settings, except those given here."""
        return Table(
            self._name if name is None else name,
            self._sampler if sampler is None else sampler,
            self._remover if remover is None else remover,
            self._max_size if max_size is None else max_size,
            self._rate_limiter if rate_limiter is None else rate_limiter,
            self._max_times_sampled if max_times_sampled is None else max_times_sampled,
            self._extensions if extensions is None else extensions,
            self._signature if signature is None else signature,
            max_bytes=self._max_bytes if max_bytes is None else max_bytes,
            memory_bytes=self._memory_bytes if memory_bytes is None else memory_bytes,
            durability=self._durability if durability is None else durability,
            undo_unsent=self._undo_unsent if undo_unsent is None else undo_unsent,
            check_items=self._check_items if check_items is None else check_items,
        )

    def _options(self) -> dict[str, Any]:
        """The settings as the native store takes them."""
        return {
            "name": self._name,
            "sampler": self._sampler.spec,
            "remover": self._remover.spec,
            "max_size": self._max_size,
            "max_bytes": self._max_bytes,
            "memory_bytes": self._memory_bytes,
            "durability": self._durability,
            "max_times_sampled": self._max_times_sampled,
            "rate_limiter": self._rate_limiter.numbers,
            "extensions": [extension.spec for extension in self._extensions],
            "signature": self._columns,
            "undoes_unsent": self._undo_unsent,
            "checks_items": self._check_items,
        }

    def _check_unattached(self) -> None:
        """Raises when a store has the table already."""
        if self._store is not None:
            raise FailedPreconditionError(
                f"table '{self._name}' belongs to a store already; give this store a copy:  "
                "table.replace()"
            )

    def _attach(self, store: _reverie.Store | _reverie.Server) -> None:
        """Called by the store that has opened the table."""
        self._store = store
        for index, extension in enumerate(self._extensions):
            extension._attach(store, self._name, index)

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._store is not None:
            raise UnsupportedTypeError(
                f"table '{self._name}' is open in this process and cannot be pickled; pickle "
                "table.replace(), which is a new one of the same settings"
            )
        return super().__reduce__()

    def __repr__(self) -> str:
        return (
            f"Table(name={self._name!r}, sampler={self._sampler!r}, remover={self._remover!r}, "
            f"max_size={self._max_size}, rate_limiter={self._rate_limiter!r}, "
            f"max_times_sampled={self._max_times_sampled}, "
            f"extensions={list(self._extensions)!r}, signature={self._signature!r}, "
            f"max_bytes={self._max_bytes}, memory_bytes={self._memory_bytes}, "
            f"durability={self._durability!r})"
        )


def table_info(table: dict[str, Any]) -> TableInfo:
    """The native store's report about a table; missing counts are those of an empty one."""
    samples_per_insert, min_size_to_sample, min_diff, max_diff = table["rate_limiter"]
    limiter = RateLimiterInfo(
        samples_per_insert,
        min_diff,
        max_diff,
        min_size_to_sample,
        CallStats(
            table.get("inserts", 0),
            table.get("pending_inserts", 0),
            table.get("insert_wait_s", 0.0),
        ),
        CallStats(
            table.get("samples", 0),
            table.get("pending_samples", 0),
            table.get("sample_wait_s", 0.0),
        ),
        table.get("deletes", 0),
    )
    signature = table["signature"]
    return TableInfo(
        name=table["name"],
        sampler_options=selectors.from_spec(table["sampler"]),
        remover_options=selectors.from_spec(table["remover"]),
        max_size=table["max_size"],
        max_times_sampled=table["max_times_sampled"],
        rate_limiter_info=limiter,
        signature=None if signature is None else specs.signature_nest(*signature),
        max_bytes=table["max_bytes"],
        **{key: table[key] for key in _COUNTS if key in table},
    )


_COUNTS = (
    "current_size",
    "num_episodes",
    "num_deleted_episodes",
    "num_unique_samples",
    "size_bytes",
    "max_priority",
    "missing_updates",
    "corrupt_items",
)


def _require(table: str, argument: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise UnsupportedTypeError(
            f"{argument} of table '{table}' is {_checks.shown(value)}; it must be a "
            f"{kind.__module__}.{kind.__name__}"
        )


def _require_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        error = InvalidArgumentError if isinstance(name, str) else UnsupportedTypeError
        raise error(f"name is {_checks.shown(name)}; a table needs a non-empty str")


def _require_positive(table: str, argument: str, value: int) -> int:
    _require_name(table)
    return _checks.integer(f"{argument} of table '{table}'", value)
