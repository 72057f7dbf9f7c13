"""Inserts over a socket: figures with their targets, and dm-reverb's in the same run.

    PYTHONPATH=python .venv/bin/python benchmarks/served_inserts.py [SECONDS [ROUNDS]]

With dm-reverb installed (``make .venv-reverb/made build``) its clients with its server take turns
with ours, and rates are compared with it; otherwise with its rates on 4 vCPU of an AMD EPYC (58
thousand items of 400 B per second, 28.8 thousand of 40 kB):

    PYTHONPATH=python .venv-reverb/bin/python benchmarks/served_inserts.py

Items are one step of float32 each, in a table with uniform sampling, FIFO removal, ``MinSize(1)``.
An item counts once it is confirmed. CPU time is that of the whole process, user and system: for a
client, Python, the writer and its I/O thread together.
"""

import importlib
import importlib.util
import inspect
import os
import statistics
import subprocess
import sys
import tempfile
import time
from types import ModuleType

import numpy as np
from processes import cpu_s, start

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

CLIENTS = 8  # processes
SIZES = {"400 B": 100, "40 kB": 10_000}  # float32 elements of an item
TABLE_SIZE = 2000
# Items/s of dm-reverb's clients and server, used if it cannot be measured.
THEIRS = {"400 B": 58_000.0, "40 kB": 28_800.0}
TIMES_THEIRS = {"400 B": 4.0, "40 kB": 2.0}
CLIENT_US_MAX = 4.0
SERVER_US_MAX = 3.5
OF_EIGHT_MIN = {100: 0.9, 200: 0.85}
CONFIRMED_US_MAX = {"unix": 60.0, "tcp": 90.0, "peer": 10.0}
CONFIRMED_COUNT = 4000


def serve(library: str, path: str) -> None:
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
    # Also at a Unix socket, if the server supports one.
    takes_path = "unix_path" in inspect.signature(lib.Server.__init__).parameters
    server = lib.Server(tables, unix_path=path) if takes_path else lib.Server(tables)
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


def work(library: str) -> None:
    """A client: writes what each line of standard input says."""
    lib = importlib.import_module(library)
    print("imported", flush=True)
    for line in sys.stdin:
        port, size, seconds = line.rstrip("\n").split("\t")
        print(*write(lib, int(port), size, float(seconds)), flush=True)


def write(lib: ModuleType, port: int, size: str, seconds: float) -> tuple[int, float, float]:
    """The number of confirmed items, the CPU seconds of this process, and the seconds taken."""
    shape = (16, SIZES[size])
    rows = np.random.default_rng(os.getpid()).normal(size=shape).astype(np.float32)
    writer = lib.Client(f"localhost:{port}").trajectory_writer(num_keep_alive_refs=1)
    writer.append([rows[0]])  # connects, and gets the table's signature
    writer.create_item(size, 1.0, [writer.history[0][-1:]])
    writer.flush()
    print("ready", flush=True)
    sys.stdin.readline()
    count = 0
    before = time.process_time()
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        for row in rows:
            writer.append([row])
            writer.create_item(size, 1.0, [writer.history[0][-1:]])
        writer.flush(block_until_num_items=200)
        count += len(rows)
    writer.flush()
    took = time.monotonic() - begin
    cpu = time.process_time() - before
    writer.close()
    return count, cpu, took


