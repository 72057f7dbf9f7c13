"""Reverb's path of ``reverie.replay_sample``."""

from reverie.replay_sample import ReplaySample, SampleInfo

__all__ = ["ReplaySample", "SampleInfo"]
