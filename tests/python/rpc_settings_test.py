"""Settings that are changed on an existing peer, and what it logs."""

import logging
import threading
from pathlib import Path

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


def test_transports_can_only_be_set_before_a_peer_listens_or_connects():
    with reverie.Rpc("server") as server, reverie.Rpc("client") as client:
        server.define("f", lambda: 1)
        for rpc in (server, client):
            rpc.set_transports(["unix"])
            rpc.set_transports(["tcp"])
        with pytest.raises(errors.InvalidArgumentError, match="transports"):
            client.set_transports(["ipc"])
        with pytest.raises(errors.InvalidArgumentError, match="transports is empty"):
            client.set_transports([])
        with pytest.raises(errors.InvalidArgumentError, match="does not use such connections"):
            server.listen("unix:@never")
        client.connect(server.listen())
        assert client.sync("server", "f") == 1
        assert [peer["transport"] for peer in client.debug_info()["peers"]] == ["TCP"]
        assert not any(address.startswith("unix") for address in server.addresses)
        for rpc in (server, client):
            with pytest.raises(errors.FailedPreconditionError, match="before"):
                rpc.set_transports(["shm", "unix", "tcp"])
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        client.set_transports(["tcp"])


def test_ucx_needs_a_library_that_was_built_with_it():
    refusal = None
    with reverie.Rpc() as rpc:
        try:
            rpc.set_transports(["shm", "ucx"])
        except errors.UnimplementedError as error:
            refusal = str(error)
    if refusal is None:
        pytest.skip("this library was built with it")
    assert "-DREVERIE_UCX=ON" in refusal
    with pytest.raises(errors.UnimplementedError, match="libucx-dev"):
        reverie.Rpc(transports=["ucx"])


def test_ucx_and_tls_exclude_each_other():
    folder = Path(__file__).parent.parent / "data" / "tls"
    tls = reverie.PeerTls(
        folder / "server.pem", folder / "server_key.pem", folder / "authority.pem"
    )
    with pytest.raises(errors.InvalidArgumentError, match="UCX does not encrypt"):
        reverie.Rpc(transports=["ucx"], tls=tls)
    with (
        reverie.Rpc(tls=tls) as rpc,
        pytest.raises(errors.InvalidArgumentError, match="UCX does not encrypt"),
    ):
        rpc.set_transports(["ucx"])


def running(server, client, count):
    """How many of ``count`` handlers run at once."""
    release = threading.Event()
    lock = threading.Lock()
    inside = []

    def wait():
        with lock:
            inside.append(1)
        release.wait(DEADLINE_S)

    server.define("wait", wait)
    futures = [client.async_("server", "wait") for _ in range(count)]
    for _ in range(20):
        client.ping("server")
    seen = []
    eventually(lambda: seen.append(len(inside)) or seen[-30:] == [seen[-1]] * 30)
    release.set()
    for future in futures:
        future.result(DEADLINE_S)
    server.undefine("wait")
    return seen[-1]


def test_the_maximum_number_of_threads_can_be_lowered_and_raised(pair):
    server, client = pair
    assert running(server, client, 12) == 12
    server.set_max_threads(2)
    eventually(lambda: server.debug_info()["threads"] <= 2)
    assert running(server, client, 12) == 2
    server.set_max_threads(1)
    eventually(lambda: server.debug_info()["threads"] <= 1)
    assert running(server, client, 4) == 1
    server.set_max_threads(6)
    assert running(server, client, 12) == 6
    for wrong in (0, -1, 1025):
        with pytest.raises(errors.InvalidArgumentError, match="max_threads"):
            server.set_max_threads(wrong)
    server.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        server.set_max_threads(3)


def test_connections_are_logged_at_the_configured_level(caplog):
    logger = logging.getLogger("reverie")
    level = logger.level

    def texts():
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    def has(name, *words):
        return any(kind == name and all(w in text for w in words) for kind, text in texts())

    try:
        reverie.set_log_level("debug")
        with reverie.Rpc("client", transports=["tcp"]) as client:
            client.connect("127.0.0.1:1")
            eventually(lambda: has("DEBUG", "'client' cannot connect to 127.0.0.1:1", "refused"))
            with reverie.Rpc("server", transports=["tcp"]) as server:
                client.connect(server.listen())
                client.ping("server")
                eventually(lambda: has("INFO", "'client' is connected to 'server'"))
                eventually(lambda: has("INFO", "'server' listens at 127.0.0.1:"))
            eventually(lambda: has("INFO", "'client' lost a connection to 'server'"))
        reverie.set_log_level("error")
        caplog.clear()
        with reverie.Rpc("server") as server, reverie.Rpc("client") as client:
            client.connect(server.listen())
            client.ping("server")
        assert not caplog.records
        with pytest.raises(errors.InvalidArgumentError, match="level is 'loud'"):
            reverie.set_log_level("loud")
    finally:
        reverie.set_log_level("warning")
        logger.setLevel(level)


def test_peers_answer_while_many_lines_are_logged():
    with reverie.Rpc("server") as server, reverie.Rpc("client") as client:
        reverie.set_log_level("info")
        try:
            address = server.listen()
            for _ in range(50):  # more lines than are written at a time
                with reverie.Rpc() as other:
                    other.connect(address)
                    other.ping("server")
            client.connect(address)
            assert client.ping("server") < DEADLINE_S
        finally:
            reverie.set_log_level("warning")
