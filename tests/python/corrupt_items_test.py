"""Items that cannot be decoded are removed from their table, counted and logged; no others are."""

import itertools
import pickle
import threading

import numpy as np
import pytest
from attack_peer import STORED, Peer, block, grpc_message, item, rubbish_chunk

import reverie
from eventually import eventually
from reverie.errors import DataLossError, InvalidArgumentError, UnsupportedTypeError

ROWS = 16
GOOD, BAD = 30, 4
BAD_KEYS = range(1000, 1000 + BAD)


def insert_rubbish(address, table, keys):
    with Peer(address) as peer:
        message = b"".join(
            block(STORED, rubbish_chunk(7000 + key, ROWS))
            + block(2, item(key, 7000 + key, table, length=ROWS))
            for key in keys
        )
        peer.send(peer.call("InsertStream", grpc_message(message)))
        peer.round_trip()


def table(name, **options):
    return reverie.Table(
        name,
        sampler=options.pop("sampler", None) or reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature={"x": reverie.TensorSpec((None,), np.float32)},
        **options,
    )


def fill(server, name, bad_keys):
    """Inserts valid items, and damaged ones, which only a hostile or broken client sends."""
    client = server.client()
    with client.trajectory_writer(ROWS, codec="raw") as writer:
        for at in range(GOOD):
            for row in range(ROWS):
                writer.append({"x": np.float32(at * ROWS + row)})
            writer.create_item(name, 1.0, {"x": writer.history["x"][-ROWS:]})
    insert_rubbish(server.address, name, bad_keys)
    eventually(lambda: client.server_info()[name].current_size == GOOD + len(bad_keys))


@pytest.fixture
def server():
    queue = table("queue", sampler=reverie.selectors.Fifo(), max_times_sampled=1)
    with reverie.Server([table("t"), queue]) as started:
        for name in ("t", "queue"):
            fill(started, name, BAD_KEYS)
        yield started


@pytest.fixture(params=["embedded", "served"])
def door(request):
    """Makes a client of a server."""

    def make(server, **options):
        if request.param == "embedded":
            return server.client(**options)
        return reverie.Client(server.address, **options)

    return make


def expect_whole(rows):
    rows = np.asarray(rows).reshape(-1, ROWS)
    assert (rows == rows[:, :1] + np.arange(ROWS)).all()
    assert (rows[:, 0] % ROWS == 0).all()


def expect_gone(server, name, left):
    info = server.client().server_info()[name]
    assert (info.current_size, info.corrupt_items) == (left, BAD)


def test_corrupt_items_of_a_batch_are_replaced_by_other_draws(server, door):
    client = door(server)
    for _ in range(40):
        batch = client.sample_batch("t", 16, timeout_s=30)
        assert len(batch) == 16
        expect_whole(batch.data["x"])
    expect_gone(server, "t", GOOD)


def test_corrupt_items_are_replaced_in_a_reused_batch(server, door):
    client = door(server)
    batch = client.sample_batch("t", 16, timeout_s=30)
    for _ in range(40):
        client.sample_batch("t", 16, timeout_s=30, out=batch)
        expect_whole(batch.data["x"])
    expect_gone(server, "t", GOOD)


def test_each_corrupt_item_is_logged_with_table_item_and_chunk(server, caplog):
    client = server.client()
    for _ in range(40):
        client.sample_batch("t", 16, timeout_s=30)

    def lines(key):
        return [line for line in caplog.messages if f"item {key} of table 't'" in line]

    for key in BAD_KEYS:
        eventually(lambda key=key: lines(key))
        assert len(lines(key)) == 1
        assert f"chunk {7000 + key}:" in lines(key)[0]


def test_single_samples_skip_corrupt_items(server, door):
    client = door(server)
    for _ in range(10):
        for steps in client.sample("t", 16, timeout_s=30):
            assert len(steps) in (1, ROWS)
    expect_gone(server, "t", GOOD)


def test_a_dataset_continues_after_corrupt_items(server, door):
    client = door(server)
    with client.dataset("t", 16, timeout_s=30) as batches:
        for _, batch in zip(range(40), batches, strict=False):
            expect_whole(batch.data["x"])
    expect_gone(server, "t", GOOD)


def test_a_dataset_of_a_queue_returns_all_other_items_once(server, door):
    client = door(server)
    rows = []
    with client.dataset("queue", 4, timeout_s=0.2) as batches:
        for batch in batches:
            expect_whole(batch.data["x"])
            rows += list(np.asarray(batch.data["x"]).reshape(-1, ROWS)[:, 0])
    assert rows == [at * ROWS for at in range(GOOD)]
    expect_gone(server, "queue", 0)


def test_a_trajectory_dataset_continues_after_corrupt_items(server, door):
    client = door(server)
    dataset = reverie.TrajectoryDataset(
        client, "queue", {"x": np.float32}, {"x": (None,)}, 8, rate_limiter_timeout_ms=200
    )
    rows = [np.asarray(sample.data["x"]) for sample in dataset]
    assert len(rows) == GOOD
    expect_whole(np.stack(rows))
    expect_gone(server, "queue", 0)


def sample_often(client):
    for _ in range(40):
        client.sample_batch("t", 16, timeout_s=30)


def test_a_client_with_on_corrupt_raise_raises_and_removes_nothing(server, door):
    client = door(server, on_corrupt="raise")
    with pytest.raises(DataLossError, match="damaged"):
        sample_often(client)
    with (
        client.dataset("t", 16, timeout_s=30) as batches,
        pytest.raises(DataLossError, match="damaged"),
    ):
        list(itertools.islice(batches, 40))
    info = client.server_info()["t"]
    assert (info.current_size, info.corrupt_items) == (GOOD + BAD, 0)


def test_a_pickled_client_keeps_on_corrupt(server):
    client = pickle.loads(pickle.dumps(reverie.Client(server.address, on_corrupt="raise")))
    with pytest.raises(DataLossError, match="damaged"):
        sample_often(client)


@pytest.mark.parametrize("make", ["Client", "Store.client", "Server.client"])
def test_an_invalid_on_corrupt_is_refused(server, make):
    store = reverie.Store([table("t")])
    makes = {
        "Client": lambda value: reverie.Client("localhost:1", on_corrupt=value),
        "Store.client": lambda value: store.client(on_corrupt=value),
        "Server.client": lambda value: server.client(on_corrupt=value),
    }
    with pytest.raises(
        InvalidArgumentError, match="on_corrupt is 'skip'; it must be one of 'remove'"
    ):
        makes[make]("skip")
    with pytest.raises(UnsupportedTypeError, match="on_corrupt is None"):
        makes[make](None)


def test_several_threads_count_each_corrupt_item_once(server, door):
    client = door(server)
    wrong = []

    def run():
        try:
            for _ in range(20):
                expect_whole(client.sample_batch("t", 16, timeout_s=30).data["x"])
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    expect_gone(server, "t", GOOD)


def test_each_shard_removes_its_own_corrupt_items(server):
    with reverie.Server([table("t")]) as other:
        fill(other, "t", [key + BAD for key in BAD_KEYS])
        client = reverie.Client([server.address, other.address])
        for _ in range(60):
            batch = client.sample_batch("t", 16, timeout_s=30)
            assert len(batch) == len(batch.shards) == 16
            expect_whole(batch.data["x"])
        expect_gone(server, "t", GOOD)
        expect_gone(other, "t", GOOD)
        assert client.server_info()["t"].corrupt_items == 2 * BAD
