"""Peers that call each other: in one process, and between processes, over Unix sockets and TCP."""

import asyncio
import collections
import contextlib
import gc
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors

DEADLINE_S = 30.0


CERTIFICATES = Path(__file__).parent.parent / "data" / "tls"
TLS = reverie.PeerTls(
    CERTIFICATES / "server.pem", CERTIFICATES / "server_key.pem", CERTIFICATES / "authority.pem"
)


def ucx():
    """The transport, if the library was built with it."""
    try:
        reverie.Rpc(transports=["ucx"]).close()
    except errors.UnimplementedError:
        return []
    return ["ucx"]


UCX = ucx()
BY_TCP = ("tcp", "tls", "ucx")


@pytest.fixture(params=["shm", "unix", "tcp", "tls", *UCX])
def transport(request):
    return request.param


def options_of(transport):
    if transport == "tls":
        return {"transports": ["tcp"], "tls": TLS}
    return {"transports": [transport]}


@pytest.fixture
def pair(transport):
    """A peer "server", and a client that is connected to it."""
    with reverie.Rpc("server", **options_of(transport)) as server:
        name = f"unix:@reverie-test-{os.getpid()}-{time.monotonic_ns()}"
        address = server.listen("127.0.0.1:0" if transport in BY_TCP else name)
        with reverie.Rpc("client", **options_of(transport)) as client:
            client.connect(address)
            yield server, client


@pytest.fixture
def echo(pair):
    """Calls a function of the server that returns its argument."""
    server, client = pair
    server.define("echo", lambda value: value)
    return lambda value: client.sync("server", "echo", value)


Point = collections.namedtuple("Point", ["x", "y"])


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200), 0.1, math.inf, 1 + 2j),
        *("", "text", "\u00e9\U0001f600", b"", b"\0bytes", [], (), {}),
        *(set(), frozenset({"a"}), frozenset({1, (2, 3)})),  # with the same repr in each run
        {"a": [1, (2.5, None)], 3: {"b": {1, 2}}, (1, 2): "key"},
        [[[[[[1]]]]]],
        Point(1, "two"),
    ],
    ids=repr,
)
def test_values_round_trip(echo, value):
    got = echo(value)
    assert got == value
    assert repr(got) == repr(value) or isinstance(value, (set, frozenset))
    assert type(got).__name__ == type(value).__name__


def test_nan_round_trips(echo):
    assert math.isnan(echo(math.nan))


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ],
)
def test_arrays_keep_their_type_and_shape(echo, dtype):
    for shape in [(), (3,), (0,), (2, 0, 3), (4, 5), (1, 2, 3, 4)]:
        value = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
        got = echo({"x": value, "y": [value]})
        for array in (got["x"], got["y"][0]):
            assert array.dtype == value.dtype
            assert array.shape == value.shape
            np.testing.assert_array_equal(array, value)
            assert array.flags.writeable
    scalar = np.dtype(dtype).type(1)
    assert type(echo(scalar)) is type(scalar)
    assert echo(scalar) == scalar


def test_arrays_of_any_strides_send_their_values(echo):
    big = np.arange(10_000, dtype=np.int32).reshape(100, 100)
    for view in (big[:, 0], big[::-1, ::3], big.T, np.broadcast_to(big[0], (5, 100))):
        np.testing.assert_array_equal(echo(view), view)
    np.testing.assert_array_equal(echo(np.asfortranarray(big)), big)
    np.testing.assert_array_equal(echo(big.astype(">i4")), big)


def test_large_arrays_are_sent_both_ways(echo):
    value = np.random.default_rng(1).integers(0, 255, 30_000_001, np.uint8)
    np.testing.assert_array_equal(echo(value), value)


def test_bfloat16_and_fp8_arrays_can_be_sent(echo):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        value = np.arange(8).astype(getattr(ml_dtypes, name))
        got = echo(value)
        assert got.dtype == value.dtype
        assert got.tobytes() == value.tobytes()


def test_torch_tensors_are_returned_as_tensors(echo):
    torch = pytest.importorskip("torch")
    for value in (
        torch.arange(6, dtype=torch.float32).reshape(2, 3),
        torch.arange(6).reshape(2, 3).T,
        torch.ones(4, dtype=torch.bfloat16),
        torch.zeros(0, 3),
        torch.ones(3, requires_grad=True),
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.tensor(1 + 2j).conj().imag,
    ):
        got = echo([value])[0]
        assert isinstance(got, torch.Tensor)
        assert got.dtype == value.dtype
        assert not got.requires_grad
        assert torch.equal(got, value.detach())


