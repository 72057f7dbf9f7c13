"""The settings of a training; the algorithm has a default for each."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from reverie import _checks, _reverie
from reverie._options import OptionValue
from reverie.errors import InvalidArgumentError, NotFoundError, UnsupportedTypeError

_Class = TypeVar("_Class")


def _setting(text: str) -> Any:  # noqa: ANN401  (what dataclasses.field has)
    return dataclasses.field(default=None, metadata={"help": text})


def _with_checked_names(cls: type[_Class]) -> type[_Class]:
    """A dataclass that answers a keyword that it does not have with the nearest that it has."""
    make: Any = cls.__init__

    @functools.wraps(make)
    def checked(self: _Class, *args: object, **given: object) -> None:
        _check_names(cls.__name__, cls, given)
        make(self, *args, **given)

    cls.__init__ = checked  # type: ignore[assignment]
    return cls


@_with_checked_names
@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """All settings of a training. None is the algorithm's own default, which `of` fills in.

    ``docs/concepts/learn.md`` has the defaults, and which algorithm uses what.

    Raises:
        InvalidArgumentError: there is no such setting (the message has the nearest names), or a
            value is out of range. How settings fit together is checked where a training is made.
        UnsupportedTypeError: a value has a type that the setting does not take.
    """

    # The run.
    seed: int | None = _setting("of every generator; left out: another one each time")
    steps: int | None = _setting("environment steps of all actors together")
    actors: int | None = _setting(
        "threads that act; 0: one thread acts and learns in turn, and a seed repeats the run"
    )
    learners: int | None = _setting("threads that learn")
    envs_per_actor: int | None = _setting("environments that an actor steps together")
    update_interval: float | None = _setting("environment steps for each batch learned from")
    warmup_steps: int | None = _setting("steps before the first batch")
    lead_steps: int | None = _setting("how far actors may be ahead of learners, in steps")
    asynchronous: bool | None = _setting(
        "each learner's gradient is a step of its own; else their mean is one"
    )
    staleness_max: int | None = _setting(
        "asynchronous: gradients of weights that are more steps old are dropped"
    )
    shrink_stale_steps: bool | None = _setting(
        "asynchronous: a gradient's step is divided by 1 + its staleness"
    )
    stop_at_return: float | None = _setting(
        "end once the mean return of the last return_window episodes is as large"
    )
    return_window: int | None = _setting("episodes of the mean return")
    evaluation_interval: int | None = _setting(
        "steps between two evaluations without exploration, of which the best policy is kept; "
        "0: none"
    )
    evaluation_episodes: int | None = _setting("of each of them")
    # Replay.
    capacity: int | None = _setting("transitions that are kept")
    replay_shards: int | None = _setting(
        "tables that they are spread over, of which a batch comes from one; 0: by the learners"
    )
    prioritized: bool | None = _setting("draw by priority; else all alike")
    priority_exponent: float | None = _setting("alpha: how much priorities count")
    priority_epsilon: float | None = _setting("added to the TD error for its priority")
    beta_first: float | None = _setting("exponent of the importance weights at first")
    beta_last: float | None = _setting("and at the last step")
    weights_over_buffer: bool | None = _setting(
        "divide importance weights by the buffer's largest; else by the batch's"
    )
    n_step: int | None = _setting("rewards that a transition adds up, at most")
    gamma: float | None = _setting("discount of a step")
    batch_size: int | None = _setting("transitions of a batch")
    reward_scale: float | None = _setting("what rewards are multiplied by for learning")
    # Networks and their optimiser.
    hidden: Sequence[int] | None = _setting("widths of the hidden layers")
    learning_rate: float | None = _setting("of Adam")
    learning_rate_last_share: float | None = _setting(
        "what of it is left at the last step, falling linearly"
    )
    adam_epsilon: float | None = _setting("of Adam")
    gradient_norm_max: float | None = _setting("longer gradients are shortened; 0: none")
    huber_delta: float | None = _setting("where Huber's loss turns straight; inf: squared loss")
    target_interval: int | None = _setting("gradient steps between copies into the target network")
    tau: float | None = _setting(
        "how far target networks follow at each step; 0: they are copied by target_interval"
    )
    # Exploration with discrete actions.
    epsilon_first: float | None = _setting("share of random actions at first")
    epsilon_last: float | None = _setting("and at last")
    epsilon_share: float | None = _setting("of the steps, until it is the last")
    # Continuous actions, in units of half the environment's range.
    policy_learning_rate: float | None = _setting("of the policy's Adam")
    policy_delay: int | None = _setting("gradient steps between two of the policy")
    noise_sigma: float | None = _setting("of the noise on actions while training; ddpg, td3")
    target_noise: float | None = _setting("sigma on the target policy's actions; td3")
    target_noise_max: float | None = _setting("which is held within this")
    temperature: float | None = _setting("of sac; 0: learned, for target_entropy")
    target_entropy: float | None = _setting("left out: minus the number of the action's elements")

    def __post_init__(self) -> None:
        _reverie.check_settings(self.options())

    def options(self) -> dict[str, OptionValue]:
        """What was given, as the native side takes it."""
        given: dict[str, OptionValue] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                given[field.name] = _option(field, value)
        return given

    @classmethod
    def of(cls, algorithm: str) -> TrainSettings:
        """The defaults of an algorithm, every field that has one filled in.

        Raises:
            NotFoundError: there is no such algorithm; the message has the nearest names.
        """
        return cls.from_options(_reverie.default_settings(checked_algorithm(algorithm)))

    @classmethod
    def from_options(cls, options: dict[str, OptionValue]) -> TrainSettings:
        """What `options` gave. ``hidden`` may be text, ``"64,64"``."""
        fields = _checks.mapping("options", options, "values by the names of settings")
        _check_names("options", cls, fields)
        if isinstance(fields.get("hidden"), str):
            fields["hidden"] = _widths(fields["hidden"])
        return cls(**fields)


def _check_names(where: str, cls: type[Any], given: Iterable[object]) -> None:
    known = [field.name for field in dataclasses.fields(cls)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.0)
            raise InvalidArgumentError(
                f"{where} has {_checks.shown(name)}, which is not a setting; the nearest are: "
                f"{', '.join(near)}"
            )


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(",") if width)
    except ValueError:
        raise InvalidArgumentError(
            f"hidden is {_checks.shown(text)}; it must be widths with commas between, as '64,64'"
        ) from None


def algorithms() -> list[str]:
    """The names of the algorithms."""
    return _reverie.algorithm_names()


def checked_algorithm(name: str) -> str:
    """The name, if there is such an algorithm."""
    known = algorithms()
    if _checks.text("algorithm", name, "dqn") in known:
        return name
    near = difflib.get_close_matches(str(name).lower(), known, n=3, cutoff=0.3) or known
    raise NotFoundError(f"there is no algorithm {name!r}; the nearest are: {', '.join(near)}")


def checked_settings(settings: TrainSettings | None) -> TrainSettings:
    """The settings, or the defaults for None."""
    if settings is None:
        return TrainSettings()
    return _checks.instance("settings", settings, TrainSettings, "a reverie.TrainSettings")


def warmup_least(options: Mapping[str, Any]) -> int:
    """The fewest steps after which some environment has a transition; ``options`` has all."""
    actors = max(int(options["actors"]), 1)
    return (int(options["n_step"]) + 1) * actors * int(options["envs_per_actor"])


def saved_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """An environment's options as files hold them: tuples and arrays are lists there.

    Raises:
        UnsupportedTypeError: a value that JSON does not hold, such as a function.
    """
    return {name: _saved_option(name, value) for name, value in options.items()}


def _saved_option(name: str, value: object) -> Any:  # noqa: ANN401
    try:
        return json.loads(json.dumps(value, default=_of_numpy))
    except (TypeError, ValueError, RecursionError):
        raise UnsupportedTypeError(
            f"env_options has {name}={_checks.shown(value)}, which cannot be saved; give numbers, "
            "texts, or lists and dicts of them"
        ) from None


def _of_numpy(value: object) -> Any:  # noqa: ANN401
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError


def _option(field: dataclasses.Field[Any], value: object) -> OptionValue:
    kind = str(field.type).split(" |")[0]
    if kind == "bool":
        _checks.flag(field.name, value)
        return bool(value)
    if kind == "int":
        return _checks.integer(field.name, value, 0)
    if kind == "float":
        return _checks.number(field.name, value, finite=False)
    widths = _checks.items(field.name, value, "the widths, as (256, 256)")
    return ",".join(str(_checks.integer(field.name, width)) for width in widths)
