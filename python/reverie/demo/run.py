"""A whole run: train the seeds, show how they fare, report."""

from __future__ import annotations

import math
import time

from rich.console import Console

from reverie.demo.crew import Crew, core_count
from reverie.demo.messages import Evaluation, Failure, Outcome
from reverie.demo.options import FULL_STEPS, Options
from reverie.demo.progress import ProgressView

GOAL = 400.0
GOAL_SHARE = 0.8


def run(options: Options) -> int:
    """Runs the demonstration; returns the exit status, 0 if every training came to its end.

    A run of the full length must also reach the goal: a greedy return of 400 in four of five
    seeds.
    """
    console = Console(highlight=False)
    picture = options.out / "learning-curve.png"
    options.out.mkdir(parents=True, exist_ok=True)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    curves: dict[int, list[Evaluation]] = {seed: [] for seed in seeds}
    outcomes: list[Outcome] = []
    failures: list[Failure] = []
    size = min(options.seeds, core_count())
    console.print(
        f"Double DQN, prioritised 3-step replay in an embedded store, CartPole-v1: "
        f"{_count(options.seeds, 'seed')} of {options.steps:,} steps, {size} at a time",
        soft_wrap=True,
    )
    begin = time.perf_counter()
    with (
        Crew(seeds, options.steps, size=size) as crew,
        ProgressView(console, seeds, options.steps) as view,
    ):
        for message in crew.messages():
            view.show(message)
            if isinstance(message, Evaluation):
                curves[message.seed].append(message)
            elif isinstance(message, Outcome):
                outcomes.append(message)
            elif isinstance(message, Failure):
                failures.append(message)
    for failure in failures:
        console.print(f"seed {failure.seed} failed:\n{failure.text}", markup=False, soft_wrap=True)
    if not outcomes:
        return 1
    # Only now, since matplotlib takes a while to load, and to unload after a Ctrl-C.
    from reverie.demo.report import draw_learning_curves, outcome_table

    console.print(outcome_table(outcomes))
    draw_learning_curves(curves, GOAL, picture)
    console.print(f"Learning curves: {picture}", markup=False, soft_wrap=True)
    reached = sum(outcome.greedy_return_mean >= GOAL for outcome in outcomes)
    console.print(
        f"Greedy return of at least {GOAL:.0f} in {reached} of {_count(options.seeds, 'seed')}, "
        f"{time.perf_counter() - begin:.0f} s in all",
        soft_wrap=True,
    )
    is_full = options.steps >= FULL_STEPS
    missed = is_full and reached < math.ceil(GOAL_SHARE * options.seeds)
    return 1 if failures or missed else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
