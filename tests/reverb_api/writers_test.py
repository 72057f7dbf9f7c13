"""The three writers."""

import gc
import importlib
import pickle

import numpy as np
import pytest


def drawn(client, count=1):
    return [sample.data for sample in client.sample("t", count, emit_timesteps=False)]


# --- Writer


def test_a_writer_makes_items_of_the_last_steps(table, serve):
    client = serve(table(max_times_sampled=1))
    with client.writer(max_sequence_length=3, chunk_length=2) as writer:
        for i in range(5):
            writer.append({"a": i, "b": [float(i)]})
            if i >= 2:
                writer.create_item(table="t", num_timesteps=3, priority=1.0)
    assert [data[0].tolist() for data in drawn(client, 3)] == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_a_sequence_is_appended_step_by_step(table, serve):
    client = serve(table())
    with client.writer(3) as writer:
        writer.append_sequence([np.arange(6).reshape(3, 2)])
        writer.create_item("t", 2, 1.0)
    np.testing.assert_array_equal(drawn(client)[0][0], [[2, 3], [4, 5]])


@pytest.mark.parametrize("sequence", [[np.int64(1)], [np.zeros(2), np.zeros(3)]])
def test_an_invalid_sequence_is_refused(table, serve, sequence):
    writer = serve(table()).writer(3)
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.append_sequence(sequence)
    writer.close()


@pytest.mark.parametrize("count", [0, -1, 3, 5])
def test_an_item_of_steps_that_do_not_exist_is_refused(table, serve, count):
    writer = serve(table()).writer(4)
    writer.append([1])
    writer.append([2])
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("t", count, 1.0)
    writer.close()


def test_an_item_with_a_nan_priority_or_an_unknown_table_is_refused(table, serve):
    writer = serve(table()).writer(4)
    writer.append([1])
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("t", 1, float("nan"))
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("u", 1, 1.0)
    writer.close()


def test_a_step_with_another_number_of_leaves_is_refused(table, serve):
    writer = serve(table()).writer(4)
    writer.append([1, 2])
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.append([1])
    writer.close()


def test_calls_of_a_closed_writer_are_refused(table, serve):
    writer = serve(table()).writer(4)
    writer.append([1])
    writer.close()
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.close()
    with pytest.raises(ValueError), writer:  # noqa: PT011 - the texts differ
        pass
    for call in (
        lambda: writer.append([1]),
        lambda: writer.append_sequence([np.zeros(2)]),
        lambda: writer.create_item("t", 1, 1.0),
        writer.flush,
    ):
        with pytest.raises(RuntimeError):
            call()


def test_steps_of_a_writer_may_be_text(table, serve):
    client = serve(table())
    writer = client.writer(2)
    writer.append({"a": "x", "b": b"y"})
    writer.create_item(table="t", num_timesteps=1, priority=1.0)
    writer.close(retry_on_unavailable=False)
    assert [column.tolist() for column in drawn(client)[0]] == [[b"x"], [b"y"]]


def test_a_dropped_writer_flushes_its_items(table, serve):
    client = serve(table())
    writer = client.writer(4)
    writer.append([1])
    writer.create_item("t", 1, 1.0)
    del writer
    gc.collect()
    assert client.server_info()["t"].current_size == 1


def test_a_writer_closes_if_its_with_block_raises(table, serve):
    client = serve(table())
    with pytest.raises(KeyError, match="mine"), client.writer(4) as writer:  # noqa: PT012
        writer.append([1])
        writer.create_item("t", 1, 1.0)
        raise KeyError("mine")
    assert client.server_info()["t"].current_size == 1
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.close()


@pytest.mark.parametrize("arguments", [("t", 1.5, 1.0), ("t", 1, "a"), (3, 1, 1.0)])
def test_create_item_arguments_of_wrong_types_raise_type_error(table, serve, arguments):
    writer = serve(table()).writer(4)
    writer.append([1])
    with pytest.raises(TypeError):
        writer.create_item(*arguments)
    writer.close()


