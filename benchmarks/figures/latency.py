"""Insert and sample latency of one prioritised replay buffer, called as its users call it.

A transition is that of a small control task: two observations of 8 float32, an action, a reward, a
flag; a batch is 64 of them with their weights. The buffer is first filled to its capacity within a
time limit; a size that takes longer is left out.

Usage: python latency.py SYSTEM ITEMS    prints {"insert_us": ..., "sample_us": ...} as JSON

Medians of 5 windows. Each system runs in a separate process (benchmarks/figures/paper.py), with
one thread.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

BATCH = 64
OBS = 8
FILL_BUDGET_S = 60.0
WINDOW_S = 0.2


OBSERVATION = np.arange(OBS, dtype=np.float32)


class Buffer(NamedTuple):
    """Inserts one transition; draws one batch with weights."""

    insert: Callable[[], Any]
    sample: Callable[[], Any]


def reverie_buffer(items: int) -> Buffer:
    """``reverie.ReplayBuffer``."""
    import reverie

    buffer = reverie.ReplayBuffer(items, prioritized=True, seed=7)
    action = np.int64(1)
    return Buffer(
        lambda: buffer.add(OBSERVATION, action, 1.0, OBSERVATION, False, False),
        lambda: buffer.sample(BATCH),
    )


def tianshou_buffer(items: int) -> Buffer:
    """``tianshou.data.PrioritizedReplayBuffer``."""
    from tianshou.data import Batch, PrioritizedReplayBuffer

    buffer: Any = PrioritizedReplayBuffer(items, alpha=0.6, beta=0.4)
    step = Batch(
        obs=OBSERVATION,
        act=1,
        rew=1.0,
        terminated=False,
        truncated=False,
        obs_next=OBSERVATION,
        info={},
    )
    return Buffer(lambda: buffer.add(step), lambda: buffer.sample(BATCH))


def rllib_buffer(items: int) -> Buffer:
    """``ray.rllib``'s ``PrioritizedReplayBuffer``."""
    from ray.rllib.policy.sample_batch import SampleBatch
    from ray.rllib.utils.replay_buffers.prioritized_replay_buffer import PrioritizedReplayBuffer

    buffer: Any = PrioritizedReplayBuffer(capacity=items, alpha=0.6)
    step = SampleBatch(
        obs=OBSERVATION[None],
        new_obs=OBSERVATION[None],
        actions=np.ones(1, np.int64),
        rewards=np.ones(1, np.float32),
        terminateds=np.zeros(1, bool),
        truncateds=np.zeros(1, bool),
    )
    return Buffer(lambda: buffer.add(step.copy()), lambda: buffer.sample(BATCH, beta=0.4))


def cpprb_buffer(items: int) -> Buffer:
    """``cpprb.PrioritizedReplayBuffer``."""
    import cpprb

    columns = {"obs": {"shape": OBS}, "next_obs": {"shape": OBS}, "act": {}, "rew": {}, "done": {}}
    buffer: Any = cpprb.PrioritizedReplayBuffer(items, columns, alpha=0.6)
    return Buffer(
        lambda: buffer.add(obs=OBSERVATION, next_obs=OBSERVATION, act=1, rew=1.0, done=0),
        lambda: buffer.sample(BATCH, beta=0.4),
    )


def flashbax_buffer(items: int) -> Buffer:
    """``flashbax.make_prioritised_flat_buffer``, compiled, with its state donated."""
    import flashbax
    import jax
    import jax.numpy as jnp

    buffer = flashbax.make_prioritised_flat_buffer(
        max_length=items, min_length=2, sample_batch_size=BATCH, priority_exponent=0.6
    )
    step = {
        "obs": jnp.asarray(OBSERVATION),
        "act": jnp.int32(1),
        "rew": jnp.float32(1),
        "done": jnp.bool_(False),
    }
    add = jax.jit(buffer.add, donate_argnums=0)
    sample = jax.jit(buffer.sample)
    key = jax.random.PRNGKey(7)
    state: list[Any] = [jax.jit(buffer.init)(step)]

    def insert() -> None:
        state[0] = add(state[0], step)

    return Buffer(insert, lambda: jax.block_until_ready(sample(state[0], key)))


SYSTEMS: dict[str, Callable[[int], Buffer]] = {
    "reverie": reverie_buffer,
    "tianshou": tianshou_buffer,
    "rllib": rllib_buffer,
    "cpprb": cpprb_buffer,
    "flashbax": flashbax_buffer,
}


def per_call_us(call: Callable[[], Any]) -> float:
    """The median of five windows, in microseconds per call."""
    times = []
    for _ in range(5):
        calls, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < WINDOW_S:
            for _ in range(16):
                call()
            calls += 16
        times.append(1e6 * spent / calls)
    return statistics.median(times)


def main(system: str, items: int) -> None:
    """Fills the buffer, measures, and prints."""
    buffer = SYSTEMS[system](items)
    for _ in range(200):
        buffer.insert()
    probe = per_call_us(buffer.insert)
    if probe * items * 1e-6 > FILL_BUDGET_S:
        print(json.dumps({"skipped": f"filling it takes {probe * items * 1e-6:.0f} s"}))
        return
    for _ in range(items):
        buffer.insert()
    buffer.sample()
    insert_us = per_call_us(buffer.insert)
    print(json.dumps({"insert_us": insert_us, "sample_us": per_call_us(buffer.sample)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
