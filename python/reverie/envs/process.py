"""The backend ``"process"``: any environment of Python, in worker processes over shared memory.

    this process                                   worker 0 .. W-1, fresh interpreters
    step(actions) --- actions, one word a worker --->  env.step(action), row after row
    result()      <-- rows, one word a worker -------  written where the batch lies

Actions, observations and outcomes lie in shared memory; a step is handed over by changing a word
that the other side waits on. Nothing is serialised, no socket is read, and nothing polls.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from reverie import _checks, _reverie
from reverie.envs import messages, rows, source, spaces, worker
from reverie.envs.backend import EnvBatch
from reverie.errors import (
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
)

# For how long a side looks for the other's word before it sleeps: a wake-up costs as much.
_SPIN_S = 50e-6
_CLOSE_S = 2.0
_ENDED = "worker {} ended before its environments could be stepped: see what it printed"
_SOCKET_WAIT_MAX_S = 1e6  # sockets take no number of seconds that is much larger


class ProcessPool:
    """``num_batches`` batches of ``num_envs`` environments in ``num_workers`` processes.

    Args:
        env: a Gymnasium id, or a function or class that can be imported.
        num_envs: environments of one batch.
        num_batches: batches, each of which is stepped as a whole.
        num_workers: processes; each has its share of every batch. ``None`` takes as many as this
            process may use processors, at most ``num_envs``.
        env_kwargs: keyword arguments of ``env``, of plain values.
        seed: seeds each environment's first reset, which a step may be: environment i of batch b
            gets ``seed + b * num_envs + i``.
        batch_size: makes a result hold the first ``batch_size`` environments that are ready.
        timeout_s: how long a worker may take to start, and a step to be done.
        info: names of numeric entries of the environments' info ("episode/r" for nested ones),
            which become float64 columns; or a mapping of names to ``TensorSpec`` or dtypes.
        refuse_nan: makes an observation with a NaN an error of the environment.
        restarts: how many times a worker that failed is replaced without further ado, before an
            ``EnvError`` is raised.
        copy: gives each result arrays of its own. Else they are views of the pool's memory, which
            the next step of the batch overwrites; with ``batch_size`` they are copies anyway.
        wrappers: functions that each environment is passed through, in this order.
        rows_mode: makes the environments rows of a Gymnasium ``VectorEnv`` (see ``rows``) with this
            way of resetting; ``about`` then says what they are.
    """

    _spins = True  # workers look for a while before they sleep

    def __init__(
        self,
        env: object,
        num_envs: int,
        *,
        num_batches: int = 1,
        num_workers: int | None = None,
        env_kwargs: Mapping[str, object] | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        timeout_s: float = 60.0,
        info: Sequence[str] | Mapping[str, object] | None = None,
        refuse_nan: bool = False,
        restarts: int = 0,
        copy: bool = True,
        wrappers: Sequence[object] = (),
        rows_mode: str | None = None,
    ) -> None:
        if worker.is_starting:
            raise FailedPreconditionError(
                "an EnvPool is made while a worker imports the main program; put the program's "
                'statements under: if __name__ == "__main__":'
            )
        cores = len(os.sched_getaffinity(0))
        count = min(num_envs, cores) if num_workers is None else num_workers
        _check_counts(num_envs, num_batches, count, batch_size)
        self.num_envs = num_envs
        self.num_batches = num_batches
        self.num_workers = count
        self.batch_size = batch_size
        self.restart_count = 0
        self._restarts_left = restarts
        self._timeout_s = timeout_s
        self._spin_s = _SPIN_S if count < cores and self._spins else 0.0
        self._task = {
            "parent": os.getpid(),
            "argv": [str(argument) for argument in sys.argv],
            "env": self._source(env, env_kwargs, wrappers),
            "num_batches": num_batches,
            # With more workers than processors a spinning one keeps another from its work.
            "spin_s": self._spin_s,
            "refuse_nan": refuse_nan,
            "seed": seed,
            "rows": rows_mode,
        }
        self.mails: list[rows.Mail | rows.ThreadMail] = []
        self.about: dict[str, Any] = {}
        self._info = [
            (name, spec.dtype_name, [-1 if n is None else n for n in spec.shape])
            for name, spec in spaces.info_columns(info)
        ]
        self._workers = _reverie.WorkerProcesses(count)
        try:
            self._core = self._start()
        except BaseException:
            self._workers.end_all(0.0)
            for mail in self.mails:
                mail.close()
            raise
        self.spec = spaces.env_spec(self._described)
        self._core.set_results(EnvBatch, self._described["structure"], copy)
        self.step = self._core.step
        self.reset = self._core.reset
        self._finalizer = weakref.finalize(self, *self._ending())

    # --- Stepping: ``step`` and ``reset`` are the core's own methods.

    @property
    def worker_pids(self) -> list[int | None]:
        """The process of each worker, None where it has ended."""
        return [self._workers.pid(i) for i in range(self.num_workers)]

    def shares(self) -> list[int]:
        """How many environments of a batch each worker has."""
        ranges = [_share(self.num_envs, self.num_workers, i) for i in range(self.num_workers)]
        return [end - begin for begin, end in ranges]

    def restart(self, worker: int | None = None) -> None:
        """Replace a worker by a new process; without a number, each that has ended.

        Its environments begin new episodes. What was in flight comes as ``truncated``, with the
        last observation known as ``final_observation`` and reward 0; environments that had finished
        their step keep its outcome. Other workers notice nothing.

        Raises:
            EnvError: an environment cannot be made.
            DeadlineExceededError: the worker does not start in time.
        """
        if worker is None:
            chosen = [i for i in range(self.num_workers) if self._workers.end_text(i) is not None]
        elif 0 <= worker < self.num_workers:
            chosen = [worker]
        else:
            raise InvalidArgumentError(
                f"worker is {worker}; the pool's are 0 to {self.num_workers - 1}"
            )
        for index in chosen:
            with self._launch(index) as connection:
                self._check_same(self._spec_from(connection, index, self._deadline()), index)
                self._core.restart(index)
                self._send(connection, index, self._shape, [self._core.memory_fd])
            self.restart_count += 1

    def close(self) -> None:
        """End the workers. Again does nothing; any other call after it raises."""
        self._core.set_closed_text("this pool is closed; make another")
        self._finalizer()

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- Starting.

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s

    def _start(self) -> _reverie.EnvPoolCore:
        """Starts all workers at once; the first to tell its spaces gives the memory its shape."""
        until = self._deadline()
        with contextlib.ExitStack() as open_connections:
            connections = [
                open_connections.enter_context(self._launch(index))
                for index in range(self.num_workers)
            ]
            self._described = self._spec_from(connections[0], 0, until)
            for index, connection in enumerate(connections[1:], start=1):
                self._check_same(self._spec_from(connection, index, until), index)
            core = self._make_core()
            for index, connection in enumerate(connections):
                self._send(connection, index, self._shape, [core.memory_fd])
        return core

    def _source(
        self, env: object, env_kwargs: Mapping[str, object] | None, wrappers: Sequence[object]
    ) -> Any:  # noqa: ANN401
        """What a worker makes environments from."""
        return source.describe(env, env_kwargs, wrappers, self.num_envs)

    def _mail(self) -> rows.Mail | rows.ThreadMail:
        return rows.Mail()

    def _ending(self) -> tuple[Any, ...]:
        """The function that ends this pool, and its arguments; none may hold this object."""
        return (_end, self._core, self.mails)

    def _launch(self, index: int) -> socket.socket:
        begin, end = _share(self.num_envs, self.num_workers, index)
        task = {**self._task, "worker": index, "begin": begin, "end": end}
        mail = None
        if self._task["rows"] is not None:
            mail = self._mail()
            self.mails[index : index + 1] = [mail]
        ours, theirs = socket.socketpair()
        try:
            self._start_worker(index, task, theirs, mail)
            self._send(ours, index, self._task_message(task), mail.descriptors() if mail else ())
        except BaseException:
            ours.close()
            raise
        return ours

    def _send(
        self, connection: socket.socket, index: int, message: object, descriptors: Sequence[int]
    ) -> None:
        try:
            messages.send(connection, message, descriptors)
        except ConnectionError:
            raise _env_error(_ENDED.format(index), index) from None

    def _task_message(self, task: dict[str, Any]) -> dict[str, Any]:
        """What is sent to a worker first."""
        return task

    def _start_worker(
        self,
        index: int,
        _task: dict[str, Any],
        theirs: socket.socket,
        _mail: rows.Mail | rows.ThreadMail | None,
    ) -> None:
        with theirs:
            self._workers.start(index, worker.command(), [theirs.fileno()])

    def _spec_from(self, connection: socket.socket, index: int, until: float) -> dict[str, Any]:
        connection.settimeout(min(max(0.001, until - time.monotonic()), _SOCKET_WAIT_MAX_S))
        try:
            answer, _ = messages.receive(connection)
        except TimeoutError:
            raise DeadlineExceededError(
                f"worker {index} (process {self._workers.pid(index)}) did not make its "
                f"environments within {self._timeout_s:g} s; give a longer timeout_s, or look at "
                "what they wait for"
            ) from None
        except (EOFError, ConnectionError):
            raise _env_error(_ENDED.format(index), index) from None
        connection.settimeout(min(self._timeout_s, _SOCKET_WAIT_MAX_S))
        if "error" not in answer:
            described = dict(answer["spec"])
            note = described.pop("about", None)
            if note is not None:
                about = self.mails[index].note(*note)
                self.about = self.about or about
                _check_spaces(self.about["spaces"], about["spaces"], index)
            return described
        refusal = worker.refusal_of(answer)
        if refusal is not None:
            raise refusal
        batch, env_id = answer["batch"], answer["env_id"]
        raise _env_error(
            f"environment {env_id} of batch {batch}, in worker {index}, could not be made:\n"
            f"{answer['error']}",
            index,
            batch,
            env_id,
            answer["error"],
        )

    def _check_same(self, described: dict[str, Any], index: int) -> None:
        if described == self._described:
            return
        for what, first in self._described.items():
            if described[what] != first:
                raise InvalidArgumentError(
                    f"the environments of worker {index} differ from those of worker 0: {what} is "
                    f"{described[what]} where it is {first}; a pool holds environments of one kind"
                )

    def _make_core(self) -> _reverie.EnvPoolCore:
        action = self._described["action"]
        self._shape = {
            "observation": self._described["observation"],
            "action": ("", action["dtype"], action["shape"]),
            "info": self._info,
            "num_envs": self.num_envs,
            "num_batches": self.num_batches,
            "num_workers": self.num_workers,
            # What the worker needs beside the layout.
            "described_action": action,
            "structure": self._described["structure"],
        }
        core = _reverie.EnvPoolCore(
            self._workers,
            self._shape,
            self._spin_s,
            self._timeout_s,
            action.get("count"),
            self.batch_size,
        )
        if self._restarts_left > 0:
            pool = weakref.ref(self)
            core.set_on_failure(lambda index: _replace(pool(), index))
        return core


def at_exit() -> bool:
    """Whether the program ends: its main thread is over, and atexit callbacks run."""
    return not threading.main_thread().is_alive()


def _end(core: _reverie.EnvPoolCore, mails: list[rows.Mail | rows.ThreadMail]) -> None:
    core.close(_CLOSE_S, at_exit=at_exit())
    for mail in mails:
        mail.close()


def _check_spaces(first: tuple[Any, Any], other: tuple[Any, Any], index: int) -> None:
    for what, a, b in zip(("observation", "action"), first, other, strict=True):
        if a != b:
            raise InvalidArgumentError(
                f"the {what} space of worker {index}'s environments is {b}, and that of worker 0's "
                f"is {a}; a vector environment holds environments of one kind"
            )


def _replace(pool: ProcessPool | None, index: int) -> bool:
    """Whether a worker that failed was replaced."""
    if pool is None or pool._restarts_left <= 0:
        return False
    pool._restarts_left -= 1
    pool.restart(index)
    return True


def _share(num_envs: int, num_workers: int, index: int) -> tuple[int, int]:
    """The environments of a worker, as the native layout deals them out."""
    each, more = divmod(num_envs, num_workers)
    begin = index * each + min(index, more)
    return begin, begin + each + (index < more)


def _check_counts(
    num_envs: int, num_batches: int, num_workers: int, batch_size: int | None
) -> None:
    for name, value in (("num_envs", num_envs), ("num_batches", num_batches)):
        if not isinstance(value, int) or value < 1:
            raise InvalidArgumentError(
                f"{name} is {_checks.shown(value)}; it must be an integer of at least 1"
            )
    if not isinstance(num_workers, int) or not 1 <= num_workers <= num_envs:
        raise InvalidArgumentError(
            f"num_workers is {_checks.shown(num_workers)}; it must be between 1 and num_envs, "
            f"which is {num_envs}"
        )
    if batch_size is None:
        return
    if not 1 <= batch_size <= num_envs:
        raise InvalidArgumentError(
            f"batch_size is {batch_size}; it must be between 1 and num_envs, which is {num_envs}"
        )
    if num_batches > 1:
        raise InvalidArgumentError(
            f"num_batches is {num_batches} with batch_size {batch_size}; a pool that "
            "returns the first ready environments has one batch of num_envs "
            "environments, stepped in parts"
        )


def _env_error(
    text: str,
    worker_index: int,
    batch: int | None = None,
    env_id: int | None = None,
    traceback_text: str = "",
) -> EnvError:
    error = EnvError(text)
    error.worker, error.batch, error.env_id = worker_index, batch, env_id
    error.traceback_text = traceback_text
    return error
