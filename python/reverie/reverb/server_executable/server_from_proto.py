"""Tables and their parts, made from the messages of a server's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reverie.errors import InvalidArgumentError, UnimplementedError
from reverie.reverb import item_selectors, rate_limiters
from reverie.reverb.reverb_types import SelectorType
from reverie.reverb.server import Table


def selector_from_proto(s: Any) -> SelectorType:  # noqa: ANN401
    """The selector that a ``KeyDistributionOptions`` describes.

    Raises:
        ValueError: the flag that names it is false.
        NotImplementedError: it names none.
    """
    kind = s.WhichOneof("distribution")
    if kind == "heap":
        return item_selectors.MinHeap() if s.heap.min_heap else item_selectors.MaxHeap()
    if kind == "prioritized":
        return item_selectors.Prioritized(s.prioritized.priority_exponent)
    kinds: dict[str, Any] = {
        "fifo": item_selectors.Fifo,
        "lifo": item_selectors.Lifo,
        "uniform": item_selectors.Uniform,
    }
    if kind not in kinds:
        raise UnimplementedError(
            f"distribution={kind}; give one of fifo, lifo, uniform, heap, prioritized"
        )
    if not getattr(s, kind):
        raise InvalidArgumentError(
            f"distribution={kind} but the associated boolean value is false; set it to true"
        )
    selector: SelectorType = kinds[kind]()
    return selector


def rate_limiter_from_proto(proto: Any) -> rate_limiters.RateLimiter:  # noqa: ANN401
    """The limiter that a ``RateLimiterCheckpoint`` describes."""
    return rate_limiters.RateLimiter(
        samples_per_insert=proto.samples_per_insert,
        min_size_to_sample=proto.min_size_to_sample,
        min_diff=proto.min_diff,
        max_diff=proto.max_diff,
    )


def tables_from_proto(configs: Sequence[Any]) -> list[Table]:
    """The tables that ``PriorityTableCheckpoint`` messages describe, without signatures."""
    return [
        Table(
            name=config.table_name,
            sampler=selector_from_proto(config.sampler),
            remover=selector_from_proto(config.remover),
            max_size=config.max_size,
            rate_limiter=rate_limiter_from_proto(config.rate_limiter),
            max_times_sampled=config.max_times_sampled,
        )
        for config in configs
    ]
