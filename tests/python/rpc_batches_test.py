"""Calls that are served together: stacked, padded and split again; and queues."""

import asyncio
import collections
import contextlib
import gc
import threading

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors, rpc_batches

DEADLINE_S = 30.0


@pytest.fixture
def pair():
    with reverie.Rpc("server") as server, reverie.Rpc("client", timeout_s=DEADLINE_S) as client:
        client.connect(server.listen())
        yield server, client


def results(futures):
    return [future.result(DEADLINE_S) for future in futures]


def test_calls_of_a_batch_are_stacked_and_each_caller_gets_its_row(pair):
    server, client = pair
    seen = []

    def policy(obs, scale, *, who):
        seen.append((obs["x"].shape, scale.shape, who))
        return {"action": obs["x"].sum(axis=1) * scale, "names": list(who)}

    server.define("policy", policy, batch_size=4, max_wait_s=None)
    futures = [
        client.async_("server", "policy", {"x": np.full(3, i, np.float32)}, 2, who=f"w{i}")
        for i in range(8)
    ]
    for i, result in enumerate(results(futures)):
        assert result["action"] == 6 * i
        assert result["names"] == f"w{i}"
    assert [s[0] for s in seen] == [(4, 3)] * 2
    assert [s[1] for s in seen] == [(4,)] * 2
    assert sorted(name for s in seen for name in s[2]) == [f"w{i}" for i in range(8)]


def test_a_batch_closes_after_max_wait_s_or_when_is_ready_is_true(pair):
    server, client = pair
    server.define("timed", lambda x: x, batch_size=100, max_wait_s=0.02)
    assert results([client.async_("server", "timed", i) for i in range(3)]) == [0, 1, 2]
    server.define(
        "pairs", lambda x: x + len(x), batch_size=100, max_wait_s=None, is_ready=lambda n: n >= 2
    )
    assert results([client.async_("server", "pairs", i) for i in range(4)]) == [2, 3, 4, 5]


def test_a_dynamic_batch_holds_the_calls_that_came_during_the_last_one(pair):
    server, client = pair
    sizes = []
    first = threading.Event()
    go_on = threading.Event()

    def serve(x):
        sizes.append(len(x))
        first.set()
        go_on.wait(DEADLINE_S)
        return x * 2

    server.define("serve", serve, batch_size=16, dynamic_batching=True)
    futures = [client.async_("server", "serve", 0)]
    assert first.wait(DEADLINE_S)
    futures += [client.async_("server", "serve", i) for i in range(1, 10)]
    client.ping("server")
    server.define("flush", lambda: None)
    client.sync("server", "flush")  # now threads of the server have taken the earlier calls
    go_on.set()
    assert results(futures) == [2 * i for i in range(10)]
    assert sizes[0] == 1
    assert sum(sizes) == 10
    assert max(sizes) > 1


def test_batches_are_concatenated_and_padded(pair):
    server, client = pair
    shapes = []

    def serve(x):
        shapes.append(x.shape)
        return x * 10

    server.define("cat", serve, batch_size=2, max_wait_s=None, cat=True)
    parts = [np.arange(3), np.arange(5)]
    for part, got in zip(
        parts, results([client.async_("server", "cat", p) for p in parts]), strict=True
    ):
        np.testing.assert_array_equal(got, part * 10)
    server.define("pad", serve, batch_size=8, max_wait_s=0.01, pad=True)
    assert client.sync("server", "pad", 7) == 70
    assert shapes == [(8,), (8,)]


def test_a_call_whose_arrays_differ_in_rows_fails_alone(pair):
    server, client = pair
    shapes = []

    def serve(x, nest):
        shapes.append((x.shape, nest["y"].shape))
        return x + nest["y"]

    # Both arguments have as many rows in the three calls together.
    server.define("cat", serve, batch_size=3, max_wait_s=None, cat=True)
    counts = [(3, 2), (2, 2), (2, 3)]
    futures = [client.async_("server", "cat", np.arange(x), {"y": np.arange(y)}) for x, y in counts]
    np.testing.assert_array_equal(futures[1].result(DEADLINE_S), [0, 2])
    for future, (x, y) in [(futures[0], counts[0]), (futures[2], counts[2])]:
        with pytest.raises(errors.InvalidArgumentError, match=f"'cat' have {x} and {y} rows"):
            future.result(DEADLINE_S)
    assert shapes == [((2,), (2,))]

    queue = server.define_queue("ask", batch_size=2, max_wait_s=None, cat=True)
    futures = [client.async_("server", "ask", np.zeros(n), np.zeros(2)) for n in (1, 2)]
    answer, (x, _), _ = queue.get(DEADLINE_S)
    answer(x)
    assert futures[1].result(DEADLINE_S).shape == (2,)
    with pytest.raises(errors.InvalidArgumentError, match="1 and 2 rows"):
        futures[0].result(DEADLINE_S)


