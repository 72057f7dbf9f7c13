"""What a training tells while it runs, one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Progress:
    """Where a training stands. Means are over what happened lately."""

    seed: int
    step: int
    episode_return: float | None
    """Mean of the last 20 episodes, random actions included; None before the first one's end."""
    steps_per_s: float
    samples_per_insert: float
    age_s: float | None
    """Mean age of the sampled items; None before the first sample."""
    loss: float | None
    epsilon: float


@dataclass(frozen=True)
class Evaluation:
    """The mean return of a few greedy episodes of the network as it was at ``step``."""

    seed: int
    step: int
    greedy_return: float


@dataclass(frozen=True)
class Outcome:
    """What a training came to: ``greedy_return_*`` over episodes that it never saw."""

    seed: int
    steps: int
    seconds: float
    samples_per_insert: float
    kept_step: int
    greedy_return_mean: float
    greedy_return_min: float
    greedy_episodes: int


@dataclass(frozen=True)
class Restart:
    """A training over a server was killed, all of its processes, and has begun again."""

    seed: int
    step: int
    """From which the learner goes on."""
    confirmed: int
    """Items that were surely inserted when the learner was at that step."""
    found: int
    """Items that the new server has or had, of those inserted before the kill."""
    seconds: float
    """From the start of the server's process until it answered."""


@dataclass(frozen=True)
class Failure:
    """Why a training ended without an outcome."""

    seed: int
    text: str


Message = Progress | Evaluation | Outcome | Restart | Failure
_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Progress, Evaluation, Outcome, Restart, Failure)
}


def to_line(message: Message) -> str:
    """One line of JSON, without its newline."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)})


def from_line(line: str) -> Message:
    """The message that `to_line` wrote.

    Raises:
        ValueError: the line is malformed.
    """
    try:
        fields = json.loads(line)
        return _KINDS[fields.pop("kind")](**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a message of a training: {line[:80]!r}") from error
