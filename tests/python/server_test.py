"""A server, and clients that reach it through a socket."""

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors, reverb

QUEUE_SIZE = 3


def fifo(name="t", **options):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        **options,
    )


@pytest.fixture
def server():
    with reverie.Server([fifo(), reverie.Table.queue("q", QUEUE_SIZE)]) as server:
        yield server


@pytest.fixture
def client(server):
    return server.localhost_client()


def steps(client, count, **options):
    """Inserts items of two steps each over ``count`` steps."""
    with client.trajectory_writer(2, **options) as writer:
        for i in range(count):
            writer.append({"x": np.full(3, i, np.float32), "n": i, "word": f"step {i}"})
            if i > 0:
                writer.create_item(
                    "t", float(i), {name: column[-2:] for name, column in writer.history.items()}
                )
        writer.flush()


@pytest.mark.parametrize("codec", [None, "raw", "lz4", "zstd"])
@pytest.mark.parametrize("chunk_length", [None, 1, 7])
def test_images_are_returned_unchanged_with_every_codec(codec, chunk_length):
    rng = np.random.default_rng(3)
    frames = np.zeros((40, 24, 24), np.uint8)
    frames[:, ::4] = rng.integers(0, 255, frames[:, ::4].shape)
    noise = rng.normal(size=(40, 100)).astype(np.float32)
    with reverie.Server([reverie.Table.queue(name, 50) for name in "ab"]) as server:
        client = server.localhost_client()
        with client.trajectory_writer(4, codec=codec, chunk_length=chunk_length) as writer:
            for i in range(40):
                writer.append({"frame": frames[i], "noise": noise[i], "n": i})
                if i < 3:
                    continue
                columns = {name: column[-4:] for name, column in writer.history.items()}
                for table in "ab":
                    writer.create_item(table, float(i), columns)
                if i < 6:
                    writer.flush()  # after the server's answer chunks are sent as they are stored
        for table, reader in (("a", client), ("b", server.client())):
            pictures, numbers, floats = reader.sample_batch(table, 37).data
            for first in range(37):
                rows = slice(first, first + 4)
                assert numbers[first].tolist() == list(range(first, first + 4))
                assert np.array_equal(pictures[first], frames[rows])
                assert np.array_equal(floats[first], noise[rows])


@pytest.mark.parametrize("chunk_length", [1, 3, 100])
def test_a_reader_gets_the_data_that_a_writer_sent(server, client, chunk_length):
    steps(client, 10, chunk_length=chunk_length)
    for reader in (client, server.client()):
        batch = reader.sample_batch("t", 2)
        n, words, x = batch.data
        assert n[0].tolist() == [0, 1]
        assert x[0].tolist() == [[0.0] * 3, [1.0] * 3]
        assert words[0].tolist() == [b"step 0", b"step 1"]
    assert client.server_info()["t"].current_size == 9


def test_overlapping_items_share_their_rows(server, client):
    pixels = np.random.default_rng(1).integers(0, 255, (40, 5000), np.uint8)
    with client.trajectory_writer(10, chunk_length=40) as writer:
        for i, row in enumerate(pixels):
            writer.append({"pixels": row})
            if i >= 9:
                writer.create_item("t", 1.0, {"pixels": writer.history["pixels"][-10:]})
        writer.flush()
    assert server.client().server_info()["t"].current_size == 31
    batch = client.sample_batch("t", 4)
    assert (batch.data[0][0] == pixels[:10]).all()


def test_items_are_returned_as_nests_if_the_table_has_a_signature():
    signature = {
        "obs": {"a": reverie.TensorSpec((None,), np.int64)},
        "b": [reverie.TensorSpec((None, 2), np.float32)],
    }
    with reverie.Server([fifo(signature=signature)]) as server:
        client = server.localhost_client()
        assert client.server_info()["t"].signature == signature
        client.insert({"obs": {"a": 3}, "b": [np.ones(2, np.float32)]}, {"t": 1.0})
        batch = client.sample_batch("t", 2)
        assert batch.data["obs"]["a"].tolist() == [[3], [3]]
        (step,) = next(client.sample("t", 1, unpack_as_table_signature=True))
        assert step.data["b"][0].tolist() == [1.0, 1.0]
        writer = client.trajectory_writer(1)
        writer.append({"obs": 1})
        with pytest.raises(errors.InvalidArgumentError, match="signature"):
            writer.create_item("t", 1.0, {"obs": writer.history["obs"][-1:]})


