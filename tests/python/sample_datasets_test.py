"""Datasets of items and of steps, of an embedded store and over a socket."""

import gc
import itertools
import pickle
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

import numpy as np
import pytest

import reverie

SIGNATURE = {
    "a": reverie.TensorSpec([None, 2], np.float32),
    "b": (reverie.TensorSpec([None], np.int64),),
}
DTYPES = {"a": np.float32, "b": (np.int64,)}
SHAPES = {"a": (None, 2), "b": ((None,),)}
STEP_SHAPES = {"a": (2,), "b": ((),)}


def tables():
    return [
        reverie.Table.queue("queue", 1000, signature=SIGNATURE),
        reverie.Table.queue("bare", 1000),
        reverie.Table(
            "uniform",
            reverie.selectors.Prioritized(1.0),
            reverie.selectors.Fifo(),
            100,
            reverie.rate_limiters.MinSize(1),
            signature=SIGNATURE,
        ),
    ]


@pytest.fixture(params=["embedded", "served"])
def client(request):
    if request.param == "embedded":
        with reverie.Store(tables()) as store:
            yield store.client()
    else:
        with reverie.Server(tables()) as server:
            yield server.localhost_client()


def fill(client, table, lengths):
    """Inserts items over the last `length` steps each, whose columns are the number of the step."""
    with client.trajectory_writer(max(lengths), validate_items=False) as writer:
        for i, length in enumerate(lengths):
            for step in range(length):
                writer.append({"a": np.full(2, 10 * i + step, np.float32), "b": (10 * i + step,)})
            history = writer.history
            rows = {"a": history["a"][-length:], "b": (history["b"][0][-length:],)}
            writer.create_item(table, 1.0 + i, rows)
        writer.flush()


def whole(client, table="queue", **options):
    return reverie.TrajectoryDataset(
        client, table, **{"dtypes": DTYPES, "shapes": SHAPES} | {**IN_FLIGHT, **options}
    )


IN_FLIGHT = {"max_in_flight_samples_per_worker": 10, "rate_limiter_timeout_ms": 200}


@pytest.mark.parametrize("lengths", [[3] * 40, [1, 2, 2, 3, 1, 1, 4, 4, 4, 2]])
@pytest.mark.parametrize("in_flight", [1, 2, 7, 100])
def test_items_of_any_length_come_in_order(client, lengths, in_flight):
    fill(client, "queue", lengths)
    seen = list(whole(client, max_in_flight_samples_per_worker=in_flight))
    assert [len(sample.data["a"]) for sample in seen] == lengths
    for i, sample in enumerate(seen):
        want = [10 * i + step for step in range(lengths[i])]
        assert sample.data["b"][0].tolist() == want
        assert sample.data["a"].tolist() == [[x, x] for x in want]
        assert sample.info.times_sampled == 1
        assert sample.info.priority == 1.0 + i
        assert isinstance(sample.info.key, int)
    assert len({sample.info.key for sample in seen}) == len(lengths)


def test_steps_come_one_by_one(client):
    fill(client, "queue", [2, 2, 3])
    dataset = reverie.TimestepDataset(
        client, "queue", dtypes=DTYPES, shapes=STEP_SHAPES, **IN_FLIGHT
    )
    seen = list(dataset)
    assert [int(step.data["b"][0]) for step in seen] == [0, 1, 10, 11, 20, 21, 22]
    assert [step.data["a"].shape for step in seen] == [(2,)] * 7
    assert [step.info.priority for step in seen] == [1, 1, 2, 2, 3, 3, 3]


