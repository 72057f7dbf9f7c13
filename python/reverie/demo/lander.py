"""LunarLander on all cores: actors and learners in C++ threads, the cores split by measurement.

The training itself is ``reverie.agents``; here are its settings, what is shown of it, and what it
leaves behind: the learning curve, the policy, and a landing as a moving picture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from rich.console import Console

from reverie.agents import Episode, Trainer, TrainSettings, tune_cores
from reverie.agents.cores import table
from reverie.agents.progress_lines import ProgressLines
from reverie.agents.training import TrainResult, finish
from reverie.envs import native
from reverie.nn import Mlp

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
)

_LINE_INTERVAL_S = 2.0
_FINAL_EPISODES = 100
_FRAMES_A_PICTURE = 4  # steps
_PICTURE_MS = 80
_LANDING_SEED = 7


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
        f"without exploration {result.greedy_return:.0f} over {_FINAL_EPISODES} new ones "
        f"({sum(value >= GOAL for value in result.greedy_returns)} of them at least {GOAL:.0f})",
        soft_wrap=True,
    )
    result.save(out / "lander")
    draw_curve(result.episodes, out / "lander.png")
    assert isinstance(result.policy, Mlp)  # the native learner's
    record_landing(result.policy, out / "lander.gif")
    console.print(
        f"Learning curve: {out / 'lander.png'}, a landing: {out / 'lander.gif'}",
        markup=False,
        soft_wrap=True,
    )
    return landing


def draw_curve(episodes: Sequence[Episode], path: Path) -> None:
    """Writes a PNG: each episode's return over the steps, and the mean of the last 100."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = [episode.step for episode in episodes]
    returns = [episode.episode_return for episode in episodes]
    means = [fmean(returns[max(0, i - 99) : i + 1]) for i in range(len(returns))]
    axes.plot(steps, returns, ".", color="#9db4cf", markersize=3)
    axes.plot(steps, means, color="#1f4e79", linewidth=2)
    axes.axhline(GOAL, linestyle=":", color="#666666")
    axes.set_xlabel("steps")
    axes.set_ylabel("return of an episode, mean of 100")
    axes.set_title("LunarLander, Double DQN")
    figure.savefig(path, dpi=110)


def record_landing(policy: Mlp, path: Path) -> None:
    """Writes a GIF of one episode without exploration."""
    from PIL import Image

    pictures = []
    with native.NativePool(ENVIRONMENT, 1, num_threads=0, seed=_LANDING_SEED) as pool:
        batch = pool.reset().result()
        for step in range(1000):
            if step % _FRAMES_A_PICTURE == 0:
                picture = Image.fromarray(pool.render())
                pictures.append(picture.resize((picture.width // 2, picture.height // 2)))
            action = np.argmax(policy(batch.observation), axis=1)
            batch = pool.step(action).result()
            if batch.terminated[0] or batch.truncated[0]:
                break
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=_PICTURE_MS, loop=0)
