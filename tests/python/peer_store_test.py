"""The store through shared memory, ``protocol="peer"``, also when a process dies."""

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
DEADLINE_S = 30.0

SERVER = """
    import sys
    import reverie

    tables = [
        reverie.Table(
            "t",
            reverie.selectors.Fifo(),
            reverie.selectors.Fifo(),
            100_000,
            reverie.rate_limiters.MinSize(1),
        ),
        reverie.Table.queue("q", 3),
    ]
    server = reverie.Server(tables, port=int(sys.argv[1]))
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()
"""


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


def client_of(server, **options):
    return reverie.Client(f"localhost:{server.port}", protocol="peer", **options)


@pytest.fixture
def client(server):
    return client_of(server)


def write(client, table, numbers):
    """Inserts one item per number; all of them are confirmed on return."""
    with client.trajectory_writer(1) as writer:
        for number in numbers:
            writer.append({"n": number, "x": np.full(100, number, np.float32)})
            history = writer.history
            writer.create_item(table, 1.0, {name: history[name][-1:] for name in history})
        writer.flush()


def run(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process):
    process.kill()
    process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def far():
    """A server in its own process, and its port."""
    process = run(SERVER, 0)
    yield process, int(process.stdout.readline())
    if process.poll() is None:
        end(process)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def shared_mappings(pid="self"):
    """The number of mapped segments of shared memory."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:reverie")


def test_the_peer_protocol_uses_shared_memory(server, client):
    write(client, "t", range(20))
    batch = client.sample_batch("t", 20)
    assert batch.data[0].reshape(-1).tolist() == [0] * 20
    assert server.figures["peer_connections"] == 1
    assert shared_mappings() > 0


def test_all_calls_of_a_client_work(client):
    write(client, "t", range(10))
    client.insert({"n": 10, "x": np.zeros(100, np.float32)}, {"t": None})
    assert client.server_info()["t"].current_size == 11
    batch = client.sample_batch("t", 4)
    assert client.update_priorities("t", batch.tickets, [5.0] * 4) == 4
    assert client.sample_batch("t", 1).priorities.tolist() == [5.0]
    priorities, tickets = client._native.lookup("t", batch.keys)
    assert priorities.tolist() == [5.0] * 4
    assert client.update_priorities("t", tickets, [6.0] * 4) == 4
    client.mutate_priorities("t", updates={int(batch.keys[0]): 7.0})
    assert client.delete("t", batch.keys[:1]) == 1
    assert client.server_info()["t"].current_size == 10
    report = client.why_blocked("q")
    assert "q" in str(report)
    with pytest.raises(errors.FailedPreconditionError, match="checkpoint"):
        client.checkpoint()
    with client.dataset("t", batch_size=2, timeout_s=2.0) as batches:
        assert len(next(iter(batches)).keys) == 2
    assert len(list(client.sample("t", 3))) == 3
    client.reset("t")
    assert client.server_info()["t"].current_size == 0


def test_errors_match_those_of_an_embedded_store(client):
    with pytest.raises(errors.NotFoundError, match="nowhere"):
        client.sample_batch("nowhere", 1)
    with pytest.raises(errors.NotFoundError, match="nowhere"):
        client.insert({"n": 1}, {"nowhere": 1.0})
    with pytest.raises(errors.InvalidArgumentError):
        client.update_priorities("t", [1], [float("nan")])
    began = time.monotonic()
    with pytest.raises(errors.DeadlineExceededError):
        client.sample_batch("t", 1, timeout_s=0.2)
    assert time.monotonic() - began < 5.0


def test_clients_of_all_protocols_see_the_same_items(server, client):
    write(server.client(), "t", [1])
    write(client, "t", [2])
    write(reverie.Client(f"localhost:{server.port}", protocol="grpc"), "t", [3])
    for reader in (client, server.client(), reverie.Client(f"localhost:{server.port}")):
        batch = reader.sample_batch("t", 1)
        data = batch.data["n"] if isinstance(batch.data, dict) else batch.data[0]
        assert data.reshape(-1).tolist() == [1]


def test_a_full_queue_blocks_only_its_own_writer(client):
    row = {"n": 0}
    for _ in range(QUEUE_SIZE):
        client.insert(row, {"q": 1.0})
    with pytest.raises(errors.DeadlineExceededError):
        client.insert(row, {"q": 1.0}, timeout_s=0.2)
    client.insert(row, {"t": 1.0}, timeout_s=DEADLINE_S)
    assert len(client.sample_batch("q", QUEUE_SIZE).keys) == QUEUE_SIZE
    client.insert(row, {"q": 1.0}, timeout_s=DEADLINE_S)


def test_a_client_without_the_right_token_is_refused():
    with reverie.Server(tables(), token="secret") as server:
        address = f"localhost:{server.port}"
        write(reverie.Client(address, token="secret", protocol="peer"), "t", [1])
        for token in ("", "another"):
            with pytest.raises(errors.UnauthenticatedError, match="token"):
                reverie.Client(address, token=token, protocol="peer").server_info()


def test_an_unknown_protocol_or_the_peer_protocol_with_shards_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="protocol"):
        reverie.Client("localhost:1", protocol="carrier pigeon")
    with pytest.raises(errors.InvalidArgumentError, match="one server"):
        reverie.Client(["localhost:1", "localhost:2"], protocol="peer")


def test_an_insert_beyond_the_bounds_of_a_message_fails_at_once():
    limits = reverie.ServerLimits(message_bytes=1 << 20)
    with reverie.Server(tables(), limits=limits) as server:
        client = client_of(server)
        with pytest.raises(errors.ResourceExhaustedError, match="message_bytes"):
            client.insert({"x": np.zeros(2 << 20, np.uint8)}, {"t": 1.0})
        with pytest.raises(errors.ResourceExhaustedError, match="grpc"):
            client.insert({"x": b"x" * (65 << 20)}, {"t": 1.0})
        client.insert({"x": b"x" * (2 << 20)}, {"t": 1.0})
        assert client.server_info()["t"].current_size == 1


def test_a_call_without_a_server_fails_after_retry_timeout_s():
    client = reverie.Client("localhost:1", protocol="peer", retry_timeout_s=0.3)
    with pytest.raises(errors.UnavailableError, match=r"0\.3"):
        client.server_info()


def test_calls_fail_when_the_server_is_killed_and_later_ones_reach_the_next(far):
    process, port = far
    client = reverie.Client(f"localhost:{port}", protocol="peer", retry_timeout_s=20.0)
    write(client, "t", range(10))
    failures = []

    def wait_for_more():
        try:
            client.sample_batch("q", 1, timeout_s=20.0)
        except errors.ReverieError as error:
            failures.append(error)

    waiting = threading.Thread(target=wait_for_more)
    waiting.start()
    eventually(lambda: client.why_blocked("q").samples.waiting == 1)
    began = time.monotonic()
    end(process)
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()
    assert time.monotonic() - began < 5.0
    assert isinstance(failures[0], errors.UnavailableError)
    successor = run(SERVER, port)
    try:
        assert int(successor.stdout.readline()) == port
        write(client, "t", range(5))
        assert client.server_info()["t"].current_size == 5
    finally:
        end(successor)


def test_items_in_flight_reach_the_next_server_once(far):
    process, port = far
    client = reverie.Client(f"localhost:{port}", protocol="peer")
    with client.trajectory_writer(1) as writer:
        for i in range(50):
            writer.append([i])
            writer.create_item("t", 1.0, [writer.history[0][-1:]])
        writer.flush()
        end(process)
        for i in range(50, 100):
            writer.append([i])
            writer.create_item("t", 1.0, [writer.history[0][-1:]])
        with run(SERVER, port) as successor:
            successor.stdout.readline()
            writer.flush(timeout_s=DEADLINE_S)
            batch = client.sample_batch("t", 1)
            size = client.server_info()["t"].current_size
            end(successor)
    assert size == 50
    assert batch.data[0].reshape(-1).tolist() == [50]


def test_calls_to_a_frozen_server_end_at_their_deadline(far):
    process, port = far
    client = reverie.Client(f"localhost:{port}", protocol="peer")
    write(client, "t", range(3))
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    try:
        began = time.monotonic()
        with pytest.raises(errors.DeadlineExceededError):
            client.sample_batch("t", 1, timeout_s=0.3)
        with pytest.raises(errors.DeadlineExceededError):
            client.server_info(0.3)
        with pytest.raises(errors.DeadlineExceededError):
            client.insert([1], {"t": 1.0}, timeout_s=0.3)
        assert time.monotonic() - began < 10.0
    finally:
        process.send_signal(signal.SIGCONT)
    assert client.server_info(DEADLINE_S)["t"].current_size >= 3


WRITER = """
    import os, signal, sys
    import numpy as np
    import reverie

    client = reverie.Client(f"localhost:{sys.argv[1]}", protocol="peer")
    writer = client.trajectory_writer(1)
    row = np.zeros(20_000, np.float32)
    for i in range(int(sys.argv[2])):
        writer.append([row])
        writer.create_item("t", 1.0, [writer.history[0][-1:]])
    batch = client.sample_batch("t", 4)
    print("ready", flush=True)
    for _ in range(1_000_000):
        writer.append([row])
        writer.create_item("t", 1.0, [writer.history[0][-1:]])
        client.sample_batch("t", 4)
