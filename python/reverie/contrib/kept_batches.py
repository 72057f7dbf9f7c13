"""Batches whose arrays are filled again once the program has let all of them go.

A large batch in fresh memory costs more for its pages than for what is copied into them. A learner
holds one batch while it draws the next, so two take turns; more are made where more are held.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import reverie

_COUNT_MAX = 3
_LEAST_BYTES = 1 << 18  # below, memory is at hand


class KeptBatches:
    """Draws from a buffer into arrays that nothing else refers to. Single-threaded."""

    def __init__(self) -> None:
        self._kept: list[dict[str, Any]] = []

    def sample(self, replay: reverie.ReplayBuffer, batch_size: int) -> dict[str, Any]:
        """As ``replay.sample(batch_size)``, of a buffer without transforms."""
        for kept in self._kept:
            if len(kept["tickets"]) == batch_size and _references(kept) <= _FREE:
                return dict(replay.sample(batch_size, out=kept))
        batch = replay.sample(batch_size)
        if sum(leaf.nbytes for leaf in _leaves(batch)) >= _LEAST_BYTES:
            self._kept = [dict(batch), *self._kept][:_COUNT_MAX]
        return batch

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": []}


def _leaves(nest: Any) -> list[Any]:  # noqa: ANN401
    if not isinstance(nest, dict):
        return [nest]
    return [leaf for value in nest.values() for leaf in _leaves(value)]


def _references(batch: dict[str, Any]) -> float:
    """The most references that an array of the batch has; infinite if that is unknown."""
    most = 0.0
    for value in batch.values():
        if isinstance(value, dict):
            most = max(most, _references(value))
        elif not isinstance(value, np.ndarray) or isinstance(value.base, np.ndarray):
            return float("inf")  # a view of it would refer to what it is a view of
        else:
            most = max(most, sys.getrefcount(value))
    return most


# What an array has that only its batch refers to: versions of Python count it differently.
_FREE = _references({"alone": np.empty(1)})