def test_a_flush_of_a_chunk_that_is_not_full_does_not_wait(reverb, serve):
    client = serve(reverb.Table.queue("t", 2))
    writer = client.writer(4, chunk_length=4)
    for i in range(3):  # one more than the queue accepts
        writer.append([np.int64(i)])
        writer.create_item("t", 1, 1.0)
    writer.flush()
    assert [data[0].tolist() for data in drawn(client, 3)] == [[0], [1], [2]]
    writer.close()


def test_a_flush_of_a_writer_without_open_items_waits_for_all(table, serve):
    client = serve(table())
    writer = client.writer(4, chunk_length=2)
    for i in range(4):
        writer.append([i])
        writer.create_item("t", 1, 1.0)
    writer.flush()
    writer.flush()
    assert client.server_info()["t"].current_size == 4
    writer.close()


def test_max_in_flight_items_may_be_none(table, serve):
    client = serve(table())
    with client.writer(2, max_in_flight_items=None, delta_encoded=True) as writer:
        for i in range(10):
            writer.append([i])
            writer.create_item("t", 1, 1.0)
    assert client.server_info()["t"].current_size == 10


# --- TrajectoryWriter


def test_a_trajectory_can_consist_of_any_rows(table, serve):
    client = serve(table())
    with client.trajectory_writer(num_keep_alive_refs=4) as writer:
        for i in range(4):
            writer.append({"a": np.int32(i), "b": np.full(2, i, np.float32)})
        history = writer.history
        writer.create_item(
            table="t",
            priority=1.0,
            trajectory={
                "last": history["a"][-1],
                "range": history["a"][1:3],
                "pick": history["b"][[0, 1]],
                "first": history["b"][0],
            },
        )
    last, rows, pick, first = [
        dict(zip(["first", "last", "pick", "range"], drawn(client)[0], strict=True))[name]
        for name in ("last", "range", "pick", "first")
    ]
    assert (last.shape, last.dtype) == ((), np.int32)
    np.testing.assert_array_equal(last, 3)
    np.testing.assert_array_equal(rows, [1, 2])
    np.testing.assert_array_equal(pick, [[0, 0], [1, 1]])
    np.testing.assert_array_equal(first, [0, 0])


def test_reading_the_history_before_the_first_step_is_refused(table, serve):
    writer = serve(table()).trajectory_writer(3)
    with pytest.raises(RuntimeError):
        _ = writer.history
    writer.close()


def test_steps_of_an_episode_are_counted(table, serve):
    writer = serve(table()).trajectory_writer(3)
    assert writer.episode_steps == 0
    writer.append([1])
    writer.append([1], partial_step=True)
    assert writer.episode_steps == 1
    writer.append([None])
    assert writer.episode_steps == 2
    writer.end_episode()
    assert writer.episode_steps == 0
    assert len(writer.history[0]) == 0
    writer.close()


def test_an_item_can_span_an_episode_end_if_buffers_are_kept(table, serve):
    client = serve(table())
    writer = client.trajectory_writer(4)
    for i in range(2):
        writer.append([i])
    writer.end_episode(clear_buffers=False)
    writer.append([2])
    writer.create_item("t", 1.0, [writer.history[0][-3:]])
    writer.flush()
    assert drawn(client)[0][0].tolist() == [0, 1, 2]
    writer.close()


def test_a_step_may_lack_columns(table, serve):
    client = serve(table())
    writer = client.trajectory_writer(4)
    writer.append({"a": 1, "b": 10})
    writer.append({"a": 2})
    writer.append({"a": 3, "b": None})
    writer.append({"a": 4, "c": 7.0})
    history = writer.history
    assert sorted(history) == ["a", "b", "c"]
    assert [len(history[name]) for name in "abc"] == [4, 4, 4]
    assert [cell is None for cell in history["b"]] == [False, True, True, True]
    assert [cell is None for cell in history["c"]] == [True, True, True, False]
    for rows in (slice(None), slice(-2, None), -1):
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            history["b"][rows]
    writer.create_item("t", 1.0, {"a": history["a"][:], "b": history["b"][0]})
    writer.flush()
    writer.close()


