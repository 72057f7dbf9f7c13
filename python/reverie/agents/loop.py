"""A training around your own policy and learner, written in PyTorch, JAX or anything else.

    actor     environments, stepped together --> policy.act(observations) --> replay
    sampler   replay --> batches, drawn and sent to the device ahead
    learner   learner.learn(batch) --> |TD error| of each transition --> priorities

With ``actors=0`` one thread does all three in turn, and a seed repeats the run as far as the
learner itself does, also where it was saved and loaded in between. Otherwise each has a thread of
its own, and waits between them hold ``update_interval`` as in the native `Trainer`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie._closing import Scoped
from reverie._options import OptionValue
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.agents import loop_checkpoint
from reverie.agents.folder_lock import FolderLock
from reverie.agents.loop_threads import LoopThreads
from reverie.agents.protocols import Learner, Policy
from reverie.agents.settings import (
    TrainSettings,
    checked_algorithm,
    checked_settings,
    saved_options,
)
from reverie.agents.trainer import Episode, TrainProgress
from reverie.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    ReverieError,
    UnsupportedTypeError,
)
from reverie.replay_buffer import ReplayBuffer

__all__ = ["Learner", "Loop", "Policy"]

_LOOK_S = 0.1


class Loop(ProcessBound, LoopThreads, Scoped):
    """Trains a policy and a learner in any environment. A context manager that stops it.

        with Loop(agent, agent, "CartPole-v1", TrainSettings(seed=1, steps=20_000)) as loop:
            loop.start()
            loop.wait()

    It uses the settings of the run, of the replay, and the schedules of beta and of priorities; the
    others are for the policy and the learner. ``lead_steps`` bounds how far the actor may be ahead.
    One actor thread steps ``actors * envs_per_actor`` environments together.

    Args:
        policy: a `Policy`.
        learner: a `Learner`; may be the same object.
        env: a native environment or a Gymnasium id, or a function that makes one.
        settings: what differs from the defaults of ``algorithm``.
        env_options: keyword arguments of the environment.
        env_backend: as for ``EnvPool``.
        env_timeout_s: how long a step may take.
        agent_timeout_s: how long a call of the policy or the learner may take, compiling included,
            before the training is given up.
        output: ``"numpy"``, ``"torch"`` or ``"jax"``: what batches are.
        device: a device of torch or JAX, where batches go while the last one is learned from.
        algorithm: one of ``algorithms()``, whose defaults the settings have; a checkpoint of
            another one is refused.

    Raises:
        InvalidArgumentError: a setting is out of range, or ``learners`` is above 1.
        NotFoundError, EnvError: the environment is not there, or cannot be made.
    """

    _stays_because = (
        "a Loop lives in this process and cannot be pickled or copied; save() it, and load() it "
        "into another one"
    )

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
        agent_timeout_s: float = 300.0,
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
        settings = checked_settings(settings)
        if settings.seed is None:
            settings = dataclasses.replace(
                settings, seed=int(np.random.SeedSequence().generate_state(1)[0])
            )
        super().__init__(
            policy,
            learner,
            env,
            settings,
            env_options=_checks.mapping(
                "env_options", {} if env_options is None else env_options, "options"
            ),
            env_backend=_checks.text("env_backend", env_backend),
            env_timeout_s=_checks.number("env_timeout_s", env_timeout_s, above=0.0),
            agent_timeout_s=_checks.number("agent_timeout_s", agent_timeout_s, above=0.0),
            output=output,
            device=device,
            algorithm=checked_algorithm(algorithm),
        )
        self._folder: FolderLock | None = None
        self._fork_guard = ForkGuard()
        _running.add(self)

    # --- What a caller does.

    def start(self) -> None:
        """Starts the threads.

        Raises:
            FailedPreconditionError: it was started, or stopped, before.
            ResourceExhaustedError: the system has no further thread; the training has failed.
        """
        self._fork_guard.check("Loop")
        with self._lock:
            if self._threads or self._end != "running":
                raise FailedPreconditionError("the training was started or stopped before")
            bodies: list[Callable[[], None]] = [self._run_in_turn]
            if self._s["actors"] > 0:
                bodies = [self._run_actor, self._run_sampler, self._run_learner]
            self._began = time.monotonic()
            self._left = len(bodies)
            self._threads = [
                threading.Thread(target=self._guarded, args=(body,), daemon=True) for body in bodies
            ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            failed = ResourceExhaustedError(
                f"a thread of the training: {error}; end other programs, or raise ulimit -u"
            )
            self._give_up("failed", failed)
            raise failed from None
        except BaseException:  # Ctrl-C
            self._give_up("stopped", None)
            raise

    def _give_up(self, how: str, error: BaseException | None) -> None:
        """Ends a training some of whose threads will never run."""
        self._finish(how, error)
        with self._changed:
            self._is_given_up = True
            self._ended = time.monotonic()
            self._left -= len(self._threads) - self._begun
            self._changed.notify_all()

    def _guarded(self, body: Callable[[], None]) -> None:
        with self._lock:
            if self._is_given_up:
                return
            self._begun += 1
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

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the training is over; Ctrl-C ends only the wait.

        Raises:
            EnvError, DeadlineExceededError: an environment raised, or a step took too long.
            DeadlineExceededError: the policy or the learner did not return within
                ``agent_timeout_s``; its thread is left where it is.
            Exception: whatever the policy or the learner raised.
        """
        self._fork_guard.check("Loop")
        limit = _checks.timeout("timeout_s", timeout_s)
        until = None if limit is None else time.monotonic() + limit
        for thread in self._threads:
            while thread.is_alive() and not self._is_frozen:
                left = _LOOK_S if until is None else min(_LOOK_S, until - time.monotonic())
                if left <= 0:
                    return False
                thread.join(left)
                self._check_frozen()
        if not self._threads and self._end == "running":
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Ends the training within a step of each thread, and waits for that.

        Raises:
            DeadlineExceededError: the policy or the learner did not return within
                ``agent_timeout_s``, as `wait` had not told before.
        """
        self._fork_guard.check("Loop")
        self._finish("stopped")
        for thread in self._threads:
            if thread is threading.current_thread():
                continue
            while thread.is_alive() and not self._is_stuck(thread):
                thread.join(_LOOK_S)
                self._check_frozen()

    def progress(self) -> TrainProgress:
        """How it stands. ``loss`` is what the learner's attribute of that name says."""
        self._fork_guard.check("Loop")
        loss = float("nan")
        # A device that is gone has none, nor has an attribute that means something else.
        with contextlib.suppress(ReverieError, TypeError, ValueError):
            loss = float(getattr(self._learner, "loss", loss))
        with self._lock:
            window = self._episodes[-self._s["return_window"] :]
            learned_from = self._steps - self._s["warmup_steps"]
            is_over = self._is_over()
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
                elapsed_s=self._elapsed_before + (now - self._began if self._began else 0.0),
                loss=loss,
                actors_waited_s=self._waited["actor"],
                learners_waited_s=self._waited["learner"],
                staleness_mean=0.0,
                staleness_max=0,
                dropped=0,
            )

    def idle_share(self) -> float:
        """The share of its time that the learner waited for batches, since the first one."""
        self._fork_guard.check("Loop")
        with self._lock:
            first = getattr(self, "_first_batch", None)
            if first is None:
                return 0.0
            spent = (self._ended or time.monotonic()) - first
            return self._waited["learner"] / spent if spent > 0 else 0.0

    def episodes(self, first: int = 0) -> list[Episode]:
        """The finished episodes from number ``first`` on."""
        self._fork_guard.check("Loop")
        with self._lock:
            return self._episodes[_checks.integer("first", first, 0) :]

    def evaluations(self) -> list[tuple[int, float]]:
        """Steps and mean return of each evaluation so far, one every ``evaluation_interval``."""
        self._fork_guard.check("Loop")
        with self._lock:
            return list(self._evaluations)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the whole state of the training as a checkpoint, to continue from with `load`.

        The replay with its generator, the environments as their episodes' seeds and actions, and
        what ``state_dict()`` of the learner gives, and of the policy if it is another object and
        has one. Threads pause meanwhile, between two steps or batches. Must not be called from one
        of them.

        Args:
            path: a folder, which is made if it is not there, and is this training's until it ends.
                The checkpoint replaces an earlier one there once it is whole and on the disk.

        Returns:
            The path of the checkpoint.

        Raises:
            FailedPreconditionError: no step was taken yet, another training has the folder, or the
                policy or the learner does not return, so that its state may be half of a step.
            UnimplementedError: the learner has no ``state_dict()`` and ``load_state_dict()``.
            UnsupportedTypeError: one of its entries is not numbers, or JSON does not hold an option
                of the environment.
            ResourceExhaustedError: the disk is full; an old checkpoint stays as it was.
        """
        folder = _checks.path("path", path)
        self._fork_guard.check("Loop")
        loop_checkpoint.check_can_be_saved(self._learner)
        with self._saving, self._rested():
            if self._steps == 0:
                raise FailedPreconditionError("no step was taken yet; there is nothing to save")
            self._own(folder)
            attached = loop_checkpoint.pack(self._described(), self._parts())
            return str(self.buffer._save(folder, attached))  # type: ignore[attr-defined]

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continues from a checkpoint that `save` wrote, once it is started.

        With ``actors=0``, an environment asked for by its id and a learner that repeats itself, the
        training then ends as if it had not been interrupted. Environments that a function makes
        begin new episodes.

        Args:
            path: the folder, or one checkpoint of it; of a folder the newest is taken.

        Raises:
            FailedPreconditionError: it was started, another training has the folder, or an
                environment does not repeat its episode.
            NotFoundError: there is no checkpoint.
            DataLossError: it is damaged.
            InvalidArgumentError: it is not of this algorithm, environment or settings.
            Exception: whatever ``load_state_dict()`` raised. After this, a `DataLossError` or an
                environment that does not repeat its episode, the loop cannot be started: it may
                have a part of the state.
        """
        folder = _checks.path("path", path)
        self._fork_guard.check("Loop")
        loop_checkpoint.check_can_be_saved(self._learner)
        if self._threads or self._steps > 0:
            raise FailedPreconditionError("the training was started before; load into a new one")
        if not folder or not loop_checkpoint.root_of(folder).is_dir():
            raise NotFoundError(f"there is no folder {folder!r}, so no checkpoint either")
        with self._saving:
            self._own(folder)
        arguments = _reverie.ReplayBuffer._arguments_of(folder)  # type: ignore[attr-defined]
        loop, arrays = loop_checkpoint.unpack(arguments["attached"])
        difference = loop_checkpoint.first_difference(loop, self._identity())
        if difference is not None:
            raise InvalidArgumentError(
                f"{folder!r} is the checkpoint of another training: {difference}"
            )
        buffer = ReplayBuffer.load(arguments["folder"], beta=self._beta)
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._finish, "stopped")  # it would start with a part of the state
            self.buffer = buffer
            for part, owner in self._parts().items():
                loop_checkpoint.restore(part, owner, arrays, as_torch=self._output == "torch")
            try:
                self._take_over(loop)
            except (KeyError, TypeError, ValueError) as error:
                raise DataLossError(f"{folder!r} is damaged: {error!r}") from None
            on_error.pop_all()

    def _leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        if not self._fork_guard.is_here():
            return  # a forked child leaves all to its parent
        try:
            self.stop()
        finally:
            self._envs.close()
            if self._folder is not None:
                self._folder.close()

    # --- What is saved.

    def _own(self, path: str) -> None:
        """Takes the folder, which another training may have."""
        folder = loop_checkpoint.root_of(path)
        if self._folder is not None and self._folder.path == folder:
            return
        taken = FolderLock(folder)
        if self._folder is not None:
            self._folder.close()
        self._folder = taken

    def _parts(self) -> dict[str, object]:
        parts: dict[str, object] = {"learner": self._learner}
        policy: object = self._policy
        if policy is not self._learner and loop_checkpoint.can_be_saved(policy):
            parts["policy"] = policy
        return parts

    def _identity(self) -> dict[str, Any]:
        return {
            "algorithm": self._algorithm,
            "env": self._env if isinstance(self._env, str) else self.spec.id,
            "env_options": saved_options(self._env_options),
            "settings": self._s,
        }

    def _described(self) -> dict[str, Any]:
        return {
            **self._identity(),
            "steps": self._steps,
            "batches": self._batches,
            "elapsed_s": self.progress().elapsed_s,
            "waited_s": self._waited,
            "episodes": [tuple(episode) for episode in self._episodes],
            "evaluations": self._evaluations,
            "evaluated": self._evaluated,
            "best_mean": self._best_mean,
            "returns": self._returns.tolist(),
            "lengths": self._lengths.tolist(),
            "envs": self._envs.state(),
            "untaken": loop_checkpoint.as_json(self._envs.untaken),
        }

    def _take_over(self, loop: dict[str, Any]) -> None:
        self._steps, self._batches = int(loop["steps"]), int(loop["batches"])
        self._elapsed_before = float(loop["elapsed_s"])
        self._waited = {who: float(waited_s) for who, waited_s in loop["waited_s"].items()}
        self._episodes = [Episode(*episode) for episode in loop["episodes"]]
        self._evaluations = [(int(step), float(mean)) for step, mean in loop["evaluations"]]
        self._best_mean = float(loop["best_mean"])
        interval = self._s["evaluation_interval"]
        due = self._steps // interval if interval else 0
        # One from before this was saved has every evaluation of its steps; the saved training's
        # interval may have been shorter.
        self._evaluated = min(int(loop.get("evaluated", due)), due)
        if loop["envs"] is not None:
            self._obs = self._envs.resume(loop["envs"])
            self._envs.untaken = loop_checkpoint.from_json(loop.get("untaken"))
            self._returns = np.array(loop["returns"], float)
            self._lengths = np.array(loop["lengths"], np.int64)


# A thread must not outlive the interpreter that it runs in.
_running: weakref.WeakSet[Loop] = weakref.WeakSet()


def _stop_all() -> None:
    for loop in list(_running):
        with contextlib.suppress(ReverieError):
            loop.stop()


threading._register_atexit(_stop_all)  # type: ignore[attr-defined]
