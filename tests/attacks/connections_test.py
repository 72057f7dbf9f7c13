"""Connections that send little or nothing, and servers that run out of descriptors."""

import contextlib
import os
import resource
import ssl
import tempfile
import time

import pytest
from attack_peer import GOAWAY, HEADERS, PREFACE, SETTINGS, Peer, call_fields, frame
from conftest import Honest, Target

import reverie

# The honest client must be served within this time, while silent connections are open.
SERVED_S = 60  # far below the server's timeout for first calls, which is an hour


@contextlib.contextmanager
def poor(descriptors):
    """A server with few descriptors and a long timeout for first calls."""
    if "ASAN_OPTIONS" in os.environ:
        # It opens a pipe to look at an object, and reports an invalid one if that fails.
        pytest.skip("the sanitizer's check of virtual calls needs descriptors")
    limits = {"first_call_s": 3600}
    with tempfile.TemporaryFile("w+") as said:
        started = Target(limits=limits, stderr=said)
        # From here, not in the child before exec: once JAX is imported, a fork causes a warning.
        resource.prlimit(started.process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
        try:
            with contextlib.closing(started):
                yield started
        finally:
            said.seek(0)
            text = said.read()
            print(f"\nthe server ended with {started.process.returncode} and said:\n{text}")
        assert "raise the limit (ulimit -n)" in text


@pytest.mark.parametrize(
    ("descriptors", "count"), [(256, 400), pytest.param(1024, 1100, marks=pytest.mark.full)]
)
def test_silent_connections_are_closed_in_favour_of_clients_that_call(descriptors, count):
    allow_descriptors(count)
    with (
        poor(descriptors) as target,
        target.attacked("silent connections"),
        contextlib.ExitStack() as stack,
    ):
        peers = [stack.enter_context(target.peer()) for _ in range(count)]
        begin = time.monotonic()
        with contextlib.closing(Honest(target.address)) as client:
            assert client.report(1)["calls"] >= 1
        assert time.monotonic() - begin < SERVED_S
        peers[0].read_until(GOAWAY)
        assert peers[0].is_closed_within(10)
        target.wait_until(lambda: target.descriptors() < descriptors - 16, 10, "room for others")


def allow_descriptors(count):
    """Lets this process have ``count`` connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count)), hard))


def test_connections_that_never_say_hello_make_way_before_an_idle_client():
    """The server knows no protocol of theirs, so none of its protocols can close them."""
    count = 400
    allow_descriptors(count)
    with (
        poor(256) as target,
        target.attacked("no hello"),
        target.peer() as idle,
        contextlib.ExitStack() as stack,
    ):
        idle.send(idle.call("ServerInfo", b"\0\0\0\0\0", ends=True))
        idle.read_until(HEADERS, stream=1)
        peers = [stack.enter_context(target.peer(says_hello=False)) for _ in range(count)]
        with contextlib.closing(Honest(target.address)) as client:
            assert client.report(1)["calls"] >= 1
        assert peers[0].is_closed_within(10)
        idle.round_trip()  # fails if the server has closed it
        target.wait_until(lambda: target.descriptors() < 256 - 16, 10, "room for others")


def test_idle_clients_through_shared_memory_make_way_for_new_clients():
    """Their connections are closed with a notice, and restored by their next call."""
    count = 100
    allow_descriptors(8 * count)
    with poor(160) as target, target.attacked("idle peers"), contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(reverie.Client(target.address, protocol="peer"))
            for _ in range(count)
        ]
        for client in clients:
            assert "replay" in client.server_info()
        with contextlib.closing(Honest(target.address)) as client:
            assert client.report(1)["calls"] >= 1
        assert target.descriptors() < 160 - 16
        assert target.ask("figures")["peer_connections"] < count
        for client in clients[:5]:
            assert "replay" in client.server_info()


def test_local_connections_without_requests_are_closed():
    limits = {"first_call_s": 1, "idle_s": 1}
    with (
        contextlib.closing(Target(limits=limits)) as target,
        target.attacked("no requests"),
        reverie.Client(target.address, protocol="peer") as client,
    ):
        before = target.ask("figures")["peer_connections"]
        assert "replay" in client.server_info()
        target.wait_until(
            lambda: target.ask("figures")["peer_connections"] == before, 10, "it is closed"
        )
        assert len(client.sample_batch("replay", 1, timeout_s=30.0)) == 1


def test_connections_without_calls_are_closed():
    """Connections without a first call, with headers that never end, or without a further call."""
    with (
        contextlib.closing(Target(limits={"first_call_s": 1, "idle_s": 1})) as target,
        target.attacked("no calls"),
        target.peer() as silent,
        target.peer() as slow,
        target.peer() as idle,
    ):
        slow.send(frame(HEADERS, 0, 1, call_fields("SampleStream")[:40]))
        idle.send(idle.call("ServerInfo", b"\0\0\0\0\0", ends=True))
        for peer in (silent, slow, idle):
            peer.read_until(GOAWAY)
            assert peer.is_closed_within(10)


def test_incomplete_greetings_take_little_memory(target):
    """The deadline is 20 s; this test only checks that they harm no other client."""
    with target.attacked("half a hello", growth_mib=10), contextlib.ExitStack() as stack:
        before = target.resident_mib()
        for at in range(100):
            peer = stack.enter_context(target.peer(says_hello=False))
            peer.send((PREFACE + frame(SETTINGS))[: at % (len(PREFACE) + 8)])
        assert target.resident_mib() < before + 10


def client_hello():
    """The first bytes of a TLS client."""
    hello = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_half_open_tls_handshakes_to_a_server_without_tls_take_little_memory(target):
    first = client_hello()
    with target.attacked("half-open TLS", growth_mib=10), contextlib.ExitStack() as stack:
        for _ in range(50):
            peer = stack.enter_context(target.peer(says_hello=False))
            peer.send(first[: len(first) // 2])


def test_half_open_tls_handshakes_harm_no_client_of_a_server_with_tls():
    """Half of a hello, a hello whose answer is never read, and a hello that ends in rubbish."""
    first = client_hello()
    with (
        contextlib.closing(Target(is_encrypted=True)) as target,
        target.attacked("half-open handshakes", growth_mib=30),
        contextlib.ExitStack() as stack,
    ):
        broken = []
        for at in range(90):
            peer = stack.enter_context(target.peer(says_hello=False))
            peer.send([first[: len(first) // 2], first, first + b"rubbish" * 9][at % 3])
            broken += [peer] if at % 3 == 2 else []
        with contextlib.closing(Honest(target.address, target.authorities)) as client:
            assert client.report(1)["calls"] >= 1
        assert broken[0].is_closed_within(10)


def test_peers_that_disconnect_at_any_byte_leave_nothing_behind(target):
    probe = Peer(target.address)
    conversation = PREFACE + frame(SETTINGS) + probe.call("ServerInfo", b"\0\0\0\0\0", ends=True)
    probe.close()
    with target.attacked("cut conversations", growth_mib=10):
        for size in range(0, len(conversation), 3):
            with target.peer(says_hello=False) as peer:
                peer.send(conversation[:size])
        target.wait_until(lambda: target.ask("figures")["connections"] <= 2, 10, "gone")
