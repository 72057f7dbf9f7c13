"""The one way in which Python tests wait for another thread or process."""

import inspect
import threading
import time


def eventually(condition, limit_s=60.0):
    """Returns the value of ``condition()`` once it is true; the test fails after ``limit_s``.

    Polls with a short pause. Tests must not write such loops themselves: these would have no limit
    or no pause, and report less when they fail.
    """
    until = time.monotonic() + limit_s
    pause = threading.Event()
    while not (found := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {limit_s:g} s: {_text(condition)}")
        pause.wait(0.002)
    return found


def random_moment(draws, longest_s):
    """Pauses for up to ``longest_s``: for tests that kill or stop another process at any time."""
    threading.Event().wait(longest_s * draws.random())


def _text(condition):
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
