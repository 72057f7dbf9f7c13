"""Whole trainings: environment steps a second, each with one gradient step behind it.

Double DQN with prioritised replay on LunarLander in several ways of sharing the work; DDPG, TD3 and
SAC on Pendulum; batches of 64. One item is an environment step, its insertion, a batch drawn,
a gradient step and the new priorities. Where stable-baselines3 is installed, its DQN (uniform
replay) and its DDPG, TD3 and SAC stand beside, in turn in the same run.

    PYTHONPATH=python PYTHON benchmarks/training.py [SECONDS [ROUNDS]] [--only WORDS]
        [--record FILE]

``--only`` takes the cases whose name has these words, as 2x64. ``--record`` writes what was
measured, on which machine and by which command; of 2x64 to python/reverie/demo/recorded.json,
which `reverie demo` shows beside its own.

Estimate for 2x256, 4 actions: 43.7 million floating-point operations a gradient step, 340 us at 128
a ns; nearly half of them meet a zero that a ReLU left, and are left out, so 200 us, and 100 for
passes over the parameters and for lists; all else is under 50 us. DDPG takes twice that, TD3 and
SAC three times.
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
    """Steps a second once batches are learned from."""
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
    """The same of stable-baselines3, on one thread: more gain it nothing here, and wait."""
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
    """What was measured on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    """Prints a line for each case: the median, and the least and the most."""
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
