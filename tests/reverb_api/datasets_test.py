"""The datasets and ``TFClient``, which need TensorFlow."""

import importlib
import time
from typing import Any, NamedTuple

import numpy as np
import pytest

import reverie

tf = pytest.importorskip("tensorflow")

KINDS = ("TrajectoryDataset", "TimestepDataset")
ONE = {"max_in_flight_samples_per_worker": 1}


@pytest.fixture
def filled(table, serve):
    """A client of a server whose table has items 0, 1 and 2, of 1, 2 and 3 steps."""
    client = serve(table(max_times_sampled=1))
    with client.trajectory_writer(3) as writer:
        for steps in (1, 2, 3):
            for i in range(steps):
                writer.append({"x": np.float32(10 * steps + i), "n": np.int64(i)})
            history = writer.history
            writer.create_item("t", float(steps), {k: history[k][-steps:] for k in ("n", "x")})
            writer.end_episode()
    return client


def dataset(reverb, client, kind="TrajectoryDataset", **options):
    leading = (None,) if kind == "TrajectoryDataset" else ()
    settings = {
        "server_address": client.server_address,
        "table": "t",
        "dtypes": {"n": tf.int64, "x": tf.float32},
        "shapes": {"n": tf.TensorShape(leading), "x": tf.TensorShape(leading)},
        "max_in_flight_samples_per_worker": 5,
        "rate_limiter_timeout_ms": 200,
    }
    return getattr(reverb, kind)(**{**settings, **options})


def test_a_trajectory_dataset_yields_whole_items(reverb, filled):
    samples = list(dataset(reverb, filled))
    assert [sample.data["x"].numpy().tolist() for sample in samples] == [
        [10],
        [20, 21],
        [30, 31, 32],
    ]
    first = samples[0]
    assert isinstance(first, reverb.ReplaySample)
    assert isinstance(first.info, reverb.SampleInfo)
    assert [x.dtype for x in first.info] == list(reverb.SampleInfo.tf_dtypes())
    assert [x.shape for x in first.info] == list(reverb.SampleInfo.tf_shapes())
    assert [float(sample.info.priority) for sample in samples] == [1.0, 2.0, 3.0]


def test_a_timestep_dataset_yields_single_steps(reverb, filled):
    samples = list(dataset(reverb, filled, "TimestepDataset"))
    assert [float(s.data["x"]) for s in samples] == [10, 20, 21, 30, 31, 32]
    assert [float(s.info.priority) for s in samples] == [1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_is_a_tf_data_dataset_with_its_element_spec(reverb, filled, kind):
    made = dataset(reverb, filled, kind)
    assert isinstance(made, tf.data.Dataset)
    assert isinstance(made, getattr(reverb, kind))
    assert not isinstance(made, getattr(reverb, next(k for k in KINDS if k != kind)))
    spec = made.element_spec
    assert isinstance(spec, reverb.ReplaySample)
    assert spec.info == reverb.SampleInfo(
        *(tf.TensorSpec((), dtype) for dtype in reverb.SampleInfo.tf_dtypes())
    )
    leading = [None] if kind == "TrajectoryDataset" else []
    assert spec.data == {
        "n": tf.TensorSpec(leading, tf.int64),
        "x": tf.TensorSpec(leading, tf.float32),
    }


def test_lists_become_tuples(reverb, filled):
    made = dataset(
        reverb,
        filled,
        dtypes=[tf.int64, [tf.float32]],
        shapes=[tf.TensorShape([None]), [tf.TensorShape([None])]],
    )
    assert isinstance(made.element_spec.data, tuple)
    assert isinstance(made.element_spec.data[1], tuple)
    assert [s.data[1][0].shape[0] for s in made] == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {"max_in_flight_samples_per_worker": 0},
        {"max_in_flight_samples_per_worker": -1},
        {"num_workers_per_iterator": 0},
        {"num_workers_per_iterator": -2},
        {"max_samples_per_stream": 0},
        {"max_samples_per_stream": -2},
        {"rate_limiter_timeout_ms": -2},
        {"max_samples": 0},
        {"max_samples": -2},
        {"shapes": {"n": tf.TensorShape([])}},
    ],
)
def test_a_number_out_of_range_is_refused(reverb, kind, options):
    settings = {
        "dtypes": {"n": tf.int64, "x": tf.float32},
        "shapes": {"n": tf.TensorShape([]), "x": tf.TensorShape([])},
        **ONE,
    }
    with pytest.raises((ValueError, TypeError)):
        getattr(reverb, kind)("localhost:1", "t", **{**settings, **options})


