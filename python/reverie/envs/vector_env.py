"""A Gymnasium ``VectorEnv`` of any environment: native ones, worker processes or threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from reverie import _checks
from reverie._process_bound import ProcessBound
from reverie.envs.pool import EnvPool
from reverie.errors import InvalidArgumentError, MissingPackageError

_IS_OLD = gymnasium.__version__.startswith("0.29.")


def _autoreset_mode() -> Any:  # noqa: ANN401
    """Gymnasium's enumeration; one like it for 0.29, which has none."""
    found = getattr(gymnasium.vector, "AutoresetMode", None)
    if found is None and _IS_OLD:
        names = {"NEXT_STEP": "NextStep", "SAME_STEP": "SameStep", "DISABLED": "Disabled"}
        return Enum("AutoresetMode", names)
    if found is None:
        raise MissingPackageError(
            f"GymVectorEnv needs Gymnasium 1.1 or newer, or 0.29, and {gymnasium.__version__} is "
            "installed: pip install 'gymnasium>=1.1'"
        )
    return found


AutoresetMode = _autoreset_mode()

# Gymnasium 0.29 resets in the same step, and calls the last observations so.
_MODE = "SameStep" if _IS_OLD else "NextStep"
_FINAL = "final_observation" if _IS_OLD else "final_obs"

__all__ = ["AutoresetMode", "GymVectorEnv"]


