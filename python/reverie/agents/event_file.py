"""Scalars as TensorBoard reads them, written without TensorBoard.

A file of TFRecords, each an ``Event`` message with a ``Summary`` of simple values:

    length u64 | masked CRC-32C of the length | message | masked CRC-32C of the message

Source: tensorflow/core/util/event.proto and record_writer.h.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

from reverie._closing import Closing

_POLYNOMIAL = 0x82F63B78  # bit-reversed
_MASK_DELTA = 0xA282EAD8


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The CRC as TFRecords store it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _event(wall_time: float, step: int, content: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + content


class EventFile(Closing):
    """A new event file in a folder. A context manager that closes it.

        with EventFile("run") as events:
            events.add(step=100, scalars={"return": 12.5})

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self.path = Path(folder) / name
        self._file = self.path.open("ab")
        self._put(_event(time.time(), 0, _message(3, b"brain.Event:2")))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Values of one moment, by name."""
        values = b"".join(
            _message(1, _message(1, name.encode()) + b"\x15" + struct.pack("<f", value))
            for name, value in scalars.items()
        )
        self._put(_event(time.time(), step, _message(5, values)))

    def close(self) -> None:
        """Closes the file. Again does nothing."""
        self._file.close()

    def _put(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        self._file.write(length + struct.pack("<I", masked_crc32c(length)))
        self._file.write(data + struct.pack("<I", masked_crc32c(data)))
        self._file.flush()
