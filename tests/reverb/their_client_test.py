"""dm-reverb's clients with our server."""

import threading

import numpy as np
import pytest
import reverb
import tensorflow as tf

import reverie


def uniform(name="t", max_size=1000, **options):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        **options,
    )


def fifo(name="t", max_size=1000, **options):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        **options,
    )


def their_client(server):
    return reverb.Client(f"localhost:{server.port}")


TYPES = (
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["float16", "float32", "float64"]
    + ["complex64", "complex128"]
)


def everything(step):
    """A step with a column of every type that dm-reverb accepts."""
    data = {t: np.arange(6).reshape(2, 3).astype(t) + np.array(step).astype(t) for t in TYPES}
    data["bool"] = np.array([step % 2 == 0, True])
    data["text"] = np.array([b"step", str(step).encode(), b""], dtype=object)
    data["empty"] = np.zeros((0, 3), np.float32)
    return data


def assert_same(got, want):
    got = np.asarray(got)
    assert got.shape == np.asarray(want).shape
    assert (got == np.asarray(want)).all()


def test_a_step_is_inserted_and_sampled(serve):
    client = their_client(serve(uniform()))
    client.insert([np.arange(3), np.float32(2.5)], {"t": 1.5})
    (sample,) = next(client.sample("t", 1))
    assert_same(sample.data[0], np.arange(3))
    assert_same(sample.data[1], np.float32(2.5))
    assert sample.info.priority == 1.5
    assert sample.info.table_size == 1
    assert sample.info.times_sampled == 1
    assert sample.info.probability == 1.0


def test_every_type_round_trips_through_the_trajectory_writer(serve):
    server = serve(fifo())
    client = their_client(server)
    with client.trajectory_writer(num_keep_alive_refs=5) as writer:
        for step in range(5):
            writer.append(everything(step))
        writer.create_item("t", 1.0, {name: column[-3:] for name, column in writer.history.items()})
        writer.flush()
    want = {n: np.stack([everything(s)[n] for s in (2, 3, 4)]) for n in everything(0)}
    names = sorted(want)
    theirs = next(client.sample("t", 1, emit_timesteps=False)).data
    for name, column in zip(names, theirs, strict=True):
        assert_same(column, want[name])
    # The same drawn by a client in the store's process, whose columns have numbers as names.
    ours = server.client().sample_batch("t", 1).data
    for i, name in enumerate(names):
        assert ours[i].shape[0] == 1
        if name == "text":
            assert ours[i][0].tolist() == want[name].tolist()
        else:
            assert ours[i].dtype == want[name].dtype
            assert_same(ours[i][0], want[name])


@pytest.mark.parametrize("delta", [False, True])
def test_items_of_the_legacy_writer_round_trip(serve, delta):
    server = serve(fifo())
    client = their_client(server)
    with client.writer(max_sequence_length=6, delta_encoded=delta, chunk_length=3) as writer:
        for step in range(6):
            writer.append(everything(step))
        writer.create_item("t", num_timesteps=4, priority=1.0)
    want = {n: np.stack([everything(s)[n] for s in (2, 3, 4, 5)]) for n in everything(0)}
    theirs = next(client.sample("t", 1, emit_timesteps=False)).data
    for name, column in zip(sorted(want), theirs, strict=True):
        assert_same(column, want[name])
    ours = server.client().sample_batch("t", 1).data
    for i, name in enumerate(sorted(want)):
        assert ours[i][0].tolist() == want[name].tolist()


