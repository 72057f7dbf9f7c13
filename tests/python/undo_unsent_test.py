"""Samples that were drawn for a reader who went away, and were not sent yet."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import reverie
from eventually import eventually

ITEMS = 150
ROW_BYTES = 1 << 20

# Stops in the middle of a batch, for good.
READER = """
import os, signal, sys, threading
import reverie
client = reverie.Client(sys.argv[1])
client.server_info()
threading.Timer(0.03, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
client.sample_batch("t", int(sys.argv[2]))
threading.Event().wait()
"""


@pytest.mark.parametrize("undo", [False, True])
def test_they_are_in_the_table_again_where_it_asks_for_that(undo):
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        ITEMS,
        reverie.rate_limiters.MinSize(1),
        max_times_sampled=1,
        undo_unsent=undo,
    )
    with reverie.Server([table]) as server:
        client = server.client()
        row = np.zeros(ROW_BYTES, np.uint8)
        with client.trajectory_writer(1, chunk_length=1, codec="raw") as writer:
            for i in range(ITEMS):
                writer.append({"n": np.int64(i), "x": row})
                history = writer.history
                writer.create_item("t", 1.0, {name: history[name][-1:] for name in history})
        address = f"localhost:{server.port}"
        reader = subprocess.Popen([sys.executable, "-c", READER, address, str(ITEMS)])
        os.waitpid(reader.pid, os.WUNTRACED)
        reader.send_signal(signal.SIGKILL)
        reader.wait()
        eventually(lambda: server.figures["connections"] == 0)
        figures = server.figures
        size = client.server_info()["t"].current_size
        unsent = figures["undone_samples"] if undo else figures["unsent_samples"]
        assert unsent > 0
        assert figures["unsent_samples" if undo else "undone_samples"] == 0
        assert figures["samples"] + size + figures["unsent_samples"] == ITEMS
        if size == 0:  # all were drawn
            return
        left = client.sample_batch("t", size).data["n"][:, 0].tolist()
        assert left == list(range(ITEMS - size, ITEMS))  # in their order
