"""Batches as an iterator: made ahead, and returned as NumPy, PyTorch or JAX arrays."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from reverie import _checks, _reverie
from reverie._closing import Scoped
from reverie._process_bound import ProcessBound
from reverie.frameworks import Output, converter
from reverie.packages import import_package

if TYPE_CHECKING:
    from collections.abc import Callable

_Replay: TypeAlias = dict[str, Any]
BatchT = TypeVar("BatchT")

_FLUSH_S = 10.0  # for the answers to updates, at the end
_OPENS = "that of a client or buffer; call its dataset()"


class Dataset(ProcessBound, Scoped, Generic[BatchT]):
    """An iterator over batches that its own thread draws ahead.

    ``reverie.Client.dataset()`` and ``reverie.ReplayBuffer.dataset()`` make one::

        with client.dataset("replay", batch_size=64, timeout_s=5.0) as batches:
            for batch in batches:
                client.update_priorities("replay", batch.tickets, learn(batch))

    It ends when ``next`` has waited for ``timeout_s`` in vain or when it is closed; another
    iterator over it continues where the last one stopped. At most ``prefetch`` batches are made
    ahead. A context manager: leaving it ends the thread. Only one thread at a time may use it.

    While one of a server is open its client's ``update_priorities`` does not wait for the answers;
    :meth:`close` and the end of the iteration do.

    ``Dataset[reverie.Batch]`` is the type of a client's, for annotations. With ``output="torch"``
    it is a ``torch.utils.data.IterableDataset`` too: a ``DataLoader`` takes
    it with ``batch_size=None`` and ``num_workers=0``. A worker process cannot reach a store in this
    one: there it raises ``FailedPreconditionError``. Workers are not needed either: drawing and
    copying happen outside the interpreter's lock.
    """

    _stays_because = (
        "a dataset cannot be pickled for another process; use it with num_workers=0 (it draws "
        "ahead in a thread of its own), or open a client of a server's address there"
    )

    def __init__(
        self,
        stream: _reverie.TableStream | _reverie.ReplayStream,
        convert: Callable[[Any], BatchT] | None,
        *,
        is_ahead: bool = False,
    ) -> None:
        _checks.instance("stream", stream, (_reverie.TableStream, _reverie.ReplayStream), _OPENS)
        self._stream = stream
        self._is_open = True
        self._flush: Callable[..., None] | None = None  # of the client's updates
        self._files: object = None  # what the client reads external columns with
        self._convert = convert if convert is None else _checks.function("convert", convert)
        self._is_ahead = _checks.flag("is_ahead", is_ahead)
        self._prefetched: list[BatchT] = []  # at most one batch, converted already

    def __iter__(self) -> Dataset[BatchT]:
        """The dataset itself: it continues where the last iteration stopped."""
        return self

    def __next__(self) -> BatchT:
        """The next batch, waited for up to ``timeout_s``.

        Raises:
            StopIteration: there was none by then, or the dataset is closed.
            RuntimeError: a transform raised ``StopIteration``.
        """
        if not self._is_ahead:
            return self._next()
        if not self._prefetched:
            self._prefetched.append(self._next())
        batch = self._prefetched.pop()
        try:
            self._prefetched.append(self._next())
        except StopIteration:  # the next call finds out again
            pass
        except BaseException:
            self._prefetched.append(batch)  # for the next call
            raise
        return batch

    def _next(self) -> BatchT:
        try:
            drawn: Any = self._stream.next()
        except StopIteration:
            if not self._prefetched:
                self._end()
            raise
        try:
            batch: BatchT = drawn if self._convert is None else self._convert(drawn)
        except StopIteration as error:  # which would end the iteration, as in a generator
            raise RuntimeError(
                "a transform raised StopIteration: an iterator in it has ended; give next() a "
                "default, or raise another error"
            ) from error
        return batch

    def close(self) -> None:
        """Ends the thread and the iteration. May be repeated.

        Unused batches are dropped; if samples remove items from the table (a queue), the items are
        returned to it, or a warning says how many could not be.

        Raises:
            ReverieError: the server refused an update of priorities, and no call has reported
                that yet.
        """
        self._prefetched.clear()
        self._stream.close()
        self._end()

    def _end(self) -> None:
        """Waits for the answers to the updates that were made meanwhile."""
        was_open, self._is_open = self._is_open, False
        if was_open and self._flush is not None:
            self._flush(timeout_s=_FLUSH_S)

    def _leave(self, error: BaseException | None) -> None:
        if error is not None:  # which tells more than what its updates came to
            self._flush = None
        self.close()


def table_dataset(stream: _reverie.TableStream, output: Output) -> Dataset[Any]:
    """A dataset of ``reverie.Batch``, whose arrays are of the library ``output``."""
    convert = converter(output)

    def converted(batch: _reverie.Batch[Any]) -> _reverie.Batch[Any]:
        assert convert is not None
        batch.convert(convert)
        return batch

    return _dataset_class(output)(stream, None if convert is None else converted)


def replay_dataset(
    stream: _reverie.ReplayStream,
    output: Output,
    finish: Callable[[_Replay], _Replay] | None,
    convert: Callable[[_Replay], _Replay] | None,
    *,
    is_ahead: bool,
) -> Dataset[Any]:
    """A dataset of dicts: what was drawn goes through ``finish``, then ``convert``.

    Where ``is_ahead`` that is done for one batch before the one ahead of it is handed out.
    """
    steps = [step for step in (finish, convert) if step is not None]

    def converted(batch: _Replay) -> _Replay:
        for step in steps:
            batch = step(batch)
        return batch

    return _dataset_class(output)(stream, converted if steps else None, is_ahead=is_ahead)


def _dataset_class(output: Output) -> type[Dataset[Any]]:
    return _torch_class() if output == "torch" else Dataset


@functools.cache
def _torch_class() -> type[Dataset[Any]]:
    data = import_package("torch.utils.data")
    return type("TorchDataset", (Dataset, data.IterableDataset), {"__doc__": Dataset.__doc__})
