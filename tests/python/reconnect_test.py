"""Clients and servers that lose each other: what recovers by itself, and what raises an error."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors

QUEUE_SIZE = 3


def tables():
    return [
        reverie.Table(
            "t",
            sampler=reverie.selectors.Fifo(),
            remover=reverie.selectors.Fifo(),
            max_size=100_000,
            rate_limiter=reverie.rate_limiters.MinSize(1),
        ),
        reverie.Table.queue("q", QUEUE_SIZE),
    ]


@pytest.fixture
def server():
    with reverie.Server(tables()) as server:
        yield server


def write(client, table, numbers):
    """Inserts one item per number; all of them are confirmed on return."""
    with client.trajectory_writer(1) as writer:
        for number in numbers:
            writer.append({"n": number})
            writer.create_item(table, 1.0, {"n": writer.history["n"][-1:]})
        writer.flush()


@pytest.mark.parametrize("protocol", ["grpc", "peer"])
def test_a_flush_that_finds_no_server_says_so(protocol):
    with reverie.Server(tables()) as server:
        client = reverie.Client(f"localhost:{server.port}", protocol=protocol)
        writer = client.trajectory_writer(1)
        writer.append({"n": 0})
        for _ in range(QUEUE_SIZE + 1):
            writer.create_item("q", 1.0, {"n": writer.history["n"][-1:]})
        with pytest.raises(errors.DeadlineExceededError, match="widen its rate limiter"):
            writer.flush(timeout_s=0.05)
    with pytest.raises(errors.DeadlineExceededError, match=r"server does not answer: .*; see that"):
        writer.flush(timeout_s=0.5)
    writer.close()


def run(program, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_clients_under_load_continue_within_two_seconds_of_a_restart(ended_within):
    server = reverie.Server(tables())
    port = server.port
    clients = [reverie.Client(f"localhost:{port}") for _ in range(4)]
    is_over = threading.Event()
    confirmed = [0] * len(clients)
    failed = []

    def keep_writing(index):
        try:
            with clients[index].trajectory_writer(1) as writer:
                while not is_over.is_set():
                    for _ in range(10):
                        writer.append([np.zeros(100, np.float32)])
                        writer.create_item("t", 1.0, [writer.history[0][-1:]])
                    writer.flush()
                    confirmed[index] += 10
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=keep_writing, args=(i,)) for i in range(len(clients))]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: failed or min(confirmed) > 100)
        server.stop()
        server = reverie.Server(tables(), port=port)
        back = time.monotonic()
        before = list(confirmed)
        # More than one request of each client, since one may have been confirmed already.
        eventually(
            lambda: failed or all(c > b + 20 for c, b in zip(confirmed, before, strict=True))
        )
        assert ended_within(back, 2.0)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        server.stop()
    assert not failed


def test_a_client_killed_while_its_insert_waits_leaves_nothing_queued(server):
    child = run(
        f"""
        import reverie
        with reverie.Client("localhost:{server.port}").trajectory_writer(1) as writer:
            for number in range({QUEUE_SIZE + 2}):
                writer.append([number])
                writer.create_item("q", 1.0, [writer.history[0][-1:]])
            print("written", flush=True)
            writer.flush()
        """
    )
    inside = server.client()
    assert child.stdout.readline() == "written\n"
    eventually(lambda: inside.why_blocked("q").inserts.waiting > 0)
    child.kill()
    child.communicate()
    eventually(lambda: inside.why_blocked("q").inserts.waiting == 0)
    assert inside.server_info()["q"].current_size == QUEUE_SIZE
    # Other clients get the room that becomes free.
    inside.sample_batch("q", 1)
    write(reverie.Client(f"localhost:{server.port}"), "q", [77])
    assert inside.sample_batch("q", QUEUE_SIZE).data[-1].ravel().tolist()[-1] == 77


def test_calls_fail_after_retry_timeout_s_if_the_server_does_not_return(ended_within):
    with reverie.Server(tables()) as server:
        client = reverie.Client(f"localhost:{server.port}", retry_timeout_s=0.3)
        writer = client.trajectory_writer(1)
        writer.append([1])
        writer.create_item("t", 1.0, [writer.history[0][-1:]])
        writer.flush()
    writer.append([2])
    writer.create_item("t", 1.0, [writer.history[0][-1:]])
    with pytest.raises(errors.UnavailableError, match=r"1 queued item.*0\.3 s.*retry for longer"):
        writer.flush()
    writer.close()
    for call in (
        client.server_info,
        lambda: client.sample_batch("t", 1),
        lambda: client.insert([3], {"t": 1.0}),
        lambda: client.mutate_priorities("t", {1: 1.0}),
        lambda: client.reset("t"),
        client.checkpoint,
    ):
        begin = time.monotonic()
        with pytest.raises(errors.UnavailableError, match=r"0\.3 s"):
            call()
        assert ended_within(begin, 3.0)


def test_every_call_has_its_own_timeout(ended_within):
    with reverie.Server(tables()) as server:
        client = reverie.Client(f"localhost:{server.port}", retry_timeout_s=None)
    for call in (
        lambda: client.server_info(0.1),
        lambda: client.sample_batch("t", 1, timeout_s=0.1),
        lambda: client.insert([3], {"t": 1.0}, timeout_s=0.1),
        lambda: client.mutate_priorities("t", {1: 1.0}, timeout_s=0.1),
        lambda: client.update_priorities("t", keys=[1], priorities=[1.0], timeout_s=0.1),
        lambda: client.delete("t", [1], timeout_s=0.1),
        lambda: client.reset("t", timeout_s=0.1),
        lambda: client.checkpoint(timeout_s=0.1),
    ):
        begin = time.monotonic()
        with pytest.raises(errors.DeadlineExceededError):
            call()
        assert ended_within(begin, 5.0)


@pytest.mark.parametrize(
    "call",
    [
        'client.insert([1], {"t": 1.0})',
        'client.mutate_priorities("t", {1: 1.0})',
        'client.reset("t")',
        "client.server_info()",
        'client.sample_batch("t", 1)',
    ],
)
def test_ctrl_c_ends_a_wait_for_a_server(server, call):
    port = server.port
    server.stop()
    child = run(
        f"""
        import reverie
        client = reverie.Client("localhost:{port}")
        try:
            print("ready", flush=True)
            {call}
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert child.stdout.readline() == "ready\n"
    eventually(lambda: state_of(child.pid) == "S")  # it waits in the call
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert out == "interrupted\n", err


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_items_of_one_writer_stay_in_order():
    count = 5_000
    with reverie.Server([reverie.Table.queue("q", count)]) as server:
        write(reverie.Client(f"localhost:{server.port}"), "q", range(count))
        (numbers,) = server.client().sample_batch("q", count).data
        assert (numbers.ravel() == np.arange(count)).all()


@pytest.mark.parametrize("given", [0, -1.0, float("nan")])
def test_an_invalid_retry_timeout_is_refused(given):
    with pytest.raises(errors.InvalidArgumentError, match="retry_timeout_s"):
        reverie.Client("localhost:1", retry_timeout_s=given)


def test_a_pickled_client_keeps_its_retry_timeout():
    client = reverie.Client("localhost:1", retry_timeout_s=0.2)
    again = pickle.loads(pickle.dumps(client))
    with pytest.raises(errors.UnavailableError, match=r"0\.2 s"):
        again.server_info()
