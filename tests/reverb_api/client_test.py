"""The client: inserting, sampling, priorities."""

import concurrent.futures
import inspect

import numpy as np
import pytest


def test_a_client_can_be_created_before_its_server(reverb):
    assert reverb.Client("localhost:1").server_address == "localhost:1"


def test_several_threads_can_use_a_client(reverb, table, serve):
    client = serve(table(sampler=reverb.selectors.Uniform()))
    client.insert([0], {"t": 1.0})

    def work(thread):
        for i in range(20):
            client.insert([100 * thread + i], {"t": 1.0})
            ((sample,),) = client.sample("t")
            client.mutate_priorities("t", {sample.info.key: 2.0})
            assert client.server_info(timeout=60)["t"].current_size > 0

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert client.server_info()["t"].current_size == 81


def test_an_insert_needs_a_priority(table, serve):
    client = serve(table())
    with pytest.raises(ValueError, match="priorities"):
        client.insert([1], {})


def test_inserting_into_an_unknown_table_is_refused(table, serve):
    client = serve(table())
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        client.insert([1], {"u": 1.0})


def test_a_priority_of_nan_is_refused(table, serve):
    client = serve(table())
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        client.insert([1], {"t": float("nan")})


@pytest.mark.parametrize(
    "value",
    [
        np.float16(1.5),
        np.float32(1.5),
        np.float64(1.5),
        np.int8(-3),
        np.uint8(3),
        np.int16(-3),
        np.uint16(3),
        np.int32(-3),
        np.uint32(3),
        np.int64(-3),
        np.uint64(3),
        np.bool_(True),
        np.complex64(1 + 2j),
        np.complex128(1 + 2j),
        np.zeros((2, 0, 3), np.float32),
        np.arange(12.0).reshape(3, 4)[:, ::2],
        3,
        1.5,
        True,
    ],
)
def test_values_round_trip(table, serve, value):
    client = serve(table())
    client.insert([value], {"t": 1.0})
    [[sample]] = client.sample("t")
    assert sample.data[0].dtype == np.asarray(value).dtype
    np.testing.assert_array_equal(sample.data[0], value)


@pytest.mark.parametrize("text", ["text", b"bytes", np.array([b"a", b"bcd"], object)])
def test_text_is_returned_as_bytes(table, serve, text):
    client = serve(table())
    client.insert([text], {"t": 1.0})
    [[sample]] = client.sample("t")
    assert sample.data[0].dtype == np.object_
    expected = np.array([b"a", b"bcd"], object) if isinstance(text, np.ndarray) else text
    expected = expected.encode() if isinstance(expected, str) else expected
    np.testing.assert_array_equal(sample.data[0], np.array(expected, object))


@pytest.mark.parametrize(
    "value",
    [
        np.datetime64("2020-01-01"),
        np.timedelta64(1, "s"),
        np.longdouble(1),
        np.zeros(1, "V4"),
        np.array({"a": 1}, object),
        object(),
        None,
        {1, 2},
    ],
)
def test_a_value_that_is_not_a_tensor_raises_type_error(table, serve, value):
    client = serve(table())
    with pytest.raises(TypeError):
        client.insert([value], {"t": 1.0})


def test_a_priority_of_a_wrong_type_raises_type_error(table, serve):
    client = serve(table())
    with pytest.raises(TypeError):
        client.insert([1], {"t": "a"})


def test_arguments_of_wrong_types_raise_type_error(table, serve):
    client = serve(table())
    client.insert([1], {"t": 1.0})
    for call in (
        lambda: next(client.sample(3)),
        lambda: next(client.sample("t", 1.5)),
        lambda: client.mutate_priorities("t", {1: "a"}),
        lambda: client.mutate_priorities("t", {2**64: 1.0}),
        lambda: client.reset(3),
        lambda: client.writer(2.5),
        lambda: client.trajectory_writer(2.5),
        lambda: client.trajectory_writer("a"),
    ):
        with pytest.raises(TypeError):
            call()


def test_an_infinite_priority_is_accepted(table, serve):
    client = serve(table())
    client.insert([1], {"t": float("inf")})
    assert next(client.sample("t"))[0].info.priority == float("inf")


def test_samples_have_data_and_info(reverb, table, serve):
    client = serve(table())
    client.insert([1], {"t": 2.5})
    samples = list(client.sample("t", num_samples=2))
    assert [len(steps) for steps in samples] == [1, 1]
    first, second = samples[0][0], samples[1][0]
    assert isinstance(first, reverb.ReplaySample)
    assert isinstance(first.info, reverb.SampleInfo)
    assert [type(x) for x in first.info] == [int, float, int, float, int]
    assert first.info[1:] == (1.0, 1, 2.5, 1)
    assert second.info[1:] == (1.0, 1, 2.5, 2)
    assert first.info.key == second.info.key
    assert isinstance(first.data, list)


def test_a_scalar_in_a_step_is_returned_as_an_array(table, serve):
    client = serve(table())
    client.insert([np.float32(3)], {"t": 1.0})
    [[sample]] = client.sample("t")
    assert isinstance(sample.data[0], np.ndarray)
    assert sample.data[0].shape == ()


