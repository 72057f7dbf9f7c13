"""Batches as NumPy, torch or JAX see them: the same memory on the CPU, copies on a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from reverie import _checks, frameworks
from reverie._nests import mapped
from reverie.envs.backend import Backend, EnvBatch, EnvFuture
from reverie.frameworks import Convert
from reverie.packages import import_package


class BatchConverter:
    """Turns a backend's batch, of NumPy arrays, into what the user asked for."""

    keeps_memory: bool
    """Whether what it gives refers to the memory of what it was given."""

    def __init__(self, convert: Convert, *, keeps_memory: bool, finish: Convert | None) -> None:
        self._convert = convert
        self._finish = finish
        self._unfinished: list[Any] = []
        self.keeps_memory = keeps_memory

    def __call__(self, batch: EnvBatch) -> EnvBatch:
        """The batch in the user's framework."""
        made = _batch_of(self._convert, batch)
        if self._finish is not None:
            self._unfinished.append(dataclasses.astuple(made))
        return made

    def before_step(self) -> None:
        """Called before memory that was given out may be overwritten."""
        if self._finish is not None:
            for made in self._unfinished:
                self._finish(made)
            self._unfinished.clear()


def converter(output: str, device: object) -> BatchConverter | None:
    """The converter for ``output`` and ``device``; None for NumPy as it is.

    Raises:
        InvalidArgumentError: an unknown output, or a device for NumPy.
        MissingPackageError: torch or JAX is not installed.
    """
    # Through pinned memory, so that the copy to a GPU is asynchronous.
    place = _checks.written("device", device, "a device of torch or JAX, or its name")
    convert = frameworks.converter(output, device, pinned=place not in ("None", "cpu"))
    if convert is None:
        return None
    if output == "torch":
        is_here = device is None or import_package("torch").device(device).type == "cpu"
        return BatchConverter(convert, keeps_memory=is_here, finish=None)
    # JAX's CPU devices may read the memory in place, after device_put has returned.
    wait = None if device is None else import_package("jax").block_until_ready
    return BatchConverter(convert, keeps_memory=True, finish=wait)


class Converted:
    """``reset`` and ``step`` of a backend, with results that are converted."""

    def __init__(self, backend: Backend, convert: BatchConverter) -> None:
        self._backend = backend
        self._convert = convert

    def reset(self, seed: int | None = None, *, batch: int = 0) -> EnvFuture:
        """As ``EnvPool.reset``."""
        self._convert.before_step()
        return _Future(self._backend.reset(seed, batch=batch), self._convert)

    def step(self, actions: Any, batch: int = 0, **options: Any) -> EnvFuture:  # noqa: ANN401
        """As ``EnvPool.step``."""
        self._convert.before_step()
        return _Future(self._backend.step(actions, batch, **options), self._convert)


class _Future:
    __slots__ = ("_convert", "_future")

    def __init__(self, future: EnvFuture, convert: BatchConverter) -> None:
        self._future = future
        self._convert = convert

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> EnvBatch:
        return self._convert(self._future.result(timeout_s))


def _batch_of(function: Callable[[Any], Any], batch: EnvBatch) -> EnvBatch:
    fields = {
        field.name: mapped(getattr(batch, field.name), function)
        for field in dataclasses.fields(EnvBatch)
    }
    return EnvBatch(**fields)
