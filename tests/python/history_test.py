"""Histories are indexed like lists; a list is the model."""

import random

import numpy as np
import pytest

import reverie


@pytest.fixture
def client():
    tables = [
        reverie.Table(
            name,
            reverie.selectors.Fifo(),
            reverie.selectors.Fifo(),
            10_000,
            reverie.rate_limiters.MinSize(1),
        )
        for name in ("t", "u")
    ]
    with reverie.Store(tables) as store:
        yield store.client()


@pytest.fixture
def writer(client):
    writer = client.trajectory_writer(num_keep_alive_refs=100)
    yield writer
    writer.close()


def append_numbers(writer, count):
    for i in range(count):
        writer.append({"x": np.array([i, -i])})
    return [np.array([i, -i]) for i in range(count)]


def random_key(rng, count):
    def number():
        return rng.choice([None, rng.randint(-count - 2, count + 2)])

    kind = rng.choice(["slice", "int", "list"])
    if kind == "slice":
        return slice(number(), number(), rng.choice([None, 1, 2, 3, -1, -2]))
    if kind == "int":
        return rng.choice([int, np.int32, np.int64])(rng.randint(-count - 1, count))
    return [rng.randint(-count, count - 1) for _ in range(rng.randint(1, 5))]


def test_a_history_is_indexed_like_a_list(writer):
    model = append_numbers(writer, 20)
    column = writer.history["x"]
    rng = random.Random(3)
    for _ in range(2000):
        key = random_key(rng, len(model))
        try:
            wanted = [model[i] for i in key] if isinstance(key, list) else model[key]
        except IndexError:
            with pytest.raises(IndexError, match=r"'x' has 20 steps; index -?\d+ is out of range"):
                column[key]
            continue
        picked = column[key]
        if len(wanted) == 0:
            assert len(picked) == 0
            continue
        np.testing.assert_array_equal(picked.numpy(), np.array(wanted))
        assert picked.shape == np.array(wanted).shape
        assert picked.is_squeezed == (not isinstance(key, (slice, list)))
        assert picked.dtype == np.int64


def test_a_selected_column_is_indexed_like_a_list(writer):
    append_numbers(writer, 20)
    rng = random.Random(4)
    picked = writer.history["x"][[3, 4, 5, 9, 1, 1, 17]]
    model = list(picked.numpy())
    for _ in range(500):
        key = random_key(rng, len(model))
        try:
            wanted = [model[i] for i in key] if isinstance(key, list) else model[key]
        except IndexError:
            with pytest.raises(IndexError):
                picked[key]
            continue
        if len(wanted):
            np.testing.assert_array_equal(picked[key].numpy(), np.array(wanted))
        else:
            assert len(picked[key]) == 0


def test_items_hold_the_rows_that_were_selected(client, writer):
    model = append_numbers(writer, 20)
    rng = random.Random(5)
    wanted = []
    for _ in range(200):
        key = random_key(rng, len(model))
        try:
            rows = [model[i] for i in key] if isinstance(key, list) else model[key]
        except IndexError:
            continue
        if len(rows) == 0:
            continue
        writer.create_item("t", 1.0, [writer.history["x"][key]])
        wanted.append(np.array(rows))
    samples = []
    for _ in wanted:
        sample = next(client.sample("t", emit_timesteps=False))
        client.delete("t", [sample.info.key])
        samples.append(sample.data[0])
    for sample, rows in zip(samples, wanted, strict=True):
        np.testing.assert_array_equal(sample, rows)


@pytest.mark.parametrize("key", ["x", 1.5, None, (1.5,), [1.5], ["x"]])
def test_invalid_indices_are_refused(writer, key):
    append_numbers(writer, 3)
    with pytest.raises(TypeError, match="column 'x' is indexed with"):
        writer.history["x"][key]


def test_a_history_object_follows_later_steps(writer):
    writer.append({"x": 1.0})
    history = writer.history
    column = history["x"]
    writer.append({"x": 2.0})
    assert len(column) == 2
    assert history["x"] is writer.history["x"] is column
    assert column[-1].numpy() == 2.0


def test_a_history_may_be_narrowed_in_place(client, writer):
    for step in range(4):
        writer.append({"x": step, "more": {"y": -step}})
        if step < 2:
            continue
        last = writer.history
        for rows in (last, last["more"]):
            for name, column in rows.items():
                if name != "more":
                    rows[name] = column[-2:]
        writer.create_item("t", 1.0, last)
        writer.history.pop("x")  # of this dict alone
        del writer.history["more"]["y"]
    for step in (2, 3):
        batch = client.sample_batch("t", 1)
        client.delete("t", batch.keys)
        np.testing.assert_array_equal(batch.data["x"], [[step - 1, step]])
        np.testing.assert_array_equal(batch.data["more"]["y"], [[1 - step, -step]])


def test_iterating_gives_cells_and_none_for_missing_ones(writer):
    writer.append({"x": 1.0})
    writer.append({"y": 2.0})
    writer.append({"x": 3.0})
    cells = list(writer.history["x"])
    assert [None if cell is None else float(cell.numpy()) for cell in cells] == [1.0, None, 3.0]
    column = reverie.TrajectoryColumn([cells[0], cells[2]])
    np.testing.assert_array_equal(column.numpy(), [1.0, 3.0])
    assert reverie.TrajectoryColumn([cells[2]], squeeze=True).shape == ()
    with pytest.raises(ValueError, match="2 rows; only a single one can be squeezed"):
        reverie.TrajectoryColumn([cells[0], cells[2]], squeeze=True)
    with pytest.raises(ValueError, match="column 'p' refers to a NoneType"):
        reverie.TrajectoryColumn(cells, path="p")
    with pytest.raises(ValueError, match="cells of 'x' and of 'y'"):
        reverie.TrajectoryColumn([cells[0], writer.history["y"][1]])


