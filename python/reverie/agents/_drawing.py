"""Drawing with matplotlib, such that no thread is inside it when the program ends.

Before 3.14 CPython ends a daemon thread that asks for the interpreter's lock while the interpreter
finalizes, by unwinding its stack. C++ frames of matplotlib cannot be left so: the process aborts.
The program's end therefore waits for a drawing that is under way, and none begins after it.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Drawn = TypeVar("_Drawn")

# Reentrant: callbacks at the program's end, on the thread that holds it from then on, may draw.
_lock = threading.RLock()


def drawn_alone(draw: Callable[_Given, _Drawn]) -> Callable[_Given, _Drawn]:
    """Lets one thread at a time draw, until the program ends; ``draw`` imports matplotlib."""

    @functools.wraps(draw)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Drawn:
        with _lock:
            return draw(*args, **kwargs)

    return call


def _keep_for_good() -> None:
    _lock.acquire()


def _make_anew() -> None:
    global _lock
    _lock = threading.RLock()


atexit.register(_keep_for_good)
# The thread that draws may be the parent's.
os.register_at_fork(after_in_child=_make_anew)
