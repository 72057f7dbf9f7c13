"""A worker process of ``reverie.EnvPool``: makes its environments, then steps them on request.

Started by the pool as a fresh interpreter, with the socket for messages as descriptor 3.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from reverie import _reverie
from reverie.envs import messages, rows, source, spaces
from reverie.errors import (
    InvalidArgumentError,
    MissingPackageError,
    NotFoundError,
    UnsupportedTypeError,
)

# True while this process makes its environments: no pool may be made then (see ``EnvPool``).
is_starting = False

# Errors that the pool raises as what they are; the rest are the environment's.
TYPED = {
    "InvalidArgumentError": InvalidArgumentError,
    "NotFoundError": NotFoundError,
    "MissingPackageError": MissingPackageError,
    "UnsupportedTypeError": UnsupportedTypeError,
}


def main() -> None:
    """Serves one pool, until it closes or its process is gone."""
    global is_starting
    connection = socket.socket(fileno=3)
    # The pool's process may end at any time; that is not worth a message.
    with contextlib.suppress(EOFError, ConnectionError):
        task, descriptors = messages.receive(connection)
        try:
            _reverie.exit_with_parent(task["parent"])
        except RuntimeError:
            os._exit(0)  # it ended meanwhile
        # As multiprocessing does: the program's modules may read them when they are imported.
        sys.argv[:] = task["argv"]
        mail = rows.Mail((descriptors[0], descriptors[1])) if descriptors else None
        is_starting = True
        try:
            envs, make = start(connection, task, source.maker, mail)
        finally:
            is_starting = False
        if envs:
            run(connection, task, envs, make)


class _At:
    """Which environment is being made."""

    def __init__(self, env: int) -> None:
        self.batch, self.env = 0, env


def start(
    connection: socket.socket,
    task: dict[str, Any],
    maker: Callable[[Any], Callable[[int], Any]],
    mail: rows.Mail | rows.ThreadMail | None,
) -> tuple[list[list[Any]], Callable[[int], Any]]:
    """Makes a worker's environments, ``[batch][i]``, and tells the pool what they are.

    Args:
        connection: to the pool.
        task: the pool's, as it came.
        maker: gives the function that makes environment i, for ``task["env"]``.
        mail: carries the rows of a ``VectorEnv``; None for a pool's.

    Returns:
        The environments, none if one could not be made, which the pool was told then; and the
        function that makes one again.
    """
    at = _At(task["begin"])
    envs: list[list[Any]] = []
    try:
        make_env = maker(task["env"])

        def make(env: int) -> Any:  # noqa: ANN401
            with _ends_forked_children():
                made = make_env(env)
            if mail is None:
                return made
            is_first = env == task["begin"]
            return rows.Row(made, env, is_first=is_first, mode=task["rows"], mail=mail)

        for at.batch in range(task["num_batches"]):
            envs.append([])
            for at.env in range(task["begin"], task["end"]):
                envs[at.batch].append(make(at.env))
        at.batch, at.env = 0, task["begin"]
        if mail is None:
            described = spaces.describe(envs[0][0], source.name_of(task["env"]))
        else:
            described = rows.describe(envs[0][0], source.name_of(task["env"]))
            for at.env, row in enumerate(envs[0], start=task["begin"]):
                check_spaces(envs[0][0], row, task["begin"], at.env)
            described["about"] = list(mail.write(rows.about(envs[0][0])))
    except BaseException as error:
        kind = next((name for name, kind in TYPED.items() if isinstance(error, kind)), None)
        text = str(error) if kind else "".join(traceback.format_exception(error))
        _close(envs)
        messages.send(
            connection, {"error": text, "kind": kind, "batch": at.batch, "env_id": at.env}
        )
        return [], lambda _env: None
    messages.send(connection, {"spec": described})
    return envs, make


def run(
    connection: socket.socket,
    task: dict[str, Any],
    envs: list[list[Any]],
    make: Callable[[int], Any],
) -> None:
    """Steps environments until the pool says that it is enough."""

    def replaced(batch: int, env: int) -> Any:  # noqa: ANN401
        """Another environment instead of one that raised, which is closed before."""
        index = env - task["begin"]
        raised, envs[batch][index] = envs[batch][index], None
        _close([[raised]])
        envs[batch][index] = make(env)
        return envs[batch][index]

    try:
        shape, (memory_fd,) = messages.receive(connection)
        action = shape["described_action"]
        worker = _reverie.EnvWorker(
            memory_fd,
            shape,
            task["worker"],
            task["spin_s"],
            shape["structure"],
            "start" in action,
            action.get("start", 0),
            task["refuse_nan"],
            task["seed"],
        )
        os.close(memory_fd)
        with _ends_forked_children():
            worker.run(envs, replaced)
    finally:
        _close(envs)


def check_spaces(first: rows.Row, other: rows.Row, first_index: int, index: int) -> None:
    """Raises where two environments of one vector environment have other spaces."""
    for what, a, b in zip(("observation", "action"), first.spaces, other.spaces, strict=True):
        if a != b:
            raise InvalidArgumentError(
                f"the {what} space of environment {index} is {b}, and that of environment "
                f"{first_index} is {a}; a vector environment holds environments of one kind"
            )


@contextlib.contextmanager
def _ends_forked_children() -> Iterator[None]:
    """Ends a child that an environment forked and that comes back here, as Python would end it.

    It must not answer in its parent's place, nor serve on.
    """
    process, status = os.getpid(), 0
    try:
        yield
    except SystemExit as error:
        if os.getpid() == process:
            raise
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        if os.getpid() == process:
            raise
        status = 1
        traceback.print_exc()
    if os.getpid() == process:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status & 0xFF)


def _close(envs: list[list[Any]]) -> None:
    """Closes environments; None is in the place of one that is closed and has no successor."""
    for env in (env for batch in envs for env in batch if env is not None):
        with contextlib.suppress(Exception):
            env.close()


def refusal_of(answer: dict[str, Any]) -> Exception | None:
    """The error of the library's own that a worker's answer stands for, if any."""
    kind = TYPED.get(answer["kind"] or "")
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
