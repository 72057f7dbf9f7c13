"""One writer's steps in several tables of a server: each chunk is sent once."""

import threading

import numpy as np

import reverie
from eventually import eventually

ROW = 40_000  # bytes


def fifo(name, max_size=1000):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


def write(client, tables, steps=40):
    """Inserts an item over each two steps into every table; returns the rows of the steps."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (steps, ROW), np.uint8)
    with client.trajectory_writer(2, chunk_length=1) as writer:
        for i in range(steps):
            writer.append({"x": rows[i], "n": np.int64(i)})
            if i == 2:
                writer.flush()  # from here on the writer has a separate stream
            if i > 0:
                for table in tables:
                    pair = {name: column[-2:] for name, column in writer.history.items()}
                    writer.create_item(table, 1.0, pair)
        writer.flush()
    return rows


def test_a_chunk_of_several_tables_is_sent_once():
    received = {}
    for names in (["a"], ["a", "b", "c"]):
        with reverie.Server([fifo(name) for name in names]) as server:
            client = server.localhost_client()
            rows = write(client, names)
            received[len(names)] = server.figures["bytes_received"]
            for name in names:
                batch = server.client().sample_batch(name, 39)
                assert len(batch.keys) == 39
                numbers, drawn = batch.data  # columns are sorted by name
                assert (numbers[:, 1] == numbers[:, 0] + 1).all()
                np.testing.assert_array_equal(drawn, rows[numbers])
    assert received[1] > 40 * ROW
    # Two steps were sent before the client knew that the writer uses several tables.
    assert received[3] < received[1] + 8 * ROW


def test_a_full_table_does_not_block_another():
    with reverie.Server([reverie.Table.queue("full", 10), fifo("open")]) as server:
        client = server.localhost_client()
        with client.trajectory_writer(1) as writer:
            for i in range(2):
                writer.append({"n": np.int64(i)})
                for table in ("full", "open"):
                    writer.create_item(table, 1.0, {"n": writer.history["n"][-1:]})
                writer.flush()
            for i in range(2, 300):
                writer.append({"n": np.int64(i)})
                for table in ("full", "open"):
                    writer.create_item(table, 1.0, {"n": writer.history["n"][-1:]})
            eventually(lambda: server.client().server_info()["open"].current_size == 300)
            assert server.client().server_info()["full"].current_size == 10
            held = server.client().sample("full", 300, emit_timesteps=False, timeout_s=20)
            assert [int(sample.data[0][0]) for sample in held] == list(range(300))


def test_writers_can_open_and_close_while_others_write():
    with reverie.Server([fifo("a", 10_000), fifo("b", 10_000)]) as server:
        client = server.localhost_client()

        def run(seed):
            for _ in range(10):
                with client.trajectory_writer(1) as writer:
                    for i in range(6):
                        writer.append({"n": np.int64(100 * seed + i)})
                        for table in ("a", "b"):
                            writer.create_item(table, 1.0, {"n": writer.history["n"][-1:]})
                        writer.flush()

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sizes = [server.client().server_info()[name].current_size for name in ("a", "b")]
        assert sizes == [240, 240]


def test_items_are_inserted_once_although_the_server_restarted():
    server = reverie.Server([fifo("a"), fifo("b")])
    port = server.port
    client = reverie.Client(f"localhost:{port}")
    with client.trajectory_writer(1) as writer:
        for i in range(4):
            writer.append({"n": np.int64(i)})
            for table in ("a", "b"):
                writer.create_item(table, 1.0, {"n": writer.history["n"][-1:]})
            writer.flush()
        server.stop(grace_s=0)
        for i in range(4, 8):
            writer.append({"n": np.int64(i)})
            for table in ("a", "b"):
                writer.create_item(table, 1.0, {"n": writer.history["n"][-1:]})
        with reverie.Server([fifo("a"), fifo("b")], port) as again:
            writer.flush(timeout_ms=20_000)
            for table in ("a", "b"):
                numbers = [
                    int(sample.data[0][0])
                    for sample in again.client().sample(table, 1, emit_timesteps=False)
                ]
                assert numbers == [4]
                assert again.client().server_info()[table].current_size == 4
