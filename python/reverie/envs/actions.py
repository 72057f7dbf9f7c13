"""Actions as programs give them, of NumPy, torch or JAX, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks
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
