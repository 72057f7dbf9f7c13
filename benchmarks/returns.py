"""Final returns after equal numbers of environment steps, compared with Stable-Baselines3.

Both sides have the same networks, batches, learning rates, schedules and numbers of steps: the
defaults of our algorithms. Ours draws by priority and uniformly; theirs draws uniformly, and has no
double DQN, so its DQN is compared with both. A run's figure is the mean return of 100 episodes
without exploration after its last step. Printed for each case and side: the interquartile mean over
seeds with its 95 % bootstrap interval, and whether ours is below theirs.

    PYTHONPATH=python PYTHON benchmarks/returns.py [--seeds 5] [--jobs 2] [--share 1]
        [--limit-s 3600] [--only WORDS] [--results FILE]

Each run is a separate process with one thread; ``--jobs`` run at a time, and runs that have not
ended at the limit are left out. ``--results`` names a file to which each run's figure is added;
runs whose figures it has are not repeated, so that the table can be completed piece by piece.
``--share`` multiplies the numbers of steps. PYTHON has stable-baselines3 (make .venv-peers/made);
without it only ours is measured. With all seeds and steps the peer takes about 100 minutes of one
core.

Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

EPISODES = 100  # the mean of 20 would vary by 25 on Pendulum
# Algorithm, environment, steps.
CASES = [
    ("dqn", "CartPole-v1", 50_000),
    ("ddqn", "CartPole-v1", 50_000),
    ("dqn", "LunarLander-v3", 100_000),
    ("ddqn", "LunarLander-v3", 100_000),
    ("ddpg", "Pendulum-v1", 20_000),
    ("td3", "Pendulum-v1", 20_000),
    ("sac", "Pendulum-v1", 20_000),
    ("ddpg", "LunarLanderContinuous-v3", 50_000),
    ("td3", "LunarLanderContinuous-v3", 50_000),
    ("sac", "LunarLanderContinuous-v3", 50_000),
]
OURS = ("prioritised", "uniform")


def ours(algorithm: str, env: str, steps: int, side: str, seed: int) -> float:
    """One training on one thread."""
    from reverie.agents import Trainer, TrainSettings

    settings = TrainSettings(seed=seed, steps=steps, actors=0, prioritized=side == "prioritised")
    with Trainer(algorithm, env, settings) as trainer:
        trainer.start()
        trainer.wait()
        return statistics.fmean(trainer.evaluate(episodes=EPISODES, seed=1_000_000 + seed))


def theirs(algorithm: str, env: str, steps: int, seed: int) -> float:
    """The same with Stable-Baselines3."""
    import gymnasium
    import stable_baselines3
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.noise import NormalActionNoise

    from reverie.agents import TrainSettings

    torch.set_num_threads(1)
    s = TrainSettings.of(algorithm)
    made = Monitor(gymnasium.make(env))
    options = {
        "learning_rate": s.learning_rate,
        "batch_size": s.batch_size,
        "buffer_size": s.capacity,
        "learning_starts": s.warmup_steps,
        "gamma": s.gamma,
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": list(s.hidden)},
    }
    if algorithm in ("dqn", "ddqn"):
        options |= {
            "tau": s.tau or 1.0,
            "target_update_interval": 1 if s.tau else s.target_interval,
            "exploration_fraction": s.epsilon_share,
            "exploration_initial_eps": s.epsilon_first,
            "exploration_final_eps": s.epsilon_last,
            "max_grad_norm": s.gradient_norm_max,
        }
    else:
        options["tau"] = s.tau
    if algorithm in ("ddpg", "td3"):
        width = made.action_space.shape[0]
        options["action_noise"] = NormalActionNoise(np.zeros(width), s.noise_sigma * np.ones(width))
    if algorithm == "td3":
        options |= {
            "policy_delay": s.policy_delay,
            "target_policy_noise": s.target_noise,
            "target_noise_clip": s.target_noise_max,
        }
    kind = getattr(stable_baselines3, {"ddqn": "DQN"}.get(algorithm, algorithm.upper()))
    model = kind("MlpPolicy", made, seed=seed, device="cpu", **options)
    model.learn(steps)
    tried = Monitor(gymnasium.make(env))
    tried.reset(seed=1_000_000 + seed)
    return float(evaluate_policy(model, tried, EPISODES)[0])


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the middle half along the last axis, with fractions of the values at its ends."""
    ordered = np.sort(values, axis=-1)
    count = ordered.shape[-1]
    place = np.arange(count)
    share = np.clip(np.minimum(place + 1, 0.75 * count) - np.maximum(place, 0.25 * count), 0, 1)
    return (ordered * share).sum(-1) / share.sum()


