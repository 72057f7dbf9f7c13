"""Whole trainings: environment steps per second, with one gradient step for each.

Double DQN with prioritised replay on LunarLander, with several ways to share the work; DDPG, TD3
and SAC on Pendulum; batches of 64. One item is an environment step, its insertion, a drawn batch, a
gradient step and the new priorities. If stable-baselines3 is installed, its DQN (uniform replay)
and its DDPG, TD3 and SAC are measured by turns in the same run.

    PYTHONPATH=python PYTHON benchmarks/training.py [SECONDS [ROUNDS]] [--only WORDS]
        [--record FILE]

``--only`` selects the cases whose name has these words, such as 2x64. ``--record`` writes the
results, the machine and the command; those of 2x64 to python/reverie/demo/recorded.json, which
`reverie demo` shows with its own.

Estimate for 2x256, 4 actions: 43.7 million floating-point operations per gradient step, 340 us at
128 per ns. Nearly half of them have a zero from a ReLU as operand and are skipped, so 200 us, and
100 us for passes over the parameters and for lists; everything else is below 50 us. DDPG takes
twice that, TD3 and SAC three times.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import statistics
import sys
import time
from pathlib import Path

from reverie.agents import Trainer, TrainSettings

BATCH = 64
# Name, algorithm, environment, hidden layers, settings.
CASES = [
    ("ddqn 2x256, one thread", "ddqn", "LunarLander-v3", 256, {}),
    ("ddqn 2x256, 1 actor, 1 learner", "ddqn", "LunarLander-v3", 256, {"actors": 1}),
    (
        "ddqn 2x256, 1 actor, 2 asynchronous",
        "ddqn",
        "LunarLander-v3",
        256,
        {"actors": 1, "learners": 2, "asynchronous": True},
    ),
    ("ddqn 2x64, one thread", "ddqn", "LunarLander-v3", 64, {}),
    ("ddqn 2x64, 1 actor, 1 learner", "ddqn", "LunarLander-v3", 64, {"actors": 1}),
    *(
        (
            f"{algorithm} 2x256, 1 actor, {name}",
            algorithm,
            "Pendulum-v1",
            256,
            {"actors": 1, "batch_size": BATCH, **learners},
        )
        for algorithm in ("ddpg", "td3", "sac")
        for name, learners in (
            ("1 learner", {}),
            ("2 asynchronous", {"learners": 2, "asynchronous": True}),
        )
    ),
]
WARMUP = 1_000


def ours(
    algorithm: str, env: str, width: int, settings: dict[str, int | bool], seconds: float
) -> float:
    """Steps per second once learning has begun."""
    fields = TrainSettings(
        seed=1, steps=10**12, hidden=(width, width), warmup_steps=WARMUP, **settings
    )
    with Trainer(algorithm, env, fields) as trainer:
        trainer.start()
        while trainer.progress().batches < 50:
            trainer.wait(0.005)
        begin = trainer.progress()
        trainer.wait(seconds)
        end = trainer.progress()
    return (end.batches - begin.batches) / (end.elapsed_s - begin.elapsed_s)


def theirs(algorithm: str, env: str, width: int, seconds: float) -> float:
    """The same with stable-baselines3, on one thread, since more do not help here, and wait."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    torch.set_num_threads(1)

    class Clock(BaseCallback):
        """Ends the training when the time is up."""

        def __init__(self) -> None:
            super().__init__()
            self.begin = (0, 0.0)
            self.rate = 0.0

        def _on_step(self) -> bool:
            now = time.monotonic()
            if self.num_timesteps == WARMUP + 50:
                self.begin = (self.num_timesteps, now)
            elapsed = now - self.begin[1]
            if self.num_timesteps <= WARMUP + 50 or elapsed < seconds:
                return True
            self.rate = (self.num_timesteps - self.begin[0]) / elapsed
            return False

    kind = {"ddqn": "DQN"}.get(algorithm, algorithm.upper())
    options = {
        "train_freq": 1,
        "gradient_steps": 1,
        "learning_starts": WARMUP,
        "seed": 1,
        "batch_size": BATCH,
    }
    model = getattr(stable_baselines3, kind)(
        "MlpPolicy", env, policy_kwargs={"net_arch": [width, width]}, device="cpu", **options
    )
    clock = Clock()
    model.learn(10**9, callback=clock)
    return clock.rate


def machine() -> str:
    """The machine of the measurement."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    """Prints a line for each case: the median, the least and the most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float, nargs="?", default=2.0)
    parser.add_argument("rounds", type=int, nargs="?", default=3)
    parser.add_argument("--only", default="", metavar="WORDS")
    parser.add_argument("--record", type=Path, metavar="FILE")
    given = parser.parse_args()
    peer_name = ""
    if importlib.util.find_spec("stable_baselines3") is not None:
        peer_name = f"stable-baselines3 {importlib.metadata.version('stable-baselines3')}"
    load = os.getloadavg()[0]
    rates: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        for name, algorithm, env, width, settings in CASES:
            if given.only not in name:
                continue
            rates.setdefault(name, []).append(ours(algorithm, env, width, settings, given.seconds))
            peer = f"{peer_name}, {algorithm} 2x{width}"
            if peer_name and len(rates.get(peer, [])) < len(rates[name]):
                rates.setdefault(peer, []).append(theirs(algorithm, env, width, given.seconds))
    for name, values in rates.items():
        print(
            f"{name:<40} {statistics.median(values):>8,.0f} steps/s "
            f"({min(values):,.0f} to {max(values):,.0f})"
        )
    if given.record is not None:
        written = {
            "machine": machine(),
            "load": f"{load:.0f} to {os.getloadavg()[0]:.0f}",
            "command": " ".join(["PYTHON benchmarks/training.py", *sys.argv[1:]]),
            "steps_per_s": {name: [round(one) for one in values] for name, values in rates.items()},
        }
        given.record.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
