"""The backend ``"thread"``: environments of Python stepped by threads of this process.

The workers of ``ProcessPool`` without the processes: the same shared rows, the same loop, each in a
thread. For environments that wait for something (a game server, a robot, a model behind a socket)
rather than compute, since only one thread computes at a time; and for those that cannot travel to
another process.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reverie import _reverie
from reverie.envs import messages, rows, source, worker
from reverie.envs.process import ProcessPool, at_exit
from reverie.errors import FailedPreconditionError, UnimplementedError

_CLOSE_S = 2.0
_THREADS_MAX = 32  # unless more are asked for


class _Source:
    """What makes environments. The pool keeps it, and its threads look it up when they make some.

    So a pool whose ``env`` leads back to it is collected: a thread would hold what it holds.
    """

    def __init__(self, described: dict[str, Any]) -> None:
        self.described = described
        self._make: Callable[[int], Any] | None = None

    def make(self, index: int) -> Any:  # noqa: ANN401
        """Environment ``index`` of a batch."""
        if self._make is None:
            self._make = source.maker(self.described)
        return self._make(index)


class ThreadPool(ProcessPool):
    """As ``ProcessPool``, with ``num_workers`` threads; ``env`` may be any function.

    An environment is made, stepped and closed by one and the same thread. It must not wait for the
    program's own thread. Where a step hangs, ``close`` leaves its thread behind.
    """

    _spins = False  # a thread that looks keeps the lock from the one that works

    def __init__(
        self,
        env: object,
        num_envs: int,
        *,
        num_workers: int | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self._threads: list[threading.Thread] = []
        count = min(num_envs, _THREADS_MAX) if num_workers is None else num_workers
        super().__init__(env, num_envs, num_workers=count, **options)

    def restart(self, worker: int | None = None) -> None:  # noqa: ARG002
        """Threads cannot be replaced: a thread that hangs cannot be ended.

        Raises:
            UnimplementedError: always.
        """
        raise UnimplementedError(
            "the thread backend cannot replace a worker; reset() replaces environments that "
            'raised, and backend="process" has workers that can be replaced'
        )

    @property
    def worker_pids(self) -> list[int | None]:
        """Empty: threads have no processes."""
        return []

    def _source(
        self, env: object, env_kwargs: Mapping[str, object] | None, wrappers: Sequence[object]
    ) -> Any:  # noqa: ANN401
        self._env_source = _Source(source.local(env, env_kwargs, wrappers, self.num_envs))
        # What the threads may hold: a name, as worker processes get it.
        return {"each": [{"name": source.name_of(self._env_source.described)}]}

    def _mail(self) -> rows.Mail | rows.ThreadMail:
        return rows.ThreadMail()

    def _task_message(self, task: dict[str, Any]) -> dict[str, Any]:
        return {"worker": task["worker"]}  # the thread has the rest already

    def _ending(self) -> tuple[Any, ...]:
        return (_end, self._core, self._threads, self.mails)

    def _start_worker(
        self,
        index: int,
        task: dict[str, Any],
        theirs: socket.socket,
        mail: rows.Mail | rows.ThreadMail | None,
    ) -> None:
        self._workers.set_thread(index, None)
        thread = threading.Thread(
            target=_work,
            args=(self._workers, weakref.ref(self._env_source), index, task, theirs, mail),
            name=f"reverie-env-{index}",
            daemon=True,  # one that hangs in a step keeps no program from ending
        )
        self._threads.append(thread)
        thread.start()


def _maker(env_source: weakref.ref[_Source]) -> Callable[[int], Any]:
    def make(index: int) -> Any:  # noqa: ANN401
        found = env_source()
        if found is None:
            raise FailedPreconditionError("the pool of this thread was dropped; make another")
        return found.make(index)

    return make


def _work(
    workers: _reverie.WorkerProcesses,
    env_source: weakref.ref[_Source],
    index: int,
    task: dict[str, Any],
    connection: socket.socket,
    mail: rows.Mail | rows.ThreadMail | None,
) -> None:
    how = "has ended"
    try:
        # The pool may be gone, or closed, at any time: that ends the thread, and nothing else.
        with connection, contextlib.suppress(EOFError, ConnectionError):
            messages.receive(connection)
            envs, make = worker.start(connection, task, lambda _: _maker(env_source), mail)
            if envs:
                worker.run(connection, task, envs, make)
    except BaseException as error:
        how = f"raised {error!r}"
        raise
    finally:
        workers.set_thread(index, how)


def _end(
    core: _reverie.EnvPoolCore,
    threads: list[threading.Thread],
    mails: list[rows.Mail | rows.ThreadMail],
) -> None:
    core.close(0.0, at_exit=at_exit())
    until = time.monotonic() + _CLOSE_S
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
    for mail in mails:
        mail.close()
