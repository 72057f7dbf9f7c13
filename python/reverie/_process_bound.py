"""Objects that cannot leave their process."""

from __future__ import annotations

from typing import Any, ClassVar

from reverie.errors import UnsupportedTypeError


class ProcessBound:
    """A mixin for what holds threads, sockets or memory of this process.

    Pickling and copying raise ``UnsupportedTypeError`` with the class's own sentence, which says
    what to do instead.
    """

    __slots__ = ()

    _stays_because: ClassVar[str]

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedTypeError(self._stays_because)
