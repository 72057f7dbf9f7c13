"""Writes the kept checkpoint and journal of this format version, with every kind of record.

    python tests/data/make_journal.py

``tests/data/journal/`` then holds the folder of a killed server, and ``expected.json`` in it what a
store holds that starts from the folder; every later version must restore the same
(``checkpoint_kept_test.py``). So run this once per format version, and commit what it writes. The
fuzz corpus of journals (``tests/fuzz/corpus/journal``) gets the records of both journal files.
"""

import contextlib
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

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent / "python"),
    str(HERE.parent / "attacks"),
    str(HERE.parent / "support"),
]

from attack_peer import Peer, block, grpc_message, item  # noqa: E402
from corrupt_items_test import rubbish_chunk  # noqa: E402
from make_checkpoint import CORPUS  # noqa: E402

KEPT = HERE / "journal"
QUEUE, UNIFORM = "queue", "uniform"
NAMES = (UNIFORM, "prioritized", "thrice", "heap", QUEUE)
RECORD_TYPES = {*range(1, 7), *range(16, 31)}


def tables() -> list[reverie.Table]:
    """One table of each kind."""
    any_size = reverie.rate_limiters.MinSize(1)
    signature = {"x": reverie.TensorSpec((None,), np.float32)}
    fifo, uniform = reverie.selectors.Fifo, reverie.selectors.Uniform

    def table(name: str, sampler: Any, remover: Any, **options: Any) -> reverie.Table:  # noqa: ANN401
        return reverie.Table(name, sampler, remover, 12, any_size, signature=signature, **options)

    return [
        table(UNIFORM, uniform(seed=1), fifo()),
        table("prioritized", reverie.selectors.Prioritized(0.7, seed=2), fifo()),
        table(
            "thrice",
            reverie.selectors.Lifo(),
            uniform(seed=3),
            max_times_sampled=3,
            undo_unsent=True,
        ),
        table("heap", reverie.selectors.MaxHeap(), fifo(), max_bytes=100_000),
        reverie.Table.queue(QUEUE, 60, signature=signature),
    ]


def fill(client: reverie.Client, names: Iterable[str], begin: int, end: int) -> None:
    """Inserts items of one row; neighbouring items share a chunk, which grows meanwhile."""
    with client.trajectory_writer(4) as writer:
        for i in range(begin, end):
            writer.append({"x": np.float32(i)})
            for name in names:
                writer.create_item(name, 1.0 + i % 5, {"x": writer.history["x"][-1:]})
            writer.flush()


def records(file: Path) -> Iterator[tuple[int, bytes]]:
    """Type and bytes of each record in a journal file."""
    data = file.read_bytes()
    at = 16
    while at < len(data):
        count, size = struct.unpack_from("<4xI16xQ", data, at)
        at += 32
        end = at + size
        for _ in range(count):
            (length,) = struct.unpack_from("<I", data, at + 1)
            yield data[at], data[at : at + 5 + length]
            at += 5 + length
        assert at == end


def about(store: reverie.Store) -> dict[str, Any]:
    """What each table holds, as JSON values."""
    found = {}
    for name in NAMES:
        info = store[name].info
        told: dict[str, Any] = {
            "size": info.current_size,
            "inserts": info.rate_limiter_info.insert_stats.completed,
            "deletes": info.rate_limiter_info.deletes,
        }
        if info.current_size:
            distinct = name != QUEUE
            batch = store.client().sample_batch(name, info.current_size, distinct=distinct)
            items = zip(np.ravel(batch.data["x"]).tolist(), batch.priorities.tolist(), strict=True)
            told["items"] = [list(item) for item in (items if name == QUEUE else sorted(items))]
        found[name] = told
    return found


def insert_rubbish(address: str, key: int) -> None:
    """Inserts an item that cannot be decoded, which our writers never send."""
    with Peer(address) as peer:
        chunk = block(1000, rubbish_chunk(key))
        message = chunk + block(2, item(key, key, UNIFORM, length=1))
        peer.send(peer.call("InsertStream", grpc_message(message)))
        peer.round_trip()


def use(server: reverie.Server, begin: int) -> None:
    """Makes every kind of change, from this process and over a socket."""
    inside, afar = server.client(), reverie.Client(server.address)
    fill(inside, NAMES, begin, begin + 4)
    fill(afar, NAMES, begin + 4, begin + 12)
    for name in NAMES:
        batch = inside.sample_batch(name, 3)
        keys = np.unique(batch.keys)
        if name != QUEUE:
            inside.mutate_priorities(name, {int(keys[0]): 2.5}, [int(keys[-1])])
    afar.sample_batch(QUEUE, 2)
    for client in (inside, afar):  # these draws fail and are undone
        with contextlib.suppress(reverie.errors.DeadlineExceededError):
            client.sample_batch("thrice", 100, timeout_s=0.1)
    insert_rubbish(server.address, 1000 + begin)
    while inside.server_info()[UNIFORM].corrupt_items == 0:
        afar.sample_batch(UNIFORM, 20)


def copy_of_killed(root: Path, to: Path) -> Path:
    """A copy of the folder as it would be if the server were killed now."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(root, to, ignore=shutil.ignore_patterns("*.lock")))


def store(root: Path) -> reverie.Store:
    """A store that starts from a folder and journals to it."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(root)
    return reverie.Store(tables(), checkpointer=checkpointer, durability="sync")


def main() -> None:
    """Writes the journal and the corpus."""
    with tempfile.TemporaryDirectory() as scratch:
        root, first = Path(scratch) / "root", Path(scratch) / "first"
        checkpointer = reverie.checkpointers.DefaultCheckpointer(root)
        with reverie.Server(tables(), checkpointer=checkpointer, durability="sync") as server:
            use(server, 0)
            client = reverie.Client(server.address)
            server.client().reset("heap")
            fill(server.client(), ["heap"], 90, 93)
            # Samples are in transit while the checkpoint is written, and when the server is killed.
            with client.dataset(QUEUE, 1, timeout_s=30) as batches:
                next(batches)
                shutil.copy(root / "journal-0000000001", first)
                server.checkpoint(b"kept")
                next(batches)
                use(server, 100)
                killed = copy_of_killed(root, Path(scratch) / "killed")
            server.stop()
        with store(killed) as again:  # undoes these draws, and counts as killed too
            fill(again.client(), NAMES, 200, 203)
            copy_of_killed(killed, KEPT)
        files = [first, *sorted(killed.glob("journal-*"))]
        types = {code for file in files for code, _ in records(file)}
        assert types == RECORD_TYPES, f"no record of type {RECORD_TYPES - types}"
        with store(copy_of_killed(KEPT, Path(scratch) / "copy")) as last:
            expected = about(last)
        (KEPT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        for file in files:
            name = f"server_{file.name.rpartition('-')[2].lstrip('0')}"
            (CORPUS / "journal" / name).write_bytes(
                b"\1" + b"".join(record for _, record in records(file))
            )


if __name__ == "__main__":
    main()
