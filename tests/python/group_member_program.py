"""Members of a group that reduce, each in a process that is forked from one with all imports done.

Reads lines ``INDEX ADDRESS LOG``, starts a member for each, and prints its process id. A member
writes to its log without buffering, so that nothing is lost when it is killed:

    brings TOKEN                      before each round
    has TIME INDEX:TOKEN,... DIGEST   after each round: the members' tokens, a digest of the sum
"""

import hashlib
import os
import signal
import sys
import threading
import time

import numpy as np

import reverie

MEMBERS_MAX = 512
SIZE = 20_000


def factors(index):
    """What the member ``index`` contributes besides its token."""
    return np.arange(SIZE, dtype=np.int64) * (index + 1)


def run(index, address, log):
    """Reduces for ever."""
    rng = np.random.default_rng([index, time.monotonic_ns()])
    rpc = reverie.Rpc(f"m{index}")
    rpc.connect(address)
    group = reverie.Group(rpc, "g")
    pause = threading.Event()
    while True:
        tokens = np.zeros(MEMBERS_MAX, np.int64)
        tokens[index] = rng.integers(1, 1 << 60)
        os.write(log, f"brings {tokens[index]}\n".encode())
        try:
            group.wait(1)
            mine = {"tokens": tokens, "factors": factors(index)}
            total = group.all_reduce("sum", mine).result()
        except (reverie.errors.GroupChangedError, reverie.errors.FailedPreconditionError):
            continue
        there = np.flatnonzero(total["tokens"])
        assert (total["factors"] == factors((there + 1).sum() - 1)).all(), there
        who = ",".join(f"{i}:{total['tokens'][i]}" for i in there)
        digest = hashlib.md5(total["factors"].tobytes()).hexdigest()
        os.write(log, f"has {time.monotonic()} {who} {digest}\n".encode())
        pause.wait(0.01)


def main():
    """Forks a member for each line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        index, address, path = line.split()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            run(int(index), address, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        print(child, flush=True)


if __name__ == "__main__":
    main()
