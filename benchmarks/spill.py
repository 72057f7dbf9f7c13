"""Tables larger than memory: batches from the disk, compared with the disk itself.

    PYTHONPATH=python .venv/bin/python benchmarks/spill.py [FOLDER [MEGABYTES]]

FOLDER is on the disk to measure (default: a new folder in the current one). A table of items of
40 kB, ten times as large as its memory of MEGABYTES (default 100), is filled, and uniform batches
of 256 are drawn from it. They are compared with ``fio``'s random reads of 40 kB, 256 at a time,
without the page cache, if it is installed, and with the same table without a bound. By turns.

Then stacks of four frames of 84 x 84, which lz4 compresses about six times, in a table ten times as
large as its 16 MiB of memory: drawn uniformly (cold), and two percent of them drawn again and again
(warm), compared with the same table in memory.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import reverie

FLOATS, BATCH, BATCHES, ROUNDS = 10_000, 256, 20, 5


def table(max_size: int) -> reverie.Table:
    """A table with uniform sampling."""
    return reverie.Table(
        "t",
        sampler=reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


def fill(client: reverie.Client, count: int) -> float:
    """Inserts ``count`` items, each with its own rows; returns the seconds."""
    row = np.random.default_rng(1).random(FLOATS, np.float32)
    begin = time.perf_counter()
    with client.trajectory_writer(1, codec="raw") as writer:
        for i in range(count):
            row[0] = i
            writer.append({"x": row})
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
    return time.perf_counter() - begin


def batch_s(client: reverie.Client) -> float:
    """The seconds of a batch."""
    begin = time.perf_counter()
    for _ in range(BATCHES):
        client.sample_batch("t", BATCH)
    return (time.perf_counter() - begin) / BATCHES


def fio_s(folder: Path, size: int) -> float | None:
    """Seconds for as many random reads of 40 kB from the disk; None without fio."""
    if shutil.which("fio") is None:
        return None
    done = subprocess.run(
        ["fio", "--name=t", f"--directory={folder}", f"--size={size}", "--rw=randread",
         "--bs=40k", "--direct=1", "--ioengine=libaio", f"--iodepth={BATCH}", "--runtime=2",
         "--time_based", "--output-format=json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rate = json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]
    return BATCH * FLOATS * 4 / rate


class Frames:
    """Images of sprites that move over a background, without end."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._field = np.kron(
            rng.integers(0, 4, (7, 7), np.uint8) * 40, np.ones((12, 12), np.uint8)
        )
        self._sprites = rng.integers(60, 255, (10, 8, 8), np.uint8)
        self._at = rng.integers(0, 76, (10, 2))
        self._rng = rng

    def next(self) -> np.ndarray:
        """The next frame."""
        self._at = np.clip(self._at + self._rng.integers(-3, 4, self._at.shape), 0, 76)
        frame = self._field.copy()
        for sprite, (row, column) in zip(self._sprites, self._at, strict=True):
            frame[row : row + 8, column : column + 8] = sprite
        return frame


def fill_frames(client: reverie.Client, frames: Frames, memory: int, size: int | None) -> int:
    """Inserts stacks until the table holds ten times ``memory``, or ``size``; returns how many."""
    count = 0
    with client.trajectory_writer(4, chunk_length=40, codec="lz4") as writer:
        while True:
            writer.append({"frame": frames.next()})
            count += 1
            if count < 4:
                continue
            hot = 1.0 if count % 2000 < 40 else 0.0
            stack = {"frame": writer.history["frame"][-4:]}
            writer.create_item("all", 1.0, stack)
            writer.create_item("hot", hot, stack)
            if count == size:
                return count
            if size is None and count % 1000 == 0:
                used = client.server_info()["all"].size_bytes
                if used > 10 * memory:
                    return count


def measure_frames(root: Path) -> None:
    """Measures cold, warm, and in memory."""
    memory = 16 << 20

    def tables() -> list[reverie.Table]:
        made = table(1 << 30).replace("all", max_bytes=1 << 50)
        hot = reverie.selectors.Prioritized(1.0, seed=1)
        return [made, made.replace("hot", sampler=hot)]

    def batch_of(client: reverie.Client, name: str) -> float:
        begin = time.perf_counter()
        for _ in range(BATCHES):
            client.sample_batch(name, BATCH)
        return (time.perf_counter() - begin) / BATCHES

    with (
        reverie.Store(tables(), memory_bytes=memory, spill_folder=root) as spilled,
        reverie.Store(tables()) as kept,
    ):
        count = fill_frames(spilled.client(), Frames(1), memory, None)
        fill_frames(kept.client(), Frames(1), memory, count)
        size = kept["all"].info.size_bytes
        print(f"{count:,} frames, {count * 7056 / 1e6:,.0f} MB raw, {size / 1e6:,.0f} MB stored")
        for name in ("hot", "all"):
            batch_of(spilled.client(), name)
            turns = [(batch_of(spilled.client(), name), batch_of(kept.client(), name))
                     for _ in range(ROUNDS)]  # fmt: skip
            ours, in_memory = (statistics.median(found) for found in zip(*turns, strict=True))
            kind = "warm" if name == "hot" else "cold"
            print(
                f"256 stacks, {kind}: {1e3 * ours:.1f} ms, {ours / in_memory:.2f} times the "
                f"{1e3 * in_memory:.1f} ms from memory"
            )


def shown(name: str, seconds: list[float]) -> str:
    """A line with the median, the spread and the rate."""
    median = statistics.median(seconds)
    return (
        f"{name}: {1e3 * median:.1f} ms ({1e3 * min(seconds):.1f} to {1e3 * max(seconds):.1f}), "
        f"{BATCH * FLOATS * 4 / median / 1e6:,.0f} MB/s"
    )


def main() -> None:
    """Measures everything."""
    given = sys.argv[1:]
    memory = int(given[1] if len(given) > 1 else 100) << 20
    count = 10 * memory // (FLOATS * 4)
    root = Path(tempfile.mkdtemp(prefix="spill-", dir=given[0] if given else Path.cwd()))
    try:
        with (
            reverie.Store([table(count)], memory_bytes=memory, spill_folder=root) as spilled,
            reverie.Store([table(count)]) as kept,
        ):
            size = count * FLOATS * 4
            seconds = fill(spilled.client(), count)
            print(f"{count:,} inserts, {size / 1e6:,.0f} MB: {size / seconds / 1e6:,.0f} MB/s")
            seconds = fill(kept.client(), count)
            print(f"  the same in memory: {size / seconds / 1e6:,.0f} MB/s")
            found: dict[str, list[float]] = {"batch": [], "fio": [], "in memory": []}
            for _ in range(ROUNDS):
                found["batch"].append(batch_s(spilled.client()))
                found["in memory"].append(batch_s(kept.client()))
                disk = fio_s(root, size)
                if disk is not None:
                    found["fio"].append(disk)
            for name, each in found.items():
                if each:
                    print(shown(name, each))
            if found["fio"]:
                share = statistics.median(found["fio"]) / statistics.median(found["batch"])
                print(f"  a batch has {share:.0%} of fio's rate")
        measure_frames(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
