"""Reading from a server in another process: figures with their targets.

Small items per second, bytes per second of large ones compared with a raw socket and a copy, the
median of a sample's round trip, and a learner's loop: a batch of 256 drawn, then its priorities.
If dm-reverb is installed, its client with its server is measured too.

    PYTHONPATH=python .venv/bin/python benchmarks/reading.py [SECONDS [ROUNDS [loops]]]

With ``loops`` only the learners' loops are measured.

With dm-reverb: ``make .venv-reverb/made build``, and ``.venv-reverb/bin/python``.
"""

import importlib.util
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import reverie

TABLE_SIZE = 2000
BATCH = 256


def transition(
    shape: tuple[int, ...], dtype: type, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """One step with the columns that a value-based learner uses."""
    if dtype is np.uint8:  # compressible: three quarters of the picture are one colour
        state = np.zeros(shape, dtype)
        state[::4] = rng.integers(0, 255, state[::4].shape)
    else:
        state = rng.normal(size=shape).astype(dtype)
    return {
        "state": state,
        "action": np.int64(1),
        "reward": np.float32(0.5),
        "next_state": state,
        "done": np.bool_(False),
    }


def steps(name: str) -> list[object]:
    """Different steps for the table of that name."""
    rng = np.random.default_rng(7)
    of_name: dict[str, Callable[[], object]] = {
        "400 B": lambda: [rng.normal(size=100).astype(np.float32)],
        "400 kB": lambda: [rng.normal(size=100_000).astype(np.float32)],
        "CartPole": lambda: transition((4,), np.float32, rng),
        "84x84x4": lambda: transition((84, 84, 4), np.uint8, rng),
    }
    return [of_name[name]() for _ in range(8)]


NAMES = ("400 B", "400 kB", "CartPole", "84x84x4")


def serve(path: str) -> None:
    """A server at a port and a Unix socket; prints both, stops when standard input closes."""
    tables = [
        reverie.Table(
            name,
            sampler=reverie.selectors.Prioritized(0.6),
            remover=reverie.selectors.Fifo(),
            max_size=TABLE_SIZE,
            rate_limiter=reverie.rate_limiters.MinSize(1),
        )
        for name in NAMES
    ]
    with reverie.Server(tables, unix_path=path) as server:
        print(server.port, flush=True)
        sys.stdin.read()


def fill(client: reverie.Client, name: str, count: int) -> None:
    """Inserts items of one step each."""
    kinds = steps(name)
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for i in range(count):
            writer.append(kinds[i % len(kinds)])
            history = writer.history
            item = (
                {key: column[-1:] for key, column in history.items()}
                if isinstance(history, dict)
                else [history[0][-1:]]
            )
            writer.create_item(name, 1.0, item)
    writer.close()


def rate(seconds: float, work: Callable[[], int]) -> tuple[float, float]:
    """Units of work per second, and CPU microseconds of this process for each."""
    work()
    work()
    cpu, begin, count = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        count += work()
    return count / (time.perf_counter() - begin), (time.process_time() - cpu) / count * 1e6


class Peer:
    """dm-reverb's server in another process, and its client here."""

    def __init__(self) -> None:
        import reverb

        self.child = subprocess.Popen(
            [sys.executable, __file__, "serve-reverb"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.child.stdout is not None
        self.client = reverb.Client(f"localhost:{int(self.child.stdout.readline())}")
        for name in ("400 B", "CartPole", "84x84x4"):
            kinds = steps(name)
            with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
                for i in range(TABLE_SIZE):
                    writer.append(kinds[i % len(kinds)])
                    history = writer.history
                    item = (
                        {key: column[-1:] for key, column in history.items()}
                        if isinstance(history, dict)
                        else [history[0][-1:]]
                    )
                    writer.create_item(name, 1.0, item)
                    if i % 40 == 39:
                        writer.flush()

    def items(self) -> Callable[[], int]:
        """Draws small items, with 1000 in flight."""
        sampler = self.client._client.NewSampler("400 B", 1 << 40, 1000)

        def work() -> int:
            for _ in range(100):
                sampler.GetNextTrajectory()
            return 100

        return work

    def loop(self, name: str) -> Callable[[], int]:
        """A learner that stacks what it draws, and updates priorities."""
        sampler = self.client._client.NewSampler(name, 1 << 40, 2 * BATCH)

        def work() -> int:
            rows = [sampler.GetNextTrajectory() for _ in range(BATCH)]
            batch = [np.stack(column) for column in zip(*rows, strict=True)]
            self.client.mutate_priorities(name, dict.fromkeys(map(int, batch[0]), 0.5))
            return 1

        return work

    def stop(self) -> None:
        """Ends the server."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(timeout=60)


def serve_reverb() -> None:
    """dm-reverb's server; prints its port, stops when standard input closes."""
    import reverb

    tables = [
        reverb.Table(
            name,
            sampler=reverb.selectors.Prioritized(0.6),
            remover=reverb.selectors.Fifo(),
            max_size=TABLE_SIZE,
            rate_limiter=reverb.rate_limiters.MinSize(1),
        )
        for name in NAMES
    ]
    server = reverb.Server(tables)
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


def in_batches(client: reverie.Client, name: str, size: int) -> Callable[[], int]:
    """Samples a batch into the arrays of the previous one."""
    kept = [client.sample_batch(name, size)]

    def work() -> int:
        kept[0] = client.sample_batch(name, size, out=kept[0])
        return size

    return work


def loop(client: reverie.Client, name: str, wait: bool | None = None) -> Callable[[], int]:
    """A learner that only draws and updates priorities; ``wait`` is passed to the update."""
    batches = iter(client.dataset(name, BATCH, prefetch=2))
    priorities = np.linspace(0.1, 1.0, BATCH)

    def work() -> int:
        batch = next(batches)
        client.update_priorities(name, batch.tickets, priorities, wait=wait)
        return 1

    return work


def bare_loop(client: reverie.Client, name: str) -> Callable[[], int]:
    """The same without a thread that draws ahead."""
    kept = [client.sample_batch(name, BATCH)]
    priorities = np.linspace(0.1, 1.0, BATCH)

    def work() -> int:
        kept[0] = client.sample_batch(name, BATCH, out=kept[0])
        client.update_priorities(name, kept[0].tickets, priorities)
        return 1

    return work


def round_trip_us(client: reverie.Client, count: int) -> float:
    """The median time of drawing one small item."""
    batch = client.sample_batch("CartPole", 1)
    took = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        batch = client.sample_batch("CartPole", 1, out=batch)
        took.append(time.perf_counter_ns() - begin)
    return statistics.median(took) / 1e3


def connected(family: int) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection within this machine."""
    if family == socket.AF_UNIX:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    for end in (here, there):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return here, there


def echo_us(family: int, count: int) -> float:
    """The bound: a byte in each direction between two processes that sleep in the kernel."""
    here, there = connected(family)
    child = os.fork()
    if child == 0:
        here.close()
        while data := there.recv(1):
            there.send(data)
        os._exit(0)
    there.close()
    took = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        here.send(b"x")
        here.recv(1)
        took.append(time.perf_counter_ns() - begin)
    here.close()
    os.waitpid(child, 0)
    return statistics.median(took) / 1e3


def raw_socket_gb_s(family: int, seconds: float) -> float:
    """The rate of a plain socket: written 256 KiB at a time, read, and copied once."""
    here, there = connected(family)
    end = time.perf_counter() + seconds
    child = os.fork()
    if child == 0:
        here.close()
        data = bytes(256 << 10)
        while time.perf_counter() < end:
            there.sendall(data)
        os._exit(0)
    there.close()
    into, copy = np.empty(128 << 10, np.uint8), np.empty(128 << 10, np.uint8)
    total, begin = 0, time.perf_counter()
    while got := here.recv_into(into):
        copy[:got] = into[:got]
        total += got
    took = time.perf_counter() - begin
    os.waitpid(child, 0)
    return total / took / 1e9


def copy_gb_s(seconds: float) -> float:
    """A copy of 100 MB from memory to memory."""
    source, target = np.ones(100 << 20, np.uint8), np.ones(100 << 20, np.uint8)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        np.copyto(target, source)
        count += 1
    return count * source.nbytes / (time.perf_counter() - begin) / 1e9


def main(seconds: float, rounds: int, only_loops: bool) -> None:
    """Prints medians of the rounds, with the range in brackets."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "server.sock")
        child = subprocess.Popen(
            [sys.executable, __file__, "serve", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None
            port = int(child.stdout.readline())
            doors = {"tcp": f"localhost:{port}", "unix": f"unix:{path}"}
            clients = {door: reverie.Client(address) for door, address in doors.items()}
            # Through shared memory, which also holds what this client wrote.
            clients["peer"] = reverie.Client(doors["tcp"], protocol="peer")
            for name, count in {
                "400 B": 2000,
                "400 kB": 200,
                "CartPole": 2000,
                "84x84x4": 2000,
            }.items():
                fill(clients["peer"], name, count)
            measure(clients, seconds, rounds, only_loops)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(timeout=60)


def note_reads(
    note: Callable[..., None], door: str, client: reverie.Client, seconds: float
) -> None:
    """Reading from a server, compared with the rate of its socket."""
    family = socket.AF_INET if door == "tcp" else socket.AF_UNIX
    note(f"{door}: 400 B, items/s", *rate(seconds, in_batches(client, "400 B", 1000)))
    data = client.dataset("400 B", 1000)
    note(f"{door}: 400 B dataset, items/s", *rate(seconds, lambda d=data: len(next(d).keys)))
    data.close()
    items, cost = rate(seconds, in_batches(client, "400 kB", 50))
    note(f"{door}: 400 kB, GB/s", items * 4e5 / 1e9, cost)
    data = client.dataset("400 kB", 10, prefetch=4)
    items, cost = rate(seconds, lambda d=data: len(next(d).keys))
    note(f"{door}: 400 kB dataset, GB/s", items * 4e5 / 1e9, cost)
    data.close()
    note(f"{door}: raw socket, GB/s", raw_socket_gb_s(family, seconds))
    note(f"{door}: one item, us", round_trip_us(client, int(4000 * seconds)))
    note(f"{door}: one byte, us", echo_us(family, int(4000 * seconds)))


def measure(
    clients: dict[str, reverie.Client], seconds: float, rounds: int, only_loops: bool
) -> None:
    """Measures everything, by turns."""
    peer = Peer() if importlib.util.find_spec("reverb") else None
    found: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}

    def note(what: str, figure: float, cost: float = 0.0) -> None:
        found.setdefault(what, []).append(figure)
        costs.setdefault(what, []).append(cost)

    for _ in range(rounds):
        for door, client in clients.items():
            if not only_loops:
                note_reads(note, door, client, seconds)
            for name in ("CartPole", "84x84x4"):
                note(f"{door}: {name} loops/s", *rate(seconds, bare_loop(client, name)))
                note(f"{door}: {name} dataset loops/s", *rate(seconds, loop(client, name)))
                waiting = rate(seconds, loop(client, name, wait=True))
                note(f"{door}: {name} waiting loops/s", *waiting)
        if not only_loops:
            note("copy, GB/s", copy_gb_s(seconds))
        if peer is not None and not only_loops:
            note("dm-reverb: 400 B, items/s", *rate(seconds, peer.items()))
        if peer is not None:
            for name in ("CartPole", "84x84x4"):
                note(f"dm-reverb: {name} loops/s", *rate(seconds, peer.loop(name)))
    if peer is not None:
        peer.stop()
    targets = {
        "tcp: 400 B, items/s": ">= 1000000",
        "unix: 400 B, items/s": ">= 1000000",
        "tcp: 400 B dataset, items/s": ">= 1000000",
        "unix: 400 B dataset, items/s": ">= 1000000",
        "tcp: one item, us": "<= 90",
        "unix: one item, us": "<= 60",
        "peer: one item, us": "<= 12",
        "tcp: CartPole dataset loops/s": ">= 1700",
        "unix: CartPole dataset loops/s": ">= 1700",
        "tcp: 84x84x4 dataset loops/s": ">= 260",
        "unix: 84x84x4 dataset loops/s": ">= 260",
    }
    for door in clients:
        if not only_loops:
            raw = statistics.median(found[f"{door}: raw socket, GB/s"])
            targets[f"{door}: 400 kB dataset, GB/s"] = f"raw socket {raw:.3g}"
        for name in ("CartPole", "84x84x4"):
            pairs = zip(
                found[f"{door}: {name} dataset loops/s"],
                found[f"{door}: {name} waiting loops/s"],
                strict=True,
            )
            ratio = statistics.median(without / waiting for without, waiting in pairs)
            bound = " (to reach: 1.5)" if name == "CartPole" else ""
            targets[f"{door}: {name} waiting loops/s"] = f"without: {ratio:.2f} x{bound}"
    print(f"{seconds:g} s each, medians of {rounds} rounds (range); load {os.getloadavg()[0]:.1f}")
    for what, figures in found.items():
        text = f"{statistics.median(figures):.4g} ({min(figures):.4g} to {max(figures):.4g})"
        cost = statistics.median(costs[what])
        spent = f"{cost:.3g} us CPU" if cost else ""
        print(f"{what:36}{text:34}{spent:18}{targets.get(what, '')}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["serve-reverb"]:
        serve_reverb()
    else:
        main(
            float(sys.argv[1]) if len(sys.argv) > 1 else 1.0,
            int(sys.argv[2]) if len(sys.argv) > 2 else 3,
            sys.argv[3:] == ["loops"],
        )