def test_a_step_may_be_appended_in_parts(table, serve):
    client = serve(table())
    writer = client.trajectory_writer(4)
    writer.append({"a": 1, "b": None}, partial_step=True)
    assert len(writer.history["a"]) == 1
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.append({"a": 2, "b": 3})
    writer.append({"b": 3})
    assert (len(writer.history["a"]), len(writer.history["b"])) == (1, 1)
    assert writer.history["b"][-1].numpy() == 3
    writer.close()


@pytest.mark.parametrize("other", [np.float64(1), np.zeros(2, np.float32)])
def test_a_column_cannot_change_its_type_or_shape(table, serve, other):
    writer = serve(table()).trajectory_writer(4)
    writer.append({"x": np.float32(1)})
    with pytest.raises(ValueError, match="x"):
        writer.append({"x": other})
    writer.close()


def test_a_history_is_indexed_like_a_list(table, serve):
    writer = serve(table()).trajectory_writer(5)
    for i in range(5):
        writer.append({"a": i})
    history = writer.history["a"]
    assert len(history) == 5
    for key in (
        slice(None),
        slice(1, 3),
        slice(-3, -1),
        slice(None, 2),
        slice(None, None, 2),
        [0, -1],
    ):
        rows = list(range(5))
        expected = [rows[i] for i in key] if isinstance(key, list) else rows[key]
        assert history[key].numpy().tolist() == expected
        assert not history[key].is_squeezed
    for index in (0, 4, -1, -5):
        assert history[index].numpy() == list(range(5))[index]
        assert history[index].is_squeezed
    with pytest.raises(IndexError):
        history[6]
    for wrong in ("a", 1.0, None):
        with pytest.raises(TypeError):
            history[wrong]
    writer.close()


def test_cells_expire_after_num_keep_alive_refs_steps(table, serve):
    writer = serve(table()).trajectory_writer(2)
    for i in range(4):
        writer.append({"a": i})
    history = writer.history["a"]
    assert len(history) == 4
    assert [cell is None for cell in history] == [True, True, False, False]
    for key in (slice(None), 0, [0, 3]):
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            history[key]
    old = history[-2:]
    cell = next(iter(old))
    assert cell.expired is False
    writer.append({"a": 4})
    assert cell.expired is True
    with pytest.raises(RuntimeError):
        old.numpy()
    with pytest.raises(ValueError, match="expired"):
        writer.create_item("t", 1.0, {"a": old})
    writer.close()


def test_columns_have_shape_dtype_and_cells(reverb, table, serve):
    writer = serve(table()).trajectory_writer(3)
    for i in range(3):
        writer.append({"a": np.full((2, 1), i, np.float32)})
    column = writer.history["a"][-2:]
    assert isinstance(column, reverb.TrajectoryColumn)
    assert (column.shape, column.dtype, len(column)) == ((2, 2, 1), np.float32, 2)
    one = column[0]
    assert (one.shape, one.is_squeezed, len(one)) == ((2, 1), True, 1)
    assert column[0:1].shape == (1, 2, 1)
    assert column[[1, 0]].numpy()[:, 0, 0].tolist() == [2, 1]
    cells = list(column)
    assert [cell.numpy()[0, 0] for cell in cells] == [1, 2]
    assert all(isinstance(cell, reverb.pybind.WeakCellRef) for cell in cells)
    assert not isinstance(column, reverb.pybind.WeakCellRef)
    again = reverb.TrajectoryColumn(cells, path=("a", slice(-2, None)))
    assert again.numpy().shape == (2, 2, 1)
    squeezed = reverb.TrajectoryColumn(cells[:1], squeeze=True)
    assert squeezed.shape == (2, 1)
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        reverb.TrajectoryColumn(cells, squeeze=True)
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        reverb.TrajectoryColumn([cells[0], None])
    with pytest.raises(TypeError):
        column["a"]
    writer.create_item("t", 1.0, {"a": again})
    writer.flush()
    writer.close()


def test_cells_have_shape_and_dtype_and_values_until_they_expire(table, serve):
    writer = serve(table()).trajectory_writer(1)
    writer.append([np.full((2, 1), 3, np.float32)])
    cell = next(iter(writer.history[0][-1:]))
    assert (list(cell.shape), cell.dtype, cell.expired) == ([2, 1], np.float32, False)
    assert cell.numpy().tolist() == [[3], [3]]
    writer.append([np.zeros((2, 1), np.float32)])
    assert cell.expired is True
    with pytest.raises(RuntimeError):
        cell.numpy()
    writer.close()


