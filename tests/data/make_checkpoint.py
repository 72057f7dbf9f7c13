"""Writes a checkpoint of this format version, to be kept, and the fuzz corpus of its files.

    python tests/data/make_checkpoint.py [--corpus]

``tests/data/checkpoint/`` then holds a checkpoint, and in ``expected.json`` what the store that
wrote it was and drew afterwards; every later version must open it (``checkpoint_kept_test.py``).
So this is run once for a format version, and what it writes is committed.
``tests/fuzz/corpus/checkpoint/`` and ``journal/`` get those of small stores, in the form that
``tests/fuzz/checkpoint_fuzz.cc`` and ``journal_fuzz.cc`` take; with ``--corpus`` they alone.
"""

import json
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import reverie
from reverie import extensions, rate_limiters, selectors

HERE = Path(__file__).resolve().parent
KEPT = HERE / "checkpoint"
CORPUS = HERE.parent / "fuzz" / "corpus"
DRAWS = 25
NAMES = ("uniform", "prioritized", "ratio", "heap", "queue")


def tables(max_size: int = 12) -> list[reverie.Table]:
    """One of each: selectors, limiters, a signature, an extension, bounds."""
    signature = {"x": reverie.TensorSpec((1,), np.float32), "who": reverie.TensorSpec((1,), str)}
    anyhow = rate_limiters.MinSize(1)
    return [
        reverie.Table("uniform", selectors.Uniform(seed=1), selectors.Fifo(), max_size, anyhow),
        reverie.Table(
            "prioritized",
            selectors.Prioritized(0.7, seed=2),
            selectors.MinHeap(),
            max_size,
            anyhow,
            extensions=[extensions.Statistics()],
        ),
        reverie.Table(
            "ratio",
            selectors.Lifo(),
            selectors.Uniform(seed=3),
            max_size,
            rate_limiters.SampleToInsertRatio(4.0, 2, 1000.0),
            max_times_sampled=40,
            signature=signature,
        ),
        reverie.Table(
            "heap", selectors.MaxHeap(), selectors.Lifo(), max_size, anyhow, max_bytes=100_000
        ),
        reverie.Table.queue("queue", 60),
    ]


def fill(client: reverie.Client, names: Iterable[str], begin: int, end: int) -> None:
    """Items over neighbouring steps that share chunks; three steps in four are in the last one."""
    with client.trajectory_writer(4) as writer:
        for i in range(begin, end):
            writer.append({"x": np.float32(i), "who": f"step {i}", "image": np.full(400, i, "u1")})
            for name in names:
                columns = ("x", "who") if name == "ratio" else ("x", "who", "image")
                trajectory = {c: writer.history[c][-1:] for c in columns}
                writer.create_item(name, 1.0 + i % 5, trajectory)
        writer.flush()


def about(store: reverie.Store) -> dict[str, Any]:
    """What the tables are and draw next, as JSON knows it."""
    found = {}
    for name in NAMES:
        info = store[name].info
        batch = store.client().sample_batch(name, DRAWS)
        found[name] = {
            "size": info.current_size,
            "inserts": info.rate_limiter_info.insert_stats.completed,
            "samples": info.rate_limiter_info.sample_stats.completed,
            "deletes": info.rate_limiter_info.deletes,
            "keys": [str(key) for key in batch.keys.tolist()],
            "x": np.ravel(batch.data["x"]).tolist(),
            "who": np.ravel(batch.data["who"]).tolist(),
            "priorities": batch.priorities.tolist(),
            "times_sampled": batch.times_sampled.tolist(),
        }
    return found


def use(store: reverie.Store) -> None:
    """A history: evictions, samples, updates, deletions."""
    client = store.client()
    fill(client, NAMES, 0, 30)
    for name in NAMES:
        batch = client.sample_batch(name, 7)
        keys = np.unique(batch.keys)
        client.mutate_priorities(name, {int(key): 2.5 for key in keys[:3]}, [int(keys[-1])])
    fill(client, NAMES, 30, 34)


def sections(path: Path) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each section of a file."""
    data = path.read_bytes()
    at = 16
    while at < len(data):
        code, _, size = struct.unpack_from("<IIQ", data, at)
        yield code, data[at + 16 : at + 16 + size]
        at += 16 + size


def mended(folder: Path) -> bytes:
    """A checkpoint as the fuzz target takes it: without checksums."""
    (chunks,) = folder.glob("chunks-*")
    told = b"\3"
    for code, payload in sections(folder / "tables"):
        told += struct.pack("<II", code, len(payload)) + payload
    return told + struct.pack("<II", 0, 0) + chunks.read_bytes()[16:]


def make_corpus(root: Path) -> None:
    """Each kind of table by itself, with a few items; and one checkpoint's files as they lie."""
    corpus = CORPUS / "checkpoint"
    shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir(parents=True)
    for table in tables(max_size=3):
        checkpointer = reverie.checkpointers.DefaultCheckpointer(root / table.name)
        with reverie.Store([table], checkpointer=checkpointer) as store:
            fill(store.client(), [table.name], 0, 5)
            store.client().sample_batch(table.name, 2)
            folder = Path(store.checkpoint(b"payload"))
        (corpus / table.name).write_bytes(mended(folder))
    for way, name in enumerate(("manifest", "tables", "chunks-0000000001")):
        data = (root / "uniform" / "checkpoint-0000000001" / name).read_bytes()
        (corpus / f"file_{name.partition('-')[0]}").write_bytes(bytes([way]) + data)


def make_journal_corpus(root: Path) -> None:
    """The records of journals of each kind of table, and one file as it lies."""
    corpus = CORPUS / "journal"  # where make_journal.py puts some, too
    corpus.mkdir(parents=True, exist_ok=True)
    for table in tables(max_size=3):
        folder = root / f"journal_{table.name}"
        checkpointer = reverie.checkpointers.DefaultCheckpointer(folder)
        with reverie.Store([table], checkpointer=checkpointer, durability="interval") as store:
            client = store.client()
            fill(client, [table.name], 0, 5)
            batch = client.sample_batch(table.name, 2)
            keys = [int(key) for key in np.unique(batch.keys)]
            client.mutate_priorities(table.name, {keys[-1]: 2.5})
            fill(client, [table.name], 5, 7)
            client.mutate_priorities(table.name, {}, keys[:1])
            client.reset(table.name)
            fill(client, [table.name], 7, 9)
        data = (folder / "journal-0000000001").read_bytes()
        at, records = 16, b""
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at + 24)
            records += data[at + 32 : at + 32 + size]
            at += 32 + size
        (corpus / table.name).write_bytes(b"\1" + records)
        if table.name == "uniform":
            (corpus / "file").write_bytes(b"\0" + data)


def main() -> None:
    """Writes all of it, or the corpus alone."""
    if "--corpus" in sys.argv:
        with tempfile.TemporaryDirectory() as scratch:
            make_corpus(Path(scratch))
            make_journal_corpus(Path(scratch))
        return
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        checkpointer = reverie.checkpointers.DefaultCheckpointer(root / "kept")
        with reverie.Store(tables(), checkpointer=checkpointer) as store:
            use(store)
            folder = Path(store.checkpoint(b"kept"))
            expected = about(store)
        shutil.rmtree(KEPT, ignore_errors=True)
        shutil.copytree(folder, KEPT / folder.name)
        (KEPT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        make_corpus(root)
        make_journal_corpus(root)


if __name__ == "__main__":
    main()
