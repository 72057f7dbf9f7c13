"""What a training takes from a user: a policy that acts, and a learner that learns."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Policy(Protocol):
    """What acts."""

    def act(self, observation: Any, *, step: int, explore: bool) -> np.ndarray:  # noqa: ANN401
        """Actions for a batch of observations.

        Args:
            observation: what the environments gave, ``[B, ...]``; of a Dict or Tuple space a nest
                of such arrays.
            step: environment steps so far, for schedules.
            explore: whether to explore; evaluations do not.

        Returns:
            ``[B]`` integers, or ``[B, ...]`` of the environment's actions.
        """


class Learner(Protocol):
    """What learns.

    One that has ``state_dict()``, which gives arrays, tensors or numbers by name, and
    ``load_state_dict(state)``, which takes them, as PyTorch's modules have, can be saved: see
    `Loop.save`. So can a policy that is an object of its own. An attribute ``loss``, a number or a
    tensor of one, is shown as the training's.
    """

    def learn(self, batch: dict[str, Any], *, progress: float) -> Any:  # noqa: ANN401
        """One gradient step, or more.

        Args:
            batch: as ``ReplayBuffer.sample`` gives it, with rewards scaled; arrays or tensors of
                the output and device that the loop was made with.
            progress: the share of the training that is over, for schedules.

        Returns:
            ``[B]`` absolute TD errors, an array or a tensor, which become the priorities of a
            prioritised replay; None leaves these as they are.
        """


def is_finite(values: np.ndarray) -> bool:
    """Whether no number that a policy or learner gave is NaN or infinite."""
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())
