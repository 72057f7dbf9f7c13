"""The backend ``"vector"``: vector environments that others wrote, in this process.

Each batch is one Gymnasium ``VectorEnv``, stepped on a thread of its own, so that stepping overlaps
with whatever lets the interpreter's lock go. Worth it for those that step in native code, such as
ale-py's ``AtariVectorEnv``.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks
from reverie._nests import mapped
from reverie.envs import spaces
from reverie.envs.backend import EnvBatch, no_env_ids
from reverie.errors import (
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    MissingPackageError,
    UnsupportedTypeError,
)
from reverie.specs import TensorSpec


class VectorPool:
    """Batches of vector environments.

    Args:
        env: a Gymnasium id with a vector environment of its own, or a function that takes
            ``num_envs`` and gives a ``VectorEnv``. It must reset an environment whose episode
            ended in the same step, or not at all and take ``reset(options={"reset_mask": ...})``.
        num_envs: environments of one batch.
        num_batches: vector environments.
        env_kwargs: further keyword arguments of ``env``.
        seed: seeds the first reset: batch b gets ``seed + b * num_envs``.
        timeout_s: how long a step may take.
        info: names of numeric entries of the environments' info that become columns, those of the
            last step where an episode ended, or of the next reset if only that has them; see
            ``EnvPool``.
        refuse_nan: makes an observation with a NaN an ``EnvError``.
        copy: gives each result arrays of its own. Else they are those of the vector environment,
            which may use them again.

    Raises:
        UnsupportedTypeError: ``env`` makes no ``VectorEnv``, or one that resets a step late.
        InvalidArgumentError: a count is out of bounds.
    """

    def __init__(
        self,
        env: object,
        num_envs: int,
        *,
        num_batches: int = 1,
        env_kwargs: Mapping[str, object] | None = None,
        seed: int | None = None,
        timeout_s: float = 60.0,
        info: Sequence[str] | Mapping[str, object] | None = None,
        refuse_nan: bool = False,
        copy: bool = True,
    ) -> None:
        for name, value in (("num_envs", num_envs), ("num_batches", num_batches)):
            if value < 1:
                raise InvalidArgumentError(f"{name} is {value}; it must be at least 1")
        self.num_envs = num_envs
        self.num_batches = num_batches
        self._seed = seed
        self._timeout_s = timeout_s
        self._info = [_InfoColumn(num_envs, *column) for column in spaces.info_columns(info)]
        self._refuse_nan = refuse_nan
        self._own = _copied if copy else lambda nest: nest
        make = _maker(env, num_envs, dict(env_kwargs or {}))
        self._envs = [make() for _ in range(num_batches)]
        self._modes = [_reset_mode(one) for one in self._envs]
        first = self._envs[0]
        described = SimpleNamespace(
            observation_space=first.single_observation_space,
            action_space=first.single_action_space,
            spec=first.spec,
        )
        name = env if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
        self.spec = spaces.env_spec(spaces.describe(described, name))
        # A MultiDiscrete's actions are its own: a pool counts only a Discrete's from 0.
        self._start = self.spec.action_start
        # One thread a batch, so that a batch's calls come in their order.
        self._threads = [_BatchThread() for _ in self._envs]
        for thread in self._threads:
            weakref.finalize(self, thread.end)
        self._in_flight: list[Future[EnvBatch] | None] = [None] * num_batches
        self._is_reset = [False] * num_batches
        self._is_closed = False

    def reset(self, seed: int | None = None, *, batch: int = 0) -> _VectorFuture:
        """Reset every environment of a batch."""
        self._check(batch)
        if seed is None and self._seed is not None and not self._is_reset[batch]:
            seed = self._seed + batch * self.num_envs
        self._is_reset[batch] = True
        return self._submit(batch, lambda: self._reset(batch, seed))

    def step(
        self,
        actions: Any,  # noqa: ANN401
        batch: int = 0,
        *,
        env_ids: None = None,
    ) -> _VectorFuture:
        """Step every environment of a batch with its row of ``actions``, ``[B, ...]``."""
        if env_ids is not None:
            raise no_env_ids(env_ids)
        self._check(batch)
        running = self._in_flight[batch]
        if running is not None:
            raise FailedPreconditionError(
                f"batch {batch} is being stepped already; take that step's result first"
            )
        if not self._is_reset[batch]:
            return self.reset(batch=batch)
        given = self._checked(actions)
        return self._submit(batch, lambda: self._step(batch, given))

    def close(self) -> None:
        """Close the environments and end the threads.

        An environment that steps longer than ``timeout_s`` is left to itself, with a warning.
        """
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.ExitStack() as all_closed:  # also if one of them raises
            for batch, (env, thread) in enumerate(zip(self._envs, self._threads, strict=True)):
                thread.end()
                if thread.has_ended(self._timeout_s):
                    all_closed.callback(env.close)
                else:
                    logging.getLogger("reverie").warning(
                        "the vector environment of batch %d still steps after %g s; it is not "
                        "closed",
                        *(batch, self._timeout_s),
                    )

    def _check(self, batch: int) -> None:
        if self._is_closed:
            raise FailedPreconditionError("this pool is closed; make another")
        if not 0 <= batch < self.num_batches:
            raise InvalidArgumentError(
                f"batch is {batch}; it must be between 0 and {self.num_batches - 1}"
            )

    def _checked(self, actions: Any) -> npt.NDArray[Any]:  # noqa: ANN401
        if hasattr(actions, "detach"):
            actions = actions.detach().cpu()
        given = np.asarray(actions)
        wanted = (self.num_envs, *self.spec.action.shape)
        if given.shape != wanted:
            raise InvalidArgumentError(
                f"actions have shape {given.shape}; {self.num_envs} environments take {wanted}"
            )
        if not np.can_cast(given.dtype, self.spec.action.dtype, "same_kind"):
            raise UnsupportedTypeError(
                f"actions have dtype {given.dtype}; the environments take {self.spec.action.dtype}"
            )
        count = self.spec.action_count
        if count is not None and ((given < 0) | (given >= count)).any():
            worst = int(np.flatnonzero((given < 0) | (given >= count))[0])
            raise InvalidArgumentError(
                f"actions[{worst}] is {given[worst]}; actions are 0 to {count - 1}"
            )
        dtype = self.spec.action.dtype
        shifted: npt.NDArray[Any] = given.astype(dtype) + dtype.type(self._start)
        return shifted

    def _submit(self, batch: int, call: Callable[[], EnvBatch]) -> _VectorFuture:
        running = self._threads[batch].submit(call)
        self._in_flight[batch] = running
        return _VectorFuture(self, batch, running)

    def _reset(self, batch: int, seed: int | None) -> EnvBatch:
        try:
            observation, info = self._envs[batch].reset(seed=seed)
        except BaseException:
            self._is_reset[batch] = False  # the next step resets it
            raise
        over = np.zeros(self.num_envs, bool)
        return self._made(observation, np.zeros(self.num_envs), over, over.copy(), None, info)

    def _step(self, batch: int, actions: npt.NDArray[Any]) -> EnvBatch:
        env = self._envs[batch]
        observation, reward, terminated, truncated, info = env.step(actions)
        over = terminated | truncated
        final = begun = None
        if over.any():
            if self._modes[batch] == "Disabled":
                final = _copied(observation)
                # The reset may write to what the step gave.
                reward, terminated, truncated = map(np.array, (reward, terminated, truncated))
                observation, begun = env.reset(options={"reset_mask": over})
            else:
                final = _filled(observation, info["final_obs"], over)
        return self._made(observation, reward, terminated, truncated, final, info, begun)

    def _made(
        self,
        observation: Any,  # noqa: ANN401
        reward: npt.NDArray[Any],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        final: Any,  # noqa: ANN401
        info: Mapping[str, Any],
        begun: Mapping[str, Any] | None = None,  # the info of the reset of those that ended
    ) -> EnvBatch:
        own = self._own
        if self._refuse_nan and (_has_nan(observation) or _has_nan(final)):
            raise InvalidArgumentError(
                "the observation holds a NaN, which the pool was told to refuse"
            )
        observation = own(observation)
        return EnvBatch(
            observation=observation,
            reward=own(np.asarray(reward, np.float32)),
            terminated=own(terminated),
            truncated=own(truncated),
            final_observation=observation if final is None else own(final),
            env_ids=np.arange(self.num_envs, dtype=np.int32),
            info={
                column.name: column.of(info, begun, terminated | truncated) for column in self._info
            },
        )


class _InfoColumn:
    """One entry of info as an array: NaN, or 0 of integers, for environments without it."""

    def __init__(self, count: int, name: str, spec: TensorSpec) -> None:
        self.name = name
        self._path = name.split("/")
        shape = [size for size in spec.shape if size is not None]
        if len(shape) < len(spec.shape):
            raise InvalidArgumentError(f"info[{name!r}] is {spec}; its shape must be known")
        empty = np.nan if spec.dtype.kind == "f" else 0
        self._missing = np.full((count, *shape), empty, spec.dtype)

    def of(
        self,
        info: Mapping[str, Any],
        begun: Mapping[str, Any] | None,
        over: npt.NDArray[np.bool_],
    ) -> npt.NDArray[Any]:
        """The environments' entries; of one whose episode ended, that of its last step."""
        made = self._missing.copy()
        every = np.ones(len(made), bool)
        if begun is not None:
            self._fill(made, begun, over)  # first: an entry of the step is laid over it
        self._fill(made, info, every)
        if "final_info" in info:
            self._fill(made, info["final_info"], np.asarray(info.get("_final_info", every), bool))
        return made

    def _fill(self, made: npt.NDArray[Any], info: Any, rows: npt.NDArray[np.bool_]) -> None:  # noqa: ANN401
        for key in self._path:
            if not isinstance(info, Mapping) or key not in info:
                return
            rows = rows & np.asarray(info.get(f"_{key}", rows), bool)
            info = info[key]
        given = np.asarray(info)
        if given.shape != made.shape:
            raise InvalidArgumentError(
                f"info[{self.name!r}] has shape {given.shape}, and {made.shape} was asked for"
            )
        made[rows] = given[rows]


