"""Servers and client processes of Reverie or dm-reverb: the load for the served store's figures.

    server LIBRARY TABLES    a server with that many tables; prints its port, stops at end of input
    client LIBRARY           does the jobs that it reads from standard input, one line of JSON each

There are a few processes with many clients each, because 200 processes would measure the machine's
scheduler. Each client of a process has its own connection, and they take turns; libraries that send
and receive on other threads serve all of them at once.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

PROCESSES_MAX = 8
TABLE_SIZE = 500
TABLES_MAX = 8
_ROWS = 16
_BATCH_BYTES = 4 << 20
_BATCH_MAX = 200


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of one client process."""

    work: str
    """``"insert"``; ``"fill"``, which inserts what a table holds; or ``"sample"``."""
    port: int
    elements: int
    """float32 numbers of an item, which is one step in a chunk of its own."""
    clients: int
    tables: int
    """Each client goes round the tables, item by item."""
    seconds: float
    pace: float | None
    """Items a second of the process at most."""

    @property
    def batch(self) -> int:
        """How many samples are requested at a time, and how many items a writer has in flight."""
        return max(1, min(_BATCH_MAX, _BATCH_BYTES // (4 * self.elements)))


def serve(library: str, tables: int) -> None:
    """A server, which chooses its port."""
    lib = importlib.import_module(library)
    server = lib.Server(
        [
            lib.Table(
                str(index),
                sampler=lib.selectors.Uniform(),
                remover=lib.selectors.Fifo(),
                max_size=TABLE_SIZE,
                rate_limiter=lib.rate_limiters.MinSize(1),
            )
            for index in range(tables)
        ]
    )
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


def work(library: str) -> None:
    """One of the client processes."""
    lib = importlib.import_module(library)
    print("imported", flush=True)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        turns = (_samples if job.work == "sample" else _inserts)(lib, job)
        turns()  # a warm-up
        for _ in range(TABLE_SIZE // _ROWS if job.work == "fill" else 0):
            turns()
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.monotonic()
        count, elapsed = 0, 0.0
        while elapsed < job.seconds:
            count += turns()
            elapsed = time.monotonic() - begin
            if job.pace and count / job.pace > elapsed:
                time.sleep(count / job.pace - elapsed)
        print(count, flush=True)
        del turns


def _inserts(lib: ModuleType, job: Job) -> Callable[[], int]:
    """Each turn every writer inserts some items; `job.batch` of them may be in flight."""
    rows = np.random.default_rng(os.getpid()).normal(size=(_ROWS, job.elements)).astype(np.float32)
    clients = [lib.Client(f"localhost:{job.port}") for _ in range(job.clients)]
    # Ours would put many steps into a chunk; dm-reverb's only as many as it keeps alive.
    options = {"chunk_length": 1} if lib.__name__ == "reverie" else {}
    writers = [client.trajectory_writer(num_keep_alive_refs=1, **options) for client in clients]
    tables = [str(index) for index in range(job.tables)]

    def turns() -> int:
        for writer in writers:
            for index, row in enumerate(rows):
                writer.append([row])
                table = tables[index % len(tables)]
                writer.create_item(table, 1.0, [writer.history[0][-1:]])
            writer.flush(block_until_num_items=job.batch)
        return len(writers) * len(rows)

    return turns


def _samples(lib: ModuleType, job: Job) -> Callable[[], int]:
    """Each turn every client draws a batch."""
    clients = [lib.Client(f"localhost:{job.port}") for _ in range(job.clients)]
    if lib.__name__ == "reverb":
        # The object that its Sampler and datasets read from, without Python's cost per item.
        samplers = [client._client.NewSampler("0", 1 << 40, job.batch) for client in clients]

        def turns_of_theirs() -> int:
            for sampler in samplers:
                for _ in range(job.batch):
                    sampler.GetNextTrajectory()
            return len(samplers) * job.batch

        return turns_of_theirs
    batches: dict[int, Any] = {0: clients[0].sample_batch("0", job.batch)}

    def turns() -> int:
        for client in clients:
            batches[0] = client.sample_batch("0", job.batch, out=batches[0])
        return len(clients) * job.batch

    return turns


def _start(python: str, *arguments: object) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [python, __file__, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root / "python")},
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}; run it by hand to see")
    return line.strip()


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server:
    """A server process."""

    def __init__(self, python: str, library: str, tables: int = TABLES_MAX) -> None:
        self._process = _start(python, "server", library, tables)
        self.port = int(_line(self._process))

    def close(self) -> None:
        """Stops the server."""
        _end(self._process)


class ClientProcesses:
    """Processes with clients of one library, for several measurements."""

    def __init__(self, python: str, library: str) -> None:
        self._processes = [_start(python, "client", library) for _ in range(PROCESSES_MAX)]
        for process in self._processes:
            assert _line(process) == "imported"

    def items_s(
        self,
        work: str,
        server: Server,
        elements: int,
        clients: int,
        *,
        tables: int = 1,
        seconds: float = 1.0,
        pace: float | None = None,
    ) -> float:
        """Items per second of all clients together; ``pace`` limits their rate."""
        used = self._processes[: min(clients, len(self._processes))]
        for index, process in enumerate(used):
            share = clients // len(used) + (index < clients % len(used))
            held = pace * share / clients if pace else None
            job = Job(work, server.port, elements, share, tables, seconds, held)
            _tell(process, json.dumps(dataclasses.asdict(job)))
        for process in used:
            assert _line(process) == "ready"
        begin = time.monotonic()
        for process in used:
            _tell(process, "")
        total = sum(int(_line(process)) for process in used)
        return total / (time.monotonic() - begin)

    def fill(self, server: Server, elements: int) -> None:
        """Fills the first table with items of this size only."""
        self.items_s("fill", server, elements, 1, seconds=0)

    def close(self) -> None:
        """Ends the processes."""
        for process in self._processes:
            _end(process)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        work(sys.argv[2])