def test_a_dataset_ends_after_max_samples(reverb, filled):
    assert len(list(dataset(reverb, filled, max_samples=2, rate_limiter_timeout_ms=-1))) == 2
    assert filled.server_info()["t"].current_size == 1


def test_a_dataset_ends_at_its_timeout(reverb, table, serve):
    client = serve(table())
    begun = time.perf_counter()
    assert list(dataset(reverb, client, rate_limiter_timeout_ms=300)) == []
    assert 0.25 < time.perf_counter() - begun < 2.5


@pytest.mark.parametrize(
    "options", [{"num_workers_per_iterator": 2}, {"max_samples_per_stream": 2}]
)
def test_several_workers_and_streams_return_every_sample_once(reverb, table, serve, options):
    client = serve(table(max_times_sampled=1))
    for i in range(6):
        client.insert({"n": np.int64(i), "x": np.float32(i)}, {"t": 1.0})
    samples = list(dataset(reverb, client, max_in_flight_samples_per_worker=1, **options))
    assert sorted(int(sample.data["n"][0]) for sample in samples) == list(range(6))


def test_columns_of_unequal_length_cannot_be_split_into_steps(reverb, table, serve):
    client = serve(table())
    with client.trajectory_writer(2) as writer:
        for i in range(2):
            writer.append({"n": np.int64(i), "x": np.float32(i)})
        history = writer.history
        writer.create_item("t", 1.0, {"n": history["n"][-2:], "x": history["x"][-1:]})
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iter(dataset(reverb, client, "TimestepDataset")))
    whole = next(iter(dataset(reverb, client)))
    assert (whole.data["n"].shape, whole.data["x"].shape) == ((2,), (1,))


def test_squeezed_columns_count_as_one_step(reverb, table, serve):
    client = serve(table())
    with client.trajectory_writer(2) as writer:
        writer.append({"n": np.int64(3), "x": np.float32(4)})
        history = writer.history
        writer.create_item("t", 1.0, {"n": history["n"][-1], "x": history["x"][-1:]})
    step = next(iter(dataset(reverb, client, "TimestepDataset")))
    assert (int(step.data["n"]), float(step.data["x"])) == (3, 4.0)
    shapes = {"n": tf.TensorShape([]), "x": tf.TensorShape([None])}
    whole = next(iter(dataset(reverb, client, shapes=shapes)))
    assert (whole.data["n"].shape, whole.data["x"].shape) == ((), (1,))


def test_an_iterator_cannot_be_saved_in_a_tensorflow_checkpoint(reverb, filled, tmp_path):
    samples = iter(dataset(reverb, filled))
    # The two libraries raise different ones.
    with pytest.raises((tf.errors.UnimplementedError, tf.errors.FailedPreconditionError)):
        tf.train.Checkpoint(samples=samples).save(str(tmp_path / "saved"))


@pytest.mark.parametrize(
    ("dtypes", "shapes"),
    [
        ({"x": tf.float32}, {"x": tf.TensorShape([None])}),
        ({"x": tf.int64}, {"x": tf.TensorShape([None, 2])}),
        (
            {"x": tf.int64, "y": tf.int64},
            {"x": tf.TensorShape([None]), "y": tf.TensorShape([None])},
        ),
    ],
)
def test_a_dataset_that_does_not_match_the_table_signature_is_refused(
    reverb, table, serve, spec, dtypes, shapes
):
    client = serve(table(signature={"x": spec((None,), "int64")}))
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iter(dataset(reverb, client, dtypes=dtypes, shapes=shapes)))


def test_column_names_may_differ_from_the_signature(reverb, table, serve, spec):
    client = serve(table(signature={"x": spec((None,), "int64")}))
    client.insert({"x": np.int64(1)}, {"t": 1.0})
    named = {"dtypes": {"y": tf.int64}, "shapes": {"y": tf.TensorShape([None])}}
    assert next(iter(dataset(reverb, client, **named))).data["y"].numpy().tolist() == [1]


# --- Patterns over existing steps


@pytest.fixture
def steps():
    ends = [False, False, True, False, False, True]
    return tf.data.Dataset.from_tensor_slices({"a": np.arange(6), "end": ends})


