"""Members with hardly any processor time stay in their group, and their rounds end."""

import os
import subprocess
import sys

import pytest

import reverie

MEMBERS = 8

_MEMBER = """
import sys
import numpy as np
import reverie

address, index, count, size, rounds = sys.argv[1], *map(int, sys.argv[2:])
rpc = reverie.Rpc(f"m{index}")
rpc.connect(address)
group = reverie.Group(rpc, "g")
group.wait(count)
epoch = group.epoch
array = np.full(size // 4, index + 1, np.float32)
for turn in range(rounds):
    total = group.all_reduce("sum", array).result()
    assert total[0] == total[-1] == count * (count + 1) / 2, total
    assert group.epoch == epoch, "a member was lost"
group.barrier("end").result()
print("all", flush=True)
"""

# A program that computes without pause, like another user's.
_BUSY = "while True:\n    sum(range(1000))\n"


@pytest.mark.parametrize(
    ("size", "rounds"),
    [(4 << 20, 10), pytest.param(128 << 20, 200, marks=pytest.mark.full(minutes=2))],
)
def test_no_member_is_lost_on_overloaded_cores(size, rounds):
    cores = sorted(os.sched_getaffinity(0))[:2]
    on_two_cores = ("taskset", "-c", ",".join(map(str, cores)))
    processes = []
    with reverie.Broker() as broker:
        address = broker.listen()
        try:
            busy = [
                subprocess.Popen([*on_two_cores, sys.executable, "-c", _BUSY]) for _ in range(4)
            ]
            processes += busy
            members = [
                subprocess.Popen(
                    [
                        *(*on_two_cores, sys.executable, "-c", _MEMBER, address, str(index)),
                        *(str(MEMBERS), str(size), str(rounds)),
                    ],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for index in range(MEMBERS)
            ]
            processes += members
            for member in members:
                out, _ = member.communicate(timeout=3600.0)
                assert out == "all\n"
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.communicate()
