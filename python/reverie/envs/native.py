"""Environments in C++, stepped in this process: no Python runs for a step, and no other process.

    with NativePool("CartPole-v1", 64, seed=7) as pool:
        batch = pool.reset().result()
        while True:
            batch = pool.step(policy(batch.observation)).result()

``ids()`` lists them. See docs/concepts/env.md for how they compare with Gymnasium's.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks, _reverie
from reverie._closing import Closing
from reverie._options import OptionValue
from reverie._process_bound import ProcessBound
from reverie.envs.backend import EnvBatch, EnvFuture, EnvSpec, no_env_ids
from reverie.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    ReverieError,
    UnsupportedTypeError,
)
from reverie.specs import TensorSpec

__all__ = ["NativePool", "ids", "load_plugin", "spec"]

# The environments that need Box2D, in a plugin that a build without it lacks.
_BOX2D = Path(__file__).parent.parent / "_box2d_envs.so"

_MODES = ("SameStep", "NextStep", "Disabled")

load_plugin = _reverie.load_plugin


class _Bundled:
    """The plugin that comes with the package: loaded once, when first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_loaded = False
        self.reason = ""  # why it is not there

    def load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True
        if not self._path.exists():
            self.reason = "this build has no Box2D, which LunarLander needs"
            return
        try:
            load_plugin(str(self._path))
        except AlreadyExistsError:
            pass
        except ReverieError as error:
            self.reason = f"LunarLander is left out: {error}"


_box2d = _Bundled(_BOX2D)


def ids() -> list[str]:
    """The names of the native environments, those of loaded plugins among them."""
    _box2d.load()
    return _reverie.native_env_ids()


def spec(env_id: str, /, **options: OptionValue) -> EnvSpec:
    """Describes one environment.

    Args:
        env_id: its name, one of ``ids()``.
        options: keyword arguments of the environment, as for ``NativePool``.

    Raises:
        NotFoundError: there is no environment of that name; the message has the nearest names.
        InvalidArgumentError: an option is unknown, or its value out of bounds.
    """
    _box2d.load()
    try:
        return _spec_of(_reverie.native_env_spec(env_id, _checked(options)))
    except NotFoundError as error:
        raise _explained(error) from None


