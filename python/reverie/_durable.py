"""Files that are replaced whole, and durably."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def replace_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Writes a file beside ``path``, which then takes its place.

    After a power cut at any moment, ``path`` has what it had before or all of what was written;
    once this returns, the latter. Where it cannot be written, ``path`` is unchanged and nothing is
    left beside it; where only the folder cannot be synced, it is replaced already. Several threads
    and programs may replace one file at the same time.

    Args:
        path: of the file to replace or make, in an existing folder.
        write: writes the bytes to the file that it is given.

    Raises:
        OSError: the disk is full or failed, or the folder cannot be written to.
    """
    target = Path(path)
    beside = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}.new")
    try:
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
