"""Where a training's environments come from: native ones by name, and any other of Gymnasium.

    native      C++, on the actor's own thread; no Python runs
    any other   an EnvPool for each actor: worker processes, or threads of this process

Every episode of a pool's environment has a seed of its own, drawn from the training's, so that an
episode can be begun again and its actions played once more.
"""

from __future__ import annotations

import contextlib
import json
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from reverie import _checks
from reverie._options import OptionValue
from reverie.agents.episodes import Played, PlayedActions, environment_seed, make_seeded
from reverie.agents.settings import saved_options
from reverie.envs import native, remedies
from reverie.envs.backend import EnvSpec
from reverie.envs.pool import EnvPool
from reverie.errors import (
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    UnsupportedTypeError,
)

BACKENDS = ("auto", "native", "process", "thread")
_OBS_WIDTH_MAX = 1 << 16
START_S = 60.0  # a worker may take so long to start, however short a step's limit is
_LOOK_S = 0.1  # how long a step is waited for before the actor looks whether it is to stop


class PoolEnvs:
    """The environments of one actor, as the native side steps them.

    It writes ``actions`` and calls ``step``; rows are then in ``obs`` and the other arrays.
    ``reset`` and ``step`` give None, or what went wrong as text, under which ``EnvSource`` keeps
    the exception.
    """

    def __init__(self, owner: EnvSource, count: int) -> None:
        self._owner = owner
        self._pool = self._open(count, {})
        try:
            self._spaces = _Spaces(self._pool.spec, owner.env)
        except BaseException:
            self._pool.close()
            raise
        self.spec = self._spaces.described
        width = int(self.spec["obs_width"])
        self.count = count
        self.seed = 0
        self.is_stopped = False
        self._played = PlayedActions(count)
        # The actions of the last step, and which episodes it ended: not in _played yet.
        self._last: tuple[np.ndarray, np.ndarray] | None = None
        self._is_recording = False  # and still after it, if Ctrl-C has ended that
        self.obs = np.zeros((count, width), np.float32)
        self.final_obs = np.zeros((count, width), np.float32)
        self.rewards = np.zeros(count, np.float32)
        self.terminated = np.zeros(count, np.uint8)
        self.truncated = np.zeros(count, np.uint8)
        self.actions = (
            np.zeros(count, np.int64)
            if self.spec["action_count"]
            else np.zeros((count, self.spec["action_width"]), np.float32)
        )

    def reset(self) -> str | None:
        """Begins the first episode of each environment."""
        return self._guarded(self._reset)

    def step(self) -> str | None:
        """Steps each environment with its row of ``actions``."""
        return self._guarded(self._step)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()

    def state(self, has_last_step: bool) -> bytes | str:
        """Each environment as its episode's seed and the actions since, for `resume`.

        Without ``has_last_step`` as before the last step, which then no other step may follow. What
        went wrong, Ctrl-C among it, comes as text.
        """
        try:
            if has_last_step:
                self._keep_last()
            if self._is_recording:
                raise FailedPreconditionError(
                    "Ctrl-C came while a step was recorded, so the environments cannot be saved; "
                    "use the last checkpoint"
                )
            described = {"seed": self.seed, "played": self._played.state()}
            return json.dumps(described).encode()
        except BaseException as error:
            return self._owner.keep(error)

    def resume(self, state: bytes) -> str | None:
        """Begins the episodes again and plays what was played, in place of `reset`."""
        return self._guarded(lambda: self._resume(state))

    def _resume(self, state: bytes) -> None:
        try:
            described = json.loads(state)
            self.seed = int(described["seed"])
            played = PlayedActions.read(described["played"], self.count)
        except (ValueError, KeyError, TypeError) as error:
            raise DataLossError(f"the environments' state is damaged: {error!r}") from None
        pool = self._open(self.count, {self.seed + env: one for env, one in enumerate(played)})
        self._pool.close()
        self._pool = pool
        rows = self._rows(self._spaces.env_actions(self.actions))
        self._played = PlayedActions(self.count, played, rows)
        self._last = None
        self._is_recording = False
        self._spaces.flatten(self._result(self._pool.reset(self.seed)).observation, self.obs)

    def _open(self, count: int, played: Mapping[int, Played]) -> EnvPool:
        return EnvPool(
            make_seeded,
            count,
            backend=self._owner.backend,
            num_workers=None if self._owner.backend == "process" else count,
            env_kwargs={
                "env_id": self._owner.env,
                "env_options": self._owner.options,
                "played": dict(played),
            },
            # Bounds a worker's start as well; a step's own bound is watched in _result.
            timeout_s=max(self._owner.timeout_s, START_S),
            copy=False,
        )

    def _reset(self) -> None:
        self._spaces.flatten(self._result(self._pool.reset(self.seed)).observation, self.obs)

    def _step(self) -> None:
        self._keep_last()
        actions = self._spaces.env_actions(self.actions)
        rows = self._result(self._pool.step(actions))
        self._spaces.flatten(rows.observation, self.obs)
        self.rewards[:] = rows.reward
        self.terminated[:] = rows.terminated
        self.truncated[:] = rows.truncated
        is_over = rows.terminated | rows.truncated
        if is_over.any():
            # A row whose episode never ended may hold no observation of the space.
            after = np.array(rows.observation)
            after[is_over] = rows.final_observation[is_over]
            self._spaces.flatten(after, self.final_obs)
        self._last = self._rows(actions).copy(), is_over

    def _rows(self, actions: np.ndarray) -> np.ndarray:
        """The actions as the pool took them, of which an episode is played again, in flat rows."""
        return actions.reshape(self.actions.shape)

    def _keep_last(self) -> None:
        if self._last is not None:
            self._is_recording = True
            last, self._last = self._last, None
            self._played.add(*last)
            self._is_recording = False

    def _result(self, future: Any) -> Any:  # noqa: ANN401
        with trainings_errors(self._owner.env, self._owner.timeout_s):
            return self._waited(future)

    def _waited(self, future: Any) -> Any:  # noqa: ANN401
        waited_s = 0.0
        while True:
            if self.is_stopped:
                raise CancelledError("the training was stopped")
            left_s = self._owner.timeout_s - waited_s
            try:
                return future.result(timeout_s=min(_LOOK_S, left_s))
            except DeadlineExceededError:
                waited_s += _LOOK_S
                if waited_s >= self._owner.timeout_s:
                    raise

    def _guarded(self, call: Callable[[], None]) -> str | None:
        try:
            call()
        except BaseException as error:  # whatever an environment raises, Ctrl-C among it
            return self._owner.keep(error)
        return None


