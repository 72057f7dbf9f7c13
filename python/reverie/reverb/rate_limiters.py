"""Reverb's path of ``reverie.rate_limiters``."""

from reverie.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack

__all__ = ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"]
