"""A server with a journal that is written to and killed: journal_test.py.

    python journal_kill_program.py FOLDER DURABILITY [PORT]

Prints its port and what it began with. A checkpoint is written every 0.2 s meanwhile. Ends when it
is killed, or when its input does.
"""

import json
import sys

import numpy as np

import reverie


def tables():
    """One that keeps all, and a queue."""
    signature = {
        "i": reverie.TensorSpec((1,), np.int64),
        "pad": reverie.TensorSpec((1, 200), np.uint8),
    }
    kept = reverie.Table(
        "kept",
        sampler=reverie.selectors.Prioritized(0.8, seed=2),
        remover=reverie.selectors.Fifo(),
        max_size=1_000_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature=signature,
    )
    return [kept, reverie.Table.queue("queue", 100_000, signature=signature)]


def step(i):
    """What is inserted as number ``i``."""
    return {"i": np.int64(i), "pad": np.full(200, i % 251, "u1")}


def main():
    """Serves."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1])
    server = reverie.Server(
        tables(),
        port=int(sys.argv[3]) if len(sys.argv) > 3 else 0,
        checkpointer=checkpointer,
        checkpoint_every=0.2,
        durability=sys.argv[2],
    )
    print(json.dumps({"port": server.port, "loaded": server.loaded_checkpoint}), flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
