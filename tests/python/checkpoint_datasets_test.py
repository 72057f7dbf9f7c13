"""Datasets that draw ahead while a checkpoint is written: a resumed learner lacks no sample."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors


def tables():
    samplers = {
        "uniform": reverie.selectors.Uniform(seed=3),
        "prioritized": reverie.selectors.Prioritized(0.8, seed=3),
    }
    return [
        *(
            reverie.Table(
                name, sampler, reverie.selectors.Fifo(), 100, reverie.rate_limiters.MinSize(1)
            )
            for name, sampler in samplers.items()
        ),
        reverie.Table.queue("queue", 100),
    ]


def open_store(folder, **options):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(folder)
    return reverie.Store(tables(), checkpointer=checkpointer, **options)


def fill(client, count):
    for i in range(count):
        client.insert({"x": np.int64(i)}, {"uniform": 1.0, "prioritized": 1.0 + i % 5, "queue": 1})


def samples_of(client, table):
    return client.server_info()[table].rate_limiter_info.sample_stats.completed


def rows_of(batches, count):
    return [next(batches).data["x"].ravel().tolist() for _ in range(count)]


@pytest.mark.parametrize("table", ["uniform", "prioritized", "queue"])
@pytest.mark.parametrize("journal", [{}, {"durability": "interval"}])
def test_a_resumed_dataset_gives_what_the_other_one_gives(tmp_path, table, journal):
    with open_store(tmp_path, **journal) as store:
        client = store.client()
        fill(client, 60)
        with client.dataset(table, 4, prefetch=3) as batches:
            before = rows_of(batches, 2)
            eventually(lambda: samples_of(client, table) == 5 * 4)  # three batches wait
            store.checkpoint()
            expected = rows_of(batches, 6)
        if table == "queue":
            assert before + expected == [list(range(i, i + 4)) for i in range(0, 32, 4)]
    # The checkpoint alone: without what the journal has of the time since.
    for path in tmp_path.glob("journal*"):
        path.unlink()
    with (
        open_store(tmp_path) as store,
        store.client().dataset(table, 4, prefetch=3) as batches,
    ):
        assert rows_of(batches, 6) == expected


def _env():
    tests = Path(__file__).parent
    path = [*sys.path, str(tests), str(tests.parent / "support")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


_KILLED = """
import os, signal, sys, threading
import reverie
from checkpoint_datasets_test import fill, open_store, rows_of, samples_of
from eventually import eventually
store = open_store(sys.argv[1], durability="interval")
client = store.client()
fill(client, 60)
if sys.argv[2] == "ahead":
    batches = client.dataset("queue", 4, prefetch=3)
    print(rows_of(batches, 2), flush=True)
    drawn = 5 * 4
else:
    taken = [client.sample_batch("queue", 4) for _ in range(2)]
    print([batch.data["x"].ravel().tolist() for batch in taken], flush=True)
    threading.Thread(target=lambda: client.sample_batch("queue", 100), daemon=True).start()
    drawn = 60