def test_float8_tensors_of_torch_can_be_sent(echo):
    torch = pytest.importorskip("torch")
    for name in ("float8_e4m3fn", "float8_e5m2"):
        value = torch.arange(6, dtype=torch.float32).reshape(2, 3).to(getattr(torch, name))
        got = echo(value)
        assert got.dtype == value.dtype
        assert torch.equal(got.float(), value.float())


def test_arrays_of_jax_are_returned_as_arrays_of_jax(echo):
    jax = pytest.importorskip("jax")
    for value in (
        jax.numpy.arange(6.0).reshape(2, 3),
        jax.numpy.ones(40_000, jax.numpy.bfloat16),
        jax.numpy.arange(6).reshape(2, 3).T,
        jax.numpy.zeros((0, 3)),
    ):
        got = echo({"a": [value]})["a"][0]
        assert isinstance(got, jax.Array)
        assert got.dtype == value.dtype
        assert got.shape == value.shape
        assert bool((got == value).all())


class Unknown:
    pass


@pytest.mark.parametrize(
    ("value", "word"),
    [
        *((Unknown(), "Unknown"), (object, "type"), (lambda: 0, "function"), (range(3), "range")),
        (np.array(["text"]), "dtype"),
        (np.array([object()]), "dtype"),
        (np.array(["2020-01-01"], "M8[D]"), "dtype"),
        ({"a": [Unknown()]}, "Unknown"),
    ],
)
def test_a_value_without_an_encoding_is_refused_by_the_sender(pair, value, word):
    server, client = pair
    server.define("echo", lambda given: given)
    server.define("give", lambda: value)
    with pytest.raises(errors.UnsupportedTypeError, match=word):
        client.sync("server", "echo", value)
    with pytest.raises(errors.UnsupportedTypeError, match=word):
        client.async_("server", "echo", value)
    with pytest.raises(errors.RemoteError, match=word):
        client.sync("server", "give")
    assert client.sync("server", "echo", 1) == 1


def test_text_that_is_not_utf8_and_deep_nests_are_refused(pair):
    server, client = pair
    server.define("echo", lambda given: given)
    with pytest.raises(errors.InvalidArgumentError, match="UTF-8"):
        client.sync("server", "echo", "\ud800")
    nest = []
    for _ in range(100):
        nest = [nest]
    with pytest.raises(errors.InvalidArgumentError, match="deep"):
        client.sync("server", "echo", nest)
    nest.append(nest)
    with pytest.raises(errors.InvalidArgumentError, match="deep"):
        client.sync("server", "echo", nest)


def test_positional_and_keyword_arguments_are_passed(pair):
    server, client = pair
    server.define("f", lambda *args, **kwargs: [args, kwargs])
    assert client.sync("server", "f", 1, b=2, peer=3, function=4) == [
        (1,),
        {"b": 2, "peer": 3, "function": 4},
    ]


def test_both_peers_can_call_each_other(pair):
    server, client = pair
    client.define("name", lambda: "client")
    server.define("ask", lambda: server.sync("client", "name"))
    assert client.sync("server", "ask") == "client"


def test_a_remote_error_has_the_class_text_and_traceback(pair):
    server, client = pair

    def explode(x):
        raise ZeroDivisionError(f"no {x}")

    server.define("explode", explode)
    with pytest.raises(errors.RemoteError) as caught:
        client.sync("server", "explode", 3)
    assert caught.value.error_type == "ZeroDivisionError"
    assert caught.value.error_text == "no 3"
    assert "in explode" in caught.value.traceback_text
    assert "explode" in str(caught.value)
    with pytest.raises(errors.RemoteError, match="TypeError"):
        client.sync("server", "explode")
    assert isinstance(client.async_("server", "explode", 1).exception(), errors.RemoteError)