def test_dm_reverbs_client_reads_items_of_an_embedded_writer(serve):
    server = serve(fifo())
    pixels = np.random.default_rng(3).integers(0, 255, (20, 84, 84), np.uint8)
    with server.client().trajectory_writer(5, chunk_length=10) as writer:
        for step in range(20):
            writer.append({"a": everything(step)["float32"], "pixels": pixels[step], "s": "é"})
        writer.create_item(
            "t",
            2.0,
            {
                "a": writer.history["a"][-4:],
                "last": writer.history["a"][-1],
                "pixels": writer.history["pixels"][-4:],
                "s": writer.history["s"][-2:],
            },
        )
    client = their_client(server)
    for _ in range(2):
        sample = next(client.sample("t", 1, emit_timesteps=False))
        assert sample.info.priority == 2.0
        a, last, shown, text = sample.data
        assert_same(a, np.stack([everything(s)["float32"] for s in range(16, 20)]))
        assert_same(last, everything(19)["float32"])
        assert_same(shown, pixels[16:])
        assert text.tolist() == ["é".encode()] * 2


@pytest.mark.parametrize("codec", ["raw", "lz4", "zstd"])
def test_dm_reverbs_client_reads_items_of_reveries_client(serve, codec):
    server = serve(fifo(max_times_sampled=1))
    pixels = np.random.default_rng(3).integers(0, 255, (20, 84, 84), np.uint8)
    pixels[:, 20:] = 0
    with server.localhost_client().trajectory_writer(5, codec=codec) as writer:
        for step in range(20):
            a = everything(step)["float32"]
            writer.append({"a": a, "nothing": np.zeros(0, np.float32), "pixels": pixels[step]})
            if step > 0:
                columns = {name: column[-2:] for name, column in writer.history.items()}
                writer.create_item("t", float(step), columns)
            if step < 4:
                writer.flush()  # from the second flush on chunks are sent in the server's own form
    drawn = list(their_client(server).sample("t", 19, emit_timesteps=False))
    for step, sample in enumerate(drawn, start=1):
        assert sample.info.priority == step
        a, nothing, shown = sample.data
        assert_same(a, np.stack([everything(s)["float32"] for s in (step - 1, step)]))
        assert nothing.shape == (2, 0)
        assert_same(shown, pixels[step - 1 : step + 1])


def test_a_dataset_follows_the_signature_and_ends_after_max_samples(serve):
    signature = {
        "a": reverie.TensorSpec((None, 2), np.float32),
        "b": (reverie.TensorSpec((None,), np.int64), reverie.TensorSpec((None,), bytes)),
    }
    server = serve(uniform(signature=signature))
    client = their_client(server)
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in range(10):
            writer.append(
                {"a": np.full(2, step, np.float32), "b": (np.int64(step), f"step {step}")}
            )
            if step >= 2:
                writer.create_item(
                    "t",
                    1.0,
                    {
                        "a": writer.history["a"][-3:],
                        "b": (writer.history["b"][0][-3:], writer.history["b"][1][-3:]),
                    },
                )
        writer.flush()
    dataset = reverb.TrajectoryDataset.from_table_signature(
        f"localhost:{server.port}", "t", max_in_flight_samples_per_worker=7, max_samples=500
    )
    count = 0
    for sample in dataset:
        first = int(sample.data["a"][0, 0])
        assert sample.data["b"][0].numpy().tolist() == [first, first + 1, first + 2]
        assert sample.data["b"][1].numpy()[0] == f"step {first}".encode()
        assert 0 < sample.info.probability <= 1
        count += 1
    assert count == 500
    # A client in the store's process gets the nest of the signature.
    batch = server.client().sample_batch("t", 4)
    assert batch.data["a"].shape == (4, 3, 2)
    assert batch.data["b"][0].dtype == np.int64


def test_a_dataset_ends_when_the_limiter_times_out(serve):
    server = serve(reverie.Table.queue("t", 10, signature=reverie.TensorSpec((1,), np.int64)))
    client = their_client(server)
    for i in range(3):
        client.insert(np.int64(i), {"t": 1.0})
    dataset = reverb.TrajectoryDataset.from_table_signature(
        f"localhost:{server.port}",
        "t",
        max_in_flight_samples_per_worker=1,
        rate_limiter_timeout_ms=200,
    )
    assert [int(sample.data[0]) for sample in dataset] == [0, 1, 2]


