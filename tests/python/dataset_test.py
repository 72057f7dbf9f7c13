"""Batches as an iterator: it prefetches, it ends, and it gives NumPy, PyTorch or JAX arrays."""

import contextlib
import gc
import os
import pickle
import signal
import threading
import time
import warnings

import jax
import ml_dtypes
import numpy as np
import pytest
import torch

import reverie
from eventually import eventually
from reverie import errors


def open_table(kind="uniform", size=1000):
    if kind == "queue":
        return reverie.Table.queue("t", size)
    return reverie.Table(
        "t",
        reverie.selectors.Prioritized(1.0, seed=1),
        reverie.selectors.Fifo(),
        size,
        reverie.rate_limiters.MinSize(1),
    )


@pytest.fixture
def client():
    with reverie.Store([open_table()]) as store:
        yield store.client()


@pytest.fixture
def queue():
    with reverie.Store([open_table("queue")]) as store:
        yield store.client()


def fill(client, count, **columns):
    for i in range(count):
        client.insert({"x": np.full(3, i, np.float32), **columns}, {"t": 1.0 + i})


def test_a_queue_is_read_in_order_with_a_shorter_last_batch(queue):
    fill(queue, 10)
    with queue.dataset("t", 4, timeout_s=0.05) as batches:
        rows = [batch.data["x"][:, 0, 0].tolist() for batch in batches]
        assert rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert list(batches) == [], "it has ended for good"


def test_drop_last_drops_the_incomplete_batch(queue):
    fill(queue, 10)
    with queue.dataset("t", 4, timeout_s=0.05, drop_last=True) as batches:
        assert [len(batch) for batch in batches] == [4, 4]


def test_a_dataset_ends_if_nothing_arrives_within_its_timeout(client):
    with client.dataset("t", 4, timeout_s=0.05) as batches:
        assert list(batches) == []


def first_column(batch):
    """Its first numbers. A server's tables without a signature give lists."""
    columns = batch.data.values() if isinstance(batch.data, dict) else batch.data
    return next(iter(columns))[:, 0, 0].tolist()


def draws_ahead_ended(client):
    """Whether requests for samples have waited, and none waits now."""
    stats = client.server_info()["t"].rate_limiter_info.sample_stats
    return stats.waited_s > 0 and stats.pending == 0


@contextlib.contextmanager
def client_by(protocol, table):
    """A client of a store in this process, or of a server."""
    if protocol == "embedded":
        with reverie.Store([table]) as store:
            yield store.client()
    else:
        with reverie.Server([table]) as server:
            yield reverie.Client(f"localhost:{server.port}", protocol=protocol)


def test_a_dataset_made_before_the_table_can_be_sampled_does_not_end_meanwhile():
    table = reverie.Table(
        "t",
        reverie.selectors.Uniform(),
        reverie.selectors.Fifo(),
        1000,
        reverie.rate_limiters.MinSize(20),
    )
    with (
        client_by("embedded", table) as client,
        client.dataset("t", 4, timeout_s=0.05) as batches,
    ):
        eventually(lambda: draws_ahead_ended(client))
        fill(client, 20)
        assert [len(next(batches)) for _ in range(5)] == [4] * 5


@pytest.mark.parametrize("protocol", ["embedded", "grpc", "peer"])
def test_a_pause_longer_than_the_timeout_neither_ends_a_dataset_nor_loses_items(protocol):
    timeout_s = 0.05
    with client_by(protocol, open_table("queue")) as client:
        fill(client, 10)
        with client.dataset("t", 4, timeout_s=timeout_s, prefetch=2) as batches:
            rows = first_column(next(batches))
            eventually(lambda: client.server_info()["t"].current_size == 0)
            # Two items of the third batch are drawn, and no call tells when its time is up.
            pause_ends = time.monotonic() + 4 * timeout_s
            eventually(lambda: time.monotonic() > pause_ends)
            for i in range(10, 14):
                client.insert({"x": np.full(3, i, np.float32)}, {"t": 1.0})
            for _ in range(2):
                rows += first_column(next(batches))
            assert rows == list(range(12))
        eventually(lambda: client.server_info()["t"].current_size == 2)
        assert sorted(first_column(client.sample_batch("t", 2))) == [12, 13]


def test_batches_have_the_content_of_sample_batch(client):
    fill(client, 5, name="five")
    with client.dataset("t", 8, beta=1.0) as batches:
        batch = next(batches)
    assert isinstance(batch, reverie.Batch)
    x = batch.data["x"][:, 0, 0]
    np.testing.assert_allclose(batch.probabilities, (x + 1) / 15)
    np.testing.assert_allclose(batch.weights, (x.min() + 1) / (x + 1), rtol=1e-5)
    assert batch.data["name"].tolist() == [["five"]] * 8
    assert client.update_priorities("t", batch.tickets, np.ones(8)) == 8


