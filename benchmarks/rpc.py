"""Calls between processes on one host: their latency, their rate, and the rate of arrays.

Usage: rpc.py [--seconds S] [--large-mb MB] [--peers N] [WAY ...]

A closed loop from Python to a Python function in another process, through shared memory ("shm"),
over a Unix socket ("unix") and over TCP ("tcp"). The references are one byte in each direction over
a bare socket of the same kind between two Python processes, and a copy of the same array in one
process: what the system itself takes. Then batches, of a function that returns its argument and of
a small network, beside the same calls one by one; and figures that depend on no transport: two
pairs of processes at once, idle peers, a server that starts late, many peers.
`build/release/benchmarks/rpc_bench` measures the same from C++.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import reverie

_SERVER = """
import sys
import numpy as np
import reverie
own = {}
def copy(array):
    mine = own.setdefault(array.nbytes, np.ones_like(array))
    np.copyto(mine, array)
rpc = reverie.Rpc("server", transports=sys.argv[1].split(","))
rpc.define("nothing", lambda: None)
rpc.define("take", lambda array: None)
rpc.define("copy", copy)
rpc.define("one", lambda row: row)
rpc.define("batch", lambda rows: rows, batch_size=32, dynamic_batching=True)
draws = np.random.default_rng(1)
hidden, out = (draws.standard_normal(shape).astype("f4") for shape in ((1024, 256), (256, 16)))
def network(x):
    return np.maximum(x @ hidden, 0) @ out
rpc.define("network", network)
rpc.define("networks", network, batch_size=32, dynamic_batching=True)
print(rpc.listen(sys.argv[2]), flush=True)
sys.stdin.read()
"""

_CALLER = """
import statistics, sys, time
import reverie
rpc = reverie.Rpc(transports=sys.argv[1].split(","))
rpc.connect(sys.argv[2])
rpc.sync("server", "nothing")
print("ready", flush=True)
sys.stdin.readline()
times = []
end = time.perf_counter() + float(sys.argv[3])
while (begin := time.perf_counter()) < end:
    rpc.sync("server", "nothing")
    times.append((time.perf_counter() - begin) * 1e6)
