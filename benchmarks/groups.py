"""All-reduce between processes on one host: its time, compared with copying.

Usage: groups.py [--members 2,8] [--sizes 4096,1048576,134217728] [--seconds S] [--gloo]

Each member reduces a separate float32 array, round after round; the figure is the median time of a
round on one member, including copies in and out. Its bound is the time of the host's memory: the
array is copied twice (in and out) by one core. With --gloo the same is measured with
torch.distributed and gloo, between two runs of ours.
"""

from __future__ import annotations

import argparse
import socket
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

_GLOO_MEMBER = """
import datetime, statistics, sys, time
import numpy as np
import torch
import torch.distributed

address, name, count, size, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
torch.set_num_threads(1)
torch.distributed.init_process_group(
    "gloo", init_method=f"tcp://{address}", rank=int(name[1:]), world_size=int(count),
    timeout=datetime.timedelta(seconds=60),
)
array = torch.ones(int(size) // 4)
times, turns = [], 1
torch.distributed.barrier()
while turns > 0:
    begin = time.perf_counter()
    total = array.clone()
    torch.distributed.all_reduce(total)
    times.append(time.perf_counter() - begin)
    assert total[-1] == count, total
    more = sum(times) < seconds or len(times) < 3
    turns = torch.tensor([int(more)])
    torch.distributed.all_reduce(turns, torch.distributed.ReduceOp.MAX)
print(statistics.median(times[1:]), len(times) - 1, flush=True)
torch.distributed.barrier()
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


def median_of(program: str, address: str, members: int, size: int, seconds: float) -> float:
    """The median of the members' medians, in seconds."""
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", program, address, f"m{i}"),
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
        found.append(float(out.split()[0]))
    return statistics.median(found)


def measured(members: int, size: int, seconds: float) -> float:
    """Seconds of a round with reverie."""
    with reverie.Broker() as broker:
        return median_of(_MEMBER, broker.listen(), members, size, seconds)


def measured_gloo(members: int, size: int, seconds: float) -> float:
    """Seconds of a round with torch.distributed and gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return median_of(_GLOO_MEMBER, address, members, size, seconds)


def main() -> None:
    """Prints one line for each number of members and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", default="2,8")
    parser.add_argument("--sizes", default="4096,1048576,134217728")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--gloo", action="store_true")
    given = parser.parse_args()
    for members in map(int, given.members.split(",")):
        for size in map(int, given.sizes.split(",")):
            times_s = [measured(members, size, given.seconds)]
            beside = f"two copies take {1e3 * copied(size):8.3f} ms"
            if given.gloo:
                gloo_s = measured_gloo(members, size, given.seconds)
                times_s.append(measured(members, size, given.seconds))
                beside += f"; gloo takes {1e3 * gloo_s:9.3f} ms"
            ours = " and ".join(f"{1e3 * time_s:9.3f}" for time_s in times_s)
            print(f"{members} members, {size:>11,} bytes: {ours} ms a round; {beside}", flush=True)


if __name__ == "__main__":
    main()
