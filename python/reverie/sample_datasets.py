"""Datasets of sampled items, one by one, with Reverb's names, arguments and defaults.

They are for programs written for Reverb, and for items of unequal length. New programs should use
``reverie.Client.dataset``, whose batches need no loop over items.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from reverie import _checks, _reverie
from reverie.client import Client
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from reverie.frameworks import converter
from reverie.replay_sample import INFO_DTYPES, RedeliveredInfo, ReplaySample, SampleInfo
from reverie.sample_iterator import SampleIterator
from reverie.sample_shapes import ShapeLeaf, column_specs, is_compatible, leaves_like
from reverie.specs import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import TypeAlias

    Array: TypeAlias = np.ndarray[Any, Any]
    # (items, columns, paths, which are squeezed), as the native stream hands them out.
    Group: TypeAlias = tuple[int, list[Array], list[str], list[bool]]

__all__ = ["SampleDataset", "SampleIterator", "TimestepDataset", "TrajectoryDataset"]

Framework = Literal["numpy", "torch", "jax"]
Self = TypeVar("Self", bound="SampleDataset")
_Element = TypeVar("_Element")

_FOR_EVER = -1
_SIGNATURE_TIMEOUT_S = 30.0
_REOPEN_TIMEOUT_S = 1.0  # of one look for a server that went away
# What tf.data's datasets can do, and an iterable cannot.
_TF_METHODS = ("batch", "cache", "interleave", "map", "options", "prefetch", "shuffle", "take")


class SampleDataset:
    """The common base of ``TrajectoryDataset`` and ``TimestepDataset``.

    Args:
        server_address: a server's address, or a ``Client`` of a server elsewhere or of a store in
            this process.
        table: its name.
        dtypes: a nest of the element types of the columns: NumPy's, TensorFlow's or by name.
        shapes: their shapes, in the same nest; None for any extent.
        max_in_flight_samples_per_worker: items that a worker has drawn and that were not yet
            returned; >= 1. 2 to 3 times a learner's batch is a good choice.
        num_workers_per_iterator: threads that draw; -1 for 1. Only one keeps the order of a queue.
        max_samples_per_stream: for compatibility with Reverb: each request goes to the next of
            several servers.
        rate_limiter_timeout_ms: how long to wait for an item before the iteration ends; -1 without
            limit. 0 ends it as soon as nothing can be drawn.
        max_samples: items of an iteration; -1 without limit.
        flexible_batch_size: items drawn by one request; -1 for half of
            ``max_in_flight_samples_per_worker``, which is the most: one half is drawn while the
            other is returned.
        framework: what the arrays of ``data`` are: ``"numpy"``, ``"torch"`` or ``"jax"``.

    Raises:
        InvalidArgumentError: an argument is out of range, or the nests differ.
        MissingPackageError: the package of ``framework`` is not installed.
    """

    _takes_steps = False

    def __init__(
        self,
        server_address: str | Client,
        table: str,
        dtypes: Any,  # noqa: ANN401
        shapes: Any,  # noqa: ANN401
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        max_samples: int = -1,
        *,
        flexible_batch_size: int = -1,
        framework: Framework = "numpy",
    ) -> None:
        _checks.choice("framework", framework, ("numpy", "torch", "jax"))
        in_flight = _count("max_in_flight_samples_per_worker", max_in_flight_samples_per_worker)
        workers = _count("num_workers_per_iterator", num_workers_per_iterator, or_minus_one=True)
        _count("max_samples_per_stream", max_samples_per_stream, or_minus_one=True)
        samples = _count("max_samples", max_samples, or_minus_one=True)
        request = _count("flexible_batch_size", flexible_batch_size, or_minus_one=True)
        timeout_ms = _checks.integer("rate_limiter_timeout_ms", rate_limiter_timeout_ms, _FOR_EVER)
        self._client = _client(server_address)
        self._table = _checks.text("table", table)
        self._paths, types, self._structure = _reverie.flatten(dtypes)
        extents = leaves_like(self._structure, len(types), shapes)
        self._specs = [
            TensorSpec(shape, dtype, path or None)
            for path, dtype, shape in zip(self._paths, types, extents, strict=True)
        ]
        self._workers = 1 if workers == _FOR_EVER else workers
        self._max_samples = 0 if samples == _FOR_EVER else samples
        half = max(1, in_flight // 2)
        self._request_max = half if request == _FOR_EVER else min(request, half)
        self._timeout_s = None if timeout_ms == _FOR_EVER else timeout_ms * 1e-3
        self._framework = framework
        self._convert = converter(framework)

    @classmethod
    def from_table_signature(
        cls: type[Self],
        server_address: str | Client,
        table: str,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        get_signature_timeout_secs: float | None = None,
        max_samples: int = -1,
        *,
        flexible_batch_size: int = -1,
        framework: Framework = "numpy",
    ) -> Self:
        """A dataset whose dtypes and shapes are those of the table's signature.

        Args:
            server_address: see the class, as for all other arguments.
            table: its name.
            max_in_flight_samples_per_worker: see the class.
            num_workers_per_iterator: see the class.
            max_samples_per_stream: see the class.
            rate_limiter_timeout_ms: see the class.
            get_signature_timeout_secs: how long to wait for the server; None and 0: without
                limit, as in Reverb.
            max_samples: see the class.
            flexible_batch_size: see the class.
            framework: see the class.

        Raises:
            InvalidArgumentError: there is no such table, or it has no signature.
            DeadlineExceededError: no server answered in time.
        """
        timeout_s = _checks.timeout("get_signature_timeout_secs", get_signature_timeout_secs)
        client = _client(server_address)
        _checks.text("table", table)
        tables = _tables(client, timeout_s or None)
        if table not in tables:
            raise InvalidArgumentError(
                f"table '{table}' does not exist; the tables are {sorted(tables)}"
            )
        if tables[table]["signature"] is None:
            raise InvalidArgumentError(
                f"table '{table}' has no signature; give dtypes and shapes yourself"
            )
        paths, specs, structure = cls._signature(tables[table])
        shapes = [spec.shape for spec in specs]
        if cls._takes_steps and all(shape[:1] == (None,) for shape in shapes):
            shapes = [shape[1:] for shape in shapes]  # of whole trajectories
        made = cls(
            client,
            table,
            [spec.dtype_name for spec in specs],
            [ShapeLeaf(shape) for shape in shapes],
            max_in_flight_samples_per_worker,
            num_workers_per_iterator,
            max_samples_per_stream,
            rate_limiter_timeout_ms,
            max_samples,
            flexible_batch_size=flexible_batch_size,
            framework=framework,
        )
        # The columns have the signature's order, which that of a dict's keys need not be.
        made._paths, made._structure = paths, structure
        made._specs = [
            TensorSpec(spec.shape, spec.dtype_name, path or None)
            for path, spec in zip(paths, made._specs, strict=True)
        ]
        return made

    @classmethod
    def _signature(cls, table: dict[str, Any]) -> tuple[list[str], list[TensorSpec], str]:
        """The signature that a server tells of: paths and specifications, and the nest of both."""
        columns, structure = table["signature"]
        return [path for path, _, _ in columns], column_specs(columns), structure

    @property
    def element_spec(self) -> ReplaySample:
        """The specification of an element, as ``TensorSpec``."""
        data = _reverie.fold(self._structure, list(self._specs))
        info = [
            TensorSpec((), dtype, name)
            for name, dtype in zip(SampleInfo._fields, INFO_DTYPES, strict=True)
        ]
        return ReplaySample(SampleInfo(*info), data)  # type: ignore[arg-type]

    def __iter__(self) -> SampleIterator[ReplaySample]:
        """Starts drawing.

        Raises:
            NotFoundError: there is no such table.
            InvalidArgumentError: its signature has other columns than the dataset.
            DeadlineExceededError: no server answered within 30 s.
        """
        stream = self._open()
        return SampleIterator(stream, self._elements(stream))

    def as_tf(self) -> Any:  # noqa: ANN401
        """The dataset as a ``tf.data.Dataset``, which draws again for each of its iterators.

        Raises:
            MissingPackageError: TensorFlow is not installed.
        """
        from reverie.tf_dataset import tf_dataset

        return tf_dataset(self._specs, self._structure, self._persistent_batches)

    def _persistent_batches(
        self, poll_s: float
    ) -> Generator[tuple[list[Array], list[Array]] | None]:
        """As ``_batches``, for a pipeline that continues when its server is back.

        A server that went away is looked for as long as the client would. Items that were drawn
        ahead and then lost do not count towards ``max_samples``.
        """
        stream: _reverie.SampleStream | None = self._open()
        patience_s = self._patience_s()
        returned = 0  # items
        lost_since: float | None = None
        while True:
            try:
                if stream is None:
                    stream = self._open(_REOPEN_TIMEOUT_S, returned)
                progress = _Progress()
                for batch in self._batches(stream, poll_s, progress):
                    if batch is not None:
                        returned += progress.end - progress.begin
                        lost_since = None
                    yield batch
                return
            except (UnavailableError, CancelledError, DeadlineExceededError) as error:
                if returned == self._max_samples > 0:
                    return
                now = time.monotonic()
                if lost_since is None:
                    lost_since = now
                    _warn(
                        f"the server of table '{self._table}' does not answer, and is "
                        f"retried: {error}"
                    )
                if now - lost_since >= patience_s:
                    raise
                stream = None
            yield None
            time.sleep(poll_s)

    def _patience_s(self) -> float:
        """For how long a server that went away is looked for."""
        connection = self._client._connection
        if connection is None:
            return 0.0
        given = connection[1]["retry_timeout_s"]
        return math.inf if given is None else given

    def _open(
        self, timeout_s: float = _SIGNATURE_TIMEOUT_S, returned: int = 0
    ) -> _reverie.SampleStream:
        """A stream of what remains of ``max_samples`` after so many were returned."""
        tables = _tables(self._client, timeout_s)
        if self._table not in tables:
            raise NotFoundError(
                f"table '{self._table}' does not exist; the tables are {sorted(tables)}"
            )
        table = tables[self._table]
        if table["signature"] is not None:
            self._check_signature(column_specs(table["signature"][0]))
        return _reverie.SampleStream(
            self._client._native,
            self._table,
            self._request_max,
            self._workers,
            self._timeout_s,
            max(0, self._max_samples - returned),
            table["max_times_sampled"],
        )

    def _check_signature(self, signature: list[TensorSpec]) -> None:
        if len(signature) != len(self._specs):
            raise InvalidArgumentError(
                f"the dataset has {len(self._specs)} columns, but the signature of table "
                f"'{self._table}' has {len(signature)}: {signature}"
            )
        for path, spec, of_table in zip(self._paths, self._specs, signature, strict=True):
            shapes = [of_table.shape]
            if self._takes_steps:
                shapes.append(of_table.shape[1:])
            fits = any(is_compatible(spec.shape, shape) for shape in shapes)
            if spec.dtype_name != of_table.dtype_name or not fits:
                raise InvalidArgumentError(
                    f"column '{path}' of the dataset is {spec}, but the signature of table "
                    f"'{self._table}' has {of_table}"
                )

    def _check(self, column: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Raises unless the dataset promised what came."""
        spec = self._specs[column]
        is_text = dtype == np.object_ and spec.dtype_name in ("bytes", "str")
        if (is_text or dtype.name == spec.dtype_name) and is_compatible(spec.shape, shape):
            return
        raise InvalidArgumentError(
            f"column '{self._paths[column]}' of the dataset is {spec}, but an item of table "
            f"'{self._table}' has {dtype.name} {shape}"
        )

    def _check_count(self, columns: int) -> None:
        if columns != len(self._specs):
            raise InvalidArgumentError(
                f"the dataset has {len(self._specs)} columns, but an item of table "
                f"'{self._table}' has {columns}"
            )

    def _batches(
        self,
        stream: _reverie.SampleStream,
        poll_s: float | None = None,
        progress: _Progress | None = None,
    ) -> Generator[tuple[list[Array], list[Array]] | None]:
        """The five arrays of infos, and the columns, of elements that are alike.

        None each time that nothing came for ``poll_s``. What was not used by the end goes back to
        a table that items leave with their samples: a caller that uses less than a whole batch says
        so in ``progress``.
        """
        progress = progress or _Progress()
        try:
            while True:
                try:
                    fed = stream.next(poll_s)
                except StopIteration:
                    return
                if fed is None:
                    yield None
                    continue
                *infos, progress.redelivered, groups = fed
                progress.end = progress.used = 0
                for group in groups:
                    progress.begin, progress.end = progress.end, progress.end + group[0]
                    items = slice(progress.begin, progress.end)
                    batch = self._batch([info[items] for info in infos], group)
                    progress.used = progress.end
                    yield batch
        finally:
            stream.close(progress.used)

    def _elements(self, stream: _reverie.SampleStream) -> Generator[ReplaySample]:
        progress = _Progress()
        batches = self._batches(stream, progress=progress)
        try:
            yield from self._elements_of(batches, progress)
        finally:
            batches.close()

    def _elements_of(
        self, batches: Iterator[tuple[list[Array], list[Array]] | None], progress: _Progress
    ) -> Iterator[ReplaySample]:
        fold, structure = _reverie.fold, self._structure
        for batch in batches:
            assert batch is not None
            progress.used = progress.begin  # none of the batch's items, if they cannot be built
            infos, arrays = batch
            columns: list[Any] = list(arrays)
            if self._convert is not None:
                columns = [
                    column if column.dtype == np.object_ else self._convert(column)
                    for column in arrays
                ]
            begin, count = progress.begin, progress.end - progress.begin
            steps = max(1, len(infos[0]) // max(1, count))  # elements of an item
            marks = progress.redelivered
            for i, info in enumerate(zip(*(array.tolist() for array in infos), strict=True)):
                item = begin + i // steps
                data = fold(structure, [column[i] for column in columns])
                progress.used = item + 1
                is_marked = marks is not None and marks[item]
                yield ReplaySample((RedeliveredInfo if is_marked else SampleInfo)(*info), data)
            progress.used = progress.end

    def _batch(self, infos: list[Array], group: Group) -> tuple[list[Array], list[Array]]:
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None}  # a function, which the other process makes

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _convert=converter(state["_framework"]))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        hint = ""
        if name in _TF_METHODS:
            hint = (
                "; it is an iterable: as_tf() makes a tf.data.Dataset of it, and Client.dataset() "
                "gives batches"
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}{hint}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of table '{self._table}'>"


