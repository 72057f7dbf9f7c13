"""Clients that are closed: waiting calls end, and later calls are refused by name."""

import collections
import threading

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors

PROTOCOLS = ("grpc", "peer")


def table(name="t", **options):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Prioritized(0.8),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        **options,
    )


@pytest.fixture
def server():
    with reverie.Server([table(), table("empty")]) as server:
        yield server


def connected(server, protocol):
    return reverie.Client(f"localhost:{server.port}", protocol=protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_ends_waiting_calls_and_refuses_later_ones(server, protocol):
    client = connected(server, protocol)
    client.insert({"x": np.float32(1)}, {"t": 1.0})
    batch = client.sample_batch("t", 2)
    raised = []

    def wait():
        with pytest.raises(errors.CancelledError) as error:
            client.sample_batch("empty", 1)
        raised.append(str(error.value))

    waiting = threading.Thread(target=wait)
    waiting.start()
    blocked = server.client()
    eventually(lambda: blocked.why_blocked("empty").samples.waiting == 1, limit_s=10)
    closing = [threading.Thread(target=client.close) for _ in range(2)]
    for thread in closing:
        thread.start()
    for thread in [*closing, waiting]:
        thread.join(10)
        assert not thread.is_alive()
    assert raised
    assert "closed" in raised[0]
    client.close()
    for call in (
        lambda: client.insert({"x": np.float32(1)}, {"t": 1.0}),
        lambda: client.sample_batch("t", 1),
        lambda: client.update_priorities("t", batch.tickets, [1.0, 2.0]),
        lambda: client.server_info(),
        lambda: client.reset("t"),
    ):
        with pytest.raises(errors.CancelledError, match="the client is closed"):
            call()
    assert batch.keys.shape == (2,)  # a drawn batch stays usable
    assert server.client().server_info()["t"].current_size == 1
    other = connected(server, protocol)
    assert other.sample_batch("t", 1).table_size == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_a_client_closes_its_connections(server, protocol):
    key = "connections" if protocol == "grpc" else "peer_connections"
    with connected(server, protocol) as client:
        client.insert({"x": np.float32(1)}, {"t": 1.0})
        assert server.figures[key] == 1
        with client.trajectory_writer(1) as writer:
            writer.append({"x": np.float32(2)})
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
    eventually(lambda: server.figures[key] == 0, limit_s=10)
    assert server.client().server_info()["t"].current_size == 2


def test_writers_and_datasets_of_a_closed_client_are_cancelled(server):
    client = connected(server, "grpc")
    client.insert({"x": np.float32(1)}, {"t": 1.0})
    dataset = iter(client.dataset("t", 4))
    next(dataset)
    writer = client.trajectory_writer(1)
    client.close()
    with pytest.raises(errors.CancelledError, match="closed"):
        collections.deque(dataset, maxlen=0)
    writer.append({"x": np.float32(2)})

    def write():
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
        writer.flush(timeout_s=10)

    with pytest.raises(errors.CancelledError, match="closed"):
        write()


def test_leaving_a_with_block_waits_for_priority_updates(server):
    with connected(server, "grpc") as client:
        client.insert({"x": np.float32(1)}, {"t": 1.0})
        batch = client.sample_batch("t", 1)
        client.update_priorities("t", batch.tickets, [7.0], wait=False)
    assert server.client().sample_batch("t", 1).priorities.tolist() == [7.0]
    with pytest.raises(RuntimeError, match="mine"), connected(server, "grpc") as client:
        raise RuntimeError("mine")
    with pytest.raises(errors.CancelledError):
        client.server_info()


def test_closing_a_client_closes_its_connections_to_all_shards(server):
    with reverie.Server([table(), table("empty")]) as second:
        addresses = [f"localhost:{one.port}" for one in (server, second)]
        with reverie.Client(addresses) as client:
            for _ in range(4):
                client.insert({"x": np.float32(1)}, {"t": 1.0})
        with pytest.raises(errors.CancelledError, match="closed"):
            client.sample_batch("t", 1)
        for one in (server, second):
            eventually(lambda one=one: one.figures["connections"] == 0, limit_s=10)


def test_close_does_not_close_a_client_of_a_local_store(server):
    with reverie.Store([table()]) as store:
        with store.client() as client:
            client.insert({"x": np.float32(1)}, {"t": 1.0})
        client.close()
        assert client.sample_batch("t", 1).data["x"] == 1
        assert store["t"].info.current_size == 1
    with server.client() as client:
        client.insert({"x": np.float32(1)}, {"t": 1.0})
    assert server.client().server_info()["t"].current_size == 1
