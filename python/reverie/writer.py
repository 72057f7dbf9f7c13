"""The writer whose items are the last whole steps. Reverb's first, kept for its users."""

from typing import Any

from reverie import _checks, _reverie
from reverie._closing import Scoped
from reverie._process_bound import ProcessBound
from reverie.errors import InvalidArgumentError

_DEFAULT_CHUNK_LENGTH = 10
_UNLIMITED_IN_FLIGHT = 1_000_000


class Writer(ProcessBound, Scoped):
    """Appends steps, and makes items of the last ones.

    ``reverie.Client.writer()`` makes one. All steps must have the same structure. A context
    manager: leaving it closes the writer. Use it from one thread at a time.
    """

    _stays_because = (
        "a Writer cannot be pickled; open one in the other process, with a client of its own"
    )

    def __init__(
        self,
        native: _reverie.Client,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
        codec: str = "auto",
    ) -> None:
        _checks.instance("native", native, _reverie.Client, "that of a reverie.Client: writer()")
        _checks.flag("delta_encoded", delta_encoded)  # the embedded store keeps steps as they are
        max_sequence_length = _checks.integer("max_sequence_length", max_sequence_length)
        if chunk_length is None:
            chunk_length = min(_DEFAULT_CHUNK_LENGTH, max_sequence_length)
        chunk_length = _checks.integer("chunk_length", chunk_length)
        if chunk_length > max_sequence_length:
            raise InvalidArgumentError(
                f"chunk_length is {chunk_length}; it must be between 1 and max_sequence_length, "
                f"{max_sequence_length}"
            )
        if max_in_flight_items is None:
            max_in_flight_items = _UNLIMITED_IN_FLIGHT
        self._max_sequence_length = max_sequence_length
        self._chunk_length = chunk_length
        self._writer = _reverie.TrajectoryWriter(
            native,
            max_sequence_length,
            validate_items=True,
            chunk_length=chunk_length,
            max_in_flight_items=max_in_flight_items,
            codec=codec,
        )

    def append(self, data: Any) -> None:  # noqa: ANN401
        """Appends one step.

        Args:
            data: a nest of arrays, the same as that of the steps before.

        Raises:
            InvalidArgumentError: another structure, type or shape than before.
            FailedPreconditionError: the writer is closed.
        """
        self._writer.append_whole(data)

    def append_sequence(self, sequence: Any) -> None:  # noqa: ANN401
        """Appends steps, given as arrays with a leading axis of steps.

        Args:
            sequence: a nest of arrays ``[T, ...]``.

        Raises:
            InvalidArgumentError: no steps, a scalar, or leading axes that differ.
            FailedPreconditionError: the writer is closed.
        """
        paths, leaves, structure = _reverie.flatten(sequence)
        lengths = {}
        for path, leaf in zip(paths, leaves, strict=True):
            shape = _reverie.describe(leaf, path)[1]
            if not shape:
                raise InvalidArgumentError(
                    f"column '{path}' of the sequence is a scalar; it needs a leading axis of steps"
                )
            lengths[path] = shape[0]
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise InvalidArgumentError(
                f"the columns of the sequence have {lengths} steps; all must have the same "
                "number, at least 1"
            )
        for step in range(next(iter(lengths.values()))):
            self.append(_reverie.fold(structure, [leaf[step] for leaf in leaves]))

    def create_item(
        self, table: str, num_timesteps: int, priority: float, *, timeout_s: float | None = None
    ) -> None:
        """Makes an item of the last steps.

        Args:
            table: its name.
            num_timesteps: at most those that were appended, and ``max_sequence_length``.
            priority: the item's priority.
            timeout_s: how long to wait if ``max_in_flight_items`` items wait already, and, for the
                first item of a table, for the table's signature.

        Raises:
            InvalidArgumentError: ``num_timesteps`` or ``priority`` is out of range, or the table
                has another signature.
            NotFoundError: there is no such table.
            FailedPreconditionError: the writer is closed.
        """
        if _checks.integer("num_timesteps", num_timesteps) > self._max_sequence_length:
            raise InvalidArgumentError(
                f"num_timesteps is {num_timesteps}; it must be at most max_sequence_length, "
                f"{self._max_sequence_length}"
            )
        self._writer.create_whole_item(table, num_timesteps, priority, timeout_s=timeout_s)

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until every item is in its table."""
        self._writer.flush(timeout_s=timeout_s)

    def close(self, retry_on_unavailable: bool = True, *, timeout_s: float | None = None) -> None:
        """Flushes and ends the writer, even if the flush fails.

        Args:
            retry_on_unavailable: ignored: an unavailable server is always tried again.
            timeout_s: how long to wait for the items.

        Raises:
            InvalidArgumentError: the writer is closed already.
            DeadlineExceededError: the time is up; the message says how many items are lost.
        """
        _checks.flag("retry_on_unavailable", retry_on_unavailable)
        self._check_open()
        try:
            self._writer.flush(timeout_s=timeout_s)
        finally:
            self._writer.close()

    def _check_open(self) -> None:
        if self._writer.closed:
            raise InvalidArgumentError("the writer is closed already; make a new one")

    def __enter__(self) -> "Writer":
        self._check_open()
        return self

    def _leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        if not self._writer.closed:
            self.close()