def test_cells_of_different_columns_cannot_be_mixed(reverb, table, serve):
    writer = serve(table()).trajectory_writer(2)
    writer.append({"a": 1, "b": np.float32(2), "c": [np.zeros(2)]})
    history = writer.history
    for other in (history["b"], history["c"][0]):
        with pytest.raises(ValueError):  # noqa: PT011, PT012 - the texts differ
            mixed = reverb.TrajectoryColumn([*history["a"][-1:], *other[-1:]])
            writer.create_item("t", 1.0, {"x": mixed})
    writer.close()


def test_an_item_without_rows_is_refused(table, serve):
    client = serve(table())
    writer = client.trajectory_writer(2)
    writer.append({"a": 1, "b": 2})
    history = writer.history
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("t", 1.0, {"a": history["a"][0:0], "b": history["b"][0:0]})
    writer.close()


@pytest.mark.parametrize(
    "arguments", [("t", "a", None), (3, 1.0, None), ("t", 1.0, [1]), ("t", 1.0, {"a": "x"})]
)
def test_trajectory_arguments_of_wrong_types_raise_type_error(table, serve, arguments):
    writer = serve(table()).trajectory_writer(2)
    writer.append([1])
    name, priority, trajectory = arguments
    with pytest.raises(TypeError):
        writer.create_item(name, priority, trajectory or [writer.history[0][-1:]])
    with pytest.raises(TypeError):
        writer.flush(0.5)
    writer.close()


def test_an_invalid_trajectory_is_refused(table, serve):
    writer = serve(table()).trajectory_writer(3)
    writer.append({"a": 1})
    column = writer.history["a"][-1:]
    for wrong in ({"a": 1}, [np.zeros(2)], {"a": None}):
        with pytest.raises(TypeError):
            writer.create_item("t", 1.0, wrong)
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("t", 1.0, {})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("t", 1.0, {"a": column[0:0]})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("t", float("nan"), {"a": column})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.create_item("u", 1.0, {"a": column})
    writer.close()


def test_flush_waits_until_its_timeout_or_block_until_num_items(reverb, table, serve):
    limiter = reverb.rate_limiters.SampleToInsertRatio(1.0, 1, (-1.0, 1.0))
    writer = serve(table(rate_limiter=limiter)).trajectory_writer(2)
    writer.append([1])
    for _ in range(3):
        writer.create_item("t", 1.0, [writer.history[0][-1:]])
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.flush(-1)
    writer.flush(block_until_num_items=2)
    with pytest.raises(reverb.DeadlineExceededError):
        writer.flush(timeout_ms=50)
    with pytest.raises(reverb.DeadlineExceededError):
        writer.end_episode(timeout_ms=50)
    assert writer.episode_steps == 1
    writer.close()


def test_thousands_of_items_may_be_pending(reverb, table, serve):
    limiter = reverb.rate_limiters.SampleToInsertRatio(1.0, 1, (-1.0, 1.0))
    writer = serve(table(rate_limiter=limiter)).trajectory_writer(2)
    writer.append([1])
    for _ in range(3000):
        writer.create_item("t", 1.0, [writer.history[0][-1:]])
    writer.close()


def test_a_trajectory_writer_is_usable_after_its_with_block(reverb, table, serve):
    client = serve(table())
    with client.trajectory_writer(2) as writer:
        writer.append([1])
        writer.create_item("t", 1.0, [writer.history[0][-1:]])
    assert client.server_info()["t"].current_size == 1
    writer.append([2])
    writer.close()
    writer.close()
    for call in (
        lambda: writer.append([1]),
        lambda: writer.create_item("t", 1.0, [writer.history[0][-1:]]),
        writer.flush,
        writer.end_episode,
    ):
        with pytest.raises(RuntimeError):
            call()
    assert isinstance(writer, reverb.TrajectoryWriter)