class _BatchThread:
    """Runs the calls of one batch, in their order. One that hangs does not hold up the exit."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[EnvBatch], Callable[[], EnvBatch]] | None]
        self._calls = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_run_calls, args=(self._calls,), name="reverie-vector-env", daemon=True
        )
        self._thread.start()

    def submit(self, call: Callable[[], EnvBatch]) -> Future[EnvBatch]:
        future: Future[EnvBatch] = Future()
        self._calls.put((future, call))
        return future

    def end(self) -> None:
        """It ends after the calls before."""
        self._calls.put(None)

    def has_ended(self, timeout_s: float) -> bool:
        """Waits for it."""
        self._thread.join(min(timeout_s, threading.TIMEOUT_MAX))
        return not self._thread.is_alive()


def _run_calls(
    calls: queue.SimpleQueue[tuple[Future[EnvBatch], Callable[[], EnvBatch]] | None],
) -> None:
    while True:
        taken = calls.get()
        if taken is None:
            return
        future, call = taken
        try:
            future.set_result(call())
        except BaseException as error:  # its caller is to know
            future.set_exception(error)
        del taken, future, call  # an idle thread holds no batch, and no pool


class _VectorFuture:
    """A step under way on a batch's thread."""

    def __init__(self, pool: VectorPool, batch: int, running: Future[EnvBatch]) -> None:
        self._pool = pool
        self._batch = batch
        self._running = running

    def done(self) -> bool:
        """Whether ``result`` would return at once."""
        return self._running.done()

    def result(self, timeout_s: float | None = None) -> EnvBatch:
        """Wait for the batch; see ``EnvFuture``."""
        limit_s = self._pool._timeout_s if timeout_s is None else timeout_s
        # Waits first: the environment may itself raise a TimeoutError.
        if not wait([self._running], min(limit_s, threading.TIMEOUT_MAX)).done:
            raise DeadlineExceededError(
                f"batch {self._batch} is not ready within {limit_s:g} s; its vector "
                "environment still steps: wait again with a longer timeout_s"
            )
        self._taken()
        try:
            return self._running.result()
        except Exception as error:
            failed = EnvError(f"the vector environment of batch {self._batch} raised: {error!r}")
            failed.batch = self._batch
            raise failed from error

    def _taken(self) -> None:
        if self._pool._in_flight[self._batch] is self._running:
            self._pool._in_flight[self._batch] = None