@pytest.fixture
def pairs(reverb, steps):
    step = reverb.structured.create_reference_step(steps.element_spec)
    return [reverb.structured.create_config({"x": step["a"][-2:]}, "t")]


@pytest.mark.parametrize("respects", [True, False])
def test_a_pattern_dataset_makes_items_of_existing_steps(reverb, steps, pairs, respects):
    made = reverb.PatternDataset(steps, pairs, respects, lambda step: step["end"])
    assert isinstance(made, tf.data.Dataset)
    assert isinstance(made, reverb.PatternDataset)
    assert made.element_spec == {"x": tf.TensorSpec((2,), tf.int64)}
    over_the_end = [] if respects else [[2, 3]]
    expected = [[0, 1], [1, 2], *over_the_end, [3, 4], [4, 5]]
    assert [item["x"].numpy().tolist() for item in made] == expected


def test_a_pattern_dataset_with_info_yields_samples(reverb, steps, pairs):
    make = reverb.pattern_dataset.pattern_dataset_with_info
    first = next(iter(make(steps, pairs, True, lambda step: step["end"])))
    assert isinstance(first, reverb.ReplaySample)
    assert [float(x) for x in first.info] == [0] * 5
    assert first.data["x"].numpy().tolist() == [0, 1]


def test_invalid_arguments_of_a_pattern_dataset_are_refused(reverb, steps, pairs):
    for ends in (lambda step: step["a"], lambda step: tf.expand_dims(step["end"], 0)):
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            reverb.PatternDataset(steps, pairs, True, ends)
    with pytest.raises(ValueError, match="At least one config"):
        reverb.PatternDataset(steps, [], True, lambda step: step["end"])


def test_an_address_may_be_a_tensor(reverb, table):
    servers = [reverb.Server([table(max_times_sampled=1)]) for _ in range(2)]
    for i, server in enumerate(servers):
        for k in range(3):
            server.localhost_client().insert([np.int64(10 * i + k)], {"t": 1.0})
    addresses = tf.data.Dataset.from_tensor_slices([f"localhost:{s.port}" for s in servers])

    def samples(address):
        return reverb.TrajectoryDataset(
            address,
            tf.constant("t"),
            (tf.int64,),
            (tf.TensorShape([None]),),
            max_in_flight_samples_per_worker=5,
            rate_limiter_timeout_ms=500,
        )

    seen = [int(s.data[0][0]) for s in addresses.interleave(samples, cycle_length=2)]
    assert sorted(seen) == [0, 1, 2, 10, 11, 12]
    for server in servers:
        server.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_can_be_made_from_a_table_signature(reverb, table, serve, spec, kind):
    leading = (None,) if kind == "TrajectoryDataset" else ()
    signature = {"a": spec((*leading, 2), "float32"), "b": [spec(leading, "int64")]}
    client = serve(table(signature=signature, max_times_sampled=1))
    with client.trajectory_writer(3, validate_items=False) as writer:
        for i in range(3):
            writer.append({"a": np.full(2, i, np.float32), "b": [np.int64(i)]})
        history = writer.history
        writer.create_item("t", 1.0, {"a": history["a"][:], "b": [history["b"][0][:]]})
    made = getattr(reverb, kind).from_table_signature(
        server_address=client.server_address,
        table="t",
        max_in_flight_samples_per_worker=2,
        rate_limiter_timeout_ms=200,
        get_signature_timeout_secs=10,
    )
    assert made.element_spec.data["a"] == tf.TensorSpec((*leading, 2), tf.float32)
    samples = list(made)
    if kind == "TrajectoryDataset":
        assert samples[0].data["a"].shape == (3, 2)
    else:
        assert [int(s.data["b"][0]) for s in samples] == [0, 1, 2]


class Transition(NamedTuple):
    """A NamedTuple as in Acme, whose fields are not in alphabetical order."""

    observation: Any
    action: Any


