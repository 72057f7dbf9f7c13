"""One training in one thread: act, sample, learn, write the priorities back.

Each step of the environment is followed by one gradient step. Both sides meet in the store
alone: the actor appends steps and creates items, the learner samples batches and updates
priorities. They take turns, so a seed repeats its run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import gymnasium
import numpy as np

import reverie
from reverie.demo.actor import Actor
from reverie.demo.learning import ENVIRONMENT, Learning, Settings, Streams, samples_per_insert
from reverie.demo.messages import Message, Outcome, Progress

_TABLE = "replay"


def train(
    seed: int,
    steps: int,
    tell: Callable[[Message], None],
    settings: Settings | None = None,
) -> Outcome:
    """Trains one network for ``steps`` steps; ``tell`` hears how it goes."""
    settings = settings or Settings()
    streams = Streams(seed)
    table = reverie.Table(
        name=_TABLE,
        sampler=reverie.selectors.Prioritized(settings.priority_exponent, seed=streams.store_seed),
        remover=reverie.selectors.Fifo(),
        max_size=settings.items_max,
        rate_limiter=reverie.rate_limiters.MinSize(settings.warm_up_items),
    )
    with reverie.Store([table]) as store:
        return _Training(seed, steps, tell, settings, streams, store.client()).run()


class _Training:
    def __init__(
        self,
        seed: int,
        steps: int,
        tell: Callable[[Message], None],
        settings: Settings,
        streams: Streams,
        client: reverie.Client,
    ) -> None:
        self._seed = seed
        self._steps = steps
        self._tell = tell
        self._settings = settings
        self._streams = streams
        self._client = client
        self._learning = Learning(seed, steps, tell, settings, streams)
        self._recent_returns: deque[float] = deque(maxlen=20)
        self._age_s: float | None = None

    def run(self) -> Outcome:
        settings, learning = self._settings, self._learning
        begin = time.perf_counter()
        last_time, last_step = begin, 0
        with self._client.trajectory_writer(
            num_keep_alive_refs=settings.window_steps + 1
        ) as writer:
            actor = Actor(
                gymnasium.make(ENVIRONMENT),
                writer,
                table=_TABLE,
                window_steps=settings.window_steps,
                gamma=settings.gamma,
                rng=self._streams.actor,
            )
            learning.check(0)
            for step in range(1, self._steps + 1):
                epsilon = settings.epsilon_at(step / self._steps)
                episode_return = actor.step(learning.act, epsilon)
                if episode_return is not None:
                    self._recent_returns.append(episode_return)
                if step > settings.warm_up_items + settings.window_steps:
                    self._learn(step)
                learning.check(step)
                if step % 250 == 0:
                    now = time.perf_counter()
                    self._tell_progress(step, (step - last_step) / (now - last_time), epsilon)
                    last_time, last_step = now, step
        return learning.outcome(
            seconds=time.perf_counter() - begin, samples_per_insert=self._samples_per_insert()
        )

    def _learn(self, step: int) -> None:
        settings = self._settings
        batch = self._client.sample_batch(
            _TABLE,
            settings.batch_size,
            timeout_s=5.0,
            beta=settings.beta_at(step / self._steps),
        )
        assert batch.weights is not None  # since beta was given
        priorities = self._learning.learn(batch, batch.weights, step)
        self._client.update_priorities(_TABLE, batch.tickets, priorities)
        self._age_s = float(batch.ages_s.mean())

    def _samples_per_insert(self) -> float:
        return samples_per_insert(self._client.server_info()[_TABLE])

    def _tell_progress(self, step: int, steps_per_s: float, epsilon: float) -> None:
        recent = self._recent_returns
        self._tell(
            Progress(
                seed=self._seed,
                step=step,
                episode_return=float(np.mean(recent)) if recent else None,
                steps_per_s=steps_per_s,
                samples_per_insert=self._samples_per_insert(),
                age_s=self._age_s,
                loss=self._learning.loss,
                epsilon=epsilon,
            )
        )
