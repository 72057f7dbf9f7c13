"""One sampled item, as Reverb hands it out."""

from typing import Any, NamedTuple


class SampleInfo(NamedTuple):
    """What is known of a sampled item.

    Attributes:
        key: of the item.
        probability: with which it was drawn.
        table_size: items in the table, before a removal that the draw caused.
        priority: of the item.
        times_sampled: this draw included.
    """

    key: int
    probability: float
    table_size: int
    priority: float
    times_sampled: int


class ReplaySample(NamedTuple):
    """A sampled item, or one step of it.

    Attributes:
        info: what is known of the item.
        data: its columns: a list in flat order, or a nest.
    """

    info: SampleInfo
    data: Any
