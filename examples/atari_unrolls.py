"""Pong in two processes: unrolls [T, B, ...] for a learner, gathered while the games continue.

    EnvPool, 2 batches --steps--> Batcher, T steps --cat, dim 1--> Batcher, columns of the learner

The structure of a V-trace actor: each batch of environments fills a separate unroll, and finished
unrolls are concatenated until the learner has its columns.
"""

import time

import numpy as np

import reverie
from reverie.envs import atari

ENVS = 4
BATCHES = 2
UNROLL = 10
COLUMNS = 16
LEARNER_BATCHES = 3


def main() -> None:
    rng = np.random.default_rng(1)
    unrolls = [reverie.Batcher(UNROLL) for _ in range(BATCHES)]
    learner = reverie.Batcher(COLUMNS, dim=1)
    pool = reverie.EnvPool(
        atari.make,
        ENVS,
        num_batches=BATCHES,
        num_workers=2,
        env_kwargs={"game": "pong", "noop_max": 5},
        info=["lives"],
        seed=3,
    )
    with pool:
        print(f"{pool.spec.observation}, {pool.spec.action_count} actions")
        futures = [pool.reset(batch=b) for b in range(BATCHES)]
        begin = time.perf_counter()
        steps = 0
        taken = 0
        while taken < LEARNER_BATCHES:
            for b in range(BATCHES):
                batch = futures[b].result()
                actions = rng.integers(0, pool.spec.action_count, ENVS)  # a policy would choose
                unrolls[b].stack(
                    {
                        "obs": batch.observation,
                        "reward": batch.reward,
                        "done": batch.terminated,
                        "action": actions,
                    }
                )
                futures[b] = pool.step(actions, b)
                steps += ENVS
                if not unrolls[b].empty():
                    learner.cat(unrolls[b].get())
            while not learner.empty():
                columns = learner.get()
                assert columns["obs"].shape == (UNROLL, COLUMNS, 4, 84, 84)
                assert columns["action"].shape == (UNROLL, COLUMNS)
                # All frames but the newest were already in the stack one step earlier.
                older, newer = columns["obs"][:-1], columns["obs"][1:]
                np.testing.assert_array_equal(older[:, :, 1:], newer[:, :, :-1])
                taken += 1
        took_s = time.perf_counter() - begin
        print(f"{taken} learner batches, {steps} steps, {steps / took_s:,.0f} steps/s")


if __name__ == "__main__":
    main()
