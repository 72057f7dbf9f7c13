"""Actions as programs give them, of NumPy, torch or JAX, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks
from reverie.envs.backend import EnvSpec
from reverie.errors import InvalidArgumentError


def as_actions(actions: Any, dtype: Any) -> npt.NDArray[Any]:  # noqa: ANN401
    """Actions of the space's type: of torch or JAX, or a list."""
    if hasattr(actions, "detach"):
        actions = actions.detach().cpu()
    given = np.asarray(actions)
    is_whole = given.dtype.kind in "biu"
    if not is_whole and np.dtype(dtype).kind in "biu":
        raise InvalidArgumentError(
            f"actions is {_checks.shown(actions)}; the environments take integers"
        )
    return given.astype(dtype)


def counted_from_zero(actions: Any, spec: EnvSpec) -> Any:  # noqa: ANN401
    """The same as a pool takes them, which counts discrete actions from 0.

    Raises:
        InvalidArgumentError: one is not of the environment's space.
    """
    first = spec.action_start
    if first == 0 or spec.action_count is None:
        return actions
    given = as_actions(actions, np.int64)
    last = first + spec.action_count - 1
    wrong = np.flatnonzero((given < first) | (given > last))
    if wrong.size:
        index = int(wrong[0])
        raise InvalidArgumentError(
            f"actions[{index}] is {given.flat[index]}; actions are {first} to {last}"
        )
    return given - first
