"""Reverb's rate limiters: those of ``reverie.rate_limiters``, shown as Reverb shows them."""

from __future__ import annotations

from reverie import rate_limiters


class RateLimiter(rate_limiters.RateLimiter):
    """The general form; the others are its common settings. See ``reverie.RateLimiter``."""

    @property
    def internal_limiter(self) -> RateLimiter:
        """The limiter itself: there is no other."""
        return self

    @property
    def _samples_per_insert(self) -> float:
        return self.samples_per_insert

    @property
    def _min_size_to_sample(self) -> int:
        return self.min_size_to_sample

    @property
    def _min_diff(self) -> float:
        return self.min_diff

    @property
    def _max_diff(self) -> float:
        return self.max_diff

    def __repr__(self) -> str:
        return (
            f"RateLimiter(samples_per_insert={self.samples_per_insert:g}, "
            f"min_diff_={self.min_diff:g}, max_diff={self.max_diff:g}, "
            f"min_size_to_sample={self.min_size_to_sample})"
        )


class MinSize(RateLimiter, rate_limiters.MinSize):
    """Samples wait until the table holds this many items; nothing else waits."""


class SampleToInsertRatio(RateLimiter, rate_limiters.SampleToInsertRatio):
    """Keeps the number of samples near ``samples_per_insert`` times that of inserts."""


class Queue(RateLimiter, rate_limiters.Queue):
    """At most ``size`` items that were not sampled yet."""


class Stack(RateLimiter, rate_limiters.Stack):
    """As :class:`Queue`; which item comes first is the table's affair."""


__all__ = ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"]
