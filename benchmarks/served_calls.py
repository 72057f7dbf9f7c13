"""Single calls to a server, compared with dm-reverb 0.14: ``Client.sample``, and latencies.

For each library a separate server and clients, by turns, all in one run:

- items of 400 B per second that 8 processes get from the iterator ``Client.sample``, and the
  client's CPU time for each;
- while one process inserts and two sample, all at full speed: the latency of one insert until it is
  confirmed, and of new priorities for 256 items until they are answered.

Needs both libraries: ``make .venv-reverb/made build``, then

    PYTHONPATH=python .venv-reverb/bin/python benchmarks/served_calls.py [SECONDS [ROUNDS]]
"""

import importlib
import os
import statistics
import subprocess
import sys
import time
from types import ModuleType

import numpy as np
from processes import start

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

LIBRARIES = ("reverb", "reverie")
CLIENTS = 8
LOAD = ("write", "sample", "sample")
TABLE = "400 B"
ELEMENTS = 100  # float32, of an item
TABLE_SIZE = 2000
UPDATES = 256


def serve(library: str) -> None:
    """A server of ``library``; prints its port, and stops when standard input closes."""
    lib = importlib.import_module(library)
    table = lib.Table(
        TABLE,
        sampler=lib.selectors.Prioritized(0.6),
        remover=lib.selectors.Fifo(),
        max_size=TABLE_SIZE,
        rate_limiter=lib.rate_limiters.MinSize(1),
    )
    server = lib.Server([table])
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


def work(library: str) -> None:
    """A client of ``library``: does what each line of standard input says."""
    lib = importlib.import_module(library)
    print("imported", flush=True)
    runs = {"write": write, "sample": sample, "probe": probe}
    for line in sys.stdin:
        name, port, seconds = line.split()
        client = lib.Client(f"localhost:{port}")
        figures = runs[name](lib, client, float(seconds))
        print(*figures, flush=True)


def ready() -> None:
    """Tells the parent that it is ready, and waits until all clients are."""
    print("ready", flush=True)
    sys.stdin.readline()


def write(_: ModuleType, client: object, seconds: float) -> list[float]:
    """Inserts items of one separate step each."""
    row = np.random.default_rng(os.getpid()).normal(size=ELEMENTS).astype(np.float32)
    count = 0
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        ready()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(16):
                writer.append([row])
                writer.create_item(TABLE, 1.0, [writer.history[0][-1:]])
            count += 16
            writer.flush(block_until_num_items=200)
        writer.flush()
    return [count, 0.0]


def sample(_: ModuleType, client: object, seconds: float) -> list[float]:
    """The number of items from the iterator, and the CPU time of each in this process."""
    items = client.sample(TABLE, num_samples=1 << 30)
    for _ in range(200):
        next(items)
    ready()
    count, cpu, end = 0, time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            next(items)
        count += 50
    return [count, (time.process_time() - cpu) / count * 1e6]


def probe(_: ModuleType, client: object, seconds: float) -> list[float]:
    """Median and 99th percentile of both calls, in microseconds."""
    row = [np.zeros(ELEMENTS, np.float32)]
    keys = [steps[0].info.key for steps in client.sample(TABLE, num_samples=UPDATES)]
    updates = dict.fromkeys(keys, 0.5)
    calls = (
        lambda: client.insert(row, {TABLE: 1.0}),
        lambda: client.mutate_priorities(TABLE, updates=updates),
    )
    took: tuple[list[float], list[float]] = ([], [])
    ready()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for call, times in zip(calls, took, strict=True):
            begin = time.perf_counter()
            call()
            times.append((time.perf_counter() - begin) * 1e6)
    return [quantile for times in took for quantile in (np.median(times), np.quantile(times, 0.99))]


def together(
    clients: list[subprocess.Popen[str]], names: list[str], port: int, seconds: float
) -> list[list[float]]:
    """The results of all clients, which begin at once."""
    for client, name in zip(clients, names, strict=True):
        client.stdin.write(f"{name} {port} {seconds}\n")
        client.stdin.flush()
        assert client.stdout.readline() == "ready\n"
    for client in clients:
        client.stdin.write("\n")
        client.stdin.flush()
    return [[float(figure) for figure in client.stdout.readline().split()] for client in clients]


def text(values: list[float], digits: int) -> str:
    """A median, and the range in brackets."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main(seconds: float, rounds: int) -> None:
    """Prints a table with medians, and the range in brackets."""
    servers = {library: start(__file__, "serve", library) for library in LIBRARIES}
    ports = {library: int(servers[library].stdout.readline()) for library in LIBRARIES}
    clients = {
        library: [start(__file__, "work", library) for _ in range(CLIENTS)] for library in LIBRARIES
    }
    for library in LIBRARIES:
        for client in clients[library]:
            assert client.stdout.readline() == "imported\n"
        together(clients[library][:1], ["write"], ports[library], 0.5)
    found: dict[str, dict[str, list[float]]] = {library: {} for library in LIBRARIES}
    for _ in range(rounds):
        for library in LIBRARIES:
            here = found[library]
            figures = together(clients[library], ["sample"] * CLIENTS, ports[library], seconds)
            here.setdefault("items/s", []).append(sum(count for count, _ in figures) / seconds)
            here.setdefault("client CPU us/item", []).append(
                statistics.mean(cost for _, cost in figures)
            )
            names = [*LOAD, "probe"]
            *_, probed = together(clients[library][: len(names)], names, ports[library], seconds)
            for name, value in zip(
                ("insert p50 us", "insert p99 us", "update p50 us", "update p99 us"),
                probed,
                strict=True,
            ):
                here.setdefault(name, []).append(value)
    for child in (*servers.values(), *(one for all_ in clients.values() for one in all_)):
        child.stdin.close()
        child.wait(timeout=60)
    print(f"{seconds:g} s each, medians of {rounds} rounds (range); load {os.getloadavg()[0]:.0f}")
    print(f"{'':22}{'dm-reverb':34}{'reverie':34}ours over theirs")
    for name, theirs in found["reverb"].items():
        ours = found["reverie"][name]
        digits = 1 if name.startswith("client") else 0
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{name:22}{text(theirs, digits):34}{text(ours, digits):34}{ratio:.2f}")


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