def test_a_signature_may_be_a_named_tuple(reverb, table, serve, spec):
    signature = Transition(spec((3,), "float32"), spec((), "int64"))
    client = serve(table(signature=signature))
    client.insert(Transition(np.ones(3, np.float32), np.int64(7)), {"t": 1.0})
    unpacked = next(client.sample("t", unpack_as_table_signature=True))[0].data
    assert unpacked.observation.tolist() == [1, 1, 1]
    assert unpacked.action == 7
    whole = client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)
    assert next(whole).data.action.tolist() == [7]
    made = reverb.TimestepDataset.from_table_signature(
        client.server_address, "t", max_in_flight_samples_per_worker=1, max_samples=1
    )
    assert made.element_spec.data._fields == ("observation", "action")
    (sample,) = made
    assert sample.data.observation.numpy().tolist() == [1, 1, 1]
    assert int(sample.data.action) == 7


@pytest.mark.parametrize("max_samples", [-1, 3])
def test_a_dataset_continues_when_its_server_is_back(reverb, table, is_ours, max_samples):
    if not is_ours:
        pytest.skip("a difference: dm-reverb's has not come back within 40 s")
    server = reverb.Server([table(max_times_sampled=1)])
    port = server.port
    server.localhost_client().insert([np.int64(1)], {"t": 1.0})
    made = reverb.TrajectoryDataset(
        f"localhost:{port}",
        "t",
        (tf.int64,),
        (tf.TensorShape([None]),),
        max_in_flight_samples_per_worker=1,
        max_samples=max_samples,
    )
    samples = iter(made)
    assert next(samples).data[0].numpy().tolist() == [1]
    server.stop()
    again = reverb.Server([table(max_times_sampled=1)], port=port)
    again.localhost_client().insert([np.int64(2)], {"t": 1.0})
    assert next(samples).data[0].numpy().tolist() == [2]
    again.localhost_client().insert([np.int64(3)], {"t": 1.0})
    assert next(samples).data[0].numpy().tolist() == [3]
    if max_samples == 3:
        assert list(samples) == []
    del samples
    again.stop()


def test_a_dataset_fails_after_the_retry_timeout_of_its_client(reverb, table, is_ours):
    if not is_ours:
        pytest.skip("a difference: dm-reverb tries without end")
    server = reverb.Server([table()])
    server.localhost_client().insert([np.int64(1)], {"t": 1.0})
    client = reverb.Client(f"localhost:{server.port}", retry_timeout_s=0.5)
    made = reverie.TrajectoryDataset(client, "t", (np.int64,), ((None,),), 1)
    samples = iter(made.as_tf())
    assert next(samples).data[0].numpy().tolist() == [1]
    server.stop()
    given_up = "DeadlineExceededError|UnavailableError|CancelledError"
    with pytest.raises(tf.errors.UnknownError, match=given_up):
        list(samples)


def test_a_table_may_have_another_signature_after_a_restart(reverb, table, spec):
    server = reverb.Server([table(signature={"a": spec((), "int64")})])
    port = server.port
    client = reverb.Client(f"localhost:{port}")
    client.insert({"a": np.int64(1)}, {"t": 1.0})
    assert next(client.sample("t", unpack_as_table_signature=True))[0].data == {"a": 1}
    server.stop()
    other = {"b": spec((2,), "float32"), "c": spec((), "int64")}
    again = reverb.Server([table(signature=other)], port=port)
    client = reverb.Client(f"localhost:{port}")
    with pytest.raises(ValueError, match="signature"):
        client.insert({"a": np.int64(1)}, {"t": 1.0})
    client.insert({"b": np.ones(2, np.float32), "c": np.int64(2)}, {"t": 1.0})
    data = next(client.sample("t", unpack_as_table_signature=True))[0].data
    assert data["b"].tolist() == [1, 1]
    assert data["c"] == 2
    again.stop()


def test_from_table_signature_needs_a_table_with_a_signature(reverb, table, serve):
    client = serve(table())
    for name in ("t", "u"):
        with pytest.raises(ValueError, match=name):
            reverb.TrajectoryDataset.from_table_signature(client.server_address, name, 1)
    with pytest.raises(reverb.DeadlineExceededError):
        reverb.TrajectoryDataset.from_table_signature(
            "localhost:1", "t", 1, get_signature_timeout_secs=1
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtypes": {"n": tf.int64, "x": tf.float64}},
        {"shapes": {"n": tf.TensorShape([None]), "x": tf.TensorShape([None, 2])}},
        {"dtypes": {"n": tf.int64}, "shapes": {"n": tf.TensorShape([None])}},
    ],
)
def test_a_dataset_that_does_not_match_the_items_is_an_invalid_argument(reverb, filled, wrong):
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(dataset(reverb, filled, **wrong))


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_table_raises_not_found(reverb, filled, kind):
    made = dataset(reverb, filled, kind, table="u")
    for pipeline in (made, made.map(lambda s: s.data["x"]).batch(2).prefetch(1)):
        with pytest.raises(tf.errors.NotFoundError, match="u"):
            next(iter(pipeline))
    # An error of one iterator does not affect another.
    failing, fine = iter(made), iter(dataset(reverb, filled, kind))
    with pytest.raises(tf.errors.NotFoundError):
        next(failing)
    assert float(next(fine).info.priority) == 1.0


