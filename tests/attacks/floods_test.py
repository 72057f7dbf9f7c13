"""Floods of frames that cost little to send: the server answers, drops or tolerates each."""

import struct

from attack_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    PING,
    PRIORITY,
    RESET,
    SETTINGS,
    WINDOW,
    call_fields,
    field,
    frame,
    grpc_message,
    sample_request,
)

CANCEL = struct.pack(">I", 8)


def flood(target, name, part, count, *, growth_mib=20):
    """Sends ``part(peer)`` ``count`` times, or until the server hangs up."""
    with target.attacked(name, growth_mib=growth_mib), target.peer() as peer:
        before = target.resident_mib()
        for _ in range(count):
            if not peer.try_send(part(peer)):
                break
        assert target.resident_mib() < before + 50


def test_a_flood_of_calls_that_are_reset_at_once(target, is_full):
    request = grpc_message(sample_request("replay", 1000, is_packed=True))

    def part(peer):
        out = b""
        for _ in range(100):
            call = peer.call("SampleStream", request)
            out += call + frame(RESET, stream=peer._stream - 2, payload=CANCEL)
        return out

    flood(target, "rapid reset", part, 1000 if is_full else 30)


def test_a_flood_of_headers_without_an_end(target, is_full):
    head = frame(HEADERS, 0, 1, call_fields("SampleStream"))
    more = frame(CONTINUATION, 0, 1, field("x-more", "and more"))

    def part(peer):
        first = b"" if peer.sent > 1000 else head
        return first + more * 1000

    flood(target, "continuation", part, 1000 if is_full else 30)


def test_a_flood_of_settings(target, is_full):
    flood(target, "settings", lambda _: frame(SETTINGS) * 1000, 300 if is_full else 30)


def test_a_flood_of_settings_that_change_the_window_of_many_calls(target, is_full):
    """Each change makes the server visit every call of the connection."""
    sizes = [struct.pack(">HI", 4, size) for size in (0, 2**31 - 1)]
    change = frame(SETTINGS, payload=sizes[0]) + frame(SETTINGS, payload=sizes[1])
    with target.attacked("settings and calls"), target.peer() as peer:
        peer.send(b"".join(peer.call("SampleStream") for _ in range(900)))
        for _ in range(100 if is_full else 10):
            if not peer.try_send(change * 100):
                break


def test_a_flood_of_pings(target, is_full):
    flood(
        target, "pings", lambda _: frame(PING, payload=b"12345678") * 1000, 300 if is_full else 50
    )


def test_a_flood_of_priorities(target, is_full):
    def part(peer):
        out = b""
        for _ in range(1000):
            depends = struct.pack(">IB", peer.next_stream() + 100, 200)
            out += frame(PRIORITY, stream=peer._stream, payload=depends)
        return out

    flood(target, "priorities", part, 300 if is_full else 30)


def test_a_flood_of_empty_data(target, is_full):
    with target.attacked("empty data"), target.peer() as peer:
        peer.send(peer.call("InsertStream"))
        for _ in range(300 if is_full else 30):
            peer.send(frame(DATA, 0, 1) * 1000)
        peer.round_trip()


def test_windows_that_overflow_are_refused(target):
    with target.attacked("window overflow"), target.peer() as peer:
        peer.send(peer.call("SampleStream", grpc_message(sample_request("replay", 10**6))))
        peer.send(frame(WINDOW, stream=1, payload=struct.pack(">I", 2**31 - 1)) * 2)
        assert peer.read_until(RESET, stream=1) == struct.pack(">I", 3)
        peer.send(frame(WINDOW, payload=struct.pack(">I", 2**31 - 1)) * 2)
        assert peer.error_code() == 3


def test_more_calls_than_allowed_end_the_connection(target):
    with target.attacked("too many calls"), target.peer() as peer:
        calls = b"".join(
            frame(HEADERS, END_HEADERS, peer.next_stream(), call_fields("SampleStream"))
            for _ in range(1100)
        )
        peer.try_send(calls)
        assert peer.error_code() in (1, 7, None)
