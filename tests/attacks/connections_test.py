"""Connections that send little or nothing, and servers that run out of descriptors."""

import contextlib
import resource
import ssl
import subprocess
import time

import pytest
from attack_peer import GOAWAY, HEADERS, PREFACE, SETTINGS, Peer, call_fields, frame
from conftest import Honest, Target

# The honest client must be served within this time, while silent connections are open.
SERVED_S = 60  # far below the server's timeout for first calls, which is an hour


@contextlib.contextmanager
def poor(descriptors):
    """A server with few descriptors and a long timeout for first calls."""
    limits = {"first_call_s": 3600}
    started = Target(limits=limits, stderr=subprocess.PIPE)
    # Set from here, not in the child before exec: once JAX is imported, a fork causes a warning.
    resource.prlimit(started.process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
    with contextlib.closing(started):
        yield started
    assert "raise the limit (ulimit -n)" in started.process.stderr.read()
    started.process.stderr.close()


@pytest.mark.parametrize(
    ("descriptors", "count"), [(256, 400), pytest.param(1024, 1100, marks=pytest.mark.full)]
)
def test_silent_connections_are_closed_in_favour_of_clients_that_call(descriptors, count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count)), hard))
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
        assert target.descriptors() < descriptors - 16


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


def test_half_open_tls_handshakes_take_little_memory(target):
    """Sends a TLS handshake to a server without TLS, and then nothing."""
    hello = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    first = outgoing.read()
    with target.attacked("half-open TLS", growth_mib=10), contextlib.ExitStack() as stack:
        for _ in range(50):
            peer = stack.enter_context(target.peer(says_hello=False))
            peer.send(first[: len(first) // 2])


def test_peers_that_disconnect_at_any_byte_leave_nothing_behind(target):
    probe = Peer(target.address)
    conversation = PREFACE + frame(SETTINGS) + probe.call("ServerInfo", b"\0\0\0\0\0", ends=True)
    probe.close()
    with target.attacked("cut conversations", growth_mib=10):
        for size in range(0, len(conversation), 3):
            with target.peer(says_hello=False) as peer:
                peer.send(conversation[:size])
        target.wait_until(lambda: target.ask("figures")["connections"] <= 2, 10, "gone")
