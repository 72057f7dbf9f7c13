"""The threads of a `Loop`: what acts, what draws batches ahead, what learns.

They wait for each other as the settings say, and rest between two steps or batches while the
training is saved.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie._options import OptionValue
from reverie.agents.envs import START_S
from reverie.agents.episodes import environment_seed
from reverie.agents.loop_envs import LoopEnvs, first_returns
from reverie.agents.protocols import Learner, Policy
from reverie.agents.settings import TrainSettings
from reverie.agents.trainer import Episode
from reverie.envs.backend import EnvSpec
from reverie.envs.pool import EnvPool
from reverie.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    ReverieError,
    UnavailableError,
)
from reverie.replay_buffer import ReplayBuffer
from reverie.replay_output import dataset_converter

_LOOK_S = 0.1
_STOPPED = object()
_RESTED = object()
# What one look at a call may count: a program that stood still has not waited.
_LOOK_MAX_S = 1.0


class _Call:
    """One of the policy or the learner, under way."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.waited_s = 0.0


class LoopThreads:
    """The state of a training that its threads share, and their bodies. See `Loop`."""

    def __init__(
        self,
        policy: Policy,
        learner: Learner,
        env: object,
        settings: TrainSettings,
        *,
        env_options: dict[str, OptionValue],
        env_backend: str,
        env_timeout_s: float,
        agent_timeout_s: float,
        output: str,
        device: object,
        algorithm: str,
    ) -> None:
        options = _reverie.checked_settings(algorithm, settings.options())
        self.settings = TrainSettings.from_options(options)
        self._s: dict[str, Any] = dict(options)
        if self._s["learners"] > 1:
            raise InvalidArgumentError(
                f"learners is {self._s['learners']}; with your own learner it must be 1"
            )
        self._policy, self._learner = policy, learner
        self._env, self._env_options = env, env_options
        self._env_backend, self._env_timeout_s = env_backend, env_timeout_s
        self._agent_timeout_s = agent_timeout_s
        self._output, self._device = output, device
        # Tickets stay on the host, which needs them for the priorities.
        place = _checks.written("device", device, "a device of torch or JAX, or its name")
        self._convert = dataset_converter(output, device, place.startswith("cuda"))
        self._seed = int(self._s["seed"])
        self._count = max(1, self._s["actors"]) * self._s["envs_per_actor"]
        self._envs = LoopEnvs(
            env,
            self._count,
            options=self._env_options,
            backend=env_backend,
            timeout_s=env_timeout_s,
            seed=self._seed % 2**31,
        )
        self.spec: EnvSpec = self._envs.spec
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
        self._waited = {"actor": 0.0, "learner": 0.0}
        self._episodes: list[Episode] = []
        self._evaluations: list[tuple[int, float]] = []
        self._evaluated = 0  # intervals
        self._threads: list[threading.Thread] = []
        self._ready: queue.Queue[Any] = queue.Queue(maxsize=2)
        self._left = self._begun = 0
        self._is_given_up = False  # start() has failed: threads that begin later end at once
        self._began = self._ended = self._elapsed_before = 0.0
        self._best_mean = -float("inf")
        # The observations for the next actions, and the episodes in progress.
        self._obs: np.ndarray | None = None
        self._returns = np.zeros(self._count)
        self._lengths = np.zeros(self._count, np.int64)
        # While it is saved, its threads rest between two steps or batches.
        self._saving = threading.Lock()
        self._is_saved = False
        self._at_rest = self._saves = 0
        self._algorithm = algorithm
        # Calls of the policy and the learner by thread, and when a caller last looked at them.
        self._calls: dict[int, _Call] = {}
        self._last_check = time.monotonic()
        self._is_frozen = False

    # --- What both its threads and a caller ask.

    def evaluate(self, *, episodes: int = 20, seed: int = 0) -> list[float]:
        """The returns of episodes without exploration, in environments of their own.

        An episode that has not ended after 100,000 steps counts with its return so far.

        Raises:
            InvalidArgumentError: a reward or an observation is not finite.
        """
        episodes = _checks.integer("episodes", episodes, 1, 1 << 16)
        seed = _checks.integer("seed", seed, 0)
        returns = self._greedy_returns(episodes, seed, lambda: False)
        assert returns is not None
        return returns

    def _greedy_returns(
        self, episodes: int, seed: int, is_stopped: Callable[[], bool]
    ) -> list[float] | None:
        """What `evaluate` gives; None if it was stopped."""
        with self._make_pool(episodes, environment_seed(seed)) as pool:
            act = functools.partial(self._act, explore=False)
            return first_returns(pool, self.spec.id, act, is_stopped, self._env_timeout_s)

    @contextlib.contextmanager
    def _rested(self) -> Iterator[None]:
        """All threads that are left rest between two steps or batches."""
        if threading.current_thread() in self._threads:
            raise FailedPreconditionError("save() was called by a thread of the training itself")
        try:
            with self._changed:
                self._is_saved = True
                self._changed.notify_all()
                while self._at_rest < self._left and self._frozen() is None:
                    self._changed.wait(_LOOK_S)
            if self._frozen() is not None:
                raise FailedPreconditionError(
                    "the policy or the learner has not returned, and its state may be "
                    "half of a step; use the last checkpoint"
                )
            yield
        finally:
            with self._changed:
                self._is_saved = False
                self._at_rest = 0
                self._saves += 1
                self._changed.notify_all()

    def _rest(self) -> None:
        """Where a thread rests while the training is saved."""
        if not self._is_saved:
            return
        with self._changed:
            if not self._is_saved:  # the save was ended meanwhile, by Ctrl-C for instance
                return
            # Only for this save: between two saves in a row a step is taken.
            number = self._saves
            self._at_rest += 1
            self._changed.notify_all()
            while self._saves == number and self._end == "running":
                self._changed.wait(_LOOK_S)
            if self._saves == number:
                self._at_rest -= 1

    @contextlib.contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """Around a call of the policy or the learner, which may never return."""
        me = threading.get_ident()
        self._calls[me] = _Call(what)
        try:
            yield
        finally:
            del self._calls[me]

    def _frozen(self) -> str | None:
        """The call that has taken too long, if one has. For callers that wait."""
        now = time.monotonic()
        since, self._last_check = min(now - self._last_check, _LOOK_MAX_S), now
        for call in list(self._calls.values()):
            call.waited_s += since
            if call.waited_s > self._agent_timeout_s:
                return call.what
        return None

    def _check_frozen(self) -> None:
        """Ends a training whose policy or learner does not return; its thread is abandoned."""
        what = self._frozen()
        if what is None:
            return
        error = DeadlineExceededError(
            f"{what} has not returned for {self._agent_timeout_s:g} s; the training was "
            "ended; its last checkpoint is valid. Look at what it waits for, or give a "
            "longer "
            "agent_timeout_s"
        )
        was_reported, self._is_frozen = self._is_frozen, True
        self._finish("failed", error)
        if not was_reported:
            raise error

    def _is_stuck(self, thread: threading.Thread) -> bool:
        return self._is_frozen and thread.ident in self._calls

    # --- The threads' bodies.

    def _run_in_turn(self) -> None:
        self._evaluate_when_due()  # the evaluation that a stop has interrupted
        # Each round is a step or a batch: a training saved between two continues in the same order.
        while self._end == "running":
            if self._is_due(self._batches):
                self._learn(self._sample(), None)
            elif self._steps < self._s["steps"]:
                self._act_once()
            else:
                break
            self._rest()
        self._check_learner()

    def _run_actor(self) -> None:
        self._evaluate_when_due()
        while self._steps < self._s["steps"]:
            self._rest()
            with self._waiting("actor"):
                while self._is_going_on() and self._ahead() > self._lead():
                    self._changed.wait(_LOOK_S)
            if self._end != "running":
                return
            if self._ahead() <= self._lead():
                self._act_once()

    def _run_sampler(self) -> None:
        for number in range(self._batches, self._batch_count()):
            while self._end == "running" and not self._is_due(number):
                self._rest()
                with self._changed:
                    if self._is_going_on() and not self._is_due(number):
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
            if batch is not _RESTED:
                before = self._learn(batch, before)
                continue
            self._update(before)
            before = None
            self._rest()
        self._update(before)
        self._check_learner()

    def _is_over(self) -> bool:
        return bool(self._threads) and (self._left == 0 or self._is_frozen)

    def _is_going_on(self) -> bool:
        return self._end == "running" and not self._is_saved

    def _finish(self, how: str, error: BaseException | None = None) -> None:
        with self._changed:
            if self._end == "running":
                self._end, self._error = how, error
            self._changed.notify_all()

    # --- Steps.

    def _act_once(self) -> None:
        """Steps all environments."""
        obs = self._envs.reset(self._steps) if self._obs is None else self._obs
        untaken = self._envs.untaken
        actions = self._act(obs, explore=True) if untaken is None else untaken
        step = self._envs.step(actions)
        self.buffer.add(obs, actions, step.reward, step.after, step.terminated, step.truncated)
        self._obs = step.observation
        self._returns += step.reward
        self._lengths += 1
        with self._changed:
            self._steps += self._count
            for env in np.flatnonzero(step.terminated | step.truncated).tolist():
                episode = Episode(self._steps, float(self._returns[env]), int(self._lengths[env]))
                self._episodes.append(episode)
                self._returns[env], self._lengths[env] = 0.0, 0
            self._changed.notify_all()
        self._check_return()
        self._evaluate_when_due()

    def _act(self, obs: Any, *, explore: bool) -> np.ndarray:  # noqa: ANN401
        with self._calling("the policy's act()"):
            return np.asarray(self._policy.act(obs, step=self._steps, explore=explore))

    def _check_return(self) -> None:
        wanted, window = self._s.get("stop_at_return"), self._s["return_window"]
        if wanted is None or len(self._episodes) < window:
            return
        if np.mean([e.episode_return for e in self._episodes[-window:]]) >= wanted:
            self._finish("return reached")

    def _evaluate_when_due(self) -> None:
        interval = self._s["evaluation_interval"]
        if interval == 0 or self._steps // interval <= self._evaluated:
            return
        number = self._steps // interval
        seed = self._seed % 2**31 + 7919 * number
        count = self._s["evaluation_episodes"]
        with getattr(self._policy, "held", contextlib.nullcontext)():
            returns = self._greedy_returns(count, seed, lambda: self._end != "running")
            if returns is None:
                return  # a training that goes on begins with it
            mean = float(np.mean(returns))
            with self._lock:
                self._evaluated = number
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
        batch: dict[str, Any] = dict(self.buffer.sample(self._s["batch_size"]))
        if self._convert is not None:
            try:
                batch = self._convert(batch)
            except RuntimeError as error:
                if self._device is None or isinstance(error, ReverieError):
                    raise
                raise UnavailableError(f"a batch did not get to {self._device}: {error}") from error
        if self._s["reward_scale"] != 1:
            batch["reward"] = batch["reward"] * float(self._s["reward_scale"])
        return batch

    def _learn(
        self, batch: dict[str, Any], before: tuple[Any, Any] | None
    ) -> tuple[Any, Any] | None:
        """Learns from a batch. Gives what its priorities come from, once the device has it."""
        with self._calling("the learner's learn()"):
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
        if pending is None:
            return
        tickets, errors = pending
        with self._calling("what the learner gave"):
            is_tensor = hasattr(errors, "detach")
            values = errors.detach().float().cpu().numpy() if is_tensor else np.asarray(errors)
        if not np.isfinite(values).all():
            self._check_learner()
            raise InvalidArgumentError(
                "the learner gave a TD error that is not finite; look for NaN in its loss, or "
                "lower the learning rate"
            )
        if not self._s["prioritized"]:
            return
        priorities = np.abs(values).astype(np.float64) + float(self._s["priority_epsilon"])
        self.buffer.update_priorities(np.asarray(tickets), priorities)

    def _check_learner(self) -> None:
        """Raises what a learner of PyTorch knows about its gradients."""
        getattr(self._learner, "_check_finite", lambda: None)()

    def _put(self, item: Any) -> None:  # noqa: ANN401
        while self._end == "running":
            self._rest()
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=_LOOK_S)
                return

    def _take(self) -> Any:  # noqa: ANN401
        begin = time.monotonic()
        while True:
            try:
                item = self._ready.get(timeout=0 if self._is_saved else _LOOK_S)
            except queue.Empty:
                if self._end != "running":
                    return _STOPPED
                if self._is_saved:
                    return _RESTED
                continue
            if hasattr(self, "_first_batch"):
                self._waited["learner"] += time.monotonic() - begin
            return item if self._end == "running" else _STOPPED

    # --- The ratio of steps to batches.

    def _batches_of(self, steps: int) -> int:
        """How many batches so many steps are enough for; every count comes from this quotient."""
        after = max(0, steps - self._s["warmup_steps"])
        return int(after / self._s["update_interval"])

    def _batch_count(self) -> int:
        return self._batches_of(self._s["steps"])

    def _is_due(self, number: int) -> bool:
        return number < min(self._batch_count(), self._batches_of(self._steps))

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
            timeout_s=max(self._env_timeout_s, START_S),
            num_workers=0 if self._envs.is_native else None,
        )
