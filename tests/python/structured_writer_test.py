"""Items made by patterns, in an embedded store and over a socket."""

import collections

import numpy as np
import pytest

import reverie
from reverie import structured
from reverie.reverb import structured as reverb_structured
from reverie.structured import Condition

STEP = {"a": None, "b": None}


def fifo(name="t", max_size=1000, **options):
    return reverie.Table(
        name,
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        max_size,
        reverie.rate_limiters.MinSize(1),
        **options,
    )


@pytest.fixture(params=["embedded", "served"])
def client(request):
    if request.param == "embedded":
        with reverie.Store([fifo(), reverie.Table.queue("small", 1)]) as store:
            yield store.client()
    else:
        with reverie.Server([fifo(), reverie.Table.queue("small", 1)]) as server:
            yield server.localhost_client()


def config(pattern, conditions=(), priority=None, table="t"):
    return structured.create_config(
        pattern=structured.pattern_from_transform(STEP, pattern),
        table=table,
        conditions=conditions,
        priority=priority,
    )


def drain(client, table="t"):
    """The columns of all items, oldest first, and their priorities."""
    items = []
    for _ in range(client.server_info()[table].current_size):
        sample = next(client.sample(table, emit_timesteps=False))
        columns = [np.asarray(column).tolist() for column in sample.data]
        items.append((columns if len(columns) > 1 else columns[0], sample.info.priority))
        client.delete(table, [sample.info.key])
    return items


def values(client):
    return [value for value, _ in drain(client)]


def write(client, configs, episodes=(6, 5), clear_buffers=True):
    """Writes steps 0, 1, ...: `a` is the step's number, `b` the number modulo 3."""
    writer = client.structured_writer(configs)
    step = 0
    for length in episodes:
        for _ in range(length):
            writer.append({"a": np.int64(step), "b": np.int64(step % 3)})
            step += 1
        writer.end_episode(clear_buffers=clear_buffers)


@pytest.mark.parametrize(
    ("rows", "items"),
    [
        (lambda a: a[-1], [0, 1, 2, 3]),
        (lambda a: a[-2], [0, 1, 2]),
        (lambda a: a[:-2], [0, 1, 2]),  # Reverb's meaning: the single row -2
        (lambda a: a[-3:], [[0, 1, 2], [1, 2, 3]]),
        (lambda a: a[-3:-1], [[0, 1], [1, 2]]),
        (lambda a: a[-3:-2], [[0], [1]]),
        (lambda a: a[-3:0], [[0, 1, 2], [1, 2, 3]]),
        (lambda a: a[-4::2], [[0, 2]]),
        (lambda a: a[-3::2], [[0, 2], [1, 3]]),
    ],
)
def test_rows_are_counted_back_from_the_newest_step(client, rows, items):
    write(client, [config(lambda step: {"x": rows(step["a"])})], episodes=(4,))
    assert values(client) == items


@pytest.mark.parametrize(
    ("condition", "items"),
    [
        (Condition.step_index() >= 3, [3, 4, 5, 9, 10]),
        (Condition.step_index() > 3, [4, 5, 10]),
        (Condition.step_index() <= 1, [0, 1, 6, 7]),
        (Condition.step_index() < 1, [0, 6]),
        (Condition.step_index() == 2, [2, 8]),
        (Condition.step_index() != 2, [0, 1, 3, 4, 5, 6, 7, 9, 10]),
        (Condition.step_index() % 3 == 1, [1, 4, 7, 10]),
        (Condition.step_index() % 3 != 1, [0, 2, 3, 5, 6, 8, 9]),
        (Condition.steps_since_applied() >= 4, [3, 7]),
        (Condition.is_end_episode(), [5, 10]),
        (Condition.data(STEP)["b"] == 1, [1, 4, 7, 10]),
    ],
)
@pytest.mark.parametrize("clear_buffers", [True, False])
def test_conditions_decide_when_an_item_is_made(client, condition, items, clear_buffers):
    made = config(lambda step: {"x": step["a"][-1]}, [condition])
    write(client, [made], clear_buffers=clear_buffers)
    assert values(client) == items


