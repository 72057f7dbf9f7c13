"""The interface of a pool of environments, for every way to run them.

A pool holds ``num_batches`` batches of ``num_envs`` environments each. A batch is stepped as a
whole, and while one is stepped the actions of another can be computed (double buffering).

    reset(batch) --> EnvFuture --result()--> EnvBatch --policy--> actions --> step(actions) ...

An environment whose episode ended is reset at once, in the same step: ``observation`` is then the
first of the next episode, and ``final_observation`` the last of the one that ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from reverie import _checks
from reverie.errors import InvalidArgumentError
from reverie.specs import TensorSpec


@dataclass(frozen=True)
class EnvSpec:
    """Describes one environment of a pool.

    Args:
        id: the requested name.
        observation: a nest of ``TensorSpec``, the shape of one observation.
        action: the ``TensorSpec`` of one action: int64 ``[]`` for a discrete one.
        action_count: how many discrete actions there are, 0 to ``action_count - 1``; ``None`` for
            continuous ones.
        action_low: the least continuous action, an array of the action's shape, or ``None``.
        action_high: the greatest continuous action, or ``None``.
        max_episode_steps: after how many steps an episode is truncated, or ``None``.
        observation_low: the least observation of a native environment, an array of its shape, or
            ``None``.
        observation_high: the greatest one, or ``None``.
        spaces: Gymnasium's observation and action space in plain values (see ``envs.spaces``), of
            an environment that has them.
        action_start: what the environment itself calls the discrete action 0.
    """

    id: str
    observation: Any
    action: TensorSpec
    action_count: int | None = None
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    max_episode_steps: int | None = None
    observation_low: np.ndarray | None = field(default=None, compare=False)
    observation_high: np.ndarray | None = field(default=None, compare=False)
    spaces: tuple[Any, Any] | None = field(default=None, repr=False, compare=False)
    action_start: int = field(default=0, repr=False, compare=False)


@dataclass(slots=True)
class EnvBatch:
    """The environments of one batch after a step.

    The arrays belong to the program. Those of a pool made with ``copy=False`` are views, which the
    next ``step`` or ``reset`` of the same batch overwrites.

    Args:
        observation: a nest of ``[B, ...]`` arrays.
        reward: ``[B]`` float32, 0 after a reset.
        terminated: ``[B]`` bool: the episode ended by the environment's own rules.
        truncated: ``[B]`` bool: it was cut off, for example by a step limit.
        final_observation: a nest like ``observation``; rows whose episode ended have its last one.
        env_ids: ``[B]`` int32, the environment of each row.
        info: numeric entries of the environments' info, by name, as ``[B, ...]`` arrays.
    """

    observation: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_observation: Any
    env_ids: np.ndarray
    info: dict[str, np.ndarray] = field(default_factory=dict)


class EnvFuture(Protocol):
    """A step in progress."""

    def done(self) -> bool:
        """Whether ``result`` would return at once."""

    def result(self, timeout_s: float | None = None) -> EnvBatch:
        """Wait for the batch.

        Args:
            timeout_s: how long at most; ``None``: the pool's own limit.

        Raises:
            DeadlineExceededError: the step takes longer, naming the worker that is late.
            EnvError: an environment raised or its worker died, with index and traceback.
        """


class NoSuchAttributeError(InvalidArgumentError, AttributeError):
    """An environment has no attribute of that name; Gymnasium raises ``AttributeError``."""


def no_env_ids(env_ids: object) -> InvalidArgumentError:
    """The error of a backend that only steps whole batches."""
    return InvalidArgumentError(
        f"env_ids is {_checks.shown(env_ids)}; it is for a pool of worker processes with "
        "batch_size, and this one steps all of a batch: leave it out"
    )


class Backend(Protocol):
    """What runs the environments: threads of this process, or worker processes."""

    spec: EnvSpec
    num_envs: int
    num_batches: int

    def reset(self, seed: int | None = None, *, batch: int = 0) -> EnvFuture:
        """Reset every environment of a batch; environment i gets the seed ``seed + i``."""

    def step(self, actions: Any, batch: int = 0) -> EnvFuture:  # noqa: ANN401
        """Step every environment of a batch with its row of ``actions``, ``[B, ...]``."""

    def close(self) -> None:
        """Stop what was started. Idempotent; any other call after it raises."""