def test_a_timestep_dataset_yields_steps(serve):
    server = serve(fifo(max_times_sampled=1))
    client = their_client(server)
    with client.writer(max_sequence_length=4) as writer:
        for step in range(4):
            writer.append(np.int32(step))
        writer.create_item("t", 4, 1.0)
    dataset = reverb.TimestepDataset(
        f"localhost:{server.port}",
        "t",
        tf.int32,
        tf.TensorShape([]),
        max_in_flight_samples_per_worker=1,
        rate_limiter_timeout_ms=200,
    )
    assert [int(step.data) for step in dataset] == [0, 1, 2, 3]


def test_priorities_are_updated_and_items_deleted_and_reset(serve):
    server = serve(
        reverie.Table(
            "t",
            sampler=reverie.selectors.Prioritized(1.0),
            remover=reverie.selectors.Fifo(),
            max_size=100,
            rate_limiter=reverie.rate_limiters.MinSize(1),
        )
    )
    client = their_client(server)
    for i in range(3):
        client.insert(np.int64(i), {"t": 1.0})
    keys = {}
    while len(keys) < 3:
        (sample,) = next(client.sample("t", 1))
        keys[int(sample.data[0])] = sample.info.key
    client.mutate_priorities("t", updates={keys[0]: 0.0, keys[1]: 0.0, 12345: 5.0}, deletes=[9])
    assert all(int(next(client.sample("t", 1))[0].data[0]) == 2 for _ in range(20))
    client.mutate_priorities("t", deletes=[keys[2]])
    assert client.server_info()["t"].current_size == 2
    with pytest.raises(ValueError, match="Priority must not be negative"):
        client.mutate_priorities("t", updates={keys[0]: -1.0})
    client.reset("t")
    assert client.server_info()["t"].current_size == 0


def test_server_info_describes_the_table(serve):
    signature = {"b": reverie.TensorSpec((None, 3), np.float32), "a": reverie.TensorSpec((), int)}
    server = serve(
        reverie.Table(
            "t",
            sampler=reverie.selectors.Prioritized(0.8),
            remover=reverie.selectors.MinHeap(),
            max_size=77,
            max_times_sampled=3,
            rate_limiter=reverie.rate_limiters.SampleToInsertRatio(2.0, 5, 6.0),
            signature=signature,
        ),
        reverie.Table.stack("u", 5),
    )
    info = their_client(server).server_info(timeout=10)
    assert set(info) == {"t", "u"}
    table = info["t"]
    assert table.max_size == 77
    assert table.max_times_sampled == 3
    assert table.sampler_options.prioritized.priority_exponent == 0.8
    assert table.remover_options.heap.min_heap
    assert table.rate_limiter_info.samples_per_insert == 2.0
    assert table.rate_limiter_info.min_size_to_sample == 5
    assert table.rate_limiter_info.min_diff == 4.0
    assert table.rate_limiter_info.max_diff == 16.0
    assert table.signature["b"] == tf.TensorSpec((None, 3), tf.float32)
    assert table.signature["a"] == tf.TensorSpec((), tf.int64)
    assert info["u"].sampler_options.lifo
    assert info["u"].signature is None


def test_errors_have_the_texts_of_dm_reverb(serve):
    client = their_client(serve(fifo()))
    with pytest.raises(RuntimeError, match="Priority table none was not found"):
        next(client.sample("none", 1))
    with pytest.raises(RuntimeError, match="Priority table none was not found"):
        client.reset("none")
    with pytest.raises(RuntimeError, match="Priority table none was not found"):
        client.mutate_priorities("none", updates={1: 1.0})
    with pytest.raises(NotImplementedError, match="checkpoint"):
        client.checkpoint()
    writer = client.trajectory_writer(1, validate_items=False)
    writer.append(1)
    writer.create_item("none", 1.0, writer.history[-1:])
    with pytest.raises(RuntimeError, match="Priority table none was not found"):
        writer.flush()
    writer.close()


