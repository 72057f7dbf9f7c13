"""A training over a server, killed in the middle with all of its processes, and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Read by the linear algebra that NumPy may be built with, when it is loaded.
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1"
    for library in ("BLIS", "MKL", "NUMEXPR", "OMP", "OPENBLAS", "VECLIB_MAXIMUM")
}


class TrainingError(Exception):
    """A training ended without an outcome; the text is what its process wrote last."""


def messages(seed: int, steps: int, actors: int, folder: Path) -> Iterator[dict[str, Any]]:
    """What the learner's process tells (`served.main`), before the kill and behind it.

    However this ends, no process is left: the learner leads a session, and its children end with
    it.

    Raises:
        TrainingError: it ended without an outcome.
    """
    is_killed = False
    while True:
        with (
            tempfile.TemporaryFile("w+", errors="replace") as errors,
            _learner(str(seed), str(steps), str(actors), str(folder), errors=errors) as process,
        ):
            assert process.stdout is not None
            is_done = False
            for line in process.stdout:
                message = json.loads(line)
                is_done = message["kind"] == "outcome"
                yield dict(message)
                if not is_killed and message["kind"] == "progress" and 2 * message["step"] >= steps:
                    is_killed = True
                    os.killpg(process.pid, signal.SIGKILL)
                    break
            else:
                status = process.wait()
                if is_done:
                    return
                errors.seek(0)
                text = errors.read().strip()
                raise TrainingError(text or f"its process ended with status {status}")


@contextlib.contextmanager
def _learner(*arguments: str, errors: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401
    process = subprocess.Popen(
        [sys.executable, "-m", "reverie.demo.served", "learn", *arguments],
        env={**os.environ, **_ONE_THREAD},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,  # Ctrl-C reaches the parent alone
    )
    with process:
        try:
            yield process
        finally:
            # It holds nothing that outlives it: there is no reason to ask politely.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
