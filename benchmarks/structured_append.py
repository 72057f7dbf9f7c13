"""The cost of a step for one Python thread that uses a structured writer with an embedded store.

A step has 3 columns, 400 bytes in total; one pattern makes an item of the last two at each step.
The table holds the last 100,000 items, so when it is full each insert evicts one. For comparison,
a trajectory writer makes the same items. Time is the process's CPU time (getrusage), so that other
programs have little effect.

Usage: structured_append.py [RUNS]
"""

import statistics
import sys
import time

import numpy as np

import reverie
from reverie import structured

_TARGET_US = 3.0
_STEPS = 100_000
_STEP = {
    "obs": np.arange(97, dtype=np.float32),
    "action": np.int64(3),
    "reward": np.float32(0.5),
}


def by_pattern_us(client: reverie.Client) -> float:
    """Microseconds per step with a structured writer."""
    config = structured.create_config(
        structured.pattern_from_transform(
            _STEP, lambda step: {name: column[-2:] for name, column in step.items()}
        ),
        "replay",
    )
    writer = client.structured_writer([config])
    writer.append(_STEP)
    begin = time.process_time()
    for _ in range(_STEPS):
        writer.append(_STEP)
    took_s = time.process_time() - begin
    writer.flush()
    writer.close()
    return took_s / _STEPS * 1e6


def by_hand_us(client: reverie.Client) -> float:
    """Microseconds per step with a trajectory writer and an item over it."""
    writer = client.trajectory_writer(num_keep_alive_refs=2)
    writer.append(_STEP)
    begin = time.process_time()
    for _ in range(_STEPS):
        writer.append(_STEP)
        h = writer.history
        writer.create_item(
            "replay",
            1.0,
            {"obs": h["obs"][-2:], "action": h["action"][-2:], "reward": h["reward"][-2:]},
        )
    took_s = time.process_time() - begin
    writer.flush()
    writer.close()
    return took_s / _STEPS * 1e6


def main() -> None:
    """Prints the medians of several runs, and their spread."""
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
        by_pattern_us(client)  # fills the table
        for name, measure, target in (
            ("StructuredWriter.append, one pattern", by_pattern_us, f"target {_TARGET_US} us"),
            ("TrajectoryWriter.append + create_item", by_hand_us, "for comparison"),
        ):
            costs = sorted(measure(client) for _ in range(runs))
            print(
                f"{name:40} {statistics.median(costs):5.2f} us a step "
                f"({costs[0]:.2f} to {costs[-1]:.2f} in {runs} runs)   {target}"
            )


if __name__ == "__main__":
    main()
