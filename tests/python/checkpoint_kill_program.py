"""A server that checkpoints as fast as it can while it is written to; for checkpoint_kill_test.py.

    python checkpoint_kill_program.py FOLDER KEEP

Prints what it started with, and after each checkpoint its number and what had been confirmed before
it was requested. Runs until it is killed or its input ends.
"""

import json
import sys
import threading

import numpy as np

import reverie


def tables():
    """Two tables that get the same steps."""
    signature = {
        "i": reverie.TensorSpec((1,), np.int64),
        "pad": reverie.TensorSpec((1, 1000), np.uint8),
    }
    make = {"max_size": 100_000, "rate_limiter": reverie.rate_limiters.MinSize(1)}
    make["signature"] = signature
    return [
        reverie.Table(name, sampler, reverie.selectors.Fifo(), **make)
        for name, sampler in (
            ("first", reverie.selectors.Uniform(seed=1)),
            ("second", reverie.selectors.Prioritized(0.8, seed=2)),
        )
    ]


def insert(client, i, names=("first", "second")):
    """Inserts step ``i`` into the first table, then into the second."""
    for name in names:
        step = {"i": np.int64(i), "pad": np.full(1000, i % 251, "u1")}
        client.insert(step, {name: 1.0 + i % 3})


def main():
    """Runs a server that inserts steps and writes checkpoints."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1], keep=int(sys.argv[2]))
    server = reverie.Server(tables(), checkpointer=checkpointer)
    client = server.localhost_client()
    info = client.server_info()
    first, second = (
        info[name].rate_limiter_info.insert_stats.completed for name in ("first", "second")
    )
    told = {"loaded": server.loaded_checkpoint, "inserts": first}
    print(json.dumps(told), flush=True)
    confirmed = [second]

    def write():
        for i in range(second, first):  # the step that was only in the first table
            insert(client, i, ["second"])
        i = first
        while True:
            insert(client, i)
            i += 1
            confirmed[0] = i

    def write_checkpoints():
        while True:
            before = confirmed[0]
            path = server.checkpoint(str(before).encode())
            print(json.dumps({"path": path, "inserts": before}), flush=True)

    for work in (write, write_checkpoints):
        threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
