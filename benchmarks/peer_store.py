"""The store in another process, through shared memory and over gRPC, and the embedded one.

    PYTHONPATH=python .venv/bin/python benchmarks/peer_store.py [ROUNDS]

- one insert until it is confirmed, and one sampled item: p50;
- items of 400 B that one writer inserts per second;
- the prioritised loop: insert a transition, sample 256, copy them into arrays, give them new
  weights; with 4 float32 (CartPole's) and with 84x84x4 uint8.

The kinds of client take turns.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from processes import start

import reverie

BATCH = 256
DOORS = ("embedded", "peer", "grpc")
SIZES = {"CartPole-like": 20_000, "84x84x4": 2_000}
CALLS = 2000
WRITES = 30_000
SHAPES = {"CartPole-like": ((4,), np.float32), "84x84x4": ((84, 84, 4), np.uint8)}


def tables() -> list[reverie.Table]:
    """One table for single calls, one for a writer, and one per loop and client.

    Clients do not share tables, because what they write is in different memory of the server.
    """
    limiter = reverie.rate_limiters.MinSize(1)
    selectors = reverie.selectors
    made = [
        reverie.Table(name, selectors.Uniform(), selectors.Fifo(), 2000, limiter)
        for name in ("single", "writer")
    ]
    for name, size in SIZES.items():
        for door in DOORS:
            table = f"{name} {door}"
            made.append(
                reverie.Table(table, selectors.Prioritized(0.6), selectors.Fifo(), size, limiter)
            )
    return made


def serve() -> None:
    """A server; prints its port, and stops when standard input closes."""
    with reverie.Server(tables()) as server:
        print(server.port, flush=True)
        sys.stdin.read()


def p50_us(call: Callable[[], object], count: int) -> float:
    """The median time of a call."""
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        took.append(time.perf_counter() - begin)
    return statistics.median(took) * 1e6


def single(client: reverie.Client) -> tuple[float, float]:
    """P50 of an insert that is confirmed, and of a sample of one item."""
    row = np.zeros(100, np.float32)
    with client.trajectory_writer(1) as writer:

        def insert() -> None:
            writer.append([row])
            writer.create_item("single", 1.0, [writer.history[0][-1:]])
            writer.flush()

        p50_us(insert, CALLS // 4)
        inserted = p50_us(insert, CALLS)
    return inserted, p50_us(lambda: client.sample_batch("single", 1), CALLS)


def inserts(client: reverie.Client) -> float:
    """Items of 400 B per second."""
    rows = np.random.default_rng(1).normal(size=(16, 100)).astype(np.float32)
    with client.trajectory_writer(1) as writer:
        for warm in (True, False):
            begin = time.perf_counter()
            for i in range(WRITES // (10 if warm else 1)):
                writer.append([rows[i % 16]])
                writer.create_item("writer", 1.0, [writer.history[0][-1:]])
            writer.flush()
            took = time.perf_counter() - begin
    return WRITES / took


def loop_us(client: reverie.Client, door: str, name: str, count: int) -> float:
    """A call that makes one iteration of the loop."""
    shape, dtype = SHAPES[name]
    table = f"{name} {door}"
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 255, size=(64, *shape)).astype(dtype)
    weights = rng.uniform(0.1, 1.0, size=BATCH)
    with client.trajectory_writer(2, codec="raw") as writer:

        def append(i: int) -> None:
            writer.append({"obs": rows[i % 64], "reward": np.float32(i), "action": i % 4})
            if i > 0:
                history = writer.history
                writer.create_item(
                    table,
                    1.0,
                    {
                        "obs": history["obs"][-2:],
                        "reward": history["reward"][-1:],
                        "action": history["action"][-1:],
                    },
                )

        for i in range(SIZES[name] // 2):
            append(i)
        writer.flush()
        took = []
        for i in range(count):
            begin = time.perf_counter()
            append(i + 1)
            batch = client.sample_batch(table, BATCH)
            client.update_priorities(table, batch.tickets, weights, wait=False)
            took.append(time.perf_counter() - begin)
        client.flush()
    return statistics.median(took) * 1e6


def main(rounds: int) -> None:
    """Prints a table with medians of the rounds."""
    server = start(__file__, "serve")
    address = f"localhost:{int(server.stdout.readline())}"
    store = reverie.Store(tables())
    clients = {
        "embedded": store.client(),
        "peer": reverie.Client(address, protocol="peer"),
        "grpc": reverie.Client(address, protocol="grpc"),
    }
    found: dict[str, dict[str, list[float]]] = {name: {} for name in clients}
    for _ in range(rounds):
        for name, client in clients.items():
            inserted, sampled = single(client)
            figures = {
                "insert confirmed, us": inserted,
                "one item sampled, us": sampled,
                "inserts of 400 B/s": inserts(client),
                "loop CartPole-like, us": loop_us(client, name, "CartPole-like", 1000),
                "loop 84x84x4, us": loop_us(client, name, "84x84x4", 100),
            }
            for what, figure in figures.items():
                found[name].setdefault(what, []).append(figure)
    try:
        server.stdin.close()
        server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        server.kill()
    print(f"medians of {rounds} rounds; load of the machine {os.getloadavg()[0]:.0f}")
    for what in found["embedded"]:
        medians = {name: statistics.median(all_[what]) for name, all_ in found.items()}
        print(f"{what:26}" + "".join(f"{name} {value:<14.1f}" for name, value in medians.items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
