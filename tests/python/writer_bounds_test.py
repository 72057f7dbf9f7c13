"""What one writer of a client may not do ends nothing else that the client does."""

import threading

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors

MIB = 1 << 20
ROWS_MAX = 1 << 24


def tables():
    return [
        reverie.Table(
            "t",
            sampler=reverie.selectors.Uniform(seed=1),
            remover=reverie.selectors.Fifo(),
            max_size=100,
            rate_limiter=reverie.rate_limiters.MinSize(1),
        ),
        reverie.Table.queue("q", 1),
        reverie.Table.queue("empty", 1),
    ]


@pytest.fixture(params=["grpc", "peer"])
def protocol(request):
    return request.param


def writer_that_waits(client):
    """A writer with three items for the queue of one place."""
    writer = client.trajectory_writer(1)
    for i in range(3):
        writer.append({"x": np.float32(i)})
        writer.create_item("q", 1.0, {"x": writer.history["x"][-1:]})
    assert eventually(lambda: client.server_info()["q"].current_size == 1)
    return writer


def keep_much(client):
    """Writes 40 steps of 1 MiB that stay referable, each also as an item."""
    writer = client.trajectory_writer(num_keep_alive_refs=400, codec="raw")
    for i in range(40):
        writer.append({"x": np.full(MIB, i, np.uint8)})
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
    writer.flush(timeout_s=20.0)


def expect_that_all_arrive(client, writer):
    drawn = [client.sample_batch("q", 1, timeout_s=20.0).data[0].item() for _ in range(3)]
    assert drawn == [0.0, 1.0, 2.0]
    writer.flush(timeout_s=20.0)
    with pytest.raises(errors.DeadlineExceededError):
        client.sample_batch("q", 1, timeout_s=0.1)
    writer.close()


@pytest.mark.filterwarnings("ignore:a writer was dropped:ResourceWarning")
def test_a_writer_that_meets_a_bound_ends_no_other_call_of_its_client(protocol):
    limits = reverie.ServerLimits(bytes_in_flight=16 * MIB)
    with reverie.Server(tables(), limits=limits) as server:
        client = reverie.Client(f"localhost:{server.port}", protocol=protocol)
        waits = writer_that_waits(client)
        ended = []

        def learn():
            try:
                client.sample_batch("empty", 1, timeout_s=3.0)
            except errors.ReverieError as error:
                ended.append(type(error))

        learner = threading.Thread(target=learn)
        learner.start()
        with pytest.raises(errors.ResourceExhaustedError, match="bytes"):
            keep_much(client)
        learner.join()
        assert ended == [errors.DeadlineExceededError]
        expect_that_all_arrive(client, waits)


def test_rows_beyond_a_chunks_bound_fail_alone(protocol):
    rows = ROWS_MAX + 5
    with reverie.Server(tables()) as server:
        client = reverie.Client(f"localhost:{server.port}", protocol=protocol)
        waits = writer_that_waits(client)
        with pytest.raises(errors.InvalidArgumentError, match=f"{rows} rows.* {ROWS_MAX}") as why:
            client.insert_rows(
                {"x": np.zeros(rows, np.uint8)}, "t", items=[(0, 10)], timeout_s=20.0
            )
        expect_that_all_arrive(client, waits)
        assert "insert_rows fewer rows" in str(why.value)
