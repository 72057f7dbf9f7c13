"""How often items may be sampled, relative to how often they are inserted.

With I inserts, S samples and D deletions so far,

- a sample is allowed while ``I - D >= min_size_to_sample`` and
  ``I * samples_per_insert - S - 1 >= min_diff``,
- an insert is allowed while ``I + 1 - D <= min_size_to_sample`` or
  ``(I + 1) * samples_per_insert - S <= max_diff``,

and waits otherwise.
"""

import sys
from typing import NamedTuple

from reverie import _checks, _reverie
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

_UNBOUNDED = sys.float_info.max


class _Numbers(NamedTuple):
    samples_per_insert: float
    min_size_to_sample: int
    min_diff: float
    max_diff: float


def _whole(name: str, value: object) -> int:
    """An integer >= 1, which may come as a float."""
    if isinstance(value, float):
        if not value.is_integer():
            raise UnsupportedTypeError(f"{name} is {value}; it must be an integer >= 1")
        value = int(value)
    return _checks.integer(name, value)


def _bounds(error_buffer: object, offset: float) -> tuple[float, float]:
    """The bounds that an error buffer around ``offset`` gives."""
    if hasattr(error_buffer, "__len__") and not isinstance(error_buffer, str):
        pair = _checks.items("error_buffer", error_buffer, "two bounds")
        if len(pair) != 2:
            raise InvalidArgumentError(
                f"error_buffer has {len(pair)} entries; it must be a number, or a pair of bounds"
            )
        low, high = (_checks.number("error_buffer", bound, finite=False) for bound in pair)
        return low, high
    buffer = _checks.number("error_buffer", error_buffer)
    return offset - buffer, offset + buffer


class RateLimiter:
    """The general form; the others are its common settings. It only contains numbers.

    Args:
        samples_per_insert: how often an item is sampled on average; > 0.
        min_size_to_sample: items a table must hold before any is sampled; >= 1.
        min_diff: lower bound of ``inserts * samples_per_insert - samples``; samples wait at it.
        max_diff: upper bound of the same; inserts wait at it.

    Raises:
        InvalidArgumentError: an argument is out of range, or the limiter would deadlock, with
            neither an insert nor a sample allowed.
    """

    def __init__(
        self,
        samples_per_insert: float,
        min_size_to_sample: int,
        min_diff: float,
        max_diff: float,
    ) -> None:
        self._numbers = _Numbers(
            _checks.number("samples_per_insert", samples_per_insert, finite=False),
            _whole("min_size_to_sample", min_size_to_sample),
            _checks.number("min_diff", min_diff, finite=False),
            _checks.number("max_diff", max_diff, finite=False),
        )
        _reverie.check_rate_limiter(*self._numbers)

    @property
    def numbers(self) -> tuple[float, int, float, float]:
        """``samples_per_insert``, ``min_size_to_sample``, ``min_diff`` and ``max_diff``."""
        return self._numbers

    @property
    def samples_per_insert(self) -> float:
        """How often an item is sampled on average."""
        return self._numbers.samples_per_insert

    @property
    def min_size_to_sample(self) -> int:
        """Items that a table must hold before any is sampled."""
        return self._numbers.min_size_to_sample

    @property
    def min_diff(self) -> float:
        """Lower bound of ``inserts * samples_per_insert - samples``."""
        return self._numbers.min_diff

    @property
    def max_diff(self) -> float:
        """Upper bound of ``inserts * samples_per_insert - samples``."""
        return self._numbers.max_diff

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RateLimiter):
            return NotImplemented
        return self._numbers == other._numbers

    def __hash__(self) -> int:
        return hash(self._numbers)

    def __repr__(self) -> str:
        spi, min_size, min_diff, max_diff = self._numbers
        return (
            f"{type(self).__name__}(samples_per_insert={spi:g}, min_diff={min_diff:g}, "
            f"max_diff={max_diff:g}, min_size_to_sample={min_size})"
        )


class MinSize(RateLimiter):
    """Samples wait until the table holds this many items; nothing else waits.

    Args:
        min_size_to_sample: >= 1.
    """

    def __init__(self, min_size_to_sample: int) -> None:
        super().__init__(1.0, min_size_to_sample, -_UNBOUNDED, _UNBOUNDED)


class SampleToInsertRatio(RateLimiter):
    """Keeps the number of samples near ``samples_per_insert`` times that of inserts.

    Args:
        samples_per_insert: > 0.
        min_size_to_sample: items a table must hold before any is sampled; >= 1.
        error_buffer: how far ``inserts * samples_per_insert - samples`` may stray from
            ``samples_per_insert * min_size_to_sample``, or its bounds as a pair.

    Raises:
        InvalidArgumentError: the bounds are closer than ``2 * max(1, samples_per_insert)``, so that
            inserts and samples could block each other; or an argument is out of range.
    """

    def __init__(
        self,
        samples_per_insert: float,
        min_size_to_sample: int,
        error_buffer: float | tuple[float, float],
    ) -> None:
        samples_per_insert = _checks.number("samples_per_insert", samples_per_insert, above=0.0)
        min_size_to_sample = _whole("min_size_to_sample", min_size_to_sample)
        offset = samples_per_insert * min_size_to_sample
        min_diff, max_diff = _bounds(error_buffer, offset)
        least = 2 * max(1.0, samples_per_insert)
        if max_diff - min_diff < least:
            raise InvalidArgumentError(
                f"error_buffer {error_buffer} leaves {max_diff - min_diff:g} between the bounds; "
                f"it must leave at least 2 * max(1, samples_per_insert) = {least:g}"
            )
        if min_diff > offset:
            raise InvalidArgumentError(
                f"error_buffer {error_buffer} has a lower bound of {min_diff:g}; it must be at "
                f"most samples_per_insert * min_size_to_sample = {offset:g}"
            )
        super().__init__(samples_per_insert, min_size_to_sample, min_diff, max_diff)
        if max_diff < offset:
            import logging

            logging.getLogger("reverie").warning(
                "max_diff %g of a SampleToInsertRatio is below samples_per_insert * "
                "min_size_to_sample = %g: inserts will wait for samples as soon as the table "
                "holds min_size_to_sample items",
                max_diff,
                offset,
            )


class Queue(RateLimiter):
    """At most ``size`` items that were not sampled yet; for tables that sample each item once.

    Args:
        size: >= 1.
    """

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, float(_whole("size", size)))


class Stack(Queue):
    """As :class:`Queue`; the table's sampler decides which item comes first."""