def interval(values: list[float]) -> tuple[float, float, float]:
    """The interquartile mean, and the ends of its 95 % bootstrap interval."""
    given = np.asarray(values)
    drawn = np.random.default_rng(0).choice(given, (10_000, len(given)))
    low, high = np.quantile(interquartile_mean(drawn), [0.025, 0.975])
    return float(interquartile_mean(given)), float(low), float(high)


@dataclass
class Run:
    """A running process."""

    case: tuple[str, str, int]
    side: str
    seed: int
    process: subprocess.Popen[str]


def steps_of(case: tuple[str, str, int], share: float) -> int:
    """The environment steps of a run."""
    return max(1_000, round(case[2] * share))


def recorded(given: argparse.Namespace) -> dict[tuple[str, str, int, str, int], float]:
    """The figures in the file: by algorithm, environment, steps, side and seed."""
    if given.results is None or not given.results.exists():
        return {}
    lines = [json.loads(line) for line in given.results.read_text().splitlines()]
    return {(*line[:5],): line[5] for line in lines}


def run_all(given: argparse.Namespace, sides: list[str]) -> dict[tuple[str, str, str], list[float]]:
    """The final returns of the seeds, by algorithm, environment and side."""
    known = recorded(given)
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    waiting = []
    for seed in range(1, given.seeds + 1):
        for side in sides:
            for case in CASES:
                if any(word not in f"{case[0]} {case[1]}".split() for word in given.only.split()):
                    continue
                if side == "theirs" and case[0] == "ddqn":
                    continue  # theirs has one DQN, which is compared with two of ours
                figure = known.get((case[0], case[1], steps_of(case, given.share), side, seed))
                if figure is None:
                    waiting.append((case, side, seed))
                else:
                    found[case[0], case[1], side].append(figure)
    # The longest runs go first.
    waiting.sort(key=lambda one: (one[1] == "theirs", one[0][2]), reverse=True)
    running: list[Run] = []
    until = time.monotonic() + given.limit_s
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    while (waiting or running) and time.monotonic() < until:
        while waiting and len(running) < given.jobs:
            case, side, seed = waiting.pop(0)
            words = [side, case[0], case[1], str(steps_of(case, given.share)), str(seed)]
            process = subprocess.Popen(
                [sys.executable, __file__, "--one", *words],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            running.append(Run(case, side, seed, process))
        time.sleep(0.05)
        for run in [run for run in running if run.process.poll() is not None]:
            running.remove(run)
            said = run.process.communicate()[0]
            if run.process.returncode != 0:
                raise SystemExit(f"{run.case} {run.side} ended with {run.process.returncode}")
            figure = float(said.split()[-1])
            found[run.case[0], run.case[1], run.side].append(figure)
            steps = steps_of(run.case, given.share)
            line = [run.case[0], run.case[1], steps, run.side, run.seed, figure]
            print(*line, file=sys.stderr, flush=True)
            if given.results is not None:
                with given.results.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    for run in running:
        run.process.kill()
        run.process.wait()
    if running or waiting:
        print(f"{len(running) + len(waiting)} runs were left out at the limit", file=sys.stderr)
    return found


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--limit-s", type=float, default=3_600.0)
    parser.add_argument("--only", default="", metavar="WORDS", help='as "sac Pendulum-v1"')
    parser.add_argument("--results", type=Path, metavar="FILE")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        side, algorithm, env, steps, seed = given.one
        if side == "theirs":
            print(theirs(algorithm, env, int(steps), int(seed)))
        else:
            print(ours(algorithm, env, int(steps), side, int(seed)))
        return
    has_peer = importlib.util.find_spec("stable_baselines3") is not None
    found = run_all(given, [*OURS, *(["theirs"] if has_peer else [])])
    print("| case | side | seeds | interquartile mean | 95 % interval | below theirs |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        algorithm, env, _ = case
        peer = found.get(("dqn" if algorithm == "ddqn" else algorithm, env, "theirs"))
        for side in (*OURS, "theirs"):
            values = peer if side == "theirs" else found.get((algorithm, env, side))
            if not values:
                continue
            mean, low, high = interval(values)
            below = ""
            if peer and side != "theirs":
                below = "yes" if mean < interval(peer)[1] else "no"
            print(
                f"| {algorithm}, {env}, {steps_of(case, given.share):,} steps | {side} | "
                f"{len(values)} | {mean:.1f} | {low:.1f} to {high:.1f} | {below} |"
            )


if __name__ == "__main__":
    main()