def test_unknown_functions_and_peers_are_refused(pair):
    server, client = pair
    with pytest.raises(errors.NotFoundError, match=r"server.*nothing"):
        client.sync("server", "nothing")
    server.define("gone", lambda: 1)
    assert client.sync("server", "gone") == 1
    assert server.undefine("gone")
    assert not server.undefine("gone")
    with pytest.raises(errors.NotFoundError, match="gone"):
        client.sync("server", "gone")
    with pytest.raises(errors.NotFoundError, match="stranger"):
        client.sync("stranger", "f")
    with pytest.raises(errors.FailedPreconditionError, match="itself"):
        client.sync("client", "f")


def test_a_call_of_an_unconnected_peer_is_refused():
    with (
        reverie.Rpc("alone", find_timeout_s=0.1) as rpc,
        pytest.raises(errors.NotFoundError, match="connected to none"),
    ):
        rpc.sync("server", "f")


def test_two_functions_or_peers_of_the_same_name_are_refused(pair, transport):
    server, client = pair
    server.define("f", lambda: 1)
    with pytest.raises(errors.AlreadyExistsError, match="'f'"):
        server.define("f", lambda: 2)
    with pytest.raises(errors.InvalidArgumentError, match=r"reverie\.ping"):
        server.define("reverie.ping", lambda: 2)
    assert client.sync("server", "f") == 1
    address = server.addresses[0]
    uses = options_of("unix" if transport == "shm" else transport)
    for name in ("client", "server"):
        with reverie.Rpc(name, **uses) as twin:
            twin.connect(address)
            with pytest.raises(errors.AlreadyExistsError, match=name):
                twin.sync("other", "f")
    assert client.sync("server", "f") == 1


def test_a_port_in_use_and_malformed_addresses_are_refused(pair):
    server, client = pair
    with pytest.raises(errors.AlreadyExistsError):
        client.listen(server.addresses[0])
    for address in ("", "nonsense", "host:99999", "host:port"):
        with pytest.raises(errors.InvalidArgumentError):
            client.connect(address)
        with pytest.raises(errors.InvalidArgumentError):
            client.listen(address)


def test_listening_for_other_machines_needs_a_token():
    with reverie.Rpc() as rpc, pytest.raises(errors.InvalidArgumentError, match="token"):
        rpc.listen("0.0.0.0:0")
    with reverie.Rpc(token="secret") as rpc:
        assert not rpc.listen("0.0.0.0:0").endswith(":0")
    with reverie.Rpc(insecure=True) as rpc:
        rpc.listen("0.0.0.0:0")


@pytest.mark.parametrize(("theirs", "mine"), [("a", "b"), ("a", None), (None, "a"), ("a", "a\0")])
def test_a_peer_with_another_token_is_refused(transport, theirs, mine):
    tls = TLS if transport == "tls" else None
    uses = ["tcp"] if tls else ["tcp", transport]
    with reverie.Rpc("server", token=theirs, tls=tls) as server:
        server.define("f", lambda: 1)
        address = server.listen()
        with reverie.Rpc("good", token=theirs, tls=tls) as good:
            good.connect(address)
            assert good.sync("server", "f") == 1
        with reverie.Rpc("bad", token=mine, transports=uses, tls=tls) as bad:
            bad.connect(address)
            with pytest.raises(errors.UnauthenticatedError, match="token"):
                bad.sync("server", "f")


def test_peers_of_one_machine_switch_to_the_unix_socket():
    with reverie.Rpc("server") as server, reverie.Rpc("client") as client:
        server.define("f", lambda: 1)
        client.connect(server.listen())
        assert client.sync("server", "f") == 1
        eventually(lambda: client.debug_info()["peers"][0]["link"].startswith("unix:@"))
        assert client.sync("server", "f") == 1


def test_peers_find_each_other_through_a_common_peer(transport):
    is_tcp = transport in BY_TCP
    with reverie.Rpc("broker", **options_of(transport)) as broker:
        uid = f"unix:@reverie-test-{os.getpid()}-{time.monotonic_ns()}"
        first = broker.listen("127.0.0.1:0" if is_tcp else uid)
        with (
            reverie.Rpc("a", **options_of(transport)) as a,
            reverie.Rpc("b", **options_of(transport)) as b,
        ):
            for rpc, name in ((a, f"{uid}-a"), (b, f"{uid}-b")):
                rpc.listen("127.0.0.1:0" if is_tcp else name)
                rpc.connect(first)
            b.define("f", lambda x: x + 1)
            assert a.sync("b", "f", 1) == 2
            assert a.peers() == ["b", "broker"]


