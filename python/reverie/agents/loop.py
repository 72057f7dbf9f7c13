"""A training around your own policy and learner, written in PyTorch, JAX or anything else.

    actor     environments, stepped together --> policy.act(observations) --> replay
    sampler   replay --> batches, drawn and sent to the device ahead
    learner   learner.learn(batch) --> |TD error| of each transition --> priorities

With ``actors=0`` one thread does all three in turn, and a seed repeats the run as far as the
learner itself does. Otherwise each has a thread of its own, and waits between them hold
``update_interval`` as in the native `Trainer`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie._options import OptionValue
from reverie.agents.envs import is_native
from reverie.agents.protocols import Learner, Policy, is_finite
from reverie.agents.settings import TrainSettings
from reverie.agents.trainer import Episode, TrainProgress
from reverie.envs.backend import EnvSpec
from reverie.envs.pool import EnvPool
from reverie.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ReverieError,
    UnsupportedTypeError,
)
from reverie.replay_buffer import ReplayBuffer

__all__ = ["Learner", "Loop", "Policy"]

_LOOK_S = 0.1
_STOPPED = object()


class Loop:
    """Trains a policy and a learner in any environment. A context manager that stops it.

        with Loop(agent, agent, "CartPole-v1", TrainSettings(seed=1, steps=20_000)) as loop:
            loop.start()
            loop.wait()

    Of the settings it uses those of the run, of the replay, and the schedules of beta and of
    priorities; the others are the policy's and learner's own. ``lead_steps`` bounds how far the
    actor may be ahead. One actor thread steps ``actors * envs_per_actor`` environments together.

    Args:
        policy: a `Policy`.
        learner: a `Learner`; may be the same object.
        env: a native environment or a Gymnasium id, or a function that makes one.
        settings: what differs from the defaults of ``dqn``.
        env_options: keyword arguments of the environment.
        env_backend: as for ``EnvPool``.
        env_timeout_s: how long a step may take.
        output: ``"numpy"``, ``"torch"`` or ``"jax"``: what batches are.
        device: a device of torch or JAX, where batches go while the last one is learned from.

    Raises:
        InvalidArgumentError: a setting is out of range, or ``learners`` is above 1.
        NotFoundError, EnvError: the environment is not there, or cannot be made.
    """

    def __init__(
        self,
        policy: Policy,
        learner: Learner,
        env: object,
        settings: TrainSettings | None = None,
        *,
        env_options: dict[str, OptionValue] | None = None,
        env_backend: str = "auto",
        env_timeout_s: float = 60.0,
        output: str = "numpy",
        device: object = None,
        algorithm: str = "dqn",
    ) -> None:
        for name, given, method in (("policy", policy, "act"), ("learner", learner, "learn")):
            if not callable(getattr(given, method, None)):
                raise UnsupportedTypeError(
                    f"{name} is {_checks.shown(given)}, which has no {method}(); see "
                    f"reverie.agents.{name.capitalize()}"
                )
        _checks.choice("output", output, ("numpy", "torch", "jax"))
        settings = TrainSettings() if settings is None else settings
        if settings.seed is None:
            settings = dataclasses.replace(
                settings, seed=int(np.random.SeedSequence().generate_state(1)[0])
            )
        options = _reverie.checked_settings(algorithm, settings.options())
        self.settings = TrainSettings.from_options(options)
        self._s: dict[str, Any] = dict(options)
        if self._s["learners"] > 1:
            raise InvalidArgumentError(
                f"learners is {self._s['learners']}; with your own learner it must be 1"
            )
        self._policy, self._learner = policy, learner
        self._env, self._env_options = env, dict(env_options or {})
        self._env_backend, self._env_timeout_s = env_backend, env_timeout_s
        self._output, self._device = output, device
        self._seed = int(self._s["seed"])
        self._count = max(1, self._s["actors"]) * self._s["envs_per_actor"]
        self._pool = self._make_pool(self._count, self._seed % 2**31)
        self.spec: EnvSpec = self._pool.spec
        self.buffer = ReplayBuffer(
            self._s["capacity"],
            num_envs=self._count,
            n_step=self._s["n_step"],
            gamma=self._s["gamma"],
            prioritized=self._s["prioritized"],
            alpha=self._s["priority_exponent"],
            beta=self._beta,
            weights="buffer" if self._s["weights_over_buffer"] else "batch",
            seed=self._seed % 2**62,
        )
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._end = "running"
        self._error: BaseException | None = None
        self._steps = self._batches = 0
        self._loss = float("nan")
        self._waited = {"actor": 0.0, "learner": 0.0}
        self._episodes: list[Episode] = []
        self._evaluations: list[tuple[int, float]] = []
        self._threads: list[threading.Thread] = []
        self._began = self._ended = 0.0
        self._best_mean = -float("inf")
        _running.add(self)

    # --- What a caller does.

    def start(self) -> None:
        """Starts the threads.

        Raises:
            FailedPreconditionError: it was started, or stopped, before.
        """
        with self._lock:
            if self._threads or self._end != "running":
                raise FailedPreconditionError("the training was started or stopped before")
            bodies: list[Callable[[], None]] = [self._run_in_turn]
            if self._s["actors"] > 0:
                self._ready: queue.Queue[Any] = queue.Queue(maxsize=2)
                bodies = [self._run_actor, self._run_sampler, self._run_learner]
            self._began = time.monotonic()
            self._left = len(bodies)
            self._threads = [
                threading.Thread(target=self._guarded, args=(body,), daemon=True) for body in bodies
            ]
        for thread in self._threads:
            thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the training is over; Ctrl-C ends the wait alone.

        Raises:
            EnvError, DeadlineExceededError: an environment raised, or a step took too long.
            Exception: whatever the policy or the learner raised.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            while thread.is_alive():
                left = _LOOK_S if until is None else min(_LOOK_S, until - time.monotonic())
                if left <= 0:
                    return False
                thread.join(left)
        if not self._threads and self._end == "running":
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Ends the training within a step of each thread, and waits for that."""
        self._finish("stopped")
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def progress(self) -> TrainProgress:
        """How it stands."""
        with self._lock:
            window = self._episodes[-self._s["return_window"] :]
            learned_from = self._steps - self._s["warmup_steps"]
            is_over = bool(self._threads) and self._left == 0
            now = self._ended if is_over and self._ended else time.monotonic()
            return TrainProgress(
                end=self._end if is_over or not self._threads else "running",
                steps=self._steps,
                batches=self._batches,
                batch_count=self._batch_count(),
                updates=self._batches,
                episodes=len(self._episodes),
                mean_return=float(np.mean([e.episode_return for e in window])) if window else None,
                measured_interval=learned_from / self._batches if self._batches else None,
                elapsed_s=now - self._began if self._began else 0.0,
                loss=self._loss,
                actors_waited_s=self._waited["actor"],
                learners_waited_s=self._waited["learner"],
                staleness_mean=0.0,
                staleness_max=0,
                dropped=0,
            )

    def idle_share(self) -> float:
        """The share of its time that the learner waited for batches, since the first one."""
        with self._lock:
            first = getattr(self, "_first_batch", None)
            if first is None:
                return 0.0
            spent = (self._ended or time.monotonic()) - first
            return self._waited["learner"] / spent if spent > 0 else 0.0

    def episodes(self, first: int = 0) -> list[Episode]:
        """The finished episodes from number ``first`` on."""
        with self._lock:
            return self._episodes[_checks.integer("first", first, 0) :]

    def evaluations(self) -> list[tuple[int, float]]:
        """Steps and mean return of each evaluation so far, one every ``evaluation_interval``."""
        with self._lock:
            return list(self._evaluations)

    def evaluate(self, *, episodes: int = 20, seed: int = 0) -> list[float]:
        """The returns of episodes without exploration, in environments of their own."""
        episodes = _checks.integer("episodes", episodes, 1, 1 << 16)
        with self._make_pool(episodes, _checks.integer("seed", seed, 0) % 2**31) as pool:
            returns = np.zeros(episodes)
            over = np.zeros(episodes, bool)
            rows = pool.reset().result()
            while not over.all():
                rows = pool.step(self._act(rows.observation, explore=False)).result()
                returns += np.where(over, 0.0, rows.reward)
                over |= rows.terminated | rows.truncated
        return [float(value) for value in returns]

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._pool.close()

    # --- The threads' bodies.

    def _run_in_turn(self) -> None:
        acting = self._acting()
        while self._end == "running" and self._steps < self._s["steps"]:
            next(acting)
            while self._end == "running" and self._is_due(self._batches):
                self._learn(self._sample(), None)

    def _run_actor(self) -> None:
        acting = self._acting()
        while self._steps < self._s["steps"]:
            with self._waiting("actor"):
                while self._end == "running" and self._ahead() > self._lead():
                    self._changed.wait(_LOOK_S)
            if self._end != "running":
                return
            next(acting)

    def _run_sampler(self) -> None:
        for number in range(self._batch_count()):
            with self._changed:
                while self._end == "running" and not self._is_due(number):
                    self._changed.wait(_LOOK_S)
            if self._end != "running":
                break
            self._put(self._sample())
        self._put(_STOPPED)

    def _run_learner(self) -> None:
        before: tuple[Any, Any] | None = None
        while True:
            batch = self._take()
            if batch is _STOPPED:
                break
            before = self._learn(batch, before)
        self._update(before)

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            self._finish("failed", error)
        finally:
            with self._lock:
                self._ended = time.monotonic()
                self._left -= 1
                is_last = self._left == 0
            if is_last:
                self._finish("all steps")

    def _finish(self, how: str, error: BaseException | None = None) -> None:
        with self._changed:
            if self._end == "running":
                self._end, self._error = how, error
            self._changed.notify_all()

    # --- Steps.

    def _acting(self) -> Iterator[None]:
        """Steps all environments once, each time it is asked."""
        returns, lengths = np.zeros(self._count), np.zeros(self._count, np.int64)
        rows = self._pool.reset().result()
        while True:
            obs = np.array(rows.observation)
            actions = self._act(obs, explore=True)
            rows = self._pool.step(actions).result()
            over = rows.terminated | rows.truncated
            after = np.array(rows.observation)
            if over.any():
                after[over] = rows.final_observation[over]
            if not (np.isfinite(rows.reward).all() and is_finite(after)):
                raise InvalidArgumentError(
                    f"{self.spec.id} gave a reward or an observation that is not finite"
                )
            self.buffer.add(obs, actions, rows.reward, after, rows.terminated, rows.truncated)
            returns += rows.reward
            lengths += 1
            with self._changed:
                before, self._steps = self._steps, self._steps + self._count
                for env in np.flatnonzero(over).tolist():
                    episode = Episode(self._steps, float(returns[env]), int(lengths[env]))
                    self._episodes.append(episode)
                    returns[env], lengths[env] = 0.0, 0
                self._changed.notify_all()
            self._check_return()
            self._evaluate_when_due(before)
            yield

    def _act(self, obs: Any, *, explore: bool) -> np.ndarray:  # noqa: ANN401
        return np.asarray(self._policy.act(obs, step=self._steps, explore=explore))

    def _check_return(self) -> None:
        wanted, window = self._s.get("stop_at_return"), self._s["return_window"]
        if wanted is None or len(self._episodes) < window:
            return
        if np.mean([e.episode_return for e in self._episodes[-window:]]) >= wanted:
            self._finish("return reached")

    def _evaluate_when_due(self, before: int) -> None:
        interval = self._s["evaluation_interval"]
        if interval == 0 or self._steps // interval == before // interval:
            return
        number = self._steps // interval
        returns = self.evaluate(
            episodes=self._s["evaluation_episodes"], seed=(self._seed + 7919 * number) % 2**31
        )
        mean = float(np.mean(returns))
        with self._lock:
            self._evaluations.append((self._steps, mean))
            is_best = mean >= self._best_mean
        keep = getattr(self._policy, "keep_best", None)
        if is_best:
            self._best_mean = mean
            if keep is not None:
                keep()

    # --- Batches.

    def _beta(self, _updates: int) -> float:
        first, last = float(self._s["beta_first"]), float(self._s["beta_last"])
        return first + (last - first) * self._progress()

    def _progress(self) -> float:
        return float(min(1.0, getattr(self, "_steps", 0) / self._s["steps"]))

    def _sample(self) -> dict[str, Any]:
        given: dict[str, Any] = {} if self._output == "numpy" else {"output": self._output}
        if self._device is not None:
            given["device"] = self._device
            given["pin_memory"] = str(self._device).startswith("cuda")
        batch: dict[str, Any] = dict(self.buffer.sample(self._s["batch_size"], **given))
        if self._s["reward_scale"] != 1:
            batch["reward"] = batch["reward"] * float(self._s["reward_scale"])
        return batch

    def _learn(
        self, batch: dict[str, Any], before: tuple[Any, Any] | None
    ) -> tuple[Any, Any] | None:
        """Learns from a batch. Gives what its priorities come from, once the device has it."""
        errors = self._learner.learn(batch, progress=self._progress())
        with self._changed:
            self._batches += 1
            if not hasattr(self, "_first_batch"):
                self._first_batch = time.monotonic()
            self._changed.notify_all()
        # While the device is at this batch, the one before is waited for.
        self._update(before)
        pending = None if errors is None else (batch["tickets"], errors)
        if self._s["actors"] == 0:
            self._update(pending)
            return None
        return pending

    def _update(self, pending: tuple[Any, Any] | None) -> None:
        if pending is None or not self._s["prioritized"]:
            return
        tickets, errors = pending
        values = errors.detach().cpu().numpy() if hasattr(errors, "detach") else np.asarray(errors)
        if not np.isfinite(values).all():
            raise InvalidArgumentError(
                "the learner gave a TD error that is not finite; look for NaN in its loss, or "
                "lower the learning rate"
            )
        priorities = np.abs(values).astype(np.float64) + float(self._s["priority_epsilon"])
        self.buffer.update_priorities(np.asarray(tickets), priorities)

    def _put(self, item: Any) -> None:  # noqa: ANN401
        while self._end == "running":
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=_LOOK_S)
                return

    def _take(self) -> Any:  # noqa: ANN401
        begin = time.monotonic()
        while True:
            try:
                item = self._ready.get(timeout=_LOOK_S)
            except queue.Empty:
                if self._end != "running":
                    return _STOPPED
                continue
            if hasattr(self, "_first_batch"):
                self._waited["learner"] += time.monotonic() - begin
            return item if self._end == "running" else _STOPPED

    # --- The ratio of steps to batches.

    def _batch_count(self) -> int:
        after = max(0, self._s["steps"] - self._s["warmup_steps"])
        return int(after / self._s["update_interval"])

    def _is_due(self, number: int) -> bool:
        if number >= self._batch_count():
            return False
        wanted: float = self._s["warmup_steps"] + (number + 1) * self._s["update_interval"]
        return self._steps >= wanted

    def _ahead(self) -> float:
        if self._batches >= self._batch_count():
            return -float("inf")
        ahead: float = (
            self._steps - self._s["warmup_steps"] - self._batches * self._s["update_interval"]
        )
        return ahead

    def _lead(self) -> float:
        return float(max(self._s["lead_steps"], 4 * self._s["update_interval"] + 4 * self._count))

    @contextlib.contextmanager
    def _waiting(self, who: str) -> Iterator[None]:
        with self._changed:
            begin = time.monotonic()
            yield
            self._waited[who] += time.monotonic() - begin

    def _make_pool(self, count: int, seed: int) -> EnvPool:
        return EnvPool(
            self._env,
            count,
            backend=self._env_backend,
            env_kwargs=self._env_options,
            seed=seed,
            timeout_s=self._env_timeout_s,
            num_workers=0 if is_native(self._env, self._env_backend) else None,
        )


# A thread must not outlive the interpreter that it runs in.
_running: weakref.WeakSet[Loop] = weakref.WeakSet()


def _stop_all() -> None:
    for loop in list(_running):
        with contextlib.suppress(ReverieError):
            loop.stop()


threading._register_atexit(_stop_all)  # type: ignore[attr-defined]