"""


def test_killed_clients_leave_nothing_behind(server):
    survivor = client_of(server)
    write(survivor, "t", range(3))
    survivor.sample_batch("t", 1)

    def held():
        return (descriptors(), shared_mappings(), len(os.listdir("/dev/shm")))

    def kill_a_client():
        process = run(WRITER, server.port, 10)
        assert process.stdout.readline() == "ready\n"
        samples = server.figures["samples"]
        eventually(lambda: server.figures["samples"] > samples + 20)
        end(process)
        eventually(lambda: server.figures["peer_connections"] == 1)

    kill_a_client()  # so that everything that is made once exists
    before = held()
    for _ in range(3):
        kill_a_client()
    # Other tests that run now have files in /dev/shm too, and the first client's may still close.
    eventually(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    assert server.figures["peer_leased_bytes"] == 0
    report = server.client().why_blocked("t")
    assert report.inserts.waiting == 0
    assert report.samples.waiting == 0
    survivor.sample_batch("t", 1)


def write_large(client, numbers):
    """Inserts rows of 28 kB, whose chunks are in memory that clients can map."""
    with client.trajectory_writer(1, codec="raw") as writer:
        for number in numbers:
            rows = np.random.default_rng(number).integers(0, 255, 28_000, np.uint8)
            writer.append({"n": number, "x": rows})
            history = writer.history
            writer.create_item("t", 1.0, {name: history[name][-1:] for name in history})
        writer.flush()


def expect_large(batch):
    numbers, columns = batch.data[0].ravel(), batch.data[1].reshape(-1, 28_000)
    for number, rows in zip(numbers, columns, strict=True):
        expected = np.random.default_rng(int(number)).integers(0, 255, 28_000, np.uint8)
        np.testing.assert_array_equal(rows, expected)


def test_large_rows_are_read_from_the_servers_memory(far):
    _, port = far
    client = reverie.Client(f"localhost:{port}", protocol="peer")
    write_large(client, range(40))
    before = shared_mappings()
    for _ in range(20):
        expect_large(client.sample_batch("t", 8, timeout_s=DEADLINE_S))
    assert shared_mappings() == before + 1
    # Removing items and writing new ones meanwhile changes no batch.
    stop = threading.Event()

    def turn_over():
        own = reverie.Client(f"localhost:{port}", protocol="peer")
        while not stop.is_set():
            own.reset("t")
            write_large(own, range(40, 60))

    turning = threading.Thread(target=turn_over)
    turning.start()
    try:
        for _ in range(50):
            expect_large(client.sample_batch("t", 8, timeout_s=DEADLINE_S))
    finally:
        stop.set()
        turning.join()


READER = """
    import sys
    import reverie

    client = reverie.Client(f"localhost:{sys.argv[1]}", protocol="peer")
    client.sample_batch("t", 8)
    print("ready", flush=True)
    while True:
        client.sample_batch("t", 8)