def test_at_most_prefetch_batches_are_drawn_ahead(queue):
    fill(queue, 100)
    with queue.dataset("t", 5, timeout_s=30.0, prefetch=3) as batches:
        next(batches)
        # One was taken, three wait, and one may be in transit; no more may ever be drawn.
        for _ in range(200):
            size = queue.server_info()["t"].current_size
            assert size >= 100 - 5 * 5
            if size == 100 - 5 * 5:
                break


def rows_of(client):
    """The items left in the queue, drawn without waiting."""
    count = client.server_info()["t"].current_size
    return client.sample_batch("t", count).data["x"][:, 0, 0].tolist() if count else []


def test_nothing_is_drawn_ahead_of_a_queue_by_default(queue):
    fill(queue, 20)
    with queue.dataset("t", 4) as batches:
        next(batches)
        assert queue.server_info()["t"].current_size == 16
        next(batches)
    assert rows_of(queue) == list(range(8, 20))


@pytest.mark.parametrize("prefetch", [None, 0, 1, 3])
@pytest.mark.parametrize("end", ["close", "break", "drop"])
def test_unused_items_return_to_a_queue_in_order(queue, prefetch, end):
    fill(queue, 40)
    batches = queue.dataset("t", 4, prefetch=prefetch)
    for i, batch in enumerate(batches):
        assert batch.data["x"][:, 0, 0].tolist() == [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]
        if i == 2:
            break
    if end == "close":
        batches.close()
    elif end == "drop":
        del batches, batch
        gc.collect()
    else:
        batches = None
    info = queue.server_info()["t"]
    samples = info.rate_limiter_info.sample_stats.completed
    assert (info.current_size, samples) == (28, 12), "as if it had not been drawn"
    fill(queue, 2)
    assert rows_of(queue) == [*range(12, 40), 0, 1]


def test_items_of_an_incomplete_batch_return_to_the_queue(queue):
    fill(queue, 10)
    with queue.dataset("t", 4, prefetch=4) as batches:
        next(batches)  # 4 more items wait, and 2 of an incomplete batch
    assert rows_of(queue) == list(range(4, 10))
    fill(queue, 6)
    with queue.dataset("t", 4, timeout_s=0.05, drop_last=True) as batches:
        assert len(list(batches)) == 1
    assert rows_of(queue) == [4, 5]


def test_unused_samples_are_undone_if_items_may_be_sampled_several_times():
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        10,
        reverie.rate_limiters.MinSize(1),
        max_times_sampled=3,
    )
    with reverie.Store([table]) as store:
        client = store.client()
        fill(client, 4)
        with client.dataset("t", 2, prefetch=3) as batches:
            assert next(batches).data["x"][:, 0, 0].tolist() == [0, 0]
        left = [client.sample_batch("t", 1).data["x"][0, 0, 0] for _ in range(10)]
        assert left == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
        assert client.server_info()["t"].current_size == 0


def test_unused_items_return_to_the_queue_of_a_server(caplog):
    with reverie.Server([open_table("queue")], port=0) as server:
        client = reverie.Client(f"localhost:{server.port}")
        fill(client, 40)
        with client.dataset("t", 4) as batches:
            next(batches)
            assert client.server_info()["t"].current_size == 36, "nothing is drawn ahead"
        with client.dataset("t", 4, prefetch=3) as batches:
            next(batches)
        rows = []
        while len(rows) < 32:
            (x,) = client.sample_batch("t", 4, timeout_s=30).data
            rows += x[:, 0, 0].tolist()
        assert sorted(rows) == list(range(8, 40))
        assert client.server_info()["t"].current_size == 0
    assert "lost" not in caplog.text


def test_the_number_of_items_that_cannot_be_returned_is_logged(caplog):
    server = reverie.Server([open_table("queue")], port=0)
    client = reverie.Client(f"localhost:{server.port}", retry_timeout_s=0.5)
    fill(client, 40)
    batches = client.dataset("t", 4, prefetch=2)
    next(batches)
    eventually(lambda: client.server_info()["t"].current_size <= 28)
    server.stop()
    batches.close()
    lost = "8 samples drawn ahead that could not be handed back: they are lost"
    eventually(lambda: lost in caplog.text)


def test_a_kept_batch_is_not_overwritten_by_later_ones(client):
    fill(client, 50)
    with client.dataset("t", 16) as batches:
        kept = [next(batches) for _ in range(20)]
        copies = [batch.data["x"].copy() for batch in kept]
        for _ in range(20):
            next(batches)
    for batch, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(batch.data["x"], copy)


