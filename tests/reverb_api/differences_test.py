"""Intended differences of ``reverie.reverb``; see ``docs/reverb_compatibility.md``."""

import gc
import importlib
import os
import socket

import numpy as np
import pytest

import reverie


@pytest.fixture
def is_ours(reverb):
    return reverb.__name__ == "reverie.reverb"


@pytest.fixture(autouse=True)
def only_ours(is_ours):
    if not is_ours:
        pytest.skip("a difference: dm-reverb does otherwise, or aborts")


def test_numbers_that_crash_dm_reverb_are_refused(reverb, table):
    made = table()
    for call in (made.can_sample, made.can_insert):
        with pytest.raises(ValueError, match="1"):
            call(0)
    for numbers in ((0.0, 1, -1.0, 1.0), (1.0, 0, -1.0, 1.0)):
        with pytest.raises(ValueError, match="must be"):
            reverb.rate_limiters.RateLimiter(*numbers)


def test_unusable_numbers_that_dm_reverb_accepts_are_refused(reverb):
    for make in (
        lambda: reverb.rate_limiters.Queue(0),
        lambda: reverb.rate_limiters.Stack(-1),
        lambda: reverb.rate_limiters.RateLimiter(1.0, 1, 5.0, 1.0),
        lambda: reverb.selectors.Prioritized(-1.0),
        lambda: reverb.selectors.Prioritized(float("nan")),
    ):
        with pytest.raises(ValueError, match="must"):
            make()


def test_invalid_ports_are_refused_and_port_0_means_any_free_port(reverb, table):
    for port in (65536, 70000):
        with pytest.raises(ValueError, match=f"port is {port}; it must be"):
            reverb.Server([table()], port=port)
    server = reverb.Server([table()], port=0)
    assert list(reverb.Client(f"localhost:{server.port}").server_info(timeout=10)) == ["t"]
    server.stop()


@pytest.mark.parametrize("address", ["nonsense", ""])
def test_an_address_without_a_port_is_refused(reverb, address):
    with pytest.raises(ValueError, match="has no port; write host:port"):
        reverb.Client(address)


def test_types_without_a_tensorflow_tensor_are_accepted(table, serve):
    half = pytest.importorskip("ml_dtypes").bfloat16
    client = serve(table())
    client.insert([half(1.5)], {"t": 1.0})
    ((sample,),) = client.sample("t")
    assert (sample.data[0].dtype, float(sample.data[0])) == (half, 1.5)


def test_a_step_with_a_signature_may_hold_any_array_that_can_be_stored(table, serve):
    class Lent:  # as a bfloat16 tensor of PyTorch, which gives no array of NumPy
        def __init__(self, array):
            self._array = array

        def __dlpack__(self, **options):
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self._array.__dlpack_device__()

        def __array__(self, *args, **kwargs):
            raise TypeError("NumPy has no such type")

    client = serve(table(signature={"x": reverie.TensorSpec((2,), "float32")}))
    client.insert({"x": Lent(np.array([1, 2], np.float32))}, {"t": 1.0})
    assert next(client.sample("t"))[0].data[0].tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"is float64 \(2,\) but the signature of table 't' has"):
        client.insert({"x": Lent(np.array([1.0, 2.0]))}, {"t": 1.0})
    with pytest.raises(TypeError, match="column 'x' is None"):
        client.insert({"x": None}, {"t": 1.0})


def test_a_python_int_must_fit_into_int64(table, serve):
    client = serve(table())
    with pytest.raises(ValueError, match="does not fit into int64"):
        client.insert([2**63], {"t": 1.0})
    client.insert([np.uint64(2**63)], {"t": 1.0})
    assert int(next(client.sample("t"))[0].data[0]) == 2**63


def test_a_step_without_columns_is_refused_with_its_reason(table, serve):
    client = serve(table())
    with pytest.raises(ValueError, match="no columns"):
        client.insert([], {"t": 1.0})


def test_an_item_without_a_priority_gets_the_largest_so_far(reverb, table):
    server = reverb.Server([table()])
    client = server.client()
    client.insert([1], {"t": 5.0})
    client.insert([2], {"t": None})
    client.mutate_priorities("t", deletes=[next(client.sample("t"))[0].info.key])
    assert next(client.sample("t"))[0].info.priority == 5.0
    server.stop()


def test_an_update_with_a_nan_priority_changes_nothing(reverb, table, serve):
    client = serve(table(sampler=reverb.selectors.MaxHeap()))
    client.insert([1], {"t": 2.0})
    key = next(client.sample("t"))[0].info.key
    with pytest.raises(ValueError, match="NaN"):
        client.mutate_priorities("t", {key: float("nan")})
    assert next(client.sample("t"))[0].info.priority == 2.0


