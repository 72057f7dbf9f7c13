"""LunarLander on all cores: actors and learners in C++ threads, the cores split by measurement.

The training itself is ``reverie.agents``; here are its settings, what is shown of it, and what it
leaves behind: the learning curve, the policy, and a landing as a moving picture.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from reverie.agents import Trainer, TrainSettings, tune_cores
from reverie.agents.cores import table
from reverie.agents.progress_lines import ProgressLines
from reverie.agents.run_folder import save_curve, save_episode
from reverie.agents.training import TrainResult, finish
from reverie.envs import native
from reverie.nn import Mlp

if TYPE_CHECKING:
    from rich.console import Console

ENVIRONMENT = "LunarLander-v3"
GOAL = 200.0
SETTINGS = TrainSettings(
    steps=400_000,
    hidden=(64, 64),
    learning_rate=1e-3,
    learning_rate_last_share=0.1,
    tau=0.005,
    n_step=3,
    reward_scale=0.1,
    epsilon_last=0.01,
    epsilon_share=0.12,
    stop_at_return=GOAL,
    # The policy of the moment at which the training ends may be a poor one: the best is kept.
    evaluation_interval=10_000,
    evaluation_episodes=10,
)

_LINE_INTERVAL_S = 2.0
_FINAL_EPISODES = 100
# Written by benchmarks/training.py --only 2x64 --record.
RECORDED = Path(__file__).parent / "recorded.json"


@dataclass(frozen=True)
class Landing:
    """What came of it."""

    result: TrainResult

    @property
    def is_reached(self) -> bool:
        """Whether the last 100 episodes of the training, or 100 without exploration, came to it."""
        return self.result.progress.end == "return reached" or self.result.greedy_return >= GOAL


def is_available() -> bool:
    """Whether this build has the environment, which needs Box2D."""
    return ENVIRONMENT in native.ids()


def beside(result: TrainResult, recorded: Mapping[str, Any]) -> Table:
    """This run over what was recorded of us and of others, somewhere else."""
    table = Table(
        title="LunarLander, a network of 2x64, batches of 64: steps/s, each with a gradient step",
        caption=f"recorded on {recorded['machine']}, load {recorded['load']}:\n"
        f"{recorded['command']}",
    )
    for name in ("", "median", "least", "most"):
        table.add_column(name, justify="right" if name else "left")
    run = result.progress
    table.add_row("this run, from its start", f"{run.steps / run.elapsed_s:,.0f}", style="bold")
    table.add_section()
    for name, rates in recorded["steps_per_s"].items():
        table.add_row(name, *(f"{one:,.0f}" for one in (median(rates), min(rates), max(rates))))
    return table


def run_lander(
    console: Console, seed: int, out: Path, settings: TrainSettings = SETTINGS
) -> Landing:
    """Trains until the goal or the steps' end; writes ``lander.png``, ``.gif`` and the policy.

    Args:
        console: for a line every two seconds, and what came of it.
        seed: of the training.
        out: an existing folder.
        settings: of the training; ``actors`` and ``learners`` are measured.
    """
    tuning = tune_cores("ddqn", ENVIRONMENT, dataclasses.replace(settings, seed=seed))
    console.print(table(tuning), markup=False)
    with Trainer("ddqn", ENVIRONMENT, tuning.settings) as trainer:
        lines = ProgressLines(trainer)
        trainer.start()
        while not trainer.wait(_LINE_INTERVAL_S):
            console.print(lines.line(trainer.progress()), markup=False, soft_wrap=True)
        landing = Landing(finish(trainer, _FINAL_EPISODES))
    result = landing.result
    shown = result.progress.mean_return
    console.print(
        f"LunarLander: a mean return of {'-' if shown is None else f'{shown:.0f}'} over the last "
        f"100 episodes, after {result.progress.steps:,} steps and "
        f"{result.progress.elapsed_s:.0f} s; "
        f"the best policy without exploration {result.greedy_return:.0f} over "
        f"{_FINAL_EPISODES} new ones "
        f"({sum(value >= GOAL for value in result.greedy_returns)} of them at least {GOAL:.0f})",
        soft_wrap=True,
    )
    console.print(beside(result, json.loads(RECORDED.read_text())))
    result.save(out / "lander")
    save_curve(out / "lander.png", result.episodes, result.evaluations)
    assert isinstance(result.policy, Mlp)  # the native learner's
    save_episode(out / "lander.gif", "ddqn", ENVIRONMENT, {}, result.policy)
    console.print(
        f"Learning curve: {out / 'lander.png'}, a landing: {out / 'lander.gif'}",
        markup=False,
        soft_wrap=True,
    )
    return landing