def test_items_of_unequal_length_can_be_padded(client):
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for i in range(3):
            writer.append({"x": np.float32(i)})
            writer.create_item("t", 1.0, {"x": writer.history["x"][:]})
    with client.dataset("t", 32, pad=True) as batches:
        batch = next(batches)
    assert batch.data["x"].shape == (32, 3)
    assert set(batch.lengths) == {1, 2, 3}


def test_lengths_are_returned_with_pad_though_all_items_have_one(client):
    for _ in range(4):
        client.insert({"x": np.float32(1)}, {"t": 1.0})
    with client.dataset("t", 32, pad=True) as batches:
        assert next(batches).lengths.tolist() == [1] * 32
    batch = client.sample_batch("t", 8, pad=True)
    assert batch.lengths.tolist() == [1] * 8
    assert client.sample_batch("t", 8, out=batch).lengths is None


def test_an_error_is_raised_and_ends_the_dataset(client):
    with client.dataset("none", 4) as batches:
        with pytest.raises(errors.NotFoundError, match="there is no table 'none'"):
            next(batches)
        assert list(batches) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 1, "prefetch": -1}, "prefetch is -1"),
        ({"batch_size": 1, "prefetch": 2000}, "prefetch is 2000"),
        ({"batch_size": 1, "timeout_s": -1.0}, "timeout_s is -1"),
        ({"batch_size": 1, "beta": -1.0}, "beta is -1"),
        ({"batch_size": 1, "output": "tensorflow"}, "output is 'tensorflow'"),
    ],
)
def test_arguments_outside_their_bounds_are_refused(client, arguments, says):
    with pytest.raises(errors.InvalidArgumentError, match=says):
        client.dataset("t", **arguments)


def test_a_missing_package_is_named(client, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(errors.MissingPackageError, match="package torch"):
        client.dataset("t", 1, output="torch")


def test_closing_ends_a_wait_in_another_thread(client):
    batches = client.dataset("t", 4)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(list(batches)))
    thread.start()
    batches.close()
    thread.join(timeout=300)
    assert ended == [[]]
    batches.close()


def test_closing_the_store_ends_a_dataset_with_an_error():
    store = reverie.Store([open_table()])
    with store.client().dataset("t", 4) as batches:
        store.close()
        with pytest.raises(errors.CancelledError):
            next(batches)


def test_ctrl_c_ends_a_wait(client):
    batches = client.dataset("t", 4)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    timer.join()
    fill(client, 5)
    assert len(next(batches)) == 4, "it goes on afterwards"
    batches.close()


def test_a_dataset_that_is_dropped_ends_its_thread(client):
    gc.collect()  # ends threads that other tests left behind
    before = threading.active_count(), len(os.listdir("/proc/self/task"))
    for _ in range(10):
        client.dataset("t", 4)
    assert (threading.active_count(), len(os.listdir("/proc/self/task"))) == before


def test_torch_tensors_share_the_memory_of_a_batch(client):
    fill(client, 5, flag=True, half=np.ones(2, ml_dtypes.bfloat16), number=np.int64(7))
    with client.dataset("t", 4, beta=0.5, output="torch") as batches:
        batch = next(batches)
    assert {name: (leaf.dtype, tuple(leaf.shape)) for name, leaf in batch.data.items()} == {
        "x": (torch.float32, (4, 1, 3)),
        "flag": (torch.bool, (4, 1)),
        "half": (torch.bfloat16, (4, 1, 2)),
        "number": (torch.int64, (4, 1)),
    }
    assert batch.data["half"].float().sum() == 8
    assert batch.weights.dtype == torch.float32
    address = batch.data["x"].data_ptr()
    assert batch.data["x"].numpy().__array_interface__["data"][0] == address
    batch.data["x"] += 1  # the tensor is writable, and torch does not warn
    assert client.update_priorities("t", batch.tickets, batch.weights) == 4


def test_output_jax_gives_jax_arrays(client):
    fill(client, 5, flag=True, half=np.ones(2, ml_dtypes.bfloat16), number=np.int64(7))
    with client.dataset("t", 4, beta=0.5, output="jax") as batches:
        batch = next(batches)
    assert all(isinstance(leaf, jax.Array) for leaf in batch.data.values())
    assert batch.data["x"].dtype == np.float32
    assert batch.data["half"].dtype == ml_dtypes.bfloat16
    assert batch.data["number"].tolist() == [[7]] * 4
    assert batch.data["flag"].all()
    assert isinstance(batch.weights, jax.Array)


