"""A served store: dm-reverb 0.14's server compared with ours, with the same clients.

For each server and size of item: items per second that 8 client processes insert, and sample, and
the CPU time of the server's process for each. Then the same with our clients and our server. All in
one run, with the servers taking turns. For comparison it prints the kernel's cost of moving an item
of 40 kB through as many sockets (``loopback.py``): no server can use less.

Needs both libraries: ``make .venv-reverb/made build``, then

    PYTHONPATH=python .venv-reverb/bin/python benchmarks/served.py [SECONDS [ROUNDS]]
"""

import importlib
import os
import statistics
import subprocess
import sys
import time
from types import ModuleType

import numpy as np
from loopback import bare_server_us
from processes import cpu_s, start

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

CLIENTS = 8
SIZES = {"400 B": 100, "40 kB": 10_000}  # float32 elements of an item
TABLE_SIZE = 2000


def serve(library: str) -> None:
    """A server of ``library``; prints its port, and stops when standard input closes."""
    lib = importlib.import_module(library)
    tables = [
        lib.Table(
            size,
            sampler=lib.selectors.Uniform(),
            remover=lib.selectors.Fifo(),
            max_size=TABLE_SIZE,
            rate_limiter=lib.rate_limiters.MinSize(1),
        )
        for size in SIZES
    ]
    server = lib.Server(tables)
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


def work(library: str) -> None:
    """A client of ``library``: does what each line of standard input says."""
    lib = importlib.import_module(library)
    print("imported", flush=True)
    for line in sys.stdin:
        name, port, size, seconds = line.rstrip("\n").split("\t")
        run = write if name == "write" else read
        print(run(lib, int(port), size, float(seconds)), flush=True)


def write(lib: ModuleType, port: int, size: str, seconds: float) -> int:
    """Inserts items of one separate step each."""
    shape = (16, SIZES[size])
    rows = np.random.default_rng(os.getpid()).normal(size=shape).astype(np.float32)
    writer = lib.Client(f"localhost:{port}").trajectory_writer(num_keep_alive_refs=1)
    count = 0
    ready()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for row in rows:
            writer.append([row])
            writer.create_item(size, 1.0, [writer.history[0][-1:]])
        count += len(rows)
        writer.flush(block_until_num_items=200)
    writer.flush()
    writer.close()
    return count


def read(lib: ModuleType, port: int, size: str, seconds: float) -> int:
    """Samples items, with a few hundred in flight."""
    client = lib.Client(f"localhost:{port}")
    count = 0
    if lib.__name__ == "reverb":
        sampler = client._client.NewSampler(size, 1 << 40, 200)
        sampler.GetNextTrajectory()
        ready()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(20):
                sampler.GetNextTrajectory()
            count += 20
        return count
    batch = client.sample_batch(size, 200)
    ready()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        batch = client.sample_batch(size, 200, out=batch)
        count += 200
    return count


def ready() -> None:
    """Tells the parent that it is ready, and waits until all clients are."""
    print("ready", flush=True)
    sys.stdin.readline()


def load(
    clients: list[subprocess.Popen[str]],
    name: str,
    server: tuple[int, int],
    size: str,
    seconds: float,
) -> list[float]:
    """Items per second, and the server's CPU microseconds per item."""
    port, pid = server

    def tell(line: str) -> None:
        for client in clients:
            client.stdin.write(f"{line}\n")
            client.stdin.flush()

    tell(f"{name}\t{port}\t{size}\t{seconds}")
    for client in clients:
        assert client.stdout.readline() == "ready\n"
    before = cpu_s(pid)
    begin = time.monotonic()
    tell("")
    total = sum(int(client.stdout.readline()) for client in clients)
    took = time.monotonic() - begin
    return [total / took, (cpu_s(pid) - before) / total * 1e6]


def main(seconds: float, rounds: int) -> None:
    """Prints a table with medians, and the range in brackets."""
    children = {library: start(__file__, "serve", library) for library in ("reverb", "reverie")}
    servers = {
        library: (int(child.stdout.readline()), child.pid) for library, child in children.items()
    }
    clients = {
        library: [start(__file__, "work", library) for _ in range(CLIENTS)]
        for library in ("reverb", "reverie")
    }
    everybody = [*children.values(), *clients["reverb"], *clients["reverie"]]
    for child in everybody[2:]:
        assert child.stdout.readline() == "imported\n"
    pairs = [("reverb", "reverb"), ("reverie", "reverb"), ("reverie", "reverie")]
    found: dict[tuple[str, str, str, str], list[list[float]]] = {}
    bare: dict[str, list[float]] = {"write": [], "read": []}
    for _ in range(rounds):
        for name, costs in bare.items():
            costs.append(bare_server_us(name, seconds, CLIENTS)[0])
        for size in SIZES:
            for name in ("write", "read"):
                for server, client in pairs:
                    figures = load(clients[client], name, servers[server], size, seconds)
                    found.setdefault((size, name, server, client), []).append(figures)
    for child in everybody:
        child.stdin.close()
        child.wait(timeout=60)
    print(f"{CLIENTS} clients, {seconds:g} s each, medians of {rounds} rounds (range)")
    print(f"{'item':7}{'work':7}{'server':9}{'clients':9}{'items/s':<29}server CPU us/item")
    for (size, name, server, client), figures in sorted(found.items()):
        rate, cost = (sorted(values) for values in zip(*figures, strict=True))
        rates = f"{statistics.median(rate):.0f} ({rate[0]:.0f} to {rate[-1]:.0f})"
        costs = f"{statistics.median(cost):.1f} ({cost[0]:.1f} to {cost[-1]:.1f})"
        print(f"{size:7}{name:7}{server:9}{client:9}{rates:29}{costs}")
    for name, kernel in bare.items():
        theirs = statistics.median(cost for _, cost in found["40 kB", name, "reverb", "reverb"])
        print(
            f"40 kB  {name:7}the kernel alone: {statistics.median(kernel):.1f} us "
            f"({min(kernel):.1f} to {max(kernel):.1f}); a third of dm-reverb's: {theirs / 3:.1f}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
    else:
        main(
            float(sys.argv[1]) if len(sys.argv) > 1 else 3.0,
            int(sys.argv[2]) if len(sys.argv) > 2 else 3,
        )
