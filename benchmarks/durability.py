"""Checkpoints and the journal, compared with what the disk does with the same bytes.

    PYTHONPATH=python .venv/bin/python benchmarks/durability.py [FOLDER [ITEMS [SECONDS]]]

FOLDER is on the disk to measure (default: a new folder among the temporary files, which may be a
tmpfs). ITEMS of 40 kB are checkpointed (default 5000: 200 MB; 25000 is 1 GB), and forty
times as many of 400 B (25000: a million). ``table_bench --benchmark_filter=LongestHold`` measures
the longest hold of a table's lock meanwhile, with ten million items.

Each figure is printed with its bound in the same folder: for a checkpoint, a file of as many bytes,
written by the megabyte and synced; for ``sync``, one append of as many bytes and an fdatasync.
If RocksDB's ``db_bench`` is installed (Debian's rocksdb-tools), its rates are printed with those of
eight writers: records of 400 B with its log, synced in batches of 200 or not at all.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import reverie

LARGE, SMALL = 10_000, 100  # float32 elements of an item
IN_FLIGHT = 200
MEGABYTE = 1 << 20


def table(max_size: int) -> reverie.Table:
    """A table with uniform sampling and FIFO removal."""
    return reverie.Table(
        "t",
        sampler=reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


def store(folder: Path, max_size: int, durability: str = "none") -> reverie.Store:
    """A store of one table that is saved in ``folder``."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(folder)
    return reverie.Store([table(max_size)], checkpointer=checkpointer, durability=durability)


def raw_write_s(path: Path, size: int) -> float:
    """Seconds to write and sync ``size`` incompressible bytes."""
    block = np.random.default_rng(1).bytes(MEGABYTE)
    begin = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // MEGABYTE):
            file.write(block)
        os.fsync(file.fileno())
    taken = time.perf_counter() - begin
    path.unlink()
    return taken


def percentiles(seconds: list[float]) -> str:
    """Percentiles in milliseconds."""
    ordered = sorted(seconds)
    parts = [
        f"{name} {1e3 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]:.2f}"
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0))
    ]
    return " ".join(parts) + f" ms of {len(ordered)}"


def fill(client: reverie.Client, count: int, floats: int, first: int = 0) -> None:
    """Inserts ``count`` items, each with its own rows."""
    rng = np.random.default_rng(first + 1)
    with client.trajectory_writer(1) as writer:
        for _ in range(count):
            writer.append({"x": rng.random(floats, np.float32)})
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})


def pauses(
    client: reverie.Client, is_over: threading.Event, found: list[float], floats: int
) -> None:
    """Seconds of consecutive single inserts, with pauses like a learner's in between."""
    step = {"x": np.zeros(floats, np.float32)}
    while not is_over.is_set():
        begin = time.perf_counter()
        client.insert(step, {"t": 1.0})
        found.append(time.perf_counter() - begin)
        is_over.wait(0.0005)


def watched(client: reverie.Client, work, floats: int) -> tuple[float, list[float]]:  # noqa: ANN001
    """The seconds that ``work()`` took, and those of inserts during it."""
    found: list[float] = []
    is_over = threading.Event()
    thread = threading.Thread(target=pauses, args=(client, is_over, found, floats))
    thread.start()
    begin = time.perf_counter()
    work()
    taken = time.perf_counter() - begin
    is_over.set()
    thread.join()
    return taken, found


