"""Many environments in worker processes: double buffering, and a worker that dies.

    batch 0:   | step ......... | policy | step ......... | policy | ...
    batch 1:            | policy | step ......... | policy | step ......... | ...

While one batch is stepped, the actions of the other are computed. An environment that ends its
process ends its worker, not the program: the pool replaces the worker and reports lost episodes.
"""

import os
from typing import Any

import gymnasium
import numpy as np

import reverie
from reverie.envs import EnvBatch, EnvFuture

ENVS = 8
BATCHES = 2
STEPS = 300


class CartPoleThatCrashes(gymnasium.Wrapper):  # type: ignore[misc]
    """Ends its process in the middle of a step, once, if told to."""

    def __init__(self, crash_after: int) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.left = crash_after

    def step(self, action: int) -> Any:  # noqa: ANN401
        """Makes a step, or ends the process."""
        self.left -= 1
        if self.left == 0:
            os._exit(1)
        return super().step(action)


def policy(observation: np.ndarray) -> np.ndarray:
    """Pushes towards the side to which the pole leans: [B] from [B, 4]."""
    return (observation[:, 2] > 0).astype(np.int64)


def result_of(pool: reverie.EnvPool, future: EnvFuture) -> EnvBatch:
    """The batch; workers that died are replaced, and the rows of other workers are kept."""
    while True:
        try:
            return future.result()
        except reverie.errors.EnvError as error:  # noqa: PERF203
            print(error)
            pool.restart(error.worker)


def main() -> None:
    pool = reverie.EnvPool(
        CartPoleThatCrashes,
        ENVS,
        num_batches=BATCHES,
        num_workers=2,
        env_kwargs={"crash_after": 200},
        seed=1,
    )
    with pool:
        futures = [pool.reset(batch=b) for b in range(BATCHES)]
        lengths = np.zeros((BATCHES, ENVS), np.int64)
        ended: list[int] = []
        lost = 0
        for step in range(STEPS * BATCHES):
            b = step % BATCHES
            batch = result_of(pool, futures[b])
            # An episode that is truncated with a reward of 0 was lost with its worker.
            gone = batch.truncated & (batch.reward == 0)
            lost += int(gone.sum())
            over = batch.terminated | batch.truncated
            lengths[b] += 1
            ended += lengths[b][over & ~gone].tolist()
            lengths[b][over] = 0
            futures[b] = pool.step(policy(batch.observation), b)
        print(
            f"{STEPS * BATCHES * ENVS} steps, {len(ended)} episodes of {np.mean(ended):.0f} steps"
        )
        print(f"{pool.restart_count} workers replaced, {lost} episodes lost with them")
        assert pool.restart_count >= 2
        assert lost >= 2 * ENVS // 2
        assert np.mean(ended) > 20


if __name__ == "__main__":
    main()
