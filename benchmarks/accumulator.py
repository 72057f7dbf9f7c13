"""Processor time of a round of an accumulator, and of the all-reduce that it uses.

Usage: accumulator.py [--members 2] [--size 1048576] [--rounds 500]

Each member is a process with a model of one float32 array, which contributes to every round. First
the group reduces an array of that size ``--rounds`` times, then the accumulator does. A figure is
the processor time of a process with its native threads, divided by the number of rounds, as the
median over the members. A program with nothing to do polls every millisecond.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

import reverie

_MEMBER = """
import sys, time
import numpy as np
import reverie

address, name, members, size, rounds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
rpc = reverie.Rpc(name)
rpc.connect(address)
group = reverie.Group(rpc, "benchmark")
group.wait(members)
gradient = np.ones(size // 4, np.float32)
group.all_reduce("sum", gradient).result()
group.barrier().result()
begin = time.process_time()
for _ in range(rounds):
    group.all_reduce("sum", gradient).result()
reduced_s = (time.process_time() - begin) / rounds

weights = np.zeros(size // 4, np.float32)
accumulator = reverie.Accumulator("model", [weights], (), group)
accumulator.set_virtual_batch_size(32 * members)
begin = None
while accumulator.model_version() < rounds or accumulator.has_gradients():
    accumulator.update()
    if accumulator.wants_state():
        accumulator.set_state()
    if accumulator.has_new_state():
        accumulator.state()
    if accumulator.has_gradients():
        if accumulator.model_version() == 10:
            begin = time.process_time()
        accumulator.zero_gradients()
    elif accumulator.wants_gradients():
        accumulator.reduce_gradients(32, [gradient])
    else:
        time.sleep(0.001)
print(reduced_s, (time.process_time() - begin) / (rounds - 10), flush=True)
group.barrier("end").result()
"""


def main() -> None:
    """Prints one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=500)
    given = parser.parse_args()
    with reverie.Broker() as broker:
        address = broker.listen()
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-c", _MEMBER, address, f"m{i}"),
                    *(str(given.members), str(given.size), str(given.rounds)),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(given.members)
        ]
        reduced, whole = [], []
        for process in processes:
            out, _ = process.communicate()
            if process.returncode != 0:
                raise SystemExit("a member failed")
            reduced.append(float(out.split()[0]))
            whole.append(float(out.split()[1]))
    of_reduce, of_round = statistics.median(reduced), statistics.median(whole)
    print(
        f"{given.members} members, {given.size:,} bytes: a round of the accumulator takes "
        f"{1e6 * of_round:.0f} us of a processor, an all-reduce {1e6 * of_reduce:.0f}: "
        f"{1e6 * (of_round - of_reduce):.0f} besides"
    )


if __name__ == "__main__":
    main()
