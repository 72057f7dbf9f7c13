"""What awaits a batcher or a queue, and is woken once there may be something to take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # costs more to import than all of this package
    import asyncio


class Awaiting:
    """The coroutines that await one object. Any thread may wake them.

    It does not hold that object, which may therefore keep `wake_all`.
    """

    def __init__(self) -> None:
        self._wakes: set[Callable[[], object]] = set()
        self._is_told = False

    @contextlib.contextmanager
    def woken(self) -> Iterator[asyncio.Event]:
        """An event of the running loop, which `wake_all` sets."""
        import asyncio

        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

        self._wakes.add(wake)
        try:
            yield event
        finally:
            self._wakes.discard(wake)

    def be_told(self, ask: Callable[[Callable[[], object]], object]) -> None:
        """Have a native object call `wake_all`: it is asked once, however many await in vain."""
        if self._is_told:
            return
        self._is_told = True
        try:
            ask(self.wake_all)
        except BaseException:
            self._is_told = False
            raise

    def wake_all(self) -> None:
        """Has each look for itself."""
        self._is_told = False
        for wake in tuple(self._wakes):
            wake()
