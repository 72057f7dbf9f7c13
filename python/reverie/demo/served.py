"""One training over sockets: a server, a learner and actors, each a process of its own.

    actors --windows--> [ replay ] --batches--> learner
                        [        ] <-priorities--
    actors <--------- [ weights: 1 ] <-----------     the newest network
    actors --------> [ returns: queue ] --------->    for the progress line

The rate limiter of ``replay`` keeps the pace of the other form, a batch a step: actors wait where
they are ahead by more than a few batches, the learner where they are behind. Processes run as they
come, so a seed does not repeat its run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import gymnasium
import numpy as np

import reverie
from reverie.demo.actor import Actor
from reverie.demo.learning import (
    ENVIRONMENT,
    Learning,
    Settings,
    Streams,
    network_sizes,
    samples_per_insert,
)
from reverie.demo.messages import Message, Outcome, Progress, Restart
from reverie.demo.network import FloatArray, Network

_PUBLISHED_EVERY = 25  # steps
_FETCHED_EVERY = 25  # steps of an actor
_IN_FLIGHT_MAX = 25  # windows of an actor that wait for the server
_AHEAD_BATCHES = 100  # that actors may be ahead, or the learner
_PATIENCE_S = 30.0

_CONFIG = """
[[tables]]
name = "replay"
sampler = {{ kind = "prioritized", priority_exponent = {exponent}, seed = {seed} }}
remover = "fifo"
max_size = {items_max}
rate_limiter = {{ kind = "sample_to_insert_ratio", samples_per_insert = {batch_size}, \
min_size_to_sample = {warm_up_items}, error_buffer = {error_buffer} }}

[tables.signature]
obs = {{ shape = [{obs_size}], dtype = "float32" }}
action = {{ shape = [], dtype = "int64" }}
reward = {{ shape = [{window_steps}], dtype = "float32" }}
discount = {{ shape = [{window_steps}], dtype = "float32" }}
last_obs = {{ shape = [{obs_size}], dtype = "float32" }}

[[tables]]
name = "weights"
sampler = "fifo"
remover = "fifo"
max_size = 1
rate_limiter = {{ kind = "min_size", min_size_to_sample = 1 }}
signature.parameters = {{ shape = [1, -1], dtype = "float32" }}

