"""A folder of checkpoints that one training has, and no other."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from reverie.errors import FailedPreconditionError, InvalidArgumentError

_NAME = "training.lock"


class FolderLock:
    """Holds the folder until it is closed, or its process ends.

    Args:
        path: the folder, which is made if it is not there.

    Raises:
        FailedPreconditionError: another training has it.
        InvalidArgumentError: it is not a folder, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InvalidArgumentError(
                f"{os.fspath(path)!r} cannot be a folder of checkpoints: {error}"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise FailedPreconditionError(
                f"another training saves to {os.fspath(path)!r}; stop it, or give another folder"
            ) from None

    def close(self) -> None:
        """Lets others have the folder. May be repeated."""
        if self._file >= 0:
            # A child that another thread has just forked may have the file yet, and so the lock.
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
        self._file = -1
