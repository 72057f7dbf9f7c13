"""Streams: calls with many results, where the caller grants room and either side may end them."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors, rpc_served_streams, rpc_streams

DEADLINE_S = 30.0


@pytest.fixture(params=["shm", "tcp"])
def pair(request):
    with reverie.Rpc("server", transports=[request.param]) as server:
        name = f"unix:@reverie-test-{os.getpid()}-{time.monotonic_ns()}"
        address = server.listen("127.0.0.1:0" if request.param == "tcp" else name)
        with reverie.Rpc("client", transports=[request.param]) as client:
            client.connect(address)
            yield server, client


def test_values_arrive_in_order_followed_by_the_result(pair):
    server, client = pair

    def count(until, scale=1):
        for i in range(until):
            yield np.full(10, i * scale)
        return "done"

    server.define_stream("count", count)
    stream = client.stream("server", "count", 500, scale=3, window=7)
    for i, value in enumerate(stream):
        assert (value == 3 * i).all()
    assert i == 499
    assert stream.result == "done"
    assert list(stream) == []
    server.define_stream("list", lambda: [1, 2, 3])
    with client.stream("server", "list") as stream:
        assert list(stream) == [1, 2, 3]


def test_no_more_values_are_produced_than_the_window_allows(pair):
    server, client = pair
    made = []

    def endless():
        i = 0
        while True:
            made.append(i)
            yield i
            i += 1

    server.define_stream("endless", endless)
    with client.stream("server", "endless", window=5) as stream:
        eventually(lambda: len(made) == 5)
        client.ping("server")  # after its answer no more values are in transit
        assert len(made) == 5
        assert [next(stream) for _ in range(20)] == list(range(20))
        eventually(lambda: len(made) == 25)


def test_only_one_thread_at_a_time_can_read_a_stream(pair):
    """Each value arrives once, in any thread; a second thread is refused meanwhile."""
    server, client = pair
    server.define_stream("count", lambda: range(200))
    got, refused = [], []

    with client.stream("server", "count", window=2) as stream:

        def read_one():
            try:
                got.append(next(stream))
            except errors.FailedPreconditionError as error:
                refused.append(str(error))

        def read():
            with contextlib.suppress(StopIteration):
                while True:
                    read_one()

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
    assert sorted(got) == list(range(200))
    assert all("in use by another call" in text for text in refused)


def test_a_stream_can_be_closed_while_another_thread_reads_it(pair):
    server, client = pair
    may_go_on = threading.Event()

    def waits():
        may_go_on.wait(DEADLINE_S)
        yield 1

    server.define_stream("waits", waits)
    for _ in range(10):
        stream = client.stream("server", "waits")
        ended = []

        def read(stream=stream, ended=ended):
            try:
                ended.append(next(stream))
            except (errors.CancelledError, StopIteration) as error:
                ended.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        stream.close()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        assert not isinstance(ended[0], int)
    may_go_on.set()


def test_closing_a_stream_closes_its_generator(pair):
    server, client = pair
    is_closed = threading.Event()

    def endless():
        try:
            while True:
                yield 1
        finally:
            is_closed.set()

    server.define_stream("endless", endless)
    stream = client.stream("server", "endless")
    assert next(stream) == 1
    stream.close()
    stream.close()
    assert is_closed.wait(DEADLINE_S)
    assert list(stream) == []
    eventually(lambda: not server._streams._served)
    eventually(lambda: client.debug_info()["pending_calls"] == 0)


def test_a_stream_whose_caller_gave_up_is_closed(pair):
    server, client = pair
    begun, go_on, is_closed = (threading.Event() for _ in range(3))

    class Values:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def close(self):
            is_closed.set()

    def slow():
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return Values()

    server.define_stream("slow", slow)
    call = client.async_("server", "slow")  # the first call of a stream
    assert begun.wait(DEADLINE_S)
    call.cancel()
    client.ping("server")  # after its answer the server knows
    go_on.set()
    assert is_closed.wait(DEADLINE_S)
    eventually(lambda: not server._streams._served)


def test_an_error_is_raised_after_the_values_before_it(pair):
    server, client = pair

    def breaks():
        yield 1
        yield 2
        raise KeyError("three")

    server.define_stream("breaks", breaks)
    stream = client.stream("server", "breaks")
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(errors.RemoteError, match=r"'breaks' on 'server' raised KeyError: 'three'"):
        next(stream)
    assert list(stream) == []
    server.define_stream("unsendable", lambda: iter([1, object()]))
    stream = client.stream("server", "unsendable")
    assert next(stream) == 1
    with pytest.raises(errors.RemoteError, match="encoding"):
        next(stream)


def test_values_are_sent_both_ways_and_a_full_inbox_blocks_the_caller(pair):
    server, client = pair
    gate = threading.Event()
    taken = []

    def sums(inbox, scale):
        gate.wait(DEADLINE_S)
        total = 0
        for value in inbox:
            taken.append(value)
            total += value
            yield scale * total
        return len(taken)

    server.define_stream("sums", sums, takes_values=True)
    with client.stream("server", "sums", 10, window=4, timeout_s=2.0) as stream:
        for value in range(4):
            stream.send(value)
        with pytest.raises(errors.DeadlineExceededError, match="4 sent values"):
            stream.send(4)
        gate.set()
        assert next(stream) == 0
        for value in range(4, 30):
            stream.send(value)
            next(stream)
        stream.finish()
        rest = list(stream)
        assert stream.result == 30
        assert rest[-1] == 10 * sum(range(30))
    assert taken == list(range(30))
    with pytest.raises(errors.FailedPreconditionError, match="has ended"):
        stream.send(1)


def test_what_is_sent_to_a_function_that_takes_no_values_is_refused(pair):
    server, client = pair
    server.define_stream("rows", itertools.count)
    refused = r"'rows' on 'server' .* takes no values"
    with client.stream("server", "rows") as stream:
        stream.send(1)
        with pytest.raises(errors.RemoteError, match=refused):
            eventually(lambda: stream.send(1))
        assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with client.stream("server", "rows") as stream:
        stream.send(1)
        with pytest.raises(errors.RemoteError, match=refused):
            stream.finish()
    with client.stream("server", "rows") as stream:
        stream.finish()
        assert next(stream) == 0


def test_what_is_sent_after_the_end_of_the_inbox_is_refused(pair):
    server, client = pair

    def taken(inbox):
        yield list(inbox)

    server.define_stream("taken", taken, takes_values=True)
    with client.stream("server", "taken") as stream:
        stream.send(1)
        stream.finish()
        with pytest.raises(errors.FailedPreconditionError, match="was finished"):
            stream.send(2)
        stream.finish()
        assert list(stream) == [[1]]


def test_streams_that_wait_for_values_leave_a_thread_for_other_calls(pair):
    """Each occupies a thread, of which there may be one."""
    server, client = pair
    closed = []

    def sums(inbox):
        total = 0
        try:
            for value in inbox:
                total += value
                yield total
            return "done"
        finally:
            closed.append(total)

    server.set_max_threads(1)
    server.define("twice", lambda x: 2 * x)
    server.define_stream("sums", sums, takes_values=True)
    streams = [client.stream("server", "sums", timeout_s=DEADLINE_S) for _ in range(5)]
    assert client.sync("server", "twice", 4, timeout_s=DEADLINE_S) == 8
    for n in range(1, 20):
        for stream in streams:
            stream.send(n)
            assert next(stream) == n * (n + 1) // 2
    assert client.sync("server", "twice", 5, timeout_s=DEADLINE_S) == 10
    streams[0].finish()
    assert list(streams[0]) == []
    assert streams[0].result == "done"
    streams[1].close()
    eventually(lambda: len(closed) == 2)
    client.close()
    eventually(lambda: closed == [190] * 5)
    assert server._pool._waiting == 0
    eventually(lambda: server._pool._count <= 1)


def test_streams_that_take_values_have_a_bound_of_their_own(pair, monkeypatch):
    server, client = pair
    monkeypatch.setattr(rpc_served_streams, "TAKING_STREAMS_MAX", 2)

    def same(inbox):
        yield "ready"  # nothing waits for a value yet
        yield from inbox

    def broken(_inbox):
        raise ValueError("no such thing")

    server.define_stream("same", same, takes_values=True)
    server.define_stream("broken", broken, takes_values=True)
    server.define_stream("plain", lambda: range(3))
    for _ in range(3):
        with pytest.raises(errors.RemoteError, match="no such thing"):
            client.stream("server", "broken", timeout_s=DEADLINE_S)
    streams = [client.stream("server", "same", timeout_s=DEADLINE_S, window=1) for _ in range(2)]
    with pytest.raises(errors.RemoteError, match="2 streams that take values are open"):
        client.stream("server", "same", timeout_s=DEADLINE_S)
    assert list(client.stream("server", "plain")) == [0, 1, 2]
    streams[0].close()
    eventually(lambda: len(server._streams._taking) == 1)
    client.stream("server", "same", timeout_s=DEADLINE_S).close()


def test_ctrl_c_while_an_rpc_closes_its_streams_is_raised(pair):
    server, client = pair
    closed = []

    def endless(name):
        try:
            while True:
                yield name
        finally:
            closed.append(name)
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt

    server.define_stream("endless", endless)
    streams = [client.stream("server", "endless", name, window=1) for name in "ab"]
    assert [next(stream) for stream in streams] == ["a", "b"]
    with pytest.raises(KeyboardInterrupt):
        server._streams.close()
    assert sorted(closed) == ["a", "b"]
    server.close()


def test_closing_an_rpc_ends_its_streams_and_their_threads(pair):
    server, client = pair
    closed = []

    def takes(inbox):
        try:
            yield from inbox
        finally:
            closed.append("takes")

    def endless():
        try:
            while True:
                yield 1
        finally:
            closed.append("endless")

    server.define_stream("takes", takes, takes_values=True)
    server.define_stream("endless", endless)
    with client.stream("server", "takes"), client.stream("server", "endless") as stream:
        assert next(stream) == 1
        eventually(lambda: server._pool._waiting == 1)
        server.close()
        eventually(lambda: sorted(closed) == ["endless", "takes"])
        eventually(lambda: server._pool._count == 0)


def test_a_stream_that_is_not_watched_in_time_is_closed_once_others_begin(pair):
    """Its caller was lost between the stream's number and the call that watches it."""
    server, client = pair
    closed = []

    def endless(name):
        try:
            while True:
                yield name
        finally:
            closed.append(name)

    server.define_stream("endless", endless)
    number = client.sync("server", "endless", "lost")
    with client.stream("server", "endless", "watched") as watched:
        assert next(watched) == "watched"
        assert len(server._streams._served) == 2
        eventually(lambda: list(server._streams._unwatched) == [number])
        server._streams._unwatched[number] = 0.0
        second = client.stream("server", "endless", "second")
        # Its caller may be served late: the message that watches the stream may be in the queue.
        assert len(server._streams._served) == 3
        server._streams._unwatched[number] = 0.0
        next_one = client.stream("server", "endless", "next")
        second.close()
        eventually(lambda: len(server._streams._served) == 2)
        assert next(watched) == "watched"
        next_one.close()
        # Its caller, if it is only late, does not take it for a stream without values.
        with pytest.raises(errors.RemoteError, match="begin it again"):
            client.sync("server", "reverie.streams", number, "next", 0)