def test_the_reason_for_a_refused_item_reaches_dm_reverbs_client(serve):
    client = their_client(serve(fifo(signature={"x": reverie.TensorSpec((None,), np.int64)})))
    writer = client.trajectory_writer(1, validate_items=False)
    writer.append({"x": np.float32(1)})
    writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
    with pytest.raises(ValueError, match=r"float32.*signature says x: int64"):
        writer.flush()
    writer.close()
    assert client.server_info()["t"].current_size == 0


def test_a_full_queue_blocks_the_writer_until_samples_are_drawn(serve):
    server = serve(reverie.Table.queue("t", 3))
    client = their_client(server)
    done = threading.Event()

    def write():
        with client.trajectory_writer(1) as writer:
            for step in range(20):
                writer.append(np.int64(step))
                writer.create_item("t", 1.0, writer.history[-1:])
            writer.flush()
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    values = [int(sample[0].data[0]) for sample in client.sample("t", 20)]
    thread.join(timeout=30)
    assert done.is_set()
    assert values == list(range(20))
    assert client.server_info()["t"].current_size == 0


def test_many_short_samplers_do_not_break_the_connection(serve):
    client = their_client(serve(uniform()))
    client.insert(np.int64(1), {"t": 1.0})
    for _ in range(1500):
        next(client.sample("t", 1))


def test_large_steps_round_trip(serve):
    client = their_client(serve(fifo()))
    big = np.random.default_rng(1).normal(size=(3, 1_500_000)).astype(np.float32)
    with client.trajectory_writer(3) as writer:
        for row in big:
            writer.append(row)
        writer.create_item("t", 1.0, writer.history[-3:])
        writer.flush()
    sample = next(client.sample("t", 1, emit_timesteps=False))
    assert_same(sample.data[0], big)


def test_a_writer_continues_after_a_restart_of_the_server(serve):
    server = serve(fifo())
    port = server.port
    client = their_client(server)
    writer = client.trajectory_writer(1)
    writer.append(np.int64(1))
    writer.create_item("t", 1.0, writer.history[-1:])
    writer.flush()
    server.stop()
    again = serve(fifo(), port=port)
    writer.append(np.int64(2))
    writer.create_item("t", 1.0, writer.history[-1:])
    writer.flush(timeout_ms=60_000)
    writer.close()
    assert again.client().server_info()["t"].current_size == 1


def test_two_servers_cannot_share_a_port(serve):
    server = serve(fifo())
    with pytest.raises(reverie.errors.AlreadyExistsError):
        reverie.Server([fifo()], port=server.port)


def test_dm_reverbs_structured_writer_works(serve):
    client = their_client(serve(fifo()))
    reference = reverb.structured_writer.create_reference_step({"a": None, "b": None})
    config = reverb.structured_writer.create_config(
        pattern={"pair": reference["a"][-2:], "last": reference["b"][-1]}, table="t"
    )
    writer = client.structured_writer([config])
    for step in range(4):
        writer.append({"a": np.int32(step), "b": np.float32(step)})
    writer.flush()
    sample = next(client.sample("t", 1, emit_timesteps=False))
    assert [column.tolist() for column in sample.data] == [1.0, [0, 1]]
    assert client.server_info()["t"].current_size == 3


def test_dm_reverbs_tensorflow_client_works(serve):
    server = serve(uniform())
    client = reverb.TFClient(f"localhost:{server.port}")
    client.insert(
        [tf.constant([1, 2], tf.int64), tf.constant(b"x")],
        tf.constant(["t"]),
        tf.constant([2.0], tf.float64),
    )
    info, (numbers, text) = client.sample("t", [tf.int64, tf.string])
    assert numbers.numpy().tolist() == [1, 2]
    assert text.numpy() == b"x"
    client.update_priorities("t", tf.reshape(info.key, [1]), tf.constant([7.0], tf.float64))
    assert client.sample("t", [tf.int64, tf.string]).info.priority.numpy() == 7.0