def test_callers_without_rows_get_none_where_batches_are_padded(pair):
    server, client = pair
    server.define("pad", lambda x: 2 * x, batch_size=4, max_wait_s=0.01, cat=True, pad=True)
    for rows in (0, 2, 5):
        got = client.sync("server", "pad", np.ones((rows, 3)))
        np.testing.assert_array_equal(got, np.full((rows, 3), 2.0))


@pytest.mark.parametrize(
    ("wrong", "word"),
    [(lambda x: x[:-1], "array of 1"), (lambda _x: [1, 2, 3], "gave 3 values")],
)
def test_a_result_of_another_length_fails_all_callers(pair, wrong, word):
    server, client = pair
    server.define("wrong", wrong, batch_size=2, max_wait_s=None)
    futures = [client.async_("server", "wrong", i) for i in range(2)]
    for future in futures:
        with pytest.raises(errors.RemoteError, match=word):
            future.result(DEADLINE_S)


def test_a_function_that_returns_a_description_of_arrays_serves_on(pair):
    server, client = pair
    given = [reverie.TensorSpec((None, 3), "float32"), np.arange(2)]
    server.define("next", lambda _x: given.pop(0), batch_size=2, max_wait_s=None)
    for future in [client.async_("server", "next", i) for i in range(2)]:
        with pytest.raises(errors.RemoteError, match="TensorSpec"):
            future.result(DEADLINE_S)
    assert results([client.async_("server", "next", i) for i in range(2)]) == [0, 1]


@pytest.mark.parametrize("part", [lambda value: value, lambda value: {"names": value}])
def test_a_list_with_an_entry_per_row_fails_all_callers_that_brought_batches(pair, part):
    server, client = pair
    server.define(
        "names", lambda x: part([f"row {i}" for i in x]), batch_size=2, max_wait_s=None, cat=True
    )
    rows = [np.arange(2), np.arange(2, 5)]
    for future in [client.async_("server", "names", some) for some in rows]:
        with pytest.raises(errors.RemoteError, match="batch of 2 calls gave 5 values"):
            future.result(DEADLINE_S)
    server.define("entries", lambda _x: part(["a", "b"]), batch_size=2, max_wait_s=None, cat=True)
    got = results([client.async_("server", "entries", some) for some in rows])
    assert got == [part("a"), part("b")]


def test_calls_that_do_not_stack_or_functions_that_raise_fail_all_callers(pair):
    server, client = pair
    server.define("same", lambda x: x, batch_size=2, max_wait_s=None)
    for other in (np.zeros(3), np.zeros((2, 2)), {"a": 1}):
        futures = [client.async_("server", "same", v) for v in (np.zeros(2), other)]
        for future in futures:
            assert isinstance(future.exception(DEADLINE_S), errors.RemoteError)
    server.define("raise", lambda x: x.nothing, batch_size=2, max_wait_s=None)
    for future in [client.async_("server", "raise", i) for i in range(2)]:
        with pytest.raises(errors.RemoteError, match="AttributeError"):
            future.result(DEADLINE_S)
    assert results([client.async_("server", "same", i) for i in range(2)]) == [0, 1]


def test_values_of_different_types_are_joined_as_numpy_joins_them(pair):
    server, client = pair
    seen = []

    def serve(x):
        seen.append(x)
        return [0] * len(x)

    server.define("join", serve, batch_size=2, max_wait_s=None)
    for values in ((1, 2.5), (True, 3), (np.float32(1), np.float32(2)), (2**70, 1), (-5, 7)):
        assert results([client.async_("server", "join", v) for v in values]) == [0, 0]
        expected = np.stack([np.asarray(v) for v in values])
        assert sorted(seen[-1].tolist()) == sorted(expected.tolist())
        assert seen[-1].dtype == expected.dtype
    for values in ((np.arange(2), np.arange(2.0)), (np.zeros((0, 3)), np.zeros((0, 3)))):
        results([client.async_("server", "join", v) for v in values])
        assert seen[-1].shape == (2, *values[0].shape)
        assert seen[-1].dtype == np.stack(values).dtype
    assert results([client.async_("server", "join", v) for v in ("a", b"b")]) == [0, 0]
    assert set(seen[-1]) == {"a", b"b"}


