"""Invalid input: a typed error names the mistake, and everything else still works."""

import copy
import pickle
import re

import numpy as np
import pytest

import reverie
from reverie import errors, rate_limiters, selectors


def table(name="t", max_size=100, **options):
    return reverie.Table(
        name,
        options.pop("sampler", selectors.Uniform(seed=1)),
        options.pop("remover", selectors.Fifo()),
        max_size,
        options.pop("rate_limiter", rate_limiters.MinSize(1)),
        **options,
    )


def tables():
    signature = {
        "x": reverie.TensorSpec([None, 2], np.float32),
        "y": reverie.TensorSpec([], "int64"),
    }
    return [table(), table("signed", signature=signature)]


@pytest.fixture(params=["embedded", "served"])
def client(request):
    """A client of a store in this process, or of a server: both refuse the same."""
    if request.param == "embedded":
        with reverie.Store(tables()) as store:
            yield store.client()
    else:
        with reverie.Server(tables()) as server:
            yield server.localhost_client()


# Not possible in Reverb's protocol: distinct samples, and named columns without a signature.
in_this_process = pytest.mark.parametrize("client", ["embedded"], indirect=True)


@pytest.fixture
def writer(client):
    writer = client.trajectory_writer(num_keep_alive_refs=3)
    for step in range(5):
        writer.append({"x": np.full(2, step, np.float32), "y": step})
    yield writer
    # After every refusal the writer is usable and the table works.
    writer.append({"x": np.zeros(2, np.float32), "y": 9})
    last = {"x": writer.history["x"][-3:], "y": writer.history["y"][-1]}
    for name in ("t", "signed"):
        writer.create_item(name, 1.0, last)
        data = client.sample_batch(name, 2, timeout_s=60).data
        assert (data["y"] if isinstance(data, dict) else data[1]).tolist() == [9, 9]
    writer.close()


def refused(kind, *words):
    """Expects an error of ours that is also a ``kind`` and contains ``words`` in order."""
    pattern = ".*".join(re.escape(word) for word in words)
    return pytest.raises(kind, match=re.compile(pattern, re.DOTALL))


def test_a_wrong_dtype_is_refused(writer):
    with refused(ValueError, "'x'", "float32", "float64") as caught:
        writer.append({"x": np.zeros(2), "y": 1})
    assert isinstance(caught.value, errors.InvalidArgumentError)


def test_a_wrong_shape_is_refused(writer):
    with refused(ValueError, "'x'", "(2,)", "(3,)"):
        writer.append({"x": np.zeros(3, np.float32), "y": 1})


def test_a_refused_step_is_not_written(writer):
    with refused(ValueError, "'y'"):
        writer.append({"x": np.full(2, 100, np.float32), "y": np.float32(1)})
    assert writer.episode_steps == 5
    assert writer.history["x"][-1].numpy()[0] == 4


@pytest.mark.parametrize(
    "step", [{"x": {"z": 1.0}}, {"x": [1.0]}, [1.0], 1.0, {"x": np.zeros(2, np.float32), "y": {}}]
)
def test_a_step_of_another_structure_is_refused(writer, step):
    with refused(ValueError, "the step has", "where earlier steps had"):
        writer.append(step)


@pytest.mark.parametrize("step", [{}, [], ()])
def test_a_step_without_columns_is_refused(client, step):
    writer = client.trajectory_writer(1)
    with refused(ValueError, "the step has no columns"):
        writer.append(step)
    writer.close()


def test_an_unknown_table_is_refused(client, writer):
    last = {"y": writer.history["y"][-1]}
    calls = [
        lambda: writer.create_item("nope", 1.0, last),
        lambda: client.insert({"x": 1}, {"nope": 1.0}),
        lambda: client.sample_batch("nope", 1),
        lambda: next(client.sample("nope")),
        lambda: next(client.sample("nope", unpack_as_table_signature=True)),
        lambda: client.update_priorities("nope", [1], [1.0]),
        lambda: client.mutate_priorities("nope", {1: 1.0}),
        lambda: client.delete("nope", [1]),
        lambda: client.reset("nope"),
    ]
    in_process = [
        lambda: client.priorities("nope", [1]),
        lambda: client.max_priority("nope"),
        lambda: client.why_blocked("nope"),
        lambda: client.can_sample("nope"),
    ]
    is_embedded = client.server_address is None
    for call in calls + in_process * is_embedded:
        with refused(errors.NotFoundError, "nope") as caught:
            call()
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, RuntimeError)
        assert not str(caught.value).startswith("'")


