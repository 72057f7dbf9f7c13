"""Greedy episodes without learning: how well a network plays."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import numpy as np
from numpy.typing import NDArray

from reverie.demo.network import Network


def greedy_returns(
    network: Network, envs: Sequence[gymnasium.Env], seeds: Sequence[int]
) -> NDArray[np.float64]:
    """The return of one episode in each environment, each begun with its seed.

    The environments go in step, so that one forward pass serves all those still running.
    """
    obs = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)])
    returns = np.zeros(len(envs))
    running = list(range(len(envs)))
    while running:
        actions = network(obs[running]).argmax(axis=1)
        still_running = []
        for index, action in zip(running, actions.tolist(), strict=True):
            obs[index], reward, terminated, truncated, _ = envs[index].step(action)
            returns[index] += float(reward)
            if not (terminated or truncated):
                still_running.append(index)
        running = still_running
    return returns