def test_a_call_waits_for_a_server_that_starts_later(ended_within):
    with reverie.Rpc("server") as probe:
        address = probe.listen()
    with reverie.Rpc("client") as client:
        client.connect(address)
        future = client.async_("server", "f")
        assert not future.wait(0.3)
        with reverie.Rpc("server") as server:
            server.define("f", lambda: "late")
            server.listen(address)
            begin = time.monotonic()
            assert future.result(DEADLINE_S) == "late"
            assert ended_within(begin, 3.0)


def test_a_call_to_an_address_that_does_not_answer_fails_with_the_reason(ended_within):
    with reverie.Rpc("server") as probe:
        address = probe.listen()
    with reverie.Rpc("client", reach_timeout_s=0.5) as client:
        client.connect(address)
        begin = time.monotonic()
        for _ in range(2):  # each call has the full timeout
            with pytest.raises(errors.UnavailableError, match=r"within 0\.5 s: .*refused"):
                client.sync("server", "f")
        assert time.monotonic() - begin >= 1.0
        assert ended_within(begin, 5.0)


def test_a_call_ends_at_its_deadline_and_names_the_function(pair, ended_within):
    server, client = pair
    release = threading.Event()
    server.define("slow", release.wait)
    begin = time.monotonic()
    with pytest.raises(reverie.DeadlineExceededError, match="'slow' on 'server'"):
        client.sync("server", "slow", timeout_s=0.1)
    assert time.monotonic() - begin >= 0.1
    assert ended_within(begin, 5.0)
    with pytest.raises(errors.DeadlineExceededError, match="continues"):
        client.async_("server", "slow").result(0.01)
    release.set()
    for wrong in (-1, "soon", math.nan):
        with pytest.raises((errors.InvalidArgumentError, errors.UnsupportedTypeError)):
            client.sync("server", "slow", timeout_s=wrong)
    with reverie.Rpc("lost", transports=["tcp"]) as lost:
        lost.connect("127.0.0.1:1")
        with pytest.raises(errors.DeadlineExceededError, match=r"127\.0\.0\.1:1.*refused"):
            lost.sync("server", "f", timeout_s=0.2)


def test_futures_can_be_waited_for_and_have_callbacks(pair):
    server, client = pair
    release = threading.Event()
    server.define("wait", lambda value: (release.wait(DEADLINE_S), value)[1])
    future = client.async_("server", "wait", 7)
    assert not future.done()
    assert not future.wait(0.01)
    seen = []
    arrived = threading.Event()
    future.add_done_callback(lambda f: (seen.append(f.result()), arrived.set()))
    release.set()
    assert future.wait()
    assert future.done()
    assert future.result() == future.result(0) == 7
    assert future.exception() is None
    assert arrived.wait(DEADLINE_S)
    future.add_done_callback(lambda f: seen.append(f))
    assert seen == [7, future]
    assert not future.cancel()

    results = []
    ended = threading.Barrier(3)

    def note(*given):
        results.append(given)
        ended.wait(DEADLINE_S)

    client.async_callback("server", "wait", note, 8)
    client.async_callback("server", "nothing", note, 8)
    ended.wait(DEADLINE_S)
    assert (8, None) in results
    assert any(value is None and isinstance(e, errors.NotFoundError) for value, e in results)


def test_a_cancelled_call_ends_at_once_and_its_server_continues(pair):
    server, client = pair
    release = threading.Event()
    server.define("wait", lambda: release.wait(DEADLINE_S))
    future = client.async_("server", "wait")
    assert future.cancel()
    with pytest.raises(errors.CancelledError):
        future.result()
    release.set()
    assert client.sync("server", "wait")


def test_calls_can_be_awaited(pair):
    server, client = pair
    server.define("square", lambda x: x * x)

    async def main():
        futures = [client.async_("server", "square", i) for i in range(50)]
        assert [await future for future in futures] == [i * i for i in range(50)]
        with pytest.raises(errors.NotFoundError):
            await client.async_("server", "nothing")

    asyncio.run(main())


