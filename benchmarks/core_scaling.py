"""What a training gains from more cores, and how well the tuning predicts it.

For each number of cores it measures both curves and splits the cores (`tune_cores`), trains with
that split, and prints the predicted rate, the measured rate, and the efficiency: steps per second
divided by the number of cores times the rate of one core that acts and learns alternately. Each
round measures every number of cores once; printed are medians over the rounds. The process is bound
to the cores that it counts.

    PYTHONPATH=python PYTHON benchmarks/core_scaling.py [--cores 1 2 4 8 16] [--seconds 2]
        [--rounds 5] [--hidden 256] [--synchronous] [--replay-shards 0]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
from collections import defaultdict

from reverie.agents import Trainer, TrainSettings, tune_cores

WARMUP = 2_000


def measured(algorithm: str, env: str, settings: TrainSettings, seconds: float) -> float:
    """Steps per second once learning has begun."""
    fields = dataclasses.replace(settings, steps=10**12, warmup_steps=WARMUP)
    with Trainer(algorithm, env, fields) as trainer:
        trainer.start()
        while trainer.progress().batches < 200:
            trainer.wait(0.005)
        begin = trainer.progress()
        trainer.wait(seconds)
        end = trainer.progress()
    return (end.batches - begin.batches) / (end.elapsed_s - begin.elapsed_s)


def one(given: argparse.Namespace) -> None:
    """One round on this process's cores: prints the split and both rates."""
    settings = TrainSettings(
        seed=1,
        hidden=(given.hidden, given.hidden),
        asynchronous=not given.synchronous,
        staleness_max=64,
        replay_shards=given.replay_shards,
    )
    tuning = tune_cores(given.algorithm, given.env, settings, cores=given.one)
    rate = measured(given.algorithm, given.env, tuning.settings, given.seconds)
    print(tuning.actor_cores, tuning.learner_cores, tuning.steps_per_s, rate)


def main() -> None:
    """Prints a line for each number of cores."""
    usable = sorted(os.sched_getaffinity(0))
    powers = [1 << i for i in range(len(usable).bit_length()) if 1 << i <= len(usable)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithm", default="ddqn")
    parser.add_argument("--env", default="LunarLander-v3")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--cores", type=int, nargs="+", default=powers)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--synchronous", action="store_true", help="one step of all learners")
    parser.add_argument("--replay-shards", type=int, default=0, help="tables of the replay")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        os.sched_setaffinity(0, usable[: given.one])
        one(given)
        return
    found: dict[int, list[list[float]]] = defaultdict(list)
    for _ in range(given.rounds):
        for cores in given.cores:
            command = [sys.executable, __file__, *sys.argv[1:], "--one", str(cores)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[cores].append([float(word) for word in done.stdout.split()[-4:]])
    base = statistics.median(row[3] for row in found[given.cores[0]]) / given.cores[0]
    way = "synchronous" if given.synchronous else "asynchronous"
    print(f"{given.algorithm}, {given.env}, 2x{given.hidden}, {way}")
    print("cores  actors+learners  predicted  measured  prediction off  efficiency")
    for cores, rows in found.items():
        rate = statistics.median(row[3] for row in rows)
        off = statistics.median(row[2] / row[3] - 1 for row in rows)
        split = f"{rows[-1][0]:.0f}+{rows[-1][1]:.0f}"
        predicted = statistics.median(row[2] for row in rows)
        print(
            f"{cores:>5}  {split:>15}  {predicted:>9,.0f}  {rate:>8,.0f}  {off:>+13.0%}"
            f"  {rate / base / cores:>10.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