@pytest.mark.parametrize("next_one", ["same", "broken"])
def test_a_lost_stream_is_closed_though_the_next_one_is_refused(pair, monkeypatch, next_one):
    server, client = pair
    monkeypatch.setattr(rpc_served_streams, "TAKING_STREAMS_MAX", 1)
    closed = threading.Event()

    def same(inbox):
        try:
            yield "ready"
            yield from inbox
        finally:
            closed.set()

    def broken():
        raise ValueError("no such thing")

    server.define_stream("same", same, takes_values=True)
    server.define_stream("broken", broken)
    lost = client.sync("server", "same")  # as a caller that is lost before it watches the stream
    assert client.sync("server", "reverie.streams", lost, "next", 0) == (0, "ready")
    for _ in range(2):  # it is marked, and then closed
        server._streams._unwatched[lost] = 0.0
        assert not closed.is_set()
        with (
            contextlib.suppress(errors.RemoteError),
            client.stream("server", next_one, timeout_s=DEADLINE_S),
        ):
            eventually(lambda: not server._streams._unwatched)
    assert closed.wait(DEADLINE_S)
    eventually(lambda: not server._streams._served)
    with client.stream("server", "same", timeout_s=DEADLINE_S) as stream:
        assert next(stream) == "ready"


def test_streams_that_are_closed_at_once_are_closed_at_their_server(pair):
    server, client = pair
    server.define_stream("endless", lambda: iter(int, 1))
    for _ in range(50):  # the server may see the calls withdrawn before it has served them
        client.stream("server", "endless", timeout_s=DEADLINE_S).close()
    eventually(lambda: not server._streams._served)


