"""Connections that say little or nothing, and descriptors that run out."""

import contextlib
import resource
import ssl
import subprocess
import sys

import pytest
from attack_peer import GOAWAY, HEADERS, PREFACE, SETTINGS, Peer, call_fields, frame
from conftest import Target

DESCRIPTORS = 256


@pytest.fixture(scope="module")
def poor():
    """A server with few descriptors, which waits long for first calls."""
    started = Target(stderr=subprocess.PIPE)
    # Not in the child before it starts: once JAX has been imported, a fork is warned of.
    resource.prlimit(started.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    with contextlib.closing(started):
        yield started
    assert "raise the limit (ulimit -n)" in started.process.stderr.read()
    started.process.stderr.close()


def test_silent_connections_make_way_for_those_that_call(poor):
    with poor.attacked("silent connections"), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(poor.peer()) for _ in range(DESCRIPTORS + 100)]
        client = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import reverie; print(reverie.Client('{poor.address}').server_info())",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "honest" in client.stdout
        peers[0].read_until(GOAWAY)
        assert peers[0].is_closed_within(10)
        assert poor.descriptors() < DESCRIPTORS - 16


@pytest.fixture(scope="module")
def impatient():
    """A server that waits for a first call, and for the next, for a second."""
    with contextlib.closing(Target(limits={"first_call_s": 1, "idle_s": 1})) as started:
        yield started


def test_a_connection_without_a_first_call_is_closed(impatient):
    with impatient.attacked("no first call"), impatient.peer() as peer:
        peer.read_until(GOAWAY)
        assert peer.is_closed_within(10)


def test_slow_headers_are_no_call(impatient):
    with impatient.attacked("slow headers"), impatient.peer() as peer:
        part = call_fields("SampleStream")
        peer.send(frame(HEADERS, 0, 1, part[:40]))
        peer.read_until(GOAWAY)
        assert peer.is_closed_within(10)


def test_an_idle_connection_is_closed(impatient):
    with impatient.attacked("idle"), impatient.peer() as peer:
        peer.send(peer.call("ServerInfo", b"\0\0\0\0\0", ends=True))
        peer.read_until(GOAWAY)
        assert peer.is_closed_within(10)


def test_what_never_says_hello_is_dropped_in_the_end(target):
    """The deadline is 20 s: here only that they harm nobody and take nothing."""
    with target.attacked("half a hello", growth_mib=10), contextlib.ExitStack() as stack:
        before = target.resident_mib()
        for at in range(100):
            peer = stack.enter_context(target.peer(says_hello=False))
            peer.send((PREFACE + frame(SETTINGS))[: at % (len(PREFACE) + 8)])
        assert target.resident_mib() < before + 10


def test_half_open_tls_takes_nothing(target):
    """Bytes of a handshake where none is expected, and nothing behind them."""
    hello = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    first = outgoing.read()
    with target.attacked("half-open TLS", growth_mib=10), contextlib.ExitStack() as stack:
        for _ in range(50):
            peer = stack.enter_context(target.peer(says_hello=False))
            peer.send(first[: len(first) // 2])


def test_peers_that_leave_at_any_byte_leave_nothing(target):
    probe = Peer(target.address)
    conversation = PREFACE + frame(SETTINGS) + probe.call("ServerInfo", b"\0\0\0\0\0", ends=True)
    probe.close()
    with target.attacked("cut conversations", growth_mib=10):
        for size in range(0, len(conversation), 3):
            with target.peer(says_hello=False) as peer:
                peer.send(conversation[:size])
        target.wait_until(lambda: target.ask("figures")["connections"] <= 2, 10, "gone")
