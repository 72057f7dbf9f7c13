"""A program written for Reverb, with the store in its own process."""

import contextlib
import signal
import socket
import time

import numpy as np
import pytest

import reverie
import reverie as reverb
from reverie import errors


def uniform_table(name="replay", max_size=1000, **options):
    return reverie.Table(
        name,
        reverie.selectors.Uniform(seed=7),
        reverie.selectors.Fifo(),
        max_size,
        reverie.rate_limiters.MinSize(1),
        **options,
    )


@pytest.fixture
def client():
    with reverie.Store([uniform_table()]) as store:
        yield store.client()


def test_a_program_written_for_reverb_runs():
    table = reverb.Table(
        name="my_table",
        sampler=reverb.selectors.Prioritized(priority_exponent=0.8),
        remover=reverb.selectors.Fifo(),
        max_size=int(1e6),
        rate_limiter=reverb.rate_limiters.MinSize(2),
    )
    client = reverb.Store([table]).client()
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in range(5):
            writer.append({"a": step, "b": np.full((2,), step, np.float32)})
            if step >= 2:
                writer.create_item(
                    table="my_table",
                    priority=1.5,
                    trajectory={"a": writer.history["a"][-3:], "b": writer.history["b"][-1]},
                )
    assert client.server_info()["my_table"].current_size == 3
    for sample in client.sample("my_table", num_samples=4, emit_timesteps=False):
        a, b = sample.data
        assert sample.info.priority == 1.5
        assert sample.info.probability == pytest.approx(1 / 3)
        np.testing.assert_array_equal(a, np.arange(a[0], a[0] + 3))
        np.testing.assert_array_equal(b, [a[2], a[2]])


def test_a_batch_holds_the_rows_that_were_written(client):
    writer = client.trajectory_writer(num_keep_alive_refs=4)
    for step in range(50):
        writer.append({"obs": np.full((2, 3), step, np.int16), "reward": float(step)})
        if step >= 3:
            picked = {name: column[-4:] for name, column in writer.history.items()}
            writer.create_item("replay", 1.0, picked)
    batch = client.sample_batch("replay", 32)
    last = batch.data["reward"][:, -1]
    np.testing.assert_array_equal(batch.data["reward"], last[:, None] + np.arange(-3, 1))
    assert batch.data["obs"].shape == (32, 4, 2, 3)
    assert batch.data["obs"].dtype == np.int16
    np.testing.assert_array_equal(batch.data["obs"][:, :, 0, 0], batch.data["reward"])


def test_a_batch_has_the_version_priority_and_age_of_each_item(client):
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    for version in (-3, 2**40):
        writer.append({"x": version})
        writer.create_item("replay", 2.0, {"x": writer.history["x"][-1:]}, version=version)
    client.sample_batch("replay", 2, distinct=True)
    batch = client.sample_batch("replay", 2, distinct=True)
    np.testing.assert_array_equal(batch.versions, batch.data["x"][:, 0])
    assert batch.versions.dtype == np.int64
    assert batch.times_sampled.tolist() == [2, 2]
    assert batch.priorities.tolist() == [2.0, 2.0]
    assert (batch.ages_s >= 0).all()
    assert (batch.ages_s < 60).all()
    with pytest.raises(ValueError, match=r"version.*9223372036854775808"):
        writer.create_item("replay", 1.0, {"x": writer.history["x"][-1:]}, version=2**63)


def test_arrays_of_a_batch_own_their_memory_and_are_writable(client):
    client.insert({"x": np.arange(5)}, {"replay": 1.0})
    batch = client.sample_batch("replay", 3)
    x = batch.data["x"]
    del batch
    x += 1
    np.testing.assert_array_equal(x, np.tile(np.arange(1, 6), (3, 1, 1)))
    assert x.flags.aligned
    assert x.flags.c_contiguous


def test_out_reuses_the_arrays_of_an_earlier_batch(client):
    for value in range(3):
        client.insert({"x": np.full(4, value)}, {"replay": 1.0})
    batch = client.sample_batch("replay", 8, beta=0.5)
    x, keys, weights = batch.data["x"], batch.keys, batch.weights
    again = client.sample_batch("replay", 8, beta=0.5, out=batch)
    assert again is batch
    assert again.data["x"] is x
    assert again.keys is keys
    assert again.weights is weights


def test_out_of_another_shape_does_not_change_the_old_arrays(client):
    client.insert({"x": np.arange(4)}, {"replay": 1.0})
    batch = client.sample_batch("replay", 2)
    x = batch.data["x"]
    client.sample_batch("replay", 5, out=batch)
    assert x.shape == (2, 1, 4)
    assert batch.data["x"].shape == (5, 1, 4)
    np.testing.assert_array_equal(x, np.tile(np.arange(4), (2, 1, 1)))


def sampled_with_lengths(client, batch=None):
    """A batch of items of one row and of two, with weights."""
    return client.sample_batch("replay", 1000, beta=0.5, pad=True, out=batch)


def check_weights_and_lengths(batch):
    assert batch.weights.dtype == np.float32
    np.testing.assert_array_equal(batch.weights, np.ones(1000))
    assert batch.lengths.dtype == np.int64
    np.testing.assert_array_equal(batch.lengths, 1 + (batch.data["x"][:, 1] == 1))


@pytest.fixture
def client_of_two_lengths(client):
    with client.trajectory_writer(2) as writer:
        for step in range(2):
            writer.append({"x": step})
            writer.create_item("replay", 1.0, {"x": writer.history["x"][:]})
    return client