def test_data_is_flat_and_sorted_by_key(table, serve):
    client = serve(table())
    client.insert({"b": 1, "a": [2, 3]}, {"t": 1.0})
    [[sample]] = client.sample("t")
    assert [int(x) for x in sample.data] == [2, 3, 1]


def test_emit_timesteps_decides_between_steps_and_whole_items(table, serve):
    client = serve(table())
    with client.writer(3) as writer:
        for i in range(3):
            writer.append([i])
        writer.create_item("t", 3, 1.0)
    [sample] = client.sample("t", emit_timesteps=False)
    np.testing.assert_array_equal(sample.data[0], [0, 1, 2])
    [steps] = client.sample("t", emit_timesteps=True)
    assert [int(step.data[0]) for step in steps] == [0, 1, 2]
    assert len({step.info for step in steps}) == 1


def test_samples_are_an_iterator(table, serve):
    client = serve(table())
    client.insert([1], {"t": 1.0})
    samples = client.sample("t", 2)
    assert iter(samples) is samples
    next(samples)
    next(samples)
    with pytest.raises(StopIteration):
        next(samples)


def test_samples_are_a_generator_that_begins_with_its_first_item(reverb, table, serve):
    assert inspect.isgenerator(reverb.Client("localhost:1").sample("t"))  # where no server is
    client = serve(table())
    unknown, none, typed = client.sample("u"), client.sample("t", 0), client.sample("t", 1.5)
    with pytest.raises(RuntimeError):
        next(unknown)
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        next(none)
    with pytest.raises(TypeError):
        next(typed)
    client.insert([1], {"t": 1.0})
    samples = client.sample("t", 2)
    next(samples)
    samples.close()
    assert list(samples) == []


def test_zero_samples_are_refused_and_a_negative_number_gives_none(table, serve):
    client = serve(table())
    client.insert([1], {"t": 1.0})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        list(client.sample("t", 0))
    assert list(client.sample("t", -1)) == []


def test_sampling_an_unknown_table_is_refused(table, serve):
    client = serve(table())
    with pytest.raises(RuntimeError):
        next(client.sample("u"))
    with pytest.raises(ValueError, match="Could not find table"):
        next(client.sample("u", unpack_as_table_signature=True))


def test_columns_of_unequal_length_cannot_be_split_into_steps(table, serve):
    client = serve(table())
    with client.trajectory_writer(3) as writer:
        for i in range(3):
            writer.append({"a": i, "b": i})
        history = writer.history
        writer.create_item("t", 1.0, {"a": history["a"][:], "b": history["b"][-1:]})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        next(client.sample("t"))
    sample = next(client.sample("t", emit_timesteps=False))
    assert [len(column) for column in sample.data] == [3, 1]


def test_a_squeezed_column_cannot_be_split_into_steps(table, serve):
    client = serve(table())
    with client.trajectory_writer(3) as writer:
        writer.append([1])
        writer.create_item("t", 1.0, [writer.history[0][-1]])
    with pytest.raises(TypeError):
        next(client.sample("t"))


# --- Signatures of steps and of whole items


STEP = np.arange(3, dtype=np.float32)


def test_a_step_matches_the_signature_of_a_step(table, serve, spec):
    client = serve(table(signature={"x": spec((3,), "float32"), "y": spec((), "int64")}))
    client.insert({"x": STEP, "y": np.int64(3)}, {"t": 1.0})
    [[sample]] = client.sample("t", unpack_as_table_signature=True)
    np.testing.assert_array_equal(sample.data["x"], STEP)
    assert sample.data["y"] == 3
    [sample] = client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data["x"].shape == (1, 3)
    [sample] = client.sample("t", emit_timesteps=False)
    assert [column.shape for column in sample.data] == [(1, 3), (1,)]


def test_a_signature_may_be_a_single_tensor(table, serve, spec):
    client = serve(table(signature=spec((), "int64")))
    client.insert(np.int64(3), {"t": 1.0})
    [[sample]] = client.sample("t", unpack_as_table_signature=True)
    assert sample.data == 3
    [[sample]] = client.sample("t")
    assert isinstance(sample.data, list)


@pytest.mark.parametrize("leading", [None, 1])
def test_a_step_matches_the_signature_of_an_item(table, serve, spec, leading):
    client = serve(table(signature={"x": spec((leading, 3), "float32")}))
    client.insert({"x": STEP}, {"t": 1.0})
    [sample] = client.sample("t", emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data["x"].shape == (1, 3)


def test_steps_of_a_writer_match_the_signature_of_a_step(table, serve, spec):
    client = serve(table(signature={"x": spec((3,), "float32")}))
    with client.writer(4) as writer:
        for _ in range(4):
            writer.append({"x": STEP})
        writer.create_item("t", 4, 1.0)
    [steps] = client.sample("t", unpack_as_table_signature=True)
    assert [step.data["x"].shape for step in steps] == [(3,)] * 4


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4,), "float32"), ((3,), "float64"), ((3, 1), "float32"), ((), "float32")]
)
def test_a_step_of_another_signature_is_refused(table, serve, spec, shape, dtype):
    client = serve(table(signature={"x": spec(shape, dtype)}))
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        client.insert({"x": STEP}, {"t": 1.0})
    assert client.server_info()["t"].current_size == 0


