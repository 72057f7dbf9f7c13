"""The environments of a ``GymVectorEnv`` in C++, in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks
from reverie.envs import native, spaces
from reverie.envs.backend import NoSuchAttributeError
from reverie.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
    UnsupportedTypeError,
)

_Infos = list[tuple[int, dict[str, Any]]]


def native_engine(
    env: object,
    num_envs: int,
    *,
    mode: str,
    num_threads: int | None,
    kwargs: dict[str, Any],
    timeout_s: float,
    copy: bool,
    is_asked_for: bool,
    wrappers: list[object],
) -> NativeEngine | None:
    """The engine; None where the environment is not native and need not be.

    Raises:
        InvalidArgumentError: it has to be native, and is not, or has wrappers.
        NotFoundError: it has to be native, and there is no native one of that name.
    """
    if not isinstance(env, str) or wrappers:
        if is_asked_for:
            name, value = ("wrappers", wrappers) if isinstance(env, str) else ("env", env)
            what = f"{name} is {_checks.shown(value)}"
            raise InvalidArgumentError(
                f'{what}; native environments have an id and no wrappers: use backend="process"'
            )
        return None
    if not is_asked_for and env not in native.ids():
        return None
    try:
        return NativeEngine(env, num_envs, mode, num_threads, kwargs, timeout_s, copy=copy)
    except (InvalidArgumentError, UnsupportedTypeError, TypeError):
        # An option that only the original understands.
        if is_asked_for or not kwargs:
            raise
        return None


class NativeEngine:
    """One batch of native environments."""

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        mode: str,
        num_threads: int | None,
        kwargs: dict[str, Any],
        timeout_s: float,
        *,
        copy: bool,
    ) -> None:
        options = dict(kwargs)
        self.render_mode = options.pop("render_mode", None)
        if self.render_mode not in (None, "rgb_array"):
            raise InvalidArgumentError(
                f'render_mode is {self.render_mode!r}; native environments draw "rgb_array"'
            )
        self._pool = native.NativePool(
            env_id,
            num_envs,
            num_threads=num_threads,
            timeout_s=timeout_s,
            copy=copy,
            autoreset_mode=mode,
            **options,
        )
        self.num_envs = num_envs
        self.observation_space, self.action_space = spaces.gym_spaces(self._pool.spec)
        self.metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}
        self._ends_at_once = mode == "SameStep"
        self._step = self._pool.step
        # Which environments were stepped along with others, so that they are no longer where their
        # last observation was; None while there are none.
        self._adrift: npt.NDArray[np.bool_] | None = None

    def reset(
        self,
        seed: int | list[int | None] | None,
        options: dict[str, Any] | None,
        mask: npt.NDArray[np.bool_] | None,
    ) -> tuple[Any, _Infos]:
        """Reset environments."""
        if options:
            raise InvalidArgumentError(
                f"options is {_checks.shown(options)}; native environments support only "
                '"reset_mask": use backend="process"'
            )
        if self._adrift is not None:
            self._adrift = self._adrift & ~mask if mask is not None else None
        if mask is None and not isinstance(seed, list):
            return self._pool.reset(seed).result().observation, []
        chosen = [True] * self.num_envs if mask is None else mask.tolist()
        if isinstance(seed, int):
            seeds: list[int | None] = [seed + i for i in range(self.num_envs)]
        else:
            seeds = seed or [None] * self.num_envs
        return self._pool.reset_some(chosen, seeds).result().observation, []

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, _Infos]:  # noqa: ANN401
        """Step every environment."""
        if self._adrift is not None:
            self._check_adrift(np.ones(self.num_envs, np.bool_))
        batch = self._step(actions).result()
        terminated, truncated = batch.terminated, batch.truncated
        infos: _Infos = []
        if self._ends_at_once:
            for index in np.flatnonzero(terminated | truncated).tolist():
                final = {"final_obs": batch.final_observation[index].copy(), "final_info": {}}
                infos.append((index, final))
        return batch.observation, batch.reward.astype(np.float64), terminated, truncated, infos

    def step_some(
        self,
        actions: Any,  # noqa: ANN401
        chosen: npt.NDArray[np.bool_],
    ) -> tuple[Any, Any, Any, Any, _Infos]:
        """Step the chosen environments, ``[N]``.

        A batch is stepped as a whole, so the others move too, and must be reset before they are
        stepped by choice again.

        Raises:
            FailedPreconditionError: a chosen one was moved so, and not reset since.
        """
        self._check_adrift(chosen)
        batch = self._step(actions).result()
        found = (
            np.array(batch.observation),
            np.where(chosen, batch.reward, 0).astype(np.float64),
            batch.terminated & chosen,
            batch.truncated & chosen,
        )
        self._adrift = ~chosen if self._adrift is None else self._adrift | ~chosen
        over = (batch.terminated | batch.truncated) & ~chosen
        if over.any() and not self._ends_at_once:
            self._pool.reset_some(over.tolist()).result()
        return *found, []

    def _check_adrift(self, chosen: npt.NDArray[np.bool_]) -> None:
        if self._adrift is None:
            return
        moved = np.flatnonzero(self._adrift & chosen).tolist()
        if moved:
            raise FailedPreconditionError(
                f"environments {moved} were left out of an earlier step, and native environments "
                'are stepped all together: reset these first, or make them with backend="thread"'
            )
        if not self._adrift.any():
            self._adrift = None

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """What native environments have of the attributes that Gymnasium's have."""
        if name == "render":
            if self.render_mode is None:
                return (None,) * self.num_envs
            return tuple(self._pool.render(index) for index in range(self.num_envs))
        return self.read("" if args or kwargs else name)

    def read(self, name: str) -> tuple[Any, ...]:
        """The same, not called."""
        if name not in ("action_space", "metadata", "observation_space", "render_mode"):
            raise NoSuchAttributeError(
                f"native environments have no {name!r} to read or call; "
                'make the GymVectorEnv with backend="process"'
            )
        return (getattr(self, name),) * self.num_envs

    def set_attr(self, name: str, values: list[Any]) -> None:
        """Refused: native environments have no attributes of Python."""
        raise UnimplementedError(
            f"native environments have no attribute {name!r} that could be set to "
            f'{values[0]!r}; make the GymVectorEnv with backend="process"'
        )

    def close(self) -> None:
        """End the pool."""
        self._pool.close()