def test_nested_results_reach_their_callers_row_by_row(pair):
    server, client = pair
    Both = collections.namedtuple("Both", ["rows", "name"])

    def serve(x, nest):
        assert nest["deep"][0].shape == (8, 2)
        large = np.repeat(x[:, None], 20_000, axis=1)  # large enough to be sent without a copy
        texts = np.array([f"t{i}" for i in x])
        return {
            "both": Both(large, "same"),
            "list": [x + 0.5, {"texts": texts}],
            "matrix": np.stack([x, -x], axis=1),
            7: list(x),
        }

    server.define("nest", serve, batch_size=8, max_wait_s=0.2, pad=True)
    futures = [
        client.async_("server", "nest", i, {"deep": [np.full(2, i, np.int16)]}) for i in range(3)
    ]
    for i, got in enumerate(results(futures)):
        assert got["both"].name == "same"
        np.testing.assert_array_equal(got["both"].rows, np.full(20_000, i))
        assert got["list"][0] == i + 0.5
        assert got["list"][1]["texts"] == f"t{i}"
        np.testing.assert_array_equal(got["matrix"], [i, -i])
        assert got[7] == i


def test_a_value_that_cannot_be_sent_fails_only_its_caller(pair):
    server, client = pair
    server.define("some", lambda x: [object() if v == 1 else v for v in x.tolist()], batch_size=3)
    futures = [client.async_("server", "some", i) for i in range(3)]
    for i, future in enumerate(futures):
        error = future.exception(DEADLINE_S)
        assert isinstance(error, errors.RemoteError) if i == 1 else error is None
    endless = []
    endless.append(endless)
    server.define("endless", lambda _x: endless, batch_size=1)
    with pytest.raises(errors.RemoteError, match="nested"):
        client.sync("server", "endless", 1)


def test_waiting_calls_can_be_cancelled_and_end_with_their_function(pair):
    server, client = pair
    seen = []
    server.define("pair", lambda x: seen.append(x.tolist()) or x, batch_size=2, max_wait_s=None)
    given_up = client.async_("server", "pair", 1)
    client.ping("server")
    given_up.cancel()
    assert results([client.async_("server", "pair", i) for i in (2, 3)]) == [2, 3]
    assert seen == [[2, 3]]
    left = client.async_("server", "pair", 4)
    client.ping("server")
    assert server.undefine("pair")
    with pytest.raises(errors.NotFoundError, match="'pair'"):
        left.result(DEADLINE_S)


@pytest.mark.parametrize("options", [{}, {"batch_size": 4}])
def test_calls_in_a_queue_end_with_its_function(pair, options):
    server, client = pair
    queue = server.define_queue("ask", max_wait_s=None, **options)
    waits = client.async_("server", "ask", 1)
    eventually(lambda: len(queue) == 1)
    assert server.undefine("ask")
    with pytest.raises(errors.NotFoundError, match="'ask' was undefined"):
        waits.result(DEADLINE_S)
    with pytest.raises(errors.CancelledError, match="undefined"):
        queue.get(DEADLINE_S)
    assert list(queue) == []
    server.define("ask", lambda x: 2 * x)  # the name is free
    assert client.sync("server", "ask", 2) == 4


def test_a_batch_can_only_be_answered_once(pair):
    server, client = pair
    queue = server.define_queue("ask", batch_size=2)
    futures = [client.async_("server", "ask", i) for i in range(2)]
    answer, (x,), _ = queue.get(DEADLINE_S)
    with pytest.raises(errors.UnsupportedTypeError, match="exception"):
        answer.fail(3)
    answer(x)
    with pytest.raises(errors.FailedPreconditionError, match="answered"):
        answer(x)
    answer.fail(ValueError("too late"))
    assert results(futures) == [0, 1]


def test_a_raising_predicate_fails_the_waiting_calls(pair):
    server, client = pair
    server.define("f", lambda x: x, batch_size=9, max_wait_s=None, is_ready=lambda n: n / 0 > 1)
    for _ in range(2):
        with pytest.raises(errors.RemoteError, match="ZeroDivisionError"):
            client.sync("server", "f", 1)


def test_many_callers_share_batches_and_get_their_own_rows(pair):
    server, _ = pair
    sizes = []
    server.define(
        "f", lambda x: sizes.append(len(x)) or 2 * x, batch_size=16, dynamic_batching=True
    )
    wrong = []

    def call(number):
        with reverie.Rpc(f"caller{number}", timeout_s=DEADLINE_S) as rpc:
            rpc.connect(server.addresses[0])
            for i in range(25):
                rows = np.full(1000, 1000 * number + i, np.int32)
                futures = [rpc.async_("server", "f", rows) for _ in range(8)]
                wrong.extend(v for v in results(futures) if not np.array_equal(v, 2 * rows))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(sizes) == 3 * 25 * 8
    assert max(sizes) > 1