def test_infos_describe_each_draw(client):
    fill(client, "uniform", [1, 1])
    with iter(whole(client, "uniform", max_samples=100)) as samples:
        seen = [sample.info for sample in samples]
    assert len(seen) == 100
    assert {info.table_size for info in seen} == {2}
    assert {round(info.probability, 6) for info in seen} == {0.333333, 0.666667}
    assert sorted(info.times_sampled for info in seen if info.priority == 1.0) == list(
        range(1, 1 + sum(info.priority == 1.0 for info in seen))
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_max_samples_bounds_the_number_of_draws(client, workers):
    fill(client, "queue", [1] * 30)
    dataset = whole(
        client, max_samples=13, num_workers_per_iterator=workers, rate_limiter_timeout_ms=-1
    )
    assert len(list(dataset)) == 13
    assert client.server_info()["queue"].current_size == 17
    assert len(list(dataset)) == 13  # each iterator counts from 0


@pytest.mark.parametrize("flexible_batch_size", [-1, 1, 8])
def test_no_more_than_max_in_flight_samples_are_drawn_ahead(client, flexible_batch_size):
    fill(client, "queue", [1] * 60)
    options = {"max_in_flight_samples_per_worker": 8, "flexible_batch_size": flexible_batch_size}
    with iter(whole(client, **options)) as samples:
        for taken in range(1, 41):
            next(samples)
            drawn = 60 - client.server_info()["queue"].current_size
            assert taken <= drawn <= taken + 8


@pytest.mark.parametrize("used", [0, 1, 5, 11])
@pytest.mark.parametrize("end", ["close", "drop"])
def test_unused_items_return_to_a_queue(client, used, end):
    fill(client, "queue", [2] * 40)
    samples = iter(whole(client, max_in_flight_samples_per_worker=20, rate_limiter_timeout_ms=-1))
    for i in range(used):
        assert next(samples).data["b"][0].tolist() == [10 * i, 10 * i + 1]
    if end == "close":
        samples.close()
        assert list(samples) == []
    else:
        del samples
        gc.collect()
    left = list(whole(client, rate_limiter_timeout_ms=500))
    starts = [int(sample.data["b"][0][0]) for sample in left]
    expected = [10 * i for i in range(used, 40)]
    # In a server they are the newest items of the queue.
    assert (starts if client.server_address is None else sorted(starts)) == expected


def test_items_that_do_not_match_the_dataset_return_to_their_queue(client):
    fill(client, "bare", [1] * 10)
    wrong = iter(whole(client, "bare", dtypes=DTYPES | {"a": np.float64}))
    with pytest.raises(reverie.errors.InvalidArgumentError, match="'a' of the dataset is"):
        next(wrong)
    left = list(whole(client, "bare", rate_limiter_timeout_ms=500))
    assert sorted(int(sample.data["b"][0][0]) for sample in left) == [10 * i for i in range(10)]


def test_an_item_with_a_used_step_does_not_return_to_the_queue(client):
    fill(client, "queue", [3] * 10)
    dataset = reverie.TimestepDataset(
        client, "queue", dtypes=DTYPES, shapes=STEP_SHAPES, **IN_FLIGHT
    )
    with iter(dataset) as steps:
        assert [int(next(steps).data["b"][0]) for _ in range(4)] == [0, 1, 2, 10]
    assert client.server_info()["queue"].current_size == 8


def test_several_workers_draw_each_item_once(client):
    fill(client, "queue", [1] * 200)
    seen = [int(s.data["b"][0][0]) for s in whole(client, num_workers_per_iterator=4)]
    assert sorted(seen) == [10 * i for i in range(200)]


def test_an_item_is_returned_as_soon_as_it_is_inserted(client):
    dataset = whole(client, max_in_flight_samples_per_worker=100, rate_limiter_timeout_ms=10_000)
    with iter(dataset) as samples:
        for count in (1, 2, 5):
            fill(client, "queue", [1] * count)
            assert [int(next(samples).data["b"][0][0]) for _ in range(count)] == [
                10 * i for i in range(count)
            ]


def test_a_timeout_ends_the_iteration_without_an_error(client):
    assert list(whole(client, rate_limiter_timeout_ms=50)) == []
    assert list(whole(client, rate_limiter_timeout_ms=0)) == []


def test_a_reader_waits_for_the_whole_timeout_however_late_it_comes(client):
    fill(client, "queue", [1])
    dataset = whole(client, max_in_flight_samples_per_worker=1, rate_limiter_timeout_ms=2_000)
    with iter(dataset) as samples:
        next(samples)
        # The worker waits meanwhile.
        came = []
        reader = threading.Timer(1.8, lambda: came.extend(itertools.islice(samples, 1)))
        writer = threading.Timer(2.4, fill, (client, "queue", [1]))
        reader.start()
        writer.start()
        reader.join()
        writer.join()
        assert len(came) == 1
        begin = time.monotonic()
        assert list(samples) == []
        assert time.monotonic() - begin >= 1.9


def test_a_close_from_another_thread_ends_a_wait(client):
    samples = iter(whole(client, rate_limiter_timeout_ms=-1))
    closer = threading.Timer(0.1, samples.close)
    closer.start()
    assert list(samples) == []
    closer.join()


@pytest.mark.parametrize("kind", [reverie.TrajectoryDataset, reverie.TimestepDataset])
def test_a_dataset_can_be_made_from_the_table_signature(client, kind):
    fill(client, "queue", [2, 3])
    dataset = kind.from_table_signature(client, "queue", **IN_FLIGHT)
    seen = list(dataset)
    if kind is reverie.TrajectoryDataset:
        assert dataset.element_spec.data["a"].shape == (None, 2)
        assert [sample.data["a"].shape for sample in seen] == [(2, 2), (3, 2)]
    else:
        assert dataset.element_spec.data["a"].shape == (2,)
        assert [step.data["a"].shape for step in seen] == [(2,)] * 5
    assert dataset.element_spec.data["b"][0].dtype_name == "int64"
    assert dataset.element_spec.info.key.dtype_name == "uint64"
    with pytest.raises(ValueError, match="'none' does not exist; the tables are"):
        kind.from_table_signature(client, "none", 1)
    with pytest.raises(ValueError, match="'bare' has no signature"):
        kind.from_table_signature(client, "bare", 1)


class Transition(NamedTuple):
    """A NamedTuple whose fields are not in alphabetical order."""

    observation: Any
    action: Any


@pytest.mark.parametrize("is_served", [True, False])
def test_a_named_tuple_keeps_the_order_of_its_fields(is_served):
    spec = reverie.TensorSpec
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        10,
        reverie.rate_limiters.MinSize(1),
        signature=Transition(spec((None, 3), np.float32), spec((None,), np.int64)),
    )
    with reverie.Server([table]) as server:
        client = server.localhost_client() if is_served else server.client()
        with client.trajectory_writer(1) as writer:
            writer.append(Transition(np.zeros(3, np.float32), np.int64(7)))
            history = writer.history
            last = Transition(history.observation[-1:], history.action[-1:])
            writer.create_item("t", 1.0, last)
        made = reverie.TrajectoryDataset.from_table_signature(client, "t", 1, max_samples=1)
        (sample,) = made
        shown = made.element_spec.data
        if not is_served:  # only the writer's process knows the class
            assert isinstance(sample.data, Transition)
            sample, shown = sample._replace(data=sample.data._asdict()), shown._asdict()
        assert sample.data["observation"].shape == (1, 3)
        assert sample.data["action"].tolist() == [7]
        assert shown["action"] == spec((None,), np.int64, "action")