def test_all_conditions_must_hold(client):
    made = config(
        lambda step: {"x": step["a"][-1]},
        [Condition.is_end_episode(), Condition.step_index() >= 5],
    )
    write(client, [made])
    assert values(client) == [5]


def test_items_may_span_episodes_whose_steps_were_kept(client):
    pair = config(lambda step: {"x": step["a"][-2:]})
    write(client, [pair], episodes=(2, 2), clear_buffers=False)
    assert values(client) == [[0, 1], [1, 2], [2, 3]]
    write(client, [pair], episodes=(2, 2))
    assert values(client) == [[0, 1], [2, 3]]


def test_a_partial_step_can_be_completed_later(client):
    writer = client.structured_writer(
        [
            config(lambda step: {"x": step["a"][-1]}),
            config(lambda step: {"x": step["a"][-1], "y": step["b"][-2:]}),
        ]
    )
    for step in range(2):
        writer.append({"a": step, "b": None}, partial_step=True)
        assert writer.step_is_open
        writer.append({"a": None, "b": 10 * step})
        assert not writer.step_is_open
    writer.flush()
    assert values(client)[:2] == [0, 1]
    writer.append({"a": 5, "b": None}, partial_step=True)
    with pytest.raises(RuntimeError, match="'a' was already given"):
        writer.append({"a": 5, "b": None}, partial_step=True)


def test_items_have_the_nest_of_the_pattern():
    Pair = collections.namedtuple("Pair", ["left", "right"])
    step = structured.create_reference_step({"obs": {"x": None, "y": None}, "reward": None})
    made = structured.create_config(
        {"pair": Pair(step["obs"]["y"][-2:], (step["reward"][-1],))}, "t"
    )
    with reverie.Store([fifo()]) as store:
        client = store.client()
        with client.structured_writer([made]) as writer:
            for i in range(2):
                writer.append({"obs": {"x": "unused", "y": np.full(3, i)}, "reward": float(i)})
        pair = client.sample_batch("t", 1).data["pair"]
    assert isinstance(pair, Pair)
    np.testing.assert_array_equal(pair.left, [[[0, 0, 0], [1, 1, 1]]])
    np.testing.assert_array_equal(pair.right[0], [1.0])


def test_steps_may_change_their_names_but_not_their_number(client):
    writer = client.structured_writer([config(lambda step: {"x": step["a"][-1]})])
    writer.append({"a": 1, "b": 2})
    writer.append({"p": 3, "q": 4})
    writer.append((5, 6))
    with pytest.raises(ValueError, match="1 leaves, but earlier steps had 2"):
        writer.append({"a": 7})
    writer.flush()
    assert values(client) == [1, 3, 5]


@pytest.mark.parametrize("weight", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_priority_can_be_computed_from_td_errors(client, weight, dtype):
    priority = structured.td_error(weight, STEP, lambda step: step["b"])
    made = config(lambda step: {"x": step["a"][-1], "e": step["b"][-3:]}, priority=priority)
    with client.structured_writer([made]) as writer:
        for error in (1, -4, 2):
            writer.append({"a": 0, "b": np.array(error, dtype)})
    ((_, made_of),) = drain(client)
    assert made_of == pytest.approx(weight * 4 + (1 - weight) * 7 / 3)


def test_an_item_can_have_a_constant_priority(client):
    made = config(
        lambda step: {"x": step["a"][-1]}, priority=structured.constant_priority_fn(np.float32(2.5))
    )
    write(client, [made], episodes=(1,))
    assert drain(client) == [(0, 2.5)]


def test_several_configurations_are_tried_in_order(client):
    write(
        client,
        [
            config(lambda step: {"x": step["a"][-1]}),
            config(lambda step: {"x": step["a"][-2]}, [Condition.step_index() % 2 == 1]),
        ],
        episodes=(4,),
    )
    assert values(client) == [0, 1, 0, 2, 3, 2]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (lambda a: a[:], "at least one of start and stop"),
        (lambda a: a[0], "stop is 0; it must be < 0"),
        (lambda a: a[1], "stop is 1; it must be <= 0"),
        (lambda a: a[0:1], "start is 0; it must be < 0"),
        (lambda a: a[-2:1], "stop is 1; it must be <= 0"),
        (lambda a: a[-2:-2], "stop is -2; it must be > start, -2"),
        (lambda a: a[-3::0], "step is 0; it must be > 0"),
        (lambda a: a[-3::-1], "step is -1; it must be > 0"),
        (lambda a: a[:-1:2], "step is 2, but there is no start"),
    ],
)
def test_invalid_rows_are_refused_when_a_writer_is_created(client, rows, text):
    good = config(lambda step: {"x": step["a"][-1]})
    bad = config(lambda step: {"x": rows(step["a"])})
    with pytest.raises(ValueError, match=f"Invalid configuration at position 1: .*{text}"):
        client.structured_writer([good, bad])


