"""A server with a journal that is written to and killed; for journal_test.py.

    python journal_kill_program.py FOLDER DURABILITY [PORT [OPTIONS]]

Prints its port and what it started with. Writes a checkpoint every 0.2 s. OPTIONS, a JSON object,
changes "every", "codec" and "memory_bytes" of the server, "pad" (bytes of a step) and "sampler" of
the tables. Runs until it is killed or its input ends.
"""

import json
import sys

import numpy as np

import reverie

SAMPLERS = {
    "Prioritized": reverie.selectors.Prioritized(0.8, seed=2),
    "Uniform": reverie.selectors.Uniform(seed=2),
    "MaxHeap": reverie.selectors.MaxHeap(),
    "Lifo": reverie.selectors.Lifo(),
}


def tables(pad=200, sampler="Prioritized"):
    """A table that keeps everything, and a queue."""
    signature = {
        "i": reverie.TensorSpec((1,), np.int64),
        "pad": reverie.TensorSpec((1, pad), np.uint8),
    }
    kept = reverie.Table(
        "kept",
        sampler=SAMPLERS[sampler],
        remover=reverie.selectors.Fifo(),
        max_size=1_000_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature=signature,
    )
    return [kept, reverie.Table.queue("queue", 100_000, signature=signature)]


def step(i, pad=200):
    """The step that is inserted as number ``i``."""
    return {"i": np.int64(i), "pad": np.full(pad, i % 251, "u1")}


def main():
    """Runs the server."""
    options = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1])
    server = reverie.Server(
        tables(options.get("pad", 200), options.get("sampler", "Prioritized")),
        port=int(sys.argv[3]) if len(sys.argv) > 3 else 0,
        checkpointer=checkpointer,
        checkpoint_every=options.get("every", 0.2),
        durability=sys.argv[2],
        codec=options.get("codec", "auto"),
        memory_bytes=options.get("memory_bytes"),
    )
    print(json.dumps({"port": server.port, "loaded": server.loaded_checkpoint}), flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
