"""The cost of shards for a client, and the effect of a lost shard on its users.

Three servers in separate processes:

- CPU time of the client for an item written and read: with one server by its address, with the same
  in a list of one, and with three. The differences are the cost of routing and merging, whatever
  else the machine does.
- The longest pause of a writer and of a reader when a server is killed, and when one is frozen; and
  how long after its return it is used again.

    python benchmarks/shards.py [ROUNDS]
"""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import reverie

SHARDS = 3
BATCH = 256
BATCHES = 200
ITEMS = 5000
BYTES = 400
QUIET_S = 1.5
# Three requests for parts cost more than one for everything; a list of one shows the other costs.
TARGETS = {"one server": 1.0, "a list of one": 1.2, "a list of three": 2.0}

PROGRAM = """
import sys
import reverie
table = reverie.Table("t", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 100_000,
                      reverie.rate_limiters.MinSize(1))
server = reverie.Server([table], port=int(sys.argv[1]))
print(server.port, flush=True)
sys.stdin.read()
"""


class Shard:
    """A server that can be killed, and restarted at its port."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        """Starts the server with empty tables."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """Kills the server."""
        with self.process:
            self.process.kill()

    @property
    def address(self) -> str:
        """The address that it listens at."""
        return f"localhost:{self.port}"


def write(client: reverie.Client, count: int, stop: Callable[[], bool] = lambda: False) -> float:
    """Writes items in episodes of ten; returns the longest pause."""
    step = {"x": np.zeros(BYTES // 4, np.float32)}
    longest = 0.0
    with client.trajectory_writer(num_keep_alive_refs=1, max_in_flight_items=50) as writer:
        for _ in range(count // 10):
            if stop():
                break
            begun = time.monotonic()
            for _ in range(10):
                writer.append(step)
                writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
            writer.end_episode()
            longest = max(longest, time.monotonic() - begun)
    return longest


def read(client: reverie.Client, count: int, stop: Callable[[], bool] = lambda: False) -> float:
    """Draws batches; returns the longest pause."""
    batch = client.sample_batch("t", BATCH)
    longest = 0.0
    for _ in range(count):
        if stop():
            break
        begun = time.monotonic()
        batch = client.sample_batch("t", BATCH, out=batch)
        longest = max(longest, time.monotonic() - begun)
    return longest


def cpu_us(work: Callable[[], object], items: int) -> float:
    """CPU time of this process with all its threads, per item."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) / items * 1e6


def costs(shards: list[Shard]) -> dict[str, tuple[float, float]]:
    """CPU microseconds per item, written and read, by kind of client."""
    kinds = {
        "one server": shards[0].address,
        "a list of one": [shards[0].address],
        "a list of three": [shard.address for shard in shards],
    }
    found = {}
    for kind, address in kinds.items():
        client = reverie.Client(address)
        write(client, 500)
        read(client, 5)
        written = cpu_us(lambda client=client: write(client, ITEMS), ITEMS)
        drawn = cpu_us(lambda client=client: read(client, BATCHES), BATCHES * BATCH)
        found[kind] = (written, drawn)
    return found


def outage(shards: list[Shard], how: str) -> dict[str, float]:
    """The longest pauses while a shard is away and comes back."""
    addresses = [shard.address for shard in shards]
    stop = threading.Event()
    pauses = {}

    def run(name: str, work: Callable[..., float]) -> None:
        pauses[name] = work(reverie.Client(addresses), 1 << 40, stop.is_set)

    threads = [threading.Thread(target=run, args=pair) for pair in (("w", write), ("r", read))]
    for thread in threads:
        thread.start()
    watch = reverie.Client(addresses)
    wait = threading.Event()
    wait.wait(QUIET_S)
    gone = shards[1]
    if how == "killed":
        gone.kill()
    else:
        gone.process.send_signal(signal.SIGSTOP)
    wait.wait(4.0)
    if how == "killed":
        gone.start()
    else:
        gone.process.send_signal(signal.SIGCONT)
    back = time.monotonic()
    while 1 not in watch.sample_batch("t", 64).shards:
        wait.wait(0.01)
    again = time.monotonic() - back
    wait.wait(QUIET_S)
    stop.set()
    for thread in threads:
        thread.join()
    return {"writer": pauses["w"], "reader": pauses["r"], "used again": again}


def main() -> None:
    """Prints medians of the rounds, each with its target."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    shards = [Shard() for _ in range(SHARDS)]
    print(f"{rounds} rounds, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    try:
        all_costs = [costs(shards) for _ in range(rounds)]
        for kind in all_costs[0]:
            written, drawn = (
                statistics.median(found[kind][i] for found in all_costs) for i in range(2)
            )
            ratios = [
                statistics.median(found[kind][i] / found["one server"][i] for found in all_costs)
                for i in range(2)
            ]
            print(
                f"{kind:16} {written:6.2f} us an item written ({ratios[0]:4.2f}x)  "
                f"{drawn:6.2f} us an item read ({ratios[1]:4.2f}x)   target <= {TARGETS[kind]}x"
            )
        for how, target in (("killed", 1.0), ("frozen", 3.0)):
            found = [outage(shards, how) for _ in range(rounds)]
            figures = "  ".join(
                f"{name} {statistics.median(f[name] for f in found):.3f} s" for name in found[0]
            )
            print(f"one of three {how}: longest pauses {figures}   target <= {target:.0f} s, 3 s")
    finally:
        for shard in shards:
            shard.kill()


if __name__ == "__main__":
    main()