class Engine(Protocol):
    """What steps the environments of a ``GymVectorEnv``."""

    num_envs: int
    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    render_mode: str | None

    def reset(
        self,
        seed: int | list[int | None] | None,
        options: dict[str, Any] | None,
        mask: np.ndarray | None,
    ) -> tuple[Any, list[tuple[int, dict[str, Any]]]]:
        """Observations, and the info dicts of the environments that gave one."""

    def step(
        self,
        actions: Any,  # noqa: ANN401
    ) -> tuple[Any, Any, Any, Any, list[tuple[int, dict[str, Any]]]]:
        """What ``VectorEnv.step`` returns, with the info dicts as ``reset`` gives them."""

    def step_some(
        self,
        actions: Any,  # noqa: ANN401
        chosen: np.ndarray,
    ) -> tuple[Any, Any, Any, Any, list[tuple[int, dict[str, Any]]]]:
        """The same, only for the chosen environments, ``[N]`` bool."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """An attribute of each environment, called if it can be."""

    def read(self, name: str) -> tuple[Any, ...]:
        """An attribute of each environment, not called."""

    def set_attr(self, name: str, values: list[Any]) -> None:
        """Sets an attribute of each environment to its own value."""

    def close(self) -> None:
        """Ends the environments."""


class GymVectorEnv(ProcessBound, gymnasium.vector.VectorEnv):  # type: ignore[misc]
    """Environments stepped together, with all that Gymnasium's vector environments have.

        envs = GymVectorEnv("CartPole-v1", 8)                          # C++, in this process
        envs = GymVectorEnv(lambda: MyEnv(size=7), 8)                  # worker processes
        envs = GymVectorEnv([make(i) for i in range(8)], backend="thread")

    Args:
        env: a Gymnasium id, an ``EnvSpec``, a function that makes an environment, or a list of
            them, one for each environment. Or an ``EnvPool`` with one batch and NumPy output: it
            resets in the same step and gives the info columns that it was made with, and is closed
            with this object.
        num_envs: environments; may be left out with a list or a pool.
        autoreset_mode: when an environment whose episode ended is reset; Gymnasium's
            ``AutoresetMode`` or its value. ``"NextStep"`` shows its last observation and resets it
            in the next step, ``"SameStep"`` resets it at once, with the last observation in
            ``infos["final_obs"]``, ``"Disabled"`` leaves it to ``reset`` with a ``"reset_mask"``.
            None is ``"NextStep"``; ``"SameStep"`` for a pool, and with Gymnasium 0.29, which knows
            no other and calls it ``infos["final_observation"]``.
        backend: ``"native"``, ``"process"`` or ``"thread"``; ``"auto"`` is native where there is
            such an environment, and else processes.
        num_workers: processes or threads; None chooses. 0 threads (with ``backend="thread"``) step
            in the caller's own, which is the quickest for a few small environments; ``timeout_s``
            then ends nothing.
        env_kwargs: keyword arguments of the environment, ``render_mode`` for instance.
        wrappers: functions that each environment is passed through.
        timeout_s: how long a step may take.
        copy: gives arrays of their own; False gives views, which the next step overwrites.

    Raises:
        NotFoundError: there is no environment of that id.
        EnvError: an environment cannot be made; with its number and traceback.
        InvalidArgumentError: an unknown mode, a list of another length than ``num_envs``, spaces
            that differ from environment to environment, or a pool with several batches or another
            output than NumPy's.
    """

    _stays_because = (
        "a GymVectorEnv lives in this process and cannot be pickled or copied; make one in the "
        "other process"
    )

    def __init__(
        self,
        env: object,
        num_envs: int | None = None,
        *,
        autoreset_mode: object = None,
        backend: str = "auto",
        num_workers: int | None = None,
        env_kwargs: Mapping[str, object] | None = None,
        wrappers: Sequence[object] = (),
        timeout_s: float = 60.0,
        copy: bool = True,
    ) -> None:
        is_pool = isinstance(env, EnvPool)
        mode = _mode("SameStep" if autoreset_mode is None and is_pool else autoreset_mode)
        _checks.choice("backend", backend, ("auto", "native", "process", "thread"))
        _checks.flag("copy", copy)
        timeout_s = _checks.number("timeout_s", timeout_s, 0.0, finite=False)
        if num_workers is not None:
            _checks.integer("num_workers", num_workers, 0)
        wrappers = _checks.items("wrappers", wrappers, "functions")
        kwargs: dict[str, Any] = {}
        if env_kwargs is not None:
            kwargs = _checks.mapping("env_kwargs", env_kwargs, "values by keyword")
        self._engine: Engine
        if is_pool:
            from reverie.envs.vector_of_pool import PoolEngine

            if mode != "SameStep":
                raise InvalidArgumentError(
                    f"autoreset_mode is {mode}, and a pool resets in the same step; give the "
                    "environment itself in place of the pool"
                )
            assert isinstance(env, EnvPool)
            self._engine = PoolEngine(env, copy=copy)
        else:
            self._engine = _engine(
                env,
                _count(env, num_envs),
                mode=mode,
                backend=backend,
                num_workers=num_workers,
                kwargs=kwargs,
                wrappers=wrappers,
                timeout_s=timeout_s,
                copy=copy,
            )
        engine = self._engine
        if _IS_OLD:
            self.is_vector_env, self.viewer, self.closed = True, None, False
        self.num_envs = engine.num_envs
        self.autoreset_mode = AutoresetMode(mode)
        self.metadata = {**engine.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = engine.render_mode
        self.single_observation_space = engine.observation_space
        self.single_action_space = engine.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.spec = _spec(env)
        self._is_reset = False

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset environments.

        Args:
            seed: environment i gets ``seed + i``; or a list with a seed, or None, for each.
            options: passed on to each environment, except ``"reset_mask"``: a ``[num_envs]`` bool
                array of those to reset, the others stay as they are.

        Returns:
            Observations of all environments, and the infos of those that were reset.
        """
        mask = None
        if options is not None:
            options = _checks.mapping("options", options, "options")
            if "reset_mask" in options:
                mask = _checked_mask(options.pop("reset_mask"), self.num_envs)
                if not self._is_reset and not mask.all():
                    raise InvalidArgumentError(
                        "options['reset_mask'] leaves out environments that were never reset; "
                        "reset all first"
                    )
        if seed is not None:
            seed = _seeds(seed, self.num_envs)
        observation, given = self._engine.reset(seed, options, mask)
        self._is_reset = True
        infos: dict[str, Any] = {}
        for index, info in given:
            infos = self._add_info(infos, info, index)
        return observation, infos

    def step(
        self,
        actions: Any,  # noqa: ANN401
    ) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment with its row of ``actions``.

        Returns:
            Observations, ``[N]`` float64 rewards, ``[N]`` bool terminations and truncations, and
            infos with a mask ``_name`` beside each ``name``.

        Raises:
            EnvError: an environment raised; its number and traceback are in the message.
        """
        if not self._is_reset:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        observation, reward, terminated, truncated, given = self._engine.step(actions)
        infos: dict[str, Any] = {}
        for index, info in given:
            if _IS_OLD and "final_obs" in info:
                info = {_FINAL: info["final_obs"], "final_info": info.get("final_info", {})}
            infos = self._add_info(infos, info, index)
        return observation, reward, terminated, truncated, infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """Call a method of each environment, or of its wrappers; the results in their order."""
        return self._engine.call(_checks.text("name", name), args, kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:  # noqa: ANN401
        """Set an attribute of each environment: to its entry of a list or tuple, or to ``values``.

        Raises:
            ValueError: the list has another length than there are environments.
        """
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise InvalidArgumentError(
                f"values has {len(values)} entries for {self.num_envs} environments; give one for "
                "each, or a single value"
            )
        self._engine.set_attr(_checks.text("name", name), list(values))

    def render(self) -> tuple[Any, ...]:
        """What each environment draws, by its ``render_mode``."""
        return self.call("render")

    @property
    def np_random(self) -> tuple[Any, ...]:
        """The generator of each environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[Any, ...]:
        """The seed of each environment's generator."""
        return self.get_attr("np_random_seed")

    def __enter__(self) -> GymVectorEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close_extras(self, **_kwargs: Any) -> None:  # noqa: ANN401
        """Ends the environments, and what steps them."""
        self._engine.close()