def test_priorities_are_updated_and_items_deleted(client):
    steps(client, 4)
    batch = client.sample_batch("t", 1)
    assert client.update_priorities("t", batch.tickets, [9.0]) == 1
    assert client.sample_batch("t", 1).priorities.tolist() == [9.0]
    assert client.delete("t", batch.keys) == 1
    assert client.server_info()["t"].current_size == 2
    client.reset("t")
    assert client.server_info()["t"].current_size == 0


def test_a_writer_waits_for_its_table_and_a_reader_for_items(client):
    def write():
        with client.trajectory_writer(1) as writer:
            for i in range(20):
                writer.append({"i": i})
                writer.create_item("q", 1.0, {"i": writer.history["i"][-1:]})
            writer.flush()

    thread = threading.Thread(target=write)
    thread.start()
    seen = [client.sample_batch("q", 4, timeout_s=30).data[0][:, 0].tolist() for _ in range(5)]
    thread.join(timeout=300)
    assert [i for part in seen for i in part] == list(range(20))


def test_a_full_table_does_not_block_another(client):
    for i in range(QUEUE_SIZE):
        client.insert(i, {"q": 1.0})
    with client.trajectory_writer(1) as writer:
        writer.append(7)
        writer.create_item("q", 1.0, writer.history[-1:])
        writer.create_item("t", 1.0, writer.history[-1:])
        writer.flush(1)
        assert client.sample_batch("t", 1, timeout_s=10).data[0].tolist() == [[7]]
        assert writer.pending_items == 1
        client.sample_batch("q", 1)
        writer.flush(timeout_s=10)


def test_calls_that_time_out_raise_and_are_cancelled(client):
    with pytest.raises(errors.DeadlineExceededError, match="0 of 2 samples"):
        client.sample_batch("t", 2, timeout_s=0.1)
    for i in range(QUEUE_SIZE):
        client.insert(i, {"q": 1.0})
    with pytest.raises(errors.DeadlineExceededError):
        client.insert(9, {"q": 1.0}, timeout_s=0.1)
    with pytest.raises(errors.DeadlineExceededError) as caught:
        client.sample_batch("q", 5, timeout_s=0.2)
    assert caught.value.batch.data[0].tolist() == [[0], [1], [2]]
    # The abandoned insert was cancelled.
    assert client.server_info()["q"].current_size == 0


def test_calls_that_the_protocol_does_not_support_are_refused(client):
    for call in (
        lambda: client.sample_batch("t", 1, distinct=True),
        lambda: client.priorities("t", [1]),
        lambda: client.why_blocked("t"),
        lambda: client.can_sample("t"),
        client.checkpoint,
    ):
        with pytest.raises(errors.UnimplementedError):
            call()


def test_unknown_tables_are_not_found(client):
    with pytest.raises(errors.NotFoundError, match="none"):
        client.sample_batch("none", 1)
    with pytest.raises(errors.NotFoundError, match="none"):
        client.insert(1, {"none": 1.0})
    with pytest.raises(errors.NotFoundError, match="none"):
        client.reset("none")
    with pytest.raises(errors.NotFoundError, match="none"):
        client.update_priorities("none", [1], [1.0])