def test_a_stream_that_cannot_be_watched_is_closed(pair, monkeypatch):
    server, client = pair
    server.define_stream("endless", lambda: iter(int, 1))
    call = rpc_streams.Stream._call_server

    def without_watch(self, *what, **options):
        if what[0] == "watch":
            raise errors.ResourceExhaustedError("too many calls are under way")
        return call(self, *what, **options)

    monkeypatch.setattr(rpc_streams.Stream, "_call_server", without_watch)
    with pytest.raises(errors.ResourceExhaustedError):
        client.stream("server", "endless")
    eventually(lambda: not server._streams._served)


def test_wrong_uses_of_streams_are_refused(pair):
    server, client = pair
    server.define("plain", lambda: "text")
    with pytest.raises(errors.FailedPreconditionError, match="define_stream"):
        client.stream("server", "plain")
    with pytest.raises(errors.NotFoundError, match="nothing"):
        client.stream("server", "nothing")
    with pytest.raises(errors.InvalidArgumentError, match="window"):
        client.stream("server", "plain", window=0)
    with pytest.raises(errors.UnsupportedTypeError, match="function"):
        server.define_stream("bad", 3)
    with pytest.raises(errors.UnsupportedTypeError, match=r"Rpc\.stream"):
        reverie.rpc_streams.Stream()
    server.define_stream("numbers", lambda: range(3))
    with pytest.raises(errors.AlreadyExistsError, match="numbers"):
        server.define_stream("numbers", lambda: range(3))
    # A peer cannot access numbers without a stream.
    with pytest.raises(errors.RemoteError, match="999 is no stream's number"):
        client.sync("server", "reverie.streams", 999, "next", 0)


