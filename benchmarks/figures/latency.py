"""Insert and sample latency of one prioritised replay buffer, as its user calls it.

A transition is that of a small control task: two observations of 8 float32, an action, a reward, a
flag; a batch is 64 of them with their weights. The buffer is filled up to its capacity first, within
a budget of time: where that is too little the size is left out rather than guessed.

Usage: python latency.py SYSTEM ITEMS    prints {"insert_us": ..., "sample_us": ...} as JSON

Medians of 5 windows. Each system runs in a process of its own (benchmarks/figures/paper.py), with
one thread.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np

BATCH = 64
OBS = 8
FILL_BUDGET_S = 60.0
WINDOW_S = 0.2


class Buffer(Protocol):
    """What is measured."""

    def insert(self) -> None:
        """One transition."""

    def sample(self) -> None:
        """One batch, with weights."""


OBSERVATION = np.arange(OBS, dtype=np.float32)


class Reverie:
    """``reverie.ReplayBuffer``."""

    def __init__(self, items: int) -> None:
        import reverie

        self._buffer = reverie.ReplayBuffer(items, prioritized=True, seed=7)
        self._action, self._reward = np.int64(1), 1.0

    def insert(self) -> None:
        self._buffer.add(OBSERVATION, self._action, self._reward, OBSERVATION, False, False)

    def sample(self) -> None:
        self._buffer.sample(BATCH)


class Tianshou:
    """``tianshou.data.PrioritizedReplayBuffer``."""

    def __init__(self, items: int) -> None:
        from tianshou.data import Batch, PrioritizedReplayBuffer

        self._buffer: Any = PrioritizedReplayBuffer(items, alpha=0.6, beta=0.4)
        self._step = Batch(
            obs=OBSERVATION,
            act=1,
            rew=1.0,
            terminated=False,
            truncated=False,
            obs_next=OBSERVATION,
            info={},
        )

    def insert(self) -> None:
        self._buffer.add(self._step)

    def sample(self) -> None:
        self._buffer.sample(BATCH)


class RLlib:
    """``ray.rllib``'s ``PrioritizedReplayBuffer``."""

    def __init__(self, items: int) -> None:
        from ray.rllib.policy.sample_batch import SampleBatch
        from ray.rllib.utils.replay_buffers.prioritized_replay_buffer import (
            PrioritizedReplayBuffer,
        )

        self._buffer: Any = PrioritizedReplayBuffer(capacity=items, alpha=0.6)
        self._step = SampleBatch(
            obs=OBSERVATION[None],
            new_obs=OBSERVATION[None],
            actions=np.ones(1, np.int64),
            rewards=np.ones(1, np.float32),
            terminateds=np.zeros(1, bool),
            truncateds=np.zeros(1, bool),
        )

    def insert(self) -> None:
        self._buffer.add(self._step.copy())

    def sample(self) -> None:
        self._buffer.sample(BATCH, beta=0.4)


class Cpprb:
    """``cpprb.PrioritizedReplayBuffer``."""

    def __init__(self, items: int) -> None:
        import cpprb

        self._buffer: Any = cpprb.PrioritizedReplayBuffer(
            items,
            {"obs": {"shape": OBS}, "next_obs": {"shape": OBS}, "act": {}, "rew": {}, "done": {}},
            alpha=0.6,
        )

    def insert(self) -> None:
        self._buffer.add(obs=OBSERVATION, next_obs=OBSERVATION, act=1, rew=1.0, done=0)

    def sample(self) -> None:
        self._buffer.sample(BATCH, beta=0.4)


class Flashbax:
    """``flashbax.make_prioritised_flat_buffer``, compiled, its state donated."""

    def __init__(self, items: int) -> None:
        import flashbax
        import jax
        import jax.numpy as jnp

        self._jax = jax
        buffer = flashbax.make_prioritised_flat_buffer(
            max_length=items, min_length=2, sample_batch_size=BATCH, priority_exponent=0.6
        )
        step = {
            "obs": jnp.asarray(OBSERVATION),
            "act": jnp.int32(1),
            "rew": jnp.float32(1),
            "done": jnp.bool_(False),
        }
        self._state: Any = jax.jit(buffer.init)(step)
        self._add = jax.jit(buffer.add, donate_argnums=0)
        self._sample = jax.jit(buffer.sample)
        self._step = step
        self._key = jax.random.PRNGKey(7)

    def insert(self) -> None:
        self._state = self._add(self._state, self._step)

    def sample(self) -> None:
        self._jax.block_until_ready(self._sample(self._state, self._key))


SYSTEMS: dict[str, Callable[[int], Buffer]] = {
    "reverie": Reverie,
    "tianshou": Tianshou,
    "rllib": RLlib,
    "cpprb": Cpprb,
    "flashbax": Flashbax,
}


def per_call_us(call: Callable[[], None]) -> float:
    """The median of five windows, in microseconds a call."""
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
    """Fills, measures, prints."""
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
