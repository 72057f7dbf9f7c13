"""Names that no other peer has."""

from __future__ import annotations

import os
import socket

from reverie import _reverie

_ADJECTIVES = [
    *("able", "amber", "brave", "brisk", "calm", "clear", "clever", "crisp"),
    *("deep", "eager", "early", "fair", "fast", "fine", "firm", "fresh"),
    *("gentle", "glad", "golden", "good", "grand", "green", "happy", "keen"),
    *("kind", "late", "light", "lively", "lucky", "merry", "mild", "neat"),
    *("noble", "novel", "olive", "open", "pale", "plain", "polite", "proud"),
    *("quick", "quiet", "rapid", "ready", "rosy", "round", "sharp", "shiny"),
    *("silent", "silver", "simple", "sleek", "smart", "smooth", "snowy", "solid"),
    *("steady", "still", "strong", "sunny", "swift", "tall", "tidy", "vivid"),
    *("warm", "wide", "wise", "young"),
]
_NOUNS = [
    *("acorn", "anchor", "apple", "arrow", "badger", "beacon", "birch", "bridge"),
    *("brook", "canyon", "cedar", "cloud", "comet", "coral", "crane", "delta"),
    *("dune", "eagle", "ember", "falcon", "fern", "field", "finch", "fjord"),
    *("flame", "forest", "fox", "garden", "glade", "harbor", "hawk", "heron"),
    *("hill", "island", "ivy", "jade", "lake", "lark", "leaf", "lily"),
    *("lynx", "maple", "marsh", "meadow", "moon", "moss", "oak", "ocean"),
    *("orbit", "otter", "owl", "pearl", "pebble", "pine", "planet", "pond"),
    *("raven", "reef", "river", "robin", "rose", "sail", "sand", "shore"),
    *("spruce", "star", "stone", "stream", "swan", "tide", "trail", "valley"),
    *("wave", "willow", "wind", "wolf", "wren"),
]


def create_uid() -> str:
    """A unique name: ``"host:pid:two-words"`` and eight digits."""
    draw = _reverie.random_seed()
    words = f"{_ADJECTIVES[draw % len(_ADJECTIVES)]}-{_NOUNS[(draw >> 16) % len(_NOUNS)]}"
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{words}-{draw >> 32:08x}"