def test_a_function_that_returns_an_integer_is_not_taken_for_a_stream(pair):
    server, client = pair
    server.define("count", lambda: 1)
    server.define_stream("numbers", lambda: range(3))
    with client.stream("server", "numbers") as numbers:
        with pytest.raises(errors.RemoteError, match="served by define_stream"):
            next(client.stream("server", "count"))
        assert list(numbers) == [0, 1, 2]


def test_a_function_that_returns_an_integer_is_not_called_missing_on_a_peer_without_streams(pair):
    server, client = pair
    server.define("add", lambda a, b: a + b)
    stream = client.stream("server", "add", 1, 2)
    with pytest.raises(errors.NotFoundError, match=r"'server' serves no streams: 'add' gives one"):
        next(stream)


def test_the_name_that_streams_use_is_refused_and_stays_defined(pair):
    server, client = pair
    name = "reverie.streams"
    defines = [
        lambda: server.define(name, len),
        lambda: server.define(name, len, batch_size=2),
        lambda: server.define_deferred(name, len),
        lambda: server.define_queue(name),
        lambda: server.define_stream(name, range),
    ]
    for define in defines:
        with pytest.raises(errors.InvalidArgumentError, match=r"reverie\.streams.*another name"):
            define()
    assert name not in server.debug_info()["functions"]
    server.define_stream("numbers", lambda: range(3))
    assert server.undefine(name) is False
    with client.stream("server", "numbers") as stream:
        assert list(stream) == [0, 1, 2]


def test_an_iterator_that_raises_at_its_end_too_still_fails_its_caller(pair):
    server, client = pair

    class Broken:
        def __iter__(self):
            return self

        def __next__(self):
            raise ValueError("no value")

        def close(self):
            raise OSError("no end either")

    server.define_stream("broken", Broken)
    with (
        client.stream("server", "broken", timeout_s=DEADLINE_S) as stream,
        pytest.raises(errors.RemoteError, match="ValueError: no value"),
    ):
        next(stream)
    eventually(lambda: not server._streams._served)


_CALLER = """
import sys, reverie
rpc = reverie.Rpc("caller")
rpc.connect(sys.argv[1])
stream = rpc.stream("server", "endless", window=3)
print(next(stream), flush=True)
sys.stdin.read()
"""


def test_the_death_of_a_caller_ends_its_streams():
    is_closed = threading.Event()

    def endless():
        try:
            while True:
                yield 1
        finally:
            is_closed.set()

    with reverie.Rpc("server") as server:
        server.define_stream("endless", endless)
        caller = subprocess.Popen(
            [sys.executable, "-c", _CALLER, server.listen()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(reverie.__file__).parents[1])},
        )
        assert caller.stdout.readline().strip() == "1"
        assert not is_closed.is_set()
        caller.send_signal(signal.SIGKILL)
        caller.wait()
        assert is_closed.wait(DEADLINE_S)
        eventually(lambda: not server._streams._served)
        caller.stdin.close()
        caller.stdout.close()