def test_a_dataset_accepts_an_address_instead_of_a_client():
    with reverie.Server(tables()) as server:
        fill(server.client(), "queue", [1])
        address = f"localhost:{server.port}"
        dataset = reverie.TrajectoryDataset.from_table_signature(address, "queue", **IN_FLIGHT)
        assert len(list(dataset)) == 1


def test_a_pipeline_gets_max_samples_from_a_server_that_was_away():
    with reverie.Server(tables()) as server:
        port = server.port
        fill(server.client(), "queue", [1])
        dataset = reverie.TrajectoryDataset(
            f"localhost:{port}", "queue", DTYPES, SHAPES, 1, max_samples=3
        )
        batches = (batch for batch in dataset._persistent_batches(0.01) if batch is not None)
        assert next(batches)[1][1].tolist() == [[0]]
    with reverie.Server(tables(), port=port) as server:
        fill(server.client(), "queue", [1, 1, 1])
        assert np.concatenate([batch[1][1] for batch in batches]).tolist() == [[0], [10]]
        assert server.client().server_info()["queue"].current_size == 1


def test_reading_the_signature_of_an_absent_server_times_out():
    with pytest.raises(reverie.DeadlineExceededError):
        reverie.TrajectoryDataset.from_table_signature(
            "localhost:1", "t", 1, get_signature_timeout_secs=0.2
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_in_flight_samples_per_worker", 0),
        ("max_in_flight_samples_per_worker", -1),
        ("num_workers_per_iterator", 0),
        ("num_workers_per_iterator", -2),
        ("max_samples_per_stream", 0),
        ("rate_limiter_timeout_ms", -2),
        ("max_samples", 0),
        ("flexible_batch_size", 0),
        ("max_samples", 1.5),
    ],
)
def test_numbers_out_of_range_are_refused(client, name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be"):
        whole(client, **{name: value})


def test_an_unknown_framework_is_refused(client):
    with pytest.raises(ValueError, match="'cupy'"):
        whole(client, framework="cupy")


@pytest.mark.parametrize(
    "shapes",
    [
        {"a": (None, 2)},
        {"a": (None, 2), "b": ()},
        {"a": (None, 2), "b": ((None,), (None,))},
        [(None, 2), (None,)],
        {"a": (None, 2), "c": ((None,),)},
    ],
)
def test_dtypes_and_shapes_of_different_nests_are_refused(client, shapes):
    with pytest.raises(ValueError, match="must be the same nest"):
        whole(client, shapes=shapes)


def test_columns_that_do_not_match_the_table_are_refused(client):
    for table in ("queue", "bare"):
        for dtypes, shapes, message in [
            ({"a": np.float32}, {"a": (None, 2)}, "has 1 columns, but .* has 2"),
            (DTYPES | {"a": np.float64}, SHAPES, "'a' of the dataset is .*float64"),
            (DTYPES, SHAPES | {"a": (None, 3)}, r"'a' of the dataset is .*\(None, 3\)"),
            (DTYPES, SHAPES | {"a": (None, 2, 1)}, "'a' of the dataset is"),
        ]:
            fill(client, table, [1])
            dataset = whole(client, table, dtypes=dtypes, shapes=shapes, max_samples=1)
            with pytest.raises(reverie.errors.InvalidArgumentError, match=message):
                list(dataset)
    with pytest.raises(reverie.errors.NotFoundError, match="'none'"):
        list(whole(client, "none"))


def test_items_that_cannot_be_split_into_steps_are_refused(client):
    with client.trajectory_writer(2) as writer:
        for i in range(2):
            writer.append({"a": np.full(2, i, np.float32), "b": (i,)})
        history = writer.history
        for b in (history["b"][0][-1], history["b"][0][-1:]):
            writer.create_item("bare", 1.0, {"a": history["a"][-2:], "b": (b,)})
    for _ in range(2):
        dataset = reverie.TimestepDataset(
            client, "bare", dtypes=DTYPES, shapes=STEP_SHAPES, max_samples=1, **IN_FLIGHT
        )
        with pytest.raises(ValueError, match="differ in length"):
            list(dataset)


def test_squeezed_columns_count_as_one_step(client):
    with client.trajectory_writer(1) as writer:
        for i in range(2):
            writer.append({"a": np.full(2, i, np.float32), "b": (i,)})
            last = writer.history["b"][0][-1]
            writer.create_item("bare", 1.0, {"a": writer.history["a"][-1:], "b": (last,)})
    dataset = reverie.TimestepDataset(
        client, "bare", dtypes=DTYPES, shapes=STEP_SHAPES, **IN_FLIGHT
    )
    seen = [(step.data["a"].tolist(), int(step.data["b"][0])) for step in dataset]
    assert seen == [([0, 0], 0), ([1, 1], 1)]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_data_can_be_torch_tensors_or_jax_arrays(client, framework):
    pytest.importorskip(framework)
    fill(client, "queue", [2, 2, 1])
    seen = list(whole(client, framework=framework))
    assert type(seen[0].data["a"]).__module__.split(".")[0].removesuffix("lib") == framework
    assert [np.asarray(sample.data["a"]).tolist() for sample in seen] == [
        [[0, 0], [1, 1]],
        [[10, 10], [11, 11]],
        [[20, 20]],
    ]


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_a_dataset_of_a_server_can_be_pickled(framework):
    pytest.importorskip(framework)
    with reverie.Server(tables()) as server:
        address = f"localhost:{server.port}"
        fill(server.localhost_client(), "queue", [2, 1, 2, 1])
        steps = reverie.TimestepDataset(
            address, "queue", DTYPES, STEP_SHAPES, **IN_FLIGHT, framework=framework, max_samples=2
        )
        for dataset in (whole(address, framework=framework, max_samples=2), steps):
            same = pickle.loads(pickle.dumps(dataset))
            assert type(same) is type(dataset)
            assert same.element_spec == dataset.element_spec
            data = [sample.data["a"] for sample in same]
            kind = type(data[0]).__module__.split(".")[0].removesuffix("lib")
            assert kind == framework
            assert np.concatenate([np.ravel(one) for one in data]).size == 6


def test_a_dataset_of_an_embedded_store_cannot_be_pickled():
    with reverie.Store(tables()) as store:
        for framework in ("numpy", "torch"):
            with pytest.raises(reverie.errors.UnsupportedTypeError, match="use a Server"):
                pickle.dumps(whole(store.client(), framework=framework))


def test_text_and_single_rows_are_returned(client):
    with client.trajectory_writer(1) as writer:
        for word in ("one", "two"):
            writer.append({"word": word, "n": np.float32(len(word))})
            item = {name: column[-1] for name, column in writer.history.items()}
            writer.create_item("bare", 1.0, item)
    dataset = reverie.TrajectoryDataset(
        client,
        "bare",
        dtypes={"word": str, "n": "float32"},
        shapes={"word": (), "n": ()},
        **IN_FLIGHT,
    )
    words = [sample.data["word"] for sample in dataset]
    assert [word if isinstance(word, str) else bytes(word).decode() for word in words] == [
        "one",
        "two",
    ]


def test_the_error_for_methods_of_tf_data_names_as_tf(client):
    with pytest.raises(AttributeError, match=r"no attribute 'batch'; .*as_tf\(\)"):
        whole(client).batch(3)
    assert not hasattr(whole(client), "nothing")


def test_datasets_do_not_import_tensorflow_torch_or_jax():
    program = (
        "import sys, reverie; reverie.TrajectoryDataset; reverie.TimestepDataset; "
        "assert not {'tensorflow', 'torch', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
