"""Steps per second that one Python thread writes to an embedded store.

A pair is ``append`` of one step (3 columns, 400 bytes in total) and ``create_item`` over it: the
calls of an actor that passes each step to the learner as an item. The table holds the last 100,000
items, so when it is full each insert evicts one.

Usage: writer_append.py [RUNS]
"""

import statistics
import sys
import time

import numpy as np

import reverie

_PAIRS = 100_000
_STEP = {
    "obs": np.arange(97, dtype=np.float32),
    "action": np.int64(3),
    "reward": np.float32(0.5),
}


def pairs_per_s(client: reverie.Client) -> float:
    """One run with a new writer, after a thousand pairs that are not counted."""
    writer = client.trajectory_writer(num_keep_alive_refs=2)
    begin = 0.0
    for i in range(_PAIRS + 1_000):
        if i == 1_000:
            begin = time.perf_counter()
        writer.append(_STEP)
        h = writer.history
        writer.create_item(
            "replay",
            1.0,
            {"obs": h["obs"][-1:], "action": h["action"][-1:], "reward": h["reward"][-1:]},
        )
    took_s = time.perf_counter() - begin
    writer.flush()
    writer.close()
    return _PAIRS / took_s


def main() -> None:
    """Prints the median of several runs, and their spread."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    table = reverie.Table(
        "replay",
        reverie.selectors.Uniform(seed=1),
        reverie.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    with reverie.Store([table]) as store:
        client = store.client()
        pairs_per_s(client)  # fills the table
        rates = sorted(pairs_per_s(client) for _ in range(runs))
    median = statistics.median(rates)
    print(
        f"append + create_item, 3 columns, 400 B: {median:,.0f} pairs/s "
        f"({1e9 / median:,.0f} ns a pair), {rates[0]:,.0f} to {rates[-1]:,.0f} in {runs} runs"
    )


if __name__ == "__main__":
    main()