class TrajectoryDataset(SampleDataset):
    """An iterable over the items that are sampled from a table, as ``ReplaySample``.

    Each iterator draws by itself, in advance, on its own threads. ``info`` holds
    numbers, ``data`` the nest of ``dtypes``: an array for each column, with a leading axis of its
    rows unless it is a single squeezed one. ``as_tf()`` makes a ``tf.data.Dataset`` of it. The
    arguments are those of :class:`SampleDataset`.
    """

    def _batch(self, infos: list[Array], group: Group) -> tuple[list[Array], list[Array]]:
        _, columns, _, _ = group
        self._check_count(len(columns))
        for i, column in enumerate(columns):
            self._check(i, column.dtype, column.shape[1:])
        return infos, columns


class TimestepDataset(SampleDataset):
    """An iterable over the steps of the items that are sampled, as ``ReplaySample``.

    The steps of an item follow each other, with the item's ``info``; nothing marks its end. All
    columns of the items must have as many rows; a squeezed one has one. The shapes are those of one
    step; in ``from_table_signature`` a signature whose columns all begin with None is taken for
    that of whole items. The arguments are those of :class:`SampleDataset`.
    """

    _takes_steps = True

    def _batch(self, infos: list[Array], group: Group) -> tuple[list[Array], list[Array]]:
        count, columns, paths, squeezed = group
        self._check_count(len(columns))
        columns = [
            column[:, np.newaxis] if is_squeezed else column
            for column, is_squeezed in zip(columns, squeezed, strict=True)
        ]
        lengths = {path: column.shape[1] for path, column in zip(paths, columns, strict=True)}
        if len(set(lengths.values())) > 1:
            raise InvalidArgumentError(
                f"the columns of an item of table '{self._table}' differ in length, {lengths}; use "
                "a TrajectoryDataset"
            )
        length = next(iter(lengths.values()))
        steps = [column.reshape(count * length, *column.shape[2:]) for column in columns]
        for i, column in enumerate(steps):
            self._check(i, column.dtype, column.shape[1:])
        return [np.repeat(info, length) for info in infos], steps


class _Progress:
    """Which of a stream's latest items are returned, and how many of all are used."""

    def __init__(self) -> None:
        self.begin = self.end = self.used = 0
        self.redelivered: Array | None = None  # by item; None: no item is


def _count(name: str, value: int, or_minus_one: bool = False) -> int:
    if isinstance(value, float):
        raise InvalidArgumentError(f"{name} is {value}; it must be an integer")
    number = _checks.integer(name, value, _FOR_EVER)
    if number < 1 and not (or_minus_one and number == _FOR_EVER):
        remedy = "at least 1, or -1" if or_minus_one else "at least 1"
        raise InvalidArgumentError(f"{name} is {number}; it must be {remedy}")
    return number


def _client(server_address: object) -> Client:
    if isinstance(server_address, Client):
        return server_address
    what = "an address such as 'localhost:8000', or a reverie.Client"
    return Client(_checks.instance("server_address", server_address, str, what))


def _warn(text: str) -> None:
    import logging

    logging.getLogger("reverie").warning(text)


def _tables(client: Client, timeout_s: float | None) -> dict[str, dict[str, Any]]:
    """What a client's store tells of its tables, by name."""
    return {table["name"]: table for table in client._native.info(timeout_s)}
