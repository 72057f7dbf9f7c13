"""Weights from one process to many on one host: the time from publish() to usable arrays.

Usage: weights.py [--subscribers 8] [--size 10000000] [--versions 30] [--sent]

Each subscriber waits for a version, sums all of it, and notes the time of each, by the clock that
the processes of a host share. For each version the time of the last subscriber counts, when it has
the arrays, and when it has read all of them; the figures are medians. With --sent, versions are
not mapped.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np

import reverie

_SUBSCRIBER = """
import sys, time
import numpy as np
import reverie

rpc = reverie.Rpc(sys.argv[2])
rpc.connect(sys.argv[1])
weights = reverie.Weights(rpc, "w", sources=["learner"], shared_memory=sys.argv[4] == "mapped")
rpc.sync("learner", "ready")
last = 0
while last < int(sys.argv[3]):
    last, arrays = weights.wait(last)
    there = time.monotonic()
    total = sum(float(array.sum()) for array in arrays)
    read = time.monotonic()
    print(last, there, read, flush=True)
    rpc.sync("learner", "ready")
"""


def main() -> None:
    """Prints one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=8)
    parser.add_argument("--size", type=int, default=10_000_000)
    parser.add_argument("--versions", type=int, default=30)
    parser.add_argument("--sent", action="store_true")
    given = parser.parse_args()
    rpc = reverie.Rpc("learner")
    ready = rpc.define_queue("ready")
    address = rpc.listen()
    weights = reverie.Weights(rpc, "w")
    how = "sent" if given.sent else "mapped"
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", _SUBSCRIBER, address, f"s{i}"),
                *(str(given.versions), how),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(given.subscribers)
    ]
    arrays = [np.ones(given.size // 16, np.float32) for _ in range(4)]
    published, returned = {}, []
    for version in range(1, given.versions + 1):
        for _ in processes:
            answer, _, _ = ready.get(timeout_s=60.0)
            answer(None)
        time.sleep(0.02)  # until all subscribers wait again
        published[version] = time.monotonic()
        weights.publish(version, arrays)
        returned.append(time.monotonic() - published[version])
    for _ in processes:
        answer, _, _ = ready.get(timeout_s=60.0)
        answer(None)
    there: dict[int, list[float]] = {}
    read: dict[int, list[float]] = {}
    for process in processes:
        out, _ = process.communicate()
        for line in out.splitlines():
            version, at, after = line.split()
            there.setdefault(int(version), []).append(float(at) - published[int(version)])
            read.setdefault(int(version), []).append(float(after) - published[int(version)])
    rpc.close()
    last_there = statistics.median(max(times) for times in there.values())
    last_read = statistics.median(max(times) for times in read.values())
    print(
        f"{given.size:,} bytes to {given.subscribers} subscribers, {how}: publish() takes "
        f"{1e3 * statistics.median(returned):.2f} ms, the last one has the arrays after "
        f"{1e3 * last_there:.2f} ms, and has read them after {1e3 * last_read:.2f} ms"
    )


if __name__ == "__main__":
    main()
