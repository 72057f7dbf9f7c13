"""How long groups take to form, grow, drop a member and continue; and the cost of an idle group.

Usage: group_times.py [--turns 10] [--idle-peers 64] [--idle-s 10]

forms       two members join at once, until both see each other
grows       a third one joins, until all three see each other
drops       a member's process is stopped (SIGSTOP), until the others have a membership without it
goes on     a member's process is killed during a round, until the others have their next result
idle        processor time of a group that does nothing, of all its peers together

Members are processes that run already, so that Python's start is not part of a figure. Each line
has the median and the slowest.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time

import numpy as np

import reverie

_MEMBER = """
import sys
import numpy as np
import reverie

for line in sys.stdin:  # ADDRESS NAME
    address, name = line.split()
    rpc = reverie.Rpc(name)
    rpc.connect(address)
    group = reverie.Group(rpc, "g")
    print("joined", flush=True)
    while True:
        try:
            group.wait(1)
            group.all_reduce("sum", np.ones(250_000, np.float32)).result()
        except reverie.errors.GroupChangedError:
            pass
"""

_IDLE = """
import resource, sys
import reverie

address, first, count = sys.argv[1], *map(int, sys.argv[2:])
groups = []
for i in range(first, first + count):
    rpc = reverie.Rpc(f"i{i}")
    rpc.connect(address)
    groups.append(reverie.Group(rpc, "idle"))
for line in sys.stdin:  # "wait N", "used"
    words = line.split()
    if words[0] == "wait":
        groups[0].wait(int(words[1]))
        print("there", flush=True)
    else:
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime, flush=True)
"""


class Process:
    """A process that is controlled by lines."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line: str) -> None:
        """Sends a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()


def told(name: str, times_s: list[float]) -> None:
    """Prints one line."""
    median, slowest = statistics.median(times_s), max(times_s)
    print(f"{name:>8}: {1e3 * median:8.1f} ms, slowest {1e3 * slowest:8.1f} ms", flush=True)


def next_sum(group: reverie.Group, members: int) -> float:
    """Reduces until a round has ``count`` members; returns the time."""
    while True:
        try:
            group.wait(1)
            total = group.all_reduce("sum", np.ones(250_000, np.float32)).result(30.0)
        except reverie.errors.GroupChangedError:
            continue
        if total[0] == members:
            return time.monotonic()


def changes(turns: int) -> None:
    """Measures the first four figures."""
    figures: dict[str, list[float]] = {"forms": [], "grows": [], "drops": [], "goes on": []}
    for _ in range(turns):
        with reverie.Broker() as broker:
            address = broker.listen()
            rpcs = [reverie.Rpc(f"m{i}") for i in range(3)]
            for rpc in rpcs:
                rpc.connect(address)
            begin = time.monotonic()
            groups = [reverie.Group(rpc, "g") for rpc in rpcs[:2]]
            for group in groups:
                group.wait(2)
            figures["forms"].append(time.monotonic() - begin)
            begin = time.monotonic()
            groups.append(reverie.Group(rpcs[2], "g"))
            for group in groups:
                group.wait(3)
            figures["grows"].append(time.monotonic() - begin)
            for part in (*groups, *rpcs):
                part.leave() if isinstance(part, reverie.Group) else part.close()
    for name, how in (("drops", signal.SIGSTOP), ("goes on", signal.SIGKILL)):
        for _ in range(turns):
            with reverie.Broker() as broker, reverie.Rpc("here") as rpc:
                address = broker.listen()
                rpc.connect(address)
                other = Process(_MEMBER)
                with reverie.Group(rpc, "g") as group:
                    other.say(f"{address} other")
                    other.hear()
                    next_sum(group, 2)
                    begin = time.monotonic()
                    os.kill(other.process.pid, how)
                    figures[name].append(next_sum(group, 1) - begin)
                other.kill()
    for name, times_s in figures.items():
        told(name, times_s)


def idle(peers: int, seconds: float) -> None:
    """Measures the last figure."""
    each = 8
    with reverie.Broker() as broker:
        address = broker.listen()
        processes = [Process(_IDLE, address, str(i), str(each)) for i in range(0, peers, each)]
        for process in processes:
            process.say(f"wait {len(processes) * each}")
            process.hear()

        def used() -> float:
            total = time.process_time()  # the broker's
            for process in processes:
                process.say("used")
                total += float(process.hear())
            return total

        begin, before = time.monotonic(), used()
        time.sleep(seconds)
        spent, elapsed = used() - before, time.monotonic() - begin
        for process in processes:
            process.kill()
    count = len(processes) * each
    print(f"    idle: {100 * spent / elapsed:.2f} % of a core, {count} peers and their broker")


def main() -> None:
    """Prints one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--idle-peers", type=int, default=64)
    parser.add_argument("--idle-s", type=float, default=10.0)
    given = parser.parse_args()
    changes(given.turns)
    idle(given.idle_peers, given.idle_s)


if __name__ == "__main__":
    main()
