"""Objects that cannot leave their process."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from reverie.errors import FailedPreconditionError, UnsupportedTypeError


class ProcessBound:
    """A mixin for what holds threads, sockets or memory of this process.

    Pickling and copying raise ``UnsupportedTypeError`` with the class's own sentence, which says
    what to do instead.
    """

    __slots__ = ()

    _stays_because: ClassVar[str]

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedTypeError(self._stays_because)


class ForkGuard:
    """What an object of Python code asks first, as base/fork.h has it for those of C++.

    A forked child inherits the object, and none of the threads that change it.
    """

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_here(self) -> bool:
        """Whether this is the process that made the object."""
        return self._pid == os.getpid()

    def check(self, what: str) -> None:
        """Raises ``FailedPreconditionError``, which names ``what``, in a forked child."""
        if self._pid != os.getpid():
            raise FailedPreconditionError(
                f"this {what} was opened before a fork and cannot be used in the child, which has "
                "none of its threads; make one in the child"
            )