@pytest.mark.parametrize("priority", [float("nan"), float("inf"), -1.0])
def test_an_invalid_priority_is_refused(priority):
    with reverie.Store([table(sampler=selectors.Prioritized(0.8))]) as store:
        client = store.client()
        client.insert({"x": 1}, {"t": 2.0})
        keys = client.sample_batch("t", 1).keys
        for call in (
            lambda: client.insert({"x": 1}, {"t": priority}),
            lambda: client.update_priorities("t", keys=keys, priorities=[priority]),
            lambda: client.mutate_priorities("t", {int(keys[0]): priority}),
        ):
            with refused(ValueError, "priority", "must be"):
                call()
        assert client.priorities("t", keys).tolist() == [2.0]
        assert client.server_info()["t"].current_size == 1


@pytest.mark.parametrize("priority", ["high", [1.0], {}])
def test_a_priority_of_another_type_is_refused(client, priority):
    with refused(TypeError, "the priority for table 't' is", "a number"):
        client.insert({"x": 1}, {"t": priority})


def test_an_insert_uses_the_tables_that_it_was_given_though_the_dict_changes(client):
    tables = {}

    class Priority:
        def __float__(self):
            tables.clear()
            self.other_names = ["z" * 300 for _ in range(100)]  # in the memory of the first one
            return 1.0

    tables["".join(["nope"] * 75)] = Priority()
    with refused(errors.NotFoundError, "nope" * 75):
        client.insert({"x": 1}, tables)


def test_a_failed_insert_into_several_tables_reports_how_many_have_the_item(client):
    with refused(errors.NotFoundError, "1 of 2 tables have the item", "'nope'"):
        client.insert({"x": 1}, {"t": 1.0, "nope": 1.0})
    assert client.server_info()["t"].current_size == 1


def test_an_index_beyond_the_history_is_refused(writer):
    with refused(IndexError, "'x'", "5 steps", "index 5"):
        writer.history["x"][5]
    with refused(ValueError, "'x'", "5 steps back"):
        writer.history["x"][:2]


def test_an_item_of_expired_steps_is_refused(writer):
    expiring = writer.history["x"][-3:]
    writer.append({"x": np.zeros(2, np.float32), "y": 1})
    with refused(ValueError, "'x'"):
        writer.create_item("t", 1.0, {"x": expiring})


def test_an_item_without_rows_is_refused(writer):
    for empty in ({}, {"x": writer.history["x"][3:3]}):
        with refused(ValueError):
            writer.create_item("t", 1.0, empty)


def test_an_item_of_a_value_that_is_not_a_column_is_refused(client, writer):
    with refused(TypeError, "'a/b'", "ndarray", "writer.history"):
        writer.create_item("t", 1.0, {"a": {"b": np.zeros(2)}})
    with refused(TypeError, "'x'", "ColumnHistory"):
        writer.create_item("t", 1.0, {"x": writer.history["x"]})
    other = client.trajectory_writer(1)
    other.append({"x": 1.0})
    with refused(ValueError, "'x'", "another writer"):
        writer.create_item("t", 1.0, {"x": other.history["x"][-1]})
    other.close()


