"""Threads that run the calls of a property test side by side."""

import queue
import threading

import reverie

DEADLINE_S = 60.0
# Whatever a caller may do wrong is told with one of these.
REFUSALS = (reverie.ReverieError, StopIteration)


class CallingThread:
    """Runs calls one after another; keeps the errors that no caller should see."""

    def __init__(self, results):
        self._calls = queue.SimpleQueue()
        self._results = results
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, call):
        """Has the call run, behind those before it."""
        self._calls.put(call)

    def _run(self):
        while (call := self._calls.get()) is not None:
            self._do_one(call)

    def _do_one(self, call):
        try:
            call()
        except REFUSALS:
            pass
        except BaseException as error:
            self._results.append(error)

    def settle(self):
        """Waits until everything that was asked for so far is done."""
        done = threading.Event()
        self.do(done.set)
        assert done.wait(DEADLINE_S), "a call does not end"

    def stop(self):
        """Ends the thread behind all calls."""
        self.do(None)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "a call does not end"
