"""What learns: the network, how often it is tried while it does, and what it comes to.

Where its batches come from is the affair of ``training`` (a store in the same thread) and of
``served`` (a server, filled by actors in processes of their own).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import reverie
from reverie.demo.double_dqn import DoubleDqn, Windows
from reverie.demo.evaluation import greedy_returns
from reverie.demo.messages import Evaluation, Message, Outcome
from reverie.demo.network import FloatArray

ENVIRONMENT = "CartPole-v1"


@dataclass(frozen=True)
class Settings:
    """What is learned by. The values suit CartPole; the comments say what they weigh."""

    gamma: float = 0.99
    window_steps: int = 3
    reward_scale: float = 0.1
    """Brings TD errors below 1, where Huber's loss is quadratic: without it every early gradient
    is clipped to one length, and values take twice as many steps to grow."""
    hidden: tuple[int, ...] = (64, 64)
    batch_size: int = 64
    learning_rate: float = 1e-3
    """Falls linearly to 0, so that the last networks change little."""
    target_rate: float = 0.01
    items_max: int = 50_000
    warm_up_items: int = 1_000
    priority_exponent: float = 0.6
    priority_least: float = 1e-4
    """Added to the size of a TD error, so that a window of error 0 can be drawn again."""
    beta: float = 0.4
    """The exponent of the importance weights at the start; rises linearly to 1."""
    epsilon: float = 0.04
    """The share of random actions after ``epsilon_share`` of the steps."""
    epsilon_share: float = 0.5
    """Cut down to a tenth, the cart meets too few of the states far from the middle, and one
    seed in five goes on drifting off the track."""
    checks: int = 20
    """How often the greedy policy is tried while training."""
    check_episodes: int = 10
    final_episodes: int = 100

    def epsilon_at(self, share: float) -> float:
        """The share of random actions, ``share`` of the steps being done."""
        return max(self.epsilon, 1.0 - (1.0 - self.epsilon) * share / self.epsilon_share)

    def beta_at(self, share: float) -> float:
        """The exponent of the importance weights, ``share`` of the steps being done."""
        return self.beta + (1.0 - self.beta) * share


class Streams:
    """The generators of a training, one for each thing that is drawn, from its seed."""

    def __init__(self, seed: int, *, actors: int = 0) -> None:
        learner, actor, check, final, store, *others = (
            np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(5 + actors)
        )
        self.learner = learner
        self.actor = actor
        self.check = check
        self.final = final
        self.store_seed = int(store.integers(2**63))
        self.actors = others


def network_sizes(env: gymnasium.Env, settings: Settings) -> tuple[int, ...]:
    """The widths of the network, from the observation to the actions."""
    return (env.observation_space.shape[0], *settings.hidden, int(env.action_space.n))


class Learning:
    """One network in training. Not thread-safe.

    The network is tried ``settings.checks`` times on greedy episodes. The one that did best is
    kept, the latest of equals, and evaluated in other episodes: their seeds, like those of the
    training and of the checks, come from streams of their own.

    Args:
        seed: of the training.
        steps: of the environment, in all.
        tell: hears of the checks.
        settings: what is learned by.
        streams: what is drawn from.
    """

    def __init__(
        self,
        seed: int,
        steps: int,
        tell: Callable[[Message], None],
        settings: Settings,
        streams: Streams,
    ) -> None:
        self._seed = seed
        self._steps = steps
        self._tell = tell
        self._settings = settings
        self._streams = streams
        self._envs = [gymnasium.make(ENVIRONMENT) for _ in range(settings.check_episodes)]
        self._learner = DoubleDqn(
            network_sizes(self._envs[0], settings),
            streams.learner,
            target_rate=settings.target_rate,
        )
        self._check_every = max(1, steps // settings.checks)
        self._best_return = -np.inf
        self._best_step = 0
        self._best_parameters = self.parameters.copy()
        self.loss: float | None = None
        """The loss of the last batch."""

    def save(self, path: Path, step: int, **more: float) -> None:
        """Writes all that it knows after ``step``, and some numbers, to a file, whole or not."""
        about = {
            "step": step,
            "best_return": self._best_return,
            "best_step": self._best_step,
            "checks": self._streams.check.bit_generator.state,
            **more,
        }
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            arrays: dict[str, Any] = {"about": json.dumps(about), "best": self._best_parameters}
            np.savez(file, **(arrays | self._learner.state))
        new.replace(path)

    def load(self, path: Path) -> dict[str, Any]:
        """Goes on from what `save` wrote; gives the step and the numbers."""
        with np.load(path) as saved:
            about: dict[str, Any] = json.loads(str(saved["about"]))
            self._best_parameters[:] = saved["best"]
            self._learner.restore(saved)
        self._best_return = about.pop("best_return")
        self._best_step = about.pop("best_step")
        self._streams.check.bit_generator.state = about.pop("checks")
        return about

    @property
    def parameters(self) -> FloatArray:
        """The parameters of the network that acts, in one flat array."""
        return self._learner.online.parameters

    def act(self, obs: FloatArray) -> int:
        """The greedy action for one observation."""
        return self._learner.act(obs)

    def learn(self, batch: reverie.Batch, weights: FloatArray, step: int) -> FloatArray:
        """One gradient step; returns the new priorities of the batch's items, ``[B]``."""
        data = batch.data
        data["reward"] *= self._settings.reward_scale
        td_error, self.loss = self._learner.learn(
            Windows(**data),
            weights,
            learning_rate=self._settings.learning_rate * (1.0 - step / self._steps),
        )
        return np.abs(td_error) + np.float32(self._settings.priority_least)

    def check(self, step: int) -> None:
        """Tries the greedy policy, where it is time to."""
        if step % self._check_every != 0:
            return
        returns = self._greedy_returns(self._streams.check, self._settings.check_episodes)
        greedy = float(returns.mean())
        if greedy >= self._best_return:
            self._best_return = greedy
            self._best_step = step
            self._best_parameters[:] = self.parameters
        self._tell(Evaluation(self._seed, step, greedy))

    def outcome(self, *, seconds: float, samples_per_insert: float) -> Outcome:
        """The result of the training: evaluates the network that was kept."""
        self.parameters[:] = self._best_parameters
        returns = self._greedy_returns(self._streams.final, self._settings.final_episodes)
        return Outcome(
            seed=self._seed,
            steps=self._steps,
            seconds=seconds,
            samples_per_insert=samples_per_insert,
            kept_step=self._best_step,
            greedy_return_mean=float(returns.mean()),
            greedy_return_min=float(returns.min()),
            greedy_episodes=len(returns),
        )

    def _greedy_returns(self, rng: np.random.Generator, episodes: int) -> NDArray[np.float64]:
        """The return of each episode, ``[episodes]``, begun with seeds that ``rng`` draws."""
        envs = self._envs
        rounds = [
            greedy_returns(
                self._learner.online,
                envs[: min(len(envs), episodes - done)],
                [int(s) for s in rng.integers(2**31, size=min(len(envs), episodes - done))],
            )
            for done in range(0, episodes, len(envs))
        ]
        return np.concatenate(rounds)


def samples_per_insert(info: reverie.TableInfo) -> float:
    """How often an item was sampled so far, on average."""
    limiter = info.rate_limiter_info
    inserts = limiter.insert_stats.completed
    return float(limiter.sample_stats.completed / inserts) if inserts else 0.0