times = sorted(times[len(times) // 10 :])
print(statistics.median(times), times[len(times) * 99 // 100], flush=True)
"""

_BARE = """
import socket, sys
kind = socket.AF_UNIX if sys.argv[1] == "unix" else socket.AF_INET
listener = socket.socket(kind)
listener.bind(sys.argv[2] if sys.argv[1] == "unix" else ("127.0.0.1", 0))
listener.listen()
print(listener.getsockname() if sys.argv[1] == "unix" else listener.getsockname()[1], flush=True)
peer = listener.accept()[0]
if sys.argv[1] == "tcp":
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while (got := peer.recv(1)):
    peer.sendall(got)
"""

_MANY = """
import sys, time
import reverie
peers = []
for i in range(int(sys.argv[3])):
    peers.append(reverie.Rpc(f"peer{i}", transports=sys.argv[1].split(",")))
    peers[-1].connect(sys.argv[2])
    if i < int(sys.argv[3]) - 1:
        peers[-1].sync("server", "nothing")
begin = time.perf_counter()
peers[-1].sync("server", "nothing")
print(time.perf_counter() - begin, flush=True)
sys.stdin.read()
"""


def started(program: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Starts a process of this benchmark; returns it and its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # the cores are the peers'
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def ended(process: subprocess.Popen[str]) -> None:
    """Kills a process."""
    process.kill()
    process.wait()


def address_of(way: str, folder: str, name: str = "rpc") -> str:
    """The address that a server listens at."""
    return "127.0.0.1:0" if way == "tcp" else f"unix:{folder}/{name}.sock"


def latencies_us(call: object, seconds: float) -> list[float]:
    """The time of each call of a closed loop."""
    assert callable(call)
    times = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return times[len(times) // 10 :]  # without the warm-up


def shown(times: list[float]) -> str:
    """The median and the 99th percentile."""
    ordered = sorted(times)
    return (
        f"p50 {statistics.median(ordered):6.1f} us, p99 {ordered[len(ordered) * 99 // 100]:6.1f} us"
    )


def cpu_s(pid: int) -> float:
    """The processor time of a process and its threads."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """The memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bare(way: str, folder: str, seconds: float) -> None:
    """The time of a bare socket."""
    process, address = started(_BARE, way, f"{folder}/bare.sock")
    with socket.socket(socket.AF_UNIX if way == "unix" else socket.AF_INET) as peer:
        peer.connect(address if way == "unix" else ("127.0.0.1", int(address)))
        if way == "tcp":
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def call() -> None:
            peer.sendall(b"x")
            peer.recv(1)

        print(f"{way:5} bare socket, 1 byte    {shown(latencies_us(call, seconds))}")
    process.wait()


def bound(sizes: list[int], seconds: float) -> None:
    """The time of a copy on one thread."""
    for megabytes in sizes:
        array = np.ones(megabytes << 20, np.uint8)
        own = np.ones_like(array)
        times = latencies_us(lambda a=array, o=own: np.copyto(o, a), seconds)
        rate = array.nbytes / statistics.median(times) / 1e3
        print(f"bound {megabytes:4} MB copied once   {rate:6.2f} GB/s")


def measure(way: str, folder: str, seconds: float, large_mb: int) -> None:
    """All figures of one transport."""
    process, address = started(_SERVER, way, address_of(way, folder))
    with reverie.Rpc("client", transports=[way]) as rpc:
        rpc.connect(address)
        rpc.sync("server", "nothing")
        times = latencies_us(lambda: rpc.sync("server", "nothing"), seconds)
        print(f"{way:5} sync call without work {shown(times)}")
        count = 0
        spent = cpu_s(os.getpid()), cpu_s(process.pid)
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for future in [rpc.async_("server", "nothing") for _ in range(1000)]:
                future.result()
            count += 1000
        rate = count / (time.perf_counter() - begin)
        mine, theirs = cpu_s(os.getpid()) - spent[0], cpu_s(process.pid) - spent[1]
        print(
            f"{way:5} async calls, 1000 at once  {rate:8.0f} calls/s; processor time of a call: "
            f"{mine / count * 1e6:.1f} us here, {theirs / count * 1e6:.1f} us there"
        )
        for megabytes in (1, large_mb):
            array = np.ones(megabytes << 20, np.uint8)
            for function in ("take", "copy"):
                for _ in range(3):
                    rpc.sync("server", function, array)

                def send(a: np.ndarray = array, f: str = function) -> None:
                    rpc.sync("server", f, a)

                times = latencies_us(send, seconds)
                rate = array.nbytes / statistics.median(times) / 1e3
                what = "handed over" if function == "take" else "and copied there"
                print(
                    f"{way:5} {megabytes:4} MB {what:18} {rate:6.2f} GB/s ({len(times)} calls, "
                    f"{rpc.debug_info()['peers'][0]['transport']})"
                )
        row = np.ones(1024, np.float32)
        for what, functions in (
            ("no work", ("one", "batch")),
            ("a network", ("network", "networks")),
        ):
            rates = []
            for function in functions:
                count = 0
                begin = time.perf_counter()
                while time.perf_counter() - begin < seconds:
                    for future in [rpc.async_("server", function, row) for _ in range(32)]:
                        future.result()
                    count += 32
                rates.append(count / (time.perf_counter() - begin))
            print(
                f"{way:5} 32 calls of 4 KB at once, {what}: one by one {rates[0]:.0f} calls/s, "
                f"in batches {rates[1]:.0f} ({rates[1] / rates[0]:.1f}x)"
            )
        # An idle peer: neither this process nor the server has work.
        time.sleep(0.2)
        spent = cpu_s(os.getpid()), cpu_s(process.pid)
        time.sleep(2.0)
        mine, theirs = cpu_s(os.getpid()) - spent[0], cpu_s(process.pid) - spent[1]
        print(f"{way:5} idle: {mine / 2:.1%} of a core here, {theirs / 2:.1%} there")
    ended(process)


def pairs(way: str, folder: str, seconds: float) -> None:
    """Two pairs of processes that call at the same time."""
    servers = [started(_SERVER, way, address_of(way, folder, f"pair{i}")) for i in range(2)]
    callers = [started(_CALLER, way, address, str(seconds))[0] for _, address in servers]
    for caller in callers:
        assert caller.stdin is not None
        caller.stdin.write("\n")
        caller.stdin.flush()
    for caller in callers:
        assert caller.stdout is not None
        p50, p99 = (float(text) for text in caller.stdout.readline().split())
        print(f"{way:5} 4 busy processes       p50 {p50:6.1f} us, p99 {p99:6.1f} us")
        caller.wait()
    for process, _ in servers:
        ended(process)


def late(way: str, folder: str) -> None:
    """How soon after a server starts, a call that waits for it is answered."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    address = f"127.0.0.1:{port}" if way == "tcp" else address_of(way, folder, "late")
    with reverie.Rpc("client", transports=[way]) as rpc:
        rpc.connect(address)
        answered = threading.Event()
        at = [0.0]

        def done(_: object, error: object) -> None:
            assert error is None, error
            at[0] = time.perf_counter()
            answered.set()

        rpc.async_callback("server", "nothing", done)
        time.sleep(1.5)
        process, _ = started(_SERVER, way, address)
        up = time.perf_counter()
        assert answered.wait(60.0)
        after_ms = max(0.0, at[0] - up) * 1e3
        print(f"{way:5} first call of a late server {after_ms:6.1f} ms after it is up")
    ended(process)


def many(way: str, folder: str, count: int) -> None:
    """Many peers of one listener."""
    process, address = started(_SERVER, way, address_of(way, folder, "many"))
    before = resident_bytes(process.pid)
    others, first = started(_MANY, way, address, str(count))
    taken = (resident_bytes(process.pid) - before) / count
    print(
        f"{way:5} {count} peers: first call of the last {float(first) * 1e3:.1f} ms, "
        f"{taken / 1024:.1f} KiB a peer at the listener"
    )
    ended(others)
    ended(process)


def main() -> None:
    """Prints a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", default=["shm", "unix", "tcp"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--large-mb", type=int, default=128)
    parser.add_argument("--peers", type=int, default=1000)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    bound([1, arguments.large_mb], arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        for way in arguments.ways:
            if way != "shm":
                bare(way, folder, arguments.seconds)
            measure(way, folder, arguments.seconds, arguments.large_mb)
            pairs(way, folder, arguments.seconds)
            late(way, folder)
            if arguments.peers > 0:
                many(way, folder, arguments.peers)


if __name__ == "__main__":
    main()
