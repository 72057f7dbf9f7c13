"""Our datasets as tf.data, compared with those of dm-reverb."""

import numpy as np
import pytest
import reverb
import tensorflow as tf

import reverie

SIGNATURE = {
    "a": tf.TensorSpec([None, 2], tf.float32),
    "b": [tf.TensorSpec([None], tf.int64)],
    "s": tf.TensorSpec([None], tf.string),
}
IN_FLIGHT = {"max_in_flight_samples_per_worker": 10, "rate_limiter_timeout_ms": 300}


def fill(client, lengths, table="t"):
    with client.trajectory_writer(max(lengths)) as writer:
        for i, length in enumerate(lengths):
            for step in range(length):
                x = 10 * i + step
                writer.append(
                    {"a": np.full(2, x, np.float32), "b": [np.int64(x)], "s": str(x).encode()}
                )
            h = writer.history
            rows = {"a": h["a"][-length:], "b": [h["b"][0][-length:]], "s": h["s"][-length:]}
            writer.create_item(table, 1.0 + i, rows)
        writer.flush()


def queue(module, **options):
    return module.Table.queue("t", 1000, signature=SIGNATURE, **options)


def plain(sample):
    """A sample as plain Python values, without its random key."""
    data = tf.nest.map_structure(lambda x: np.asarray(x.numpy()).tolist(), sample.data)
    return [x.numpy().tolist() for x in sample.info[1:]], data


@pytest.mark.parametrize("kind", ["TrajectoryDataset", "TimestepDataset"])
@pytest.mark.parametrize("lengths", [[2] * 30, [1, 3, 3, 2, 1]])
def test_elements_match_those_of_dm_reverbs_dataset(dm_serve, kind, lengths):
    # dm-reverb needs the shapes of whole items if the table has a signature; here it has none.
    server = dm_serve(reverb.Table.queue("t", 1000))
    address = f"localhost:{server.port}"
    seen = []
    for module in (reverb, reverie.reverb):
        fill(reverb.Client(address), lengths)
        shapes = {"a": tf.TensorShape([None, 2]), "b": (tf.TensorShape([None]),)}
        shapes["s"] = tf.TensorShape([None])
        if kind == "TimestepDataset":
            shapes = tf.nest.map_structure(lambda s: s[1:], shapes)
        dataset = getattr(module, kind)(
            address,
            "t",
            dtypes={"a": tf.float32, "b": (tf.int64,), "s": tf.string},
            shapes=shapes,
            **IN_FLIGHT,
        )
        seen.append((dataset.element_spec, [plain(sample) for sample in dataset]))
    assert seen[0][0] == seen[1][0]
    # The size of the table depends on how much was drawn ahead.
    for theirs, ours in zip(seen[0][1], seen[1][1], strict=True):
        assert theirs[0][2:] == ours[0][2:]
        assert theirs[1] == ours[1]


def test_a_signature_gives_the_same_element_spec(dm_serve):
    address = f"localhost:{dm_serve(queue(reverb)).port}"
    specs = [
        module.TrajectoryDataset.from_table_signature(address, "t", 10).element_spec
        for module in (reverb, reverie.reverb)
    ]
    assert specs[0] == specs[1]


@pytest.mark.parametrize("columns", [4, 20_000])  # small and large items are split differently
def test_a_pipeline_batches_items_of_an_embedded_store(columns):
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        1000,
        reverie.rate_limiters.MinSize(1),
        max_times_sampled=1,
    )
    with reverie.Store([table]) as store:
        client = store.client()
        with client.trajectory_writer(1) as writer:
            for i in range(100):
                writer.append({"x": np.full(columns, i, np.float32), "n": np.int32(i)})
                writer.create_item("t", 1.0, {k: v[-1:] for k, v in writer.history.items()})
        dataset = reverie.TrajectoryDataset(
            client,
            "t",
            dtypes={"x": np.float32, "n": np.int32},
            shapes={"x": (1, columns), "n": (1,)},
            max_in_flight_samples_per_worker=32,
            rate_limiter_timeout_ms=200,
        ).as_tf()
        batches = list(dataset.map(lambda sample: sample.data).batch(10).prefetch(2))
    assert [int(n) for batch in batches for n in batch["n"][:, 0]] == list(range(100))
    assert batches[0]["x"].shape == (10, 1, columns)
    assert all(float(batch["x"][3, 0, -1]) == float(batch["n"][3, 0]) for batch in batches)


def test_a_dataset_can_be_left_and_iterated_again(serve):
    server = serve(queue(reverie))
    fill(server.client(), [1] * 50)
    dataset = reverie.TrajectoryDataset.from_table_signature(
        f"localhost:{server.port}", "t", **IN_FLIGHT
    ).as_tf()
    first = [sample.info.priority.numpy() for sample in dataset.take(5)]
    assert first == [1, 2, 3, 4, 5]
    rest = [sample.info.priority.numpy() for sample in dataset]
    # What was drawn ahead and not used goes back to the queue, as its newest items.
    assert set(rest) <= set(range(6, 51))
    assert len(set(rest)) == len(rest)
    assert 50 - 5 - 20 <= len(rest) <= 45


@pytest.mark.parametrize("columns", [4, 20_000])
def test_an_iterator_that_waits_without_limit_can_be_dropped(columns):
    with reverie.Store([reverie.Table.queue("t", 10)]) as store:
        client = store.client()
        for i in range(2):
            client.insert({"x": np.full(columns, i, np.float32), "s": b"text"}, {"t": 1.0})
        dataset = reverie.TrajectoryDataset(
            client,
            "t",
            dtypes={"x": np.float32, "s": bytes},
            shapes={"x": (None, columns), "s": (None,)},
            max_in_flight_samples_per_worker=10,
        )
        elements = iter(dataset.as_tf().prefetch(2))
        assert [float(next(elements).data["x"][0, 0]) for _ in range(2)] == [0, 1]
        del elements  # while its threads wait for a third item
        client.insert({"x": np.full(columns, 7, np.float32), "s": b"text"}, {"t": 1.0})
        assert float(next(iter(dataset.as_tf())).data["x"][0, 0]) == 7


