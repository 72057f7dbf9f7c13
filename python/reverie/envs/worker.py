"""A worker process of ``reverie.EnvPool``: makes its environments, then steps them when told.

Started by the pool as a fresh interpreter, with the socket for messages as descriptor 3.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import traceback
from typing import Any

from reverie import _reverie
from reverie.envs import messages, source, spaces
from reverie.errors import MissingPackageError, NotFoundError, UnsupportedTypeError

# True while this process makes its environments: no pool may be made then (see ``EnvPool``).
is_starting = False

# Errors that the pool raises as what they are; the rest are the environment's.
_TYPED = {
    "NotFoundError": NotFoundError,
    "MissingPackageError": MissingPackageError,
    "UnsupportedTypeError": UnsupportedTypeError,
}


def main() -> None:
    """Serves one pool, until it closes or its process is gone."""
    connection = socket.socket(fileno=3)
    # The pool's process may end at any time; nobody wants to read of that.
    with contextlib.suppress(EOFError, ConnectionError):
        task, _ = messages.receive(connection)
        try:
            _reverie.exit_with_parent(task["parent"])
        except RuntimeError:
            os._exit(0)  # it ended meanwhile
        _serve(connection, task)


def _serve(connection: socket.socket, task: dict[str, Any]) -> None:
    global is_starting
    at = (0, task["begin"])
    envs: list[list[Any]] = []
    is_starting = True
    try:
        make = source.maker(task["env"])
        for batch in range(task["num_batches"]):
            envs.append([])
            for env in range(task["begin"], task["end"]):
                at = (batch, env)
                envs[batch].append(make())
        described = spaces.describe(envs[0][0], source.name_of(task["env"]))
    except BaseException as error:
        kind = next((name for name, kind in _TYPED.items() if isinstance(error, kind)), None)
        text = str(error) if kind else "".join(traceback.format_exception(error))
        messages.send(connection, {"error": text, "kind": kind, "batch": at[0], "env_id": at[1]})
        return
    finally:
        is_starting = False
    messages.send(connection, {"spec": described})

    shape, (memory_fd,) = messages.receive(connection)
    worker = _reverie.EnvWorker(
        memory_fd,
        shape,
        task["worker"],
        task["spin_s"],
        described["structure"],
        "start" in described["action"],
        described["action"].get("start", 0),
        task["refuse_nan"],
    )
    os.close(memory_fd)
    try:
        worker.run(envs, lambda _batch, _env: make())
    finally:
        for env in (env for batch in envs for env in batch):
            with contextlib.suppress(Exception):
                env.close()


def refusal_of(answer: dict[str, Any]) -> Exception | None:
    """The error of the library's own that a worker's answer stands for, if any."""
    kind = _TYPED.get(answer["kind"] or "")
    return kind(answer["error"]) if kind else None


COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from reverie.envs.worker import main; main()"
)
"""The program of a worker, for ``python -c``; its argument is the pool's ``sys.path``."""


def command() -> list[str]:
    """The command line that starts a worker like this interpreter."""
    import json

    return [sys.executable, "-c", COMMAND, json.dumps(sys.path)]
