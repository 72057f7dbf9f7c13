"""A pool that a program made itself, as the environments of a ``GymVectorEnv``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks
from reverie.envs import spaces
from reverie.envs.actions import counted_from_zero
from reverie.envs.backend import NoSuchAttributeError
from reverie.envs.output import Converted
from reverie.envs.pool import EnvPool
from reverie.errors import InvalidArgumentError, UnimplementedError

_Infos = list[tuple[int, dict[str, Any]]]


class PoolEngine:
    """One batch of a pool; it resets in the same step, and gives the pool's info columns."""

    def __init__(self, pool: EnvPool, *, copy: bool) -> None:
        if pool.num_batches != 1 or pool.batch_size != pool.num_envs:
            raise InvalidArgumentError(
                f"{pool!r} gives batches of {pool.batch_size} environments; a VectorEnv steps all "
                "at once: make the pool with num_batches=1 and without batch_size"
            )
        if isinstance(pool._stepper, Converted):
            raise InvalidArgumentError(
                f"{pool!r} gives arrays of torch or JAX, and a VectorEnv gives NumPy's: make the "
                'pool with output="numpy", and wrap the VectorEnv in Gymnasium\'s NumpyToTorch'
            )
        self._pool = pool
        self._copies = copy and not pool.copy
        self.num_envs = pool.num_envs
        self.metadata: dict[str, Any] = {}
        self.render_mode = "rgb_array" if pool.backend == "native" else None
        self.observation_space, self.action_space = spaces.gym_spaces(pool.spec)

    def reset(
        self,
        seed: int | list[int | None] | None,
        options: dict[str, Any] | None,
        mask: npt.NDArray[np.bool_] | None,
    ) -> tuple[Any, _Infos]:
        """Reset every environment."""
        _checks.no_options("options", options, "a pool's reset takes none")
        if isinstance(seed, list):
            seed = _first_of(seed)
        if mask is not None or isinstance(seed, list):
            raise InvalidArgumentError(
                "a pool resets all of its environments from one seed; for a reset_mask or a list "
                "of seeds give the environment itself in place of the pool"
            )
        batch = self._pool.reset(seed).result()
        return self._own(batch.observation), self._infos(batch)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, _Infos]:  # noqa: ANN401
        """Step every environment."""
        batch = self._pool.step(counted_from_zero(actions, self._pool.spec)).result()
        infos = self._infos(batch)
        for index in np.flatnonzero(batch.terminated | batch.truncated).tolist():
            infos.append((index, {"final_obs": _row(batch.final_observation, index)}))
        return (
            self._own(batch.observation),
            np.asarray(batch.reward, np.float64),
            self._own(batch.terminated),
            self._own(batch.truncated),
            infos,
        )

    def step_some(
        self,
        actions: Any,  # noqa: ANN401
        chosen: npt.NDArray[np.bool_],
    ) -> tuple[Any, Any, Any, Any, _Infos]:
        """Refused: a pool steps a batch as a whole."""
        raise UnimplementedError(
            f"a pool cannot step environments {np.flatnonzero(chosen).tolist()} alone, with "
            f"{len(actions)} actions; give the environment itself in place of the pool"
        )

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Pictures; a pool asks its environments nothing else."""
        if name != "render" or args or kwargs:
            return self.read(name)
        return tuple(self._pool.render(index) for index in range(self.num_envs))

    def read(self, name: str) -> tuple[Any, ...]:
        """Refused: a pool asks its environments nothing."""
        raise NoSuchAttributeError(
            f"a pool cannot ask its environments for {name!r}; give the environment itself in "
            "place of the pool"
        )

    def set_attr(self, name: str, values: list[Any]) -> None:
        """Refused: a pool tells its environments nothing."""
        raise UnimplementedError(
            f"a pool cannot set {name!r} of its environments to {values[0]!r}; give the "
            "environment itself in place of the pool"
        )

    def close(self) -> None:
        """Close the pool."""
        self._pool.close()

    def _own(self, nest: Any) -> Any:  # noqa: ANN401
        if isinstance(nest, dict):
            return {key: self._own(value) for key, value in nest.items()}
        if isinstance(nest, tuple):
            return tuple(self._own(value) for value in nest)
        return nest.copy() if self._copies else nest

    def _infos(self, batch: Any) -> _Infos:  # noqa: ANN401
        return [
            (index, {name: column[index] for name, column in batch.info.items()})
            for index in range(self.num_envs)
            if batch.info
        ]


def _first_of(seeds: list[int | None]) -> int | list[int | None] | None:
    """The seed that gives environment i ``seeds[i]``, or the seeds where there is none."""
    first = seeds[0]
    if first is None:
        return None if seeds.count(None) == len(seeds) else seeds
    return first if seeds == list(range(first, first + len(seeds))) else seeds


def _row(nest: Any, index: int) -> Any:  # noqa: ANN401
    if isinstance(nest, dict):
        return {key: _row(value, index) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_row(value, index) for value in nest)
    return nest[index].copy()