def test_a_slice_over_missing_or_expired_steps_is_refused(client):
    writer = client.trajectory_writer(num_keep_alive_refs=2)
    for step in range(4):
        writer.append({"x": step} if step else {"x": step, "late": 1})
    with pytest.raises(ValueError, match="column 'x'"):
        writer.history["x"][:]
    with pytest.raises(ValueError, match="column 'late'"):
        writer.history["late"][-1:]
    np.testing.assert_array_equal(writer.history["x"][-2:].numpy(), [2, 3])
    writer.close()


def test_a_column_whose_rows_expired_is_refused(client):
    writer = client.trajectory_writer(num_keep_alive_refs=2)
    writer.append({"x": 1.0})
    column = writer.history["x"][-1:]
    assert not column.expired
    for _ in range(3):
        writer.append({"x": 2.0})
    assert column.expired
    with pytest.raises(RuntimeError, match="expired"):
        column.numpy()
    with pytest.raises(ValueError, match="column 'x'"):
        writer.create_item("t", 1.0, {"x": column})
    writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})  # the writer is still usable
    writer.close()


def test_partial_steps_fill_one_row(client, writer):
    writer.append({"obs": 1.0}, partial_step=True)
    assert writer.episode_steps == 0
    assert len(writer.history["obs"]) == 1
    with pytest.raises(ValueError, match="column 'obs'"):
        writer.append({"obs": 2.0}, partial_step=True)
    writer.append({"action": 3})
    assert writer.episode_steps == 1
    writer.create_item(
        "t", 1.0, {"o": writer.history["obs"][-1], "a": writer.history["action"][-1]}
    )
    data = client.sample_batch("t", 1).data
    assert (data["o"][0], data["a"][0]) == (1.0, 3)


def test_none_leaves_a_column_out_of_a_step(writer):
    writer.append({"x": 1.0, "y": None})
    writer.append({"x": 2.0, "y": 5})
    assert [cell is None for cell in writer.history["y"]] == [True, False]


def test_a_structure_whose_first_step_was_refused_must_still_agree_with_others(client, writer):
    with pytest.raises(reverie.errors.UnsupportedTypeError):
        writer.append({"a": {"b": object()}})
    writer.append({"a": 1.0})
    with pytest.raises(reverie.errors.InvalidArgumentError, match="a dict at 'a'"):
        writer.append({"a": {"b": 2.0}})
    writer.append({"a": 3.0})
    writer.create_item("t", 1.0, {"a": writer.history["a"][-2:]})
    writer.flush()
    assert client.sample_batch("t", 1).data["a"].tolist() == [[1.0, 3.0]]


def test_end_episode_clears_the_history(writer):
    append_numbers(writer, 3)
    old = writer.history["x"][-1:]
    writer.end_episode()
    assert writer.episode_steps == 0
    assert len(writer.history["x"]) == 0
    with pytest.raises(ValueError, match="column 'x'"):
        writer.create_item("t", 1.0, {"x": old})
    append_numbers(writer, 2)
    np.testing.assert_array_equal(writer.history["x"][:].numpy(), [[0, 0], [1, -1]])


def test_items_may_span_episodes_whose_buffers_were_kept(client, writer):
    append_numbers(writer, 3)
    writer.end_episode(clear_buffers=False)
    append_numbers(writer, 2)
    assert writer.episode_steps == 2
    assert len(writer.history["x"]) == 5
    writer.create_item("t", 1.0, {"x": writer.history["x"][1:4]})
    np.testing.assert_array_equal(
        client.sample_batch("t", 1).data["x"][0], [[1, -1], [2, -2], [0, 0]]
    )


def test_configure_keeps_one_column_for_longer(client):
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    writer.configure(("obs", "frame"), num_keep_alive_refs=4, max_chunk_length=2)
    for step in range(6):
        writer.append({"obs": {"frame": step}, "reward": step})
    np.testing.assert_array_equal(writer.history["obs"]["frame"][-4:].numpy(), [2, 3, 4, 5])
    with pytest.raises(ValueError, match="column 'reward'"):
        writer.history["reward"][-2:]
    for arguments, message in [
        ({"num_keep_alive_refs": 0, "max_chunk_length": None}, "num_keep_alive_refs is 0"),
        ({"num_keep_alive_refs": 2, "max_chunk_length": 0}, "max_chunk_length is 0"),
        ({"num_keep_alive_refs": 2, "max_chunk_length": 3}, "max_chunk_length is 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            writer.configure("reward", **arguments)
    writer.close()


def test_items_of_several_tables_share_their_rows(client, writer):
    writer.append({"x": np.zeros(1000)})
    for table in ("t", "u", "t"):
        writer.create_item(table, None, {"x": writer.history["x"][-1:]})
    sizes = {name: info.current_size for name, info in client.server_info().items()}
    assert sizes == {"t": 2, "u": 1}
    assert client.priorities("t", client.sample_batch("t", 1).keys) == [1.0]


def test_leaving_the_context_flushes_and_keeps_the_writer_open(client):
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append({"x": 1})
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})
    assert writer.pending_items == 0
    writer.append({"x": 2})
    writer.close()
    writer.close()
    for call in (
        lambda: writer.append({"x": 3}),
        lambda: writer.flush(),
        lambda: writer.end_episode(),
        lambda: writer.configure("x", num_keep_alive_refs=1, max_chunk_length=1),
        lambda: writer.create_item("t", 1.0, {"x": writer.history["x"][-1]}),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()
