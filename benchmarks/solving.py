"""Wall time until a task is solved, from the start of the process, beside Stable-Baselines3.

`lander`: double DQN on LunarLander until the mean return of the last 100 episodes is 200.
`cartpole`: until 20 episodes without exploration have a mean of 475; a policy is tried every 500
steps. Both sides have the same network, batch, schedule, target rate and number of steps a return
adds up; theirs draws uniformly, since it has no priorities. A line for each side: the median over
seeds, the least and the most, and how many were solved within the limit; one that was not counts
as the limit.

    PYTHONPATH=python PYTHON benchmarks/solving.py {lander,cartpole} [--seeds 5] [--limit-s 300]

PYTHON has stable-baselines3 (make .venv-peers/made); without it, or with --ours, we stand alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reverie.agents import TrainSettings

ENVS = {"lander": "LunarLander-v3", "cartpole": "CartPole-v1"}
CARTPOLE_STEPS = 20_000
TRIED_EVERY = 500
SOLVED = 475.0


def settings_of(task: str) -> TrainSettings:
    """What both sides learn by."""
    from reverie.demo import cartpole, lander

    if task == "lander":
        return lander.SETTINGS
    return dataclasses.replace(
        cartpole.SETTINGS,
        steps=CARTPOLE_STEPS,
        evaluation_interval=TRIED_EVERY,
        evaluation_episodes=20,
    )


def ours(task: str, seed: int) -> bool:
    """One training; whether it is solved."""
    from reverie.agents import Trainer

    actors = 1 if task == "lander" else 0
    settings = dataclasses.replace(settings_of(task), seed=seed, actors=actors)
    with Trainer("ddqn", ENVS[task], settings) as trainer:
        trainer.start()
        while not trainer.wait(0.01):
            if task == "cartpole" and any(mean >= SOLVED for _, mean in trainer.evaluations()):
                return True
        return trainer.progress().end == "return reached"


def theirs(task: str, seed: int) -> bool:
    """The same of Stable-Baselines3, on one thread of torch."""
    import inspect

    import gymnasium
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    given = settings_of(task)
    tried = Monitor(gymnasium.make(ENVS[task]))

    class Judge(BaseCallback):
        """Ends the training once it is solved."""

        is_solved = False

        def _on_step(self) -> bool:
            if task == "lander":
                returns = [episode["r"] for episode in self.model.ep_info_buffer]
                self.is_solved = len(returns) == 100 and statistics.fmean(returns) >= 200
            elif self.num_timesteps % TRIED_EVERY == 0:
                self.is_solved = evaluate_policy(self.model, tried, 20)[0] >= SOLVED
            return not self.is_solved

    first, last = given.learning_rate, given.learning_rate * given.learning_rate_last_share
    options = {
        "learning_rate": lambda left: last + (first - last) * left,
        "batch_size": 64,
        "buffer_size": given.capacity or 100_000,
        "learning_starts": given.warmup_steps or 1_000,
        "train_freq": 1,
        "gradient_steps": 1,
        "tau": given.tau,
        "target_update_interval": 1,
        "exploration_fraction": given.epsilon_share,
        "exploration_final_eps": given.epsilon_last,
        "policy_kwargs": {"net_arch": list(given.hidden)},
    }
    if "n_steps" in inspect.signature(DQN).parameters:
        options["n_steps"] = given.n_step
    judge = Judge()
    DQN("MlpPolicy", ENVS[task], seed=seed, device="cpu", **options).learn(given.steps, judge)
    return judge.is_solved


def timed(side: str, task: str, seed: int, limit_s: float) -> tuple[float, bool]:
    """Seconds of one training's process, and whether it was solved."""
    begin = time.monotonic()
    command = [sys.executable, __file__, task, "--one", side, "--seed", str(seed)]
    try:
        status = subprocess.run(command, timeout=limit_s, check=False).returncode
    except subprocess.TimeoutExpired:
        return limit_s, False
    if status not in (0, 3):
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return (time.monotonic() - begin, True) if status == 0 else (limit_s, False)


def main() -> None:
    """Trains from each seed in turn on either side, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=list(ENVS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--one", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        solved = {"ours": ours, "theirs": theirs}[given.one](given.task, given.seed)
        raise SystemExit(0 if solved else 3)
    sides = ["ours"]
    if not given.ours and importlib.util.find_spec("stable_baselines3") is not None:
        sides.append("theirs")
    found: dict[str, list[tuple[float, bool]]] = {side: [] for side in sides}
    for seed in range(1, given.seeds + 1):
        for side in sides:
            found[side].append(timed(side, given.task, seed, given.limit_s))
            print(f"{given.task}, {side}, seed {seed}: {found[side][-1][0]:.1f} s", flush=True)
    for side, runs in found.items():
        seconds = [spent for spent, _ in runs]
        print(
            f"{given.task}, {side}: median {statistics.median(seconds):.1f} s "
            f"({min(seconds):.1f} to {max(seconds):.1f}), {sum(ok for _, ok in runs)} of "
            f"{len(runs)} within {given.limit_s:.0f} s"
        )


if __name__ == "__main__":
    main()
