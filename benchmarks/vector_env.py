"""A step of CartPoles as Gymnasium's ``VectorEnv``: ours compared with Gymnasium's fastest.

    python benchmarks/vector_env.py [RUNS]

Gymnasium has three: its own vectorised CartPole (NumPy), ``SyncVectorEnv`` and ``AsyncVectorEnv``.
Printed are microseconds of wall time per step, medians of RUNS runs by turns, and the ratio to the
fastest of the three. Episodes end meanwhile, and begin in the next step.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import numpy as np

import reverie.gym


def makers(count: int) -> dict[str, Any]:
    """Vector environments of each kind, after a reset."""

    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1")

    found = {
        "reverie": reverie.gym.GymVectorEnv("CartPole-v1", count),
        "vectorised": gymnasium.make_vec(
            "CartPole-v1", num_envs=count, vectorization_mode="vector_entry_point"
        ),
        "sync": gymnasium.vector.SyncVectorEnv([make] * count),
        "async": gymnasium.vector.AsyncVectorEnv([make] * count),
    }
    for envs in found.values():
        envs.reset(seed=1)
    return found


def step_us(envs: Any, actions: Any, steps: int) -> float:  # noqa: ANN401
    """Microseconds per step."""
    begin = time.perf_counter()
    for _ in range(steps):
        envs.step(actions)
    return (time.perf_counter() - begin) / steps * 1e6


def main() -> None:
    """Measures 8 and 64 environments."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for count in (8, 64):
        actions = np.arange(count) % 2
        vectors = makers(count)
        steps = {"reverie": 2000, "vectorised": 300, "sync": 100, "async": 30}
        spent: dict[str, list[float]] = {name: [] for name in vectors}
        for _ in range(runs):
            for name, envs in vectors.items():
                spent[name].append(step_us(envs, actions, steps[name]))
        medians = {name: float(np.median(times)) for name, times in spent.items()}
        fastest = min(value for name, value in medians.items() if name != "reverie")
        said = "   ".join(f"{name} {value:.1f} us" for name, value in medians.items())
        print(f"{count:2} CartPoles: {said}   {fastest / medians['reverie']:.1f} x", flush=True)
        for envs in vectors.values():
            envs.close()


if __name__ == "__main__":
    main()
