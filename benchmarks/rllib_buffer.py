"""RLlib's prioritised episode buffer and ours: a batch of 64 drawn as episodes, and its priorities.

    python benchmarks/rllib_buffer.py

Needs ``ray[rllib]``. Printed for each: the median of 60 calls, in microseconds of thread time, of
adding a chunk of 4 steps, and of ``sample`` with ``update_priorities``. The buffer holds 4,000
transitions of CartPole's size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers import prioritized_episode_buffer as theirs

from reverie.contrib import rllib as ours

BATCH, CALLS = 64, 60


def episode(length: int, rng: np.random.Generator) -> SingleAgentEpisode:
    """An episode of random numbers."""
    made = SingleAgentEpisode(
        observation_space=gym.spaces.Box(-9, 9, (4,)), action_space=gym.spaces.Discrete(2)
    )
    made.add_env_reset(rng.random(4).astype(np.float32))
    for step in range(length):
        obs = rng.random(4).astype(np.float32)
        made.add_env_step(obs, step % 2, 1.0, terminated=step == length - 1)
    return made


def median_us(call: Callable[[int], None]) -> float:
    """The times of CALLS calls, each of which gets its number."""
    spent = []
    for index in range(CALLS):
        begin = time.thread_time()
        call(index)
        spent.append(time.thread_time() - begin)
    return float(np.median(spent)) * 1e6


def learn(buffer: Any, rng: np.random.Generator, _index: int) -> None:  # noqa: ANN401
    """The calls of a learner."""
    buffer.sample(BATCH, beta=0.4, n_step=1, gamma=0.99)
    buffer.update_priorities(rng.random(BATCH))


def add(buffer: Any, chunks: list[SingleAgentEpisode], index: int) -> None:  # noqa: ANN401
    """The call of an actor."""
    buffer.add(chunks[index])


def main() -> None:
    """Measures both."""
    for name, module in (("RLlib", theirs), ("reverie", ours)):
        rng = np.random.default_rng(1)
        buffer = module.PrioritizedEpisodeReplayBuffer(10_000, alpha=0.6)
        buffer.add([episode(40, rng) for _ in range(100)])
        chunks = [episode(4, rng) for _ in range(CALLS)]

        learn_us = median_us(partial(learn, buffer, rng))
        add_us = median_us(partial(add, buffer, chunks))
        print(f"{name:8s} add 4 steps {add_us:6.0f} us   {BATCH} drawn, updated {learn_us:6.0f} us")


if __name__ == "__main__":
    main()
