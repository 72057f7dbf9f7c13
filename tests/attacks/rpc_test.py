"""Attacks on the port of a peer, which is also the broker's, with an honest peer beside them."""

import contextlib
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attack_peer import resident_mib
from attack_rpc import (
    BYTES,
    CALL,
    HEADER_BYTES,
    SET,
    TUPLE,
    RpcPeer,
    frame,
    hello,
    varint,
)

import reverie
from eventually import eventually

PROGRAM = Path(__file__).with_name("rpc_target.py")
CALLS_BESIDE = 50
MIB = 1 << 20
HANDSHAKE_S = 5.0


class RpcTarget:
    """The process under attack, and an honest peer that calls it."""

    def __init__(self, descriptors=None, dead_after_s=60.0):
        # Hostile peers send no heartbeats; they must not be declared dead for that.
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, str(dead_after_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.address = self._process.stdout.readline().strip()
        assert self.address, self._process.stderr.read()
        if descriptors is not None:
            limits = (descriptors, descriptors)
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, limits)
        self._honest = reverie.Rpc("honest", transports=["tcp"])
        self._honest.connect(self.address)
        self.serves()

    def serves(self):
        """Checks that the honest peer's calls are answered correctly; returns the longest, in s."""
        longest = 0.0
        for number in range(CALLS_BESIDE):
            begin = time.perf_counter()
            assert self._honest.sync("target", "double", number, timeout_s=30.0) == 2 * number
            longest = max(longest, time.perf_counter() - begin)
        return longest

    def resident_mib(self):
        return resident_mib(self._process.pid)

    @contextlib.contextmanager
    def attacked(self, name, growth_mib=50.0):
        """Checks that memory grows by at most ``growth_mib``, falls back, and calls are served."""
        before = self.resident_mib()
        yield
        peak = self.resident_mib() - before
        longest = self.serves()
        print(f"\n{name}: honest max {longest * 1e3:.1f} ms, resident {peak:+.1f} MiB", end="")
        assert peak < growth_mib
        eventually(lambda: self.resident_mib() < before + 50.0, 15)

    def close(self):
        """Ends the process; returns what it wrote to stderr."""
        self._honest.close()
        self._process.stdin.close()
        try:
            assert self._process.wait(30) == 0
        finally:
            self._process.kill()
            self._process.wait()
        words = self._process.stderr.read()
        self._process.stdout.close()
        self._process.stderr.close()
        return words


@pytest.fixture(scope="module")
def target():
    started = RpcTarget()
    yield started
    started.close()


def test_silent_strangers_are_disconnected_in_favour_of_peers():
    count, descriptors = 400, 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count)), hard))
    target = RpcTarget(descriptors)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(RpcPeer(target.address)) for _ in range(count)]
        with reverie.Rpc("late", transports=["tcp"]) as late:
            late.connect(target.address)
            begin = time.monotonic()
            assert late.sync("target", "double", 4, timeout_s=60.0) == 8
            assert time.monotonic() - begin < HANDSHAKE_S  # before any deadline
        target.serves()
        assert strangers[0].is_hung_up_within(HANDSHAKE_S)
    assert "raise the limit (ulimit -n)" in target.close()


def test_a_connection_with_an_incomplete_hello_is_closed(target):
    words = hello("slow")
    with target.attacked("slow hellos"), contextlib.ExitStack() as stack:
        peers = []
        for size in (0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(words) - 1):
            peers.append(stack.enter_context(RpcPeer(target.address)))
            peers[-1].send(words[:size])
        silent = stack.enter_context(RpcPeer(target.address))
        silent.send(words)  # a complete hello, and nothing after it
        for peer in [*peers, silent]:
            assert peer.is_hung_up_within(2 * HANDSHAKE_S)


def test_random_bytes_do_not_harm_the_peer(target, is_full):
    rng = random.Random(7)
    words = hello("rubbish")
    with target.attacked("rubbish"):
        for _ in range(5000 if is_full else 300):
            spoilt = bytearray(words)
            for _ in range(rng.randrange(1, 8)):
                spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
            with RpcPeer(target.address) as peer:
                peer.send(bytes(spoilt) if rng.random() < 0.7 else rng.randbytes(200))


def test_random_frames_of_a_known_peer_do_not_harm_it(target, is_full):
    rng = random.Random(8)
    with target.attacked("frames"):
        for index in range(400 if is_full else 40):
            with RpcPeer(target.address, f"known-{index}") as peer:
                for sequence in range(1, 50):
                    head = rng.randbytes(rng.randrange(40))
                    kind = rng.randrange(1, 22)
                    name = rng.choice(["", "double", "reverie.broker", "reverie.ping", "x" * 900])
                    words = frame(kind, head, name=name, sequence=sequence, call=rng.randrange(3))
                    if not peer.try_send(words):
                        break


def test_announced_sizes_take_no_memory(target):
    with target.attacked("announcements", growth_mib=30.0), contextlib.ExitStack() as stack:
        for index in range(50):
            peer = stack.enter_context(RpcPeer(target.address, f"announces-{index}"))
            peer.send(frame(CALL, b"\x09", sizes=(64 << 20, 4 << 30), sequence=1, call=1))
        target.serves()


def nested(size):
    """Nested tuples, each of which claims all the remaining bytes as its elements."""
    head = b""
    for _ in range(62):
        head += bytes([TUPLE]) + varint(size - 8 * 62)
    return head + bytes(size - len(head))


def sets(size):
    """Empty sets, which are small in the message and large in memory."""
    return bytes([TUPLE]) + varint(2) + bytes([TUPLE]) + varint(size) + bytes([SET, 0]) * size


def test_malformed_nested_values_take_bounded_memory(target):
    with (
        target.attacked("nests", growth_mib=600.0),
        RpcPeer(target.address, "nests") as peer,
    ):
        for head in (nested(8 * MIB), sets(2 * MIB)):
            peer.send(peer.call("double", head))
            assert b"cannot be read" in peer.read_answer()[1]


@pytest.fixture
def impatient_target():
    started = RpcTarget(dead_after_s=5.0)
    yield started
    started.close()


@pytest.mark.full
def test_unread_answers_are_bounded(impatient_target):
    """The bound is an eighth of the memory, at least a GiB; further answers are short errors.

    They are kept until the peer that lost its connection is dead.
    """
    target = impatient_target
    memory_mib = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    bound_mib = max(1024, memory_mib // 8)
    if bound_mib > 3072:
        pytest.skip("a machine whose bound takes long to reach")
    payload = bytes([BYTES]) + varint(16 * MIB) + bytes(16 * MIB)
    with RpcPeer(target.address, "never-reads") as peer:
        before = target.resident_mib()
        for _ in range(bound_mib // 16 + 40):
            if not peer.try_send(peer.call("reverie.ping", payload)):
                break
        peak = target.resident_mib() - before
        print(f"\nunread: resident {peak:+.0f} MiB, bound {bound_mib}", end="")
        assert peak < bound_mib + 200
        target.serves()
    eventually(lambda: target.resident_mib() < before + 100, 15)


def test_a_peer_that_never_reads_is_disconnected(target):
    with (
        target.attacked("unread frames", growth_mib=300.0),
        RpcPeer(target.address, "mute") as peer,
    ):
        words = b"".join(peer.call("nothing", b"") for _ in range(1000))
        count = 0
        while peer.try_send(words) and count < 1000:
            words = b"".join(peer.call("nothing", b"") for _ in range(1000))
            count += 1
        assert count < 1000
