"""Tianshou's prioritised buffer and environments compared with ours: per gradient step, and step.

    python benchmarks/tianshou_buffer.py

Needs ``tianshou``. Printed for each, in microseconds of thread time, medians of CALLS calls made by
turns: ``sample`` of 64 of 100,000 transitions of CartPole's size, with 3-step targets, and then
priorities; the check for NaN that Tianshou's trainer makes after each collection; ``add`` of one
step of 8 environments; a step of 8 and of 64 CartPoles, followed by resets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.data import Batch
from tianshou.data import PrioritizedVectorReplayBuffer as Theirs
from tianshou.env import DummyVectorEnv

from reverie.contrib import tianshou as ours

BATCH, CALLS, ENVS, TRANSITIONS, N_STEP, GAMMA = 64, 40, 8, 100_000, 3, 0.99


def step_of(count: int, rng: np.random.Generator) -> Batch:
    """A step of ``count`` environments, as the collector stores it."""
    return Batch(
        obs=rng.random((count, 4)).astype(np.float32),
        act=rng.integers(2, size=count),
        rew=np.ones(count),
        terminated=rng.random(count) < 0.01,
        truncated=np.zeros(count, bool),
        obs_next=rng.random((count, 4)).astype(np.float32),
        info=Batch(),
        policy=Batch(),
    )


def learn(buffer: Any) -> None:  # noqa: ANN401
    """The calls of a gradient step."""
    batch, indices = buffer.sample(BATCH)

    def values(buffer: Any, indices: Any) -> torch.Tensor:  # noqa: ANN401
        return torch.as_tensor(np.asarray(buffer[indices].obs_next).sum(axis=1))

    batch = Algorithm.compute_nstep_return(batch, buffer, indices, values, GAMMA, N_STEP)
    buffer.update_weight(indices, batch.returns.reshape(-1))


def steps_of(envs: Any) -> Callable[[], None]:  # noqa: ANN401
    """A step of all environments, followed by the resets that the collector makes."""
    actions = np.arange(len(envs)) % 2
    envs.reset()

    def step() -> None:
        _, _, terminated, truncated, _ = envs.step(actions)
        over = np.flatnonzero(terminated | truncated)
        if len(over):
            envs.reset(over)

    return step


def beside(name: str, own: Callable[[], object], other: Callable[[], object]) -> None:
    """Measures both by turns; prints medians, and the ratio of theirs to ours."""
    own(), other()  # lets numba compile
    spent: list[list[float]] = [[], []]
    for _ in range(CALLS):
        for call, times in zip((own, other), spent, strict=True):
            begin = time.thread_time()
            call()
            times.append((time.thread_time() - begin) * 1e6)
    mine, theirs = (float(np.median(times)) for times in spent)
    print(f"{name:<36} {mine:9.1f} us   Tianshou's {theirs:11.1f} us   {theirs / mine:7.2f} x")


def main() -> None:
    """Fills both buffers, and measures."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    own = ours.PrioritizedVectorReplayBuffer(
        TRANSITIONS, ENVS, alpha=0.6, beta=0.4, n_step=N_STEP, gamma=GAMMA
    )
    theirs = Theirs(TRANSITIONS, ENVS, alpha=0.6, beta=0.4)
    steps = [step_of(ENVS, rng) for _ in range(500)]
    for index in range(TRANSITIONS // ENVS):
        for buffer in (own, theirs):
            buffer.add(steps[index % len(steps)])
    beside("sample, 3-step targets, priorities", lambda: learn(own), lambda: learn(theirs))
    beside("hasnull", own.hasnull, theirs.hasnull)
    beside("add of 8 environments", lambda: own.add(steps[0]), lambda: theirs.add(steps[0]))
    for count in (8, 64):
        envs = ours.VectorEnv("CartPole-v1", count, num_workers=0)
        dummies = DummyVectorEnv([lambda: gym.make("CartPole-v1")] * count)
        beside(f"step of {count} CartPoles", steps_of(envs), steps_of(dummies))
        envs.close()


if __name__ == "__main__":
    main()
