"""Of Reverb's native layer, what programs name: selectors, limiters, how chunks are cut."""

from typing import Any, NamedTuple

from reverie.rate_limiters import RateLimiter
from reverie.selectors import Fifo as FifoSelector
from reverie.selectors import Lifo as LifoSelector
from reverie.selectors import MaxHeap, MinHeap, Selector
from reverie.selectors import Prioritized as PrioritizedSelector
from reverie.selectors import Uniform as UniformSelector

ItemSelector = Selector


def HeapSelector(min_heap: bool) -> Selector:  # noqa: N802 (a class there)
    """The heap whose top is the item of the lowest priority, or of the highest."""
    return MinHeap() if min_heap else MaxHeap()


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

__all__ = [
    "AutoTunedChunkerOptions",
    "ChunkerOptions",
    "ConstantChunkerOptions",
    "FifoSelector",
    "HeapSelector",
    "ItemSelector",
    "LifoSelector",
    "PrioritizedSelector",
    "RateLimiter",
    "UniformSelector",
]
