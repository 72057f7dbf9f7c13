"""Hindsight replay: replaces the goal that an episode was given by goals that it reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from reverie import _checks
from reverie.errors import InvalidArgumentError

_Batch = dict[str, Any]
_OfGoals = Callable[[Any, Any, dict[str, Any]], Any]


@dataclasses.dataclass(frozen=True)
class Hindsight:
    """Makes a ``ReplayBuffer`` draw transitions with other goals too.

    Observations are dicts with what was achieved and what was desired, as those of Gymnasium's goal
    environments::

        env = gymnasium.make("FetchReach-v4").unwrapped
        hindsight = reverie.Hindsight(env.compute_reward)
        buffer = reverie.ReplayBuffer(1_000_000, hindsight=hindsight)

    A drawn transition gets its new goal in ``obs`` and ``next_obs``, and a new reward; nothing is
    stored twice.

    Args:
        reward: a function ``(achieved, desired, info)`` of arrays ``[K, ...]``, which goal
            environments call ``compute_reward``; returns ``[K]`` rewards. ``info`` is empty.
        strategy: where the new goal comes from: ``"future"``, what this or a later step of the
            episode achieved; ``"final"``, what its last step did; ``"episode"``, what any of its
            steps did. An unfinished episode ends at its last step so far.
        goals: transitions with another goal for each that keeps its own, on average; finite, >= 0.
        achieved: the entry of the observation that says what was achieved.
        desired: the entry that is the goal.
        terminated: a function like ``reward`` that returns ``[K]`` bool: whether the episode ends
            there. None: it ends where it did.

    Raises:
        InvalidArgumentError: ``goals`` is out of range, or an unknown strategy.
        UnsupportedTypeError: ``reward`` is not a function.

    Source:
        Andrychowicz et al. 2017, "Hindsight Experience Replay".
    """

    reward: _OfGoals
    strategy: Literal["future", "final", "episode"] = "future"
    goals: float = 4
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"
    terminated: _OfGoals | None = None

    def __post_init__(self) -> None:
        _checks.function("reward", self.reward)
        _checks.choice("strategy", self.strategy, ("future", "final", "episode"))
        _checks.number("goals", self.goals, 0.0)
        _checks.text("achieved", self.achieved)
        _checks.text("desired", self.desired)
        if self.terminated is not None:
            _checks.function("terminated", self.terminated)

    @property
    def _spec(self) -> tuple[str, float, str, str]:
        """What the native buffer needs of it."""
        share = self.goals / (self.goals + 1)
        return self.strategy, share, self.achieved, self.desired

    def _finish(self, batch: _Batch, gamma: float) -> None:
        """Give the transitions with another goal their rewards, in place."""
        rows = batch["hindsight"].nonzero()[0]
        if len(rows) == 0:
            return
        goals = (
            _entry(batch["next_obs"], self.achieved)[rows],
            _entry(batch["next_obs"], self.desired)[rows],
        )
        batch["reward"][rows] = _column("reward", self.reward(*goals, {}), len(rows))
        if self.terminated is None:
            return
        ended = _column("terminated", self.terminated(*goals, {}), len(rows)) != 0
        batch["terminated"][rows] = ended
        batch["discount"][rows] = np.where(ended, 0, gamma)


def check_loaded(path: str, goals: tuple[str, str] | None, given: object) -> None:
    """Whether hindsight fits a saved buffer, of whose observations these two entries are goals.

    Raises:
        InvalidArgumentError: it does not; the text says what to give.
        UnsupportedTypeError: it is no ``Hindsight``.
    """
    if given is None:
        raise InvalidArgumentError(
            f"{path!r} is of a buffer with hindsight, and a checkpoint holds no functions; give "
            "it again, hindsight=reverie.Hindsight(...)"
        )
    hindsight = _checks.instance("hindsight", given, Hindsight, "a reverie.Hindsight, or None")
    if goals is None:
        raise InvalidArgumentError(
            f"hindsight is {_checks.shown(given)}, but {path!r} is of a buffer without; leave it "
            "out, or add its episodes to a new buffer"
        )
    if (hindsight.achieved, hindsight.desired) != goals:
        raise InvalidArgumentError(
            f"the goals of hindsight are {hindsight.achieved!r} and {hindsight.desired!r}, but "
            f"those of {path!r} are {goals[0]!r} and {goals[1]!r}; give these"
        )


def _entry(nest: Any, path: str) -> Any:  # noqa: ANN401
    for key in path.split("/"):
        nest = nest[key]
    return nest


def _column(name: str, given: object, count: int) -> Any:  # noqa: ANN401
    """``[count]`` numbers, as a function of the user gave them."""
    values = np.asarray(given)
    if values.shape not in ((count,), (count, 1)) or values.dtype.kind not in "biuf":
        raise InvalidArgumentError(
            f"the function {name} gave {_checks.shown(given)} for {count} goals; it must give an "
            f"array of {count} numbers: both its arguments are arrays [{count}, ...]"
        )
    return values.reshape(count)