@pytest.mark.parametrize(
    "convert",
    [
        lambda array: array.astype(np.int8),  # as many elements in fewer bytes
        lambda array: np.repeat(array, 2, axis=0)[::2],
        lambda _: "no array",
    ],
)
def test_out_does_not_write_to_converted_arrays(client_of_two_lengths, convert):
    batch = sampled_with_lengths(client_of_two_lengths)
    check_weights_and_lengths(batch)
    batch.convert(convert)
    weights, lengths = batch.weights, batch.lengths
    sampled_with_lengths(client_of_two_lengths, batch)
    assert batch.weights is not weights
    assert batch.lengths is not lengths
    check_weights_and_lengths(batch)
    reused = batch.weights
    assert sampled_with_lengths(client_of_two_lengths, batch).weights is reused


def test_out_does_not_write_to_arrays_of_a_conversion_that_failed(client_of_two_lengths):
    converted = []

    def convert(array):
        converted.append(array)
        if len(converted) == 3:  # after the data and the weights
            raise RuntimeError("no memory left on the device")
        return "no array"

    batch = sampled_with_lengths(client_of_two_lengths)
    with pytest.raises(RuntimeError, match="no memory left"):
        batch.convert(convert)
    assert batch.weights == "no array"
    sampled_with_lengths(client_of_two_lengths, batch)
    check_weights_and_lengths(batch)


def test_updates_by_ticket_and_by_key_change_priorities(client):
    for value in range(4):
        client.insert({"x": value}, {"replay": 1.0})
    batch = client.sample_batch("replay", 4, distinct=True)
    priorities = batch.data["x"][:, 0] + 10.0
    assert client.update_priorities("replay", batch.tickets, priorities) == 4
    np.testing.assert_array_equal(client.priorities("replay", batch.keys), priorities)
    assert client.max_priority("replay") == 13.0
    key = int(batch.keys[0])
    client.mutate_priorities("replay", {key: 5.0}, deletes=[int(batch.keys[1])])
    values = client.priorities("replay", batch.keys[:2])
    assert values[0] == 5.0
    assert np.isnan(values[1])
    assert client.update_priorities("replay", batch.tickets, priorities) == 3
    assert client.delete("replay", batch.keys) == 3
    assert client.server_info()["replay"].current_size == 0


def test_a_priority_of_none_means_the_largest_so_far(client):
    client.insert({"x": 1}, {"replay": None})
    client.insert({"x": 2}, {"replay": 7.0})
    client.insert({"x": 3}, {"replay": None})
    batch = client.sample_batch("replay", 3, distinct=True)
    by_x = dict(zip(batch.data["x"][:, 0].tolist(), batch.priorities.tolist(), strict=True))
    assert by_x == {1: 1.0, 2: 7.0, 3: 7.0}


def keys_of_a_run(make_client, seed):
    """The keys of items that two clients write, in every possible way."""
    keys = []
    with make_client(seed) as clients:
        for client in clients:
            client.insert({"x": 1}, {"t": 1.0})
            with client.trajectory_writer(2) as writer:
                for i in range(2):
                    writer.append({"x": i})
                    writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
                writer.flush()
            with client.writer(1) as writer:
                writer.append({"x": 3})
                writer.create_item("t", 1, 1.0)
            client.insert({"x": 1}, {"t": 1.0})
        size = clients[0].server_info()["t"].current_size
        batches = [clients[0].sample_batch("t", 1, timeout_s=30) for _ in range(size)]
        keys = [int(batch.keys[0]) for batch in batches]
    assert len(keys) == len(set(keys)) == 10, "no two clients share a key"
    return keys


def table_of_keys():
    return reverie.Table.queue("t", 100)


@contextlib.contextmanager
def two_clients_of_a_store(seed):
    with reverie.Store([table_of_keys()], seed=seed) as store:
        yield [store.client(), store.client()]


@contextlib.contextmanager
def two_clients_of_a_server(seed):
    with reverie.Server([table_of_keys()], port=0) as server:
        address = f"localhost:{server.port}"
        yield [reverie.Client(address, seed=seed), reverie.Client(address, seed=seed)]


@pytest.mark.parametrize("make_clients", [two_clients_of_a_store, two_clients_of_a_server])
def test_the_same_seed_repeats_the_keys_and_other_seeds_share_none(make_clients):
    first = keys_of_a_run(make_clients, 5)
    assert keys_of_a_run(make_clients, 5) == first
    assert not set(first) & set(keys_of_a_run(make_clients, 6))
    assert not set(keys_of_a_run(make_clients, None)) & set(keys_of_a_run(make_clients, None))


@pytest.fixture
def silent_address():
    """The address of a server that accepts connections, and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "insert",
    [
        lambda client: client.insert([1.0], {"t": 1.0}, timeout_s=0.2),
        lambda client: client.insert_rows({"x": np.arange(3)}, "t", timeout_s=0.2),
    ],
)
def test_a_seeded_client_whose_server_is_silent_inserts_within_its_time_limit(
    silent_address, insert, ended_within
):
    client = reverie.Client(silent_address, seed=1)
    begin = time.monotonic()
    with pytest.raises(errors.DeadlineExceededError):
        insert(client)
    assert ended_within(begin, 10.0)


def test_a_signal_handler_may_insert_while_a_seeded_client_waits_for_its_server(silent_address):
    client = reverie.Client(silent_address, seed=1)
    handled = []

    def handler(*_):
        with pytest.raises(errors.DeadlineExceededError):
            client.insert([1.0], {"t": 1.0}, timeout_s=0.1)
        handled.append(True)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(errors.DeadlineExceededError):
            client.insert([1.0], {"t": 1.0}, timeout_s=1.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert handled == [True]


def test_an_invalid_seed_or_a_seed_with_shards_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="seed is 3 with shards"):
        reverie.Client(["localhost:1", "localhost:2"], seed=3)
    with pytest.raises(errors.InvalidArgumentError, match="seed is -1"):
        reverie.Client("localhost:1", seed=-1)
