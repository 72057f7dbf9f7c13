"""Samples that were drawn but not yet sent when their reader went away."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

import reverie
from eventually import eventually

ITEMS = 150
ROW_BYTES = 1 << 20

READER = """
import sys
import reverie
reverie.Client(sys.argv[1], protocol=sys.argv[2]).sample_batch("t", int(sys.argv[3]))
"""


@pytest.fixture(params=["grpc", "peer"])
def protocol(request):
    return request.param


def queue(undo=True):
    return reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        ITEMS,
        reverie.rate_limiters.MinSize(1),
        max_times_sampled=1,
        undo_unsent=undo,
    )


@contextlib.contextmanager
def left_by_a_reader(table, protocol, **options):
    """A server whose reader went away while it was reading all items."""
    with reverie.Server([table], **options) as server:
        row = np.zeros(ROW_BYTES, np.uint8)
        with server.client().trajectory_writer(1, chunk_length=1, codec="raw") as writer:
            for i in range(ITEMS):
                writer.append({"n": np.int64(i), "x": row})
                history = writer.history
                writer.create_item("t", 1.0, {name: history[name][-1:] for name in history})
        address = f"localhost:{server.port}"
        reader = subprocess.Popen([sys.executable, "-c", READER, address, protocol, str(ITEMS)])
        while server.figures["samples"] == 0:  # polls often, since the reader is quick
            assert reader.poll() is None
        reader.kill()
        reader.wait()
        eventually(lambda: server.figures["connections"] == 0)
        yield server


@pytest.mark.parametrize("undo", [False, True])
def test_unsent_samples_return_to_the_table_if_undo_unsent_is_set(protocol, undo):
    with left_by_a_reader(queue(undo), protocol) as server:
        client = server.client()
        figures = server.figures
        size = client.server_info()["t"].current_size
        unsent = figures["undone_samples"] if undo else figures["unsent_samples"]
        assert unsent > 0
        assert figures["unsent_samples" if undo else "undone_samples"] == 0
        assert figures["samples"] + size + figures["unsent_samples"] == ITEMS
        if size == 0:  # all items were drawn before the reader was killed
            return
        left = client.sample_batch("t", size)
        assert left.data["n"][:, 0].tolist() == list(range(ITEMS - size, ITEMS))  # in order
        undone = figures["undone_samples"]
        assert left.redelivered.tolist() == [i < undone for i in range(size)]


def test_redelivered_samples_are_marked_for_every_reader(protocol, tmp_path):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    with left_by_a_reader(queue(), protocol, checkpointer=checkpointer) as server:
        undone = server.figures["undone_samples"]
        assert undone >= 6
        address = f"localhost:{server.port}"
        peer = reverie.Client(address, protocol="peer")
        for client in (server.client(), reverie.Client(address), peer):
            (sample,) = client.sample("t", emit_timesteps=False)
            assert sample.info.redelivered is True
            assert isinstance(sample.info, reverie.SampleInfo)
            assert len(sample.info) == 5
        assert reverie.Client(address).sample_batch("t", 1).redelivered.tolist() == [True]
        samples = reverie.TrajectoryDataset(
            address, "t", (np.int64, np.uint8), ((None,), (None, ROW_BYTES)), 1, max_samples=1
        )
        (sample,) = samples
        assert sample.info.redelivered is True
        server.client().checkpoint()
        size = server.client().server_info()["t"].current_size
    with reverie.Server([queue()], checkpointer=checkpointer) as server:
        marks = server.client().sample_batch("t", size).redelivered
        assert marks.tolist() == [i < undone - 5 for i in range(size)]


def test_an_ordinary_sample_is_not_marked_as_redelivered():
    with reverie.Store([queue()]) as store:
        client = store.client()
        for i in range(3):
            client.insert({"n": np.int64(i)}, {"t": 1.0})
        (sample,) = client.sample("t", emit_timesteps=False)
        assert sample.info.redelivered is False
        batch = client.sample_batch("t", 2)
        assert batch.redelivered.tolist() == [False, False]
        assert "redelivered" in batch.names()
