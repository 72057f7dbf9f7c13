"""The rules of HTTP/2 (RFC 9113) that a peer may break, by section, and the server's answers.

The cases are those of the conformance tool h2spec that apply to a gRPC server, written again. The
answer is an error of the stream or of the connection, or nothing where the rule says to ignore.
Left out: a stream with a number below the last one, which nghttp2 takes for a closed stream.
"""

import struct

import pytest
from attack_peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    PUSH,
    RESET,
    SERVICE,
    SETTINGS,
    WINDOW,
    call_fields,
    field,
    frame,
)

PROTOCOL, FLOW, CLOSED, SIZE, REFUSED, COMPRESSION = 1, 3, 5, 6, 7, 9
PADDED, WITH_PRIORITY = 8, 32
OPEN = frame(HEADERS, END_HEADERS, 1, call_fields("InsertStream"))
DONE = frame(HEADERS, END_HEADERS | END_STREAM, 1, call_fields("InsertStream"))
UNKNOWN = 250


def setting(name, value):
    return frame(SETTINGS, payload=struct.pack(">HI", name, value))


def request(*fields):
    """A call with only these headers."""
    return frame(HEADERS, END_HEADERS, 1, b"".join(field(*one) for one in fields))


METHOD = (":method", "POST")
SCHEME = (":scheme", "http")
PATH = (":path", SERVICE + "InsertStream")
TYPE = ("content-type", "application/grpc")

# Section and rule: the bytes sent after the preface, and the allowed codes of the GOAWAY.
OF_CONNECTION = {
    "4.2 a frame beyond the size that was offered": (b"\xff\xff\xff\0\0\0\0\0\1", {SIZE}),
    "4.3 a malformed header block": (
        frame(HEADERS, END_HEADERS, 1, b"\xff" * 20),
        {COMPRESSION},
    ),
    "4.3 another frame within a header block": (
        frame(HEADERS, 0, 1, call_fields("InsertStream")) + frame(PRIORITY, 0, 1, bytes(5)),
        {PROTOCOL},
    ),
    "4.3 another stream within a header block": (
        frame(HEADERS, 0, 1, call_fields("InsertStream"))
        + frame(HEADERS, END_HEADERS, 3, call_fields("InsertStream")),
        {PROTOCOL},
    ),
    "5.1 data of an idle stream": (frame(DATA, 0, 1, b"x"), {PROTOCOL}),
    "5.1 a reset of an idle stream": (frame(RESET, 0, 1, bytes(4)), {PROTOCOL}),
    "5.1 a window of an idle stream": (frame(WINDOW, 0, 1, bytes([0, 0, 0, 9])), {PROTOCOL}),
    "5.1 a continuation of an idle stream": (frame(CONTINUATION, 4, 1, b""), {PROTOCOL}),
    "5.1.1 an even stream": (
        frame(HEADERS, END_HEADERS, 2, call_fields("InsertStream")),
        {PROTOCOL},
    ),
    "6.1 data of stream 0": (frame(DATA, 0, 0, b"x"), {PROTOCOL}),
    "6.1 padding beyond the data": (OPEN + frame(DATA, PADDED, 1, b"\x09x"), {PROTOCOL}),
    "6.2 headers of stream 0": (frame(HEADERS, END_HEADERS, 0, b"\x82"), {PROTOCOL}),
    "6.2 padding beyond the headers": (
        frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff\x82"),
        {PROTOCOL, SIZE},
    ),
    "6.3 a priority of stream 0": (frame(PRIORITY, 0, 0, bytes(5)), {PROTOCOL}),
    "6.4 a reset of stream 0": (frame(RESET, 0, 0, bytes(4)), {PROTOCOL}),
    "6.4 a reset of three bytes": (OPEN + frame(RESET, 0, 1, bytes(3)), {SIZE}),
    "6.5 settings that are acknowledged with more": (
        frame(SETTINGS, ACK, 0, bytes(6)),
        {SIZE},
    ),
    "6.5 settings of a stream": (frame(SETTINGS, 0, 1, bytes(6)), {PROTOCOL}),
    "6.5 settings of five bytes": (frame(SETTINGS, 0, 0, bytes(5)), {SIZE}),
    "6.5.2 a push setting of 2": (setting(2, 2), {PROTOCOL}),
    "6.5.2 a window beyond 2**31 - 1": (setting(4, 2**31), {FLOW}),
    "6.5.2 frames below 2**14": (setting(5, 2**14 - 1), {PROTOCOL}),
    "6.5.2 frames beyond 2**24 - 1": (setting(5, 2**24), {PROTOCOL}),
    "6.7 a ping of a stream": (frame(PING, 0, 1, bytes(8)), {PROTOCOL}),
    "6.7 a ping of six bytes": (frame(PING, 0, 0, bytes(6)), {SIZE}),
    "6.8 a goodbye of a stream": (frame(GOAWAY, 0, 1, bytes(8)), {PROTOCOL}),
    "6.9 a window of no more": (frame(WINDOW, 0, 0, bytes(4)), {PROTOCOL}),
    "6.9 a window of three bytes": (frame(WINDOW, 0, 0, bytes(3)), {SIZE}),
    "6.10 a continuation of what is complete": (OPEN + frame(CONTINUATION, 4, 1, b""), {PROTOCOL}),
    "8.4 a promise of the client's": (
        OPEN + frame(PUSH, END_HEADERS, 1, struct.pack(">I", 2) + b"\x82"),
        {PROTOCOL},
    ),
}

