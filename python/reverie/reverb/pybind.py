"""Of Reverb's native layer, what programs name: the classes behind selectors and limiters."""

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


__all__ = [
    "FifoSelector",
    "HeapSelector",
    "ItemSelector",
    "LifoSelector",
    "PrioritizedSelector",
    "RateLimiter",
    "UniformSelector",
]