def test_a_signature_mismatch_is_refused(client, writer):
    x, y = writer.history["x"], writer.history["y"]
    for trajectory in (
        {"x": x[-3:]},
        {"x": x[-1], "y": y[-1]},
        {"x": x[-3:], "y": y[-2:]},
        {"x": y[-3:], "y": y[-1]},
    ):
        with refused(ValueError, "signed"):
            writer.create_item("signed", 1.0, trajectory)
    with refused(ValueError, "signed"):
        client.insert({"x": np.zeros(2), "y": 1}, {"signed": 1.0})
    assert client.server_info()["signed"].current_size == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: table(max_size=0), ("max_size", "'t'", "0")),
        (lambda: table(max_size=-5), ("max_size", "-5")),
        (lambda: table(max_size=2**63), ("max_size", str(2**63))),
        (lambda: table(max_bytes=0), ("max_bytes", "0")),
        (lambda: table(""), ("name",)),
        (lambda: table(max_size=5, rate_limiter=rate_limiters.MinSize(6)), ("max_size 5", "6")),
        (lambda: rate_limiters.MinSize(0), ("min_size_to_sample", "0")),
        (lambda: rate_limiters.RateLimiter(0, 1, 0, 5), ("samples_per_insert", "0")),
        (lambda: rate_limiters.RateLimiter(-1, 1, 0, 5), ("samples_per_insert", "-1")),
        (lambda: rate_limiters.RateLimiter(1, 1, float("nan"), 5), ("min_diff", "nan")),
        (lambda: rate_limiters.RateLimiter(1, 10, 20, 5), ("min_diff", "20")),
        (lambda: rate_limiters.RateLimiter(1, 1, 1, 1), ("never be met",)),
        (lambda: rate_limiters.SampleToInsertRatio(0, 1, 5), ("samples_per_insert", "0")),
        (lambda: rate_limiters.SampleToInsertRatio(2, 1, 1.5), ("error_buffer", "1.5", "4")),
        (lambda: rate_limiters.SampleToInsertRatio(1, 1, (2, 9)), ("lower bound of 2", "1")),
        (lambda: rate_limiters.SampleToInsertRatio(1, 0, 5), ("min_size_to_sample", "0")),
        (lambda: rate_limiters.Queue(0), ("size", "0")),
        (lambda: reverie.Table.queue("q", 0), ("size", "0")),
        (lambda: selectors.Prioritized(-0.5), ("priority_exponent", "-0.5")),
        (lambda: selectors.Prioritized(float("inf")), ("priority_exponent", "inf")),
        (lambda: selectors.Uniform(seed=-1), ("seed", "-1")),
        (lambda: reverie.extensions.PriorityDiffusion(radius=0), ("radius", "0")),
        (lambda: reverie.extensions.PriorityDiffusion(decay=0), ("decay", "0")),
        (lambda: reverie.Store([]), ("tables is empty",)),
        (lambda: reverie.Store([table(), table()]), ("names", "'t'")),
        (lambda: reverie.Store([table()], max_bytes=0), ("max_bytes", "0")),
        (lambda: table(signature={"x": 3}), ("'t'", "'x'", "TensorSpec")),
        (lambda: reverie.TensorSpec([-2], "float32"), ("shape", "-2")),
    ],
)
def test_invalid_settings_are_refused(make, words):
    with refused(ValueError, *words) as caught:
        make()
    assert isinstance(caught.value, errors.InvalidArgumentError)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: table(sampler="uniform"), ("sampler", "'t'", "'uniform'")),
        (lambda: table(rate_limiter=5), ("rate_limiter", "5")),
        (lambda: table(extensions=[1]), ("extensions", "1")),
        (lambda: table(max_size=1.5), ("max_size", "1.5")),
        (lambda: reverie.Store(["t"]), ("tables", "'t'")),
        (lambda: reverie.TensorSpec([2], "datetime64[s]"), ("datetime64",)),
        (lambda: reverie.TensorSpec([2], "float33"), ("float33",)),
        (lambda: selectors.Custom("Mine", option=[1]), ("option", "Mine", "list")),
    ],
)
def test_settings_of_another_type_are_refused(make, words):
    with refused(TypeError, *words) as caught:
        make()
    assert isinstance(caught.value, errors.UnsupportedTypeError)


@pytest.mark.parametrize("kind", ["sampler", "remover"])
def test_an_unregistered_selector_is_refused(kind):
    with refused(errors.NotFoundError, "Missing", "Prioritized"):
        reverie.Store([table(**{kind: selectors.Custom("Missing")})])


def test_a_missing_file_or_one_that_is_not_a_plugin_is_refused(tmp_path):
    with refused(errors.NotFoundError, "nowhere.so"):
        reverie.load_plugin("nowhere.so")
    (tmp_path / "text.so").write_text("no library")
    with refused(errors.NotFoundError, "text.so"):
        reverie.load_plugin(str(tmp_path / "text.so"))


def test_a_store_tells_which_tables_it_has():
    with reverie.Store([table("a"), table("b")]) as store:
        assert "a" in store
        assert "c" not in store
        assert 0 not in store
        assert list(store) == ["a", "b"]
        with refused(TypeError, "tables is Store(", "list of new"):
            reverie.Server(store)


