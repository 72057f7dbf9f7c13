"""Reverb's client: that of ``reverie``, with Reverb's arguments and answers."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from reverie import _checks, _reverie, client, errors
from reverie.errors import InvalidArgumentError, NotFoundError
from reverie.replay_sample import ReplaySample, SampleInfo
from reverie.reverb._errors import explained, in_time, timed
from reverie.reverb._specs import decoded_signature
from reverie.reverb._writer import Writer
from reverie.reverb.reverb_types import TableInfo, table_info
from reverie.reverb.trajectory_writer import TrajectoryWriter
from reverie.table import table_info as native_info

if TYPE_CHECKING:
    from reverie.reverb.structured_writer import StructuredWriter

# Reverb bounds the items on their way by nothing but their own number.
_UNLIMITED_ITEMS = 1 << 30
_NO_SPECS: dict[str, list[tuple[str, Any]]] = {}
_TEXT = {"bytes", "str"}  # a signature of one accepts the other


class Client(client.Client):
    """A ``reverie.Client`` that answers as Reverb's does; see there for what it takes besides."""

    _writer_type: ClassVar[type[Writer]] = Writer

    @property
    def _server_address(self) -> str | None:
        return self.server_address

    def trajectory_writer(
        self,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        **options: Any,  # noqa: ANN401
    ) -> TrajectoryWriter:
        """A writer whose items are any rows of the last steps.

        Args:
            num_keep_alive_refs: steps that items can refer back to; >= 1.
            validate_items: look at the table's signature when an item is created, not only when it
                reaches the table.
            options: those of ``reverie.Client.trajectory_writer``. Without ``max_in_flight_items``
                any number of items may wait for their table, as Reverb has it. The argument
                ``get_signature_timeout_ms`` of Reverb's earlier releases means nothing: how long a
                client waits for its server is its ``retry_timeout_s``.
        """
        options.pop("get_signature_timeout_ms", None)
        return TrajectoryWriter(
            self._native,
            num_keep_alive_refs,
            validate_items=bool(validate_items),
            **self._writer_options(options),
        )

    def structured_writer(
        self,
        configs: Sequence[Any],
        **options: Any,  # noqa: ANN401
    ) -> StructuredWriter:
        """A writer that makes items by patterns.

        Args:
            configs: messages of ``create_config`` or ``patterns_pb2``, or what
                ``reverie.structured.create_config`` makes.
            options: those of ``reverie.Client.structured_writer``.
        """
        from reverie.reverb.structured_writer import StructuredWriter, native_configs

        return StructuredWriter(
            self._native, native_configs(configs), **self._writer_options(options)
        )

    def _writer_options(self, given: dict[str, Any]) -> dict[str, Any]:
        options = {"max_in_flight_items": _UNLIMITED_ITEMS, **given}
        if options.get("codec") is None:
            options["codec"] = self._codec
        return options

    def insert(
        self,
        data: Any,  # noqa: ANN401
        priorities: Mapping[str, float | None],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Inserts one step, as an item of its own in each table; see ``reverie.Client.insert``.

        A step of another signature is refused here, as in Reverb: a table takes what it is sent.
        """
        try:
            if isinstance(priorities, dict) or isinstance(priorities, Mapping):  # noqa: SIM101 - quicker
                known = self.__dict__.get("_specs", _NO_SPECS)
                for table in priorities:
                    if known.get(table) != []:  # a table that is known to have no signature
                        self._check_step(table, data, timeout_s)
            super().insert(data, priorities, timeout_s=timeout_s)
        except errors.DeadlineExceededError as error:
            raise explained(error) from None

    def _check_step(self, table: str, data: Any, timeout_s: float | None) -> None:  # noqa: ANN401
        known: dict[str, list[tuple[str, Any]]] = self.__dict__.setdefault("_specs", {})
        was_known = table in known
        if not was_known:
            self._learn_specs(known, timeout_s)
            if table not in known:
                raise NotFoundError(
                    f"Unable to find signatures for table '{table}'. There is no such table; the "
                    f"tables are {sorted(known)}"
                )
        refusal = _refusal(table, data, known.get(table))
        if refusal and was_known:  # the table may have been made again
            self._learn_specs(known, timeout_s)
            refusal = _refusal(table, data, known.get(table))
        if refusal:
            raise InvalidArgumentError(refusal)

    def _learn_specs(
        self, known: dict[str, list[tuple[str, Any]]], timeout_s: float | None
    ) -> None:
        for info in self._native.info(timeout_s):
            columns = info["signature"][0] if info["signature"] is not None else []
            known[info["name"]] = [(dtype, extents) for _, dtype, extents in columns]

    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        timeout_s: float | None = None,
    ) -> Generator[Any]:
        """Draws items one by one; see ``reverie.Client.sample``.

        A generator, as Reverb's is: nothing is asked of the server, and no error is raised, before
        its first item is. A table without a signature gives flat data with
        ``unpack_as_table_signature`` too.
        """
        if _checks.integer("num_samples", num_samples, -_checks.INT64_MAX) < 0:
            return
        emit_timesteps = bool(emit_timesteps)
        nest = self._get_signature_for_table(table) if unpack_as_table_signature else None
        has_named_tuples = _holds_named_tuples(nest)
        samples = super().sample(
            table,
            num_samples,
            emit_timesteps=emit_timesteps,
            unpack_as_table_signature=nest is not None and not has_named_tuples,
            timeout_s=timeout_s,
        )
        try:
            yield from _folded(samples, nest, emit_timesteps) if has_named_tuples else samples
        except errors.DeadlineExceededError as error:
            raise explained(error) from None

    def mutate_priorities(  # type: ignore[override]
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Sequence[int] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """Deletes items, then gives others new priorities; keys that are gone are ignored."""
        in_time(super().mutate_priorities, table, updates, deletes, **options)

    insert_rows = timed(client.Client.insert_rows)
    sample_batch = timed(client.Client.sample_batch)
    update_priorities = timed(client.Client.update_priorities)
    flush = timed(client.Client.flush)
    delete = timed(client.Client.delete)
    reset = timed(client.Client.reset)
    checkpoint = timed(client.Client.checkpoint)
    loaded_payload = timed(client.Client.loaded_payload)

    def server_info(self, timeout: int | None = None) -> dict[str, TableInfo]:  # type: ignore[override]
        """What each table is and how it stands, by name.

        Args:
            timeout: seconds to wait for a server; None, 0 and numbers below 0 wait without limit.

        Raises:
            DeadlineExceededError: no server answered.
        """
        if timeout is not None:
            seconds = _checks.number("timeout", timeout, finite=False)
            timeout = seconds if seconds > 0 else None  # type: ignore[assignment]
        shown = {}
        for table in in_time(self._native.info, timeout):
            info = table_info(native_info(table))
            signature = decoded_signature(table.get("signature_message", b""))
            if signature is not None:
                info.signature = signature
            shown[info.name] = info
        return shown

    def _get_signature_for_table(self, table: str) -> Any:  # noqa: ANN401
        tables = self.server_info()
        if table not in tables:
            raise InvalidArgumentError(
                f'Could not find table "{table}". The following tables exists: {", ".join(tables)}.'
            )
        return tables[table].signature

    def __reduce__(self) -> tuple[Any, ...]:
        made: tuple[Any, ...] = super().__reduce__()
        return _connect, made[1]

    def __repr__(self) -> str:
        if self._connection is None:
            return "<reverb.Client of an embedded store>"
        return f"Client, server_address={self.server_address}"


def _refusal(table: str, data: Any, signature: list[tuple[str, Any]] | None) -> str:  # noqa: ANN401
    """Why a step fits no signature of steps, nor of items of one step; empty if it does."""
    if not signature:
        return ""
    paths, leaves, _ = _reverie.flatten(data)
    if len(leaves) != len(signature):
        return (
            f"the step has {len(leaves)} columns but the signature of table '{table}' has "
            f"{len(signature)}; give one for each"
        )
    for path, leaf, (dtype, extents) in zip(paths, leaves, signature, strict=True):
        name, own_shape = _reverie.describe(leaf, path)
        fits = (name == dtype or {name, dtype} <= _TEXT) and any(
            len(shape) == len(extents)
            and all(extent in (-1, size) for extent, size in zip(extents, shape, strict=True))
            for shape in (own_shape, (1, *own_shape))
        )
        if not fits:
            expected = tuple(None if extent < 0 else extent for extent in extents)
            return (
                f"column '{path}' of the step is {name} {own_shape} but the signature of table "
                f"'{table}' has {dtype} {expected}; give steps of that kind"
            )
    return ""


def _holds_named_tuples(nest: Any) -> bool:  # noqa: ANN401
    """Whether a nest has containers that the server's own words for it do not name."""
    if isinstance(nest, dict):
        return any(_holds_named_tuples(value) for value in nest.values())
    if isinstance(nest, (list, tuple)):
        return hasattr(nest, "_fields") or any(_holds_named_tuples(value) for value in nest)
    return False


def _folded(samples: Iterator[Any], nest: Any, emit_timesteps: bool) -> Iterator[Any]:  # noqa: ANN401
    """The samples with their flat data in the containers of ``nest``."""
    _, leaves, structure = _reverie.flatten(nest)

    def fold(sample: ReplaySample) -> ReplaySample:
        if len(sample.data) != len(leaves):
            raise InvalidArgumentError(
                f"the signature has {len(leaves)} columns, but the item has {len(sample.data)}; "
                "leave unpack_as_table_signature out"
            )
        return sample._replace(data=_reverie.fold(structure, list(sample.data)))

    for sample in samples:
        yield [fold(step) for step in sample] if emit_timesteps else fold(sample)


def _connect(server_address: str | tuple[str, ...], options: dict[str, Any]) -> Client:
    return Client(server_address, **options)


__all__ = ["Client", "ReplaySample", "SampleInfo", "Writer"]
