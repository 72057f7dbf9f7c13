"""Steps the environment, and writes what happens into the store.

A row of the stream is one step: the observation, the action taken on it, the reward that
followed, and the discount of all that comes after. An item is a window of ``n`` steps, made of
slices of ``n + 1`` rows::

    row         t        t+1       t+2       t+3
    obs        [obs]                        [last_obs]
    action     [action]
    reward     [---------reward--------]
    discount   [--------discount-------]

Neighbouring windows share their rows, so that each observation is stored once, although it is
the start of one window, the end of another and inside of two more.

Behind the last step of an episode stand ``n`` rows that only repeat the last observation, with
reward 0 and discount 1. They close the windows of the last steps without a special case: such a
window adds nothing, and ends in the last observation. There the value counts if the time limit
cut the episode off, and is multiplied by the discount 0 if the episode terminated.
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np

import reverie
from reverie.demo.network import FloatArray

Policy = Callable[[FloatArray], int]


class Actor:
    """One environment and the writer of its steps. Not thread-safe.

    Args:
        env: a Gymnasium environment with a finite number of actions.
        writer: a trajectory writer that keeps at least ``window_steps + 1`` rows.
        table: the table of the windows.
        window_steps: the steps of a window, ``n`` above.
        gamma: the discount of a step.
        rng: draws the random actions and the environment's seed.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        writer: reverie.TrajectoryWriter,
        *,
        table: str,
        window_steps: int,
        gamma: float,
        rng: np.random.Generator,
    ) -> None:
        self._env = env
        self._writer = writer
        self._table = table
        self._window_steps = window_steps
        self._gamma = gamma
        self._rng = rng
        self._action_count = int(env.action_space.n)
        self._obs: FloatArray = env.reset(seed=int(rng.integers(2**31)))[0]
        self._episode_rows = 0
        self._episode_return = 0.0

    def step(self, policy: Policy, epsilon: float) -> float | None:
        """One step of the environment, random with probability ``epsilon``.

        Returns:
            The return of the episode if this step ended it.
        """
        if self._rng.random() < epsilon:
            action = int(self._rng.integers(self._action_count))
        else:
            action = policy(self._obs)
        next_obs, reward, terminated, truncated, _ = self._env.step(action)
        self._write(action, float(reward), 0.0 if terminated else self._gamma)
        self._obs = next_obs
        self._episode_return += float(reward)
        if not (terminated or truncated):
            return None
        return self._finish_episode()

    def _write(self, action: int, reward: float, discount: float) -> None:
        self._writer.append(
            {
                "obs": self._obs,
                "action": np.int64(action),
                "reward": np.float32(reward),
                "discount": np.float32(discount),
            }
        )
        self._episode_rows += 1
        n = self._window_steps
        if self._episode_rows <= n:
            return
        history = self._writer.history
        self._writer.create_item(
            self._table,
            priority=None,
            trajectory={
                "obs": history["obs"][-n - 1],
                "action": history["action"][-n - 1],
                "reward": history["reward"][-n - 1 : -1],
                "discount": history["discount"][-n - 1 : -1],
                "last_obs": history["obs"][-1],
            },
        )

    def _finish_episode(self) -> float:
        for _ in range(self._window_steps):
            self._write(action=0, reward=0.0, discount=1.0)
        self._writer.end_episode()
        episode_return = self._episode_return
        self._obs = self._env.reset()[0]
        self._episode_rows = 0
        self._episode_return = 0.0
        return episode_return
