"""The memory that a peer can make the server hold: it is bounded, and freed after the peer left.

The bound is one megabyte per connection plus twice the bytes that the peer sent.
"""

import contextlib
import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from attack_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    SERVICE,
    call_fields,
    chunk,
    entry,
    field,
    frame,
    grpc_message,
    insert_request,
    item,
    repeats,
    sample_request,
    tensor,
)

CONNECTION_MIB = 64
SLACK_MIB = 40  # buffers in transit, and what the C heap keeps
UNFOLDED_MIB = 128  # the limit for the decoded columns of one chunk


def bound_mib(before, *peers):
    """The bound on resident memory after ``peers`` have sent; 4 MiB for pages that heaps keep."""
    return before + sum(2 * peer.sent / 2**20 + 1 for peer in peers) + 4


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_client_that_never_reads_makes_the_server_hold_little_memory(target, is_full, is_packed):
    streams = 1_000
    connections = 4 if is_full else 1
    request = grpc_message(sample_request("replay", 10**9, is_packed=is_packed))
    before = target.resident_mib()
    with target.attacked("slow reader"), contextlib.ExitStack() as stack:
        for _ in range(connections):
            peer = stack.enter_context(target.peer())
            peer.send(b"".join(peer.call("SampleStream", request) for _ in range(streams)))
            peer.round_trip()
        target._report(20)
        assert target.resident_mib() < before + connections * CONNECTION_MIB + SLACK_MIB
        stack.close()
        target.wait_until(
            lambda: target.ask("figures")["calls"] <= 4, 1, "the streams of closed connections"
        )


def test_calls_with_expanding_headers_take_bounded_memory(target, is_full):
    calls = 40_000 if is_full else 4_000
    with target.attacked("indexed headers", growth_mib=10), target.peer(acknowledges=False) as peer:
        before = target.resident_mib()
        value = "v" * 3_700
        stream = peer.next_stream()
        first = call_fields("SampleStream") + field("x-large", value, is_indexed=True)
        peer.send(frame(HEADERS, END_HEADERS, stream, first))
        bomb = call_fields("SampleStream") + entry(62) * 4
        for _ in range(calls // 100):
            peer.send(
                b"".join(frame(HEADERS, END_HEADERS, peer.next_stream(), bomb) for _ in range(100))
            )
        peer.round_trip()
        assert target.resident_mib() < bound_mib(before, peer)


def test_chunks_of_many_empty_tensors_take_bounded_memory(target, is_full):
    """Each tensor takes a few bytes of the message, and is a column in the store."""
    chunks = 64 if is_full else 3
    tensors = [tensor(b"\0", (1, 0))] * 60_000  # an empty Snappy block each
    with target.attacked("tensors of no bytes"), target.peer() as peer:
        before = target.resident_mib()
        for key in range(1, chunks + 1):
            message = insert_request([chunk(key, tensors)], [item(key, key, "attacked")], [key])
            stream = peer.next_stream()
            peer.send(frame(HEADERS, END_HEADERS, stream, call_fields("InsertStream")))
            send_slowly(peer, stream, grpc_message(message))
            target._report(1)
            assert target.resident_mib() < bound_mib(before, peer)


def test_a_chunk_that_decompresses_hugely_takes_bounded_memory(target, is_full):
    """12 MB of Snappy that decode to 128 MiB; the item uses one of 1024 rows."""
    rows, size = 1024, 12 << 20 if is_full else 2 << 20
    unfolded = (UNFOLDED_MIB << 20) if is_full else (32 << 20)
    block_of_rows = repeats(unfolded, size)
    with target.attacked("a Snappy bomb", growth_mib=60), target.peer() as peer:
        content = chunk(1, [tensor(block_of_rows, (rows, unfolded // rows), dtype=4)])
        stream = peer.next_stream()
        peer.send(frame(HEADERS, END_HEADERS, stream, call_fields("InsertStream")))
        message = insert_request([content], [item(1, 1, "bombs")])
        send_slowly(peer, stream, grpc_message(message))
        target.wait_until(lambda: target.ask("tables")["bombs"][0] == 1, 30, "it is inserted")
        reader = subprocess.run(
            [sys.executable, Path(__file__).with_name("reader.py"), target.address, "bombs"],
            capture_output=True,
            text=True,
            check=True,
        )
        took = float(reader.stdout)
        print(f"\nthe reader: {took:.0f} MiB of {len(message) / 2**20:.0f}", end="")
        assert took < 2 * len(message) / 2**20 + unfolded / 2**20 + 8


def test_gzip_bombs_are_refused_before_they_are_inflated(target, is_full):
    bomb = gzip.compress(bytes(1 << (30 if is_full else 26)), 9)  # compresses to a thousandth
    assert len(bomb) < 1_200_000
    with target.attacked("gzip bombs"), target.peer() as peer:
        before = target.resident_mib()
        for _ in range(8):
            stream = peer.next_stream()
            fields = call_fields("InsertStream", ("grpc-encoding", "gzip"))
            message = grpc_message(bomb, is_compressed=True)
            peer.send(frame(HEADERS, END_HEADERS, stream, fields))
            send_slowly(peer, stream, message)
        assert target.resident_mib() < bound_mib(before, peer)


def send_slowly(peer, stream, message):
    """Respects flow control: sends a part once the server has read the one before."""
    for at in range(0, len(message), 250_000):
        peer.send(frame(DATA, 0, stream, message[at : at + 250_000]))
        peer.round_trip()


def test_announcing_long_messages_takes_no_memory(target, is_full):
    with target.attacked("promises", growth_mib=10), target.peer() as peer:
        before = target.resident_mib()
        promise = grpc_message(b"x", size=1 << 30)
        for _ in range(1_000 if is_full else 200):
            peer.send(peer.call("InsertStream", promise))
        peer.round_trip()
        assert target.resident_mib() < before + 10


def test_unread_answers_take_bounded_memory(target, is_full):
    """The server owes a reset for each call, and the peer reads none of them."""
    with target.attacked("unread answers"), target.peer(acknowledges=False) as peer:
        before = target.resident_mib()
        bad = call_fields(SERVICE + "None")
        for _ in range(400 if is_full else 40):
            part = b"".join(
                frame(HEADERS, END_HEADERS | END_STREAM, peer.next_stream(), bad)
                for _ in range(250)
            )
            if not peer.try_send(part):
                break
        assert target.resident_mib() < before + 2 * peer.sent / 2**20 + SLACK_MIB
