"""Calls that are refused, and how, where the other files of this folder do not test it."""

import gc
import os
import socket

import numpy as np
import pytest

# The messages of the two libraries differ.
refused = pytest.raises(ValueError)  # noqa: PT011
broken = pytest.raises(RuntimeError)


# --- Server and checkpoints


def test_a_port_in_use_is_refused(reverb, table):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        with refused:
            reverb.Server([table()], port=taken.getsockname()[1])


def test_a_server_without_a_checkpointer_can_write_checkpoints(reverb, table):
    server = reverb.Server([table()])
    client = server.localhost_client()
    client.insert([7], {"t": 3.0})
    path = client.checkpoint()
    server.stop()
    assert os.path.isabs(path)
    kept = reverb.checkpointers.DefaultCheckpointer(path=os.path.dirname(path))
    again = reverb.Server([table()], checkpointer=kept)
    [[sample]] = list(again.localhost_client().sample("t"))
    assert (int(sample.data[0]), float(sample.info.priority)) == (7, 3.0)
    again.stop()


def test_an_unused_checkpoint_directory_is_removed_with_its_server(reverb, is_ours, table):
    if not is_ours:
        pytest.skip("a difference: dm-reverb leaves it")
    for used in (False, True):
        server = reverb.Server([table()])
        directory = server._checkpointer.path
        if used:
            server.localhost_client().checkpoint()
        server.stop()
        assert os.path.isdir(directory)
        del server
        gc.collect()
        assert os.path.isdir(directory) is used


def test_tables_of_a_checkpoint_are_restored_or_refused_but_not_dropped(
    reverb, is_ours, table, tmp_path
):
    place = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    server = reverb.Server([table("t")], checkpointer=place)
    server.localhost_client().checkpoint()
    server.stop()
    if is_ours:  # a difference: ours restores the saved table and adds the new one
        again = reverb.Server([table("u")], checkpointer=place)
        assert sorted(again.localhost_client().server_info()) == ["t", "u"]
        again.stop()
    else:
        with refused:
            reverb.Server([table("u")], checkpointer=place)


def test_the_info_of_a_table_has_the_signature_of_its_checkpoint(
    reverb, is_ours, table, spec, tmp_path
):
    if not is_ours:
        pytest.skip("a difference: dm-reverb 0.14 shows the table as it was given")
    place = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    saved = {"x": spec((3,), "float32")}
    server = reverb.Server([table(signature=saved)], checkpointer=place)
    server.localhost_client().checkpoint()
    server.stop()
    for given in (None, {"y": spec((), "int64")}, saved):
        loaded = table(signature=given)
        assert loaded.info.signature == given
        again = reverb.Server([loaded], checkpointer=place)
        assert loaded.info.signature == saved
        assert again.localhost_client().server_info()["t"].signature == saved
        again.stop()


def test_a_checkpoint_group_is_refused_where_a_server_uses_it(reverb, table, tmp_path):
    place = reverb.checkpointers.DefaultCheckpointer(str(tmp_path), group="mine")
    assert place.group == "mine"
    with refused:
        server = reverb.Server([table()], checkpointer=place)
        server.localhost_client().checkpoint()


def test_a_program_may_have_a_checkpointer_of_its_own(reverb, table, tmp_path):
    class Mine(reverb.checkpointers.CheckpointerBase):
        def internal_checkpointer(self):
            return reverb.pybind.create_default_checkpointer(str(tmp_path), "", None)

    server = reverb.Server([table()], checkpointer=Mine())
    client = server.localhost_client()
    client.insert([7], {"t": 1.0})
    assert client.checkpoint().startswith(str(tmp_path))
    server.stop()
    again = reverb.Server([table()], checkpointer=Mine())
    assert int(next(again.localhost_client().sample("t"))[0].data[0]) == 7
    again.stop()


def test_a_checkpointer_that_names_no_place_is_refused(reverb, table, tmp_path):
    class Mine(reverb.checkpointers.CheckpointerBase):
        def internal_checkpointer(self):
            return str(tmp_path)

    with pytest.raises(TypeError):
        reverb.Server([table()], checkpointer=Mine())


def test_a_temporary_checkpoint_directory_is_made_with_its_checkpointer(reverb):
    made = reverb.checkpointers.TempDirCheckpointer()
    assert os.path.isdir(made.path)
    os.rmdir(made.path)


def test_a_refused_replace_leaves_the_table_unchanged(table):
    made = table()
    with refused:
        made.replace(max_size=0)
    with refused:
        made.replace(name="")
    assert made.info.max_size == 100


# --- Client


@pytest.mark.parametrize("value", [{"a": object()}, [np.datetime64("2020-01-01")]])
def test_a_leaf_that_is_not_a_tensor_raises_type_error(table, serve, value):
    client = serve(table())
    with pytest.raises(TypeError):
        client.insert(value, {"t": 1.0})
    client.insert([1], {"t": 1.0})
    assert client.server_info()["t"].current_size == 1


