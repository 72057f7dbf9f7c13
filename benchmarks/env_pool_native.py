"""Steps per second of native environments from Python, compared with what users would use instead.

CartPole: a batch of 64 stepped by one thread. Gymnasium's Sync, Async and its own vectorised
CartPole, and envpool if it is installed.
One LunarLander: a pool of a single environment. The bound is a loop over 64 of them on one thread,
where calls from Python cost nearly nothing.
LunarLander: a batch of 64 on two threads. The bound is two threads with a loop over 32 environments
each, which never wait for each other.

All cases take turns, and ratios are medians of the ratios within a turn, so that load on the
machine slows both sides. Processor time is that of this process, without worker processes; compare
it where other programs use the cores.

Targets: CartPole at least 5 million steps/s; LunarLander at least 1.2 times envpool and 85 % of
either bound.

Usage: env_pool_native.py [RUNS]
"""

import importlib.util
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from reverie.envs import native

ENVS = 64
Step = Callable[[np.ndarray], object]
warnings.filterwarnings("ignore")


@dataclass
class Rate:
    """The result of one run."""

    steps_per_s: float
    cpu_us: float  # of this process, for 64 steps


class Stopwatch:
    """Wall time and processor time since it was made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._begin = time.perf_counter()

    def rate(self, batches: int, envs: int = ENVS) -> Rate:
        """The times per step and batch, for the batches stepped since it was made."""
        took_s = time.perf_counter() - self._begin
        cpu_s = time.process_time() - self._cpu
        return Rate(batches * envs / took_s, cpu_s / batches * ENVS / envs * 1e6)


def rate(step: Step, actions: list[np.ndarray], batches: int) -> Rate:
    """Makes a number of steps, after a few that are not counted."""
    for i in range(5):
        step(actions[i % len(actions)])
    watch = Stopwatch()
    for i in range(batches):
        step(actions[i % len(actions)])
    return watch.rate(batches, len(actions[0]))


def native_step(env_id: str, num_envs: int, num_threads: int | None, seed: int) -> Step:
    """A call that steps a native pool."""
    pool = native.NativePool(env_id, num_envs, num_threads=num_threads, seed=seed)
    pool.reset().result()
    return lambda actions: pool.step(actions).result()


def gymnasium_step(env_id: str, mode: str) -> Step:
    """A call that steps Gymnasium's vector environment, which resets in the same step."""
    kwargs: dict[str, Any] = {}
    if mode != "vector_entry_point":
        same = gymnasium.vector.AutoresetMode.SAME_STEP
        kwargs["vector_kwargs"] = {"autoreset_mode": same}
    envs = gymnasium.make_vec(env_id, ENVS, vectorization_mode=mode, **kwargs)
    envs.reset(seed=1)
    return lambda actions: envs.step(actions)


def envpool_step(env_id: str, num_threads: int) -> Step:
    """A call that steps envpool's synchronous interface."""
    import envpool

    envs = envpool.make(env_id, "gymnasium", num_envs=ENVS, num_threads=num_threads, seed=1)
    envs.reset()
    return lambda actions: envs.step(actions)