# The same, with the allowed codes of the stream's reset or of the GOAWAY.
OF_STREAM = {
    "5.1 data after the end": (DONE + frame(DATA, 0, 1, b"x"), {CLOSED, 0}),
    "5.1 headers after the end": (DONE + DONE, {CLOSED, 0, PROTOCOL}),
    "6.9 a window of no more": (OPEN + frame(WINDOW, 0, 1, bytes(4)), {PROTOCOL}),
    "8.2 a name in capitals": (request(METHOD, SCHEME, PATH, TYPE, ("X-Test", "1")), {PROTOCOL}),
    "8.2.2 a field of the connection": (
        request(METHOD, SCHEME, PATH, TYPE, ("connection", "keep-alive")),
        {PROTOCOL},
    ),
    "8.2.2 a te other than trailers": (
        request(METHOD, SCHEME, PATH, TYPE, ("te", "gzip")),
        {PROTOCOL},
    ),
    "8.3 an unknown pseudo-field": (request(METHOD, SCHEME, PATH, (":test", "x")), {PROTOCOL}),
    "8.3 a pseudo-field of answers": (
        request(METHOD, SCHEME, PATH, (":status", "200")),
        {PROTOCOL},
    ),
    "8.3 a pseudo-field after others": (request(METHOD, SCHEME, TYPE, PATH), {PROTOCOL}),
    "8.3.1 an empty path": (request(METHOD, SCHEME, (":path", ""), TYPE), {PROTOCOL}),
    "8.3.1 no method": (request(SCHEME, PATH, TYPE), {PROTOCOL}),
    "8.3.1 no scheme": (request(METHOD, PATH, TYPE), {PROTOCOL}),
    "8.3.1 no path": (request(METHOD, SCHEME, TYPE), {PROTOCOL}),
    "8.3.1 two methods": (request(METHOD, METHOD, SCHEME, PATH, TYPE), {PROTOCOL}),
    "8.1.1 a length that is not the data's": (
        request(METHOD, SCHEME, PATH, TYPE, ("content-length", "1"))
        + frame(DATA, END_STREAM, 1, b"xyz"),
        {PROTOCOL},
    ),
}

IGNORED = {
    "4.1 a frame of an unknown type": frame(UNKNOWN, 0, 0, b"whatever"),
    "4.1 flags that mean nothing": frame(PING, 0xFE, 0, b"flags..."),
    "5.5 an unknown type on a stream": frame(UNKNOWN, 0, 1, b"whatever"),
    "6.3 a priority of an idle stream": frame(PRIORITY, 0, 9, struct.pack(">IB", 0, 16)),
    "6.5.2 a setting of an unknown name": setting(0xFF, 7),
    "6.7 an answer to no ping": frame(PING, ACK, 0, b"no ping."),
    "6.9 a window for more": frame(WINDOW, 0, 0, struct.pack(">I", 1000)),
}


def end_of(peer):
    """The error codes that the server sent: of stream 1, and of the connection."""
    stream = connection = None
    # Ping answers overtake other frames; whatever was queued before the first answer has arrived
    # with the second.
    peer.send(frame(PING, payload=b"all sent"))
    pings = 0
    while (found := peer.read_frame()) is not None:
        kind, flags, of, payload = found
        if kind == RESET and of == 1:
            stream = int.from_bytes(payload, "big")
        if kind == GOAWAY:
            connection = int.from_bytes(payload[4:8], "big")
        if kind == PING and flags & ACK and payload == b"all sent":
            pings += 1
            if pings == 2:
                break
            peer.send(frame(PING, payload=b"all sent"))
    return stream, connection


def test_connection_errors_close_the_connection_with_the_right_code(target):
    wrong = {}
    with target.attacked("rules of the connection"):
        for name, (sent, codes) in OF_CONNECTION.items():
            with target.peer() as peer:
                peer.socket.settimeout(10)
                try:
                    peer.send(sent)
                    code = peer.error_code()
                except (TimeoutError, ConnectionError) as error:
                    code = error
                if code not in codes | {PROTOCOL}:
                    wrong[name] = code
    assert wrong == {}


def test_stream_errors_are_answered_with_the_right_code(target):
    wrong = {}
    with target.attacked("rules of a stream"):
        for name, (sent, codes) in OF_STREAM.items():
            with target.peer() as peer:
                peer.send(sent)
                stream, connection = end_of(peer)
                if stream not in codes and connection not in codes:
                    wrong[name] = stream, connection
    assert wrong == {}


@pytest.mark.parametrize("name", IGNORED)
def test_frames_that_must_be_ignored_are_ignored(target, name):
    with target.peer() as peer:
        peer.send(IGNORED[name])
        peer.round_trip()
        peer.send(peer.call("ServerInfo", b"\0\0\0\0\0", ends=True))
        assert peer.read_until(HEADERS, stream=1)


def test_settings_and_pings_are_acknowledged(target):
    with target.peer(acknowledges=False) as peer:
        assert peer.read_until(SETTINGS, flags=ACK) == b""
        peer.send(frame(PING, payload=b"8 bytes!"))
        assert peer.read_until(PING, flags=ACK) == b"8 bytes!"


def test_a_connection_with_a_wrong_preface_is_closed(target):
    with target.peer(says_hello=False) as peer:
        peer.send(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + frame(SETTINGS))
        assert peer.is_closed_within(10)