class EnvSource:
    """Makes the environments of a training's actors and evaluations, each actor's in a pool.

    Args:
        env: a Gymnasium id; ``"package.module:Id"`` imports the module first.
        options: keyword arguments of the environment.
        backend: ``"process"`` or ``"thread"``.
        timeout_s: how long a step may take.
        count: environments of an actor.

    Raises:
        NotFoundError: there is no environment of that id; near ones are named.
        EnvError: it cannot be made.
        UnsupportedTypeError: the algorithms do not take its observations or actions.
    """

    def __init__(
        self,
        env: str,
        options: dict[str, OptionValue],
        *,
        backend: str,
        timeout_s: float,
        count: int,
    ) -> None:
        self.env = env
        self.options = options
        self.backend = backend
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._errors: dict[str, BaseException] = {}
        self._made: weakref.WeakSet[PoolEnvs] = weakref.WeakSet()
        # Its spaces are wanted before anything else; the first actor takes it.
        self._first: PoolEnvs | None = self._make(count)
        # What a checkpoint knows it by, also where its options come back from a file.
        try:
            known_by: dict[str, Any] = saved_options(options)
        except UnsupportedTypeError:
            known_by = options
        self.name = " ".join([env, *(f"{key}={value}" for key, value in known_by.items())])
        self.spec = self._first.spec

    def make(self, count: int, seed: int) -> PoolEnvs | str:
        """Environments that draw from ``seed`` on; or what went wrong, as text."""
        try:
            with self._lock:
                made, self._first = self._first, None
            if made is None or made.count != count:
                if made is not None:
                    made.close()
                made = self._make(count)
        except BaseException as error:
            return self.keep(error)
        made.seed = environment_seed(seed)
        return made

    def _make(self, count: int) -> PoolEnvs:
        made = PoolEnvs(self, count)
        self._made.add(made)
        return made

    def keep(self, error: BaseException) -> str:
        """Keeps what an environment raised, until ``error_of`` its text asks for it."""
        text = f"{type(error).__name__}: {error}"
        self._errors[text] = error
        return text

    def error_of(self, text: str) -> BaseException | None:
        """What was kept under that text, before which C++ may have put where it happened."""
        kept = [own for own in self._errors if text.endswith(own)]
        return self._errors[max(kept, key=len)] if kept else None

    def stop(self) -> None:
        """Ends the steps under way."""
        for made in list(self._made):
            made.is_stopped = True

    def close(self) -> None:
        """Ends the workers."""
        for made in list(self._made):
            made.close()


