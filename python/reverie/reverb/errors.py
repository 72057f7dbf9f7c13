"""Reverb's path of ``reverie.errors``."""

from reverie.errors import DeadlineExceededError, ReverbError

__all__ = ["DeadlineExceededError", "ReverbError"]
