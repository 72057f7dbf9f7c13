"""Environments of other interfaces, as a pool and a ``GymVectorEnv`` take them.

    EnvPool(lambda: OldGym(gym.make("Breakout-v0")), 8)         # reset() and four values a step
    EnvPool(lambda: DmEnv(suite.load("cartpole", "swingup")), 8)
    AgentRows(lambda: pistonball_v6.parallel_env())             # PettingZoo: a row an agent

Nothing of these packages is imported here: what counts is how the environment behaves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from reverie import _checks
from reverie.envs import spaces
from reverie.errors import EnvError, InvalidArgumentError, MissingPackageError, UnsupportedTypeError

__all__ = ["AgentRows", "DmEnv", "OldGym"]

_SEED_MAX = 2**32 - 1  # of NumPy's first generators, which both use


class OldGym:
    """An environment of Gym before 0.26: ``reset()`` gives no info, ``step`` four values.

    What its wrapper for time limits calls ``TimeLimit.truncated`` is a truncation here. A seed goes
    to its method ``seed``. Attributes are the environment's own; spaces are Gymnasium's, where that
    is installed.

    Args:
        env: the environment.

    Raises:
        UnsupportedTypeError: it has no ``reset`` or no ``step``.
    """

    def __init__(self, env: Any) -> None:  # noqa: ANN401
        self.env = _has("env", env, "reset", "step")
        self.observation_space = spaces.as_gymnasiums(getattr(env, "observation_space", None))
        self.action_space = spaces.as_gymnasiums(getattr(env, "action_space", None))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        _checks.no_options("options", options, "an environment of the old Gym takes none")
        if seed is not None:
            seed = _checks.integer("seed", seed, 0, _SEED_MAX)
            if not hasattr(self.env, "seed"):
                raise UnsupportedTypeError(
                    f"seed is {seed}, and {type(self.env).__name__} has no method seed(); leave "
                    "the pool's seed out"
                )
            self.env.seed(seed)
        given = self.env.reset()
        is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict)
        return given if is_pair else (given, {})

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """One step."""
        given = self.env.step(action)
        if len(given) == 5:
            observation, reward, terminated, truncated, info = given
            return observation, reward, terminated, truncated, info
        observation, reward, over, info = given
        truncated = bool(info.get("TimeLimit.truncated", False))
        return observation, reward, bool(over) and not truncated, truncated, info

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name == "env":  # before __init__ has set it
            raise AttributeError(name)
        return getattr(self.env, name)


class ClassicEnv:
    """An environment as moolib takes it; one of Gymnasium's stays what it is.

    ``reset()`` gives an observation, ``step(action)`` an observation, a reward and whether the
    episode is done; what else it gives is not read.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:  # noqa: ANN401
        self.env = _has("env", env, "reset", "step")
        for name in ("observation_space", "action_space"):
            space = getattr(env, name, None)
            if space is not None:
                setattr(self, name, spaces.as_gymnasiums(space))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        """Start an episode."""
        given = self.env.reset(**options)
        is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict)
        return given if is_pair else (given, {})

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """One step."""
        given = self.env.step(action)
        if not isinstance(given, tuple) or len(given) < 3:
            raise UnsupportedTypeError(
                f"step returned {_checks.shown(given)}; it must return an observation, a reward "
                "and whether the episode is done"
            )
        if len(given) == 5:
            observation, reward, terminated, truncated, info = given
            return observation, reward, terminated, truncated, info
        return given[0], given[1], bool(given[2]), False, {}

    def close(self) -> None:
        """Close the environment, if it can be."""
        close = getattr(self.env, "close", None)
        if close is not None:
            close()