@pytest.mark.parametrize("key", ["x", None, (1,), -1.0, np.array([-1, -2]), slice("a", None)])
def test_invalid_indices_are_refused(key):
    with pytest.raises(ValueError, match="int"):
        structured.create_reference_step(STEP)["a"][key]


def test_numbers_of_numpy_are_indices():
    for module in (structured, reverb_structured):
        leaf = module.create_reference_step(STEP)["a"]
        assert leaf[np.int64(-1)] == leaf[-1]
        assert leaf[-np.int64(3) : np.int8(-1) : np.uint8(2)] == leaf[-3:-1:2]


def test_configurations_that_make_no_items_are_refused(client):
    for configs, text in [
        ([], "no configurations"),
        ([config(lambda _: {})], "position 0.*no columns"),
        ([config(lambda step: step["a"][-1], table="")], "position 0.*table"),
        ([config(lambda step: step["a"][-1], [Condition.step_index() % 0 == 0])], "division by 0"),
        ([config(lambda step: step["a"][-1], [Condition.step_index() % 2 == -1])], "remainder -1"),
        (
            [
                config(
                    lambda step: step["a"][-1],
                    priority=structured.constant_priority_fn(float("nan")),
                )
            ],
            "NaN",
        ),
    ]:
        with pytest.raises(reverie.errors.InvalidArgumentError, match=text):
            client.structured_writer(configs)
    with pytest.raises(TypeError, match="create_config"):
        client.structured_writer(["t"])


def test_conditions_and_configurations_of_another_type_are_refused():
    for module in (structured, reverb_structured):
        pattern = {"x": module.create_reference_step(STEP)["a"][-1]}
        for conditions in (None, module.Condition.step_index() > 2):
            with pytest.raises(
                reverie.errors.UnsupportedTypeError, match=r"conditions is [\s\S]*list"
            ):
                module.create_config(pattern, "t", conditions)
        with pytest.raises(reverie.errors.UnsupportedTypeError, match="config is 3"):
            module.unpack_pattern(3)


def test_invalid_parts_of_a_configuration_are_refused():
    node = structured.create_reference_step(STEP)["a"]
    for make, text in [
        (lambda: structured.create_config({"x": 3}, "t"), "column 'x' of the pattern is 3"),
        (lambda: structured.create_config({"x": node}, "t"), "rows of a reference step"),
        (lambda: structured.create_config(node[-1], 5), "table is 5"),
        (lambda: structured.create_config(node[-1], "t", priority=2.0), "constant_priority_fn"),
        (
            lambda: structured.create_config(node[-1], "t", [Condition.step_index()]),
            "must be complete",
        ),
        (lambda: Condition.step_index() == 1.5, "must be an integer"),
        (lambda: Condition.step_index() >= "a", "must be an integer"),
        (lambda: structured.constant_priority_fn("x"), "must be a number"),
        (lambda: structured.td_error(0.5, STEP, lambda _: 3), "a leaf of the step"),
        (lambda: list(node), "slice it"),
    ]:
        with pytest.raises(TypeError, match=text):
            make()
    for make, text in [
        (lambda: Condition.step_index() % 2 >= 1, "== and !="),
        (lambda: Condition.step_index() % 2 % 2, "one %"),
        (lambda: Condition.step_index() == 2**31, "32 bits"),
        (lambda: node[-(2**40)], "32 bits"),
    ]:
        with pytest.raises(ValueError, match=text):
            make()