def test_a_trajectory_column_needs_cells_of_one_column(reverb, table, serve):
    writer = serve(table()).trajectory_writer(2)
    writer.append({"a": 1, "b": 2})
    history = writer.history
    with pytest.raises(ValueError, match="take them from one column"):
        reverb.TrajectoryColumn([*history["a"][-1:], *history["b"][-1:]])
    with pytest.raises(ValueError, match="has no references"):
        reverb.TrajectoryColumn([])
    writer.close()


def test_an_item_needs_a_row_in_each_column(table, serve):
    writer = serve(table()).trajectory_writer(2)
    writer.append({"a": 1, "b": 2})
    history = writer.history
    with pytest.raises(ValueError, match="column 'b' of the item has no rows"):
        writer.create_item("t", 1.0, {"a": history["a"][-1:], "b": history["b"][:0]})
    writer.close()


def test_all_steps_of_a_writer_have_one_shape_and_type(table, serve):
    writer = serve(table()).writer(1)  # each step is a chunk
    writer.append([np.zeros(2, np.float32)])
    for other in (np.zeros(3, np.float32), np.zeros(2, np.float64)):
        with pytest.raises(ValueError, match="since its first value"):
            writer.append([other])
    writer.close()


def test_a_dropped_trajectory_writer_flushes(table, serve):
    client = serve(table())
    writer = client.trajectory_writer(3)
    writer.configure((0,), num_keep_alive_refs=3, max_chunk_length=3)
    writer.append([1])
    writer.create_item("t", 1.0, [writer.history[0][-1:]])
    del writer
    gc.collect()
    assert client.server_info()["t"].current_size == 1


def test_a_dropped_writer_waits_at_most_a_second_for_a_full_queue(reverb, serve):
    client = serve(reverb.Table.queue("t", 1))
    node = reverb.structured.create_reference_step([None])[0][-1]
    by_pattern = client.structured_writer([reverb.structured.create_config([node], "t")])
    legacy = client.writer(1)
    for _ in range(2):
        by_pattern.append([1])
    with pytest.warns(ResourceWarning, match="1 of its items"):
        del by_pattern
    for _ in range(2):
        legacy.append([2])
        legacy.create_item("t", 1, 1.0)
    with pytest.warns(ResourceWarning, match="2 of its items"):
        del legacy
    assert client.server_info()["t"].current_size == 1


def test_closing_a_writer_whose_items_are_lost_raises(reverb, table):
    server = reverb.Server([table()])
    client = reverb.Client(f"localhost:{server.port}", retry_timeout_s=0.2)
    writer = client.writer(1)
    writer.append([1])
    writer.create_item("t", 1, 1.0)
    writer.flush()
    server.stop()
    writer.append([2])
    writer.create_item("t", 1, 1.0)
    with pytest.raises(RuntimeError, match="1 queued item"):
        writer.close()


def test_a_server_refuses_a_checkpointer_with_a_group(reverb, table, tmp_path):
    place = reverb.checkpointers.DefaultCheckpointer(str(tmp_path), group="mine")
    with pytest.raises(ValueError, match="group of the checkpointer is 'mine'"):
        reverb.Server([table()], checkpointer=place)


def test_a_squeezed_column_counts_as_a_cell(reverb, table, serve):
    writer = serve(table()).trajectory_writer(1)
    writer.append([1])
    column = writer.history[0]
    assert isinstance(column[-1], reverb.pybind.WeakCellRef)
    assert isinstance(next(iter(column[-1:])), reverb.TrajectoryColumn)
    writer.close()


def test_an_expired_cell_keeps_its_shape_and_dtype(table, serve):
    writer = serve(table()).trajectory_writer(1)
    writer.append([np.zeros(2, np.float32)])
    cell = next(iter(writer.history[0][-1:]))
    writer.append([np.zeros(2, np.float32)])
    assert cell.expired
    assert (cell.shape, cell.dtype) == ((2,), np.float32)
    writer.close()


