"""A hostile peer on a bare socket: builds HTTP/2 frames and gRPC messages, valid or not."""

import re
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS = 4
SERVICE = "/deepmind.reverb.ReverbService/"
PATIENCE_S = 30.0


def frame(kind, flags=0, stream=0, payload=b""):
    """One frame."""
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def _length(size, prefix_bits, first):
    """An integer as HPACK writes it."""
    most = (1 << prefix_bits) - 1
    if size < most:
        return bytes([first | size])
    out = [first | most]
    size -= most
    while size >= 128:
        out.append(size % 128 + 128)
        size //= 128
    return bytes([*out, size])


def field(name, value, *, is_indexed=False):
    """A literal header field; with ``is_indexed`` the peer adds it to its table, as entry 62."""
    name, value = name.encode(), value.encode()
    head = b"\x40" if is_indexed else b"\x00"
    return head + _length(len(name), 7, 0) + name + _length(len(value), 7, 0) + value


def entry(index):
    """A header field that refers to an entry of the dynamic table."""
    return _length(index, 7, 0x80)


def call_fields(method, *more):
    """The header fields of a call of ``method``."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method if method.startswith("/") else SERVICE + method),
        (":authority", "x"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *more,
    ]
    return b"".join(field(name, value) for name, value in fields)


def grpc_message(content, *, is_compressed=False, size=None):
    """A message with its gRPC prefix, which may state a wrong size."""
    return struct.pack(">BI", int(is_compressed), len(content) if size is None else size) + content


def varint(value):
    """An unsigned integer as protobuf writes it."""
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def number(tag, value):
    """A protobuf field that is a number."""
    return varint(tag << 3) + varint(value)


def block(tag, content):
    """A protobuf field that is text or a message."""
    content = content.encode() if isinstance(content, str) else content
    return varint(tag << 3 | 2) + varint(len(content)) + content


def sample_request(table, count, *, is_packed=False):
    """A ``SampleStreamRequest``; ``is_packed`` asks for the answers that our own client reads."""
    request = block(1, table) + number(2, count)
    return request + (number(1000, 1) if is_packed else b"")


def tensor(content, shape, dtype=1):
    """A ``TensorProto``; the first axis counts the rows."""
    axes = b"".join(block(2, number(1, size)) for size in shape)
    return number(1, dtype) + block(2, axes) + block(4, content)


def chunk(key, tensors, *, is_delta=False):
    """A ``ChunkData``."""
    data = b"".join(block(1, one) for one in tensors)
    delta = number(4, 1) if is_delta else b""
    return number(1, key) + block(2, number(1, key)) + delta + block(5, data)


def item(key, chunk_key, table, *, length=1, columns=1):
    """A ``PrioritizedItem`` over the first rows of a chunk."""
    slices = b"".join(
        block(1, block(1, number(1, chunk_key) + number(3, length) + number(4, column)))
        for column in range(columns)
    )
    priority = varint(5 << 3 | 1) + struct.pack("<d", 1.0)
    return number(1, key) + block(2, table) + priority + block(8, slices)


STORED = 1000  # the field of an insert for chunks in the form of our own client
LZ4, FLOAT32 = 1, 11


def rubbish_chunk(key, rows):
    """A chunk as our clients send it, whose column looks valid until it is decompressed."""
    column = struct.pack("<BI", 0, rows * 4) + b"\xf0\xff\xff\xff rubbish"
    head = number(1, FLOAT32) + number(3, LZ4) + number(4, len(column))
    return number(1, key) + number(2, key) + number(4, rows) + block(5, head) + block(7, column)


def insert_request(chunks=(), items=(), keep=()):
    """An ``InsertStreamRequest``."""
    return (
        b"".join(block(1, one) for one in chunks)
        + b"".join(block(2, one) for one in items)
        + b"".join(number(3, key) for key in keep)
    )


def literal(content):
    """A Snappy block of literals only, without copies."""
    out = bytearray(varint(len(content)))
    for at in range(0, len(content), 65_536):
        part = content[at : at + 65_536]
        out += bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part
    return bytes(out)


def repeats(length, size):
    """A Snappy block of about ``size`` bytes that decodes to ``length`` equal bytes."""
    copied = 64 if length // 64 * 3 >= size else 32
    count, rest = divmod(length - 1, copied)
    rest_block = b"" if rest == 0 else bytes([(rest - 1) << 2 | 2, 1, 0])
    return varint(length) + b"\0a" + bytes([(copied - 1) << 2 | 2, 1, 0]) * count + rest_block


class Peer:
    """A connection that has sent the HTTP/2 preface, unless ``says_hello`` is False."""

    def __init__(self, address, *, says_hello=True, acknowledges=True):
        host, port = address.rsplit(":", 1)
        self.sent = 0
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._stream = 1
        if says_hello:
            # The server's settings take effect once they are acknowledged.
            self.send(PREFACE + frame(SETTINGS) + (frame(SETTINGS, ACK) if acknowledges else b""))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        """Sends all of ``data``, or raises after ``PATIENCE_S``."""
        self.socket.sendall(data)
        self.sent += len(data)

    def try_send(self, data):
        """Like ``send``, but returns False if the server hung up or stopped reading."""
        try:
            self.send(data)
        except (ConnectionError, TimeoutError):
            return False
        return True

    def next_stream(self):
        stream, self._stream = self._stream, self._stream + 2
        return stream

    def call(self, method, *messages, more=(), ends=False):
        """The frames of a new call."""
        stream = self.next_stream()
        out = frame(HEADERS, END_HEADERS, stream, call_fields(method, *more))
        for at, message in enumerate(messages):
            is_last = ends and at == len(messages) - 1
            out += frame(DATA, END_STREAM if is_last else 0, stream, message)
        return out

    def read_frame(self):
        """The next frame as (type, flags, stream, payload); None once the server hung up."""
        while True:
            if len(self._received) >= 9:
                size = int.from_bytes(self._received[:3], "big")
                if len(self._received) >= 9 + size:
                    head, payload = self._received[:9], self._received[9 : 9 + size]
                    self._received = self._received[9 + size :]
                    return head[3], head[4], int.from_bytes(head[5:9], "big"), payload
            try:
                part = self.socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not part:
                return None
            self._received += part

    def read_until(self, kind, *, flags=0, stream=None):
        """The payload of the next matching frame; fails if the server hangs up first."""
        while True:
            found = self.read_frame()
            assert found is not None, f"hung up before a frame of type {kind}"
            if found[0] == kind and found[1] & flags == flags and stream in (None, found[2]):
                return found[3]

    def round_trip(self):
        """Returns once the server has read all that was sent."""
        self.send(frame(PING, payload=b"all read"))
        while self.read_until(PING, flags=ACK) != b"all read":
            pass

    def error_code(self):
        """The code of the GOAWAY that ends the connection; None when the server sends none."""
        code = None
        while (found := self.read_frame()) is not None:
            if found[0] == GOAWAY:
                code = int.from_bytes(found[3][4:8], "big")
        return code

    def is_closed_within(self, seconds):
        """Whether the server hangs up within ``seconds``."""
        until = time.monotonic() + seconds
        self.socket.settimeout(seconds)
        try:
            while time.monotonic() < until:
                if self.read_frame() is None:
                    return True
        except TimeoutError:
            pass
        return False


def resident_mib(pid):
    """The resident memory of a process, as the kernel reports it."""
    return _status_mib(pid, "VmRSS")


def peak_mib(pid):
    """The highest resident memory that the process has had."""
    return _status_mib(pid, "VmHWM")


def _status_mib(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(rf"{name}:\s+(\d+)", file.read())[1]) / 1024