[[tables]]
name = "returns"
kind = "queue"
max_size = 10_000
signature.episode_return = {{ shape = [1], dtype = "float64" }}
"""


def train(
    seed: int,
    steps: int,
    tell: Callable[[Message], None],
    *,
    actors: int,
    settings: Settings | None = None,
    folder: Path | None = None,
) -> Outcome:
    """Trains one network on ``steps`` steps of ``actors`` actors; ``tell`` hears how it goes.

    Args:
        seed: of the training.
        steps: of the environment, in all.
        tell: hears of it.
        actors: processes that act.
        settings: what is learned by.
        folder: where the server keeps what is confirmed, and the learner what it knows. A training
            that was killed goes on there. None keeps nothing.

    Raises:
        RuntimeError: the server did not start, or the actors went silent.
    """
    settings = settings or Settings()
    begin = time.perf_counter()
    with _server(seed, settings, folder) as address:
        training = _Training(seed, steps, tell, settings, reverie.Client(address), folder)
        first = training.go_on(begin)
        with _actors(address, seed, steps, actors, settings, first // max(1, actors)) as last_words:
            try:
                return training.run(first)
            except _SilenceError:
                raise RuntimeError(
                    f"no batch came for {_PATIENCE_S:.0f} s; the actors are gone{last_words()}"
                ) from None


def act(
    address: str,
    seed: int,
    index: int,
    actors: int,
    steps: int,
    settings: Settings,
    *,
    begin: int = 0,
) -> None:
    """What an actor does, until it is ended: acts, writes windows, fetches weights.

    ``begin``: the steps that it, or one that was killed, has done before.
    """
    env = gymnasium.make(ENVIRONMENT)
    rng = Streams(seed, actors=actors).actors[index]
    if begin > 0:
        rng = rng.spawn(1)[0]  # not the episodes that are there already
    network = Network(network_sizes(env, settings), rng)

    def policy(obs: FloatArray) -> int:
        return int(network(obs).argmax())

    client = reverie.Client(address)
    writer = client.trajectory_writer(
        num_keep_alive_refs=settings.window_steps + 1, max_in_flight_items=_IN_FLIGHT_MAX
    )
    actor = Actor(
        env,
        writer,
        table="replay",
        window_steps=settings.window_steps,
        gamma=settings.gamma,
        rng=rng,
    )
    for step in range(begin, 10 * steps):
        if step % _FETCHED_EVERY == 0:
            newest = client.sample_batch("weights", 1, timeout_s=_PATIENCE_S)
            network.parameters[:] = newest.data["parameters"][0, 0]
        # All actors together have taken about as many steps as this one, times their number.
        episode_return = actor.step(policy, settings.epsilon_at(step * actors / steps))
        if episode_return is not None:
            client.insert({"episode_return": episode_return}, {"returns": 1.0})


@contextlib.contextmanager
def _child(*arguments: str, stderr: int | IO[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends when this block does, or this process, whichever way it goes."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdin=subprocess.PIPE, stderr=stderr, text=True
    )
    with process:  # closes what it reads from, and waits
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _server(seed: int, settings: Settings, folder: Path | None) -> Iterator[str]:
    """A server in a process of its own; gives its address."""
    config = _CONFIG.format(
        exponent=settings.priority_exponent,
        seed=Streams(seed).store_seed,
        items_max=settings.items_max,
        batch_size=settings.batch_size,
        warm_up_items=settings.warm_up_items,
        error_buffer=settings.batch_size * _AHEAD_BATCHES,
        window_steps=settings.window_steps,
        obs_size=gymnasium.make(ENVIRONMENT).observation_space.shape[0],
    )
    arguments = ["reverie", "serve", "--config", config, "--stop-with-stdin"]
    if folder is not None:
        arguments += ["--checkpoints", str(folder / "store"), "--durability", "interval"]
    with _child(*arguments, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        _, found, rest = line.partition(" listens at ")
        if not found:
            raise RuntimeError(f"the server did not start: {line}{process.stderr.read()}")
        yield rest.partition(",")[0]


@contextlib.contextmanager
def _actors(
    address: str, seed: int, steps: int, count: int, settings: Settings, begin: int
) -> Iterator[Callable[[], str]]:
    """The actors, in processes of their own; gives what tells of the errors that they wrote."""
    words = json.dumps(dataclasses.asdict(settings))
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        for index in range(count):
            numbers = [str(number) for number in (seed, index, count, steps, begin)]
            child = _child("reverie.demo.remote_actor", address, *numbers, words, stderr=errors)
            stack.enter_context(child)

        def last_words() -> str:
            errors.seek(0)
            text = errors.read().strip()
            return f":\n{text}" if text else ""

        yield last_words


class _SilenceError(Exception):
    """No batch came in time."""


class _Training:
    def __init__(
        self,
        seed: int,
        steps: int,
        tell: Callable[[Message], None],
        settings: Settings,
        client: reverie.Client,
        folder: Path | None,
    ) -> None:
        self._seed = seed
        self._steps = steps
        self._tell = tell
        self._settings = settings
        self._client = client
        self._path = None if folder is None else folder / "learner.npz"
        self._learning = Learning(seed, steps, tell, settings, Streams(seed))
        self._recent_returns: deque[float] = deque(maxlen=20)
        self._begin = time.perf_counter()
        self._last_time, self._last_step = self._begin, 0

    def go_on(self, begin: float) -> int:
        """The first step to do; the server was started at ``begin``."""
        if self._path is None or not self._path.exists():
            return 0
        found = self._client.server_info()["replay"].rate_limiter_info.insert_stats.completed
        seconds = time.perf_counter() - begin
        saved = self._learning.load(self._path)
        step = int(saved["step"])
        self._begin -= saved["seconds"]
        self._last_step = step
        self._tell(Restart(self._seed, step, int(saved["confirmed"]), found, seconds))
        return step + 1

    def run(self, first: int) -> Outcome:
        settings, learning, client = self._settings, self._learning, self._client
        if first == 0:
            learning.check(0)
            first = settings.warm_up_items + settings.window_steps + 1
        self._publish()
        # What one batch has taught travels back while the next is learned from.
        with (
            ThreadPoolExecutor(1) as sender,
            client.dataset("replay", settings.batch_size, timeout_s=_PATIENCE_S) as batches,
        ):
            sent: Future[int] = sender.submit(int)
            for step in range(first, self._steps + 1):
                batch = next(batches, None)
                if batch is None:
                    raise _SilenceError
                # The same as beta does, which stays as it was when the batches were asked for.
                rarest = batch.probabilities.min()
                weights = (rarest / batch.probabilities) ** settings.beta_at(step / self._steps)
                priorities = learning.learn(batch, weights.astype(np.float32), step)
                sent.result()
                sent = sender.submit(client.update_priorities, "replay", batch.tickets, priorities)
                if step % _PUBLISHED_EVERY == 0:
                    self._publish()
                learning.check(step)
                if step % 250 == 0:
                    info = client.server_info()
                    self._save(step, info["replay"])
                    self._tell_progress(step, info)
            sent.result()
        return learning.outcome(
            seconds=time.perf_counter() - self._begin,
            samples_per_insert=samples_per_insert(client.server_info()["replay"]),
        )

    def _publish(self) -> None:
        self._client.insert({"parameters": self._learning.parameters}, {"weights": 1.0})

    def _save(self, step: int, info: reverie.TableInfo) -> None:
        """Keeps what a learner that is killed after this goes on from."""
        if self._path is None:
            return
        # Once this is confirmed, so is all that the server was told before.
        self._publish()
        self._learning.save(
            self._path,
            step,
            confirmed=info.rate_limiter_info.insert_stats.completed,
            seconds=time.perf_counter() - self._begin,
        )

    def _tell_progress(self, step: int, info: Mapping[str, reverie.TableInfo]) -> None:
        ended = info["returns"].current_size
        if ended:
            batch = self._client.sample_batch("returns", ended, timeout_s=_PATIENCE_S)
            self._recent_returns.extend(batch.data["episode_return"][:, 0].tolist())
        recent = self._recent_returns
        now = time.perf_counter()
        self._tell(
            Progress(
                seed=self._seed,
                step=step,
                episode_return=float(np.mean(recent)) if recent else None,
                steps_per_s=(step - self._last_step) / (now - self._last_time),
                samples_per_insert=samples_per_insert(info["replay"]),
                age_s=None,
                loss=self._learning.loss,
                epsilon=self._settings.epsilon_at(step / self._steps),
            )
        )
        self._last_time, self._last_step = now, step
