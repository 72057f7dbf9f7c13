"""The options of the demonstration, and their checks."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

FULL_STEPS = 20_000
QUICK_STEPS = 3_000
STEPS_MIN = 2_000
SEEDS_MAX = 1_000
SERVED_SEEDS = 1
ACTORS_MAX = 64
SEED_MAX = 2**31 - 1

_EXTRAS = ("gymnasium", "matplotlib", "rich")


@dataclass(frozen=True)
class Options:
    """A run: ``seeds`` trainings, numbered from ``first_seed``, of ``steps`` steps each.

    Then ``served_seeds`` of the same, each with ``actors`` actors over a server; then, with
    ``lander``, one of LunarLander on all cores.

    Raises:
        ValueError: a number is out of its range.
        NotADirectoryError: ``out`` is, or is in, something that is not a folder.
    """

    seeds: int = 5
    steps: int = FULL_STEPS
    first_seed: int = 0
    out: Path = Path("reverie-demo")
    served_seeds: int = SERVED_SEEDS
    actors: int = 2
    lander: bool = False

    def __post_init__(self) -> None:
        _check("--seeds", self.seeds, 1, SEEDS_MAX)
        # Fewer steps would end before the table is full enough to learn from.
        _check("--steps", self.steps, STEPS_MIN, 10_000_000)
        _check("--served", self.served_seeds, 0, SEEDS_MAX)
        _check("--actors", self.actors, 1, ACTORS_MAX)
        _check("--seed", self.first_seed, 0, SEED_MAX - SEEDS_MAX)
        for folder in (self.out, *self.out.parents):
            if folder.exists():
                if not folder.is_dir():
                    raise NotADirectoryError(
                        f"--out is {self.out}, but {folder} is not a folder; name another one"
                    )
                break


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it must be at least {least} and at most {most}")


def missing_extras() -> list[str]:
    """The packages that the demonstration needs and this Python does not have."""
    return [name for name in _EXTRAS if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
