"""The parts of Reverb's native layer that programs name.

Selectors and limiters show themselves as Reverb's do. They are what ``reverie.selectors`` and
``reverie.rate_limiters`` have, under Reverb's names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from reverie import _reverie, selectors
from reverie.errors import InvalidArgumentError
from reverie.extensions import Extension as TableExtension
from reverie.rate_limiters import RateLimiter
from reverie.selectors import Selector as ItemSelector
from reverie.structured import StructuredWriter
from reverie.table import Table
from reverie.trajectory_writer import TrajectoryWriter
from reverie.writer import Writer


class FifoSelector(selectors.Fifo):
    """The item that was inserted first."""

    __slots__ = ()

    def __init__(self) -> None:
        selectors.Selector.__init__(self, _name="Fifo")

    def __repr__(self) -> str:
        return "FifoSelector"


class LifoSelector(selectors.Lifo):
    """The item that was inserted last."""

    __slots__ = ()

    def __init__(self) -> None:
        selectors.Selector.__init__(self, _name="Lifo")

    def __repr__(self) -> str:
        return "LifoSelector"


class UniformSelector(selectors.Uniform):
    """Any item, each with the same probability."""

    __slots__ = ()

    def __init__(self) -> None:
        selectors.Selector.__init__(self, _name="Uniform")

    def __repr__(self) -> str:
        return "UniformSelector"


class PrioritizedSelector(selectors.Prioritized):
    """An item with probability ``priority ** priority_exponent``, relative to the others.

    Args:
        priority_exponent: finite and >= 0.
    """

    __slots__ = ()

    def __init__(self, priority_exponent: float) -> None:
        checked = selectors.Prioritized(priority_exponent)
        selectors.Selector.__init__(self, _name="Prioritized", **checked.options)

    def __repr__(self) -> str:
        return f"PrioritizedSelector(priority_exponent={self.options['priority_exponent']:g})"


class HeapSelector(selectors.Selector):
    """The item of the lowest priority, or of the highest.

    Args:
        min_heap: the lowest comes first.
    """

    __slots__ = ()

    def __init__(self, min_heap: bool) -> None:
        super().__init__(_name="MinHeap" if min_heap else "MaxHeap")

    def __reduce__(self) -> tuple[Any, ...]:
        return HeapSelector, (self.spec[0] == "MinHeap",)

    def __repr__(self) -> str:
        return f"HeapSelector(sign={1 if self.spec[0] == 'MinHeap' else -1})"


def selector_from_proto(options: bytes) -> ItemSelector:
    """The selector that a serialised ``KeyDistributionOptions`` describes. Needs protobuf.

    Raises:
        InvalidArgumentError: it describes none.
    """
    from reverie.reverb._messages import message_class

    proto = message_class("deepmind.reverb.KeyDistributionOptions").FromString(options)
    kind = proto.WhichOneof("distribution")
    if kind == "heap":
        return HeapSelector(proto.heap.min_heap)
    if kind == "prioritized":
        return PrioritizedSelector(proto.prioritized.priority_exponent)
    kinds = {"fifo": FifoSelector, "lifo": LifoSelector, "uniform": UniformSelector}
    if kind not in kinds or not getattr(proto, kind):
        raise InvalidArgumentError(f"the options describe no selector: {proto!r}")
    made: ItemSelector = kinds[kind]()
    return made


class ConstantChunkerOptions(NamedTuple):
    """Chunks of one length: ``writer.configure(path, **options.arguments())``."""

    max_chunk_length: int
    num_keep_alive_refs: int

    def arguments(self) -> dict[str, Any]:
        """What ``TrajectoryWriter.configure`` takes."""
        return self._asdict()


class AutoTunedChunkerOptions(NamedTuple):
    """Chunks whose length follows from how their steps are used.

    ``throughput_weight`` means nothing: see ``docs/concepts/client.md`` for the rule.
    """

    num_keep_alive_refs: int
    throughput_weight: float = 1.0

    def arguments(self) -> dict[str, Any]:
        """What ``TrajectoryWriter.configure`` takes."""
        return {"num_keep_alive_refs": self.num_keep_alive_refs, "max_chunk_length": None}


ChunkerOptions = ConstantChunkerOptions | AutoTunedChunkerOptions


class _Cells(type):
    """The metaclass of a class whose objects are columns of one squeezed row."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _reverie.TrajectoryColumn) and instance.is_squeezed


class WeakCellRef(metaclass=_Cells):
    """What iterating over a column gives: a row, which is a squeezed column of its own."""


class Sampler:
    """How many tensors of a sample come before its data; ``Client.sample`` draws them."""

    NUM_INFO_TENSORS = 5


class Checkpointer:
    """Where checkpoints would lie; see ``reverb.checkpointers``.

    Args:
        path: the directory.
        group: must be empty.
        fallback_checkpoint_path: the checkpoint to begin with.
    """

    def __init__(self, path: str, group: str, fallback_checkpoint_path: str | None) -> None:
        self.path = path
        self.group = group
        self.fallback_checkpoint_path = fallback_checkpoint_path

    def __repr__(self) -> str:
        return f"TFRecordCheckpointer(root_dir={self.path}, group={self.group})"


def create_default_checkpointer(
    name: str, group: str = "", fallback_checkpoint_path: str | None = None
) -> Checkpointer:
    """A ``Checkpointer``."""
    return Checkpointer(name, group, fallback_checkpoint_path)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    # Made of these, and so loaded after them.
    if name == "Client":
        from reverie.reverb.client import Client

        return Client
    if name == "Server":
        from reverie.reverb.server import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AutoTunedChunkerOptions",
    "Checkpointer",
    "ChunkerOptions",
    "ConstantChunkerOptions",
    "FifoSelector",
    "HeapSelector",
    "ItemSelector",
    "LifoSelector",
    "PrioritizedSelector",
    "RateLimiter",
    "Sampler",
    "StructuredWriter",
    "Table",
    "TableExtension",
    "TrajectoryWriter",
    "UniformSelector",
    "WeakCellRef",
    "Writer",
    "create_default_checkpointer",
    "selector_from_proto",
]