def test_a_table_can_belong_to_only_one_store():
    shared = table()
    with reverie.Store([shared]):
        with refused(RuntimeError, "'t'", "table.replace()"):
            reverie.Store([shared])
        with reverie.Store([shared.replace()]):
            pass


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 0}, ("batch_size", "0")),
        ({"batch_size": -3}, ("batch_size", "-3")),
        ({"batch_size": 2**40}, ("batch_size", str(2**40))),
        ({"batch_size": 1, "beta": -0.5}, ("beta", "-0.5")),
        ({"batch_size": 1, "beta": float("nan")}, ("beta", "nan")),
    ],
)
def test_invalid_arguments_of_sample_batch_are_refused(client, writer, arguments, words):
    writer.create_item("t", 1.0, {"y": writer.history["y"][-1]})
    with refused(ValueError, *words):
        client.sample_batch("t", **arguments)
    client.reset("t")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"table": 5, "batch_size": 1}, ("table", "5")),
        ({"table": "t", "batch_size": 1.5}, ("batch_size", "1.5")),
        ({"table": "t", "batch_size": True}, ("batch_size", "True")),
        ({"table": "t", "batch_size": 1, "beta": "x"}, ("beta", "'x'")),
        ({"table": "t", "batch_size": 1, "out": {}}, ("out", "{}")),
    ],
)
def test_sample_batch_arguments_of_another_type_are_refused(client, arguments, words):
    client.insert({"x": 1}, {"t": 1.0})
    with refused(TypeError, *words):
        client.sample_batch(**arguments)


@in_this_process
def test_more_distinct_items_than_a_table_can_hold_are_refused(client):
    with refused(ValueError, "101", "100"):
        client.sample_batch("t", 101, distinct=True)


@in_this_process
def test_items_of_different_shapes_cannot_form_a_batch(client):
    client.insert({"x": np.zeros(2)}, {"t": 1.0})
    client.insert({"x": np.zeros(3)}, {"t": 1.0})
    with refused(ValueError, "x: float64 (2,)", "x: float64 (3,)"):
        client.sample_batch("t", 2, distinct=True)


@in_this_process
def test_items_of_different_lengths_are_padded_if_pad_is_set(client, writer):
    for length in (1, 3):
        writer.create_item("t", 1.0, {"y": writer.history["y"][-length:]})
    with refused(ValueError, "'y'"):
        client.sample_batch("t", 2, distinct=True)
    batch = client.sample_batch("t", 2, distinct=True, pad=True)
    rows = sorted(batch.data["y"].tolist())
    assert rows == [[2, 3, 4], [4, 0, 0]]
    assert sorted(batch.lengths.tolist()) == [1, 3]
    client.reset("t")


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ([-1], TypeError),
        ([1.5], TypeError),
        (["a"], TypeError),
        (np.array([1.0]), TypeError),
        (np.array([-1]), TypeError),
        (np.array([[1]]), ValueError),
        ([1, 2], ValueError),
    ],
)
def test_invalid_keys_are_refused(client, keys, kind):
    for call in (
        lambda: client.update_priorities("t", keys, [1.0]),
        lambda: client.update_priorities("t", keys=keys, priorities=[1.0]),
        lambda: client.mutate_priorities("t", (keys, [1.0])),
    ):
        with pytest.raises(kind) as caught:
            call()
        assert isinstance(caught.value, reverie.ReverieError)


def test_keys_are_refused_as_tickets(client):
    for i in range(4):
        client.insert({"x": i}, {"t": 1.0})
    keys = client.sample_batch("t", 4).keys
    if client.server_address is None:  # over a socket, keys are the tickets
        with refused(ValueError, "tickets holds", "'t'", "keys="):
            client.update_priorities("t", keys, np.ones(4))
        with refused(ValueError, "tickets holds 3"):
            client.update_priorities("t", [3], [1.0])
    assert client.update_priorities("t", keys=keys, priorities=np.ones(4)) == 4


def test_masked_arrays_are_refused(client, writer):
    masked = np.ma.masked_array(np.zeros(3), [True, False, False])
    with refused(TypeError, "'x'", "masked array", "filled"):
        client.insert({"x": masked}, {"t": 1.0})
    with refused(TypeError, "'x'", "masked array", "filled"):
        writer.append({"x": masked})
    keys = np.ma.masked_array(np.zeros(3, np.uint64), [True, False, False])
    for call in (
        lambda: client.update_priorities("t", keys=keys, priorities=np.ones(3)),
        lambda: client.update_priorities("t", keys=[1, 2, 3], priorities=masked),
        lambda: client.mutate_priorities("t", deletes=keys),
        lambda: client.mutate_priorities("t", ([1, 2, 3], masked)),
    ):
        with refused(TypeError, "masked array", "filled"):
            call()


def test_neither_or_both_of_tickets_and_keys_are_refused(client):
    with refused(ValueError, "either tickets or keys"):
        client.update_priorities("t", priorities=[1.0])
    with refused(ValueError, "either tickets or keys"):
        client.update_priorities("t", [1], [1.0], keys=[1])


