"""All-reduce between processes on one host: its time, compared with copying.

Usage: groups.py [--members 2,8] [--sizes 4096,1048576,134217728] [--seconds S] [--sockets]
                 [--gloo] [--mpi PYTHON] [--cuda]

Each member reduces a separate float32 array, round after round; the figure is the median time of a
round on one member, including copies in and out. Its bound is the time of the host's memory: the
array is copied twice (in and out) by one core. Between two runs of ours the same is measured with
--sockets for ours without shared memory, with --gloo for torch.distributed and gloo, and with --mpi
for OpenMPI, if PYTHON has mpi4py and mpirun is in its folder. With --cuda each member's array is a
tensor on the GPU, given to ours, or copied by `.cpu()` before and `.cuda()` after.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import reverie

_MEMBER = """
import statistics, sys, time
import numpy as np
import reverie

address, name, count, size, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
address, _, way = address.partition(" ")
rpc = reverie.Rpc(name)
rpc.connect(address)
group = reverie.Group(rpc, "benchmark", shared_memory=way != "sockets")
group.wait(int(count))
array = np.ones(int(size) // 4, np.float32)
def reduced():
    return group.all_reduce("sum", array).result()
if way in ("cuda", "cpu"):
    import torch
    tensor = torch.from_numpy(array).cuda()
    def reduced():
        near = tensor if way == "cuda" else tensor.cpu()
        total = group.all_reduce("sum", near).result().cuda()
        torch.cuda.synchronize()
        return total
times, turns = [], 1
group.barrier().result()
while turns > 0:
    begin = time.perf_counter()
    total = reduced()
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

_MPI_MEMBER = """
import statistics, sys, time
import numpy as np
from mpi4py import MPI

size, seconds = map(float, sys.argv[1:])
world = MPI.COMM_WORLD
array, total = np.ones(int(size) // 4, np.float32), np.empty(int(size) // 4, np.float32)
times, turns = [], 1
world.Barrier()
while turns > 0:
    begin = time.perf_counter()
    world.Allreduce(array, total)
    times.append(time.perf_counter() - begin)
    assert total[-1] == world.Get_size(), total
    more = sum(times) < seconds or len(times) < 3
    turns = world.allreduce(int(more), MPI.MAX)
medians = world.gather(statistics.median(times[1:]))
if medians:
    print(statistics.median(medians), flush=True)
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


def measured(members: int, size: int, seconds: float, way: str = "") -> float:
    """Seconds that a round of ours takes; ``way``: without shared memory, or from a GPU."""
    with reverie.Broker() as broker:
        return median_of(_MEMBER, f"{broker.listen()} {way}", members, size, seconds)


def measured_gloo(members: int, size: int, seconds: float) -> float:
    """Seconds of a round with torch.distributed and gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return median_of(_GLOO_MEMBER, address, members, size, seconds)


def measured_mpi(python: str, members: int, size: int, seconds: float) -> float:
    """Seconds that OpenMPI takes, of the environment of that Python."""
    mpirun = Path(python).with_name("mpirun")
    if not mpirun.exists():
        raise SystemExit(f"--mpi {python}: there is no {mpirun}; OpenMPI and mpi4py must be there")
    done = subprocess.run(
        [
            *(str(mpirun), "--allow-run-as-root", "--oversubscribe"),
            *("-n", str(members), python, "-c", _MPI_MEMBER, str(size), str(seconds)),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=120.0 + 10.0 * seconds,
    )
    if done.returncode != 0:
        raise SystemExit(f"OpenMPI ended with {done.returncode}: {done.stderr}")
    return float(done.stdout.split()[-1])


Measure = Callable[[int, int, float], float]


def peers_of(given: argparse.Namespace) -> dict[str, Measure]:
    """What is measured beside ours, by its name."""
    peers: dict[str, Measure] = {}
    if given.sockets:
        peers["ours over sockets"] = lambda *of: measured(*of, "sockets")
    if given.cuda:
        peers["tensors of a GPU"] = lambda *of: measured(*of, "cuda")
        peers["the same by .cpu() and .cuda()"] = lambda *of: measured(*of, "cpu")
    if given.gloo:
        peers["gloo"] = measured_gloo
    if given.mpi:
        peers["OpenMPI"] = lambda *of: measured_mpi(given.mpi, *of)
    return peers


def add_peers(parser: argparse.ArgumentParser) -> None:
    """The options that ``peers_of`` reads."""
    parser.add_argument("--sockets", action="store_true")
    parser.add_argument("--gloo", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--mpi", metavar="PYTHON")


def main() -> None:
    """Prints one line for each number of members and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", default="2,8")
    parser.add_argument("--sizes", default="4096,1048576,134217728")
    parser.add_argument("--seconds", type=float, default=2.0)
    add_peers(parser)
    given = parser.parse_args()
    peers = peers_of(given)
    for members in map(int, given.members.split(",")):
        for size in map(int, given.sizes.split(",")):
            times_s = [measured(members, size, given.seconds)]
            beside = f"two copies take {1e3 * copied(size):8.3f} ms"
            for name, measure in peers.items():
                beside += f"; {name} {1e3 * measure(members, size, given.seconds):9.3f} ms"
            if peers:
                times_s.append(measured(members, size, given.seconds))
            ours = " and ".join(f"{1e3 * time_s:9.3f}" for time_s in times_s)
            print(f"{members} members, {size:>11,} bytes: {ours} ms a round; {beside}", flush=True)


if __name__ == "__main__":
    main()
