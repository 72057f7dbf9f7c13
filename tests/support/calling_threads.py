"""Threads that run the calls of a property test in parallel."""

import queue
import threading

import reverie

DEADLINE_S = 60.0
# The errors with which any mistake of a caller is reported.
REFUSALS = (reverie.ReverieError, StopIteration)


class CallingThread:
    """A thread that runs calls one after another, and keeps errors that callers must not see."""

    def __init__(self, results):
        self._calls = queue.SimpleQueue()
        self._results = results
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, call):
        """Queues the call behind the earlier ones."""
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
        """Waits until all calls queued so far are done."""
        done = threading.Event()
        self.do(done.set)
        assert done.wait(DEADLINE_S), "a call does not end"

    def stop(self):
        """Ends the thread after all queued calls."""
        self.do(None)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "a call does not end"