"""


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_frozen_reader_keeps_no_memory(server, stop):
    survivor = client_of(server)
    write_large(survivor, range(40))
    process = run(READER, server.port)
    try:
        assert process.stdout.readline() == "ready\n"
        eventually(lambda: server.figures["peer_leased_bytes"] > 0)
        process.send_signal(stop)
        for _ in range(3):
            survivor.reset("t")
            write_large(survivor, range(40))
            expect_large(survivor.sample_batch("t", 8, timeout_s=DEADLINE_S))
    finally:
        end(process)
    eventually(lambda: server.figures["peer_leased_bytes"] == 0)
    eventually(lambda: server.figures["peer_connections"] == 1)


def test_a_program_ends_while_threads_read_large_samples(server):
    write_large(client_of(server), range(40))
    process = run(
        """
        import sys, threading
        import reverie

        client = reverie.Client(f"localhost:{sys.argv[1]}", protocol="peer")
        ready = threading.Barrier(3)

        def sample():
            client.sample_batch("t", 8)
            ready.wait()
            while True:
                client.sample_batch("t", 8)

        for _ in range(2):
            threading.Thread(target=sample, daemon=True).start()
        ready.wait()
        sys.exit(3)
        """,
        server.port,
    )
    _, errors_text = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3, errors_text
    eventually(lambda: server.figures["peer_leased_bytes"] == 0)


def test_a_forked_child_gets_a_typed_error(client):
    write(client, "t", [1])
    child = os.fork()
    if child == 0:
        try:
            client.sample_batch("t", 1)
        except errors.FailedPreconditionError:
            os._exit(0)
        except BaseException:
            os._exit(2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert client.sample_batch("t", 1).data[0].reshape(-1).tolist() == [1]


def test_several_threads_can_share_a_client(server, client):
    write(client, "t", range(50))
    errors_of_threads = []

    def sample():
        try:
            for _ in range(200):
                batch = client.sample_batch("t", 16)
                assert len(batch.keys) == 16
                client.update_priorities("t", batch.tickets, np.ones(16))
        except Exception as error:
            errors_of_threads.append(error)

    def insert():
        try:
            write(client, "t", range(500))
        except Exception as error:
            errors_of_threads.append(error)

    threads = [threading.Thread(target=call) for call in (sample, sample, insert, insert)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert errors_of_threads == []
    assert server.client().server_info()["t"].current_size == 1050


def test_a_client_can_be_pickled(client):
    write(client, "t", [4])
    twin = pickle.loads(pickle.dumps(client))
    assert twin.sample_batch("t", 1).data[0].reshape(-1).tolist() == [4]