def test_large_jax_arrays_share_the_memory_of_a_batch():
    buffer = reverie.ReplayBuffer(100, num_envs=2)
    obs = np.zeros((2, 2000), np.float32)
    buffer.add(obs, np.zeros(2), np.zeros(2), obs + 1, np.zeros(2, bool))
    with buffer.dataset(4) as batches:
        array = next(batches)["obs"]
    address = array.__array_interface__["data"][0]
    from reverie.dataset import converter

    shared = converter("jax")(array)
    assert shared.unsafe_buffer_pointer() == address


def test_a_dataset_works_with_a_torch_data_loader(client):
    fill(client, 5)
    with client.dataset("t", 4, output="torch") as batches:
        assert isinstance(batches, torch.utils.data.IterableDataset)
        loader = torch.utils.data.DataLoader(batches, batch_size=None, num_workers=0)
        shapes = [tuple(batch.data["x"].shape) for _, batch in zip(range(5), loader, strict=False)]
    assert shapes == [(4, 1, 3)] * 5


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_data_loader_worker_process_gets_an_error(client):
    fill(client, 5)
    with client.dataset("t", 4, output="torch") as batches:
        loader = torch.utils.data.DataLoader(
            batches, batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=300
        )
        with pytest.raises(errors.FailedPreconditionError, match="fork"):
            next(iter(loader))
        with pytest.raises(errors.UnsupportedTypeError, match="num_workers=0"):
            pickle.dumps(batches)


# --- Datasets of a replay buffer


def filled_buffer(**settings):
    buffer = reverie.ReplayBuffer(100, seed=1, **settings)
    for i in range(20):
        at = np.full(3, i, np.float32)
        buffer.add({"a": at, "b": i}, i % 2, 1.0, {"a": at + 1, "b": i + 1}, False)
    return buffer


def test_batches_of_a_replay_buffer_match_those_of_sample():
    buffer = filled_buffer(prioritized=True)
    wanted = buffer.sample(8)
    with buffer.dataset(8) as batches:
        for _ in range(5):
            batch = next(batches)
            assert batch.keys() == wanted.keys()
            np.testing.assert_array_equal(batch["next_obs"]["a"], batch["obs"]["a"] + 1)
            assert batch["obs"]["b"].dtype == np.int64
            assert buffer.update_priorities(batch["tickets"], np.ones(8)) == 8


def test_batches_of_a_replay_buffer_can_be_torch_or_jax_arrays():
    buffer = filled_buffer()
    with buffer.dataset(8, output="torch") as batches:
        batch = next(batches)
    assert batch["obs"]["a"].dtype == torch.float32
    assert batch["terminated"].dtype == torch.bool
    assert buffer.update_priorities(batch["tickets"], batch["reward"]) == 8
    with warnings.catch_warnings(), buffer.dataset(8, output="jax") as batches:
        warnings.simplefilter("ignore", UserWarning)  # JAX converts int64 to int32
        batch = next(batches)
    assert isinstance(batch["next_obs"]["a"], jax.Array)
    assert isinstance(batch["discount"], jax.Array)


def test_a_replay_buffer_that_stays_empty_ends_the_iteration():
    buffer = filled_buffer()
    buffer.clear()
    with buffer.dataset(4, timeout_s=0.05) as batches:
        assert list(batches) == []
    with pytest.raises(errors.FailedPreconditionError, match="first add"):
        reverie.ReplayBuffer(10).dataset(4)


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 3), ({"output": "torch", "device": "cpu"}, 2)],  # with a device, one is made ahead
)
def test_a_transform_that_raises_stop_iteration_does_not_end_the_dataset(options, count):
    numbers = iter(range(3))

    def numbered(batch):
        return {**batch, "number": np.full(4, next(numbers))}

    buffer = filled_buffer(transforms=[numbered])
    seen = []
    with buffer.dataset(4, timeout_s=300.0, **options) as batches:
        with pytest.raises(RuntimeError, match="transform raised StopIteration"):
            seen.extend(int(batch["number"][0]) for batch in batches)
        assert seen == list(range(count))
        numbers = iter(range(3, 9))
        assert int(next(batches)["number"][0]) == count, "no batch is lost"


def test_a_beta_schedule_applies_to_batches_drawn_later():
    buffer = filled_buffer(prioritized=True, alpha=1.0, beta=lambda updates: float(updates > 0))
    tickets = buffer.sample(20, distinct=True)["tickets"]
    with buffer.dataset(16, prefetch=1) as batches:
        assert (next(batches)["weights"] == 1).all()
        buffer.update_priorities(tickets, np.arange(1.0, 21.0))
        for _ in range(3):
            batch = next(batches)
    assert batch["weights"].min() < 1