def env_source(
    env: str,
    options: Mapping[str, OptionValue] | None,
    *,
    backend: str = "auto",
    timeout_s: float = 60.0,
    count: int = 1,
) -> tuple[dict[str, OptionValue], EnvSource | None]:
    """The checked options, and where other than native environments come from.

    Args:
        env: a native environment or a Gymnasium id.
        options: keyword arguments of the environment.
        backend: one of ``BACKENDS``; ``"auto"`` is native where there is such an environment, and
            else worker processes.
        timeout_s: how long a step may take that is not native.
        count: environments of an actor.

    Raises:
        NotFoundError: there is no such environment; the message has the nearest names.
        InvalidArgumentError, UnsupportedTypeError: an option or argument is wrong.
    """
    name = _checks.text("env", env, "CartPole-v1")
    _checks.choice("env_backend", backend, BACKENDS)
    timeout_s = _checks.number("env_timeout_s", timeout_s, above=0.0)
    given = {} if options is None else options
    checked = _checks.mapping("env_options", given, "the environment's options by name")
    for option in checked:
        _checks.text("a name in env_options", option)
    if is_native(name, backend):
        try:
            native.spec(name, **checked)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"env_options: {error}") from None
        except UnsupportedTypeError as error:
            raise UnsupportedTypeError(f"env_options: {error}") from None
        return checked, None
    chosen = "process" if backend == "auto" else backend
    made = EnvSource(name, checked, backend=chosen, timeout_s=timeout_s, count=count)
    return checked, made


@contextlib.contextmanager
def trainings_errors(env: str, timeout_s: float) -> Iterator[None]:
    """Raises what a pool raises with the remedies of a training, which knows no pool."""
    try:
        yield
    except EnvError as error:
        why, remedy = remedies.split(error)
        if not remedy:  # it could not be made
            raise
        traceback = f":\n{error.traceback_text}" if error.traceback_text else ""
        ended = EnvError(
            f"{env}: {why}; what was learned is kept: save it, or resume from its last checkpoint"
            f"{traceback}"
        )
        ended.__dict__.update(error.__dict__)
        raise ended from error
    except DeadlineExceededError as error:
        why = str(error).partition("; wait again")[0]
        raise DeadlineExceededError(
            f"{env} took more than {timeout_s:g} s for a step: {why}; give a longer "
            "env_timeout_s, or look at what it waits for"
        ) from None


@contextlib.contextmanager
def raised_by(source: EnvSource | None) -> Iterator[None]:
    """Raises what an environment raised, in place of the text that came through C++."""
    try:
        yield
    except InternalError as error:
        if source is not None:
            raise source.error_of(str(error)) or error from None
        raise


