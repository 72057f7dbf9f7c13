"""A hostile peer of `reverie.Rpc` on a bare socket: builds frames and values, valid or not."""

import os
import socket
import struct

HELLO, WELCOME, RESUME, RESUMED = 1, 2, 3, 4
ACK, CALL, ANSWER, ERROR = 6, 16, 17, 18
NONE, INTEGER, TEXT, BYTES, LIST, TUPLE, DICT, SET = 0, 3, 6, 7, 8, 9, 10, 11
HEADER_BYTES = 48
PATIENCE_S = 30.0


def varint(number):
    """A varint: seven bits per byte, the lowest first."""
    out = bytearray()
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def value(what):
    """A value as peers encode it."""
    if isinstance(what, int):
        number = what - (1 << 64) if what >= 1 << 63 else what
        return bytes([INTEGER]) + varint(2 * number if number >= 0 else -2 * number - 1)
    if isinstance(what, str):
        return bytes([TEXT]) + varint(len(what.encode())) + what.encode()
    if isinstance(what, bytes):
        return bytes([BYTES]) + varint(len(what)) + what
    kind = {list: LIST, tuple: TUPLE, dict: DICT}[type(what)]
    parts = [part for pair in what.items() for part in pair] if kind == DICT else what
    return bytes([kind]) + varint(len(what)) + b"".join(map(value, parts))


def frame(kind, head=b"", *, name="", bulk=b"", sequence=0, received=0, call=0, sizes=None):
    """One frame; ``sizes`` may make its header state wrong sizes of head and bulk."""
    head_size, bulk_size = sizes or (len(head), len(bulk))
    header = b"RvR2" + struct.pack(
        "<BBHIIQQQQ", kind, 0, len(name), head_size, 0, bulk_size, sequence, received, call
    )
    assert len(header) == HEADER_BYTES
    return header + name.encode() + head + bulk


def hello(name):
    """The first frame that a peer with that name sends."""
    numbers = struct.unpack("<6Q", os.urandom(48))
    return frame(HELLO, value((name, *numbers, "", [], b"")))


class RpcPeer:
    """A connection to a peer that listens at ``host:port`` and asks for no token."""

    def __init__(self, address, name=None):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._sequence = 0
        if name is not None:
            self.meet(name)

    def meet(self, name):
        """Completes the handshake."""
        self.send(hello(name))
        assert self.read()[0] == WELCOME
        session = struct.unpack("<Q", os.urandom(8))[0] | 1
        self.send(frame(RESUME, value((b"", session, 0, 0))))
        assert self.read()[0] == RESUMED

    def send(self, data):
        self._socket.sendall(data)

    def try_send(self, data):
        """False if the other side hung up or stopped reading."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def call(self, function, head, **options):
        """The frame of a call."""
        self._sequence += 1
        return frame(
            CALL, head, name=function, sequence=self._sequence, call=self._sequence, **options
        )

    def read(self):
        """The next frame: kind, head and bulk."""
        header = self._read(HEADER_BYTES)
        kind, _, name, head, _, bulk, *_ = struct.unpack("<BBHIIQQQQ", header[4:])
        self._read(name)
        return kind, self._read(head), self._read(bulk)

    def read_answer(self):
        """The next frame that is an answer or an error."""
        found = self.read()
        while found[0] not in (ANSWER, ERROR):
            found = self.read()
        return found

    def _read(self, size):
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError("the other side has hung up")
            data += part
        return bytes(data)

    def is_hung_up_within(self, seconds):
        """Whether the connection ends within ``seconds``; reads and drops what arrives."""
        self._socket.settimeout(seconds)
        try:
            is_open = True
            while is_open:
                is_open = bool(self._socket.recv(65536))
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self):
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
