"""Writes the kept checkpoint of this format version, and the fuzz corpus of checkpoint files.

    python tests/data/make_checkpoint.py [--corpus]

``tests/data/checkpoint/`` then holds a checkpoint, and ``expected.json`` in it what the store that
wrote it held and drew afterwards; every later version must open it (``checkpoint_kept_test.py``).
So run this once per format version, and commit what it writes. ``tests/fuzz/corpus/checkpoint/``
and ``journal/`` get the files of small stores, in the form that ``tests/fuzz/checkpoint_fuzz.cc``
and ``journal_fuzz.cc`` read; with ``--corpus`` only these are written.
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
    """Tables with every kind of selector and limiter, a signature, an extension, and bounds."""
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
    """Inserts items over neighbouring steps that share chunks."""
    with client.trajectory_writer(4) as writer:
        for i in range(begin, end):
            writer.append({"x": np.float32(i), "who": f"step {i}", "image": np.full(400, i, "u1")})
            for name in names:
                columns = ("x", "who") if name == "ratio" else ("x", "who", "image")
                trajectory = {c: writer.history[c][-1:] for c in columns}
                writer.create_item(name, 1.0 + i % 5, trajectory)
        writer.flush()


def about(store: reverie.Store) -> dict[str, Any]:
    """What each table holds and draws next, as JSON values."""
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
    """Makes the store evict, sample, update and delete."""
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
    """A checkpoint in the form that the fuzz target reads, without checksums."""
    (chunks,) = folder.glob("chunks-*")
    told = b"\3"
    for code, payload in sections(folder / "tables"):
        told += struct.pack("<II", code, len(payload)) + payload
    return told + struct.pack("<II", 0, 0) + chunks.read_bytes()[16:]


def make_corpus(root: Path) -> None:
    """One input for each kind of table, with a few items; and one checkpoint's unchanged files."""
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
    """The journal records of each kind of table, and one unchanged file."""
    corpus = CORPUS / "journal"  # make_journal.py writes here too
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
    """Writes everything, or only the corpus."""
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