def test_a_dataset_works_in_a_tf_data_pipeline(reverb, filled):
    made = dataset(reverb, filled).map(lambda s: tf.reduce_sum(s.data["x"])).batch(2).prefetch(1)
    assert [batch.numpy().tolist() for batch in made] == [[10, 41], [93]]


def test_a_dataset_works_with_an_initializable_iterator_in_a_graph(reverb, filled):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset(reverb, filled))
        element = iterator.get_next()
        session.run(iterator.initializer)
        assert [session.run(element).data["n"].tolist() for _ in range(3)] == [
            [0],
            [0, 1],
            [0, 1, 2],
        ]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(element)


def test_a_dataset_works_with_a_distribution_strategy(reverb, filled):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    made = strategy.experimental_distribute_dataset(
        dataset(reverb, filled).map(lambda s: s.data["x"][0]).batch(3)
    )
    assert [batch.numpy().tolist() for batch in made] == [[10, 20, 30]]


# --- TFClient


def test_tf_client_inserts_and_samples(reverb, table, serve):
    client = serve(table(), table("u"))
    made = reverb.TFClient(client.server_address, shared_name=None, name="name")
    assert made.server_address == client.server_address
    made.insert(
        [tf.constant([1, 2], tf.int64), tf.constant(b"text")],
        tables=tf.constant(["t", "u"]),
        priorities=tf.constant([2.0, 3.0], tf.float64),
    )
    sample = made.sample("t", data_dtypes={"n": tf.int64, "s": tf.string})
    assert isinstance(sample, reverb.ReplaySample)
    assert sample.data["n"].numpy().tolist() == [1, 2]
    assert sample.data["s"].numpy() == b"text"
    assert [float(x) for x in sample.info[1:]] == [1.0, 1.0, 2.0, 1.0]
    made.update_priorities(
        "t", keys=tf.reshape(sample.info.key, [1]), priorities=tf.constant([7.0], tf.float64)
    )
    assert float(made.sample("t", [tf.int64, tf.string]).info.priority) == 7.0


@pytest.mark.parametrize(
    ("tables", "priorities"),
    [
        (["t"], np.float32([1])),
        ("t", np.float64([1])),
        (["t"], np.float64(1)),
        ([1], np.float64([1])),
        (["t"], np.float64([1, 2])),
    ],
)
def test_tf_client_refuses_invalid_tables_and_priorities(reverb, tables, priorities):
    made = reverb.TFClient("localhost:1")
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        made.insert([tf.constant(1)], tf.constant(tables), tf.constant(priorities))