def test_meaningless_conditions_are_refused(reverb, table, serve):
    client = serve(table())
    structured = reverb.structured
    step = structured.create_reference_step({"a": None, "b": None})
    index = structured.Condition.step_index()
    with pytest.raises(ValueError, match="only"):
        index % 3 > 1  # noqa: B015
    by_zero = structured.create_config([step["a"][-1]], "t", conditions=[index % 0 == 1])
    with pytest.raises(ValueError, match="position 0"):
        client.structured_writer([by_zero])
    on_float = structured.Condition.data({"a": 0, "b": 0})["b"] == 3
    writer = client.structured_writer(
        [structured.create_config([step["a"][-1]], "t", conditions=[on_float])]
    )
    with pytest.raises(ValueError, match="'b' is float64"):
        writer.append({"a": 1, "b": 2.0})
    third = structured.create_reference_step([None] * 3)[2]
    writer = client.structured_writer([structured.create_config([third[-1]], "t")])
    with pytest.raises(ValueError, match="leaf 2 of the steps, which have 2"):
        writer.append([1, 2])


def test_a_structured_writer_can_be_closed(reverb, table, serve):
    client = serve(table())
    node = reverb.structured.create_reference_step([None])[0][-1]
    with client.structured_writer([reverb.structured.create_config([node], "t")]) as writer:
        writer.append([1])
    assert client.server_info()["t"].current_size == 1
    writer.close()


def test_two_tables_may_share_a_limiter(reverb, table, serve):
    limiter = reverb.rate_limiters.MinSize(1)
    client = serve(table("t", rate_limiter=limiter), table("u", rate_limiter=limiter))
    client.insert([1], {"t": 1.0, "u": 1.0})
    assert next(client.sample("u"))[0].info.table_size == 1


def test_a_table_that_could_never_be_sampled_is_refused(reverb, table):
    with pytest.raises(ValueError, match="nothing could ever be sampled"):
        table(max_size=3, rate_limiter=reverb.rate_limiters.MinSize(4))


def test_a_history_is_indexed_like_a_list(table, serve):
    writer = serve(table()).trajectory_writer(5)
    for i in range(5):
        writer.append([i])
    history = writer.history[0]
    with pytest.raises(IndexError):
        history[5]
    assert history[3:5].numpy().tolist() == [3, 4]
    assert len(history[5:]) == 0
    assert history[np.int64(1)].numpy() == 1
    assert history[(0, 1)].numpy().tolist() == [0, 1]
    writer.close()


def test_the_inferred_length_of_a_pattern_with_a_step_matches_its_items(reverb, spec):
    step_spec = {"a": spec((), "int64")}
    step = reverb.structured.create_reference_step(step_spec)
    config = reverb.structured.create_config([step["a"][-5::2]], "t")
    assert reverb.structured.infer_signature([config], step_spec)[0].shape.as_list() == [3]


def test_steps_of_another_structure_are_refused(table, serve):
    writer = serve(table()).writer(3)
    writer.append({"a": 1})
    with pytest.raises(ValueError, match="structure"):
        writer.append([1])
    writer.close()


def test_a_buffer_longer_than_the_pattern_is_refused(reverb, table, serve):
    patterns = importlib.import_module("reverie.reverb.cc.patterns_pb2")
    config = reverb.structured.create_config(
        [reverb.structured.create_reference_step([None])[0][-2:]],
        "t",
        conditions=[patterns.Condition(buffer_length=True, ge=3)],
    )
    with pytest.raises(ValueError, match="buffer_length"):
        serve(table()).structured_writer([config])


def test_a_server_loads_a_dm_reverb_checkpoint(reverb, table, tmp_path):
    server = reverb.Server([table()])
    client = server.localhost_client()
    for value in range(3):
        client.insert([np.int64(value)], {"t": 1.0})
    theirs = reverie.checkpointers.convert(client.checkpoint(), tmp_path)
    server.stop()
    assert sorted(os.listdir(theirs)) == [
        "DONE",
        "chunks.tfrecord",
        "items.tfrecord",
        "tables.tfrecord",
    ]
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    server = reverb.Server([table()], checkpointer=checkpointer)
    client = server.localhost_client()
    assert client.server_info()["t"].current_size == 3
    assert client.checkpoint() == str(tmp_path / "checkpoint-0000000001")
    server.stop()
    with pytest.raises(TypeError, match=r"must be of reverb\.checkpointers"):
        reverb.Server([table()], checkpointer=str(tmp_path))


def test_the_error_for_an_unknown_table_is_a_value_and_a_runtime_error(table, serve):
    client = serve(table())
    with pytest.raises(reverie.errors.NotFoundError) as raised:
        client.insert([1], {"u": 1.0})
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, RuntimeError)


def test_fields_that_earlier_releases_lacked_are_optional(reverb):
    assert reverb.SampleInfo((), (), (), ()).times_sampled == 0


