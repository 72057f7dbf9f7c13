"""All-reduce between processes of one host: how long, and how that compares with copying.

Usage: groups.py [--members 2,8] [--sizes 4096,1048576,134217728] [--seconds S]

Each member reduces a float32 array of its own, round after round; the figure is the median time of
a round on one member, copies in and out included. The bound beside it is what the host's memory
alone takes: the array is copied twice (brought, and taken), by one core.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np

import reverie

_MEMBER = """
import statistics, sys, time
import numpy as np
import reverie

address, name, count, size, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
rpc = reverie.Rpc(name)
rpc.connect(address)
group = reverie.Group(rpc, "benchmark")
group.wait(int(count))
array = np.ones(int(size) // 4, np.float32)
times, turns = [], 1
group.barrier().result()
while turns > 0:
    begin = time.perf_counter()
    total = group.all_reduce("sum", array).result()
    times.append(time.perf_counter() - begin)
    assert total[-1] == count, total
    more = sum(times) < seconds or len(times) < 3
    turns = group.all_reduce("more", int(more), "max").result()
print(statistics.median(times[1:]), len(times) - 1, flush=True)
group.barrier("end").result()
"""


def copied(size: int) -> float:
    """Seconds that two copies of an array take."""
    source, target = np.ones(size // 4, np.float32), np.ones(size // 4, np.float32)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        target[...] = source
        source[...] = target
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measured(members: int, size: int, seconds: float) -> tuple[float, int]:
    """The median of the members' medians, and rounds."""
    with reverie.Broker() as broker:
        address = broker.listen()
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-c", _MEMBER, address, f"m{i}"),
                    *(str(members), str(size), str(seconds)),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(members)
        ]
        found = []
        for process in processes:
            out, _ = process.communicate()
            if process.returncode != 0:
                raise SystemExit("a member failed")
            found.append(out.split())
    return statistics.median(float(time_s) for time_s, _ in found), int(found[0][1])


def main() -> None:
    """Prints one line for each number of members and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", default="2,8")
    parser.add_argument("--sizes", default="4096,1048576,134217728")
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    for members in map(int, given.members.split(",")):
        for size in map(int, given.sizes.split(",")):
            time_s, rounds = measured(members, size, given.seconds)
            print(
                f"{members} members, {size:>11,} bytes: {1e3 * time_s:9.3f} ms a round, "
                f"{size / time_s / 1e9:6.2f} GB/s; two copies take {1e3 * copied(size):8.3f} ms; "
                f"{rounds} rounds",
                flush=True,
            )


if __name__ == "__main__":
    main()
