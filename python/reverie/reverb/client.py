"""Reverb's path of ``reverie.client`` and ``reverie.writer``."""

from reverie.client import Client
from reverie.replay_sample import ReplaySample, SampleInfo
from reverie.writer import Writer

__all__ = ["Client", "ReplaySample", "SampleInfo", "Writer"]