def two_loops(env_id: str, batches: int) -> Rate:
    """Steps per second of two threads with half of the environments each."""
    rng = np.random.default_rng(2)
    steps = [native_step(env_id, ENVS // 2, 0, seed) for seed in range(2)]
    actions = [rng.integers(0, 4, ENVS // 2) for _ in range(64)]
    gate = threading.Barrier(3)

    def loop(step: Step) -> None:
        gate.wait()
        for i in range(batches):
            step(actions[i % len(actions)])

    threads = [threading.Thread(target=loop, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    gate.wait()
    watch = Stopwatch()
    for thread in threads:
        thread.join()
    return watch.rate(batches)


Rates = dict[str, list[Rate]]


def compare(measures: dict[str, Callable[[], Rate]], runs: int) -> Rates:
    """Measures by turns; prints medians and spread."""
    rates: Rates = {name: [] for name in measures}
    for _ in range(runs):
        for name, measure in measures.items():
            rates[name].append(measure())
    for name, found in rates.items():
        steps = [run.steps_per_s for run in found]
        median = statistics.median(steps)
        cpu = statistics.median(run.cpu_us for run in found)
        print(
            f"  {name:28} {median:12,.0f} steps/s ({min(steps):,.0f} to {max(steps):,.0f})"
            f"   a batch: {ENVS / median * 1e6:,.1f} us, processor {cpu:,.1f} us"
        )
    return rates


def print_ratio(rates: Rates, name: str, other: str, target: float | None = None) -> None:
    """The medians of the ratios of rate and of processor time per batch within a turn."""
    pairs = list(zip(rates[name], rates[other], strict=True))
    ratios = [a.steps_per_s / b.steps_per_s for a, b in pairs]
    cpu = statistics.median(b.cpu_us / a.cpu_us for a, b in pairs)
    wanted = "" if target is None else f" (target {target})"
    print(
        f"  {statistics.median(ratios):9.2f} x {other}{wanted}"
        f"   ({min(ratios):.2f} to {max(ratios):.2f}); by processor time {cpu:.2f}"
    )


def main() -> None:
    """Prints medians, ratios and bounds."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rng = np.random.default_rng(1)
    has_envpool = importlib.util.find_spec("envpool") is not None

    def timed(step: Step, count: int, batches: int) -> Callable[[], Rate]:
        actions = [rng.integers(0, count, ENVS) for _ in range(64)]
        return lambda: rate(step, actions, batches)

    print(f"CartPole-v1, {ENVS} environments a batch, {runs} runs")
    name = "CartPole-v1"
    measures = {
        "reverie native, inline": timed(native_step(name, ENVS, 0, 1), 2, 20_000),
        "Gymnasium CartPoleVectorEnv": timed(gymnasium_step(name, "vector_entry_point"), 2, 300),
        "Gymnasium SyncVectorEnv": timed(gymnasium_step(name, "sync"), 2, 100),
        "Gymnasium AsyncVectorEnv": timed(gymnasium_step(name, "async"), 2, 50),
    }
    if has_envpool:
        for threads in (1, 2):
            step = envpool_step(name, threads)
            measures[f"envpool, {threads} threads"] = timed(step, 2, 1_000)
    rates = compare(measures, runs)
    ours, *others = measures
    for other in others:
        print_ratio(rates, ours, other)
    median = statistics.median(run.steps_per_s for run in rates[ours])
    print(f"  {median / 5e6:9.2f} x 5,000,000 steps/s, the target")

    name = "LunarLander-v3"
    print(f"{name}, a pool of one environment, {runs} runs")
    ones = [rng.integers(0, 4, 1) for _ in range(64)]
    alone = native_step(name, 1, None, 1)
    measures = {
        "bound: a loop over 64": timed(native_step(name, ENVS, 0, 2), 4, 50),
        "reverie native, one": lambda: rate(alone, ones, 3_000),
    }
    print_ratio(compare(measures, runs), "reverie native, one", "bound: a loop over 64", 0.85)

    print(f"{name}, {ENVS} environments a batch, 2 threads, {runs} runs")
    measures = {
        "bound: two loops of 32": lambda: two_loops(name, 200),
        "reverie native, 2 threads": timed(native_step(name, ENVS, 2, 1), 4, 200),
    }
    if has_envpool:
        measures["envpool, 2 threads"] = timed(envpool_step(name, 2), 4, 200)
    measures["reverie native, inline"] = timed(native_step(name, ENVS, 0, 1), 4, 200)
    measures["Gymnasium SyncVectorEnv"] = timed(gymnasium_step(name, "sync"), 4, 20)
    measures["Gymnasium AsyncVectorEnv"] = timed(gymnasium_step(name, "async"), 4, 20)
    rates = compare(measures, runs)
    ours = "reverie native, 2 threads"
    print_ratio(rates, ours, "bound: two loops of 32", 0.85)
    if has_envpool:
        print_ratio(rates, ours, "envpool, 2 threads", 1.2)
    for other in ("Gymnasium SyncVectorEnv", "Gymnasium AsyncVectorEnv"):
        print_ratio(rates, ours, other)


if __name__ == "__main__":
    main()