def test_a_with_block_that_raises_another_error_flushes(table, serve):
    client = serve(table())
    with pytest.raises(KeyError), client.trajectory_writer(3) as writer:  # noqa: PT012
        writer.configure((0,), num_keep_alive_refs=3, max_chunk_length=3)
        writer.append([1])
        writer.create_item("t", 1.0, [writer.history[0][-1:]])
        raise KeyError("mine")
    assert client.server_info()["t"].current_size == 1
    writer.close()


@pytest.fixture
def flushes(reverb, monkeypatch):
    """The flushes of trajectory writers, which then do nothing."""
    seen = []
    monkeypatch.setattr(reverb.TrajectoryWriter, "flush", lambda *arguments: seen.append(arguments))
    return seen


@pytest.mark.parametrize("name", ["ReverbError", "DeadlineExceededError"])
def test_a_with_block_that_raises_a_reverb_error_does_not_flush(
    reverb, table, serve, flushes, name
):
    client, error = serve(table()), getattr(reverb, name)
    with pytest.raises(error, match="mine"), client.trajectory_writer(2) as writer:
        raise error("mine")
    writer.close()
    assert flushes == []


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError])
def test_a_with_block_that_raises_a_builtin_error_flushes(table, serve, flushes, error):
    client = serve(table())
    with pytest.raises(error, match="mine"), client.trajectory_writer(2) as writer:
        raise error("mine")
    writer.close()
    assert len(flushes) == 1


def test_a_with_block_in_which_a_call_is_refused_flushes(table, serve, flushes):
    client = serve(table())
    with pytest.raises(ValueError), client.trajectory_writer(2) as writer:  # noqa: PT011, PT012
        writer.append([1])
        writer.create_item("t", float("nan"), [writer.history[0][-1:]])
    writer.close()
    assert len(flushes) == 1


def test_an_error_of_the_with_block_is_raised(reverb, table, serve):
    client = serve(table())
    with pytest.raises(KeyError, match="mine"), client.trajectory_writer(2):
        raise KeyError("mine")
    with pytest.raises(reverb.ReverbError, match="mine"), client.trajectory_writer(2):
        raise reverb.ReverbError("mine")


