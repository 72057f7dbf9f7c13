"""Tensors on a GPU between two processes of one host, one way.

Usage: cuda_tensors.py [--mb MB ...] [--rounds N] [--repeats N]

A closed loop: `sync` calls with one tensor of `--mb` megabytes, of a function that does nothing.
The ways:

    handle   the receiver copies it within the GPU, from the sender's memory (shared memory)
    unix     through pinned memory of the host and a Unix socket, to the CPU of the receiver
    host     `tensor.cpu()`, sent through shared memory, and `.cuda()` at the receiver

The bound is a copy within the GPU by torch. Each figure is the median of the rounds, with the least
and the greatest; a round is the mean of its repeats.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import torch

import reverie

_SERVER = """
import os, sys, threading
import reverie
import torch
torch.zeros(1, device="cuda:0")
ends = threading.Timer(300, os._exit, [3])
ends.daemon = True
ends.start()
rpc = reverie.Rpc("server", timeout_s=60.0)
rpc.define("take", lambda x: str(x.device))
rpc.define("upload", lambda x: (x.cuda(), torch.cuda.synchronize(), "uploaded")[2])
print(rpc.listen(), flush=True)
sys.stdin.read()
"""


def rates(size_bytes: int, rounds: int, repeats: int, run: Callable[[], object]) -> list[float]:
    """GB/s of each round."""
    for _ in range(3):
        run()
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeats):
            run()
        found.append(size_bytes * repeats / (time.perf_counter() - begin) / 1e9)
    return found


def show(name: str, size_bytes: int, found: list[float], note: str = "") -> None:
    """Print one line."""
    middle = statistics.median(found)
    print(
        f"{size_bytes / 1e6:8.3g} MB  {name:7} {middle:9.3f} GB/s  "
        f"({min(found):.3f} to {max(found):.3f}), {size_bytes / middle / 1e3:.1f} us each{note}",
        flush=True,
    )


def measure(address: str, megabytes: float, rounds: int, repeats: int) -> None:
    """Print the figures of one size."""
    count = max(1, round(megabytes * 1e6 / 4))
    x = torch.randn(count, device="cuda:0")
    y = torch.empty_like(x)
    size = x.nbytes
    torch.cuda.synchronize()

    def copy() -> None:
        y.copy_(x)
        torch.cuda.synchronize()

    show("bound", size, rates(size, rounds, 10 * repeats, copy), ": a copy within the GPU")
    with reverie.Rpc("handle", timeout_s=60.0) as rpc:
        rpc.connect(address)
        device = rpc.sync("server", "take", x)
        found = rates(size, rounds, 10 * repeats, lambda: rpc.sync("server", "take", x))
        show("handle", size, found, f", to {device}; {rpc.debug_info()['devices']}")
        found = rates(
            size, rounds, repeats, lambda: rpc.sync("server", "upload", x.cpu(), timeout_s=60.0)
        )
        show("host", size, found)
    with reverie.Rpc("unix", transports=("unix", "tcp"), timeout_s=60.0) as rpc:
        rpc.connect(address)
        device = rpc.sync("server", "take", x)
        found = rates(size, rounds, repeats, lambda: rpc.sync("server", "take", x))
        show("unix", size, found, f", to {device}")


def main() -> None:
    """Run the server in another process, and measure each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, nargs="+", default=[0.004, 1.0, 128.0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: nothing to measure")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    watch = threading.Timer(280, server.kill)
    watch.daemon = True
    watch.start()
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        for megabytes in options.mb:
            measure(address, megabytes, options.rounds, options.repeats)
    finally:
        server.stdin.close()
        server.kill()
        server.wait(30)


if __name__ == "__main__":
    main()
