"""Where a training's environments come from: native ones by name, and any other of Gymnasium.

    native      C++, on the actor's own thread; no Python runs
    any other   an EnvPool for each actor: worker processes, or threads of this process

Every episode of a pool's environment has a seed of its own, drawn from the training's, so that an
episode can be begun again and its actions played once more.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from reverie import _checks
from reverie._options import OptionValue
from reverie.envs import native, source
from reverie.envs.backend import EnvSpec
from reverie.envs.pool import EnvPool
from reverie.errors import (
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnsupportedTypeError,
)

BACKENDS = ("auto", "native", "process", "thread")
_OBS_WIDTH_MAX = 1 << 16
_START_S = 60.0
_KEPT_ROWS = 256  # of episodes that are over, before they are dropped together
_LOOK_S = 0.1  # how long a step is waited for before the actor looks whether it is to stop
_MASK = (1 << 64) - 1


def episode_seed(seed: int, episode: int) -> int:
    """The seed of one episode of an environment: 31 bits, mixed as SplitMix64 does."""
    x = (seed * 0x9E3779B97F4A7C15 + episode + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) >> 33


# The number of an episode, and the actions so far.
Played: TypeAlias = tuple[int, list[Any]]


class SeededEpisodes:
    """An environment whose every episode begins with a seed that follows from the first one."""

    def __init__(self, env: Any, played: Mapping[int, Played] | None = None) -> None:  # noqa: ANN401
        self._env = env
        self._played = dict(played or {})
        self._seed = 0
        self._episode = 0
        self.step: Callable[..., Any] = env.step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        """Begins the next episode; with a seed, the first one of another run of episodes.

        Where something was played after that seed, it is played again.
        """
        actions: list[Any] = []
        if seed is None:
            self._episode += 1
        else:
            self._seed = int(seed)
            self._episode, actions = self._played.pop(self._seed, (0, []))
        given = {} if options is None else {"options": options}
        first = self._env.reset(seed=episode_seed(self._seed, self._episode), **given)
        return self._play(first, actions)

    def _play(self, first: Any, actions: list[Any]) -> Any:  # noqa: ANN401
        space: Any = self._env.action_space if actions else None
        for count, action in enumerate(actions, start=1):
            if hasattr(space, "n"):
                made: Any = np.int64(action + int(getattr(space, "start", 0)))
            else:
                made = np.array(action, space.dtype).reshape(space.shape)
            observation, _, terminated, truncated, info = self._env.step(made)
            if terminated or truncated:
                raise FailedPreconditionError(
                    f"the episode ended after {count} of its {len(actions)} actions: the "
                    "environment does not repeat it from its seed, and cannot be resumed"
                )
            first = (observation, info)
        return first

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._env, name)


def make_seeded(
    *,
    env_id: str,
    env_options: dict[str, OptionValue],
    played: Mapping[int, Played] | None = None,
) -> SeededEpisodes:
    """What a pool's worker makes its environments with."""
    return SeededEpisodes(source.maker(source.local(env_id, env_options))(0), played)


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
        # Rows of actions, the first of step number _base; where each episode began, and its number.
        self._actions: list[np.ndarray] = []
        self._base = 0
        self._begins = [0] * count
        self._episodes = [0] * count
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

    def state(self) -> bytes:
        """Each environment as its episode's seed and the actions since, for `resume`."""
        described = {
            "seed": self.seed,
            "played": [
                [self._episodes[env], [row[env].tolist() for row in self._actions[begin:]]]
                for env, begin in enumerate(self._relative_begins())
            ],
        }
        return json.dumps(described).encode()

    def resume(self, state: bytes) -> str | None:
        """Begins the episodes again and plays what was played, in place of `reset`."""
        return self._guarded(lambda: self._resume(state))

    def _resume(self, state: bytes) -> None:
        try:
            described = json.loads(state)
            self.seed = int(described["seed"])
            played = [(int(episode), list(actions)) for episode, actions in described["played"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DataLossError(f"the environments' state is damaged: {error!r}") from None
        if len(played) != self.count:
            raise DataLossError(f"{self.count} environments are given the state of {len(played)}")
        pool = self._open(self.count, {self.seed + env: one for env, one in enumerate(played)})
        self._pool.close()
        self._pool = pool
        self._episodes = [episode for episode, _ in played]
        # As if all had been stepped together so far.
        length = max(len(actions) for _, actions in played)
        self._begins = [length - len(actions) for _, actions in played]
        self._base = 0
        self._actions = [np.zeros_like(self.actions) for _ in range(length)]
        for env, (_, actions) in enumerate(played):
            for row, action in zip(self._actions[self._begins[env] :], actions, strict=True):
                row[env] = action
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
            timeout_s=max(self._owner.timeout_s, _START_S),
            copy=False,
        )

    def _relative_begins(self) -> list[int]:
        return [begin - self._base for begin in self._begins]

    def _remember(self) -> None:
        """Keeps the actions of the step that was taken, as long as their episode lasts."""
        self._actions.append(self.actions.copy())
        now = self._base + len(self._actions)
        for env in np.flatnonzero(self.terminated | self.truncated).tolist():
            self._begins[env] = now
            self._episodes[env] += 1
        first = min(self._begins) - self._base
        if first > _KEPT_ROWS or first == len(self._actions):
            del self._actions[:first]
            self._base += first

    def _reset(self) -> None:
        self._spaces.flatten(self._result(self._pool.reset(self.seed)).observation, self.obs)

    def _step(self) -> None:
        rows = self._result(self._pool.step(self._spaces.env_actions(self.actions)))
        self._spaces.flatten(rows.observation, self.obs)
        self.rewards[:] = rows.reward
        self.terminated[:] = rows.terminated
        self.truncated[:] = rows.truncated
        if self.terminated.any() or self.truncated.any():
            self._spaces.flatten(rows.final_observation, self.final_obs)
        self._remember()

    def _result(self, future: Any) -> Any:  # noqa: ANN401
        waited_s = 0.0
        while True:
            if self.is_stopped:
                raise CancelledError("the training was stopped")
            left_s = self._owner.timeout_s - waited_s
            try:
                return future.result(timeout_s=min(_LOOK_S, left_s))
            except DeadlineExceededError as error:
                waited_s += _LOOK_S
                if waited_s < self._owner.timeout_s:
                    continue
                raise DeadlineExceededError(
                    f"{self._owner.env} took more than {self._owner.timeout_s:g} s for a step: "
                    f"{error}; give a longer env_timeout_s, or look at what it waits for"
                ) from None

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
        timeout_s: how long a step may take, and a worker to start.
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
        # What a checkpoint knows it by.
        self.name = " ".join([env, *(f"{key}={value}" for key, value in options.items())])
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
        made.seed = seed >> 33
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
        """What was kept under that text."""
        return self._errors.get(text)

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


def is_native(env: object, backend: str) -> bool:
    """Whether the environment is stepped in C++, in this process."""
    if backend == "native":
        return True
    return backend == "auto" and isinstance(env, str) and env in native.ids()


class _Spaces:
    """Between an environment's spaces and the numbers of a network."""

    def __init__(self, spec: EnvSpec, env: str) -> None:
        observation, action = spec.spaces or ({"kind": "none"}, {"kind": "none"})
        self._one_hot = observation["kind"] == "Discrete"
        self._first = int(observation.get("start", 0))
        if self._one_hot:
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
            if action["kind"] != "Box" or self._dtype.kind != "f":
                raise UnsupportedTypeError(
                    f"{env} takes {action['kind']} actions of {self._dtype}; the algorithms give "
                    "Discrete ones or a Box of floating-point numbers: convert them with a wrapper"
                )
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
            out.fill(0.0)
            out[np.arange(len(out)), np.asarray(observation, np.int64) - self._first] = 1.0
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