def test_columns_can_be_configured(table, serve):
    client = serve(table())
    writer = client.trajectory_writer(6)
    writer.configure(("a",), num_keep_alive_refs=6, max_chunk_length=3)
    writer.configure(("b", 0), num_keep_alive_refs=2, max_chunk_length=None)
    for i in range(6):
        writer.append({"a": i, "b": [i]})
    writer.create_item("t", 1.0, {"a": writer.history["a"][-6:]})
    writer.flush()
    assert drawn(client)[0][0].tolist() == list(range(6))
    for options in (
        {"num_keep_alive_refs": 0, "max_chunk_length": None},
        {"num_keep_alive_refs": 2, "max_chunk_length": 0},
        {"num_keep_alive_refs": 2, "max_chunk_length": 3},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            writer.configure(("a",), **options)
    writer.close()


def test_the_signature_is_checked_when_an_item_is_created(table, serve, spec):
    client = serve(table(signature={"a": spec((None,), "int64"), "b": spec((), "float32")}))
    writer = client.trajectory_writer(3)
    writer.append({"a": 1, "b": np.float32(2)})
    a, b = writer.history["a"], writer.history["b"]
    for wrong in (
        {"a": a[-1:]},
        {"a": a[-1:], "b": b[-1:]},
        {"a": a[-1], "b": b[-1]},
        {"a": b[-1:], "b": b[-1]},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            writer.create_item("t", 1.0, wrong)
    writer.create_item("t", 1.0, {"a": a[-1:], "b": b[-1]})
    writer.flush()
    writer.close()


# --- StructuredWriter


def steps_of(reverb, **leaves):
    return reverb.structured.create_reference_step(leaves)


def test_patterns_make_items(reverb, table, serve):
    client = serve(table(max_times_sampled=1))
    step = steps_of(reverb, a=None, b=[None])
    config = reverb.structured.create_config(
        pattern={"last": step["a"][-2:], "one": step["b"][0][-1]},
        table="t",
        conditions=[reverb.structured.Condition.step_index() >= 1],
    )
    writer = client.structured_writer([config])
    for i in range(4):
        writer.append({"a": i, "b": [10.0 * i]})
    writer.flush()
    seen = [[x.tolist() for x in data] for data in drawn(client, 3)]
    assert seen == [[[0, 1], 10.0], [[1, 2], 20.0], [[2, 3], 30.0]]
    assert isinstance(writer, reverb.structured.StructuredWriter)


def test_configurations_are_protobuf_messages(reverb):
    patterns = importlib.import_module(f"{reverb.__name__}.cc.patterns_pb2")
    structured = reverb.structured
    assert structured.Config is patterns.StructuredWriterConfig
    assert structured.ConditionProto is patterns.Condition
    step = steps_of(reverb, a=None, b=None)
    node = step["b"][-4:-1:2]
    assert isinstance(node, patterns.PatternNode)
    assert (node.flat_source_index, node.start, node.stop, node.step) == (1, -4, -1, 2)
    assert not step["a"][-2].HasField("start")
    assert step["a"][-2].stop == -2
    config = structured.create_config({"x": node}, "t")
    assert isinstance(config, patterns.StructuredWriterConfig)
    assert (config.table, list(config.flat)) == ("t", [node])
    assert config.priority.constant_fn.value == 1.0
    again = patterns.StructuredWriterConfig.FromString(config.SerializeToString())
    assert again == config
    assert structured.unpack_pattern(again) == {"x": node}


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (lambda c: c.step_index() == 3, {"step_index": True, "eq": 3}),
        (lambda c: c.step_index() != 3, {"step_index": True, "eq": 3, "inverse": True}),
        (lambda c: c.step_index() > 3, {"step_index": True, "ge": 4}),
        (lambda c: c.step_index() >= 3, {"step_index": True, "ge": 3}),
        (lambda c: c.step_index() < 3, {"step_index": True, "ge": 3, "inverse": True}),
        (lambda c: c.step_index() <= 3, {"step_index": True, "ge": 4, "inverse": True}),
        (lambda c: c.step_index() % 4 == 1, {"step_index": True, "mod_eq": {"mod": 4, "eq": 1}}),
        (
            lambda c: c.steps_since_applied() % 4 != 1,
            {"steps_since_applied": True, "mod_eq": {"mod": 4, "eq": 1}, "inverse": True},
        ),
        (lambda c: c.is_end_episode(), {"is_end_episode": True, "eq": 1}),
        (lambda c: c.data({"a": 0, "b": 0})["b"] == 2, {"flat_source_index": 1, "eq": 2}),
    ],
)
def test_conditions_are_protobuf_messages(reverb, make, fields):
    patterns = importlib.import_module(f"{reverb.__name__}.cc.patterns_pb2")
    assert make(reverb.structured.Condition) == patterns.Condition(**fields)


def test_configurations_can_be_pickled(reverb):
    config = reverb.structured.create_config({"x": steps_of(reverb, a=None)["a"][-2:]}, "t")
    assert pickle.loads(pickle.dumps(config)) == config
    assert pickle.loads(pickle.dumps(config.priority)) == config.priority


def test_priority_functions_are_protobuf_messages(reverb):
    patterns = importlib.import_module(f"{reverb.__name__}.cc.patterns_pb2")
    constant = reverb.structured.constant_priority_fn(2.5)
    assert constant == patterns.Priority(constant_fn={"value": 2.5})
    made = reverb.structured.td_error(0.9, {"a": 0, "td": 0}, lambda step: step["td"])
    assert made == patterns.Priority(td_error={"max_priority_weight": 0.9, "flat_source_index": 1})


def test_protobuf_messages_are_accepted_as_configurations(reverb, table, serve):
    patterns = importlib.import_module(f"{reverb.__name__}.cc.patterns_pb2")
    client = serve(table())
    step = steps_of(reverb, a=None)
    config = reverb.structured.create_config([step["a"][-2:]], "t")
    again = patterns.StructuredWriterConfig.FromString(config.SerializeToString())
    again.conditions.add(is_end_episode=True, eq=1)
    again.conditions.add(buffer_length=True, ge=2)
    again.priority.constant_fn.value = 3.0
    writer = client.structured_writer([again])
    for i in range(3):
        writer.append({"a": i})
    writer.end_episode()
    [sample] = client.sample("t", emit_timesteps=False)
    assert sample.data[0].tolist() == [1, 2]
    assert sample.info.priority == 3.0


