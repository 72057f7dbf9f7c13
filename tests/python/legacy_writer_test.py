"""Reverb's first writer, and its sampling of single steps."""

import gc
import sys

import numpy as np
import pytest

import reverie
from reverie.errors import InvalidArgumentError


@pytest.fixture
def client():
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        100,
        reverie.rate_limiters.MinSize(1),
    )
    with reverie.Store([table]) as store:
        yield store.client()


def test_an_item_holds_the_last_steps(client):
    with client.writer(max_sequence_length=3) as writer:
        for step in range(5):
            writer.append([np.full(2, step), float(step)])
            if step >= 2:
                writer.create_item("t", num_timesteps=3, priority=step)
    items = []
    for _ in range(3):
        steps = next(client.sample("t"))
        assert all(isinstance(step, reverie.ReplaySample) for step in steps)
        assert len({step.info for step in steps}) == 1
        items.append([step.data[1] for step in steps])
        client.delete("t", [steps[0].info.key])
    assert items == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_a_sequence_is_appended_step_by_step(client):
    with client.writer(max_sequence_length=4, chunk_length=2) as writer:
        writer.append_sequence({"x": np.arange(4), "y": np.arange(8).reshape(4, 2)})
        writer.create_item("t", 4, 1.0)
        for bad, message in [
            ({"x": 1, "y": np.zeros((1, 2))}, "column 'x' of the sequence is a scalar"),
            ({"x": np.arange(2), "y": np.arange(6).reshape(3, 2)}, "same number"),
            ({"x": np.arange(0), "y": np.zeros((0, 2), int)}, "at least 1"),
        ]:
            with pytest.raises(ValueError, match=message):
                writer.append_sequence(bad)
    data = client.sample_batch("t", 1).data
    np.testing.assert_array_equal(data["x"][0], np.arange(4))
    np.testing.assert_array_equal(data["y"][0], np.arange(8).reshape(4, 2))


def test_steps_of_another_structure_are_refused_and_the_writer_stays_usable(client):
    writer = client.writer(2)
    writer.append({"a": 1, "b": 2})
    for step, message in [
        ({"a": 1}, "all steps of this writer must have the same"),
        ({"a": 1, "b": 2, "c": 3}, "column 'c', which earlier steps lack"),
        ([1, 2], "column '0', which earlier steps lack"),
        ({"a": 1.5, "b": 2}, "column 'a'"),
    ]:
        with pytest.raises(ValueError, match=message):
            writer.append(step)
    writer.append({"b": 4, "a": 3})
    writer.create_item("t", 2, 1.0)
    writer.close()
    np.testing.assert_array_equal(client.sample_batch("t", 1).data["a"][0], [1, 3])


