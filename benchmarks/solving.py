"""Wall time until a task is solved, from the start of the process, compared with other libraries.

`lander`: double DQN on LunarLander until the mean return of the last 100 episodes is 200.
`cartpole`: until 20 episodes without exploration have a mean of 475; a policy is evaluated every
500 steps. All sides have the same batch, schedule and target rate and, except CleanRL, the same
network and n-step returns; the others draw uniformly, since they have no priorities. A line for
each side: the median over seeds, the least and the most, and how many were solved within the limit;
a training that was not solved counts as the limit.

    PYTHONPATH=python PYTHON benchmarks/solving.py {lander,cartpole} [--seeds 5] [--limit-s 300]
        [--sides ours sb3 sbx] [--cleanrl CLEANRL/dqn.py [--cleanrl-python PYTHON]]

PYTHON has stable-baselines3 (make .venv-peers/made), or sbx-rl, which is its JAX version; sides
that are not installed are left out. CleanRL's file runs unchanged, with its own network of 120 and
84; it is judged by the returns that it prints, so it only takes part in `lander`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reverie.agents import TrainSettings

LIBRARIES = {"sb3": "stable_baselines3", "sbx": "sbx"}
ENVS = {"lander": "LunarLander-v3", "cartpole": "CartPole-v1"}
CARTPOLE_STEPS = 20_000
TRIED_EVERY = 500
SOLVED = 475.0


def settings_of(task: str) -> TrainSettings:
    """The settings that all sides use."""
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
    """One training; returns whether it was solved."""
    from reverie.agents import Trainer

    actors = 1 if task == "lander" else 0
    settings = dataclasses.replace(settings_of(task), seed=seed, actors=actors)
    with Trainer("ddqn", ENVS[task], settings) as trainer:
        trainer.start()
        while not trainer.wait(0.01):
            if task == "cartpole" and any(mean >= SOLVED for _, mean in trainer.evaluations()):
                return True
        return trainer.progress().end == "return reached"


def theirs(library: str, task: str, seed: int) -> bool:
    """The same with Stable-Baselines3 or its JAX version, on one thread of torch."""
    import importlib
    import inspect

    import gymnasium
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    dqn = importlib.import_module(LIBRARIES[library]).DQN

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
    if "n_steps" in inspect.signature(dqn).parameters:
        options["n_steps"] = given.n_step
    judge = Judge()
    dqn("MlpPolicy", ENVS[task], seed=seed, device="cpu", **options).learn(given.steps, judge)
    return judge.is_solved


def cleanrl(given: argparse.Namespace, seed: int) -> tuple[float, bool]:
    """Seconds until the returns that CleanRL's file prints reach the mean, and whether they did."""
    settings = settings_of("lander")
    words = {
        "env-id": given.cleanrl_env,
        "seed": seed,
        "total-timesteps": settings.steps,
        "learning-rate": settings.learning_rate,
        "buffer-size": settings.capacity or 100_000,
        "learning-starts": settings.warmup_steps or 1_000,
        "batch-size": 64,
        "train-frequency": 1,
        "tau": settings.tau,
        "target-network-frequency": 1,
        "exploration-fraction": settings.epsilon_share,
        "end-e": settings.epsilon_last,
    }
    command = [given.cleanrl_python, "-u", given.cleanrl, "--no-cuda"]
    for name, value in words.items():
        command += [f"--{name}", str(value)]
    begin = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    end = threading.Timer(given.limit_s, lambda: os.killpg(process.pid, signal.SIGKILL))
    end.start()
    returns: list[float] = []
    try:
        for line in process.stdout:
            found = re.search(r"episodic_return=\[?([-+0-9.e]+)", line)
            if found is None:
                continue
            returns.append(float(found[1]))
            if len(returns) >= 100 and statistics.fmean(returns[-100:]) >= 200:
                return time.monotonic() - begin, True
    finally:
        end.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return given.limit_s, False


def timed(side: str, task: str, seed: int, limit_s: float) -> tuple[float, bool]:
    """Seconds of the process of one training, and whether it was solved."""
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
    """Trains every seed on each side by turns, each in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=list(ENVS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--sides", nargs="+", choices=("ours", *LIBRARIES))
    parser.add_argument("--cleanrl", metavar="FILE", help="CleanRL's dqn.py")
    parser.add_argument("--cleanrl-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--cleanrl-env", default="LunarLander-v2", help="of its Gymnasium")
    parser.add_argument("--one", choices=("ours", *LIBRARIES), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        if given.one == "ours":
            solved = ours(given.task, given.seed)
        else:
            solved = theirs(given.one, given.task, given.seed)
        raise SystemExit(0 if solved else 3)
    sides: list[str] = given.sides or [
        "ours",
        *(side for side, name in LIBRARIES.items() if importlib.util.find_spec(name) is not None),
    ]
    if given.cleanrl is not None and given.task == "lander":
        sides.append("cleanrl")
    found: dict[str, list[tuple[float, bool]]] = {side: [] for side in sides}
    for seed in range(1, given.seeds + 1):
        for side in sides:
            found[side].append(
                cleanrl(given, seed)
                if side == "cleanrl"
                else timed(side, given.task, seed, given.limit_s)
            )
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