@pytest.mark.parametrize(
    "node",
    [
        {"stop": 1},
        {"start": 1},
        {"start": -1, "stop": 1},
        {"start": -2, "stop": -3},
        {"stop": -1, "step": 2},
        {"start": -4, "step": -1},
    ],
)
def test_a_pattern_of_invalid_rows_is_refused(reverb, table, serve, node):
    patterns = importlib.import_module(f"{reverb.__name__}.cc.patterns_pb2")
    config = patterns.StructuredWriterConfig(
        flat=[patterns.PatternNode(flat_source_index=0, **node)],
        table="t",
        priority=reverb.structured.constant_priority_fn(1.0),
    )
    good = reverb.structured.create_config([steps_of(reverb, a=None)["a"][-1]], "t")
    with pytest.raises(ValueError, match="Invalid configuration at position 1"):
        serve(table()).structured_writer([good, config])


def test_an_empty_list_of_configurations_is_refused(reverb, table, serve):
    client = serve(table())
    with pytest.raises(ValueError, match="At least one config"):
        client.structured_writer([])
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        reverb.structured.infer_signature([], {"a": 0})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        steps_of(reverb, a=None)["a"]["x"]


def test_a_structured_step_with_another_number_of_leaves_is_refused(reverb, table, serve):
    config = reverb.structured.create_config([steps_of(reverb, a=None, b=None)["a"][-1]], "t")
    writer = serve(table()).structured_writer([config])
    writer.append({"a": 1, "b": 2})
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        writer.append({"a": 1})
    assert writer.step_is_open is False
    writer.append({"a": 1, "b": None}, partial_step=True)
    assert writer.step_is_open is True


def test_signatures_can_be_inferred_from_configurations(reverb, spec):
    step_spec = {"a": spec((3,), "float32"), "b": spec((), "int64")}
    step = reverb.structured.create_reference_step(step_spec)
    short = reverb.structured.create_config({"x": step["a"][-2:], "y": step["b"][-1]}, "t")
    long = reverb.structured.create_config({"x": step["a"][-3:], "y": step["b"][-1]}, "t")
    made = reverb.structured.infer_signature([short], step_spec)
    assert (made["x"].shape.as_list(), made["y"].shape.as_list()) == ([2, 3], [])
    assert (made["x"].dtype, made["y"].dtype) == (np.float32, np.int64)
    assert made["x"].name == "x"
    both = reverb.structured.infer_signature([short, long], step_spec)
    assert both["x"].shape.as_list() == [None, 3]
    other = reverb.structured.create_config({"x": step["a"][-2:], "y": step["b"][-1]}, "u")
    differs = reverb.structured.create_config({"x": step["a"][-2:]}, "t")
    swapped = reverb.structured.create_config({"x": step["b"][-2:], "y": step["b"][-1]}, "t")
    for wrong in (other, differs, swapped):
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            reverb.structured.infer_signature([short, wrong], step_spec)


STEPS = [{"a": i, "b": float(i)} for i in range(5)]


def written(reverb, client, pattern, steps=STEPS, **options):
    """The columns and the priority of each item that a configuration makes from the steps."""
    step = steps_of(reverb, a=None, b=None)
    config = reverb.structured.create_config(pattern(step), "t", **options)
    writer = client.structured_writer([config])
    for one in steps:
        writer.append(one)
    writer.end_episode()
    count = client.server_info()["t"].current_size
    samples = [next(client.sample("t", emit_timesteps=False)) for _ in range(count)]
    return [([column.tolist() for column in s.data], s.info.priority) for s in samples]


@pytest.fixture
def once(table, serve):
    return serve(table(max_times_sampled=1))


def test_a_pattern_with_only_a_stop_selects_one_row(reverb, once):
    made = written(reverb, once, lambda step: [step["a"][:-1]])
    assert made == [([i], 1.0) for i in range(5)]


def test_a_pattern_may_skip_rows(reverb, once):
    assert written(reverb, once, lambda step: [step["a"][-5::2]]) == [([[0, 2, 4]], 1.0)]


