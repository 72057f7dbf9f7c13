"""Stores with more steps than memory: everything is there, and memory stays bounded."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie.errors import InvalidArgumentError

MEMORY = 16 << 20
FLOATS = 10_000  # 40 kB
ITEMS = 4_000  # 160 MB, ten times the memory
# For items, the batch and the interpreter; a sanitizer keeps 256 MiB of freed memory.
SLACK = (320 if "ASAN_OPTIONS" in os.environ else 64) << 20


def resident_bytes():
    """The memory of this process, as the kernel counts it, including swapped pages."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        fields = (line.split() for line in file)
        return sum(int(words[1]) << 10 for words in fields if words[0] in {"Rss:", "Swap:"})


def table(name, sampler, max_size=10 * ITEMS, **options):
    return reverie.Table(
        name,
        sampler,
        options.pop("remover", None) or reverie.selectors.Fifo(),
        max_size,
        reverie.rate_limiters.MinSize(1),
        signature={"x": reverie.TensorSpec((None, FLOATS), np.float32)},
        **options,
    )


def fill(client, names, begin, end):
    with client.trajectory_writer(1, codec="raw") as writer:
        for i in range(begin, end):
            writer.append({"x": np.full(FLOATS, i, np.float32)})
            for name in names:
                writer.create_item(name, 1.0 + i % 7, {"x": writer.history["x"][-1:]})


def check(client, name, size=64):
    """Draws a batch; returns the numbers of its items, and checks that each is complete."""
    data = client.sample_batch(name, size).data["x"].reshape(size, FLOATS)
    assert (data == data[:, :1]).all()
    return data[:, 0].astype(int).tolist()


@pytest.fixture
def disk(tmp_path):
    """A folder on a disk, since the folder of temporary files may be in memory."""
    try:
        reverie.Store(
            [table("t", reverie.selectors.Fifo())], memory_bytes=MEMORY, spill_folder=tmp_path
        ).close()
    except InvalidArgumentError as error:
        pytest.skip(str(error))
    return tmp_path


SELECTORS = {
    "uniform": lambda: reverie.selectors.Uniform(seed=1),
    "prioritized": lambda: reverie.selectors.Prioritized(0.7, seed=2),
    "fifo": reverie.selectors.Fifo,
    "lifo": reverie.selectors.Lifo,
    "max_heap": reverie.selectors.MaxHeap,
    "min_heap": reverie.selectors.MinHeap,
}


@pytest.mark.parametrize("door", ["embedded", "served"])
def test_a_table_ten_times_its_memory_works_with_every_selector(disk, door):
    tables = [table(name, make()) for name, make in SELECTORS.items()]
    options = {"memory_bytes": MEMORY, "spill_folder": disk}
    with (
        reverie.Server(tables, **options)
        if door == "served"
        else reverie.Store(tables, **options) as store
    ):
        client = reverie.Client(store.address) if door == "served" else store.client()
        before = resident_bytes()
        # A client keeps what it sends to several tables in memory for a while.
        count = ITEMS // len(SELECTORS) if door == "served" else ITEMS
        for names in [[name] for name in SELECTORS] if door == "served" else [SELECTORS]:
            fill(client, names, 0, count)
        grown = resident_bytes() - before
        assert grown < MEMORY + SLACK, f"{grown >> 20} MiB after the inserts"
        drawn = {name: [i for _ in range(6) for i in check(client, name)] for name in SELECTORS}
        assert len(set(drawn["uniform"])) > 150
        assert set(drawn["uniform"]) <= set(range(count))
        assert set(drawn["fifo"]) == {0}
        assert set(drawn["lifo"]) == {count - 1}
        assert {i % 7 for i in drawn["max_heap"]} == {6}
        assert {i % 7 for i in drawn["min_heap"]} == {0}
        grown = resident_bytes() - before
        assert grown < MEMORY + SLACK, f"{grown >> 20} MiB after the samples"
        assert list(disk.iterdir()) == []


@pytest.mark.parametrize("door", ["embedded", "served"])
def test_a_batch_larger_than_the_memory_is_sampled_within_the_bound(disk, door):
    options = {"memory_bytes": MEMORY, "spill_folder": disk}
    size = 1_000  # 40 MB, more than twice the memory
    tables = [table("t", reverie.selectors.Uniform(seed=1))]
    with (
        reverie.Server(tables, **options)
        if door == "served"
        else reverie.Store(tables, **options) as store
    ):
        client = reverie.Client(store.address) if door == "served" else store.client()
        fill(client, ["t"], 0, 2 * size)
        before = resident_bytes()
        for _ in range(3):
            drawn = check(client, "t", size)
            assert len(set(drawn)) > size // 2
            assert set(drawn) <= set(range(2 * size))
        # The batch and, with a server, its message are not in the store's memory.
        grown = resident_bytes() - before
        assert grown < 3 * 4 * FLOATS * size + SLACK, f"{grown >> 20} MiB"