def test_errors_end_a_pipeline_with_tensorflow_errors(serve):
    server = serve(queue(reverie))
    fill(server.client(), [1])
    address = f"localhost:{server.port}"
    dtypes = {"a": tf.float32, "b": (tf.int32,), "s": tf.string}
    shapes = {"a": (None, 2), "b": ((None,),), "s": (None,)}
    dataset = reverie.TrajectoryDataset(address, "t", dtypes, shapes, **IN_FLIGHT)
    with pytest.raises(tf.errors.InvalidArgumentError, match="signature of table 't'"):
        list(dataset.as_tf())
    dataset = reverie.TrajectoryDataset(address, "none", dtypes, shapes, **IN_FLIGHT)
    with pytest.raises(tf.errors.OpError, match="'none' does not exist"):
        list(dataset.as_tf())


@pytest.mark.parametrize("respects", [True, False])
@pytest.mark.parametrize("at_end", [True, False])
def test_pattern_datasets_match_those_of_dm_reverb(respects, at_end):
    steps = tf.data.Dataset.from_tensor_slices(
        {"a": np.arange(12), "b": [np.arange(24).reshape(12, 2)], "end": np.arange(12) % 4 == 3}
        | {"b": np.arange(24.0).reshape(12, 2)}
    )

    def is_end(step):
        return step["end"]

    seen = []
    for module in (reverb, reverie.reverb):
        structured = module.structured_writer
        step = structured.create_reference_step({"a": None, "b": None, "end": None})
        config = structured.create_config(
            {"x": step["a"][-2:], "y": (step["b"][-1],)},
            "t",
            [structured.Condition.is_end_episode()] if at_end else [],
        )
        dataset = module.PatternDataset(steps, [config], respects, is_end)
        with_info = module.pattern_dataset.pattern_dataset_with_info(
            steps, [config], respects, is_end
        )
        assert len(list(dataset)) == len(list(with_info)) > 0
        assert all(int(sample.info.key) == 0 for sample in with_info)
        seen.append(
            (
                dataset.element_spec,
                [tf.nest.map_structure(lambda x: x.numpy().tolist(), item) for item in dataset],
            )
        )
        with pytest.raises(ValueError, match="bool"):
            module.PatternDataset(steps, [config], respects, lambda s: s["a"])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("in_a_graph", [False, True])
def test_the_tensorflow_client_inserts_samples_and_updates(serve, in_a_graph):
    server = serve(
        reverie.Table(
            "t",
            reverie.selectors.Prioritized(1.0),
            reverie.selectors.Fifo(),
            10,
            reverie.rate_limiters.MinSize(1),
        )
    )
    client = reverie.reverb.TFClient(f"localhost:{server.port}")
    assert client.server_address == f"localhost:{server.port}"

    def play():
        client.insert(
            [tf.constant([1, 2], tf.int64), tf.constant(b"x")],
            tf.constant(["t"]),
            tf.constant([2.0], tf.float64),
        )
        return client.sample("t", (tf.int64, tf.string))

    info, (numbers, text) = (tf.function(play) if in_a_graph else play)()
    assert numbers.numpy().tolist() == [1, 2]
    assert text.numpy() == b"x"
    assert info.priority.numpy() == 2.0
    client.update_priorities("t", tf.reshape(info.key, [1]), tf.constant([7.0], tf.float64))
    assert client.sample("t", (tf.int64, tf.string)).info.priority.numpy() == 7.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="1 leaves"):
        client.sample("t", [tf.int64])
    with pytest.raises(tf.errors.NotFoundError, match="table"):
        client.sample("u", [tf.int64])
    with pytest.raises(tf.errors.InvalidArgumentError, match="float32 for column 0"):
        client.sample("t", [tf.float32, tf.string])
    for tables, priorities in [
        (tf.constant("t"), tf.constant([1.0], tf.float64)),
        (tf.constant(["t"]), tf.constant([1.0], tf.float32)),
        (tf.constant(["t"]), tf.constant([1.0, 2.0], tf.float64)),
    ]:
        with pytest.raises(ValueError, match=r"rank 1|give one each"):
            client.insert([tf.constant(1)], tables, priorities)


def test_the_module_has_the_names_of_reverb():
    def public(module):
        return {name for name in vars(module) if not name.startswith("_")}

    def of_reverb(module):
        return {
            name
            for name in public(module)
            if str(getattr(getattr(module, name), "__module__", "")).startswith("reverb")
        }

    missing = {"libpybind"}
    assert {
        name
        for name in public(reverb) - public(reverie.reverb)
        if name in reverb.__dict__.get("__all__", public(reverb))
    } <= missing
    for name in ("item_selectors", "rate_limiters", "errors", "replay_sample"):
        theirs, ours = getattr(reverb, name), getattr(reverie.reverb, name)
        assert all(hasattr(ours, name) for name in of_reverb(theirs))
    for name in of_reverb(reverb.structured_writer) - {"client_lib"}:
        assert hasattr(reverie.reverb.structured_writer, name)
    assert reverie.SampleInfo.tf_dtypes() == tuple(reverb.SampleInfo.tf_dtypes())
    assert reverie.SampleInfo.tf_shapes() == tuple(reverb.SampleInfo.tf_shapes())