def is_native(env: object, backend: str) -> bool:
    """Whether the environment is stepped in C++, in this process."""
    if backend == "native":
        return True
    return backend == "auto" and isinstance(env, str) and env in native.ids()


def check_action_numbers(spec: EnvSpec, env: str) -> None:
    """Refuses actions that are neither Discrete nor floating-point numbers.

    Raises:
        UnsupportedTypeError: they are of another kind or type, or have no number.
    """
    kind = spec.spaces[1]["kind"] if spec.spaces else "Box"
    dtype = np.dtype(spec.action.dtype)
    # Truncated to integers, actions would leave out the bounds and take 0 twice as often.
    if kind != "Box" or dtype.kind != "f":
        raise UnsupportedTypeError(
            f"{env} takes {kind} actions of {dtype}; the algorithms give Discrete ones or a Box of "
            "floating-point numbers: convert them with a wrapper"
        )
    if 0 in spec.action.shape:
        raise UnsupportedTypeError(
            f"{env} takes actions without numbers, of shape {spec.action.shape}; the algorithms "
            "give at least one: convert them with a wrapper"
        )


class _Spaces:
    """Between an environment's spaces and the numbers of a network."""

    def __init__(self, spec: EnvSpec, env: str) -> None:
        observation = spec.spaces[0] if spec.spaces else {"kind": "none"}
        self._env = env
        self._one_hot = observation["kind"] == "Discrete"
        self._first = 0
        if self._one_hot:
            self._first = int(observation.get("start", 0))
            width = int(observation["n"])
        elif observation["kind"] in ("Box", "MultiBinary"):
            width = int(np.prod(spec.observation.shape, dtype=np.int64))
        else:
            raise UnsupportedTypeError(
                f"{env} observes a {observation['kind']} space; the algorithms take Box, Discrete "
                "or MultiBinary: register it with gymnasium.wrappers.FlattenObservation around it"
            )
        if not 1 <= width <= _OBS_WIDTH_MAX:
            raise UnsupportedTypeError(
                f"{env} has {width:,} numbers an observation; dense networks take 1 to "
                f"{_OBS_WIDTH_MAX:,}: observe less with a wrapper"
            )
        low: Any = []
        high: Any = []
        action_width = 0
        self._shape = tuple(n or 1 for n in spec.action.shape)
        self._dtype = np.dtype(spec.action.dtype)
        if spec.action_count is None:
            check_action_numbers(spec, env)
            low = np.asarray(spec.action_low, np.float64).ravel()
            high = np.asarray(spec.action_high, np.float64).ravel()
            action_width = low.size
            self._low, self._high = spec.action_low, spec.action_high
        self.described: dict[str, Any] = {
            "id": env,
            "obs_width": width,
            "action_count": spec.action_count or 0,
            "action_width": action_width,
            "action_low": [float(x) for x in low],
            "action_high": [float(x) for x in high],
        }

    def flatten(self, observation: np.ndarray, out: np.ndarray) -> None:
        """A row of float32 for each environment's observation."""
        if self._one_hot:
            chosen = np.asarray(observation, np.int64) - self._first
            width = out.shape[1]
            if not ((chosen >= 0) & (chosen < width)).all():
                raise InvalidArgumentError(
                    f"{self._env} gave the observations {_checks.shown(observation)}; its Discrete "
                    f"space has {self._first} to {self._first + width - 1}"
                )
            out.fill(0.0)
            out[np.arange(len(out)), chosen] = 1.0
        else:
            np.copyto(out, observation.reshape(out.shape), casting="unsafe")

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        """The actions as the pool takes them."""
        if actions.ndim == 1:
            return actions
        shaped = actions.reshape(len(actions), *self._shape).astype(self._dtype)
        # In float32 an action may lie half a unit in the last place beyond its bound.
        clipped: np.ndarray = np.clip(shaped, self._low, self._high)
        return clipped
