"""Batches as NumPy, torch or JAX see them: the same memory on the CPU, copies on a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from reverie import _checks
from reverie.envs.backend import Backend, EnvBatch, EnvFuture
from reverie.errors import InvalidArgumentError, MissingPackageError


class Converter(Protocol):
    """Turns a backend's batch, of NumPy arrays, into what the user asked for."""

    keeps_memory: bool
    """Whether what it gives refers to the memory of what it was given."""

    def __call__(self, batch: EnvBatch) -> EnvBatch:
        """The batch in the user's framework."""

    def before_step(self) -> None:
        """Called before memory that was given out may be overwritten."""


def converter(output: str, device: object) -> Converter | None:
    """The converter for ``output`` and ``device``; None for NumPy as it is.

    Raises:
        InvalidArgumentError: an unknown output, or a device for NumPy.
        MissingPackageError: torch or JAX is not installed.
    """
    if isinstance(output, str) and output == "numpy":
        if device is not None:
            raise InvalidArgumentError(
                f'device is {device!r} with output "numpy"; devices are for "torch" and "jax"'
            )
        return None
    _checks.choice("output", output, ("numpy", "torch", "jax"))
    try:
        return _Torch(device) if output == "torch" else _Jax(device)
    except ModuleNotFoundError as error:
        raise MissingPackageError(f'output "{output}" needs {error.name}: install it') from None


class Converted:
    """``reset`` and ``step`` of a backend, with results that are converted."""

    def __init__(self, backend: Backend, convert: Converter) -> None:
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

    def __init__(self, future: EnvFuture, convert: Converter) -> None:
        self._future = future
        self._convert = convert

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> EnvBatch:
        return self._convert(self._future.result(timeout_s))


def _mapped(function: Callable[[Any], Any], nest: Any) -> Any:  # noqa: ANN401
    if isinstance(nest, dict):
        return {key: _mapped(function, value) for key, value in nest.items()}
    if isinstance(nest, (list, tuple)):
        return type(nest)(_mapped(function, value) for value in nest)
    return function(nest)


def _batch_of(function: Callable[[Any], Any], batch: EnvBatch) -> EnvBatch:
    fields = {
        field.name: _mapped(function, getattr(batch, field.name))
        for field in dataclasses.fields(EnvBatch)
    }
    return EnvBatch(**fields)


class _Torch:
    def __init__(self, device: object) -> None:
        import torch

        self._torch = torch
        self._device = None if device is None else torch.device(device)
        if self._device is not None and self._device.type == "cpu":
            self._device = None
        self._is_cuda = self._device is not None and self._device.type == "cuda"
        self.keeps_memory = self._device is None

    def __call__(self, batch: EnvBatch) -> EnvBatch:
        return _batch_of(self._torch.from_numpy if self._device is None else self._moved, batch)

    def _moved(self, array: Any) -> Any:  # noqa: ANN401
        view = self._torch.from_numpy(array)
        # Through locked memory, from where the device copies while the caller goes on; the next
        # step may overwrite the view at once.
        locked = view.pin_memory() if self._is_cuda else view
        return locked.to(self._device, non_blocking=self._is_cuda)

    def before_step(self) -> None:
        """Nothing is read later than it is given out."""


class _Jax:
    keeps_memory = True  # JAX's CPU devices may read the memory where it lies

    def __init__(self, device: object) -> None:
        import jax

        self._jax = jax
        self._device = device
        self._copies: list[Any] = []

    def __call__(self, batch: EnvBatch) -> EnvBatch:
        if self._device is None:
            return _batch_of(self._jax.dlpack.from_dlpack, batch)
        moved = _batch_of(lambda array: self._jax.device_put(array, self._device), batch)
        self._copies.append(dataclasses.astuple(moved))
        return moved

    def before_step(self) -> None:
        for moved in self._copies:
            self._jax.block_until_ready(moved)
        self._copies.clear()
