"""Functions that a ``ReplayBuffer`` applies to each batch that it draws.

    import reverie.transforms as rt

    moments = rt.RunningMoments()
    buffer = reverie.ReplayBuffer(
        100_000, transforms=[rt.ScaleReward(0.1, clip=1), rt.NormalizeObs(moments)]
    )

Stored steps are not changed: ``buffer[i]`` and ``episodes()`` show them as given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie._nests import mapped
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

__all__ = ["JoinStack", "NormalizeObs", "RunningMoments", "ScaleReward"]

_Batch = dict[str, Any]
_OBSERVATIONS = ("obs", "next_obs")


class ScaleReward:
    """Multiplies rewards, then clips them.

    Args:
        scale: finite.
        clip: rewards are then clipped to [-clip, clip]; None for no bound.

    Raises:
        InvalidArgumentError: a number is out of range.
    """

    def __init__(self, scale: float = 1.0, *, clip: float | None = None) -> None:
        self.scale = _checks.number("scale", scale)
        self.clip = None if clip is None else _checks.number("clip", clip, above=0.0)

    def __call__(self, batch: _Batch) -> _Batch:
        """Transform a batch in place."""
        reward = batch["reward"]
        reward *= self.scale
        if self.clip is not None:
            np.clip(reward, -self.clip, self.clip, out=reward)
        return batch


class JoinStack:
    """Makes stacks of pictures one picture: ``[B, k, C, H, W]`` becomes ``[B, k * C, H, W]``.

    For a buffer with ``frame_stack=k`` whose frames have channels of their own, which convolutions
    take as one axis. Sequences have an axis T after B. Nothing is copied.
    """

    def __call__(self, batch: _Batch) -> _Batch:
        """Transform both observations."""
        before = 2 if "mask" in batch else 1  # axes of a batch; sequences have a mask

        def joined(array: Any) -> Any:  # noqa: ANN401
            if np.ndim(array) != before + 4:  # numbers beside the pictures
                return array
            shape = array.shape
            channels = shape[before] * shape[before + 1]
            return array.reshape((*shape[:before], channels, *shape[before + 2 :]))

        for name in _OBSERVATIONS:
            batch[name] = mapped(batch[name], joined)
        return batch


class RunningMoments:
    """Mean and variance of each number of an observation, over all that were seen.

    Threads may share one. It can be pickled.

    Source:
        Chan et al. 1979, "Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances".
    """

    def __init__(self) -> None:
        self.count = 0
        """Observations seen."""
        self._means: list[Any] = []
        self._squares: list[Any] = []  # sums of squared distances from the mean
        self._structure = ""
        self._lock = threading.Lock()

    def update(self, obs: Any) -> None:  # noqa: ANN401
        """See observations: a nest of arrays ``[B, ...]``.

        Raises:
            InvalidArgumentError: another structure or shape than before.
        """
        leaves, structure = self._checked(obs)
        count = len(leaves[0])
        if count == 0:
            return
        with self._lock:
            if not self._means:
                self._structure = structure
                self._means = [np.zeros(leaf.shape[1:]) for leaf in leaves]
                self._squares = [np.zeros(leaf.shape[1:]) for leaf in leaves]
            total = self.count + count
            for i, leaf in enumerate(leaves):
                seen = leaf.astype(np.float64)
                mean = seen.mean(axis=0)
                squares = ((seen - mean) ** 2).sum(axis=0)
                apart = mean - self._means[i]
                self._squares[i] += squares + apart**2 * (self.count * count / total)
                self._means[i] += apart * (count / total)
            self.count = total

    @property
    def mean(self) -> Any:  # noqa: ANN401
        """A nest of float64 arrays; None before the first update."""
        return self._folded(lambda mean, _: mean.copy())

    @property
    def variance(self) -> Any:  # noqa: ANN401
        """A nest of float64 arrays, of the population; None before the first update."""
        return self._folded(lambda _, squares: squares / self.count)

    def normalized(self, obs: Any, *, clip: float = 10.0, epsilon: float = 1e-8) -> Any:  # noqa: ANN401
        """``(obs - mean) / sqrt(variance + epsilon)`` in [-clip, clip], as float32.

        ``obs`` may be one observation or a batch. Before the first update it is only cast.

        Raises:
            InvalidArgumentError: another structure or shape than that of the updates.
        """
        clip = _checks.number("clip", clip, above=0.0)
        epsilon = _checks.number("epsilon", epsilon, above=0.0)
        leaves, structure = _numbers(obs)
        with self._lock:
            if not self._means:
                made = [np.asarray(leaf, np.float32) for leaf in leaves]
            else:
                self._check_structure(structure)
                made = []
                for leaf, mean, squares in zip(leaves, self._means, self._squares, strict=True):
                    if leaf.shape[leaf.ndim - mean.ndim :] != mean.shape:  # it would be broadcast
                        raise InvalidArgumentError(
                            f"obs has the shape {leaf.shape}; its last axes must be {mean.shape}, "
                            "as in the updates"
                        )
                    scale = 1 / np.sqrt(squares / self.count + epsilon)
                    made.append(np.clip((leaf - mean) * scale, -clip, clip).astype(np.float32))
        return _reverie.fold(structure, made)

    def _checked(self, obs: Any) -> tuple[list[Any], str]:  # noqa: ANN401
        arrays, structure = _numbers(obs)
        if any(array.ndim == 0 for array in arrays):
            raise UnsupportedTypeError(
                f"obs is {_checks.shown(obs)}; it must be arrays of numbers with a leading axis"
            )
        if len({len(array) for array in arrays}) != 1:
            raise InvalidArgumentError("the arrays of obs differ in their leading axis")
        if self._means:
            self._check_structure(structure)
            for array, mean in zip(arrays, self._means, strict=True):
                if array.shape[1:] != mean.shape:
                    raise InvalidArgumentError(
                        f"obs has the shape {array.shape}; it must be (B, *{mean.shape}), as before"
                    )
        return arrays, structure

    def _check_structure(self, structure: str) -> None:
        if structure != self._structure:
            raise InvalidArgumentError(
                f"obs has the structure {structure}, and the first had {self._structure}"
            )

    def _folded(self, function: Callable[[Any, Any], Any]) -> Any:  # noqa: ANN401
        with self._lock:
            if not self._means:
                return None
            pairs = zip(self._means, self._squares, strict=True)
            made = [function(mean, squares) for mean, squares in pairs]
        return _reverie.fold(self._structure, made)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


class NormalizeObs:
    """Shifts and scales observations to mean 0 and variance 1, as float32.

    Args:
        moments: the moments to use; update them with the observations of the environments, and give
            an actor ``moments.normalized(obs)``. None makes new ones, ``.moments``, which learn
            from each batch that is drawn; of sequences, from the steps that count.
        clip: the bound of the results; > 0.
        epsilon: added to variances; > 0.

    Raises:
        InvalidArgumentError: a number is out of range.
    """

    def __init__(
        self, moments: RunningMoments | None = None, *, clip: float = 10.0, epsilon: float = 1e-8
    ) -> None:
        if moments is not None:
            _checks.instance("moments", moments, RunningMoments, "a RunningMoments, or None")
        self.moments = RunningMoments() if moments is None else moments
        self._learns = moments is None
        self.clip = _checks.number("clip", clip, above=0.0)
        self.epsilon = _checks.number("epsilon", epsilon, above=0.0)

    def __call__(self, batch: _Batch) -> _Batch:
        """Transform both observations; the moments of a batch are learnt first."""
        if self._learns:
            self.moments.update(self._seen(batch))
        for name in _OBSERVATIONS:
            batch[name] = self.moments.normalized(batch[name], clip=self.clip, epsilon=self.epsilon)
        return batch

    @staticmethod
    def _seen(batch: _Batch) -> Any:  # noqa: ANN401
        """Observations ``[B, ...]``; the steps of sequences one by one, without their padding."""
        if "mask" not in batch:
            return batch["obs"]
        return mapped(batch["obs"], lambda array: array[batch["mask"]])


def _numbers(obs: object) -> tuple[list[Any], str]:
    """The leaves of a nest as arrays of numbers, and its structure."""
    _, leaves, structure = _reverie.flatten(obs)
    arrays = [np.asarray(leaf) for leaf in leaves]
    if not arrays or any(array.dtype.kind not in "biuf" for array in arrays):
        raise UnsupportedTypeError(f"obs is {_checks.shown(obs)}; it must be arrays of numbers")
    return arrays, structure
