"""Double Q-learning on `reverie.nn` and `reverie.rl`, for batches that come from anywhere.

For a window of steps that begins with observation ``s`` and action ``a`` and ends before ``s'``::

    y = r_0 + d_0 (r_1 + d_1 (r_2 + ... Q_target(s', argmax_a' Q(s', a'))))

The loss is Huber's, weighed by the importance weights of the draw; the size of ``y - Q(s, a)`` is
the window's new priority.

Sources:
    van Hasselt et al. 2016 (double Q-learning), Schaul et al. 2016 (priorities), Hessel et al.
    2018 (several steps). Differs: the target network follows by Polyak averaging.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverie import nn, rl

FloatArray = NDArray[np.float32]
GRADIENT_NORM_MAX = 10.0


class DoubleDqn:
    """The online network, its target, and the rule that moves both. Not thread-safe.

    Args:
        sizes: the widths of the networks, from the observation to the actions.
        seed: draws the first weights.
        target_rate: how far the target network goes towards the online one in each step.
    """

    def __init__(self, sizes: tuple[int, ...], seed: int, *, target_rate: float = 0.005) -> None:
        self.online = nn.Mlp(sizes, seed=seed)
        self._target = self.online.copy()
        self._adam = nn.Adam(self.online)
        self._target_rate = target_rate

    def act(self, obs: FloatArray) -> int:
        """The greedy action for one observation, ``[D]``."""
        return int(self.online(obs).argmax())

    def learn(
        self, batch: Mapping[str, Any], weights: FloatArray, *, learning_rate: float
    ) -> tuple[FloatArray, float]:
        """One gradient step, with Adam's ``learning_rate``; the target network follows.

        Args:
            batch: ``obs`` and ``last_obs`` ``[B, D]``, ``action`` ``[B]``, and ``reward`` and
                ``discount`` ``[B, n]``: gamma, 0 after a terminal step, 1 behind an episode's end.
            weights: ``[B]``, the importance weights of the draw.
            learning_rate: of this step; 0 takes none.

        Returns:
            the TD errors, ``[B]``, and the loss, both as they were before the step.
        """
        last_obs, discount = batch["last_obs"], batch["discount"]
        shares = np.cumprod(discount, axis=1)  # of what stands behind each step
        rewards = batch["reward"].copy()
        rewards[:, 1:] *= shares[:, :-1]
        targets = rl.double_q_targets(
            rewards.sum(axis=1),
            shares[:, -1],
            self.online(last_obs),
            self._target(last_obs),
        )
        rows = np.arange(len(targets))
        values = self.online.forward(batch["obs"])
        errors = values[rows, batch["action"]] - targets
        gradient = np.zeros_like(values)
        gradient[rows, batch["action"]] = weights * rl.huber_derivatives(errors) / len(rows)
        if learning_rate > 0:
            self._adam.learning_rate = learning_rate
            backward = self.online.backward(gradient)
            self._adam.step(self.online, backward, norm_max=GRADIENT_NORM_MAX)
            self._target.approach(self.online, self._target_rate)
        return errors, float((weights * rl.huber_losses(errors)).mean())

    @property
    def state(self) -> dict[str, Any]:
        """All that it has learned, as arrays."""
        mean, square, count = self._adam.state()
        networks = {"online": self.online.parameters, "target": self._target.parameters}
        return {**networks, "mean": mean, "square": square, "count": count}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a `state`."""
        self.online.parameters[:] = state["online"]
        self._target.parameters[:] = state["target"]
        self._adam.restore(state["mean"], state["square"], int(state["count"]))
