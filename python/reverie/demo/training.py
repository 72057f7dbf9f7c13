"""One training: act, sample, learn, write the priorities back.

Each step of the environment is followed by one gradient step. Both sides meet in the store
alone: the actor appends steps and creates items, the learner samples batches and updates
priorities. They take turns in one thread, so a seed repeats its run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import numpy as np
from numpy.typing import NDArray

import reverie
from reverie.demo.actor import Actor
from reverie.demo.double_dqn import DoubleDqn, Windows
from reverie.demo.evaluation import greedy_returns
from reverie.demo.messages import Evaluation, Message, Outcome, Progress

ENVIRONMENT = "CartPole-v1"
_TABLE = "replay"


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
    """Of the importance weights; rises linearly to 1."""
    epsilon: float = 0.04
    """Of the random actions, reached after ``epsilon_share`` of the steps."""
    epsilon_share: float = 0.5
    """Cut down to a tenth, the cart meets too few of the states far from the middle, and one
    seed in five goes on drifting off the track."""
    checks: int = 20
    """How often the greedy policy is tried while training."""
    check_episodes: int = 10
    final_episodes: int = 100


def train(
    seed: int,
    steps: int,
    tell: Callable[[Message], None],
    settings: Settings | None = None,
) -> Outcome:
    """Trains one network for ``steps`` steps; ``tell`` hears how it goes.

    The network is tried ``settings.checks`` times on greedy episodes. The one that did best is
    kept, the latest of equals, and judged by other episodes: their seeds, like those of the
    training and of the checks, come from streams of their own.
    """
    return _Training(seed, steps, tell, settings or Settings()).run()


class _Training:
    def __init__(
        self, seed: int, steps: int, tell: Callable[[Message], None], settings: Settings
    ) -> None:
        streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(5)]
        learner_rng, actor_rng, self._check_rng, self._final_rng, store_rng = streams
        self._seed = seed
        self._steps = steps
        self._tell = tell
        self._settings = settings
        self._actor_rng = actor_rng
        self._store_seed = int(store_rng.integers(2**63))
        env = gymnasium.make(ENVIRONMENT)
        self._env = env
        self._check_envs = [gymnasium.make(ENVIRONMENT) for _ in range(settings.check_episodes)]
        sizes = (env.observation_space.shape[0], *settings.hidden, int(env.action_space.n))
        self._learner = DoubleDqn(sizes, learner_rng, target_rate=settings.target_rate)
        self._best_return = -np.inf
        self._best_step = 0
        self._best_parameters = self._learner.online.parameters.copy()
        self._recent_returns: deque[float] = deque(maxlen=20)
        self._loss: float | None = None
        self._age_s: float | None = None

    def run(self) -> Outcome:
        table = reverie.Table(
            name=_TABLE,
            sampler=reverie.selectors.Prioritized(
                self._settings.priority_exponent, seed=self._store_seed
            ),
            remover=reverie.selectors.Fifo(),
            max_size=self._settings.items_max,
            rate_limiter=reverie.rate_limiters.MinSize(self._settings.warm_up_items),
        )
        with reverie.Store([table]) as store:
            return self._run(store.client())

    def _run(self, client: reverie.Client) -> Outcome:
        settings = self._settings
        check_every = max(1, self._steps // settings.checks)
        begin = time.perf_counter()
        last_time, last_step = begin, 0
        with client.trajectory_writer(num_keep_alive_refs=settings.window_steps + 1) as writer:
            actor = Actor(
                self._env,
                writer,
                table=_TABLE,
                window_steps=settings.window_steps,
                gamma=settings.gamma,
                rng=self._actor_rng,
            )
            self._check(0)
            for step in range(1, self._steps + 1):
                episode_return = actor.step(self._learner.act, self._epsilon(step))
                if episode_return is not None:
                    self._recent_returns.append(episode_return)
                if step > settings.warm_up_items + settings.window_steps:
                    self._learn(client, step)
                if step % check_every == 0:
                    self._check(step)
                if step % 250 == 0:
                    now = time.perf_counter()
                    self._tell_progress(client, step, (step - last_step) / (now - last_time))
                    last_time, last_step = now, step
        seconds = time.perf_counter() - begin
        return self._judge(client, seconds)

    def _epsilon(self, step: int) -> float:
        share = step / (self._settings.epsilon_share * self._steps)
        return max(self._settings.epsilon, 1.0 - (1.0 - self._settings.epsilon) * share)

    def _learn(self, client: reverie.Client, step: int) -> None:
        settings = self._settings
        share = step / self._steps
        batch = client.sample_batch(
            _TABLE,
            settings.batch_size,
            timeout_s=5.0,
            beta=settings.beta + (1.0 - settings.beta) * share,
        )
        data = batch.data
        data["reward"] *= settings.reward_scale
        windows = Windows(**data)
        assert batch.weights is not None  # since beta was given
        td_error, loss = self._learner.learn(
            windows, batch.weights, learning_rate=settings.learning_rate * (1.0 - share)
        )
        client.update_priorities(_TABLE, batch.tickets, np.abs(td_error) + settings.priority_least)
        self._loss = loss
        self._age_s = float(batch.ages_s.mean())

    def _greedy_returns(self, rng: np.random.Generator, episodes: int) -> NDArray[np.float64]:
        """Of one episode each, ``[episodes]``, begun with seeds that ``rng`` draws."""
        envs = self._check_envs
        rounds = [
            greedy_returns(
                self._learner.online,
                envs[: min(len(envs), episodes - done)],
                [int(s) for s in rng.integers(2**31, size=min(len(envs), episodes - done))],
            )
            for done in range(0, episodes, len(envs))
        ]
        return np.concatenate(rounds)

    def _check(self, step: int) -> None:
        greedy = float(self._greedy_returns(self._check_rng, self._settings.check_episodes).mean())
        if greedy >= self._best_return:
            self._best_return = greedy
            self._best_step = step
            self._best_parameters[:] = self._learner.online.parameters
        self._tell(Evaluation(self._seed, step, greedy))

    def _tell_progress(self, client: reverie.Client, step: int, steps_per_s: float) -> None:
        recent = self._recent_returns
        self._tell(
            Progress(
                seed=self._seed,
                step=step,
                episode_return=float(np.mean(recent)) if recent else None,
                steps_per_s=steps_per_s,
                samples_per_insert=_samples_per_insert(client),
                age_s=self._age_s,
                loss=self._loss,
                epsilon=self._epsilon(step),
            )
        )

    def _judge(self, client: reverie.Client, seconds: float) -> Outcome:
        self._learner.online.parameters[:] = self._best_parameters
        returns = self._greedy_returns(self._final_rng, self._settings.final_episodes)
        return Outcome(
            seed=self._seed,
            steps=self._steps,
            seconds=seconds,
            samples_per_insert=_samples_per_insert(client),
            kept_step=self._best_step,
            greedy_return_mean=float(returns.mean()),
            greedy_return_min=float(returns.min()),
            greedy_episodes=len(returns),
        )


def _samples_per_insert(client: reverie.Client) -> float:
    limiter = client.server_info()[_TABLE].rate_limiter_info
    inserts = limiter.insert_stats.completed
    return float(limiter.sample_stats.completed / inserts) if inserts else 0.0
