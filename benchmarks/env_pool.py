"""The cost of a pool of worker processes, compared with raw loops and with other libraries.

    no-op        32 environments whose step does nothing: microseconds per batch, all overhead
    copies       results in separate arrays, compared with views of the pool's memory (copy=False)
    waiting      8 environments that wait for a millisecond, in 2 workers and in 8
    worker       1,000 no-op environments in one worker: microseconds per step in the worker
    Pong         steps/s (4 frames each) of 2 workers with preprocessing and hand-over, as a
                 share of 2 processes that only call the emulator

All cases are measured by turns; a figure is the median, with the quartiles in brackets. Libraries
that are not installed are left out: gymnasium (Async and Sync), stable_baselines3 (Subproc),
moolib, ale_py.

Usage: env_pool.py [noop] [copies] [waiting] [worker] [pong] [TURNS]
"""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import reverie
from reverie.envs import atari

_ENVS = 32
_WORKERS = 2


class Noop:
    """Observes four constant numbers."""

    def __init__(self) -> None:
        import gymnasium

        self.observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation = np.zeros(4, np.float32)
        self.metadata: dict[str, Any] = {}
        self.render_mode = None
        self.spec = None
        self.unwrapped = self

    def reset(self, **_options: object) -> tuple[np.ndarray, dict[str, Any]]:
        """Returns the observation."""
        return self.observation, {}

    def step(self, _action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Returns the observation."""
        return self.observation, 0.0, False, False, {}

    def close(self) -> None:
        """Does nothing."""


def noop_in_gymnasium() -> Any:  # noqa: ANN401
    """The same as a ``gymnasium.Env``, which Gymnasium's vector environments require."""
    import gymnasium

    class Env(Noop, gymnasium.Env):
        unwrapped = None
        spec = None

        def __init__(self) -> None:
            self.observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
            self.action_space = gymnasium.spaces.Discrete(2)
            self.observation = np.zeros(4, np.float32)

    return Env()


def waiting_in_gymnasium() -> Any:  # noqa: ANN401
    """``Waiting`` as a ``gymnasium.Env``."""
    env = noop_in_gymnasium()
    env.step = functools.partial(Waiting.step, env)
    return env


def timed(steps: dict[str, Callable[[], object]], turns: int, batch_s: float) -> dict[str, list]:
    """Seconds per call of each case, for each turn; a turn takes about ``batch_s`` per case."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    counts = dict.fromkeys(steps, 1)
    for name, step in steps.items():  # finds how many calls fill a turn
        begin = time.perf_counter()
        while time.perf_counter() - begin < batch_s:
            step()
            counts[name] += 1
    for _ in range(turns):
        for name, step in steps.items():
            begin = time.perf_counter()
            for _ in range(counts[name]):
                step()
            times[name].append((time.perf_counter() - begin) / counts[name])
    return times


def report(name: str, values: list[float], unit: str) -> None:
    """Prints one line."""
    low, median, high = statistics.quantiles(values, n=4)
    print(f"  {name:44s} {median:12,.2f} {unit}   ({low:,.2f} to {high:,.2f})", flush=True)


def noop(turns: int) -> None:
    """32 environments that do nothing."""
    print(f"{_ENVS} environments whose step does nothing:")
    actions = np.zeros(_ENVS, np.int64)
    steps: dict[str, Callable[[], object]] = {}
    closes = []
    pool = reverie.EnvPool(Noop, _ENVS, num_workers=_WORKERS, backend="process")
    pool.reset().result()
    steps[f"reverie, {_WORKERS} processes"] = lambda: pool.step(actions).result()
    closes.append(pool.close)
    if importlib.util.find_spec("gymnasium"):
        import gymnasium

        makers = [noop_in_gymnasium] * _ENVS
        sync = gymnasium.vector.SyncVectorEnv(makers)
        sync.reset()
        steps["gymnasium SyncVectorEnv, this process"] = lambda: sync.step(actions)
        several = gymnasium.vector.AsyncVectorEnv(makers, context="spawn")
        several.reset()
        steps[f"gymnasium AsyncVectorEnv, {_ENVS} processes"] = lambda: several.step(actions)
        closes.append(several.close)
    if importlib.util.find_spec("stable_baselines3"):
        from stable_baselines3.common.vec_env import SubprocVecEnv

        baselines = SubprocVecEnv([noop_in_gymnasium] * _ENVS, start_method="spawn")
        baselines.reset()
        steps[f"stable_baselines3 SubprocVecEnv, {_ENVS} processes"] = lambda: baselines.step(
            actions
        )
        closes.append(baselines.close)
    if importlib.util.find_spec("moolib"):
        import moolib
        import torch

        theirs = moolib.EnvPool(Noop, _WORKERS, _ENVS, 1)
        zeros = torch.zeros(_ENVS, dtype=torch.int64)
        steps[f"moolib, {_WORKERS} processes"] = lambda: theirs.step(0, zeros).result()
    for name, times in timed(steps, turns, 0.2).items():
        report(name, [1e6 * t for t in times], "us a batch")
    for close in closes:
        close()


class Pictures(Noop):
    """The same with observations of 84 x 84 x 4 bytes."""

    def __init__(self) -> None:
        import gymnasium

        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.observation = np.zeros((84, 84, 4), np.uint8)


def copies(turns: int) -> None:
    """The cost of results in separate arrays, compared with ``copy=False``."""
    print("results that are copies, and views:")
    made: list[tuple[str, Any]] = []
    for name, env, backend, envs in (
        ("CartPole", "CartPole-v1", "native", 64),
        ("nothing", Noop, "process", _ENVS),
        ("pictures", Pictures, "process", 8),
        ("pictures", Pictures, "process", 64),
    ):
        for copy in (True, False):
            pool = reverie.EnvPool(
                env,
                envs,
                backend=backend,
                num_workers=None if backend == "native" else _WORKERS,
                copy=copy,
            )
            pool.reset().result()
            made.append((f"{name}, {envs} {backend}, {'copies' if copy else 'views'}", pool))
    steps = {
        name: functools.partial(one_step, pool, np.zeros(pool.num_envs, np.int64))
        for name, pool in made
    }
    for name, times in timed(steps, turns, 0.2).items():
        report(name, [1e6 * t for t in times], "us a batch")
    for _, pool in made:
        pool.close()


def one_step(pool: reverie.EnvPool, actions: np.ndarray) -> None:
    """Makes a step and takes its result."""
    pool.step(actions).result()


class Waiting(Noop):
    """An environment that waits for a millisecond in each step."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Waits, then returns the observation."""
        time.sleep(1e-3)
        return Noop.step(self, action)


def waiting(turns: int) -> None:
    """8 environments that wait instead of computing; Gymnasium uses a process for each."""
    import gymnasium

    print("8 environments that sleep for 1 ms:")
    count = 8
    actions = np.zeros(count, np.int64)
    steps: dict[str, Callable[[], object]] = {}
    closes = []
    for workers in (_WORKERS, count):
        pool = reverie.EnvPool(Waiting, count, num_workers=workers, backend="process")
        pool.reset().result()
        steps[f"reverie, num_workers={workers}"] = functools.partial(one_step, pool, actions)
        closes.append(pool.close)
    several = gymnasium.vector.AsyncVectorEnv([waiting_in_gymnasium] * count, context="spawn")
    several.reset()
    steps["gymnasium AsyncVectorEnv"] = lambda: several.step(actions)
    closes.append(several.close)
    for name, times in timed(steps, turns, 0.5).items():
        report(name, [1e6 * t for t in times], "us a batch")
    for close in closes:
        close()


def worker(turns: int) -> None:
    """The loop of a worker, without the hand-over."""
    count = 1_000
    with reverie.EnvPool(Noop, count, num_workers=1, backend="process") as pool:
        pool.reset().result()
        actions = np.zeros(count, np.int64)
        times = timed({"": lambda: pool.step(actions).result()}, turns, 0.2)[""]
    report("within a worker", [1e6 * t / count for t in times], "us a step")


def raw_loop(game: str, go: Any, answers: Any) -> None:  # noqa: ANN401
    """Calls the emulator four times per step, for the seconds that it is given, until 0 comes."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    actions = ale.getLegalActionSet()
    chosen = np.random.default_rng(os.getpid()).integers(0, len(actions), 1 << 16).tolist()
    position = 0
    while seconds := go.get():
        steps = 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            position = (position + 1) & 0xFFFF
            action = actions[chosen[position]]
            ale.act(action)
            ale.act(action)
            ale.act(action)
            ale.act(action)
            if ale.game_over():
                ale.reset_game()
            steps += 1
        answers.put(steps / seconds)


def pong(turns: int) -> None:
    """Steps of Pong, compared with loops over the emulator."""
    if not importlib.util.find_spec("ale_py"):
        print("Pong is left out: ale_py is not installed")
        return
    print(f"Pong, {_WORKERS} processes, 4 frames a step; 84 x 84, stack of 4:")
    context = multiprocessing.get_context("spawn")
    go, answers = context.Queue(), context.Queue()
    loops = [context.Process(target=raw_loop, args=("pong", go, answers)) for _ in range(_WORKERS)]
    for loop in loops:
        loop.start()
    each = 8
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    with reverie.EnvPool(
        atari.make,
        each,
        num_batches=2,
        num_workers=_WORKERS,
        env_kwargs={"game": "pong"},
    ) as pool:
        futures = [pool.reset(batch=b) for b in range(2)]
        batch = 0
        for _ in range(turns):
            for _ in range(_WORKERS):
                go.put(1.0)
            theirs.append(sum(answers.get() for _ in range(_WORKERS)))
            steps = 0
            begin = time.perf_counter()
            while time.perf_counter() - begin < 1.0:
                futures[batch].result()
                futures[batch] = pool.step(rng.integers(0, 18, each), batch)
                batch = 1 - batch
                steps += each
            ours.append(steps / (time.perf_counter() - begin))
            for future in futures:  # so that ours does nothing during the other's turn
                future.result()
    for _ in loops:
        go.put(0)
    for loop in loops:
        loop.join()
    report("raw loops over the emulator", theirs, "steps/s")
    report("reverie.EnvPool", ours, "steps/s")
    report("share", [100 * a / b for a, b in zip(ours, theirs, strict=True)], "%")


def main() -> None:
    """Runs the parts that were named, or all."""
    parts = {
        "noop": noop,
        "copies": copies,
        "waiting": waiting,
        "worker": worker,
        "pong": pong,
    }
    chosen = [name for name in sys.argv[1:] if name in parts] or list(parts)
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for name in chosen:
        parts[name](numbers[0] if numbers else 9)


if __name__ == "__main__":
    main()
