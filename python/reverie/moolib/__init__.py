"""Moolib's calls over Reverie's parts, for programs that are written against them.

    pool = reverie.moolib.EnvPool(create_env, num_processes=4, batch_size=32, num_batches=2)
    outputs = pool.step(batch_index, action).result()   # {"state": ..., "reward": ..., "done": ...}

    host = reverie.moolib.Rpc()
    host.set_name("host")
    host.define("add", lambda a, b: a + b)
    host.listen("127.0.0.1:4431")

What differs: an ``Rpc`` listens where other machines reach it only with a token or
``insecure=True``; a function that raises gives its caller an error, and a peer that dies does so
within two seconds; NumPy arrays travel, and objects by pickle only where all peers say so:
``configure(token=..., allow_pickle=True)`` says both for a whole program. Environments may be
moolib's, with ``reset() -> obs`` and ``step(action) -> (obs, reward, done)``, or Gymnasium's.
Workers are fresh processes: a closure travels to them as its definition, so what it holds must be
able to; results keep their values when the pool steps on (unless
``copy=False``); a pool can be made at any time; an environment that raises, a
worker that dies and a step that takes too long are errors at once.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks
from reverie._closing import Closing
from reverie.batcher import Batcher as _Batcher
from reverie.envs.actions import counted_from_zero
from reverie.envs.adapters import ClassicEnv
from reverie.envs.backend import EnvBatch, EnvFuture
from reverie.envs.pool import EnvPool as _EnvPool
from reverie.errors import UnsupportedTypeError
from reverie.moolib_groups import Accumulator, AllReduce, Broker, Group
from reverie.moolib_rpc import Future, Queue, Rpc, RpcDeferredReturn
from reverie.moolib_settings import (
    RpcError,
    WrongArgumentError,
    WrongTypeError,
    configure,
    create_uid,
    set_log_level,
    set_logging,
    set_max_threads,
)
from reverie.moolib_settings import called as _called

__all__ = [
    "Accumulator",
    "AllReduce",
    "Batcher",
    "Broker",
    "EnvPool",
    "EnvRunner",
    "EnvStepper",
    "EnvStepperFuture",
    "Future",
    "Group",
    "Queue",
    "Rpc",
    "RpcDeferredReturn",
    "RpcError",
    "WrongArgumentError",
    "WrongTypeError",
    "configure",
    "create_uid",
    "set_log_level",
    "set_logging",
    "set_max_threads",
]


class Batcher(_Batcher):
    """As ``reverie.Batcher``, with a queue that does not fill and waits that do not end.

    A program that adds and takes in one thread goes on, however much it adds first. Arrays are
    batched, and NumPy's numbers; Python's, like all else, stay those of a batch's first item.
    Dicts, lists and tuples of other types come back as plain ones.

    Args:
        size: rows of a batch.
        device: where batches lie.
        dim: the dimension along which items are put together.
        options: the others of ``reverie.Batcher``.

    Raises:
        InvalidArgumentError: a number out of bounds.
        MissingPackageError: the library of ``output`` is not installed.
    """

    def __init__(self, size: int, device: object = "cpu", dim: int = 0, **options: Any) -> None:  # noqa: ANN401
        options = {**_UNBOUNDED, **options}
        _called(partial(super().__init__, size, device, dim, **options))

    def stack(self, nest: object) -> None:
        """As ``reverie.Batcher.stack``; what it refuses is a ``RuntimeError`` too."""
        _called(self._core.stack, self._held(nest))

    def cat(self, nest: object) -> None:
        """As ``reverie.Batcher.cat``; what it refuses is a ``RuntimeError`` too."""
        _called(self._core.cat, self._held(nest))

    def get(self, timeout_s: float | None = None) -> Any:  # noqa: ANN401
        """As ``reverie.Batcher.get``."""
        return self._freed(self._core.get(timeout_s))

    async def _take(self) -> Any:  # noqa: ANN401
        return self._freed(await super()._take())

    def _held(self, nest: object) -> object:
        if not _has_number(nest):
            return nest
        return _mapped(nest, lambda leaf: _Number(leaf) if _is_number(leaf) else leaf)

    def _freed(self, batch: object) -> object:
        return _mapped(batch, lambda leaf: leaf.value if isinstance(leaf, _Number) else leaf)


def _is_number(leaf: object) -> bool:
    """Whether it is one of Python's; NumPy's count as arrays, float64 too."""
    return isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic)


class _Number:
    """A number that is not to become an array."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


