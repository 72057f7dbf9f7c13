"""Trainings in processes of their own, as many at a time as there are cores.

Each process is a fresh interpreter, so nothing of the parent is forked, and its linear algebra
gets one thread: with more, two trainings on two cores would only wait for each other. Processes
are put into sessions of their own, so that Ctrl-C reaches the parent alone, and the parent ends
them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from reverie.demo.messages import Failure, Message, Outcome, Progress, from_line

# Read by the linear algebra that NumPy may be built with, when it is loaded.
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1"
    for library in ("BLIS", "MKL", "NUMEXPR", "OMP", "OPENBLAS", "VECLIB_MAXIMUM")
}

_WORKER = ("-m", "reverie.demo.worker")


def core_count() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class TrainingProcesses:
    """Trains every seed; leaves no process behind. Not thread-safe.

    Args:
        seeds: one training each.
        steps: of each training.
        size: how many run at a time.
        actors: of each training, beside a server and a learner; 0 for an embedded store.
        folder: if given, each training keeps there what it needs to go on, is killed in the middle
            with all of its processes, and is started again.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        steps: int,
        *,
        size: int,
        actors: int = 0,
        folder: Path | None = None,
    ) -> None:
        self._waiting = list(reversed(seeds))
        self._steps = steps
        self._size = size
        self._actors = actors
        self._folder = folder
        self._killed: set[int] = set()
        self._restarted: set[int] = set()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._messages: queue.SimpleQueue[tuple[int, Message | None]] = queue.SimpleQueue()

    def __enter__(self) -> TrainingProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def messages(self) -> Iterator[Message]:
        """What the trainings tell, until the last one has ended.

        Each seed ends with its `Outcome` or a `Failure`.
        """
        ended: set[int] = set()
        while self._waiting or self._processes:
            while self._waiting and len(self._processes) < self._size:
                self._start(self._waiting.pop())
            seed, message = self._messages.get()
            if message is None:
                status = self._processes.pop(seed).wait()
                if seed in self._killed:
                    self._killed.remove(seed)
                    self._start(seed)
                    continue
                if seed not in ended:
                    yield Failure(seed, f"its process ended with status {status} and no outcome")
                continue
            if isinstance(message, Outcome | Failure):
                # What is cut off with its process is no failure.
                if seed in ended or (seed in self._killed and isinstance(message, Failure)):
                    continue
                ended.add(seed)
            yield message
            if isinstance(message, Progress) and 2 * message.step >= self._steps:
                self._kill(seed)

    def stop(self) -> None:
        """Ends what still runs, at once."""
        self._waiting.clear()
        # A training holds nothing that outlives it: there is no reason to ask politely.
        # The session that it leads holds what it has started.
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def _kill(self, seed: int) -> None:
        """Kills a training and all that it has started, once."""
        if self._folder is None or seed in self._restarted:
            return
        self._restarted.add(seed)
        self._killed.add(seed)
        os.killpg(self._processes[seed].pid, signal.SIGKILL)

    def _start(self, seed: int) -> None:
        folder = [] if self._folder is None else [str(self._folder / f"seed-{seed}")]
        # The listener closes it.
        errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, *_WORKER, str(seed), str(self._steps), str(self._actors), *folder],
            env={**os.environ, **_ONE_THREAD},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        self._processes[seed] = process
        threading.Thread(target=self._listen, args=(seed, process, errors), daemon=True).start()

    def _listen(self, seed: int, process: subprocess.Popen[str], errors: IO[str]) -> None:
        assert process.stdout is not None
        with process.stdout, errors:
            for line in process.stdout:
                self._messages.put((seed, _read(seed, line)))
            if process.wait() != 0:
                errors.seek(0)
                text = errors.read().strip()
                if text:
                    self._messages.put((seed, Failure(seed, text)))
        self._messages.put((seed, None))


def _read(seed: int, line: str) -> Message:
    try:
        return from_line(line)
    except ValueError as error:
        return Failure(seed, str(error))
