"""Flashbax's functions for JAX loops, over reverie's replay buffer.

    from reverie.contrib import flashbax as fbx

    buffer = fbx.make_flat_buffer(max_length=100_000, min_length=64, sample_batch_size=32)
    state = buffer.init(timestep)                   # one timestep, to show what they are
    state = buffer.add(state, timestep)
    batch = buffer.sample(state, key)
    batch.experience.first["obs"], batch.experience.second["obs"]

Names, arguments and what comes back are Flashbax's; its package is not needed. What differs: the
buffer lives outside of JAX, in memory of the host, and ``state`` stands for it. So the functions
are called between jitted ones and not within, ``add`` changes the buffer of every ``state`` that
``init`` gave for it, the ``key`` determines no draw (give ``seed=`` for draws that repeat),
``device`` changes nothing, and ``indices`` are a NumPy array of 64 bits, for ``set_priorities``. A
prioritised sample has ``probabilities`` in the place of ``priorities``, which differ from these by
a factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import reverie
from reverie import _checks
from reverie.errors import InvalidArgumentError, MissingPackageError, UnsupportedTypeError
from reverie.replay_output import converter

try:
    import jax
except ModuleNotFoundError:
    raise MissingPackageError(
        "reverie.contrib.flashbax needs jax: pip install 'reverie[jax]'"
    ) from None

__all__ = [
    "Buffer",
    "BufferState",
    "ExperiencePair",
    "PrioritisedSample",
    "Sample",
    "make_flat_buffer",
    "make_prioritised_flat_buffer",
    "make_prioritised_trajectory_buffer",
    "make_trajectory_buffer",
]

_DEVICES = ("cpu", "gpu", "tpu")


class ExperiencePair(NamedTuple):
    """Two neighbouring timesteps, ``[B, ...]`` each."""

    first: Any
    second: Any


class Sample(NamedTuple):
    """A batch: an ``ExperiencePair``, or timesteps ``[B, T, ...]`` of a trajectory buffer."""

    experience: Any


class PrioritisedSample(NamedTuple):
    """A batch, with what :attr:`Buffer.set_priorities` takes."""

    experience: Any
    indices: Any
    """``[B]`` uint64, of NumPy."""
    probabilities: Any
    """``[B]`` float32, in proportion to those of the draw: ``1 / weight``, at beta 1.

    Flashbax's ``priorities`` are these times a factor, which is the same for all of a batch but not
    from batch to batch. So importance weights that are divided by the largest one of their batch
    are the same: ``weights = probabilities ** -beta``, then ``weights / weights.max()``.
    """


class BufferState:
    """Stands for a buffer, ``.replay``. Not a pytree: it stays outside of jitted functions."""

    def __init__(self, replay: reverie.ReplayBuffer, treedef: Any) -> None:  # noqa: ANN401
        self.replay = replay
        self._treedef = treedef
        self._time = 0

    def _add(self, steps: list[Any]) -> None:
        """One timestep of each stream: leaves ``[streams, ...]``."""
        count = self.replay.num_envs
        now = np.full(count, self._time % 2**30, np.int32)
        following = np.full(count, (self._time + 1) % 2**30, np.int32)
        none = np.zeros(count, bool)
        self.replay.add(now, steps, np.zeros(count, np.float32), following, none)
        self._time += 1


class Buffer(NamedTuple):
    """The functions of a buffer."""

    init: Callable[[Any], BufferState]
    """``init(timestep)``: an empty buffer of timesteps like this one, a pytree without axes."""
    add: Callable[[BufferState, Any], BufferState]
    """``add(state, timesteps)``: with the axes that the buffer was made for."""
    sample: Callable[[BufferState, Any], Any]
    """``sample(state, key)``: a batch of JAX arrays.

    A traced key is refused. Without one, a call within a jitted function is not noticed: it draws
    once, when the function is traced.
    """
    can_sample: Callable[[BufferState], bool]
    """``can_sample(state)``: whether ``min_length`` timesteps were added, and there is an item."""
    set_priorities: Callable[[BufferState, Any, Any], BufferState] | None = None
    """``set_priorities(state, indices, priorities)``, of a prioritised buffer."""


def make_flat_buffer(
    max_length: int,
    min_length: int,
    sample_batch_size: int,
    add_sequences: bool = False,
    add_batch_size: int | None = None,
    *,
    seed: int | None = None,
) -> Buffer:
    """Pairs of neighbouring timesteps, drawn uniformly.

    Args:
        max_length: timesteps of all streams together; the oldest make room.
        min_length: timesteps before ``can_sample`` is true.
        sample_batch_size: B.
        add_sequences: ``add`` takes an axis ``[T]``.
        add_batch_size: ``add`` takes a first axis of this many streams; None for one, without axis.
        seed: seeds the draws.

    Raises:
        InvalidArgumentError: a number is out of range.
    """
    layout = _Layout(add_batch_size, has_time=_checks.flag("add_sequences", add_sequences))
    return _made(layout, max_length, min_length, sample_batch_size, 2, 1, None, seed, pairs=True)


def make_prioritised_flat_buffer(
    max_length: int,
    min_length: int,
    sample_batch_size: int,
    add_sequences: bool = False,
    add_batch_size: int | None = None,
    priority_exponent: float = 0.6,
    device: str = "cpu",
    *,
    seed: int | None = None,
) -> Buffer:
    """Pairs of neighbouring timesteps, drawn by priority; as :func:`make_flat_buffer`.

    ``device`` is ``"cpu"``, ``"gpu"`` or ``"tpu"``, and changes nothing: the priorities are in
    memory of the host.
    """
    layout = _Layout(add_batch_size, has_time=_checks.flag("add_sequences", add_sequences))
    exponent = _checks.number("priority_exponent", priority_exponent, 0.0)
    _checks.choice("device", device, _DEVICES)
    return _made(
        layout, max_length, min_length, sample_batch_size, 2, 1, exponent, seed, pairs=True
    )


def make_trajectory_buffer(
    add_batch_size: int,
    sample_batch_size: int,
    sample_sequence_length: int,
    period: int,
    min_length_time_axis: int,
    max_size: int | None = None,
    max_length_time_axis: int | None = None,
    *,
    seed: int | None = None,
) -> Buffer:
    """Runs of timesteps, ``[B, T, ...]``, drawn uniformly.

    Args:
        add_batch_size: ``add`` takes ``[streams, T, ...]``.
        sample_batch_size: B.
        sample_sequence_length: T of a sample.
        period: timesteps from the start of a run to that of the next.
        min_length_time_axis: timesteps of a stream before ``can_sample`` is true.
        max_size: timesteps of all streams together; the oldest make room.
        max_length_time_axis: timesteps of each stream, instead of ``max_size``.
        seed: seeds the draws.

    Raises:
        InvalidArgumentError: a number is out of range, or both or neither of ``max_size`` and
            ``max_length_time_axis`` are given.
    """
    layout = _Layout(_checks.integer("add_batch_size", add_batch_size), has_time=True)
    size = layout.size(max_size, max_length_time_axis)
    least = _checks.integer("min_length_time_axis", min_length_time_axis) * layout.streams
    length = _checks.integer("sample_sequence_length", sample_sequence_length)
    return _made(layout, size, least, sample_batch_size, length, period, None, seed)


def make_prioritised_trajectory_buffer(
    add_batch_size: int,
    sample_batch_size: int,
    sample_sequence_length: int,
    period: int,
    min_length_time_axis: int,
    max_size: int | None = None,
    max_length_time_axis: int | None = None,
    priority_exponent: float = 0.6,
    device: str = "cpu",
    *,
    seed: int | None = None,
) -> Buffer:
    """Runs of timesteps, drawn by priority; as :func:`make_trajectory_buffer`.

    ``device`` is as for :func:`make_prioritised_flat_buffer`.
    """
    layout = _Layout(_checks.integer("add_batch_size", add_batch_size), has_time=True)
    size = layout.size(max_size, max_length_time_axis)
    least = _checks.integer("min_length_time_axis", min_length_time_axis) * layout.streams
    length = _checks.integer("sample_sequence_length", sample_sequence_length)
    exponent = _checks.number("priority_exponent", priority_exponent, 0.0)
    _checks.choice("device", device, _DEVICES)
    return _made(layout, size, least, sample_batch_size, length, period, exponent, seed)


class _Layout:
    """The axes that ``add`` takes."""

    def __init__(self, batch_size: int | None, *, has_time: bool) -> None:
        self.has_batch = batch_size is not None
        self.streams = 1 if batch_size is None else _checks.integer("add_batch_size", batch_size)
        self.has_time = has_time

    def size(self, of_all: int | None, of_each: int | None) -> int:
        """The timesteps of all streams together."""
        if (of_all is None) == (of_each is None):
            raise InvalidArgumentError(
                f"max_size is {_checks.shown(of_all)} and max_length_time_axis is "
                f"{_checks.shown(of_each)}; give one of them"
            )
        if of_each is None:
            return _checks.integer("max_size", of_all)
        return _checks.integer("max_length_time_axis", of_each) * self.streams

    def timesteps(self, leaves: list[Any]) -> list[list[Any]]:
        """Leaves ``[streams, ...]`` of each timestep, in their order."""
        arrays = [np.asarray(leaf) for leaf in leaves]
        if not self.has_batch:
            arrays = [array[None] for array in arrays]
        if not self.has_time:
            arrays = [array[:, None] for array in arrays]
        lengths = {array.shape[:2] for array in arrays if array.ndim >= 2}
        if len(lengths) != 1 or any(array.ndim < 2 for array in arrays):
            raise InvalidArgumentError(
                f"the leaves of the experience have the shapes {[leaf.shape for leaf in arrays]}; "
                "their leading axes must be the same"
            )
        return [[array[:, t] for array in arrays] for t in range(lengths.pop()[1])]


def _check_not_traced(what: str, leaves: list[Any], call: str) -> None:
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise UnsupportedTypeError(
            f"{what} is traced: this buffer lives outside of JAX, so call {call} between jitted "
            "functions, not within one"
        )


def _made(
    layout: _Layout,
    capacity: int,
    least: int,
    batch_size: int,
    length: int,
    period: int,
    exponent: float | None,
    seed: int | None,
    *,
    pairs: bool = False,
) -> Buffer:
    _checks.integer("min_length", least)
    _checks.integer("sample_batch_size", batch_size)
    options: dict[str, Any] = {"sequence_length": length, "period": period, "pad_sequences": False}
    if exponent is not None:
        options |= {"prioritized": True, "alpha": exponent, "beta": 1.0}
    reverie.ReplayBuffer(capacity, layout.streams, **options)  # refuses what is out of range
    to_jax = converter("jax", None, False)

    def init(timestep: Any) -> BufferState:  # noqa: ANN401
        treedef = jax.tree_util.tree_structure(timestep)
        items = max(1, capacity // period) if period > 1 else capacity
        replay = reverie.ReplayBuffer(items, layout.streams, seed=seed, **options)
        return BufferState(replay, treedef)

    def add(state: BufferState, timesteps: Any) -> BufferState:  # noqa: ANN401
        _checks.instance("state", state, BufferState, "a state of this buffer")
        leaves, treedef = jax.tree_util.tree_flatten(timesteps)
        if treedef != state._treedef:
            raise InvalidArgumentError(
                f"the experience is {treedef}, but init() was given {state._treedef}"
            )
        _check_not_traced("the experience", leaves, "add()")
        for step in layout.timesteps(leaves):
            state._add(step)
        return state

    def sample(state: BufferState, key: Any = None) -> Any:  # noqa: ANN401
        _checks.instance("state", state, BufferState, "a state of this buffer")
        # The draw would be a constant of the traced function.
        _check_not_traced("the key", [key], "sample()")
        batch = state.replay.sample(batch_size)
        made = to_jax({"leaves": batch["action"], "tickets": batch["tickets"]})
        if pairs:
            first, second = (
                jax.tree_util.tree_unflatten(
                    state._treedef, [leaf[:, t] for leaf in made["leaves"]]
                )
                for t in (0, 1)
            )
            experience: Any = ExperiencePair(first, second)
        else:
            experience = jax.tree_util.tree_unflatten(state._treedef, made["leaves"])
        if exponent is None:
            return Sample(experience)
        return PrioritisedSample(experience, batch["tickets"], 1.0 / batch["weights"])

    def can_sample(state: BufferState) -> bool:
        return len(state.replay) > 0 and state.replay.stats["steps"] >= least

    def set_priorities(state: BufferState, indices: Any, priorities: Any) -> BufferState:  # noqa: ANN401
        _checks.instance("state", state, BufferState, "a state of this buffer")
        state.replay.update_priorities(indices, np.asarray(priorities))
        return state

    return Buffer(init, add, sample, can_sample, None if exponent is None else set_priorities)