def bounded(name, memory_bytes, **options):
    return table(name, reverie.selectors.Uniform(seed=5), memory_bytes=memory_bytes, **options)


@pytest.mark.parametrize("door", ["embedded", "served"])
def test_a_tables_own_bound_holds_beside_an_unbounded_table(disk, door):
    tables = [bounded("large", MEMORY), table("free", reverie.selectors.Uniform(seed=6))]
    options = {"spill_folder": disk}
    with (
        reverie.Server(tables, **options)
        if door == "served"
        else reverie.Store(tables, **options) as store
    ):
        client = reverie.Client(store.address) if door == "served" else store.client()
        before = resident_bytes()
        fill(client, ["large"], 0, ITEMS)
        grown = resident_bytes() - before
        assert grown < MEMORY + SLACK, f"{grown >> 20} MiB after the inserts"
        count = 3_000  # 120 MB, all of which stay
        fill(client, ["free"], 0, count)
        grown = resident_bytes() - before
        assert grown > count * 4 * FLOATS * 0.9, f"{grown >> 20} MiB with the other table"
        assert grown < count * 4 * FLOATS + MEMORY + SLACK, f"{grown >> 20} MiB with the other"
        for name, size in (("large", ITEMS), ("free", count)):
            drawn = {i for _ in range(10) for i in check(client, name)}
            assert len(drawn) > 400
            assert drawn <= set(range(size))
        grown = resident_bytes() - before
        assert grown < count * 4 * FLOATS + MEMORY + SLACK, f"{grown >> 20} MiB after the samples"


def test_steps_shared_with_an_unbounded_table_stay_in_memory_until_removed(disk):
    tables = [bounded("large", MEMORY), table("free", reverie.selectors.Fifo())]
    with reverie.Store(tables, spill_folder=disk) as store:
        client = store.client()
        before = resident_bytes()
        count = 3_000  # 120 MB
        fill(client, ["large", "free"], 0, count)
        grown = resident_bytes() - before
        assert grown > count * 4 * FLOATS * 0.9, f"{grown >> 20} MiB of both tables"
        client.reset("free")
        fill(client, ["large"], count, count + 1)
        grown = resident_bytes() - before
        assert grown < MEMORY + SLACK, f"{grown >> 20} MiB of the bounded table"
        assert len({i for _ in range(10) for i in check(client, "large")}) > 400


def test_a_tables_own_bound_holds_with_compression_checkpoint_and_journal(disk):
    def opened():
        return reverie.Store(
            [bounded("large", MEMORY)],
            spill_folder=disk,
            codec="lz4",
            checkpointer=reverie.checkpointers.DefaultCheckpointer(disk / "kept"),
            durability="interval",
        )

    rng = np.random.default_rng(3)
    rows = rng.integers(0, 60, (1_500, FLOATS)).astype(np.float32)  # compressible to half the size
    with opened() as store:
        before = resident_bytes()
        with store.client().trajectory_writer(1) as writer:
            for i, row in enumerate(rows):
                writer.append({"x": row})
                writer.create_item("large", 1.0, {"x": writer.history["x"][-1:]})
                if i == 1_200:
                    writer.flush()
                    store.checkpoint()
        # The journal keeps the chunks of its last file in memory.
        assert resident_bytes() - before < MEMORY + SLACK + (64 << 20)
    before = resident_bytes()
    with opened() as store:
        assert store["large"].info.current_size == len(rows)
        assert resident_bytes() - before < MEMORY + SLACK + (64 << 20)
        known = {row.tobytes() for row in rows}
        data = store.client().sample_batch("large", 200).data["x"].reshape(200, FLOATS)
        assert all(row.tobytes() in known for row in data)


def spilled_bytes(folder):
    """The size on disk of this process's unlinked files in a folder."""
    taken = 0
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            path = os.readlink(fd)
            if path.startswith(f"{folder}/") and path.endswith(" (deleted)"):
                taken += fd.stat().st_blocks * 512
    return taken


