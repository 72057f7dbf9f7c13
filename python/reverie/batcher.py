"""Batches gathered from items: nests of arrays, stacked or concatenated as they come."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from reverie import _checks, _reverie
from reverie._awaiting import Awaiting
from reverie._closing import Closing
from reverie._hot_methods import take_methods
from reverie._process_bound import ProcessBound
from reverie.errors import InvalidArgumentError
from reverie.frameworks import OUTPUTS
from reverie.packages import import_package

__all__ = ["Batcher", "unbatch"]


class Batcher(ProcessBound, Closing):
    """Gathers nests of arrays into batches of ``size`` rows along ``dim``.

    Each item is copied once, into its place in the batch. The first item of a batch determines its
    nest, shapes and element types; later ones are converted if NumPy considers their type the same
    kind. Python's numbers count as arrays without dimensions; other leaves (``None``, text) are
    kept from the first item. Any thread may add and take. A subclass may override any method. See
    docs/concepts/batcher.md.

    Args:
        size: rows of a batch.
        device: where batches are stored; ``"cpu"``, or a device of torch or JAX, to which a
            finished batch is copied without waiting.
        dim: the dimension along which items are combined.
        timeout_s: how long ``get``, and ``stack`` or ``cat`` into a full queue, wait at most.
        queue_size: finished batches that are kept; with this many, adding waits.
        output: ``"numpy"``, ``"torch"`` or ``"jax"``; ``None``: as the first item's arrays.

    Raises:
        InvalidArgumentError: a number out of bounds, an unknown output.
        MissingPackageError: torch or JAX is not installed.
    """

    _stays_because = (
        "a Batcher lives in this process and cannot be pickled or copied; make one in the "
        "other process"
    )

    def __init__(
        self,
        size: int,
        device: object = "cpu",
        dim: int = 0,
        *,
        timeout_s: float = 60.0,
        queue_size: int = 16,
        output: str | None = None,
    ) -> None:
        if output is not None:
            _checks.choice("output", output, OUTPUTS)
        timeout_s = _checks.number("timeout_s", timeout_s, 0.0, finite=False)
        written = _checks.written("device", device, "a device of torch or JAX, or its name")
        place: object = None if written == "cpu" else device
        if place is not None and output == "numpy":
            raise InvalidArgumentError(
                f'device is {_checks.shown(device)} with output "numpy"; devices are for "torch" '
                'and "jax"'
            )
        if output == "torch":
            import_package("torch")
        core = _reverie.Batcher(size, dim, queue_size, timeout_s, output or "", place)
        self._core = core
        self._awaiting = Awaiting()
        take_methods(self, Batcher, core, ("stack", "cat", "get"))

    def stack(self, nest: object) -> None:
        """Copy each array of ``nest`` into the next slot of a new dimension ``dim``.

        Raises:
            InvalidArgumentError: another nest or shape than the batch's first, an array with fewer
                than ``dim`` dimensions, a batch that was begun with ``cat``.
            UnsupportedTypeError: an array whose type is not of the kind of the first one's.
            DeadlineExceededError: ``queue_size`` batches wait, and none is taken in time.
            FailedPreconditionError: a full batch cannot be copied to the device, or put into the
                classes of its nest; ``__cause__`` says why. The batch is kept, and the next call
                begins with it. If it was kept already, this item was not added.
            CancelledError: the batcher is closed.
        """
        self._core.stack(nest)

    def cat(self, nest: object) -> None:
        """Append each array of ``nest`` to the existing rows, along its dimension ``dim``.

        Rows that do not fit begin the next batch, so one call may finish several. Raises as
        ``stack`` does, and if the arrays have different lengths along ``dim``.
        """
        self._core.cat(nest)

    def get(self, timeout_s: float | None = None) -> Any:  # noqa: ANN401
        """Take the oldest finished batch, waiting for it.

        Raises:
            DeadlineExceededError: none was finished within ``timeout_s``, or the batcher's own
                limit if that is None.
            FailedPreconditionError: there is only a batch that is kept, as ``stack`` says.
            CancelledError: the batcher is closed and nothing is left.
        """
        return self._core.get(timeout_s)

    def __await__(self) -> Generator[Any, None, Any]:
        """``await batcher`` takes the oldest finished batch."""
        return self._take().__await__()

    async def _take(self) -> Any:  # noqa: ANN401
        with self._awaiting.woken() as finished:
            while True:
                finished.clear()
                self._awaiting.be_told(self._core.call_when_finished)
                batch = self._core.get_now()
                if batch is not None:
                    return batch
                await finished.wait()

    def flush(self) -> bool:
        """Finish the open batch with the rows it has, and those that are kept. False if none."""
        return self._core.flush()

    def empty(self) -> bool:
        """Whether there is no finished batch."""
        return self._core.finished_count == 0

    def size(self) -> int:
        """The number of finished batches."""
        return self._core.finished_count

    @property
    def filled(self) -> int:
        """The number of rows of the open batch."""
        return self._core.filled

    def close(self) -> None:
        """End all waits. Finished batches can still be taken; the open one is dropped."""
        self._core.close()


def unbatch(batch: object, dim: int = 0) -> list[Any]:
    """The rows of a batch along ``dim``, each a nest of views without that dimension.

    Raises:
        InvalidArgumentError: the arrays differ in length along ``dim``, or lack that dimension, or
            there is none.
    """
    dim = _checks.integer("dim", dim, 0, 63)
    paths, leaves, structure = _reverie.flatten(batch)
    rows = None
    for path, leaf in zip(paths, leaves, strict=True):
        shape = getattr(leaf, "shape", None)
        if shape is None:
            continue
        if len(shape) <= dim or (rows is not None and shape[dim] != rows):
            raise InvalidArgumentError(
                f"column '{path}' has shape {tuple(shape)}; each is to have "
                f"{'some' if rows is None else rows} rows along dim {dim}"
            )
        rows = int(shape[dim])
    if rows is None:
        raise InvalidArgumentError(
            f"batch is {_checks.shown(batch)}; it must hold an array, whose rows are counted"
        )
    front = (slice(None),) * dim
    return [
        _reverie.fold(
            structure,
            [
                leaf if getattr(leaf, "shape", None) is None else leaf[(*front, i)]
                for leaf in leaves
            ],
        )
        for i in range(rows)
    ]