def test_deferred_answers_can_be_given_by_any_thread(pair):
    server, client = pair
    waiting = []
    server.define_deferred("later", lambda deferred, x: waiting.append((deferred, x)))
    futures = [client.async_("server", "later", i) for i in range(5)]
    eventually(lambda: len(waiting) == 5)
    for deferred, x in waiting:
        assert deferred.caller == "client"
        threading.Thread(target=deferred, args=(x * 10,)).start()
    assert sorted(f.result(DEADLINE_S) for f in futures) == [0, 10, 20, 30, 40]
    with pytest.raises(errors.FailedPreconditionError, match="answered"):
        waiting[0][0](1)
    failing = client.async_("server", "later", 1)
    eventually(lambda: len(waiting) == 6)
    waiting[5][0].fail("not today")
    with pytest.raises(errors.RemoteError, match="not today"):
        failing.result(DEADLINE_S)


def test_handlers_run_concurrently(pair):
    server, client = pair
    together = threading.Barrier(8)
    server.define("meet", lambda: together.wait(DEADLINE_S))
    futures = [client.async_("server", "meet") for _ in range(8)]
    assert sorted(f.result(DEADLINE_S) for f in futures) == list(range(8))


def test_many_threads_can_call_at_once(pair):
    server, client = pair
    server.define("add", lambda a, b: a + b)
    wrong = []

    def call(base):
        wrong.extend(i for i in range(200) if client.sync("server", "add", base, i) != base + i)

    threads = [threading.Thread(target=call, args=(t * 1000,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert wrong == []
    futures = [client.async_("server", "add", i, i) for i in range(5000)]
    assert [f.result(DEADLINE_S) for f in futures] == [2 * i for i in range(5000)]


def test_more_than_max_pending_calls_are_refused():
    with reverie.Rpc("server") as server, reverie.Rpc("client", max_pending_calls=10) as client:
        release = threading.Event()
        server.define("wait", lambda: release.wait(DEADLINE_S))
        client.connect(server.listen())
        futures = [client.async_("server", "wait") for _ in range(10)]
        with pytest.raises(errors.ResourceExhaustedError, match=r"10 calls.*'wait' on 'server'"):
            client.async_("server", "wait")
        release.set()
        assert all(f.result(DEADLINE_S) for f in futures)


def test_a_server_with_a_small_bound_refuses_calls_and_answers_the_others():
    with reverie.Rpc("server", max_pending_calls=1) as server, reverie.Rpc("client") as client:
        answers = []
        server.define_deferred("keep", answers.append)
        client.connect(server.listen())
        kept = client.async_("server", "keep")
        eventually(lambda: answers)
        for refused in [client.async_("server", "keep") for _ in range(200)]:
            with pytest.raises(errors.ResourceExhaustedError, match="1 calls of 'client'"):
                refused.result(DEADLINE_S)
        answers[0](7)
        assert kept.result(DEADLINE_S) == 7


def test_a_client_with_a_small_bound_may_begin_and_cancel_many_calls():
    with reverie.Rpc("server") as server, reverie.Rpc("client", max_pending_calls=2) as client:
        answers = []
        server.define_deferred("keep", answers.append)
        client.connect(server.listen())
        kept = client.async_("server", "keep")
        eventually(lambda: answers)
        for _ in range(200):
            client.async_("server", "keep").cancel()
        answers[0](7)
        assert kept.result(DEADLINE_S) == 7


def test_a_hundred_thousand_calls_may_be_pending_and_all_end():
    count = 100_000
    with (
        reverie.Rpc("server", max_pending_calls=count) as server,
        reverie.Rpc("client", max_pending_calls=count) as client,
    ):
        release = threading.Event()
        server.define("wait", lambda: release.wait(DEADLINE_S))
        client.connect(server.listen())
        futures = [client.async_("server", "wait") for _ in range(count)]
        assert client.debug_info()["pending_calls"] == count
        with pytest.raises(errors.ResourceExhaustedError, match="100000 calls"):
            client.async_("server", "wait")
        release.set()
        assert all(future.result(DEADLINE_S) for future in futures)
        assert client.debug_info()["pending_calls"] == 0


def test_after_close_calls_fail_on_both_peers(pair, ended_within):
    server, client = pair
    release = threading.Event()
    server.define("wait", lambda: release.wait(DEADLINE_S))
    theirs = client.async_("server", "wait")
    eventually(lambda: server.debug_info()["peers"])
    client.ping("server")
    begin = time.monotonic()
    server.close()
    assert ended_within(begin, 1.0)
    with pytest.raises(errors.UnavailableError, match="'server' has closed"):
        theirs.result(DEADLINE_S)
    release.set()
    server.close()
    for call in (
        lambda: server.sync("client", "f"),
        lambda: server.define("g", print),
        lambda: server.connect("127.0.0.1:1"),
        server.listen,
    ):
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            call()
    mine = client.async_("server", "wait")
    client.close()
    with pytest.raises(errors.CancelledError):
        mine.result(DEADLINE_S)


def test_a_peer_can_be_dropped_while_an_exception_is_raised():
    dropped = []

    def peer():
        made = reverie.Rpc("dropped")
        dropped.append(weakref.ref(made))
        made.listen()
        return made

    with pytest.raises(KeyError, match="missing"):
        reverie.Group(peer(), {}["missing"])
    with pytest.raises(ValueError, match="'x'"):
        [peer(), int("x")]
    gc.collect()
    assert [one() for one in dropped] == [None, None]


def test_a_dropped_peer_ends_its_threads_at_once(pair, ended_within):
    server, client = pair
    server.define("f", lambda: 1)
    assert client.sync("server", "f") == 1

    def make_and_drop():
        rpc = reverie.Rpc("brief", transports=["tcp"])
        rpc.define("g", lambda: 1)
        rpc.listen()

    def served():
        return sum(thread.name == "reverie-rpc" for thread in threading.enumerate())

    eventually(lambda: served() >= 1)
    before = served()
    begin = time.monotonic()
    make_and_drop()
    gc.collect()
    assert ended_within(begin, 1.0)
    eventually(lambda: served() <= before)


def test_a_peer_with_a_running_handler_and_pending_calls_can_be_dropped(transport, ended_within):
    started, release = threading.Event(), threading.Event()

    def handler():
        started.set()
        return release.wait(DEADLINE_S)

    name = f"unix:@reverie-test-{os.getpid()}-{time.monotonic_ns()}"
    with reverie.Rpc("other", **options_of(transport)) as other:
        address = other.listen("127.0.0.1:0" if transport in BY_TCP else name)
        other.define("wait", lambda: release.wait(DEADLINE_S))
        rpc = reverie.Rpc("dropped", **options_of(transport))
        rpc.define("handler", handler)
        rpc.connect(address)
        mine = [rpc.async_("other", "wait") for _ in range(100)]
        theirs = [other.async_("dropped", "handler") for _ in range(100)]
        assert started.wait(DEADLINE_S)
        begin = time.monotonic()
        del rpc
        gc.collect()
        assert ended_within(begin, 1.0)
        for future in mine:
            with pytest.raises(errors.CancelledError):
                future.result(DEADLINE_S)
        for future in theirs:
            with pytest.raises(errors.UnavailableError, match="'dropped' has closed"):
                future.result(DEADLINE_S)
        release.set()


def test_peers_report_their_names_functions_and_pending_calls(pair):
    server, client = pair
    server.define("f", lambda: 1)
    assert server.name == "server"
    assert client.functions() == []
    assert server.functions() == client.functions("server") == ["f"]
    assert 0 < client.ping("server") < DEADLINE_S
    assert client.peers() == ["server"]
    assert server.peers() == ["client"]
    info = client.debug_info()
    assert info["name"] == "client"
    assert info["pending_calls"] == 0
    assert [peer["name"] for peer in info["peers"]] == ["server"]
    assert len({reverie.create_uid() for _ in range(100)}) == 100
    assert str(os.getpid()) in reverie.Rpc().name


def test_debug_info_shows_the_transport_and_its_reason(pair, transport):
    server, client = pair
    server.define("f", lambda: 1)
    assert client.sync("server", "f") == 1
    names = {
        "shm": "shared memory",
        "unix": "Unix socket",
        "tcp": "TCP",
        "tls": "TCP with TLS",
        "ucx": "UCX",
    }
    name = names[transport]
    for rpc in pair:
        eventually(lambda rpc=rpc: rpc.debug_info()["peers"][0]["transport"] == name)
        reason = rpc.debug_info()["peers"][0]["transport_reason"]
        assert ("nonce" in reason) == (transport == "shm")
        assert reason


def test_a_peer_without_a_valid_certificate_is_refused_at_once():
    stranger = TLS._replace(
        certificate=CERTIFICATES / "stranger.pem", key=CERTIFICATES / "stranger_key.pem"
    )
    elsewhere = TLS._replace(server_name="elsewhere")
    with reverie.Rpc("server", transports=["tcp"], tls=TLS) as server:
        server.define("f", lambda: 1)
        address = server.listen("0.0.0.0:0")  # a public address is allowed with TLS
        address = f"127.0.0.1:{address.rpartition(':')[2]}"
        for tls, kind, said in (
            (stranger, errors.UnauthenticatedError, "certificate"),
            (elsewhere, errors.UnauthenticatedError, "elsewhere"),
            (None, errors.FailedPreconditionError, "give both tls"),
        ):
            with reverie.Rpc("client", transports=["tcp"], tls=tls) as client:
                client.connect(address)
                with pytest.raises(kind, match=said):
                    client.sync("server", "f")
        with reverie.Rpc("client", transports=["tcp"], tls=TLS) as client:
            client.connect(address)
            assert client.sync("server", "f") == 1


def test_invalid_tls_settings_are_refused(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="key"):
        reverie.Rpc(tls=TLS._replace(key=CERTIFICATES / "client_key.pem"))
    with pytest.raises(errors.InvalidArgumentError, match="valid until"):
        reverie.Rpc(tls=TLS._replace(certificate=CERTIFICATES / "expired.pem"))
    with pytest.raises(FileNotFoundError):
        reverie.Rpc(tls=TLS._replace(key=tmp_path / "none.pem"))
    with pytest.raises(errors.UnsupportedTypeError, match="PeerTls"):
        reverie.Rpc(tls=reverie.ClientTls())


def test_members_can_use_tls_with_a_broker():
    files = [f"--tls-{name}={path}" for name, path in zip(TLS._fields, TLS[:3], strict=False)]
    command = [sys.executable, "-m", "reverie", "broker", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, *files], stdout=subprocess.PIPE, text=True) as broker:
        try:
            address = broker.stdout.readline().split()[-1]
            with (
                reverie.Rpc("a", transports=["tcp"], tls=TLS) as rpc,
                reverie.Group(rpc, "g") as group,
            ):
                rpc.connect(address)
                eventually(lambda: group.members == ["a"])
                assert group.all_reduce("x", 2.0).result(timeout_s=DEADLINE_S) == 2.0
        finally:
            broker.terminate()
    assert broker.returncode == 0
    done = subprocess.run([*command, files[0]], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--tls-key and --tls-authorities must be given too" in done.stderr


def test_a_forked_child_gets_an_error_and_its_parent_continues(pair):
    server, client = pair
    server.define("f", lambda: 1)
    assert client.sync("server", "f") == 1
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            client.sync("server", "f")
        except errors.FailedPreconditionError:
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.sync("server", "f") == 1


# --- Processes.

_SERVER = """
import ctypes, os, sys, time, threading
import numpy as np
import reverie
rpc = reverie.Rpc("server")
rpc.define("pid", os.getpid)
rpc.define("double", lambda x: 2 * x)
rpc.define("wait", lambda s: time.sleep(s))
rpc.define("hold_gil", lambda s: ctypes.PyDLL(None).usleep(int(1e6 * s)))
print(rpc.listen(sys.argv[1]), flush=True)
sys.stdin.read()
"""


class Server:
    """A process with a server; it can be restarted at the same address."""

    def __init__(self, address="127.0.0.1:0"):
        environment = os.environ | {"PYTHONPATH": str(Path(reverie.__file__).parents[1])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.address = self.process.stdout.readline().strip()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.end()


@pytest.fixture
def client(server):
    with reverie.Rpc("client") as client:
        client.connect(server.address)
        assert client.sync("server", "pid") == server.process.pid
        yield client


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_calls_to_a_killed_or_frozen_peer_fail_within_seconds(server, client, how, ended_within):
    futures = [client.async_("server", "wait", 60) for _ in range(20)]
    client.ping("server")
    begin = time.monotonic()
    server.process.send_signal(how)
    for future in futures:
        with pytest.raises(errors.UnavailableError, match="'server'"):
            future.result(DEADLINE_S)
    assert ended_within(begin, 4.0)
    if how == signal.SIGSTOP:
        server.process.send_signal(signal.SIGCONT)
        # Until the thawed process has looked at its clock, a call may be one that it forgets.
        assert client.sync("server", "double", 4, idempotent=True) == 8


def test_calls_to_a_killed_peer_of_this_machine_fail_at_once(server, ended_within):
    # Its socket is closed by the system, and no process listens at its Unix socket.
    with reverie.Rpc("patient", dead_after_s=60.0) as patient:
        patient.connect(server.address)
        futures = [patient.async_("server", "wait", 60) for _ in range(20)]
        patient.ping("server")
        begin = time.monotonic()
        server.process.kill()
        for future in futures:
            with pytest.raises(errors.UnavailableError, match="'server' has ended"):
                future.result(DEADLINE_S)
        assert ended_within(begin, 2.0)


def test_a_restarted_peer_gets_no_calls_of_the_old_process(server, client):
    mine = client.async_("server", "wait", 60)
    again = client.async_("server", "pid", idempotent=True)
    assert again.result(DEADLINE_S) == server.process.pid
    client.ping("server")
    server.process.kill()
    server.process.wait()
    next_run = Server(server.address)
    try:
        with pytest.raises(errors.UnavailableError, match="may have been carried out"):
            mine.result(DEADLINE_S)
        assert client.sync("server", "pid") == next_run.process.pid
    finally:
        next_run.end()


def test_a_call_fails_as_restarted_when_another_run_of_its_peer_appears(server):
    # By TCP, and with patience: that the process has ended is only learned from the next one.
    with reverie.Rpc("client", transports=["tcp"], dead_after_s=60.0) as client:
        client.connect(server.address)
        mine = client.async_("server", "wait", 60)
        again = client.async_("server", "wait", 0.5, idempotent=True)
        client.ping("server")
        server.process.kill()
        server.process.wait()
        next_run = Server(server.address)
        try:
            with pytest.raises(errors.PeerRestartedError, match="'server' was restarted") as caught:
                mine.result(DEADLINE_S)
            assert isinstance(caught.value, errors.UnavailableError)
            again.result(DEADLINE_S)
            assert client.sync("server", "pid") == next_run.process.pid
        finally:
            next_run.end()


def test_a_peer_whose_python_is_blocked_stays_connected(server):
    with reverie.Rpc("client", dead_after_s=1.0) as client:
        client.connect(server.address)
        others = [client.async_("server", "double", i) for i in range(3)]
        assert client.sync("server", "hold_gil", 1.8) == 0
        assert [future.result(DEADLINE_S) for future in others] == [0, 2, 4]


def test_ctrl_c_ends_a_wait(client, ended_within):
    import _thread

    waits = threading.Timer(0.3, _thread.interrupt_main)
    waits.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        client.sync("server", "wait", 60)
    assert ended_within(begin, 10.0)
    waits.join()
    assert client.sync("server", "double", 2) == 4


def test_waiting_for_a_call_uses_almost_no_processor_time(client):
    client.sync("server", "double", 1)
    time_before = time.process_time()
    client.sync("server", "wait", 1)
    assert time.process_time() - time_before < 0.05


class _Forwarder:
    """A Unix socket that forwards to another one as a tunnel does: only bytes, no descriptors."""

    def __init__(self, target):
        self.name = f"unix:@reverie-forwarder-{os.getpid()}-{time.monotonic_ns()}"
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + self.name.removeprefix("unix:@"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                one = self._listener.accept()[0]
            except OSError:
                return
            other = socket.socket(socket.AF_UNIX)
            other.connect("\0" + self._target.removeprefix("unix:@"))
            for ends in ((one, other), (other, one)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        source.close()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_a_forwarded_unix_socket_does_not_count_as_the_same_host():
    with (
        reverie.Rpc("server", transports=["shm"]) as server,
        reverie.Rpc("client", transports=["shm"]) as client,
    ):
        server.define("double", lambda x: 2 * x)
        forwarder = _Forwarder(
            server.listen(f"unix:@reverie-test-{os.getpid()}-{time.monotonic_ns()}")
        )
        client.connect(forwarder.name)
        array = np.arange(1_000_000)
        assert np.array_equal(client.sync("server", "double", array), 2 * array)
        peer = client.debug_info()["peers"][0]
        assert peer["link"] == forwarder.name
        assert peer["transport"] == "Unix socket"
        # The reason is the server's answer or what the client lacked, whichever came later.
        assert any(word in peer["transport_reason"] for word in ("descriptor", "cannot map"))
        forwarder.close()
