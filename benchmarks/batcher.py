"""The cost of gathering items into a batch: microseconds for the whole batch.

``stack`` of each item and ``get``, compared with ``torch.stack`` and ``np.stack`` over the same
items, by turns. Small: 21 dicts of 3 arrays of 4 to 32 bytes, by the processor time of the thread,
which other programs on the machine affect little. Large: 21 tensors [128, 4, 84, 84] uint8, by the
clock, since torch copies on several threads.

Usage: batcher.py [TURNS]
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import reverie

_ITEMS = 21
_BATCHES = 10


def small(index: int) -> dict[str, np.ndarray]:
    """One step of one environment."""
    return {
        "obs": np.full(8, index, np.float32),
        "action": np.full(1, index, np.int64),
        "reward": np.full(1, index, np.float32),
    }


def gathered(items: list, batcher: reverie.Batcher) -> object:
    """Gathers a batch with reverie's Batcher."""
    for item in items:
        batcher.stack(item)
    return batcher.get()


def measure(
    ways: dict[str, Callable[[], object]],
    turns: int,
    clock: Callable[[], float] = time.perf_counter,
    batches: int = 1,
) -> None:
    """Prints the median of each, measured by turns, and the interquartile range.

    Then it prints the ratio of each of ours to the peers after it. A turn is several batches of
    each, since reading a clock takes a microsecond.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            begin = clock()
            for _ in range(batches):
                way()
            times[name].append((clock() - begin) / batches * 1e6)
    for name, taken in times.items():
        low, median, high = statistics.quantiles(taken, n=4)
        print(f"  {name:28s} {median:12,.1f} us   ({low:,.1f} to {high:,.1f})")
    names = list(ways)
    for ours, other in zip(names[::2], names[1::2], strict=True):
        ratio = statistics.median(a / b for a, b in zip(times[ours], times[other], strict=True))
        print(f"  {ratio:.2f} of the time of {other}")


def main() -> None:
    """Measures small and large batches."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    arrays = [small(i) for i in range(_ITEMS)]
    ours, theirs = reverie.Batcher(_ITEMS), reverie.Batcher(_ITEMS)
    ways: dict[str, Callable[[], object]] = {
        "reverie, NumPy": lambda: gathered(arrays, ours),
        "np.stack": lambda: {name: np.stack([item[name] for item in arrays]) for name in arrays[0]},
    }
    try:
        import torch
    except ModuleNotFoundError:
        print(f"{_ITEMS} dicts of 3 small arrays, {turns} turns:")
        measure(ways, turns, time.thread_time, _BATCHES)
        return
    tensors = [{name: torch.from_numpy(a) for name, a in item.items()} for item in arrays]
    ways["reverie, torch"] = lambda: gathered(tensors, theirs)
    ways["torch.stack"] = lambda: {
        name: torch.stack([item[name] for item in tensors]) for name in tensors[0]
    }
    print(f"{_ITEMS} dicts of 3 small arrays, {turns} turns:")
    measure(ways, turns, time.thread_time, _BATCHES)

    pictures = [torch.full((128, 4, 84, 84), i, dtype=torch.uint8) for i in range(_ITEMS)]
    large = reverie.Batcher(_ITEMS)
    turns = max(5, turns // 100)
    print(f"{_ITEMS} tensors [128, 4, 84, 84] uint8, {turns} turns:")
    measure(
        {
            "reverie": lambda: gathered(pictures, large),
            f"torch.stack, {torch.get_num_threads()} threads": lambda: torch.stack(pictures),
        },
        turns,
    )


if __name__ == "__main__":
    main()
