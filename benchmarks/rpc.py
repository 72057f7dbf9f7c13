"""Calls between two processes of one host: how long, how many a second, how fast arrays go.

Usage: rpc.py [--seconds S] [--large-mb MB]

A closed loop from Python to a Python function in another process, through shared memory,
over a Unix socket and over TCP.
As the measure beside it: the same question and answer, one byte each, over a bare socket of the
same kind between two Python processes, which is what the system alone takes.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import reverie

_SERVER = """
import sys
import reverie
rpc = reverie.Rpc("server", transports=[sys.argv[1]])
rpc.define("nothing", lambda: None)
rpc.define("take", lambda array: None)
rpc.define("echo", lambda array: array)
print(rpc.listen(sys.argv[2]), flush=True)
sys.stdin.read()
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


def started(program: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A process of ours, and its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def latencies_us(call: object, seconds: float) -> list[float]:
    """Each call of a closed loop."""
    assert callable(call)
    times = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return times[len(times) // 10 :]  # warm


def shown(times: list[float]) -> str:
    """Median, and the 99th of a hundred."""
    ordered = sorted(times)
    return (
        f"p50 {statistics.median(ordered):6.1f} us, p99 {ordered[len(ordered) * 99 // 100]:6.1f} us"
    )


def bare(kind: str, folder: str, seconds: float) -> None:
    """What a socket alone takes."""
    process, address = started(_BARE, kind, f"{folder}/bare.sock")
    with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET) as peer:
        peer.connect(address if kind == "unix" else ("127.0.0.1", int(address)))
        if kind == "tcp":
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def call() -> None:
            peer.sendall(b"x")
            peer.recv(1)

        print(f"{kind:5} bare socket, 1 byte    {shown(latencies_us(call, seconds))}")
    process.wait()


def measure(kind: str, folder: str, seconds: float, large_mb: int) -> None:
    """All figures of one kind of connection."""
    address = "127.0.0.1:0" if kind == "tcp" else f"unix:{folder}/rpc.sock"
    process, address = started(_SERVER, kind, address)
    with reverie.Rpc("client", transports=[kind]) as rpc:
        rpc.connect(address)
        rpc.sync("server", "nothing")
        times = latencies_us(lambda: rpc.sync("server", "nothing"), seconds)
        print(f"{kind:5} sync call without work {shown(times)}")
        count = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for future in [rpc.async_("server", "nothing") for _ in range(1000)]:
                future.result()
            count += 1000
        rate = count / (time.perf_counter() - begin)
        print(f"{kind:5} async calls, 1000 at once  {rate:8.0f} calls/s")
        for megabytes in (1, large_mb):
            array = np.ones(megabytes << 20, np.uint8)
            times = latencies_us(lambda a=array: rpc.sync("server", "take", a), seconds)
            rate = array.nbytes / statistics.median(times) / 1e3
            print(
                f"{kind:5} {megabytes:4} MB there           {rate:6.2f} GB/s ({len(times)} calls)"
            )
    process.kill()
    process.wait()


def main() -> None:
    """Prints a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--large-mb", type=int, default=128)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("shm", "unix", "tcp"):
            if kind != "shm":
                bare(kind, folder, arguments.seconds)
            measure(kind, folder, arguments.seconds, arguments.large_mb)


if __name__ == "__main__":
    main()
