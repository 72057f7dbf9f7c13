"""Double Q-learning over prioritised windows of several steps, in NumPy.

For a window that starts with observation ``s`` and action ``a`` and ends before observation
``s'``, the target is::

    y = r_0 + d_0 (r_1 + d_1 (r_2 + d_2 Q_target(s', argmax_a' Q(s', a'))))

The online network chooses the last action and the target network values it, so that the noise of
one network is not taken for value. The loss is Huber's, weighed by the importance weights of the
draw, and the size of ``y - Q(s, a)`` is the window's new priority.

Sources:
    van Hasselt et al. 2016 (double Q-learning), Schaul et al. 2016 (priorities), Hessel et al.
    2018 (several steps). Differs: the target network follows by Polyak averaging.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reverie.demo.network import Adam, FloatArray, Network


@dataclass(frozen=True)
class Windows:
    """A batch of ``B`` windows of ``n`` steps each."""

    obs: FloatArray
    """``[B, D]``, what the first action was chosen on."""
    action: NDArray[np.int64]
    """``[B]``, that action."""
    reward: FloatArray
    """``[B, n]``."""
    discount: FloatArray
    """``[B, n]``: gamma, 0 after a terminal step, 1 behind the end of an episode."""
    last_obs: FloatArray
    """``[B, D]``, the observation after the last step."""


def n_step_return(reward: FloatArray, discount: FloatArray, bootstrap: FloatArray) -> FloatArray:
    """Sum of discounted rewards over one window, closed by a value estimate.

    Args:
        reward: ``[B, n]`` float32, in the environment's own unit.
        discount: ``[B, n]`` float32 in ``[0, 1]``; 0 where the episode *terminated*, gamma where
            it was only *truncated* (a time limit is not a death).
        bootstrap: ``[B]`` float32, the value of the state after the last step.

    Returns:
        ``[B]`` float32 targets.

    Source:
        Sutton & Barto, 2nd ed., eq. 7.1.
    """
    target = bootstrap
    for step in reversed(range(reward.shape[1])):
        target = reward[:, step] + discount[:, step] * target
    return target


class DoubleDqn:
    """The online network, its target, and the rule that moves both. Not thread-safe.

    Args:
        sizes: the widths of the networks, from the observation to the actions.
        rng: draws the first weights.
        target_rate: how far the target network goes towards the online one in each step.
        gradient_norm_max: a longer gradient is shortened to this.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        rng: np.random.Generator,
        *,
        target_rate: float = 0.005,
        gradient_norm_max: float = 10.0,
    ) -> None:
        self.online = Network(sizes, rng)
        self.target = Network(sizes, rng)
        self.target.parameters[:] = self.online.parameters
        self._adam = Adam(self.online.parameters)
        self._target_rate = target_rate
        self._gradient_norm_max = gradient_norm_max

    @property
    def state(self) -> dict[str, FloatArray]:
        """All that it has learned. The arrays are its own."""
        networks = {"online": self.online.parameters, "target": self.target.parameters}
        return networks | self._adam.state

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Goes on from a `state`."""
        self.online.parameters[:] = state["online"]
        self.target.parameters[:] = state["target"]
        self._adam.restore(state)

    def act(self, obs: FloatArray) -> int:
        """The greedy action of the online network for one observation, ``[D]``."""
        return int(self.online(obs).argmax())

    def gradient(
        self, windows: Windows, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray, float]:
        """The gradient of the loss in the online network's parameters, the target held fixed.

        Args:
            windows: the batch.
            weights: ``[B]``, the importance weights of the draw.

        Returns:
            the gradient as one flat vector, the TD errors ``y - Q(s, a)``, ``[B]``, and the loss.
        """
        rows = np.arange(len(windows.action))
        best = self.online(windows.last_obs).argmax(axis=1)
        bootstrap = self.target(windows.last_obs)[rows, best]
        target = n_step_return(windows.reward, windows.discount, bootstrap)
        values = self.online.forward(windows.obs)
        td_error = target - values[-1][rows, windows.action]
        # The derivative of Huber's loss is the error, cut off at 1.
        clipped = np.clip(td_error, -1.0, 1.0)
        loss = float((weights * clipped * (td_error - 0.5 * clipped)).mean())
        output_gradient = np.zeros_like(values[-1])
        output_gradient[rows, windows.action] = weights * clipped / -len(rows)
        return self.online.gradient(values, output_gradient), td_error, loss

    def learn(
        self, windows: Windows, weights: FloatArray, *, learning_rate: float
    ) -> tuple[FloatArray, float]:
        """One gradient step, with Adam's ``learning_rate``; the target network follows.

        Returns:
            the TD errors, ``[B]``, and the loss, both as they were before the step.
        """
        gradient, td_error, loss = self.gradient(windows, weights)
        norm = math.sqrt(gradient @ gradient)
        if norm > self._gradient_norm_max:
            gradient *= self._gradient_norm_max / norm
        self._adam.step(gradient, learning_rate)
        self.target.parameters += self._target_rate * (
            self.online.parameters - self.target.parameters
        )
        return td_error, loss
