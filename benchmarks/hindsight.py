"""Stable-Baselines3's DQN on a toy task with goals, with its HerReplayBuffer and with ours.

    python benchmarks/hindsight.py [--seeds 5] [--steps 8000] [--bits 10]

Bits are flipped until they equal those of a goal (Andrychowicz et al. 2017, section 3.1). Printed
for each buffer: the share of goals that the final policy reaches, over seeds; the microseconds of
thread time that adding a step and drawing a batch take within the training; and the seconds of the
training.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, HerReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv

import reverie
from reverie.contrib import sb3


class Bits(gym.Env):  # type: ignore[misc]
    """Flips one bit a step; the reward is 0 at the goal, else -1."""

    def __init__(self, count: int) -> None:
        self.count = count
        space = gym.spaces.Box(0, 1, (count,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, space))
        self.action_space = gym.spaces.Discrete(count)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, Any]:  # noqa: ARG002
        """Draws random bits and a random goal."""
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(0, 2, (2, self.count)).astype(np.float32)
        self.steps = 0
        return self.seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, Any]:
        """Flips the bit."""
        self.steps += 1
        self.bits[action] = 1 - self.bits[action]
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self.seen(), reward, False, self.steps == self.count, {}

    def seen(self) -> dict[str, Any]:
        """The observation of a goal environment."""
        bits = self.bits.copy()
        return {"observation": bits, "achieved_goal": bits, "desired_goal": self.goal}

    @staticmethod
    def compute_reward(achieved: Any, desired: Any, _info: object) -> Any:  # noqa: ANN401
        """The reward of a goal environment, for one or many."""
        return np.where((achieved == desired).all(axis=-1), 0.0, -1.0)


def timed(kind: Any) -> Any:  # noqa: ANN401
    """The buffer class, which records seconds and calls of add and sample."""
    made: Any = type("Timed", (kind,), {"spent": {"add": [0.0, 0], "sample": [0.0, 0]}})
    for name in ("add", "sample"):

        def call(self: Any, *arguments: Any, name: str = name, **options: Any) -> Any:  # noqa: ANN401
            begin = time.thread_time()
            result = getattr(kind, name)(self, *arguments, **options)
            entry = made.spent[name]
            entry[0] += time.thread_time() - begin
            entry[1] += 1
            return result

        setattr(made, name, call)
    return made


def reached(model: DQN, bits: int, games: int = 100) -> float:
    """The share of goals that the policy reaches."""
    env, wins = Bits(bits), 0
    for game in range(games):
        obs, _ = env.reset(seed=10_000 + game)
        for _ in range(bits):
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, *_ = env.step(int(action))
            if reward == 0:
                wins += 1
                break
    return wins / games


def train(
    kind: Any,  # noqa: ANN401
    options: dict[str, Any],
    arguments: argparse.Namespace,
    seed: int,
) -> tuple[float, float, Any]:
    """Trains; returns the share of goals, its seconds, and the buffer's."""
    timed_kind = timed(kind)
    model = DQN(
        "MultiInputPolicy",
        DummyVecEnv([lambda: Bits(arguments.bits)]),
        replay_buffer_class=timed_kind,
        replay_buffer_kwargs=options,
        buffer_size=50_000,
        learning_rate=1e-3,
        learning_starts=500,
        batch_size=128,
        train_freq=1,
        gamma=0.95,
        target_update_interval=500,
        exploration_fraction=0.5,
        exploration_final_eps=0.1,
        policy_kwargs={"net_arch": [128]},
        seed=seed,
    )
    begin = time.perf_counter()
    model.learn(arguments.steps)
    seconds = time.perf_counter() - begin
    return reached(model, arguments.bits), seconds, timed_kind.spent


def main() -> None:
    """Trains with both buffers and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--bits", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    reward = Bits.compute_reward
    kinds = {
        "HerReplayBuffer": (
            HerReplayBuffer,
            {"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        ),
        "reverie": (
            sb3.ReplayBuffer,
            {"hindsight": reverie.Hindsight(reward, "future", goals=4), "gamma": 0.95},
        ),
    }
    for name, (kind, options) in kinds.items():
        runs = [train(kind, options, arguments, seed) for seed in range(arguments.seeds)]
        shares = " ".join(f"{run[0]:.2f}" for run in runs)
        seconds = np.median([run[1] for run in runs])
        costs = {
            call: np.median([run[2][call][0] / max(1, run[2][call][1]) * 1e6 for run in runs])
            for call in ("add", "sample")
        }
        print(
            f"{name:16s} goals reached {shares}   add {costs['add']:6.1f} us   "
            f"sample 128 {costs['sample']:6.0f} us   training {seconds:5.1f} s"
        )


if __name__ == "__main__":
    main()
