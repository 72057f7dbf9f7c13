"""What a pool and its workers say to each other before the first step, and after a failure.

A message is JSON behind its length; descriptors travel beside it. A step needs none of this: it is
handed over in shared memory.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

from reverie.errors import InvalidArgumentError

_HEAD = struct.Struct("<Q")
_SIZE_MAX = 64 << 20


def send(connection: socket.socket, message: object, descriptors: Sequence[int] = ()) -> None:
    """Sends one message, with descriptors of this process for the other.

    Raises:
        InvalidArgumentError: it is too long; nothing was sent.
        ConnectionError: the other side has ended.
    """
    body = json.dumps(message).encode()
    if len(body) > _SIZE_MAX:
        raise InvalidArgumentError(
            f"env, env_kwargs and wrappers take {len(body)} bytes as a message to a worker, and at "
            f"most {_SIZE_MAX} are sent; load large data inside of env instead of passing it"
        )
    if descriptors:
        socket.send_fds(connection, [_HEAD.pack(len(body))], list(descriptors))
    else:
        connection.sendall(_HEAD.pack(len(body)))
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """The next message and the descriptors that came with it.

    Raises:
        EOFError: the other side has ended.
        TimeoutError: the socket's timeout is up.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, _HEAD.size, 4)
    head += _receive(connection, _HEAD.size - len(head)) if head else b""
    if len(head) < _HEAD.size:
        raise EOFError("the other side has ended")
    (size,) = _HEAD.unpack(head)
    if size > _SIZE_MAX:
        raise EOFError(f"a message of {size} bytes; the bound is {_SIZE_MAX}")
    return json.loads(_receive(connection, size)), list(descriptors)


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size > 0:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the other side has ended")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