def _maker(env: object, num_envs: int, kwargs: dict[str, object]) -> Callable[[], Any]:
    try:
        import gymnasium
    except ModuleNotFoundError:
        raise MissingPackageError("vector environments need: pip install gymnasium") from None
    if not isinstance(env, str):
        if not callable(env):
            raise InvalidArgumentError(
                f"env is {_checks.shown(env)}; give a Gymnasium id, or a function that makes a "
                "VectorEnv"
            )
        return lambda: env(num_envs=num_envs, **kwargs)
    if env.startswith("ALE/"):
        import ale_py

        gymnasium.register_envs(ale_py)
    kwargs.setdefault("autoreset_mode", gymnasium.vector.AutoresetMode.SAME_STEP)
    return lambda: gymnasium.make_vec(
        env, num_envs, vectorization_mode="vector_entry_point", **kwargs
    )


def _reset_mode(env: Any) -> str:  # noqa: ANN401
    if not hasattr(env, "single_observation_space") or not hasattr(env, "num_envs"):
        raise UnsupportedTypeError(
            f'backend "vector" steps vector environments; {_checks.shown(env)} is not one: use '
            'backend "process"'
        )
    mode = env.metadata.get("autoreset_mode")
    name = str(getattr(mode, "value", mode))
    if name not in ("SameStep", "Disabled"):
        raise UnsupportedTypeError(
            f"{_checks.shown(env)} has the autoreset mode {name}, which resets an environment a "
            "step late; make it with autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP"
        )
    return name


def _has_nan(nest: Any) -> bool:  # noqa: ANN401
    if isinstance(nest, dict):
        return any(_has_nan(value) for value in nest.values())
    if isinstance(nest, tuple):
        return any(_has_nan(value) for value in nest)
    array = np.asarray(nest)
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _copied(nest: Any) -> Any:  # noqa: ANN401
    return mapped(nest, np.array)


def _filled(observation: Any, final: Any, over: npt.NDArray[np.bool_]) -> Any:  # noqa: ANN401
    """The last observations as a nest like ``observation``, from any form that Gymnasium uses."""
    if not (isinstance(final, np.ndarray) and final.dtype == object):
        return final
    filled = _copied(observation)
    for index in np.flatnonzero(over):
        _put(filled, int(index), final[index])
    return filled


def _put(nest: Any, index: int, value: Any) -> None:  # noqa: ANN401
    if isinstance(nest, dict):
        for key, inner in nest.items():
            _put(inner, index, value[key])
    elif isinstance(nest, tuple):
        for inner, one in zip(nest, value, strict=True):
            _put(inner, index, one)
    else:
        nest[index] = value
