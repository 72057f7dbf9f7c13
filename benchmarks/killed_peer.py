"""A member is killed during a round: how long until the others end the next one; beside torchft.

Usage: killed_peer.py [--members 3] [--turns 5] [--size 1048576] [--torchft PYTHON]
                      [--timeout-s 60]

Members are processes that sum an array of float32 without end. One of them is killed in the middle
of a round; the figure is the time until all others have a sum of exactly those that live. Then one
more is started, and the time until all sum with it is measured too, from its start to its first sum
(Python's own start is part of that). With --torchft the same is measured with torchft's Manager and
gloo, where PYTHON has torchft; --timeout-s is what it waits for an operation, 60 by default there.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import reverie

_OURS = """
import sys, time
import numpy as np
import reverie

address, name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
rpc = reverie.Rpc(name)
rpc.connect(address)
group = reverie.Group(rpc, "g")
mine = np.ones(size // 4, np.float32)
while True:
    try:
        group.wait(1)
        total = group.all_reduce("sum", mine).result()
        print(time.monotonic(), int(total[0]), flush=True)
    except reverie.errors.GroupChangedError:
        pass
"""

_TORCHFT = """
import datetime, sys, time
import torch
import torch.distributed
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

address, name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
limit = datetime.timedelta(seconds=float(sys.argv[4]))
torch.set_num_threads(1)
store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=limit), load_state_dict=lambda state: None, state_dict=dict,
    min_replica_size=1, timeout=limit, quorum_timeout=limit, connect_timeout=limit, rank=0,
    world_size=1, store_addr="localhost", store_port=store.port, lighthouse_addr=address,
    replica_id=name,
)
while True:
    manager.start_quorum()
    mine = torch.ones(size // 4)
    manager.allreduce(mine).wait()
    if manager.should_commit():
        print(time.monotonic(), manager.num_participants(), flush=True)
"""

# One process that serves, until its standard input closes: torchft is in another environment.
_LIGHTHOUSE = """
import sys
from torchft._torchft import LighthouseServer

server = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=100)
print(server.address(), flush=True)
sys.stdin.read()
server.shutdown()
"""


class Member:
    """A process, and when it had which sums."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.sums: list[tuple[float, int]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            when, members = line.split()
            self.sums.append((float(when), int(members)))

    def first(self, since: float, members: int) -> float | None:
        """When it first had a sum of so many after ``since``."""
        return next((when for when, count in self.sums if when > since and count == members), None)

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()
        self._reader.join()


def until_all_sum(members: list[Member], since: float) -> float:
    """Seconds from ``since`` until each has had a sum of just these."""
    limit = time.monotonic() + 300.0
    while True:
        ends = [member.first(since, len(members)) for member in members]
        if None not in ends:
            return max(end for end in ends if end is not None) - since
        if time.monotonic() > limit:
            raise SystemExit("no sum of all within 300 s")
        time.sleep(0.005)


def measured(start: Callable[[int], Member], count: int, turns: int) -> tuple[list[float], ...]:
    """Seconds after each kill, and after each start."""
    draws = random.Random(1)
    members = [start(i) for i in range(count)]
    lost_s, joined_s = [], []
    try:
        until_all_sum(members, 0.0)
        for turn in range(turns):
            time.sleep(0.05 * draws.random())
            begin = time.monotonic()
            members.pop(draws.randrange(len(members))).kill()
            lost_s.append(until_all_sum(members, begin))
            begin = time.monotonic()
            members.append(start(count + turn))
            joined_s.append(until_all_sum(members, begin))
    finally:
        for member in members:
            member.kill()
    return lost_s, joined_s


def told(name: str, figures: tuple[list[float], ...]) -> None:
    """Prints one line."""
    text = "; ".join(
        f"{what} {statistics.median(times):6.2f} s, slowest {max(times):6.2f}"
        for what, times in zip(("after a kill", "with a new one"), figures, strict=True)
    )
    print(f"{name:>8}: {text}", flush=True)


def lighthouse(python: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """The server that torchft's members need."""
    return subprocess.Popen(
        [python, "-c", _LIGHTHOUSE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def main() -> None:
    """Prints one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--torchft", metavar="PYTHON")
    parser.add_argument("--timeout-s", type=float, default=60.0)
    given = parser.parse_args()
    with reverie.Broker() as broker:
        address = broker.listen()

        def ours(i: int) -> Member:
            return Member([sys.executable, "-c", _OURS, address, f"m{i}", str(given.size)])

        told("ours", measured(ours, given.members, given.turns))
    with lighthouse(given.torchft) if given.torchft else nullcontext() as server:
        if server is None:
            return
        assert server.stdout is not None
        at = server.stdout.readline().strip()
        if not at:
            raise SystemExit(
                f"--torchft {given.torchft}: its lighthouse does not start; is torchft there?"
            )

        def theirs(i: int) -> Member:
            rest = [at, f"m{i}", str(given.size), str(given.timeout_s)]
            return Member([given.torchft, "-c", _TORCHFT, *rest])

        told("torchft", measured(theirs, given.members, given.turns))


if __name__ == "__main__":
    main()