def test_torch_tensors_are_stacked_as_tensors(pair):
    torch = pytest.importorskip("torch")
    server, client = pair

    def serve(x):
        assert isinstance(x, torch.Tensor)
        return x.sum(dim=1)

    server.define("sum", serve, batch_size=2, max_wait_s=None)
    got = results([client.async_("server", "sum", torch.full((4,), float(i))) for i in range(2)])
    assert [float(v) for v in got] == [0.0, 4.0]
    assert all(isinstance(v, torch.Tensor) and v.shape == () for v in got)
    server.define("half", lambda x: x[:, :1], batch_size=2, max_wait_s=None, device="cpu")
    rows = [torch.full((3,), float(i), dtype=torch.bfloat16) for i in range(2)]
    for i, row in enumerate(results([client.async_("server", "half", r) for r in rows])):
        assert row.dtype == torch.bfloat16
        assert row.tolist() == [float(i)]


def test_calls_can_be_taken_from_a_queue_and_answered(pair):
    server, client = pair
    queue = server.define_queue("ask")
    future = client.async_("server", "ask", 3, b=4)
    answer, args, kwargs = queue.get(DEADLINE_S)
    assert (args, kwargs) == ((3,), {"b": 4})
    answer(args[0] + kwargs["b"])
    assert future.result(DEADLINE_S) == 7
    assert len(queue) == 0
    with pytest.raises(errors.DeadlineExceededError):
        queue.get(0.01)
    future = client.async_("server", "ask")
    queue.get(DEADLINE_S)[0].fail(ValueError("no"))
    with pytest.raises(errors.RemoteError, match="ValueError: no"):
        future.result(DEADLINE_S)


def test_a_queue_can_be_awaited_and_returns_batches(pair):
    server, client = pair
    queue = server.define_queue("ask", batch_size=4, dynamic_batching=True)
    futures = [client.async_("server", "ask", np.float32(i)) for i in range(10)]

    async def serve():
        answered = 0
        while answered < 10:
            answer, (x,), _ = await queue
            assert 1 <= len(x) <= 4
            answered += len(x)
            answer(x + 1)

    asyncio.run(asyncio.wait_for(serve(), DEADLINE_S))
    assert results(futures) == [i + 1 for i in range(10)]


def test_awaiting_a_queue_keeps_nothing_until_the_next_call(pair, monkeypatch):
    server, client = pair
    queue = server.define_queue("ask")

    def event_count():
        gc.collect()
        return sum(type(one) is asyncio.Event for one in gc.get_objects())

    async def wait_in_vain():
        for _ in range(20):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(queue, 0.01)

    async def serve():
        awaited = asyncio.ensure_future(queue)
        await asyncio.wait([awaited], timeout=0.01)  # it runs until it waits
        future = client.async_("server", "ask", 3)
        answer, args, _ = await awaited
        answer(args[0])
        return future

    before = event_count()
    monkeypatch.setattr(rpc_batches, "_LOOK_S", 0.001)
    asyncio.run(wait_in_vain())
    assert event_count() == before
    # Those that gave up leave the next one to be woken.
    monkeypatch.setattr(rpc_batches, "_LOOK_S", 2 * DEADLINE_S)
    future = asyncio.run(asyncio.wait_for(serve(), DEADLINE_S))
    assert future.result(DEADLINE_S) == 3


def test_closing_a_peer_ends_its_queues(pair):
    server, _ = pair
    queue = server.define_queue("ask")
    threading.Timer(0.1, server.close).start()
    with pytest.raises(errors.CancelledError):
        queue.get(DEADLINE_S)
    assert list(queue) == []


@pytest.mark.parametrize(
    "options",
    [
        *({"batch_size": 0}, {"batch_size": "two"}, {"batch_size": 2, "max_wait_s": -1}),
        *({"batch_size": 2, "pad": 1}, {"batch_size": 2, "is_ready": 3}),
    ],
)
def test_wrong_options_are_refused_by_name(pair, options):
    server, _ = pair
    name = list(options)[-1]
    with pytest.raises((errors.InvalidArgumentError, errors.UnsupportedTypeError), match=name):
        server.define("f", print, **options)
    with pytest.raises((errors.InvalidArgumentError, errors.UnsupportedTypeError), match=name):
        server.define_queue("f", **options)