class DmEnv:
    """An environment of ``dm_env``, such as those of dm_control.

    The last step of an episode is a termination where its discount is 0, else a truncation. A seed
    goes to the task's generator (dm_control's ``task.random``); without one it is ignored
    with a warning, as such environments are seeded when they are made.

    Args:
        env: the environment.

    Attributes:
        render_mode: None, as Gymnasium has it: nothing is rendered.

    Raises:
        UnsupportedTypeError: it is not an environment of dm_env, or a specification has no shape.
        MissingPackageError: Gymnasium, whose spaces it gets, is not installed.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it
    render_mode = None

    def __init__(self, env: Any) -> None:  # noqa: ANN401
        self.env = _has("env", env, "reset", "step", "action_spec", "observation_spec")
        self.observation_space = _space_of_spec(env.observation_spec())
        self.action_space = _space_of_spec(env.action_spec())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        _checks.no_options("options", options, "an environment of dm_env takes none")
        if seed is not None:
            seed = _checks.integer("seed", seed, 0, _SEED_MAX)
            random: Any = getattr(getattr(self.env, "task", None), "random", None)
            if hasattr(random, "seed"):
                random.seed(seed)
            else:
                warnings.warn(
                    f"seed {seed} is ignored: {type(self.env).__name__} has no task.random; seed "
                    "it where it is made",
                    stacklevel=2,
                )
        return _plain(self.env.reset().observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """One step."""
        given = self.env.step(action)
        over = bool(given.last())
        terminated = over and given.discount == 0
        reward = 0.0 if given.reward is None else float(given.reward)
        return _plain(given.observation), reward, terminated, over and not terminated, {}

    def close(self) -> None:
        """Close the environment."""
        close = getattr(self.env, "close", None)
        if close is not None:
            close()


def _has(name: str, env: Any, *methods: str) -> Any:  # noqa: ANN401
    for method in methods:
        if not callable(getattr(env, method, None)):
            raise UnsupportedTypeError(
                f"{name} is {_checks.shown(env)}, which has no {method}(); it must be an "
                f"environment with {', '.join(methods)}"
            )
    return env


def _made(make: Callable[[], Any]) -> Any:  # noqa: ANN401
    try:
        return make()
    except Exception as error:
        raise EnvError(f"env could not make an environment: {error!r}") from error


def _gymnasium() -> Any:  # noqa: ANN401
    try:
        import gymnasium
    except ModuleNotFoundError:
        raise MissingPackageError("this adapter needs: pip install gymnasium") from None
    return gymnasium


def _space_of_spec(spec: Any) -> Any:  # noqa: ANN401
    """A specification of dm_env as a space."""
    made = _gymnasium().spaces
    if isinstance(spec, dict) or hasattr(spec, "items"):
        return made.Dict({key: _space_of_spec(value) for key, value in spec.items()})
    if isinstance(spec, (list, tuple)):
        return made.Tuple([_space_of_spec(value) for value in spec])
    if hasattr(spec, "num_values"):
        return made.Discrete(int(spec.num_values))
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    if shape is None or dtype is None or np.dtype(dtype).kind not in "biuf":
        raise UnsupportedTypeError(
            f"a specification is {_checks.shown(spec)}; it must have a shape and a numeric dtype"
        )
    if np.dtype(dtype).kind == "b":
        return made.MultiBinary(shape)
    limits = (-np.inf, np.inf)
    if np.dtype(dtype).kind in "iu":
        limits = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low = np.broadcast_to(getattr(spec, "minimum", limits[0]), shape).astype(dtype)
    high = np.broadcast_to(getattr(spec, "maximum", limits[1]), shape).astype(dtype)
    return made.Box(low, high, dtype=np.dtype(dtype).type)


def _plain(nest: Any) -> Any:  # noqa: ANN401
    """An observation with plain dicts: dm_control's are ordered ones."""
    if hasattr(nest, "items"):
        return {key: _plain(value) for key, value in nest.items()}
    if isinstance(nest, (list, tuple)):
        return tuple(_plain(value) for value in nest)
    return nest


def _vector_env_class() -> type:
    kind: type = _gymnasium().vector.VectorEnv
    return kind


def AgentRows(  # noqa: N802 - it makes an object, as a class does
    env: Callable[[], Any] | Any,  # noqa: ANN401
    num_envs: int | None = None,
) -> Any:  # noqa: ANN401
    """The agents of one environment of PettingZoo's parallel API as rows of a ``VectorEnv``.

    Row i is agent ``agent_ids[i]`` of ``env.possible_agents``. A finished agent shows zeros, with
    reward 0 and ``infos["alive"]`` False: such rows are not experience. When the last agent has
    finished, all are reset in the same step; ``infos["final_obs"]`` has the last observations of
    agents whose episode ended in it. With ``EnvPool(functools.partial(AgentRows, make), n,
    backend="vector", info=["alive"])`` it is a pool.

    Args:
        env: an environment, or the function that makes it.
        num_envs: how many agents there must be; None accepts any number.

    Raises:
        InvalidArgumentError: another number of agents, or agents whose spaces differ.
        UnsupportedTypeError: it is not a parallel environment.
        EnvError: the function raised.
    """
    from reverie.envs.agent_rows import rows_class

    is_made = hasattr(env, "possible_agents") and not isinstance(env, type)
    made = env if is_made else _made(_checks.function("env", env))
    if num_envs is not None:
        _checks.integer("num_envs", num_envs)
    _has("env", made, "reset", "step", "observation_space", "action_space")
    agents = list(getattr(made, "possible_agents", ()))
    if not agents or (num_envs is not None and len(agents) != num_envs):
        raise InvalidArgumentError(
            f"num_envs is {num_envs}, and the environment has {len(agents)} agents; each is a row"
        )
    return rows_class(_vector_env_class())(made, agents)
