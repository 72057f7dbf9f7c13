"""The threads that serve a peer: no call is lost when one cannot start or gets an exception."""

import gc
import threading
import weakref

import pytest

import reverie
from eventually import eventually
from reverie import errors

DEADLINE_S = 30.0


@pytest.fixture
def pair():
    with reverie.Rpc("server") as server, reverie.Rpc("client") as client:
        client.connect(server.listen())
        yield server, client


class Limit:
    """How many more threads may be started."""

    def __init__(self, monkeypatch):
        self.left = 1 << 30
        start = threading.Thread.start

        def start_if_allowed(thread):
            if thread.name == "reverie-rpc":
                if self.left == 0:
                    raise RuntimeError("can't start new thread")
                self.left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_allowed)


@pytest.fixture
def threads(monkeypatch):
    return Limit(monkeypatch)


def test_a_peer_without_threads_raises_and_serves_once_it_can_start_one(pair, threads):
    server, client = pair
    threads.left = 0
    with pytest.raises(errors.ResourceExhaustedError, match="can't start new thread"):
        server.define("first", lambda: 1)
    threads.left = 1
    server.define("second", lambda: 2)
    assert client.sync("server", "second", timeout_s=DEADLINE_S) == 2
    assert client.sync("server", "first", timeout_s=DEADLINE_S) == 1


@pytest.mark.parametrize("how", ["define", "define_deferred", "batch_size"])
def test_calls_wait_if_no_further_thread_can_start(pair, threads, caplog, how):
    server, client = pair
    go_on = threading.Event()

    def wait(*answer):
        go_on.wait(DEADLINE_S)
        for one in answer[:1]:
            one(1)
        return 1

    def served(x):
        go_on.wait(DEADLINE_S)
        return x

    if how == "define":
        server.define("wait", lambda *_: wait())
    elif how == "define_deferred":
        server.define_deferred("wait", lambda answer, *_: wait(answer))
    else:
        server.define("wait", served, batch_size=1)
    threads.left = 0
    futures = [client.async_("server", "wait", 1) for _ in range(20)]
    eventually(lambda: "can't start new thread" in caplog.text)
    go_on.set()
    assert [future.result(DEADLINE_S) for future in futures] == [1] * 20
    threads.left = 10
    server.set_max_threads(8)
    assert client.sync("server", "wait", 1, timeout_s=DEADLINE_S) == 1


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_errors_of_functions_and_callbacks_do_not_end_threads(pair, caplog, error):
    server, client = pair
    server.define("one", lambda: 1)
    begun = threading.Semaphore(0)
    raised = []

    def end():
        raised.append(1)
        raise error("the callback's own")

    def end_late(answer):
        answer.when_withdrawn(end)
        begun.release()

    server.define("end", end)
    server.define("end together", end, batch_size=2)
    server.define_deferred("never", end_late)
    server.define_stream("ends", end)
    for function in ("end", "end together"):
        with pytest.raises(errors.RemoteError, match="the callback's own"):
            client.sync("server", function, timeout_s=DEADLINE_S)
    with pytest.raises(errors.RemoteError, match="the callback's own"):
        client.stream("server", "ends", timeout_s=DEADLINE_S)
    raised.clear()
    for _ in range(40):  # more calls than threads are allowed
        client.async_callback("server", "one", lambda *_: end())
        never = client.async_("server", "never")
        assert begun.acquire(timeout=DEADLINE_S)
        never.cancel()
    eventually(lambda: len(raised) == 80)
    eventually(lambda: caplog.text.count("a callback of a call raised") == 80)
    assert client.sync("server", "one", timeout_s=DEADLINE_S) == 1
    done = threading.Event()
    client.async_callback("server", "one", lambda *_: done.set())
    assert done.wait(DEADLINE_S)


class MuteError(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize("how", ["define_deferred", "define_stream"])
def test_an_error_without_a_text_reaches_the_caller_and_ends_no_thread(pair, how):
    server, client = pair

    def end(*_):
        raise MuteError

    def values():
        yield end()

    def call():
        if how == "define_deferred":
            return client.sync("server", "end", timeout_s=DEADLINE_S)
        return next(client.stream("server", "end", timeout_s=DEADLINE_S))

    server.define("one", lambda: 1)
    if how == "define_deferred":
        server.define_deferred("end", end)
    else:
        server.define_stream("end", values)
    for _ in range(40):  # more calls than threads are allowed
        with pytest.raises(errors.RemoteError, match="without a text"):
            call()
    assert client.sync("server", "one", timeout_s=DEADLINE_S) == 1


def test_an_answer_that_cannot_be_read_fails_its_call(pair):
    server, client = pair
    released = memoryview(b"bytes")
    released.release()
    server.define_deferred("released", lambda answer: answer(released))
    with pytest.raises(errors.RemoteError, match="released memoryview"):
        client.sync("server", "released", timeout_s=DEADLINE_S)


def test_a_stream_that_cannot_request_more_values_loses_none():
    with (
        reverie.Rpc("server") as server,
        reverie.Rpc("client", max_pending_calls=4) as client,
    ):
        client.connect(server.listen())
        server.define_stream("count", lambda: iter(range(6)))
        server.define_deferred("never", lambda _answer: None)
        with client.stream("server", "count", window=2) as stream:
            # Both values have arrived, and further calls use up the room for asking for more.
            eventually(lambda: client.debug_info()["pending_calls"] == 1)
            taken = [client.async_("server", "never") for _ in range(3)]
            found = [next(stream), next(stream)]
            with pytest.raises(errors.ResourceExhaustedError):
                next(stream)
            for one in taken:
                one.cancel()
            found += list(stream)
    assert found == list(range(6))


def test_an_idle_thread_keeps_no_reference_to_the_last_callback():
    class Callback:
        def __call__(self, _value, _error):
            called.set()

    called = threading.Event()
    with reverie.Rpc(find_timeout_s=0.01) as rpc:
        callback = Callback()
        rpc.async_callback("absent", "f", callback)
        assert called.wait(60.0)
        held = weakref.ref(callback)
        del callback

        def is_gone():
            gc.collect()
            return held() is None

        eventually(is_gone)