def _engine(
    env: object,
    num_envs: int,
    *,
    mode: str,
    backend: str,
    num_workers: int | None,
    kwargs: dict[str, Any],
    wrappers: list[object],
    timeout_s: float,
    copy: bool,
) -> Engine:
    if backend in ("auto", "native"):
        from reverie.envs.vector_of_native import native_engine

        native = native_engine(
            env,
            num_envs,
            mode=mode,
            num_threads=num_workers,
            kwargs=kwargs,
            timeout_s=timeout_s,
            copy=copy,
            is_asked_for=backend == "native",
            wrappers=wrappers,
        )
        if native is not None:
            return native
    from reverie.envs.vector_of_rows import RowsEngine

    return RowsEngine(
        env,
        num_envs,
        mode=mode,
        in_threads=backend == "thread",
        num_workers=num_workers,
        env_kwargs=kwargs,
        wrappers=wrappers,
        timeout_s=timeout_s,
        copy=copy,
    )


def _mode(given: object) -> str:
    value = getattr(given, "value", given)
    modes = tuple(mode.value for mode in AutoresetMode)
    return _checks.choice("autoreset_mode", _MODE if value is None else value, modes)


def _count(env: object, num_envs: int | None) -> int:
    if num_envs is None:
        return len(env) if isinstance(env, (list, tuple)) and env else 1
    return _checks.integer("num_envs", num_envs)


def _seeds(seed: object, num_envs: int) -> int | list[int | None]:
    if hasattr(seed, "__index__"):
        return _checks.integer("seed", seed, 0)
    seeds = _checks.items("seed", seed, "seeds, an integer or None for each environment")
    if len(seeds) != num_envs:
        raise InvalidArgumentError(
            f"seed has {len(seeds)} entries for {num_envs} environments; give one for each"
        )
    return [
        None if one is None else _checks.integer(f"seed[{i}]", one, 0)
        for i, one in enumerate(seeds)
    ]


def _checked_mask(mask: object, num_envs: int) -> np.ndarray:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(
            f"options['reset_mask'] is {_checks.shown(mask)}; it must be an array of bool"
        )
    if mask.shape != (num_envs,) or not mask.any():
        raise InvalidArgumentError(
            f"options['reset_mask'] is {_checks.shown(mask)}; it must have the shape "
            f"({num_envs},) and one True at least"
        )
    return mask


def _spec(env: object) -> Any:  # noqa: ANN401
    if isinstance(env, EnvPool):
        env = env.spec.id
    if not isinstance(env, str):
        return env if type(env).__name__ == "EnvSpec" else None
    try:
        return gymnasium.spec(env.rpartition(":")[2])
    except gymnasium.error.Error:
        return None  # a native environment that Gymnasium does not know
