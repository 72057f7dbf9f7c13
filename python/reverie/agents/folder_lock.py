"""A folder of checkpoints that one training has, and no other."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from reverie._closing import close_in_del
from reverie.errors import FailedPreconditionError, InvalidArgumentError

_NAME = "training.lock"


class FolderLock:
    """Holds the folder until it is closed or dropped, or its process ends.

    Args:
        path: the folder, which is made if it is not there.

    Raises:
        FailedPreconditionError: another training has it.
        InvalidArgumentError: it is not a folder, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        self._file = -1
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
                f"another training saves to {os.fspath(path)!r}; end it (with its program, or its "
                "with block), or give another folder"
            ) from None

    def close(self) -> None:
        """Lets others have the folder. May be repeated."""
        file, self._file = self._file, -1
        if file < 0:
            return
        if os.getpid() == self._process:  # a forked child has the same lock
            # Any other child may have the file until it runs its program.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

    def __del__(self) -> None:
        close_in_del(self.close)