def test_an_argument_of_earlier_releases_is_accepted(table, serve):
    writer = serve(table()).trajectory_writer(3, get_signature_timeout_ms=300_000)
    writer.append([1])
    writer.close()


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_server_listens_at_both_loopback_addresses(reverb, table):
    server = reverb.Server([table()])
    for host in ("127.0.0.1", "[::1]", "ipv6:[::1]"):
        if "::1" in host and not has_ipv6():
            continue
        assert list(reverb.Client(f"{host}:{server.port}").server_info(timeout=10)) == ["t"]
    server.stop()


def test_our_time_limits_raise_reverbs_error(reverb, serve):
    client = serve(reverb.Table.queue("t", 1))
    client.insert(np.float32(1), {"t": 1.0})
    kept = client.trajectory_writer(1, max_in_flight_items=1)
    old = client.writer(1, max_in_flight_items=1)
    for writer in (kept, old):
        writer.append(np.float32(1))
    item = kept.history[-1:]
    kept.create_item("t", 1.0, item)
    old.create_item("t", 1, 1.0)
    node = reverb.structured.create_reference_step([None])[0][-1:]
    configs = [reverb.structured.create_config([node], "t")]
    by_pattern = client.structured_writer(configs, max_in_flight_items=1)
    by_pattern.append([np.float32(1)])
    for call in (
        lambda: client.insert(np.float32(2), {"t": 1.0}, timeout_s=0.01),
        lambda: [by_pattern.append([np.float32(1)], timeout_s=0.01) for _ in range(3)],
        lambda: kept.create_item("t", 1.0, item, timeout_s=0.01),
        lambda: kept.flush(timeout_s=0.01),
        lambda: old.create_item("t", 1, 1.0, timeout_s=0.01),
        lambda: old.close(timeout_s=0.01),
        lambda: client.insert_rows(np.ones(2, np.float32), "t", timeout_s=0.01),
        lambda: list(client.sample("t", 50, timeout_s=0.1)),  # all of them
    ):
        with pytest.raises(reverb.DeadlineExceededError):
            call()


def test_our_time_limits_raise_reverbs_error_if_no_server_answers(reverb):
    client = reverb.Client("127.0.0.1:1")
    for call in (
        lambda: client.insert(np.float32(1), {"t": 1.0}, timeout_s=0.01),
        lambda: client.server_info(timeout=0.01),
        lambda: client.mutate_priorities("t", {1: 1.0}, timeout_s=0.01),
        lambda: client.update_priorities("t", keys=[1], priorities=[1.0], timeout_s=0.01),
        lambda: client.delete("t", [1], timeout_s=0.01),
        lambda: client.reset("t", timeout_s=0.01),
        lambda: client.checkpoint(timeout_s=0.01),
        lambda: client.loaded_payload(timeout_s=0.01),
        lambda: client.sample_batch("t", 1, timeout_s=0.01),
    ):
        with pytest.raises(reverb.DeadlineExceededError):
            call()
    client.update_priorities("t", keys=[1], priorities=[1.0], wait=False)
    with pytest.raises(reverb.DeadlineExceededError):
        client.flush(timeout_s=0.01)


def test_a_batch_that_a_time_limit_cuts_short_is_in_reverbs_error(reverb, serve):
    client = serve(reverb.Table.queue("t", 4))
    client.insert(np.float32(3), {"t": 1.0})
    with pytest.raises(reverb.DeadlineExceededError) as raised:
        client.sample_batch("t", 2, timeout_s=0.1)
    assert np.ravel(raised.value.batch.data).tolist() == [3]


def test_append_returns_references_nested_as_the_step(reverb, table, serve):
    client = serve(table())
    writer = client.trajectory_writer(4)
    first = writer.append({"a": 1, "b": {"c": np.float32(10)}})
    part = writer.append({"a": 2}, partial_step=True)
    rest = writer.append({"a": None, "b": {"c": np.float32(20)}})
    assert [step.keys() for step in (first, part, rest)] == [{"a", "b"}, {"a"}, {"a", "b"}]
    assert rest["a"] is None
    assert [int(cell.numpy()) for cell in (first["a"], part["a"])] == [1, 2]
    last = rest["b"]["c"]
    assert (tuple(last.shape), last.dtype, last.expired) == ((), np.float32, False)
    trajectory = {
        "a": reverb.TrajectoryColumn([first["a"], part["a"]]),
        "c": reverb.TrajectoryColumn([last], squeeze=True),
    }
    writer.create_item("t", 1.0, trajectory)
    writer.flush()
    (sample,) = client.sample("t", emit_timesteps=False)
    a, c = sample.data
    assert (a.tolist(), c.tolist()) == ([1, 2], 20)
    writer.close()