def test_removed_items_free_their_space_on_disk(disk):
    with reverie.Store(
        [table("t", reverie.selectors.Uniform(seed=1), max_size=1_000)],
        memory_bytes=MEMORY,
        spill_folder=disk,
    ) as store:
        fill(store.client(), ["t"], 0, 4_000)  # 160 MB, of which 40 MB stay
        assert set(check(store.client(), "t")) <= set(range(3_000, 4_000))
        assert 40_000_000 <= spilled_bytes(disk) < 80_000_000


def test_checkpoint_and_journal_contain_spilled_steps(disk):
    def opened():
        return reverie.Store(
            [table("t", reverie.selectors.Uniform(seed=1))],
            memory_bytes=MEMORY,
            spill_folder=disk,
            checkpointer=reverie.checkpointers.DefaultCheckpointer(disk / "kept"),
            durability="interval",
        )

    count = 1_500
    with opened() as store:
        fill(store.client(), ["t"], 0, count)
        store.checkpoint()
        fill(store.client(), ["t"], count, count + 200)
    before = resident_bytes()
    with opened() as store:
        client = store.client()
        assert store["t"].info.current_size == count + 200
        drawn = {i for _ in range(20) for i in check(client, "t")}
        assert len(drawn) > 500
        assert any(i >= count for i in drawn)
        # The journal keeps the chunks of its last file in memory.
        assert resident_bytes() - before < MEMORY + SLACK + (64 << 20)


def test_a_killed_process_leaves_no_file(disk):
    code = """
        import os, signal, sys
        import numpy as np
        import reverie

        table = reverie.Table.queue("q", 1000)
        store = reverie.Store([table], memory_bytes=16 << 20, spill_folder=sys.argv[1])
        for i in range(800):
            store.client().insert({"x": np.full(10_000, i, np.float32)}, {"q": 1.0})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), disk],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list(disk.iterdir()) == []


def test_a_forked_child_does_not_affect_the_parents_steps(disk):
    with reverie.Store(
        [reverie.Table.queue("q", 1_000)], memory_bytes=MEMORY, spill_folder=disk
    ) as store:
        client = store.client()
        for i in range(600):
            client.insert({"x": np.full(FLOATS, i, np.float32)}, {"q": 1.0})
        child = os.fork()
        if child == 0:
            try:
                del client
                store.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        data = store.client().sample_batch("q", 600).data["x"].reshape(600, FLOATS)
        assert (data == np.arange(600)[:, None]).all()


def test_invalid_memory_bounds_and_folders_are_refused(tmp_path):
    tables = [table("t", reverie.selectors.Fifo())]
    with pytest.raises(InvalidArgumentError, match="memory_bytes is 1000; it must be an integer"):
        reverie.Store(tables, memory_bytes=1000)
    with pytest.raises(InvalidArgumentError, match="spill_folder is given without memory_bytes"):
        reverie.Store(tables, spill_folder=tmp_path)
    with pytest.raises(InvalidArgumentError, match="memory_bytes of table 'b' is 1000; it must be"):
        bounded("b", 1000)
    with pytest.raises(InvalidArgumentError, match="of table 'b' is 33554432, more than the 16777"):
        reverie.Store([bounded("b", 2 * MEMORY)], memory_bytes=MEMORY, spill_folder=".")
    copy = bounded("b", 2 * MEMORY).replace(max_size=7)
    assert "memory_bytes=33554432" in repr(copy)
    with pytest.raises(InvalidArgumentError, match="give an existing folder"):
        reverie.Store(tables, memory_bytes=MEMORY, spill_folder=tmp_path / "none")


LIMITED_FILES = """
import resource, sys
import numpy as np
import reverie

resource.setrlimit(resource.RLIMIT_FSIZE, (24 << 20, 24 << 20))
fifo = reverie.selectors.Fifo()
table = reverie.Table("t", fifo, fifo, 1000, reverie.rate_limiters.MinSize(1))
with reverie.Store([table], memory_bytes=16 << 20, spill_folder=sys.argv[1]) as store:
    client = store.client()
    rng = np.random.default_rng(1)
    try:
        for _ in range(400):
            client.insert(rng.integers(0, 256, 400_000, np.uint8), {"t": 1.0}, timeout_s=5)
    except reverie.errors.ResourceExhaustedError as error:
        assert "File too large" in str(error), error
        sys.exit(7)
"""


def test_a_limit_of_file_sizes_is_a_lack_of_space(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED_FILES, tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 7, done.stderr