class NativePool(ProcessBound, Closing):
    """Batches of native environments. A ``Backend``.

    Args:
        env_id: the environment's name, one of ``ids()``.
        num_envs: environments per batch.
        num_batches: batches, which are stepped independently of each other.
        num_threads: threads that step. 0 steps on the caller's thread, inside ``step``; 1 on one of
            the pool's. More include the thread that waits in ``result``: it steps while it waits.
            None decides by the cost of a step: 0 for classic control and for a single environment,
            one per core for LunarLander.
        seed: environment ``i`` of batch ``b`` draws from the seed ``seed + b * num_envs + i``. None
            takes seeds from the system.
        first_step_resets: whether the first step of a batch that was never reset resets it,
            ignoring its actions; else it is refused.
        timeout_s: the default limit of a wait.
        copy: gives each result its own arrays. Else they are views of the pool's memory, which the
            next step of the batch overwrites.
        autoreset_mode: when an environment whose episode ended is reset, by Gymnasium's names.
            ``"SameStep"`` resets it at once. ``"NextStep"`` shows its last observation as
            ``observation`` and resets it in the next step, ignoring the action.
            ``"Disabled"`` shows the same, and refuses steps until ``reset_some`` has reset it. With
            both ``final_observation`` is meaningless.
        options: keyword arguments of the environment, such as ``enable_wind=True``.

    Raises:
        NotFoundError: there is no environment of that name; the message has the nearest names.
        InvalidArgumentError: a count, an option or its value is out of bounds.
        UnsupportedTypeError: an argument has a wrong type.
    """

    _stays_because = (
        "a NativePool lives in this process and cannot be pickled or copied; make one in the "
        "other process"
    )

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        num_batches: int = 1,
        num_threads: int | None = None,
        seed: int | None = None,
        first_step_resets: bool = False,
        timeout_s: float = 60.0,
        copy: bool = True,
        autoreset_mode: str = "SameStep",
        **options: OptionValue,
    ) -> None:
        timeout_s = _checks.number("timeout_s", timeout_s, 0.0, finite=False)
        _checks.flag("first_step_resets", first_step_resets)
        _checks.flag("copy", copy)
        _box2d.load()
        try:
            self._native = _reverie.NativePool(
                env_id,
                num_envs,
                num_batches,
                num_threads,
                seed,
                first_step_resets,
                _checks.choice("autoreset_mode", autoreset_mode, _MODES),
                _checked(options),
                timeout_s,
                EnvBatch,
                copy,
            )
        except NotFoundError as error:
            raise _explained(error) from None
        self.spec = _spec_of(self._native.spec())
        self.num_envs = operator.index(num_envs)
        self.num_batches = operator.index(num_batches)
        self._step = self._native.step  # looked up once: a step takes microseconds

    @property
    def num_threads(self) -> int:
        """Threads that step; 0 where ``step`` does it itself."""
        return self._native.num_threads

    def reset(self, seed: int | None = None, *, batch: int = 0) -> EnvFuture:
        """Reset every environment of a batch.

        Args:
            seed: environment ``i`` draws from the seed ``seed + i`` from now on; None keeps the
                generators as they are.
            batch: which batch. It waits for a running step of it, whose result need not be taken.

        Raises:
            FailedPreconditionError: the pool is closed.
            DeadlineExceededError: the running step does not end within the pool's limit.
        """
        return self._native.reset(seed, batch)

    def reset_some(
        self,
        mask: Sequence[bool],
        seeds: Sequence[int | None] | None = None,
        *,
        batch: int = 0,
    ) -> EnvFuture:
        """Reset some environments of a batch; the others are unchanged.

        Args:
            mask: ``[num_envs]``, which ones.
            seeds: ``[num_envs]``, each a seed or None; None keeps all generators.
            batch: which batch. It waits for a running step of it.

        Raises:
            InvalidArgumentError: ``mask`` or ``seeds`` have another length.
            FailedPreconditionError: some of a batch that was never reset, or the pool is closed.
        """
        chosen = [
            _checks.flag("an entry of mask", one)
            for one in _checks.items("mask", mask, "True and False")
        ]
        each: list[int | None] = [None] * len(chosen)
        if seeds is not None:
            each = [
                None if seed is None else _checks.integer("an entry of seeds", seed, 0)
                for seed in _checks.items("seeds", seeds, "seeds, or None")
            ]
        return self._native.reset_some(chosen, each, batch)

    def step(
        self,
        actions: Any,  # noqa: ANN401
        batch: int = 0,
        *,
        env_ids: None = None,
    ) -> EnvFuture:
        """Step every environment of a batch; each whose episode ended is reset at once.

        Args:
            actions: ``[B]`` integers, or ``[B, ...]`` float32. An array of int64 or float32 is used
                in place; another type is converted. Continuous actions outside of
                ``spec.action_low`` and ``action_high`` are clipped by the environment.
            batch: which batch.
            env_ids: must be None; see ``EnvPool.step``.

        Returns:
            The future of this batch: each step returns the same one, so take the result before the
            next.

        Raises:
            InvalidArgumentError: a wrong shape, an action out of range or not finite; nothing is
                stepped.
            UnsupportedTypeError: the actions are not numbers, or not integers where required.
            FailedPreconditionError: the batch was never reset, the result of its last step was not
                taken, or the pool is closed.
        """
        if env_ids is not None:
            raise no_env_ids(env_ids)
        return self._step(actions, batch)

    def get_state(self, env_index: int, batch: int = 0) -> npt.NDArray[np.float64]:
        """The numbers that are an environment's state; the last is the steps of its episode so far.

        Raises:
            UnimplementedError: the environment does not support it.
            FailedPreconditionError: a step of the batch runs, or it was never reset.
        """
        return self._native.get_state(env_index, batch)

    def set_state(self, env_index: int, state: npt.ArrayLike, batch: int = 0) -> None:
        """Put an environment into a state that ``get_state`` gave.

        Its observation appears in the next step, or in a result that is taken before it. An
        episode that was over, and not reset yet, continues from that state.

        Raises:
            InvalidArgumentError: a wrong number of values, one that is not finite or beyond 1e6, or
                as many steps as an episode has.
            UnimplementedError: the environment does not support it.
            FailedPreconditionError: a step of the batch runs, or it was never reset.
        """
        try:
            numbers = np.asarray(state, dtype=np.float64).ravel()
        except (TypeError, ValueError, OverflowError):
            raise UnsupportedTypeError(
                f"state is {_checks.shown(state)}; it must be the numbers that get_state gives"
            ) from None
        self._native.set_state(env_index, numbers.tolist(), batch)

    def render(self, env_index: int = 0, batch: int = 0) -> npt.NDArray[np.uint8]:
        """A picture of an environment's current state: ``[H, W, 3]`` uint8, top row first.

        Raises:
            UnimplementedError: the environment draws none.
            FailedPreconditionError: a step of the batch runs, or it was never reset.
        """
        return self._native.render(env_index, batch)

    def close(self) -> None:
        """Let running steps finish and stop the threads. Returned arrays stay valid."""
        self._native.close()

    def __repr__(self) -> str:
        return (
            f"NativePool({self.spec.id!r}, {self.num_envs}, num_batches={self.num_batches}, "
            f"num_threads={self.num_threads})"
        )


def _explained(error: NotFoundError) -> NotFoundError:
    """The same, and why LunarLander is not among the names if it is not."""
    return NotFoundError(f"{error} ({_box2d.reason})") if _box2d.reason else error


def _checked(options: dict[str, Any]) -> dict[str, OptionValue]:
    """Options in types that the native side knows."""
    checked: dict[str, OptionValue] = {}
    for name, value in options.items():
        value = value.item() if isinstance(value, np.generic) else value
        if not isinstance(value, (bool, int, float, str)):
            raise UnsupportedTypeError(
                f"option {name} is a {type(value).__name__}; options are bool, int, float or str"
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidArgumentError(f"option {name} is {value}; the bound is 64 bits")
        checked[name] = value
    return checked


def _spec_of(given: dict[str, Any]) -> EnvSpec:
    count = given["action_count"]
    return EnvSpec(
        id=given["id"],
        observation=TensorSpec(given["observation_shape"], given["observation_dtype"]),
        action=TensorSpec((), np.int64) if count else TensorSpec(given["action_shape"], np.float32),
        action_count=count or None,
        action_low=given["action_low"],
        action_high=given["action_high"],
        observation_low=given["observation_low"],
        observation_high=given["observation_high"],
        max_episode_steps=given["max_episode_steps"] or None,
    )