def test_invalid_items_are_refused(client):
    writer = client.writer(3)
    for arguments, message in [
        (("t", 1, 1.0), "0 steps were appended"),
    ]:
        with pytest.raises(ValueError, match=message):
            writer.create_item(*arguments)
    for step in range(2):
        writer.append(step)
    for arguments, message in [
        (("t", 0, 1.0), "num_timesteps is 0"),
        (("t", 3, 1.0), "num_timesteps is 3, but 2 steps"),
        (("t", 4, 1.0), "num_timesteps is 4; it must be at most max_sequence_length"),
        (("t", 1, float("nan")), "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            writer.create_item(*arguments)
    with pytest.raises(reverie.errors.NotFoundError, match="'u'"):
        writer.create_item("u", 1, 1.0)
    writer.close()
    assert client.server_info()["t"].current_size == 0


@pytest.mark.parametrize("step", [{}, [], ()])
def test_a_first_step_without_columns_is_refused(client, step):
    with client.writer(1) as writer, pytest.raises(ValueError, match="at least one array"):
        writer.append(step)


def test_invalid_bounds_of_a_writer_are_refused(client):
    for arguments, message in [
        ({"max_sequence_length": 0}, "max_sequence_length is 0"),
        ({"max_sequence_length": 2, "chunk_length": 0}, "chunk_length is 0"),
        ({"max_sequence_length": 2, "chunk_length": 3}, "chunk_length is 3"),
        ({"max_sequence_length": 2, "max_in_flight_items": 0}, "max_in_flight_items is 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            client.writer(**arguments)


def test_close_flushes_until_its_timeout_and_refuses_later_calls():
    with reverie.Store([reverie.Table.queue("full", 1)]) as store:
        writer = store.client().writer(1)
        writer.append(1)
        for _ in range(3):
            writer.create_item("full", 1, 1.0)
        with pytest.raises(reverie.DeadlineExceededError, match="2 items"):
            writer.flush(timeout_s=0)
        with pytest.raises(reverie.DeadlineExceededError, match="2 items"):
            writer.close(timeout_s=0)
        with pytest.raises(RuntimeError, match="closed"):
            writer.append(2)
        assert store.client().server_info()["full"].rate_limiter_info.insert_stats.pending == 0


def test_calls_of_a_closed_writer_are_refused(client):
    writer = client.writer(1)
    writer.append(1)
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.close()
    with pytest.raises(ValueError, match="closed"), writer:
        pass
    for call in (
        lambda: writer.append(1),
        lambda: writer.create_item("t", 1, 1.0),
        lambda: writer.flush(),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_a_signature_may_describe_one_step():
    signature = {"a": reverie.TensorSpec([], "int64"), "b": reverie.TensorSpec([2], "float32")}
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        10,
        reverie.rate_limiters.MinSize(1),
        signature=signature,
    )
    with reverie.Store([table]) as store:
        client = store.client()
        with client.writer(3) as writer:
            for step in range(3):
                writer.append({"a": step, "b": np.full(2, step, np.float32)})
            writer.create_item("t", 3, 1.0)
            writer.create_item("t", 1, 1.0)
        steps = next(client.sample("t", unpack_as_table_signature=True))
        assert [step.data["a"] for step in steps] == [0, 1, 2]
        with client.writer(1) as writer:
            writer.append({"a": 1, "b": np.zeros(3, np.float32)})
            with pytest.raises(ValueError, match=r" b: float32 \(1, 3\).*\(2,\)"):
                writer.create_item("t", 1, 1.0)
        with client.trajectory_writer(1) as writer:
            writer.append({"a": 1, "b": np.zeros(2, np.float32)})
            rows = {name: column[-1:] for name, column in writer.history.items()}
            with pytest.raises(ValueError, match="signature"):
                writer.create_item("t", 1.0, rows)


def test_samples_have_the_nest_of_the_signature():
    signature = {
        "a": reverie.TensorSpec([None], "int64"),
        "b": (reverie.TensorSpec([None, 2], float),),
    }
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        10,
        reverie.rate_limiters.MinSize(1),
        signature=signature,
    )
    with reverie.Store([table]) as store:
        client = store.client()
        assert client.server_info()["t"].signature == signature
        with client.writer(2) as writer:
            for step in range(2):
                writer.append({"a": step, "b": (np.full(2, float(step)),)})
            writer.create_item("t", 2, 1.0)
        whole = next(client.sample("t", emit_timesteps=False, unpack_as_table_signature=True))
        assert whole.data["a"].tolist() == [0, 1]
        assert whole.data["b"][0].shape == (2, 2)
        steps = next(client.sample("t", unpack_as_table_signature=True))
        assert [step.data["a"] for step in steps] == [0, 1]
        flat = next(client.sample("t", emit_timesteps=False))
        assert [column.shape for column in flat.data] == [(2,), (2, 2)]


def test_a_waiting_call_keeps_no_references_to_earlier_steps():
    # A waiting call once kept references to freed arrays, and the garbage collector crashed.
    with reverie.Store([reverie.Table.queue("q", 1)]) as store:
        client = store.client()
        client.insert([np.zeros(2)], {"q": 1.0})
        writer = client.writer(1, max_in_flight_items=1)
        array = np.zeros(2)
        writer.append([array])
        writer.create_item("q", 1, 1.0)
        before = sys.getrefcount(array)
        for _ in range(3):
            with pytest.raises(reverie.DeadlineExceededError):
                writer.create_item("q", 1, 1.0, timeout_s=0.0)
        assert sys.getrefcount(array) == before
        writer._writer.close()


def write_to_both(client):
    with client.writer(100) as writer:
        for step in range(300):
            writer.append([np.zeros((3, 3), np.float32)])
            if step >= 100 and step % 5 == 0:
                for name in ("a", "b"):
                    writer.create_item(name, 100, 1.0)


def test_a_writer_survives_items_that_one_of_two_tables_refuses():
    # The refused items once corrupted memory, and the process crashed soon after.
    signature = [reverie.TensorSpec((None, 3, 4), np.float32)]
    tables = [
        reverie.Table(
            name,
            reverie.selectors.Uniform(seed=1),
            reverie.selectors.Fifo(),
            1_000,
            reverie.rate_limiters.MinSize(1),
            signature=signature if name == "b" else None,
        )
        for name in ("a", "b")
    ]
    with reverie.Server(tables) as server:
        client = reverie.Client(server.address)
        for _ in range(5):
            with pytest.raises(InvalidArgumentError, match="table 'b'"):
                write_to_both(client)
            gc.collect()
        client.insert([np.zeros((3, 3), np.float32)], {"a": 1.0})
        assert client.server_info()["b"].current_size == 0