def confirmed_us(address: str, protocol: str = "grpc") -> list[float]:
    """The latency of a single item until it is confirmed."""
    import reverie

    row = np.zeros(SIZES["400 B"], np.float32)
    took = []
    client = reverie.Client(address, protocol=protocol)
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for _ in range(CONFIRMED_COUNT):
            writer.append([row])
            begin = time.perf_counter()
            writer.create_item("400 B", 1.0, [writer.history[0][-1:]])
            writer.flush()
            took.append((time.perf_counter() - begin) * 1e6)
    return sorted(took[CONFIRMED_COUNT // 10 :])


def load(
    workers: list[subprocess.Popen[str]],
    server: tuple[int, int],
    size: str,
    seconds: float,
) -> list[float]:
    """Items per second, and CPU microseconds per item of the clients and of the server."""
    port, pid = server
    for worker in workers:
        worker.stdin.write(f"{port}\t{size}\t{seconds}\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    before = cpu_s(pid)
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    answers = [[float(figure) for figure in worker.stdout.readline().split()] for worker in workers]
    total = sum(count for count, _, _ in answers)
    client_cpu = sum(cpu for _, cpu, _ in answers)
    rate = sum(count / took for count, _, took in answers)
    return [rate, client_cpu / total * 1e6, (cpu_s(pid) - before) / total * 1e6]


def verdict(holds: bool) -> str:
    """Whether a target is met, as a word."""
    return "ok" if holds else "MISSED"


def main(seconds: float, rounds: int) -> None:
    """Prints a table with medians, and the range in brackets."""
    libraries = ["reverie"]
    if importlib.util.find_spec("reverb") is not None:
        libraries.insert(0, "reverb")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s"
        servers = {library: start(__file__, "serve", library, path) for library in libraries}
        ports = {
            library: (int(server.stdout.readline()), server.pid)
            for library, server in servers.items()
        }
        workers = {
            library: [start(__file__, "work", library) for _ in range(count)]
            for library, count in (("reverb", CLIENTS), ("reverie", max(OF_EIGHT_MIN)))
            if library in libraries
        }
        everybody = [*servers.values(), *(worker for all_ in workers.values() for worker in all_)]
        for child in everybody[len(servers) :]:
            assert child.stdout.readline() == "imported\n"
        found: dict[tuple[str, str, int], list[list[float]]] = {}
        runs = [(library, size, CLIENTS) for size in SIZES for library in libraries]
        runs += [("reverie", "400 B", clients) for clients in OF_EIGHT_MIN]
        for _ in range(rounds):
            for library, size, clients in runs:
                figures = load(workers[library][:clients], ports[library], size, seconds)
                found.setdefault((library, size, clients), []).append(figures)
        address = f"localhost:{ports['reverie'][0]}"
        alone = {"tcp": confirmed_us(address), "peer": confirmed_us(address, "peer")}
        if os.path.exists(path):
            alone["unix"] = confirmed_us(f"unix:{path}")
        for child in everybody:
            child.stdin.close()
            child.wait(timeout=60)
    load_1 = os.getloadavg()[0]
    print(
        f"{seconds:g} s each, medians of {rounds} rounds (range); load of the machine {load_1:.0f}"
    )
    print(f"{'server':9}{'item':7}{'clients':9}{'items/s':<32}{'client us':<22}server us")
    medians = {}
    for (library, size, clients), figures in found.items():
        cells = []
        for values in zip(*figures, strict=True):
            digits = 0 if values[0] > 1000 else 1
            low, middle, high = min(values), statistics.median(values), max(values)
            cells.append(f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
        medians[library, size, clients] = [
            statistics.median(values) for values in zip(*figures, strict=True)
        ]
        print(f"{library:9}{size:7}{clients:<9}{cells[0]:32}{cells[1]:22}{cells[2]}")
    print()
    for size, times in TIMES_THEIRS.items():
        theirs = medians["reverb", size, CLIENTS][0] if "reverb" in libraries else THEIRS[size]
        ours = medians["reverie", size, CLIENTS][0]
        print(
            f"insert {size}: {ours:.0f} items/s, {ours / theirs:.2f} x dm-reverb's {theirs:.0f}; "
            f"target {times:g} x: {verdict(ours >= times * theirs)}"
        )
    eight, client_us, server_us = medians["reverie", "400 B", CLIENTS]
    print(
        f"client CPU an item of 400 B: {client_us:.2f} us; target {CLIENT_US_MAX:g}: "
        f"{verdict(client_us <= CLIENT_US_MAX)}"
    )
    print(
        f"server CPU an item of 400 B: {server_us:.2f} us; target {SERVER_US_MAX:g}: "
        f"{verdict(server_us <= SERVER_US_MAX)}"
    )
    for clients, least in OF_EIGHT_MIN.items():
        share = medians["reverie", "400 B", clients][0] / eight
        print(
            f"{clients} clients against {CLIENTS}: {share:.2f}; target {least:g}: "
            f"{verdict(share >= least)}"
        )
    for way, took in alone.items():
        middle = took[len(took) // 2]
        print(
            f"insert confirmed over {way}: p50 {middle:.0f} us, p99 "
            f"{took[len(took) * 99 // 100]:.0f} us; target p50 {CONFIRMED_US_MAX[way]:g}: "
            f"{verdict(middle <= CONFIRMED_US_MAX[way])}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], sys.argv[3])
    elif sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
    else:
        main(
            float(sys.argv[1]) if len(sys.argv) > 1 else 3.0,
            int(sys.argv[2]) if len(sys.argv) > 2 else 3,
        )