def test_invalid_steps_are_refused_and_the_writer_stays_usable(client):
    writer = client.structured_writer(
        [config(lambda step: {"x": step["a"][-1]}, [Condition.data(STEP)["b"] >= 0])]
    )
    writer.append({"a": np.int64(1), "b": np.uint8(1)})
    for step, text in [
        ({"a": np.float32(1), "b": np.uint8(1)}, "'a' is int64 since its first value"),
        ({"a": np.zeros(2, np.int64), "b": np.uint8(1)}, r"'a' is int64 \(\) since"),
        ({"a": np.int64(1), "b": np.float32(1)}, "'b' is uint8 since its first value"),
        ({"a": np.int64(1), "b": np.zeros(2, np.uint8)}, "'b'.*single whole number"),
    ]:
        with pytest.raises(ValueError, match=text):
            writer.append(step)
    writer.append({"a": np.int64(2), "b": np.array([[1]], np.uint8)})
    writer.append({"a": np.int64(3), "b": None})  # a condition on a missing value is false
    writer.flush()
    assert values(client) == [1, 2]
    too_short = client.structured_writer([config(lambda step: {"x": step["b"][-1]})])
    with pytest.raises(ValueError, match="refers to leaf 1 of the steps, which have 1"):
        too_short.append({"a": 1})


def test_an_unknown_table_is_reported_by_append_or_flush(client):
    writer = client.structured_writer([config(lambda step: {"x": step["a"][-1]}, table="none")])

    def write_and_flush():
        writer.append({"a": 1, "b": 2})
        writer.flush()

    with pytest.raises(RuntimeError, match="none"):
        write_and_flush()
    writer.close()


def test_flush_and_end_episode_wait_for_a_full_queue_until_their_timeout(client):
    made = config(lambda step: {"x": step["a"][-1]}, [Condition.is_end_episode()], table="small")
    with client.structured_writer([made]) as writer:
        writer.append({"a": 1, "b": 0})
        writer.end_episode(timeout_s=60)
        writer.append({"a": 2, "b": 0})
        for _ in range(2):
            with pytest.raises(reverie.DeadlineExceededError):
                writer.end_episode(timeout_ms=50)
        with pytest.raises(reverie.DeadlineExceededError):
            writer.flush(timeout_s=0.05)
        assert writer.pending_items == 1
        writer.flush(1, timeout_s=60)
        with pytest.raises(ValueError, match="block_until_num_items"):
            writer.flush(-1)
        seen = [next(client.sample("small", timeout_s=60, emit_timesteps=False)).data[0].tolist()]
        writer.end_episode(timeout_s=60)
        seen += [next(client.sample("small", timeout_s=60, emit_timesteps=False)).data[0].tolist()]
    assert seen == [1, 2]


def test_append_waits_while_max_in_flight_items_are_pending():
    with reverie.Store([reverie.Table.queue("small", 1)]) as store:
        client = store.client()
        made = config(lambda step: {"x": step["a"][-1]}, table="small")
        writer = client.structured_writer([made], max_in_flight_items=2)
        for step in range(3):
            writer.append({"a": step, "b": 0}, timeout_s=0)
        with pytest.raises(reverie.DeadlineExceededError):
            writer.append({"a": 3, "b": 0}, timeout_s=0.05)
        assert [int(client.sample_batch("small", 1).data["x"][0]) for _ in range(3)] == [0, 1, 2]
        writer.append({"a": 4, "b": 0}, timeout_s=0)
        writer.flush()
        assert int(client.sample_batch("small", 1).data["x"][0]) == 4


def test_a_dropped_writer_warns_of_the_items_it_loses():
    with reverie.Store([reverie.Table.queue("small", 1)]) as store:
        writer = store.client().structured_writer(
            [config(lambda step: {"x": step["a"][-1]}, table="small")]
        )
        for step in range(3):
            writer.append({"a": step, "b": 0})
        held = [writer]
        del writer
        with pytest.warns(ResourceWarning, match="2 of its items"):
            held.clear()


