"""CartPole by the native learner: what is learned by, in both acts, and the first of them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reverie.agents import Trainer, TrainSettings
from reverie.agents.progress_lines import ProgressLines
from reverie.agents.training import finish

ENVIRONMENT = "CartPole-v1"
FINAL_EPISODES = 100
_LINE_INTERVAL_S = 1.0
_EVALUATIONS = 20

# Random actions fade over half of the training: over a tenth, the cart meets too few of the states
# far from the middle. Rewards of 0.1 keep errors where Huber's loss is quadratic.
SETTINGS = TrainSettings(
    hidden=(128, 128),
    learning_rate=1e-3,
    learning_rate_last_share=0.0,
    tau=0.01,
    n_step=3,
    reward_scale=0.1,
    epsilon_last=0.04,
    epsilon_share=0.5,
    warmup_steps=1_000,
    capacity=50_000,
    priority_epsilon=1e-4,
    evaluation_episodes=10,
)


@dataclass(frozen=True)
class Outcome:
    """What a training came to: ``greedy_*`` over episodes that it never saw."""

    seed: int
    steps: int
    seconds: float
    kept_step: int
    greedy_mean: float
    greedy_least: float
    curve: list[tuple[int, float]]
    """Steps, and the mean return of the episodes without exploration that were tried there."""


def settings_of(seed: int, steps: int) -> TrainSettings:
    """Those of one training; its policy is tried twenty times."""
    return dataclasses.replace(
        SETTINGS, seed=seed, steps=steps, evaluation_interval=max(1, steps // _EVALUATIONS)
    )


def kept(curve: Sequence[tuple[int, float]]) -> int:
    """The step of the policy that is kept: the best, the latest of equals; 0 for none."""
    return max(curve, key=lambda at: (at[1], at[0]), default=(0, 0.0))[0]


def train(seeds: Sequence[int], steps: int, say: Callable[[str], None]) -> list[Outcome]:
    """Trains a policy for each seed, one thread each, as many at a time as there are cores."""
    waiting = list(seeds)
    running: list[tuple[Trainer, ProgressLines]] = []
    outcomes: list[Outcome] = []
    lined = time.monotonic()
    with contextlib.ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < len(os.sched_getaffinity(0)):
                settings = settings_of(waiting.pop(0), steps)
                trainer = stack.enter_context(Trainer("ddqn", ENVIRONMENT, settings))
                running.append((trainer, ProgressLines(trainer)))
                trainer.start()
            if running[0][0].wait(0.02):
                outcomes.append(_outcome(running.pop(0)[0], say))
            elif time.monotonic() - lined >= _LINE_INTERVAL_S:
                lined = time.monotonic()
                for trainer, lines in running:
                    say(f"seed {trainer.settings.seed}: {lines.line(trainer.progress())}")
    return outcomes


def _outcome(trainer: Trainer, say: Callable[[str], None]) -> Outcome:
    result = finish(trainer, FINAL_EPISODES)
    outcome = Outcome(
        seed=trainer.settings.seed or 0,
        steps=result.progress.steps,
        seconds=result.progress.elapsed_s,
        kept_step=kept(result.evaluations),
        greedy_mean=result.greedy_return,
        greedy_least=min(result.greedy_returns),
        curve=result.evaluations,
    )
    say(
        f"seed {outcome.seed}: done after {outcome.seconds:.1f} s, greedy return "
        f"{outcome.greedy_mean:.1f} over {FINAL_EPISODES} new episodes"
    )
    return outcome
