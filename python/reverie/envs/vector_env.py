"""A pool as a Gymnasium ``VectorEnv``, for code that is written against one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from reverie import _checks
from reverie.envs.pool import EnvPool
from reverie.errors import InvalidArgumentError
from reverie.specs import TensorSpec


class GymVectorEnv(gymnasium.vector.VectorEnv):  # type: ignore[misc]
    """One batch of a pool. An episode that ends is reset in the same step.

    The last observations of episodes are ``info["final_obs"]``, as Gymnasium has it for
    ``AutoresetMode.SAME_STEP``; the pool's info columns are entries of ``info``.

    Args:
        pool: with one batch, and NumPy output. It is closed with this object.
        copy: gives arrays of their own, even where the pool gives views.

    Raises:
        InvalidArgumentError: the pool has several batches, or gives what is ready first.
    """

    def __init__(self, pool: EnvPool, *, copy: bool = True) -> None:
        _checks.instance("pool", pool, EnvPool)
        if pool.num_batches != 1 or pool.batch_size != pool.num_envs:
            raise InvalidArgumentError(
                f"{pool!r} gives batches of {pool.batch_size} environments; a VectorEnv steps all "
                "at once: make the pool with num_batches=1 and without batch_size"
            )
        self._pool = pool
        self._copy = _checks.flag("copy", copy) and not pool.copy
        self.num_envs = pool.num_envs
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        self.render_mode = "rgb_array" if pool.backend == "native" else None
        self.single_observation_space = _space(pool.spec.observation)
        self.single_action_space = _action_space(pool)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start every environment anew; environment i gets ``seed + i``."""
        _checks.no_options("options", options, "a pool's reset takes none")
        batch = self._pool.reset(seed).result()
        return self._own(batch.observation), self._info(batch)

    def step(
        self,
        actions: Any,  # noqa: ANN401
    ) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment."""
        batch = self._pool.step(actions).result()
        info = self._info(batch)
        over = batch.terminated | batch.truncated
        if over.any():
            final = np.full(self.num_envs, None, object)
            for index in np.flatnonzero(over):
                final[index] = _row(batch.final_observation, int(index))
            info["final_obs"] = final
            info["_final_obs"] = over
        return (
            self._own(batch.observation),
            self._own(batch.reward),
            self._own(batch.terminated),
            self._own(batch.truncated),
            info,
        )

    def render(self) -> tuple[Any, ...]:
        """A picture of each environment; see ``EnvPool.render``."""
        return tuple(self._pool.render(index) for index in range(self.num_envs))

    def close_extras(self, **_kwargs: Any) -> None:  # noqa: ANN401
        """Closes the pool."""
        self._pool.close()

    def _own(self, nest: Any) -> Any:  # noqa: ANN401
        if isinstance(nest, dict):
            return {key: self._own(value) for key, value in nest.items()}
        if isinstance(nest, tuple):
            return tuple(self._own(value) for value in nest)
        return nest.copy() if self._copy else nest

    def _info(self, batch: Any) -> dict[str, Any]:  # noqa: ANN401
        return {name: self._own(column) for name, column in batch.info.items()}


def _row(nest: Any, index: int) -> Any:  # noqa: ANN401
    if isinstance(nest, dict):
        return {key: _row(value, index) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_row(value, index) for value in nest)
    return nest[index].copy()


def _space(spec: Any) -> Any:  # noqa: ANN401
    """A space for what a pool gives: bounds are those of the element type."""
    if isinstance(spec, dict):
        return gymnasium.spaces.Dict({key: _space(value) for key, value in spec.items()})
    if isinstance(spec, tuple):
        return gymnasium.spaces.Tuple([_space(value) for value in spec])
    assert isinstance(spec, TensorSpec)
    shape = tuple(extent or 0 for extent in spec.shape)
    if spec.dtype.kind == "f":
        return gymnasium.spaces.Box(-np.inf, np.inf, shape, spec.dtype.type)
    if spec.dtype.kind == "b":
        return gymnasium.spaces.MultiBinary(shape)
    limits = np.iinfo(spec.dtype)
    return gymnasium.spaces.Box(limits.min, limits.max, shape, spec.dtype.type)


def _action_space(pool: EnvPool) -> Any:  # noqa: ANN401
    spec = pool.spec
    if spec.action_count is not None:
        return gymnasium.spaces.Discrete(spec.action_count)
    if spec.action_low is None or spec.action_high is None:
        return _space(spec.action)
    return gymnasium.spaces.Box(spec.action_low, spec.action_high, dtype=spec.action.dtype.type)
