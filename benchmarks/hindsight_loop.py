"""A loop that learns to reach goals in hindsight, with our buffer and with Stable-Baselines3's.

    python benchmarks/hindsight_loop.py [--seeds 5] [--rounds 120]

Needs ``stable-baselines3``. The loop is that of ``examples/hindsight.py`` (16 parallel games of 12
bits, 20 batches of 128 per round of games, double Q-learning with reverie's small network), and
only the buffer differs: ``HerReplayBuffer`` with 4 future goals, and ``reverie.ReplayBuffer`` with
the same. Printed: the share of goals that is reached at the end, and the seconds of the loop by the
wall clock and of the thread. The buffers take turns over seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv

import reverie

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import hindsight as example

NAMES = ("achieved_goal", "desired_goal")


class Game(gym.Env):  # type: ignore[misc]
    """What ``HerReplayBuffer`` needs of an environment: spaces, and rewards for other goals."""

    observation_space = gym.spaces.Dict(
        dict.fromkeys((*NAMES, "observation"), gym.spaces.Box(0, 1, (example.BITS,), np.float32))
    )
    action_space = gym.spaces.Discrete(example.BITS)

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:  # noqa: ANN401
        """The reward of a goal environment."""
        return example.reward(achieved, desired, info)


class Theirs:
    """``HerReplayBuffer`` with the interface that the loop uses."""

    def __init__(self) -> None:
        self._buffer = HerReplayBuffer(
            50_000,
            Game.observation_space,
            Game.action_space,
            DummyVecEnv([Game] * example.GAMES),
            device="cpu",
            n_envs=example.GAMES,
            n_sampled_goal=4,
            goal_selection_strategy="future",
        )

    def add(self, obs: Any, action: Any, reward: Any, then: Any, _ended: Any, over: Any) -> None:  # noqa: ANN401
        """Adds a step of all games; a time limit ends them, which SB3 reads from infos."""
        infos = [{"TimeLimit.truncated": True} if end else {} for end in over]
        obs, then = ({**one, "observation": one["achieved_goal"]} for one in (obs, then))
        self._buffer.add(obs, then, action[:, None], reward, over, infos)

    def sample(self, count: int) -> dict[str, Any]:
        """A batch with the names that the loop uses."""
        batch = self._buffer.sample(count)
        ended = batch.dones.numpy().ravel()
        return {
            "obs": {name: batch.observations[name].numpy() for name in NAMES},
            "next_obs": {name: batch.next_observations[name].numpy() for name in NAMES},
            "action": batch.actions.numpy().ravel(),
            "reward": batch.rewards.numpy().ravel(),
            "discount": (1 - ended) * example.GAMMA,
        }


def ours(seed: int) -> reverie.ReplayBuffer:
    """Our buffer with the same kind of goals."""
    hindsight = reverie.Hindsight(example.reward, strategy="future", goals=4)
    return reverie.ReplayBuffer(
        50_000, example.GAMES, gamma=example.GAMMA, hindsight=hindsight, seed=seed
    )


def run(buffer: Any, rounds: int, seed: int) -> tuple[float, float, float]:  # noqa: ANN401
    """Runs the example's loop; returns the share of goals, wall seconds and thread seconds."""
    # HerReplayBuffer draws from the global generator.
    np.random.seed(seed)  # noqa: NPY002
    rng = np.random.default_rng(seed)
    learner = example.Learner(seed)
    begin, begin_cpu = time.perf_counter(), time.thread_time()
    for index in range(rounds):
        example.play(learner, rng, epsilon=0.2, buffer=buffer)
        for _ in range(20):
            learner.update(buffer.sample(128))
        if index % 5 == 0:
            learner.refresh_target()
    spent, spent_cpu = time.perf_counter() - begin, time.thread_time() - begin_cpu
    reached = np.mean([example.play(learner, rng, epsilon=0.0, buffer=None) for _ in range(20)])
    return float(reached), spent, spent_cpu


def main() -> None:
    """Measures both by turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=120)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[tuple[float, float, float]]] = {"HerReplayBuffer": [], "reverie": []}
    for seed in range(arguments.seeds):
        turns: list[tuple[str, Any]] = [("HerReplayBuffer", Theirs()), ("reverie", ours(seed))]
        for name, buffer in turns if seed % 2 == 0 else turns[::-1]:
            found[name].append(run(buffer, arguments.rounds, seed))
    for name, rows in found.items():
        reached = " ".join(f"{row[0]:.2f}" for row in rows)
        clock, cpu = np.median(rows, axis=0)[1:]
        print(f"{name:16s} goals reached {reached}   {clock:6.2f} s, {cpu:6.2f} of the thread")
    ratios = np.array(found["HerReplayBuffer"])[:, 1:] / np.array(found["reverie"])[:, 1:]
    for what, column in zip(("the clock", "thread time"), ratios.T, strict=True):
        low, middle, high = column.min(), np.median(column), column.max()
        print(f"speed by {what}: {middle:.2f} x ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