def test_tf_client_raises_tensorflow_errors(reverb, table, serve):
    client = serve(table())
    client.insert([np.int64(1)], {"t": 1.0})
    made = reverb.TFClient(client.server_address)
    with pytest.raises(tf.errors.NotFoundError):
        made.sample("u", [tf.int64])
    for wrong in ([tf.float32], [tf.int64, tf.int64]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            made.sample("t", wrong)
    with pytest.raises(tf.errors.NotFoundError):
        made.update_priorities("u", tf.constant([1], tf.uint64), tf.constant([1.0], tf.float64))
    with pytest.raises(tf.errors.InvalidArgumentError):
        made.update_priorities("t", tf.constant([1], tf.uint64), tf.constant([1.0, 2], tf.float64))


def test_tf_client_refuses_steps_of_another_signature(reverb, table, serve):
    signature = {"a": tf.TensorSpec((), tf.int64), "b": tf.TensorSpec((2,), tf.float32)}
    client = serve(table(signature=signature))
    made = reverb.TFClient(client.server_address)
    where = {"tables": tf.constant(["t"]), "priorities": tf.constant([1.0], tf.float64)}
    a, b = tf.constant(1, tf.int64), tf.constant([1.0, 2.0])
    made.insert([a, b], **where)
    for step in ([a], [a, b, b], [tf.constant(1), b], [a, tf.constant([1.0])], [b, a]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            made.insert(step, **where)
    assert client.server_info()["t"].current_size == 1


def test_tf_client_raises_the_same_errors_in_a_graph(reverb, table, serve):
    client = serve(table())
    client.insert([np.int64(1)], {"t": 1.0})
    made = reverb.TFClient(client.server_address)
    keys, priorities = tf.constant([1], tf.uint64), tf.constant([1.0], tf.float64)

    @tf.function
    def sample(name, dtype):
        return made.sample(name, [dtype]).data[0]

    @tf.function
    def update(name):
        made.update_priorities(name, keys, priorities)
        return keys

    assert int(sample("t", tf.int64)) == 1
    assert int(update("t")[0]) == 1
    for call in (lambda: sample("u", tf.int64), lambda: update("u")):
        with pytest.raises(tf.errors.NotFoundError, match="u"):
            call()
    # With dm-reverb TensorFlow raises the error, with its own message.
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.InternalError)):
        sample("t", tf.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = reverb.TFClient(client.server_address)
        drawn = made.sample("t", [tf.int64])
        missing = made.sample("u", [tf.int64])
        assert int(session.run(drawn.data[0])) == 1
        with pytest.raises(tf.errors.NotFoundError):
            session.run(missing.info.key)


def test_tf_client_refuses_keys_and_priorities_of_other_types(reverb, table, serve):
    made = reverb.TFClient(serve(table()).server_address)
    keys, priorities = tf.constant([1], tf.uint64), tf.constant([1.0], tf.float64)
    assert made.update_priorities("t", keys, priorities) is None  # one key does not exist
    for wrong in ((keys, tf.constant([1.0])), (tf.constant([1]), priorities)):
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            made.update_priorities("t", *wrong)
    with pytest.raises(tf.errors.InvalidArgumentError):
        made.update_priorities("t", tf.constant(1, tf.uint64), tf.constant(1.0, tf.float64))


def test_tf_client_refuses_unknown_tables_and_nan_priorities(reverb, table, serve):
    client = serve(table())
    made = reverb.TFClient(client.server_address)
    for name, priority in (("u", 1.0), ("t", float("nan"))):
        with pytest.raises(tf.errors.InvalidArgumentError):
            made.insert([tf.constant(1)], tf.constant([name]), tf.constant([priority], tf.float64))
    assert client.server_info()["t"].current_size == 0


@pytest.mark.parametrize("tables", [[], ["t", "t"], ["t", "u", "t"]])
def test_tf_client_inserts_an_item_for_each_table(reverb, table, serve, tables):
    client = serve(table(), table("u"))
    priorities = np.arange(1.0, len(tables) + 1)
    made = reverb.TFClient(client.server_address)
    made.insert([tf.constant(1)], tf.constant(tables, tf.string), tf.constant(priorities))
    sizes = {name: info.current_size for name, info in client.server_info().items()}
    assert sizes == {"t": tables.count("t"), "u": tables.count("u")}


def test_tensors_can_be_inserted(table, serve):
    client = serve(table())
    step = {"a": tf.constant([1.0, 2.0]), "b": tf.constant(b"x"), "c": tf.constant(["y", "zz"])}
    client.insert(step, {"t": 1.0})
    ((sample,),) = client.sample("t")
    assert sample.data[0].tolist() == [1.0, 2.0]
    assert sample.data[0].dtype == np.float32
    assert sample.data[1].item() == b"x"
    assert sample.data[2].tolist() == [b"y", b"zz"]


def test_signatures_are_returned_as_tensorflow_specs(table, serve):
    pair = importlib.import_module("collections").namedtuple("Pair", ["a", "b"])
    signature = pair(
        tf.TensorSpec((None, 3), tf.float32, name="named"), [tf.TensorSpec((), tf.string)]
    )
    client = serve(table(signature=signature))
    shown = client.server_info()["t"].signature
    assert shown == signature
    assert shown._fields == ("a", "b")
    assert shown.a.name == "named"
    bounded = importlib.import_module("tensorflow.python.framework.tensor_spec")
    bounded = bounded.BoundedTensorSpec((2,), tf.int32, 0, 5, name="bounded")
    client = serve(table(signature={"x": bounded}))
    assert client.server_info()["t"].signature["x"] == bounded
