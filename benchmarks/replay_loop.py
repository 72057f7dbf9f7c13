"""A learner's loop over a replay buffer: microseconds per call, with installed peers.

Transitions of a small control task (observations of 8 float32, an action, a reward, an end: 76
bytes as most peers store them), 100,000 of them, prioritised with alpha 0.6 and beta 0.4:

    sample+update   draw a batch with its weights, copy it out, give each item a new priority
    insert          one transition; 64 of 64 environments in one call if a peer can do that

Stacks of four 84x84 frames: draw 256 observations and their successors. The bound is the time of
NumPy's take for copying the same rows into the same arrays.

Each round measures every buffer once, so that other load affects all of them. Printed: the median
of the rounds, the smallest and the largest, and the median of the rounds' ratios to Reverie's
prioritised buffer.

Peers are those of the extra ``peers``, each used in its usual way: cpprb, Tianshou,
Stable-Baselines3 (uniform draws only), Flashbax (compiled, state donated). ``make bench-peers``
installs them in a separate environment. RLlib and torchrl are left out: Ray alone is larger than
all of them, and torchrl's wheels cannot be imported with this PyTorch.

Usage: replay_loop.py [--rounds N] [--items N] [--frames N] [--only transitions|inserts|frames]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

import reverie

ENVS = 64
OBS = 8
FRAME = (84, 84)
STACK = 4
ALPHA, BETA = 0.6, 0.4

Call = Callable[[], Any]


class Steps:
    """The same steps for every buffer: for one environment, and for 64."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.obs = rng.standard_normal((ENVS, OBS)).astype(np.float32)
        self.next_obs = rng.standard_normal((ENVS, OBS)).astype(np.float32)
        self.action = rng.integers(0, 4, ENVS).astype(np.int32)
        self.reward = rng.standard_normal(ENVS).astype(np.float32)
        self.over = np.zeros(ENVS, bool)
        self.frames = rng.integers(0, 255, (256, *FRAME)).astype(np.uint8)


STEPS = Steps()