def test_calls_of_a_closed_writer_are_refused(client):
    writer = client.structured_writer([config(lambda step: {"x": step["a"][-1]})])
    assert not writer.closed
    writer.close()
    writer.close()
    assert writer.closed
    for call in (lambda: writer.append({"a": 1, "b": 2}), writer.flush, writer.end_episode):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_a_table_can_use_the_signature_inferred_from_its_patterns():
    spec = {"a": reverie.TensorSpec((), "int64"), "b": reverie.TensorSpec((2,), "float32")}
    configs = [
        config(lambda step: {"x": step["a"][-1], "y": step["b"][-3:]}),
        config(lambda step: {"x": step["a"][-2], "y": step["b"][-4::2]}),
    ]
    signature = structured.infer_signature(configs, spec)
    assert signature == {
        "x": reverie.TensorSpec((), "int64"),
        "y": reverie.TensorSpec((None, 2), "float32"),
    }
    assert structured.infer_signature(configs[:1], spec)["y"].shape == (3, 2)
    with reverie.Store([fifo(signature=signature)]) as store:
        with store.client().structured_writer(configs) as writer:
            for step in range(4):
                writer.append({"a": step, "b": np.zeros(2, np.float32)})
        assert store.client().server_info()["t"].current_size == 3
        with store.client().structured_writer(configs) as writer:
            for _ in range(2):
                writer.append({"a": 1, "b": np.zeros(3, np.float32)})
            with pytest.raises(ValueError, match="signature"):
                writer.append({"a": 1, "b": np.zeros(3, np.float32)})


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        (slice(-5, None, 2), 3),
        (slice(-4, -1, 2), 2),
        (slice(-5, -1), 4),
        (slice(-3, 0), 3),
        (slice(-3, -1, 5), 1),
    ],
)
def test_an_inferred_length_matches_the_items(rows, count):
    made = config(lambda step: step["a"][rows])
    assert structured.infer_signature(
        [made], STEP | {"a": np.int64(0), "b": np.int64(0)}
    ).shape == (count,)
    with reverie.Store([fifo()]) as store:
        write(store.client(), [made], episodes=(6,))
        assert store.client().sample_batch("t", 1).data.shape == (1, count)


def test_signatures_that_cannot_be_inferred_are_refused():
    spec = {"a": reverie.TensorSpec((), "int64"), "b": reverie.TensorSpec((2,), "float32")}
    first = config(lambda step: {"x": step["b"][-3:]})
    for others, text in [
        ([config(lambda step: {"x": step["b"][-3:]}, table="u")], "tables"),
        ([config(lambda step: {"y": step["b"][-3:]})], "structure"),
        ([config(lambda step: {"x": step["a"][-3:]})], "float32 and int64"),
        ([config(lambda step: {"x": step["b"][-1]})], r"\(3, 2\) and \(2,\)"),
    ]:
        with pytest.raises(ValueError, match=text):
            structured.infer_signature([first, *others], spec)
    with pytest.raises(ValueError, match="at least one"):
        structured.infer_signature([], spec)
    with pytest.raises(ValueError, match="leaf 1, but step_spec has 1"):
        structured.infer_signature([first], {"a": np.int64(0)})


def test_configurations_can_be_unpacked_compared_and_printed():
    made = config(lambda step: {"x": step["a"][-3:], "y": (step["b"][-1],)})
    assert structured.unpack_pattern(made) == {
        "x": structured.PatternNode(0, start=-3),
        "y": (structured.PatternNode(1, stop=-1),),
    }
    assert made == config(lambda step: {"x": step["a"][-3:], "y": (step["b"][-1],)})
    assert made != config(lambda step: {"x": step["a"][-2:], "y": (step["b"][-1],)})
    assert "start=-3" in repr(made)
    greater = Condition.step_index() > 4
    assert greater == (Condition.step_index() >= 5)
    assert repr(Condition.step_index() % 2 != 1) == (
        "ConditionProto(comparison='mod_eq', flat_source_index=0, inverse=True, "
        "left='step_index', mod=2, value=1)"
    )
