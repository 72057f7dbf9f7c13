"""A learner's loop while another thread runs Python code: the share of its rate that is left.

An interpreter runs one thread at a time and switches every 5 ms, so while another thread computes,
a loop of calls can reach half of its rate at most. A call that releases the lock waits up to 5 ms
each time to get it back. This program measures how much of the rate that leaves:

    sample+update   draw 256 with their weights, give each a new priority
    dataset+update  the same, with batches that a thread of the library draws ahead

alone, while a thread adds transitions at full speed, and while a thread counts. The buffer has
100,000 prioritised transitions of 76 bytes. Each round measures every case once; printed are the
medians of the rounds, with the smallest and the largest.

Usage: beside_a_thread.py [--rounds N] [--seconds S] [--batch N]
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import reverie

ITEMS = 100_000
ROW = 8


def filled() -> reverie.ReplayBuffer:
    """A buffer of ITEMS transitions."""
    buffer = reverie.ReplayBuffer(ITEMS, num_envs=100, prioritized=True, seed=1)
    obs = np.zeros((100, ROW), np.float32)
    zeros = np.zeros(100)
    over = np.zeros(100, bool)
    for _ in range(ITEMS // 100 + 1):
        buffer.add(obs, zeros, zeros, obs, over)
    return buffer


def sampling(buffer: reverie.ReplayBuffer, batch_size: int) -> Callable[[], None]:
    """A call that makes one iteration of the loop."""
    priorities = np.random.default_rng(1).random(batch_size)
    out = buffer.sample(batch_size)

    def step() -> None:
        buffer.sample(batch_size, out=out)
        buffer.update_priorities(out["tickets"], priorities)

    return step


def streaming(buffer: reverie.ReplayBuffer, batch_size: int) -> Callable[[], None]:
    """The same with batches that are drawn ahead."""
    priorities = np.random.default_rng(1).random(batch_size)
    batches = buffer.dataset(batch_size, prefetch=8)

    def step() -> None:
        batch = next(batches)
        buffer.update_priorities(batch["tickets"], priorities)

    return step


@contextmanager
def beside(call: Callable[[], None] | None) -> Iterator[None]:
    """Runs the body while a thread repeats ``call``."""
    if call is None:
        yield
        return
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            call()

    thread = threading.Thread(target=repeat)
    thread.start()
    yield
    is_over.set()
    thread.join()


def adding(buffer: reverie.ReplayBuffer) -> Callable[[], None]:
    """A call that adds a step of every environment."""
    obs = np.zeros((100, ROW), np.float32)
    zeros = np.zeros(100)
    over = np.zeros(100, bool)
    return lambda: buffer.add(obs, zeros, zeros, obs, over)


def counting() -> None:
    """Computes in Python only."""
    total = 0
    for number in range(1000):
        total += number


def rate(step: Callable[[], None], seconds: float) -> float:
    """Iterations per second."""
    start = time.perf_counter()
    count = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        step()
        count += 1
    return count / elapsed


def main() -> None:
    """Measures and prints all cases."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=256)
    arguments = parser.parse_args()
    buffer = filled()
    loops = {
        "sample+update": sampling(buffer, arguments.batch),
        "dataset+update": streaming(buffer, arguments.batch),
    }
    others = {"alone": None, "beside adds": adding(buffer), "beside counting": counting}
    rates: dict[tuple[str, str], list[float]] = {(a, b): [] for a in loops for b in others}
    for _ in range(arguments.rounds):
        for loop, step in loops.items():
            for name, other in others.items():
                with beside(other):
                    rates[loop, name].append(rate(step, arguments.seconds))
    print(f"{'loop':16}{'':18}{'steps/s':>10}{'least':>10}{'most':>10}{'of alone':>10}")
    for (loop, name), measured in rates.items():
        middle = statistics.median(measured)
        share = middle / statistics.median(rates[loop, "alone"])
        print(
            f"{loop:16}{name:18}{middle:10.0f}{min(measured):10.0f}{max(measured):10.0f}{share:10.0%}"
        )


if __name__ == "__main__":
    main()
