"""The one way in which a Python test waits for what another thread or process does."""

import inspect
import threading
import time


def eventually(condition, limit_s=60.0):
    """What ``condition()`` gives, as soon as that is true; the test fails after ``limit_s``.

    It is asked again and again, with a short pause. Nothing else in the tests does so: a loop of
    one's own has no limit, or no pause, and tells less when it fails.
    """
    until = time.monotonic() + limit_s
    pause = threading.Event()
    while not (found := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {limit_s:g} s: {_text(condition)}")
        pause.wait(0.002)
    return found


def _text(condition):
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