def test_errors_for_an_unknown_table_name_it(table, serve):
    client = serve(table())
    with pytest.raises(ValueError, match="nowhere"):
        client.insert([1], {"nowhere": 1.0})
    with pytest.raises(RuntimeError, match="nowhere"):
        list(client.sample("nowhere"))
    with pytest.raises(RuntimeError, match="nowhere"):
        client.mutate_priorities("nowhere", {1: 1.0})
    with pytest.raises(RuntimeError, match="nowhere"):
        client.reset("nowhere")


def test_inserting_into_an_unknown_table_says_that_it_has_no_signature(table, serve):
    client = serve(table())
    says = "Unable to find signatures for table 'nowhere'"
    with pytest.raises(ValueError, match=says):
        client.insert([1], {"nowhere": 1.0})
    writer = client.writer(2)
    writer.append([1])
    with pytest.raises(ValueError, match=says):
        writer.create_item("nowhere", 1, 1.0)
    writer.close()


def test_only_a_timeout_is_a_reverb_error(reverb, table, serve):
    client = serve(table())
    writer = client.trajectory_writer(2)
    writer.append([1])
    for call in (
        lambda: client.insert([1], {"nowhere": 1.0}),
        lambda: client.reset("nowhere"),
        lambda: next(client.sample("nowhere")),
        lambda: writer.append([1.5]),
        lambda: writer.create_item("t", float("nan"), [writer.history[0][-1:]]),
        lambda: writer.create_item("t", 1.0, [1]),
        lambda: writer.flush(-1),
    ):
        with pytest.raises((ValueError, RuntimeError, TypeError)) as raised:
            call()
        assert not isinstance(raised.value, reverb.ReverbError)
    builtins = (ValueError, RuntimeError, LookupError, OSError, TypeError)
    assert not issubclass(reverb.DeadlineExceededError, builtins)
    writer.close()


def test_a_timeout_without_a_server_raises_a_reverb_error(reverb):
    with socket.socket() as silent:
        silent.bind(("localhost", 0))
        client = reverb.Client(f"localhost:{silent.getsockname()[1]}")
        with pytest.raises(reverb.ReverbError) as raised:
            client.server_info(timeout=1)
    assert isinstance(raised.value, reverb.errors.DeadlineExceededError)


# --- Writer


@pytest.mark.parametrize("other", [np.zeros(3, np.float32), np.zeros(2, np.int32)])
def test_steps_of_one_chunk_must_have_the_same_shape_and_type(table, serve, other):
    writer = serve(table()).writer(2, chunk_length=2)
    writer.append([np.zeros(2, np.float32)])
    with refused:
        writer.append([other])


def test_a_sequence_without_columns_is_refused(table, serve):
    writer = serve(table()).writer(3)
    with refused:
        writer.append_sequence([])
    writer.close()


def test_an_item_that_does_not_match_the_signature_is_refused(table, serve, spec):
    client = serve(table(signature=[spec((None, 2), "float32")]))
    writer = client.writer(2)
    writer.append([np.zeros(3, np.float32)])
    with refused:
        writer.create_item("t", 1, 1.0)
        writer.flush()
    assert client.server_info()["t"].current_size == 0


# --- TrajectoryWriter


def test_a_field_can_be_set_once_per_step(table, serve):
    writer = serve(table()).trajectory_writer(4)
    writer.append({"x": 1}, partial_step=True)
    with pytest.raises(ValueError, match=r"x.*already"):
        writer.append({"x": 2}, partial_step=True)
    writer.append({"y": 2})
    assert writer.episode_steps == 1
    writer.close()


def test_the_error_for_a_column_of_another_type_names_it(table, serve):
    writer = serve(table()).trajectory_writer(4)
    writer.append({"x": np.float32(1)})
    with pytest.raises(ValueError, match=r"column.*'x'"):
        writer.append({"x": np.float64(1)})
    with pytest.raises(ValueError, match=r"column.*'x'"):
        writer.append({"x": np.zeros(2, np.float32)})
    writer.append({"x": np.float32(2)})
    assert [float(cell.numpy()) for cell in writer.history["x"]] == [1.0, 2.0]
    writer.close()


def test_calls_of_a_closed_trajectory_writer_are_refused(table, serve):
    writer = serve(table()).trajectory_writer(4)
    writer.append([1])
    column = writer.history[0][-1:]
    writer.close()
    writer.close()
    for call in (
        lambda: writer.append([2]),
        lambda: writer.create_item("t", 1.0, [column]),
        writer.flush,
        writer.end_episode,
    ):
        with broken:
            call()