def test_a_step_of_more_columns_than_the_signature_is_refused(table, serve, spec):
    client = serve(table(signature={"x": spec((3,), "float32")}))
    client.insert({"x": STEP}, {"t": 1.0})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        client.insert({"x": STEP, "y": np.int64(1)}, {"t": 1.0})
    assert client.server_info()["t"].current_size == 1


def test_rows_of_a_trajectory_do_not_match_the_signature_of_a_step(table, serve, spec):
    client = serve(table(signature={"x": spec((3,), "float32")}))
    writer = client.trajectory_writer(2)
    writer.append({"x": STEP})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
    writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})
    writer.flush()
    assert client.server_info()["t"].current_size == 1
    writer.close()


def test_a_trajectory_is_not_checked_without_validate_items(table, serve, spec):
    client = serve(table(signature={"x": spec((3,), "float32")}))
    with client.trajectory_writer(2, validate_items=False) as writer:
        writer.append({"x": STEP})
        writer.append({"x": STEP})
        writer.create_item("t", 1.0, {"x": writer.history["x"][:]})
    [steps] = client.sample("t", unpack_as_table_signature=True)
    assert [step.data["x"].shape for step in steps] == [(3,)] * 2


def test_extra_columns_are_not_checked_without_validate_items(table, serve, spec):
    # TF-Agents' RLDS converter relies on it: its steps have one column more than their table.
    client = serve(table(signature={"x": spec((None, 3), "float32")}))
    with client.trajectory_writer(1, validate_items=False) as writer:
        writer.append({"x": STEP, "y": np.int64(7)})
        writer.create_item("t", 1.0, {name: writer.history[name][-1:] for name in ("x", "y")})
    [sample] = client.sample("t", emit_timesteps=False)
    assert sample.data[0].tolist() == [STEP.tolist()]
    assert sample.data[1].tolist() == [7]


def test_a_table_without_a_signature_returns_flat_data(table, serve):
    client = serve(table())
    client.insert({"b": 1, "a": 2}, {"t": 1.0})
    [[sample]] = client.sample("t", unpack_as_table_signature=True)
    assert [int(x) for x in sample.data] == [2, 1]


# --- Priorities


def keys(client, count):
    return {int(s[0].data[0]): s[0].info.key for s in client.sample("t", count)}


def test_priorities_are_updated_and_items_deleted(reverb, table, serve):
    client = serve(table(sampler=reverb.selectors.MaxHeap()))
    seen = {}
    for i in range(3):
        client.insert([i], {"t": float(i)})
        seen |= keys(client, 1)
    client.mutate_priorities("t", updates={seen[0]: 9.0})
    assert next(client.sample("t"))[0].info.key == seen[0]
    client.mutate_priorities("t", deletes=[seen[0]])
    assert next(client.sample("t"))[0].info.key == seen[2]
    client.mutate_priorities("t", updates={seen[1]: 5.0}, deletes=[seen[1]])
    assert client.server_info()["t"].current_size == 1
    client.mutate_priorities("t")
    client.mutate_priorities("t", {12345: 1.0}, [54321])


def test_updates_of_unknown_tables_and_invalid_keys_are_refused(reverb, table, serve):
    client = serve(table(sampler=reverb.selectors.Prioritized(1.0)))
    client.insert([1], {"t": 1.0})
    key = next(client.sample("t"))[0].info.key
    with pytest.raises(RuntimeError):
        client.mutate_priorities("u", {key: 1.0})
    for wrong in (-1, 1.5, "a"):
        with pytest.raises(TypeError):
            client.mutate_priorities("t", {wrong: 1.0})
        with pytest.raises(TypeError):
            client.mutate_priorities("t", deletes=[wrong])
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        client.mutate_priorities("t", {key: -1.0})


def test_an_unknown_table_cannot_be_reset(table, serve):
    client = serve(table())
    with pytest.raises(RuntimeError):
        client.reset("u")


@pytest.mark.parametrize("timeout", [None, 0, -1])
def test_a_timeout_of_zero_or_less_means_no_timeout(table, serve, timeout):
    assert list(serve(table()).server_info(timeout=timeout)) == ["t"]


# --- Arguments


@pytest.mark.parametrize("count", [0, -1])
def test_num_keep_alive_refs_must_be_positive(table, serve, count):
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        serve(table()).trajectory_writer(count)


@pytest.mark.parametrize(
    "options",
    [
        {"max_sequence_length": 0},
        {"max_sequence_length": 3, "chunk_length": 0},
        {"max_sequence_length": 3, "chunk_length": 4},
        {"max_sequence_length": 3, "max_in_flight_items": 0},
    ],
)
def test_invalid_settings_of_a_writer_are_refused(table, serve, options):
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        serve(table()).writer(**options)
