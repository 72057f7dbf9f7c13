"""An honest client in its own process: inserts and samples until its input ends.

Usage: honest.py ADDRESS [AUTHORITIES], the file of the authorities of a server with TLS.
For each line of input it prints what happened since the last one: calls, latencies and errors.
"""

import json
import sys
import threading
import time

import numpy as np

import reverie

BATCH = 16
SHAPE = (64,)


class Worker:
    """A thread that inserts and samples in a loop, and checks what it gets."""

    def __init__(self, address: str, authorities: str | None = None) -> None:
        tls = None if authorities is None else reverie.ClientTls(authorities)
        self._client = reverie.Client(address, tls=tls, retry_timeout_s=30.0)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._latencies: list[float] = []
        self._errors: list[str] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()

    def report(self, least: int, timeout_s: float) -> dict[str, object]:
        """The figures since the last report, after at least `least` calls or an error."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._latencies) >= least or bool(self._errors), timeout_s
            )
            latencies, self._latencies = sorted(self._latencies), []
            errors, self._errors = self._errors, []
        if not self._thread.is_alive():
            errors.append("the client's thread has ended")

        def at(part: float) -> float:
            return latencies[int(part * (len(latencies) - 1))] * 1e3 if latencies else 0.0

        return {
            "calls": len(latencies),
            "p50_ms": at(0.5),
            "p99_ms": at(0.99),
            "max_ms": at(1.0),
            "errors": errors,
        }

    def _run(self) -> None:
        value = 0
        while not self._is_over:
            value += 1
            begin = time.perf_counter()
            error = None
            try:
                self._client.insert([np.full(SHAPE, value, np.int64)], {"honest": 1.0})
                batch = self._client.sample_batch("honest", BATCH, timeout_s=30.0)
                rows = batch.data[0].reshape(BATCH, -1)
                if rows.shape[1] != SHAPE[0] or (rows != rows[:, :1]).any():
                    error = f"sampled {rows!r}"
            except reverie.ReverieError as failed:
                error = repr(failed)
            with self._changed:
                self._latencies.append(time.perf_counter() - begin)
                if error is not None:
                    self._errors.append(error)
                self._changed.notify_all()


def main() -> None:
    worker = Worker(*sys.argv[1:])
    try:
        for line in sys.stdin:
            least, timeout_s = json.loads(line)
            print(json.dumps(worker.report(least, timeout_s)), flush=True)
    finally:
        worker.stop()


if __name__ == "__main__":
    main()