def test_errors_of_a_trajectory_writer_have_the_words_for_which_programs_look(table, serve):
    writer = serve(table()).trajectory_writer(2)
    writer.append({"x": np.float32(1), "y": [1]})
    old = writer.history["y"][0][-1:]
    for value in (np.float64(1), np.zeros(2, np.float32)):
        what = "wrong dtype" if value.ndim == 0 else "incompatible shape"
        with pytest.raises(ValueError, match=rf"Tensor of {what} provided for column \('x',\)\. "):
            writer.append({"x": value})
    with pytest.raises(ValueError, match=r"provided for column \('y', 0\)\. "):
        writer.append({"y": [1.5]})
    writer.append({"x": np.float32(2)}, partial_step=True)
    with pytest.raises(ValueError, match=r"Field \('x',\) has already been set in the active step"):
        writer.append({"x": np.float32(3)})
    writer.append({"y": [2]})
    writer.append({"x": np.float32(4), "y": [3]})
    expired = {"a": writer.history["x"][-1:], "b": old}
    with pytest.raises(ValueError, match=r"Error in column 1: Column contains expired CellRef\."):
        writer.create_item("t", 1.0, expired)
    column = writer.history["x"][-1:]
    writer.close()
    for call in (
        lambda: writer.append({"x": np.float32(5)}),
        lambda: writer.create_item("t", 1.0, {"a": column}),
        writer.flush,
        writer.end_episode,
    ):
        with pytest.raises(RuntimeError, match=r"TrajectoryWriter::Close has been called\."):
            call()


def test_a_column_with_open_cells_cannot_be_reconfigured(table, serve):
    writer = serve(table()).trajectory_writer(4)
    writer.configure((0,), num_keep_alive_refs=4, max_chunk_length=4)
    writer.append([1])
    with broken:
        writer.configure((0,), num_keep_alive_refs=4, max_chunk_length=2)
    writer.close()


def test_rows_with_absent_cells_cannot_be_selected(table, serve):
    writer = serve(table()).trajectory_writer(4)
    writer.append({"x": 1})
    writer.append({"x": 2, "y": 3})
    assert [cell is None for cell in writer.history["y"]] == [True, False]
    with refused:
        writer.history["y"][:]
    assert writer.history["y"][-1].numpy() == 3
    writer.close()


@pytest.mark.parametrize("timeout_ms", [-1, 0])
def test_a_flush_without_a_timeout_returns_when_all_items_are_inserted(table, serve, timeout_ms):
    client = serve(table())
    writer = client.trajectory_writer(2)
    writer.append([1])
    writer.create_item("t", 1.0, [writer.history[0][-1:]])
    writer.flush(timeout_ms=timeout_ms)
    assert client.server_info()["t"].current_size == 1
    writer.close()


# --- StructuredWriter


@pytest.fixture
def structured(reverb, table, serve):
    client = serve(table())

    def make(leaves, name="t", pattern=lambda step: [step["a"][-1]]):
        step = reverb.structured.create_reference_step(leaves)
        return client.structured_writer([reverb.structured.create_config(pattern(step), name)])

    yield make
    gc.collect()  # a writer that an error's traceback keeps must end before its server does


def test_a_pattern_without_rows_or_a_table_is_refused(structured):
    with refused:
        structured({"a": None}, pattern=lambda _: {})
    with refused:
        structured({"a": None}, name="")


def test_a_structured_column_cannot_change_its_type(structured):
    writer = structured({"a": None})
    writer.append({"a": np.float32(1)})
    with pytest.raises(ValueError, match="a"):
        writer.append({"a": np.float64(1)})


def test_a_structured_field_can_be_set_once_per_step(structured):
    writer = structured({"a": None, "b": None})
    writer.append({"a": 1, "b": None}, partial_step=True)
    with broken:
        writer.append({"a": 2, "b": 3})


def test_an_unknown_table_is_reported_when_a_structured_writer_flushes(structured):
    writer = structured({"a": None}, name="nowhere")
    writer.append({"a": 1})
    with broken:
        writer.flush()


def test_signatures_of_different_shapes_cannot_be_inferred(reverb, spec):
    infer = reverb.structured.infer_signature
    step = reverb.structured.create_reference_step({"a": None, "b": None, "c": None})
    configs = [
        reverb.structured.create_config({"x": step[name][-2:]}, "t") for name in ("a", "b", "c")
    ]
    specs = {
        "a": spec((2,), "float32"),
        "b": spec((2, 2), "float32"),
        "c": spec((3,), "float32"),
    }
    for other in configs[1:]:
        with refused:
            infer([configs[0], other], specs)


def test_signatures_of_several_tables_cannot_be_inferred(reverb, spec):
    step = reverb.structured.create_reference_step({"a": None})
    configs = [reverb.structured.create_config([step["a"][-1]], name) for name in ("t", "u")]
    with pytest.raises(ValueError, match=r"All configs must target the same table.*t, u"):
        reverb.structured.infer_signature(configs, {"a": spec((), "int64")})