def test_a_client_can_be_pickled_and_used_from_another_process(server, client):
    steps(client, 3)
    again = pickle.loads(pickle.dumps(client))
    assert again.server_address == client.server_address
    assert again.sample_batch("t", 1).data[0].tolist() == [[0, 1]]
    program = textwrap.dedent(
        f"""
        import reverie
        client = reverie.Client("localhost:{server.port}")
        client.insert({{"n": 5, "word": "five", "x": [1.0, 2.0, 3.0]}}, {{"t": 4.0}})
        print(client.server_info()["t"].current_size)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "3"


def test_the_waiting_call_of_a_killed_client_is_cancelled(server, client):
    program = textwrap.dedent(
        f"""
        import reverie
        client = reverie.Client("localhost:{server.port}")
        print("ready", flush=True)
        client.sample_batch("q", 2)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    inside = server.client()
    eventually(lambda: inside.why_blocked("q").samples.waiting > 0)
    child.kill()
    child.wait()
    child.stdout.close()
    eventually(lambda: inside.why_blocked("q").samples.waiting == 0)
    client.insert(1, {"q": 1.0})
    assert client.server_info()["q"].current_size == 1


def test_ctrl_c_ends_a_wait_for_samples(server):
    program = textwrap.dedent(
        f"""
        import reverie
        client = reverie.Client("localhost:{server.port}")
        print("ready", flush=True)
        try:
            client.sample_batch("q", 2)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    eventually(lambda: server.client().why_blocked("q").samples.waiting > 0)
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    child.wait(timeout=300)
    child.stdout.close()


def test_stopping_a_server_ends_waiting_calls(server, client):
    caught = []

    def wait_for(call):
        try:
            call()
        except errors.ReverieError as error:
            caught.append(type(error))

    threads = [
        threading.Thread(target=wait_for, args=(lambda: client.sample_batch("q", 1),)),
        threading.Thread(target=server.wait),
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: server.client().why_blocked("q").samples.waiting > 0)
    server.stop()
    server.stop()
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive()
    assert caught == [errors.CancelledError]


def test_a_writer_continues_after_a_restart_of_the_server():
    with reverie.Server([fifo()]) as first:
        port = first.port
        client = first.localhost_client()
        writer = client.trajectory_writer(2)
        writer.append(1)
        writer.create_item("t", 1.0, writer.history[-1:])
        writer.flush()
    writer.append(2)
    writer.create_item("t", 1.0, writer.history[-2:])
    with reverie.Server([fifo()], port=port) as second:
        writer.flush(timeout_s=60)
        writer.close()
        assert second.client().sample_batch("t", 1).data[0].tolist() == [[1, 2]]


def test_a_client_can_be_created_before_its_server():
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port = taken.getsockname()[1]
    client = reverie.Client(f"localhost:{port}")
    with pytest.raises(errors.DeadlineExceededError, match="no server answered"):
        client.server_info(timeout=0.1)
    with reverie.Server([fifo()], port=port):
        assert client.server_info(timeout=30)["t"].current_size == 0


def test_invalid_arguments_of_a_server_are_refused(server):
    with pytest.raises(errors.AlreadyExistsError, match=str(server.port)):
        reverie.Server([fifo()], port=server.port)
    with pytest.raises(errors.InvalidArgumentError, match="65536"):
        reverie.Server([fifo()], port=65536)
    with pytest.raises(errors.InvalidArgumentError, match="at least one table"):
        reverie.Server([])
    with pytest.raises(errors.InvalidArgumentError, match="unique"):
        reverie.Server([fifo(), fifo()])
    with pytest.raises(errors.ReverieError, match="insecure"):
        reverie.Server([fifo()], host="0.0.0.0")
    with pytest.raises(errors.UnsupportedTypeError, match="checkpointer"):
        reverie.Server([fifo()], checkpointer="here")
    with pytest.raises(errors.FailedPreconditionError):
        reverie.Store(server.tables)
    with pytest.raises(errors.UnsupportedTypeError, match="address"):
        pickle.dumps(server)
    with pytest.raises(errors.InvalidArgumentError):
        reverie.Client("no port")


@pytest.mark.parametrize("module", [reverie, reverb])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0"])
def test_the_local_client_finds_a_server_at_any_host(module, host):
    with module.Server([fifo()], host=host, insecure=host == "0.0.0.0") as server:
        client = server.localhost_client()
        assert isinstance(client, module.Client)
        assert list(client.server_info(timeout=10)) == ["t"]


def test_invalid_limits_are_refused():
    for limits, says in [
        ({"connections": 0}, "limit connections is 0; it must be at least 1"),
        ({"message_bytes": 2**32}, "at most 4294967295"),
        ({"calls": 2**31}, "at most 2147483647"),
        ({"bytes_in_flight": -1}, "limit bytes_in_flight is -1"),
    ]:
        with pytest.raises(errors.InvalidArgumentError, match=says):
            reverie.Server([fifo()], limits=reverie.ServerLimits(**limits))
    for value in (True, 1.5, "many"):
        with pytest.raises(errors.UnsupportedTypeError, match="must be an integer"):
            reverie.Server([fifo()], limits=reverie.ServerLimits(connections=value))


@pytest.mark.parametrize("limit", ["message_bytes", "stream_bytes"])
def test_a_message_beyond_a_limit_fails_only_its_call(limit):
    with reverie.Server([fifo()], limits=reverie.ServerLimits(**{limit: 10_000})) as server:
        client = server.localhost_client()
        client.insert(b"small", {"t": 1.0})
        with pytest.raises(errors.ResourceExhaustedError, match="10000"):
            client.insert(os.urandom(20_000), {"t": 1.0}, timeout_s=30)
        assert client.server_info()["t"].current_size == 1


@pytest.mark.parametrize("protocol", ["grpc", "peer"])
def test_an_insert_beyond_the_bound_of_a_message_names_the_limit_to_raise(protocol):
    limits = reverie.ServerLimits(message_bytes=1 << 20)
    with reverie.Server([fifo()], limits=limits) as server:
        client = reverie.Client(server.address, protocol=protocol)
        with pytest.raises(errors.ResourceExhaustedError) as refused:
            client.insert(np.frombuffer(os.urandom(2 << 20), np.uint8), {"t": 1.0}, timeout_s=30)
        assert "raise message_bytes of the server's limits" in str(refused.value)
        assert "message_bytes" in reverie.ServerLimits._fields


def test_clients_without_the_token_are_refused():
    with reverie.Server([fifo()], token="secret") as server:
        assert server.localhost_client().server_info()["t"].current_size == 0
        for token in ("", "wrong"):
            with pytest.raises(errors.UnauthenticatedError):
                reverie.Client(f"localhost:{server.port}", token=token).server_info()


def test_a_server_also_listens_at_a_unix_socket(tmp_path):
    path = tmp_path / "door.sock"
    with reverie.Server([fifo()], unix_path=str(path)) as server:
        assert path.stat().st_mode & 0o777 == 0o600, "for this user alone"
        client = reverie.Client(f"unix:{path}")
        steps(client, 3)
        assert client.sample_batch("t", 1).data[0].tolist() == [[0, 1]]
        over_tcp = server.localhost_client()
        assert over_tcp.server_info()["t"].current_size == 2
        with pytest.raises(errors.AlreadyExistsError):
            reverie.Server([fifo()], unix_path=str(path))
    assert not path.exists()
    with pytest.raises(errors.InvalidArgumentError):
        reverie.Server([fifo()], unix_path="x" * 200)


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_a_dataset_reads_a_queue_in_order_and_ends_after_its_timeout(prefetch):
    with reverie.Server([reverie.Table.queue("q", 1000)]) as server:
        with server.client().trajectory_writer(1) as writer:
            for i in range(50):
                writer.append({"n": i})
                writer.create_item("q", 1.0, {"n": writer.history["n"][-1:]})
        client = server.localhost_client()
        with client.dataset("q", 8, timeout_s=0.3, prefetch=prefetch) as batches:
            seen = [batch.data[0].ravel().tolist() for batch in batches]
        assert seen == [list(range(i, min(i + 8, 50))) for i in range(0, 50, 8)]
        assert server.figures["unsent_samples"] == 0


def test_a_dataset_draws_at_most_prefetch_batches_ahead():
    with reverie.Server([reverie.Table.queue("q", 1000)]) as server:
        with server.client().trajectory_writer(1) as writer:
            for i in range(100):
                writer.append({"n": i})
                writer.create_item("q", 1.0, {"n": writer.history["n"][-1:]})
        client = server.localhost_client()
        with client.dataset("q", 5, prefetch=3) as batches:
            for i in range(10):
                next(batches)
                assert 100 - server.client().server_info()["q"].current_size <= 5 * (i + 1 + 3)


def test_tables_and_figures_can_be_read_in_the_servers_process(server, client):
    steps(client, 3)
    table = server.tables[0]
    assert table.info.current_size == 2
    assert table.can_sample(1)
    client.sample_batch("t", 2)
    figures = server.figures
    assert [figures[name] for name in ("inserts", "samples", "unsent_samples")] == [2, 2, 0]
    assert repr(server.port) in repr(server)


@pytest.mark.filterwarnings("ignore:os.fork")  # jax warns once it was imported
def test_calls_in_a_forked_child_raise_an_error_with_advice(client):
    client.server_info()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            client.server_info(timeout=5)
        except errors.FailedPreconditionError as error:
            # A worker of a DataLoader is such a child: the error says how to give it a client.
            code = 0 if "DataLoader" in str(error) and "spawn" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def certificates(folder):
    """A self-signed certificate for this machine, and its key, made by openssl."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    files = ["-keyout", key, "-out", certificate]
    subprocess.run(
        [*command.split(), "subjectAltName=DNS:localhost", *files], check=True, capture_output=True
    )
    return certificate, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_server_with_tls_and_a_token_refuses_other_clients(tmp_path):
    certificate, key = certificates(tmp_path)
    tls = reverie.ServerTls(certificate, key)
    with reverie.Server([fifo()], tls=tls, token="secret") as server:
        address = f"localhost:{server.port}"
        client = reverie.Client(address, token="secret", tls=reverie.ClientTls(certificate))
        steps(client, 3)
        assert client.sample_batch("t", 1).data[0].tolist() == [[0, 1]]
        plain = reverie.Client(address, token="secret")
        with pytest.raises(errors.ReverieError):
            plain.sample_batch("t", 1, timeout_s=1)
        stranger = reverie.Client(address, tls=reverie.ClientTls(certificate))
        with pytest.raises(errors.UnauthenticatedError):
            stranger.server_info(timeout=10)
    with pytest.raises(errors.InvalidArgumentError):
        reverie.Server([fifo()], tls=reverie.ServerTls(key, certificate))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_certificate_files_may_hold_other_text_in_any_encoding(tmp_path):
    certificate, key = certificates(tmp_path)
    names = "# Főtanúsítvány\n".encode() + "# Autorité\n".encode("latin-1")
    certificate.write_bytes(names + certificate.read_bytes())
    tls = reverie.ServerTls(certificate, key)
    with reverie.Server([fifo()], tls=tls, token="secret") as server:
        client = reverie.Client(
            f"localhost:{server.port}", token="secret", tls=reverie.ClientTls(certificate)
        )
        assert "t" in client.server_info(timeout=10)


def test_items_of_an_open_step_can_be_sent(server, client):
    for door in (client, server.client()):
        with door.trajectory_writer(2, chunk_length=8) as writer:
            for step in range(3):
                writer.append({"a": np.int64(step)}, partial_step=True)
                writer.create_item("t", 1.0, {"x": writer.history["a"][-1:]})
                writer.append({"b": np.int64(10 * step)})
                writer.create_item("t", 1.0, {"x": writer.history["b"][-1:]})
        seen = []
        while client.server_info()["t"].current_size:
            sample = next(client.sample("t", emit_timesteps=False))
            seen.append(int(sample.data[0][0]))
            client.delete("t", [sample.info.key])
        assert seen == [0, 0, 1, 10, 2, 20]