def _has_number(nest: object) -> bool:
    if isinstance(nest, dict):
        return any(map(_has_number, nest.values()))
    if isinstance(nest, (list, tuple)):
        return any(map(_has_number, nest))
    return _is_number(nest)


def _mapped(nest: object, function: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Dicts, lists and tuples become plain ones, as moolib's do."""
    if isinstance(nest, dict):
        return {key: _mapped(value, function) for key, value in nest.items()}
    if isinstance(nest, list):
        return [_mapped(value, function) for value in nest]
    if isinstance(nest, tuple):
        return tuple(_mapped(value, function) for value in nest)
    return function(nest)


_UNBOUNDED = {"queue_size": 1 << 30, "timeout_s": math.inf}


class EnvPool(Closing):
    """Batches of environments in worker processes.

    Args:
        create_env: makes an environment, moolib's or Gymnasium's; or a Gymnasium id.
        num_processes: worker processes.
        batch_size: environments of one batch.
        num_batches: batches that can be in flight at the same time.
        output: ``"torch"`` or ``"numpy"``; ``None`` is torch where it is installed.
        timeout_s: how long a step may take.
        copy: gives each result arrays of its own. ``False`` is moolib's way: views of the pool's
            memory, which the next step of the batch overwrites.
    """

    def __init__(
        self,
        create_env: Callable[[], Any] | str,
        num_processes: int,
        batch_size: int,
        num_batches: int,
        *,
        output: str | None = None,
        timeout_s: float = 60.0,
        copy: bool = True,
    ) -> None:
        num_processes = _checks.integer("num_processes", num_processes)
        batch_size = _checks.integer("batch_size", batch_size)
        if output is None:
            output = "torch" if importlib.util.find_spec("torch") else "numpy"
        self._pool = _EnvPool(
            create_env,
            batch_size,
            num_batches=num_batches,
            num_workers=min(num_processes, batch_size),
            backend="process",
            wrappers=[ClassicEnv],
            output=output,
            timeout_s=timeout_s,
            copy=copy,
        )
        self._begun: set[int] = set()  # batches that were stepped

    def step(self, batch_index: int, action: Any) -> EnvStepperFuture:  # noqa: ANN401
        """Step one batch. The first step of an environment resets it and ignores the action."""
        last = self._pool.num_batches - 1
        index = _called(_checks.integer, "batch_index", batch_index, 0, last)
        # moolib's environments get the number that was given; a pool of ours counts from 0.
        if index in self._begun:
            action = _called(counted_from_zero, action, self._pool.spec)
        elif self._pool.spec.action_start != 0:  # programs begin with zeros, of any space
            action = np.zeros(self._pool.batch_size, np.int64)
        future = EnvStepperFuture(_called(self._pool.step, action, index))
        self._begun.add(index)
        return future

    def close(self) -> None:
        """End the workers."""
        self._pool.close()


class EnvStepperFuture:
    """A step under way."""

    def __init__(self, future: EnvFuture) -> None:
        if not hasattr(future, "result") or not hasattr(future, "done"):
            raise UnsupportedTypeError(
                f"future is {_checks.shown(future)}; it must be that of a pool's step()"
            )
        self._future = future

    def done(self) -> bool:
        """Whether ``result`` would return at once."""
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The observation's entries, or ``state``; ``reward`` and ``done``.

        Where an episode was cut off ``done`` is set too, as Gym's first interface had it.
        """
        batch: EnvBatch = self._future.result(timeout_s)
        state = batch.observation
        outputs = dict(state) if isinstance(state, dict) else {"state": state}
        done: npt.NDArray[np.bool_] = batch.terminated | batch.truncated
        return {**outputs, "reward": batch.reward, "done": done}


class EnvRunner:
    """The part of moolib's ``EnvPool`` that runs environments; only its name is here.

    Raises:
        UnsupportedTypeError: always. Moolib's class has no constructor either.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:  # noqa: ARG002
        raise UnsupportedTypeError(_NO_CONSTRUCTOR.format("EnvRunner"))


class EnvStepper:
    """The part of moolib's ``EnvPool`` that steps its batches; only its name is here.

    Raises:
        UnsupportedTypeError: always. Moolib's class has no constructor either.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:  # noqa: ARG002
        raise UnsupportedTypeError(_NO_CONSTRUCTOR.format("EnvStepper"))


_NO_CONSTRUCTOR = "{} has no constructor, as in moolib; make an EnvPool, and call its step()"


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """``moolib.broker``, loaded when it is asked for."""
    if name == "broker":
        return importlib.import_module("reverie.moolib.broker")
    raise AttributeError(f"module 'reverie.moolib' has no attribute {name!r}")