class Buffer(ABC):
    """The interface of each buffer; an insert has one transition per environment."""

    name = ""

    def __init__(self, items: int, envs: int) -> None:
        self.items, self.envs = items, envs
        self.priorities = np.random.default_rng(1).random(4096)

    @abstractmethod
    def insert(self) -> None:
        """Inserts one transition of each environment."""

    @abstractmethod
    def sample_update(self, batch_size: int) -> None:
        """Draws a batch, then gives each of its items a new priority."""

    def fill(self) -> None:
        """Fills the buffer with transitions."""
        for _ in range(self.items // self.envs + 1):
            self.insert()


class Reverie(Buffer):
    """Observations follow each other, as an environment's do, so each is stored once."""

    name = "reverie"
    prioritized = True

    def __init__(self, items: int, envs: int) -> None:
        super().__init__(items, envs)
        self.buffer = reverie.ReplayBuffer(
            items, num_envs=envs, prioritized=self.prioritized, alpha=ALPHA, beta=BETA, seed=1
        )
        self.out: dict[int, Any] = {}
        self.at = 0

    def insert(self) -> None:
        s = STEPS
        a, b = (s.obs, s.next_obs) if self.at % 2 == 0 else (s.next_obs, s.obs)
        self.at += 1
        if self.envs == 1:
            self.buffer.add(a[0], s.action[0], s.reward[0], b[0], False, False)
        else:
            self.buffer.add(a, s.action, s.reward, b, s.over, s.over)

    def sample_update(self, batch_size: int) -> None:
        batch = self.buffer.sample(batch_size, out=self.out.get(batch_size))
        self.out[batch_size] = batch
        self.buffer.update_priorities(batch["tickets"], self.priorities[:batch_size])


class ReverieUniform(Reverie):
    """Without priorities; an update of them has no effect."""

    name = "reverie (uniform)"
    prioritized = False


class Cpprb(Buffer):
    """cpprb: its own tree in C++ behind Cython."""

    name = "cpprb"

    def __init__(self, items: int, envs: int) -> None:
        import cpprb

        super().__init__(items, envs)
        columns = {
            "obs": {"shape": OBS},
            "act": {"dtype": np.int32},
            "rew": {},
            "next_obs": {"shape": OBS},
            "done": {},
        }
        self.buffer = cpprb.PrioritizedReplayBuffer(items, columns, alpha=ALPHA)
        s = STEPS
        self.step = {
            "obs": s.obs[:envs],
            "act": s.action[:envs],
            "rew": s.reward[:envs],
            "next_obs": s.next_obs[:envs],
            "done": s.over[:envs],
        }

    def insert(self) -> None:
        self.buffer.add(**self.step)

    def sample_update(self, batch_size: int) -> None:
        batch = self.buffer.sample(batch_size, beta=BETA)
        self.buffer.update_priorities(batch["indexes"], self.priorities[:batch_size])


class Tianshou(Buffer):
    """Tianshou: NumPy arrays, and a tree compiled by Numba."""

    name = "tianshou"

    def __init__(self, items: int, envs: int) -> None:
        from tianshou import data

        super().__init__(items, envs)
        s = STEPS
        one = envs == 1
        if one:
            self.buffer = data.PrioritizedReplayBuffer(items, alpha=ALPHA, beta=BETA)
        else:
            self.buffer = data.PrioritizedVectorReplayBuffer(items, envs, alpha=ALPHA, beta=BETA)
        self.step = data.Batch(
            obs=s.obs[0] if one else s.obs,
            act=s.action[0] if one else s.action,
            rew=s.reward[0] if one else s.reward,
            terminated=s.over[0] if one else s.over,
            truncated=s.over[0] if one else s.over,
            obs_next=s.next_obs[0] if one else s.next_obs,
            info=data.Batch(),
        )

    def insert(self) -> None:
        self.buffer.add(self.step)

    def sample_update(self, batch_size: int) -> None:
        batch, indices = self.buffer.sample(batch_size)
        assert len(batch.weight) == batch_size
        self.buffer.update_weight(indices, self.priorities[:batch_size])


class StableBaselines(Buffer):
    """Stable-Baselines3: NumPy arrays, without priorities."""

    name = "sb3 (uniform)"

    def __init__(self, items: int, envs: int) -> None:
        from gymnasium import spaces
        from stable_baselines3.common.buffers import ReplayBuffer

        super().__init__(items, envs)
        self.buffer = ReplayBuffer(
            items,
            spaces.Box(-10, 10, (OBS,)),
            spaces.Discrete(4),
            device="cpu",
            n_envs=envs,
            handle_timeout_termination=False,
        )
        self.infos: list[dict[str, Any]] = [{} for _ in range(envs)]

    def insert(self) -> None:
        s, n = STEPS, self.envs
        self.buffer.add(
            s.obs[:n], s.next_obs[:n], s.action[:n], s.reward[:n], s.over[:n], self.infos
        )

    def sample_update(self, batch_size: int) -> None:
        self.buffer.sample(batch_size)


class Flashbax(Buffer):
    """Flashbax: arrays of JAX; every call is compiled, and ends when its result is there."""

    name = "flashbax"

    def __init__(self, items: int, envs: int) -> None:
        import flashbax
        import jax

        super().__init__(items, envs)
        self.jax, self.flashbax = jax, flashbax
        s = STEPS
        whole = {"obs": s.obs, "act": s.action, "rew": s.reward, "done": s.over}
        first = {name: array[0] for name, array in whole.items()}
        self.step = first if envs == 1 else {k: array[:envs] for k, array in whole.items()}
        buffer = self._buffer(64)
        self.state = buffer.init(first)
        self.add = jax.jit(buffer.add, donate_argnums=0)
        self.compiled: dict[int, Any] = {}
        self.key = jax.random.PRNGKey(0)

    def _buffer(self, batch_size: int) -> Any:  # noqa: ANN401
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.flashbax.make_prioritised_flat_buffer(
                self.items,
                min_length=batch_size,
                sample_batch_size=batch_size,
                add_batch_size=None if self.envs == 1 else self.envs,
                priority_exponent=ALPHA,
            )

    def insert(self) -> None:
        self.state = self.add(self.state, self.step)
        self.jax.block_until_ready(self.state)

    def sample_update(self, batch_size: int) -> None:
        if batch_size not in self.compiled:
            buffer = self._buffer(batch_size)
            self.compiled[batch_size] = (
                self.jax.jit(buffer.sample),
                self.jax.jit(buffer.set_priorities, donate_argnums=0),
                self.priorities[:batch_size].astype(np.float32),
            )
        sample, update, priorities = self.compiled[batch_size]
        self.key, key = self.jax.random.split(self.key)
        batch = sample(self.state, key)
        self.state = update(self.state, batch.indices, priorities)
        self.jax.block_until_ready((batch, self.state))


PEERS: list[type[Buffer]] = [Reverie, ReverieUniform, Cpprb, Tianshou, StableBaselines, Flashbax]


def us(call: Call, at_least_s: float = 0.05) -> float:
    """Microseconds per call, over enough calls."""
    count, took_s = 1, 0.0
    while took_s < at_least_s:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        took_s = time.perf_counter() - begin
        last, count = count, count * 4
    return took_s / last * 1e6


def report(title: str, calls: dict[str, Call], rounds: int) -> None:
    """Measures each call once per round, and prints a line for each."""
    print(f"\n{title}")
    for call in calls.values():
        call()
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            took[name].append(us(call))
    for name, times in took.items():
        ratio = statistics.median(a / b for a, b in zip(times, took["reverie"], strict=True))
        print(
            f"  {name:22} {statistics.median(times):10.1f} us   {min(times):8.1f} to "
            f"{max(times):<9.1f}{ratio:8.2f} x"
        )


def made(items: int, envs: int) -> dict[str, Buffer]:
    """A full buffer of each installed kind."""
    buffers: dict[str, Buffer] = {}
    for kind in PEERS:
        try:
            buffer = kind(items, envs)
        except ImportError as error:
            print(f"{kind.name} is not installed: {error}")
            continue
        buffer.fill()
        buffers[kind.name] = buffer
    return buffers


def transitions(items: int, rounds: int, only_inserts: bool) -> None:
    """Small transitions: the loop, and inserts."""
    many = made(items, ENVS)
    for batch_size in () if only_inserts else (64, 256):
        report(
            f"sample+update, batch {batch_size}, {items:,} transitions",
            {
                name: (lambda b=buffer, n=batch_size: b.sample_update(n))
                for name, buffer in many.items()
            },
            rounds,
        )
    report(
        f"insert of {ENVS} environments in one call",
        {name: buffer.insert for name, buffer in many.items()},
        rounds,
    )
    single = made(min(items, 10_000), 1)
    report("insert of one", {name: buffer.insert for name, buffer in single.items()}, rounds)


def frames(count: int, rounds: int) -> None:
    """Stacks of frames, where only the gather matters."""
    stored = STEPS.frames
    buffer = reverie.ReplayBuffer(count, frame_stack=STACK, seed=1)
    for i in range(count):
        buffer.add(stored[i % 256], 0, 0.0, stored[(i + 1) % 256], False, False)
    out = buffer.sample(256)
    calls: dict[str, Call] = {"reverie": lambda: buffer.sample(256, out=out)}

    rng = np.random.default_rng(1)
    rows = np.concatenate([stored] * (count // 256 + 1))[:count].reshape(count, -1)
    to = np.empty((2 * STACK * 256, rows.shape[1]), np.uint8)

    def take() -> None:
        step = rng.integers(STACK - 1, count - 1, 256)[:, None]
        both = (step + np.arange(1 - STACK, 1), step + np.arange(2 - STACK, 2))
        np.take(rows, np.concatenate(both, 1).ravel(), axis=0, out=to, mode="clip")

    calls["bound: numpy.take"] = take
    try:
        from tianshou import data

        batch = data.Batch(
            obs=stored[0],
            act=0,
            rew=0.0,
            terminated=False,
            truncated=False,
            obs_next=stored[1],
            info={},
        )
        peer = data.ReplayBuffer(
            count, stack_num=STACK, ignore_obs_next=True, save_only_last_obs=False
        )
        for _ in range(count):
            peer.add(batch)

        calls["tianshou"] = lambda: peer.sample(256)
    except ImportError:
        pass
    try:
        from gymnasium import spaces
        from stable_baselines3.common.buffers import ReplayBuffer

        few = min(count, 4_000)  # because it stores whole stacks, twice
        stacks = ReplayBuffer(
            few,
            spaces.Box(0, 255, (STACK, *FRAME), np.uint8),
            spaces.Discrete(4),
            device="cpu",
            handle_timeout_termination=False,
        )
        stack = stored[None, :STACK]
        for _ in range(few):
            stacks.add(stack, stack, STEPS.action[:1], STEPS.reward[:1], STEPS.over[:1], [{}])
        calls["sb3 (4,000 stacks)"] = lambda: stacks.sample(256)
    except ImportError:
        pass
    report(f"256 stacks of {STACK} frames 84x84 and their successors, of {count:,}", calls, rounds)


def main() -> None:
    """Measures everything, or what was asked for."""
    parser = argparse.ArgumentParser(description="A learner's loop, beside peers.")
    parser.add_argument("--only", choices=["transitions", "inserts", "frames"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=20_000)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, NumPy {np.__version__}")
    if options.only != "frames":
        transitions(options.items, options.rounds, options.only == "inserts")
    if options.only in (None, "frames"):
        frames(options.frames, options.rounds)


if __name__ == "__main__":
    main()