def resident_bytes() -> int:
    """The anonymous memory of this process, without mapped files."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)[1])


def most_resident(work) -> int:  # noqa: ANN001
    """The most resident bytes while ``work()`` runs, polled every 5 ms."""
    found = [resident_bytes()]
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.005):
            found.append(resident_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    work()
    is_over.set()
    thread.join()
    return max(found)


def written_bytes(folder: Path, before: set[int]) -> int:
    """Bytes of the files in ``folder`` whose inode numbers are not in ``before``."""
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and path.stat().st_ino not in before
    )


def measure_checkpoint(root: Path, items: int, floats: int) -> None:
    """A checkpoint, loading it, and the next one; meanwhile inserts and the process's memory."""
    size = items * floats * 4
    folder = root / "checkpoint"
    with store(folder, 2 * items) as kept:
        client = kept.client()
        fill(client, items, floats)
        held = resident_bytes()
        _, quiet = watched(client, lambda: time.sleep(1.0), floats)
        raw = statistics.median(raw_write_s(root / "raw", size) for _ in range(3))
        found: dict[str, Any] = {}

        def first_one() -> None:
            found["waits"] = watched(client, kept.checkpoint, floats)

        most = most_resident(first_one)
        taken, busy = found["waits"]
        print(
            f"checkpoint of {items:,} x {4 * floats:,} B: {taken:.2f} s, "
            f"{size / taken / 1e6:.0f} MB/s"
        )
        print(f"  write and fsync of a file: {raw:.2f} s; {raw / taken:.0%} of its rate")
        print(f"  an insert meanwhile: {percentiles(busy)}; before: {percentiles(quiet)}")
        came = len(busy) * 4 * floats
        print(
            f"  resident: {held / 1e9:.3f} GB before, {most / 1e9:.3f} GB at most meanwhile, in "
            f"which {came / 1e9:.3f} GB came: {(most - came) / held:.2f} times"
        )
        first = written_bytes(folder, set())
        kept.checkpoint()  # saves what was inserted meanwhile, which is not part of the 1 %
        times, parts = [], []
        for again in range(3):
            files = {path.stat().st_ino for path in folder.rglob("*")}
            fill(client, items // 100, floats, first=1 + again)
            begin = time.perf_counter()
            kept.checkpoint()
            times.append(time.perf_counter() - begin)
            parts.append(written_bytes(folder, files) / first)
        taken_again = statistics.median(times)
        print(
            f"  the next, 1 % new: {taken_again:.2f} s, {taken_again / taken:.0%} of the first; "
            f"{statistics.median(parts):.1%} of its bytes (medians of {len(times)})"
        )
    begin = time.perf_counter()
    with store(folder, 2 * items):
        print(f"  its load, from the page cache: {time.perf_counter() - begin:.2f} s")
    shutil.rmtree(folder)


def measure_sync(root: Path) -> None:
    """One confirmed insert, and one append with its sync, by turns."""
    step = {"x": np.zeros(SMALL, np.float32)}
    with store(root / "one", 10_000, "sync") as kept:
        client = kept.client()
        ours, raw = [], []
        with (root / "log").open("wb", buffering=0) as file:
            for _ in range(200):
                begin = time.perf_counter()
                client.insert(step, {"t": 1.0})
                ours.append(time.perf_counter() - begin)
                begin = time.perf_counter()
                file.write(bytes(600))
                os.fdatasync(file.fileno())
                raw.append(time.perf_counter() - begin)
    ratio = statistics.median(ours) / statistics.median(raw)
    print(f"an insert of 400 B with sync: {percentiles(ours)}")
    print(f"  append and fdatasync: {percentiles(raw)}; the insert's p50 is {ratio:.2f} times it")


def rate_of(folder: Path, writers: int, floats: int, durability: str, seconds: float) -> float:
    """Items per second of ``writers`` threads, each with many items in flight."""
    row = np.random.default_rng(1).random(floats, np.float32)
    counts = [0] * writers
    begin = time.perf_counter()

    def write(index: int, client: reverie.Client) -> None:
        with client.trajectory_writer(1, max_in_flight_items=IN_FLIGHT) as writer:
            while time.perf_counter() - begin < seconds:
                for _ in range(20):
                    writer.append({"x": row})
                    writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
                counts[index] += 20
            writer.flush()

    with store(folder, 2_000, durability) as kept:
        threads = [
            threading.Thread(target=write, args=(index, kept.client())) for index in range(writers)
        ]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = time.perf_counter() - begin
    shutil.rmtree(folder)
    return sum(counts) / taken


def journal_bytes(root: Path, floats: int) -> float:
    """Bytes that an item takes in the journal."""
    count = 1_000
    with store(root / "bytes", count, "interval") as kept:
        fill(kept.client(), count, floats)
    size = sum(path.stat().st_size for path in (root / "bytes").glob("journal-*"))
    shutil.rmtree(root / "bytes")
    return size / count


def measure_rates(root: Path, seconds: float) -> None:
    """Items per second by durability, by turns, compared with the disk and RocksDB.

    What the journal writes per second is compared with the disk's rate for a file of 200 MB,
    written by the megabyte and synced, measured in the same turns.
    """
    size = 200 * MEGABYTE
    for writers in (1, 8):
        for name, floats in (("400 B", SMALL), ("40 kB", LARGE)):
            rates: dict[str, list[float]] = {name: [] for name in ("none", "interval", "sync")}
            disk = []
            for _ in range(3):
                disk.append(size / raw_write_s(root / "raw", size))
                for durability, found in rates.items():
                    found.append(rate_of(root / "rates", writers, floats, durability, seconds))
            none = statistics.median(rates["none"])
            shares = ", ".join(
                f"{durability} {statistics.median(found):,.0f} "
                f"({statistics.median(found) / none:.2f}; {min(found):,.0f} to {max(found):,.0f})"
                for durability, found in rates.items()
            )
            print(f"items/s of {name}, {writers} writer(s) in this process: {shares}")
            of_item, of_disk = journal_bytes(root, floats), statistics.median(disk)
            written = statistics.median(rates["interval"]) * of_item
            print(
                f"  interval: {of_item:,.0f} bytes an item, {written / 1e6:,.0f} MB/s; the disk "
                f"{of_disk / 1e6:,.0f} MB/s ({min(disk) / 1e6:,.0f} to {max(disk) / 1e6:,.0f}): "
                f"{written / of_disk:.2f} of its rate"
            )


def measure_rocksdb(root: Path, seconds: float) -> None:
    """The same with RocksDB, if it is installed."""
    program = shutil.which("db_bench")
    if program is None:
        print("db_bench is not installed: no figures of RocksDB")
        return
    for name, count, options in (
        ("unsynced", 50_000 * seconds, ("--sync=0",)),
        ("synced, batches of 200", 10_000 * seconds, ("--sync=1", "--batch_size=200")),
    ):
        folder = root / "rocksdb"
        done = subprocess.run(
            [program, "--benchmarks=fillseq", f"--db={folder}", "--threads=8", "--value_size=400",
             "--key_size=16", "--compression_type=none", "--disable_wal=0", f"--num={round(count)}",
             *options],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found = re.search(r"fillseq\s*:.*?(\d+) ops/sec", done.stdout)
        told = f"{int(found[1]):,} records/s" if found else done.stderr.strip()[-200:]
        print(f"RocksDB, 400 B, 8 threads, {name}: {told}")
        shutil.rmtree(folder, ignore_errors=True)


def measure_restart(root: Path, items: int) -> None:
    """The time to start a store from a checkpoint and a journal."""
    folder = root / "restart"
    with store(folder, 2 * items, "interval") as kept:
        fill(kept.client(), items, SMALL)
        kept.checkpoint()
        fill(kept.client(), items // 2, SMALL, first=1)
    begin = time.perf_counter()
    with store(folder, 2 * items, "interval") as kept:
        kept.client().sample_batch("t", 1)
        taken = time.perf_counter() - begin
    print(
        f"restart to the first sample: {taken:.2f} s for {items:,} items of 400 B in a checkpoint "
        f"and {items // 2:,} in a journal"
    )
    shutil.rmtree(folder)


def main() -> None:
    """Measures everything."""
    given = sys.argv[1:]
    root = Path(tempfile.mkdtemp(prefix="reverie-durability-", dir=given[0] if given else None))
    items = int(given[1]) if len(given) > 1 else 5000
    seconds = float(given[2]) if len(given) > 2 else 2.0
    try:
        measure_checkpoint(root, items, LARGE)
        measure_checkpoint(root, 40 * items, SMALL)
        measure_sync(root)
        measure_rates(root, seconds)
        measure_rocksdb(root, seconds)
        measure_restart(root, 20 * items)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