eventually(lambda: samples_of(client, "queue") == drawn)
fill(client, 1)  # once it is confirmed, all before it is in the journal's file
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    # The batch that the user of a dataset works on when it is killed is drawn again too.
    ("what", "first"),
    [("ahead", 4), ("for a call that waits for more", 8)],
)
def test_what_a_killed_process_had_drawn_and_not_used_is_drawn_again(tmp_path, what, first):
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path), what],
        env=_env(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert killed.stdout.strip() == "[[0, 1, 2, 3], [4, 5, 6, 7]]", killed.stderr
    with (
        open_store(tmp_path, durability="interval") as store,
        store.client().dataset("queue", 4) as batches,
    ):
        assert store["queue"].info.current_size == 61 - first
        expected = [list(range(i, i + 4)) for i in range(first, 60, 4)]
        assert rows_of(batches, len(expected)) == expected


_UNTIL_KILLED = """
import os, sys, threading, time
import numpy as np
from checkpoint_datasets_test import open_store
store = open_store(sys.argv[1], durability="interval")
client = store.client()

def insert():
    i = int(sys.argv[2])
    while True:
        client.insert({"x": np.int64(i)}, {"queue": 1.0})
        os.write(1, f"inserted {i}\\n".encode())
        i += 1

def read():
    while True:
        with client.dataset("queue", 4, prefetch=3) as batches:
            for _, batch in zip(range(30), batches):
                rows = " ".join(map(str, batch.data["x"].ravel().tolist()))
                os.write(1, f"read {rows}\\n".encode())

for call in (insert, read):
    threading.Thread(target=call, daemon=True).start()
while True:
    store.checkpoint()
    time.sleep(0.02)
"""


def test_no_confirmed_item_of_a_queue_is_lost_to_the_reader_when_its_process_is_killed(
    tmp_path, pytestconfig
):
    inserted, read = set(), []
    for life in range(40 if pytestconfig.getoption("--full") else 4):
        killed = subprocess.Popen(
            [sys.executable, "-c", _UNTIL_KILLED, str(tmp_path), str(life * 10**6)],
            env=_env(),
            stdout=subprocess.PIPE,
            text=True,
        )
        lines = [killed.stdout.readline() for _ in range(1000 + 700 * (life % 3))]
        killed.kill()
        for line in [*lines, *killed.communicate()[0].splitlines()]:
            what, *rows = line.split()
            (inserted.update if what == "inserted" else read.extend)(map(int, rows))
    with open_store(tmp_path, durability="interval") as store:
        client = store.client()
        count = store["queue"].info.current_size
        left = [client.sample_batch("queue", 1).data["x"].item() for _ in range(count)]
    assert inserted - set(read) - set(left) == set(), f"of {len(inserted)}"


def test_what_a_waiting_call_had_drawn_is_there_after_the_store_was_closed(tmp_path):
    store = open_store(tmp_path, durability="interval")
    client = store.client()
    fill(client, 60)
    ended = []

    def wait():
        with pytest.raises(errors.CancelledError) as refused:
            client.sample_batch("queue", 100)
        ended.append(refused)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: samples_of(client, "queue") == 60)
    store.close()
    waiting.join(60)
    assert len(ended) == 1
    with open_store(tmp_path, durability="interval") as again:
        assert again["queue"].info.current_size == 60
        assert rows_of(again.client().dataset("queue", 60), 1) == [list(range(60))]


def test_a_dataset_that_waits_goes_on_after_a_checkpoint(tmp_path):
    with open_store(tmp_path) as store:
        client = store.client()
        taken = []
        with client.dataset("queue", 4, prefetch=2) as batches:
            fill(client, 3)  # which its next batch holds
            reader = threading.Thread(target=lambda: taken.extend(rows_of(batches, 2)))
            reader.start()
            eventually(lambda: samples_of(client, "queue") == 3)
            for _ in range(3):
                store.checkpoint()
            fill(client, 5)
            reader.join(60)
        assert taken == [[0, 1, 2, 0], [1, 2, 3, 4]]
    with open_store(tmp_path) as store:
        assert store["queue"].info.current_size == 3, "what the dataset had drawn is there"


def test_the_last_items_of_a_bounded_dataset_are_in_a_checkpoint_until_they_are_taken(tmp_path):
    with open_store(tmp_path) as store:
        client = store.client()
        fill(client, 8)
        dataset = reverie.TrajectoryDataset(
            client, "queue", {"x": np.int64}, {"x": (1,)}, 4,
            num_workers_per_iterator=2, max_samples=4,
        )  # fmt: skip
        with iter(dataset) as samples:
            taken = [int(next(samples).data["x"][0])]
            eventually(lambda: samples_of(client, "queue") == 4)
            store.checkpoint()
            taken += [int(sample.data["x"][0]) for sample in samples]
        assert sorted(taken) == [0, 1, 2, 3]
    with open_store(tmp_path) as store:
        # The first request's second item came with the one that is being read.
        assert store["queue"].info.current_size == 6


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_buffers_dataset_goes_on_after_a_save(tmp_path, prioritized):
    buffer = reverie.ReplayBuffer(100, prioritized=prioritized, seed=1)
    for i in range(60):
        buffer.add(np.float32(i), i % 2, 1.0, np.float32(i + 1), False)
    with buffer.dataset(4, prefetch=2) as batches:
        next(batches)
        buffer.save(tmp_path / "buffer")
        expected = [next(batches)["obs"].tolist() for _ in range(5)]
    loaded = reverie.ReplayBuffer.load(tmp_path / "buffer")
    with loaded.dataset(4, prefetch=2) as batches:
        assert [next(batches)["obs"].tolist() for _ in range(5)] == expected


def test_datasets_are_made_and_closed_while_checkpoints_are_written(tmp_path):
    """And nothing of the queue is lost or doubled."""
    with open_store(tmp_path) as store:
        client = store.client()
        fill(client, 96)
        stops = threading.Event()

        def write():
            while not stops.is_set():
                store.checkpoint()

        writer = threading.Thread(target=write)
        writer.start()
        rows = []
        try:
            while len(rows) < 96:
                with client.dataset("queue", 2, prefetch=2) as batches:
                    for taken in rows_of(batches, 4):
                        rows += taken
        finally:
            stops.set()
            writer.join(60)
        assert rows == list(range(96))