@in_this_process
def test_samples_that_cannot_be_split_into_steps_are_refused(client, writer):
    writer.create_item("t", 1.0, {"x": writer.history["x"][-2:], "y": writer.history["y"][-1]})
    with refused(TypeError, "'y'", "squeezed"):
        next(client.sample("t"))
    client.reset("t")
    writer.create_item("t", 1.0, {"x": writer.history["x"][-2:], "y": writer.history["y"][-3:]})
    with refused(ValueError, "differ in length", "'x': 2"):
        next(client.sample("t"))
    client.reset("t")
    with refused(ValueError, "num_samples", "0"):
        next(client.sample("t", 0))
    with refused(ValueError, "no signature"):
        next(client.sample("t", unpack_as_table_signature=True))


@pytest.mark.parametrize("budget", ["table", "store"])
def test_an_item_larger_than_max_bytes_is_refused(budget):
    bounds = [{"max_bytes": 1000}, {}] if budget == "table" else [{}, {"max_bytes": 1000}]
    with reverie.Store([table(**bounds[0])], **bounds[1]) as store:
        client = store.client()
        client.insert({"x": 1}, {"t": 1.0})
        with refused(ValueError, "1000"):
            client.insert({"x": np.zeros(1000)}, {"t": 1.0})
        client.insert({"x": 2}, {"t": 1.0})
        assert client.server_info()["t"].current_size == 2


def test_calls_after_close_are_refused():
    with reverie.Store([table()]) as other:
        closed = other.client()
    other.close()
    for call in (
        lambda: closed.sample_batch("t", 1),
        lambda: closed.insert({"x": 1}, {"t": 1.0}),
        lambda: next(closed.sample("t")),
        lambda: closed.update_priorities("t", [1], [1.0]),
        lambda: closed.server_info(),
        lambda: closed.why_blocked("t"),
        lambda: closed.priorities("t", [1]),
        lambda: closed.max_priority("t"),
        lambda: closed.delete("t", [1]),
        lambda: closed.reset("t"),
        lambda: closed.can_sample("t"),
        lambda: closed.can_insert("t"),
        lambda: other["t"].info,
        lambda: next(closed.dataset("t", 1)),
    ):
        with refused(errors.CancelledError, "closed"):
            call()


def test_handles_cannot_be_pickled():
    with reverie.Store(tables()) as store:
        client = store.client()
        writers = [client.writer(2), client.trajectory_writer(2)]
        for handle in (store, client, *writers, store["t"]):
            for copying in (pickle.dumps, copy.copy):
                with refused(TypeError, "cannot be pickled"):
                    copying(handle)
        for writer in writers:
            writer.close()
    unopened = table(signature=reverie.TensorSpec([2], "float32"))
    assert repr(pickle.loads(pickle.dumps(unopened))) == repr(unopened)


def test_a_batch_cannot_be_pickled_or_copied(client):
    client.insert([np.zeros(2, np.float32), 1], {"t": 1.0})
    batch = client.sample_batch("t", 2)
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with refused(TypeError, "a Batch cannot be pickled or copied", "batch.data"):
            copying(batch)


@in_this_process
def test_the_error_for_too_few_distinct_items_says_so(client):
    for _ in range(5):
        client.insert([np.zeros(2, np.float32), 1], {"t": 1.0})
    with refused(
        errors.DeadlineExceededError,
        "5 of 8 items drawn",
        "all items of the table are in the batch",
    ):
        client.sample_batch("t", 8, distinct=True, timeout_s=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_keep_alive_refs": 0}, ("num_keep_alive_refs", "0")),
        ({"num_keep_alive_refs": 2**40}, ("num_keep_alive_refs", str(2**40))),
        ({"num_keep_alive_refs": 2, "chunk_length": 0}, ("chunk_length", "0")),
        ({"num_keep_alive_refs": 2, "max_in_flight_items": 0}, ("max_in_flight_items", "0")),
    ],
)
def test_invalid_settings_of_a_trajectory_writer_are_refused(client, options, words):
    with refused(ValueError, *words):
        client.trajectory_writer(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_sequence_length": 0}, ("max_sequence_length", "0")),
        ({"max_sequence_length": 2, "chunk_length": 3}, ("chunk_length", "3", "2")),
        ({"max_sequence_length": 2, "chunk_length": 0}, ("chunk_length", "0")),
        ({"max_sequence_length": 2, "max_in_flight_items": 0}, ("max_in_flight_items", "0")),
    ],
)
def test_invalid_settings_of_a_legacy_writer_are_refused(client, options, words):
    with refused(ValueError, *words):
        client.writer(**options)


def test_a_number_beyond_int64_names_the_bound(writer):
    with refused(ValueError, str(2**70), "between 0 and 9223372036854775807"):
        writer.flush(2**70)