def test_is_end_episode_makes_one_item_at_the_end_of_an_episode(reverb, once):
    ends = [reverb.structured.Condition.is_end_episode()]
    made = written(reverb, once, lambda step: [step["a"][-2:]], conditions=ends)
    assert made == [([[3, 4]], 1.0)]


def test_steps_since_applied_counts_the_steps_since_the_last_item(reverb, once):
    every = [reverb.structured.Condition.steps_since_applied() >= 2]
    made = written(reverb, once, lambda step: [step["a"][-1]], conditions=every)
    assert made == [([1], 1.0), ([3], 1.0)]


def test_a_condition_can_depend_on_the_data_of_a_step(reverb, once):
    is_three = [reverb.structured.Condition.data({"a": 0, "b": 0})["a"] == 3]
    made = written(reverb, once, lambda step: [step["b"][-1]], conditions=is_three)
    assert made == [([3.0], 1.0)]


def test_a_condition_can_read_a_boolean_that_may_be_missing(reverb, once):
    holds = [reverb.structured.Condition.data({"a": 0, "b": 0})["b"] == 1]
    steps = [{"a": 1, "b": True}, {"a": 2, "b": False}, {"a": 3, "b": None}]
    made = written(reverb, once, lambda step: [step["a"][-1]], steps, conditions=holds)
    assert made == [([1], 1.0)]


@pytest.mark.parametrize("leaf", ["a", "b"])
def test_td_error_priorities_mix_the_largest_and_the_mean_error(reverb, once, leaf):
    # 0.9 of the largest and 0.1 of the mean, of the pattern's column that refers to the leaf.
    error = reverb.structured.td_error(0.9, {"a": 0, "b": 0}, lambda step: step[leaf])
    made = written(reverb, once, lambda step: [step[leaf][-3:]], priority=error)
    assert [priority for _, priority in made] == pytest.approx([1.9, 2.9, 3.9])


def test_a_td_error_of_a_leaf_not_in_the_pattern_is_zero(reverb, once):
    error = reverb.structured.td_error(0.9, {"a": 0, "b": 0}, lambda step: step["b"])
    made = written(reverb, once, lambda step: [step["a"][-5:]], priority=error)
    assert made == [([[0, 1, 2, 3, 4]], 0.0)]


def test_a_dropped_structured_writer_flushes(reverb, table, serve):
    client = serve(table())
    config = reverb.structured.create_config([steps_of(reverb, a=None)["a"][-1]], "t")
    writer = client.structured_writer([config])
    writer.append({"a": 1})
    del writer
    gc.collect()
    assert client.server_info()["t"].current_size == 1


def test_conditions_must_be_complete_and_compare_with_integers(reverb, table, serve):
    client = serve(table())
    node = steps_of(reverb, a=None)["a"][-1]
    index = reverb.structured.Condition.step_index()
    with pytest.raises(TypeError):
        index == 1.5  # noqa: B015
    for incomplete in (index, index % 2):
        with pytest.raises(TypeError):
            reverb.structured.create_config([node], "t", conditions=[incomplete])
    with pytest.raises(TypeError):
        reverb.structured.create_config([node], 3)
    with pytest.raises(TypeError):
        reverb.structured.create_config([1], "t")
    with pytest.raises(TypeError):
        client.structured_writer(reverb.structured.create_config([node], "t"))


def test_options_of_a_trajectory_writer_are_keywords(table, serve):
    writer = serve(table()).trajectory_writer(2)
    with pytest.raises(TypeError):
        writer.append([1], True)
    with pytest.raises(TypeError):
        writer.configure((0,), 2, None)
    writer.close()


@pytest.mark.parametrize("key", [1.5, [1], "a"])
def test_a_pattern_index_that_is_not_an_integer_or_slice_is_refused(reverb, key):
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        steps_of(reverb, a=None)["a"][key]


def test_a_pattern_can_be_made_by_a_function(reverb):
    def last(step):
        return {"x": step["a"][-1], "y": step["b"]["c"][-2:]}

    structure = {"a": None, "b": {"c": None}}
    made = reverb.structured.pattern_from_transform(structure, last)
    step = reverb.structured.create_reference_step(structure)
    assert made == last(step)
