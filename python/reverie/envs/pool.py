"""``reverie.EnvPool``: many environments stepped together, of any kind."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from reverie import _checks
from reverie._closing import Closing
from reverie._hot_methods import take_methods
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.envs import output as outputs
from reverie.envs.backend import Backend, EnvFuture, EnvSpec
from reverie.errors import (
    InvalidArgumentError,
    UnimplementedError,
    UnsupportedTypeError,
)

_BACKENDS = ("auto", "native", "process", "thread", "vector")


class EnvPool(ProcessBound, Closing):
    """``num_batches`` batches of ``num_envs`` environments, each stepped as a whole.

    Actions go in as one array, observations come out as one. While a batch is stepped, the actions
    of another can be computed. See docs/concepts/env_pool.md. A subclass may override any method;
    if it does not, ``step`` and ``reset`` run no Python code in between.

    Args:
        env: a Gymnasium id (``"package.module:Id"`` imports the module first), an ``EnvSpec``, a
            function or class that makes an environment, or a list of them, one per environment.
            With ``backend="vector"`` it is called with ``num_envs``, and makes a Gymnasium
            ``VectorEnv``.
        num_envs: environments per batch.
        num_batches: batches that can be in flight at the same time.
        num_workers: worker processes (threads of a native pool); ``None`` chooses by the cores.
            Environments that wait rather than compute need one each, ``num_workers=num_envs``.
        backend: ``"process"`` runs any environment in worker processes over shared memory,
            ``"native"`` one of ``reverie.envs.native.ids()`` in C++, ``"vector"`` a vector
            environment in this process; ``"auto"`` is native if there is one and otherwise
            processes. ``"thread"`` is for environments that wait rather than compute: threads of
            this process, one per environment but at most 32 unless ``num_workers`` is given.
        env_kwargs: keyword arguments of the environment.
        seed: seeds the first reset, or the step that resets instead: environment i of batch b gets
            ``seed + b * num_envs + i``.
        batch_size: less than ``num_envs``: a result then has the first ``batch_size`` environments
            that are ready, named in ``env_ids``, and ``step(actions, env_ids=ids)`` steps some.
        timeout_s: how long a step may take, and a worker to start.
        output: ``"numpy"``, ``"torch"`` or ``"jax"``: the library of a batch's arrays.
        device: a device of torch or JAX; a copy to a GPU continues while the caller does something
            else.
        info: names of numeric entries of the environments' info that become columns of float64
            (``"episode/r"`` for nested ones), or a mapping of names to dtypes or ``TensorSpec``.
        refuse_nan: makes an observation with a NaN an ``EnvError``; else it is passed on.
        restarts: how many times a failed worker process is replaced automatically. Threads cannot
            be replaced: 0 with ``backend="thread"``.
        copy: gives each result its own arrays, which no later step changes. ``False`` avoids the
            copy: arrays are views of the pool's memory, which the next step of the batch
            overwrites, and a replay buffer or writer refuses a NumPy view that was overwritten.
            With ``batch_size``, or a ``device`` other than the CPU, they are copies anyway.
        wrappers: functions that each environment is passed through, in this order.

    Raises:
        NotFoundError: there is no environment of that id; near ones are named.
        EnvError: an environment cannot be made; with its traceback.
        InvalidArgumentError: a count out of bounds, an ``env`` that cannot make an environment, or
            one that a worker can neither import nor receive.
        DeadlineExceededError: a worker does not start within ``timeout_s``.
    """

    _stays_because = (
        "an EnvPool lives in this process and cannot be pickled or copied; make one in the "
        "other process"
    )

    def __init__(
        self,
        env: object,
        num_envs: int,
        *,
        num_batches: int = 1,
        num_workers: int | None = None,
        backend: str = "auto",
        env_kwargs: Mapping[str, object] | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        timeout_s: float = 60.0,
        output: str = "numpy",
        device: object = None,
        info: Sequence[str] | Mapping[str, object] | None = None,
        refuse_nan: bool = False,
        restarts: int = 0,
        copy: bool = True,
        wrappers: Sequence[object] = (),
    ) -> None:
        _checks.choice("backend", backend, _BACKENDS)
        num_envs = _checks.integer("num_envs", num_envs)
        num_batches = _checks.integer("num_batches", num_batches)
        if num_workers is not None:
            num_workers = _checks.integer("num_workers", num_workers, 0)
        if env_kwargs is not None:
            env_kwargs = _checks.mapping("env_kwargs", env_kwargs, "values by keyword")
            for name in env_kwargs:
                _checks.text("a key of env_kwargs", name)
        if seed is not None:
            seed = _checks.integer("seed", seed, 0)
        if batch_size is not None:
            batch_size = _checks.integer("batch_size", batch_size)
        timeout_s = _checks.number("timeout_s", timeout_s, 0.0, finite=False)
        _checks.flag("refuse_nan", refuse_nan)
        restarts = _checks.integer("restarts", restarts, 0)
        _checks.flag("copy", copy)
        wrappers = [
            _checks.function("an entry of wrappers", wrapper)
            for wrapper in _checks.items("wrappers", wrappers, "functions")
        ]
        self._fork_guard = ForkGuard()
        convert = outputs.converter(output, device)
        # If the converter copies immediately, the backend need not copy.
        backend_copies = copy and (convert is None or convert.keeps_memory)
        needs_workers = {
            "batch_size": batch_size is not None,
            "info": info is not None,
            "refuse_nan": refuse_nan,
            "restarts": restarts > 0,
            "wrappers": bool(wrappers),
        }
        made: Backend | None = None
        if backend in ("auto", "native"):
            asked = [name for name, is_asked in needs_workers.items() if is_asked]
            made = _native(
                env,
                num_envs,
                backend == "native",
                asked,
                {
                    "num_batches": num_batches,
                    "num_threads": num_workers,
                    "first_step_resets": True,
                    "seed": seed,
                    "timeout_s": timeout_s,
                    "copy": backend_copies,
                },
                env_kwargs or {},
            )
        self.backend = "native"
        if made is None and backend == "vector":
            from reverie.envs.vector import VectorPool

            self.backend = "vector"
            if batch_size is not None:
                raise InvalidArgumentError(
                    'batch_size is for backend="process"; a vector environment steps all of a batch'
                )
            for name, value in {"num_workers": num_workers, "restarts": restarts or None}.items():
                if value is not None:
                    raise InvalidArgumentError(
                        f'{name} is {value}; backend="vector" has no workers: leave it out'
                    )
            if wrappers:
                raise InvalidArgumentError(
                    f"wrappers is {_checks.shown(wrappers)}; a vector environment has no single "
                    "environments: wrap them in the function that makes it"
                )
            made = VectorPool(
                env,
                num_envs,
                num_batches=num_batches,
                env_kwargs=env_kwargs,
                seed=seed,
                timeout_s=timeout_s,
                info=info,
                refuse_nan=refuse_nan,
                copy=backend_copies,
            )
        elif made is None:
            from reverie.envs.process import ProcessPool
            from reverie.envs.thread import ThreadPool

            self.backend = "thread" if backend == "thread" else "process"
            if backend == "thread" and restarts > 0:
                raise InvalidArgumentError(
                    f'restarts is {restarts}; backend="thread" cannot replace a worker: leave it '
                    'out, or use backend="process"'
                )
            made = (ThreadPool if backend == "thread" else ProcessPool)(
                env,
                num_envs,
                num_batches=num_batches,
                num_workers=num_workers,
                env_kwargs=env_kwargs,
                seed=seed,
                batch_size=batch_size,
                timeout_s=timeout_s,
                info=info,
                refuse_nan=refuse_nan,
                restarts=restarts,
                copy=backend_copies,
                wrappers=wrappers,
            )
        self._backend = made
        self.spec: EnvSpec = made.spec
        self.num_envs: int = made.num_envs
        self.num_batches: int = made.num_batches
        self.copy: bool = copy
        self.batch_size: int = made.num_envs if batch_size is None else batch_size
        self._stepper: Any = made if convert is None else outputs.Converted(made, convert)
        take_methods(self, EnvPool, self._stepper, ("reset", "step"))

    def reset(self, seed: int | None = None, *, batch: int = 0) -> EnvFuture:
        """Reset every environment of a batch; environment i gets the seed ``seed + i``.

        A step of the batch that is in flight is abandoned. Environments that raised are made again.
        """
        started: EnvFuture = self._stepper.reset(seed, batch=batch)
        return started

    def step(self, actions: Any, batch: int = 0, *, env_ids: Any = None) -> EnvFuture:  # noqa: ANN401
        """Step every environment of a batch with its row of ``actions``, ``[B, ...]``.

        An environment that was never reset is reset instead; so is one whose episode ends, in the
        same step: its ``observation`` is the first of the next episode, ``final_observation`` the
        last of the one that ended.

        Args:
            actions: ``[B]`` integers, or ``[B, ...]`` of ``spec.action``; NumPy, torch or JAX.
            batch: which batch.
            env_ids: with ``batch_size``: the environments of the rows. ``None``: all.

        Raises:
            InvalidArgumentError: actions of another shape or out of range; nothing was stepped.
            FailedPreconditionError: the batch is in flight already.
        """
        options = {} if env_ids is None else {"env_ids": env_ids}
        started: EnvFuture = self._stepper.step(actions, batch, **options)
        return started

    def restart(self, worker: int | None = None) -> None:
        """Replace a worker process; without a number, all that have ended.

        Its environments begin new episodes. Steps in flight are returned as ``truncated``, with the
        last known observation as ``final_observation`` and reward 0; environments that had finished
        their step keep its reward, and the end of their episode if it ended. Other workers are not
        affected.
        """
        self._fork_guard.check("EnvPool")
        restart = getattr(self._backend, "restart", None)
        if restart is None:
            raise UnimplementedError(f"the {self.backend} backend has no workers to restart")
        restart(None if worker is None else _checks.integer("worker", worker, 0))

    def render(self, env_index: int = 0, batch: int = 0) -> Any:  # noqa: ANN401
        """A picture of one environment's current state: ``[H, W, 3]`` uint8, top row first.

        Native environments draw themselves.

        Raises:
            UnimplementedError: the backend is another, or the environment draws nothing.
            InvalidArgumentError: there is no such environment or batch.
            FailedPreconditionError: a step of the batch runs, or it was never reset.
        """
        render = getattr(self._backend, "render", None)
        if render is None:
            raise UnimplementedError(
                f"the {self.backend} backend does not draw; to see a policy play, make one "
                'environment with render_mode="rgb_array" in this process and step it'
            )
        return render(env_index, batch)

    @property
    def restart_count(self) -> int:
        """The number of workers that were replaced so far."""
        self._fork_guard.check("EnvPool")
        return getattr(self._backend, "restart_count", 0)

    @property
    def worker_pids(self) -> list[int | None]:
        """The process of each worker, None where it has ended; empty without worker processes."""
        self._fork_guard.check("EnvPool")
        return getattr(self._backend, "worker_pids", [])

    def close(self) -> None:
        """Stop what was started. Idempotent; any other call after it raises."""
        self._backend.close()

    def __repr__(self) -> str:
        return (
            f"<EnvPool of {self.num_batches} x {self.num_envs} {self.spec.id}, "
            f"backend {self.backend}>"
        )


def _native(
    env: object,
    num_envs: int,
    is_asked_for: bool,
    needs_workers: list[str],
    options: dict[str, Any],
    env_kwargs: Mapping[str, object],
) -> Backend | None:
    """A native pool; None where worker processes are to do it."""
    if not isinstance(env, str):
        if is_asked_for:
            raise InvalidArgumentError(
                f"env is {_checks.shown(env)}; native environments are asked for by their id"
            )
        return None
    try:
        native: Any = importlib.import_module("reverie.envs.native")
    except ModuleNotFoundError:
        if is_asked_for:
            raise UnimplementedError("this build has no native environments") from None
        return None
    if is_asked_for and needs_workers:
        raise InvalidArgumentError(f'{needs_workers[0]} is for backend="process"')
    if not is_asked_for and (needs_workers or env not in native.ids()):
        return None
    try:
        made: Backend = native.NativePool(env, num_envs, **options, **env_kwargs)
    except (InvalidArgumentError, UnsupportedTypeError, TypeError):
        # An option that only the original understands.
        if is_asked_for or not env_kwargs:
            raise
        return None
    return made
