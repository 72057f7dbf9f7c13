"""A training that runs on threads of its own while the program goes on."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from reverie import _checks, _reverie
from reverie._options import OptionValue, checked_seed
from reverie.agents.settings import TrainSettings, checked_algorithm
from reverie.envs import native
from reverie.errors import FailedPreconditionError, InvalidArgumentError, UnsupportedTypeError
from reverie.nn import Mlp

_EPISODES_MAX = 1 << 16


class Episode(NamedTuple):
    """One that an actor finished."""

    step: int  # of all actors when it ended
    episode_return: float
    length: int


@dataclass(frozen=True)
class TrainProgress:
    """How a training stands."""

    end: str
    """``"running"``, or what ended it: ``"all steps"``, ``"return reached"``, ``"stopped"``,
    ``"failed"``."""
    steps: int
    """Environment steps of all actors."""
    batches: int
    """Batches learned from."""
    batch_count: int
    """Batches of the whole run."""
    updates: int
    """Steps of the optimiser: fewer than batches where several learners' gradients make one."""
    episodes: int
    mean_return: float | None
    """Of the last ``return_window`` episodes, or of fewer."""
    measured_interval: float | None
    """Environment steps a batch since the warm-up: what is held near ``update_interval``."""
    elapsed_s: float
    loss: float
    actors_waited_s: float
    """For learners to catch up; all actors together."""
    learners_waited_s: float
    """For steps to learn from; all learners together."""
    staleness_mean: float
    """Asynchronous: how many steps the weights had moved when a gradient was used."""
    staleness_max: int
    dropped: int
    """Gradients that were staler than ``staleness_max``."""


def checked_env(env: str, env_options: dict[str, OptionValue] | None) -> dict[str, OptionValue]:
    """The options of a native environment; refuses a name or an option that there is not.

    Loads the plugin of environments that need one.
    """
    name = _checks.text("env", env, "CartPole-v1")
    options = {} if env_options is None else env_options
    options = _checks.mapping("env_options", options, "the environment's options by name")
    for option in options:
        _checks.text("a name in env_options", option)
    try:
        native.spec(name, **options)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"env_options: {error}") from None
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"env_options: {error}") from None
    return options


# A thread of the library must not outlive what it works with.
_running: weakref.WeakSet[Trainer] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for trainer in list(_running):
        with contextlib.suppress(FailedPreconditionError):  # in a forked child there are none
            trainer.stop()


class Trainer:
    """One training. A context manager that stops it at its end.

        with Trainer("dqn", "CartPole-v1", TrainSettings(seed=1)) as trainer:
            trainer.start()
            while not trainer.wait(timeout_s=1.0):
                print(trainer.progress().mean_return)
            policy = trainer.policy()

    Thread-safe. No Python code runs while it trains.

    Args:
        algorithm: one of `algorithms`.
        env: a native environment, one of ``reverie.envs.native.ids()``.
        settings: what differs from the algorithm's defaults.
        env_options: of the environment, such as ``{"enable_wind": True}``.

    Raises:
        NotFoundError: no such algorithm or environment; the message has the nearest names.
        InvalidArgumentError: a setting is out of range, or the algorithm does not serve the
            environment's actions.
        UnsupportedTypeError: a setting is of a wrong type.
    """

    def __init__(
        self,
        algorithm: str,
        env: str,
        settings: TrainSettings | None = None,
        *,
        env_options: dict[str, OptionValue] | None = None,
    ) -> None:
        checked_algorithm(algorithm)
        options = checked_env(env, env_options)
        settings = TrainSettings() if settings is None else settings
        if not isinstance(settings, TrainSettings):
            raise UnsupportedTypeError(
                f"settings is {_checks.shown(settings)}; it must be a TrainSettings"
            )
        checked_seed(settings.seed)
        self._native = _reverie.Trainer(algorithm, env, options, settings.options())
        self.algorithm = algorithm
        self.env = env
        self.env_options = options
        self.settings = TrainSettings.from_options(self._native.settings())
        _running.add(self)

    def start(self) -> None:
        """Starts the threads.

        Raises:
            FailedPreconditionError: it was started before, or this is a forked child.
        """
        self._native.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the training is over; Ctrl-C ends the wait alone.

        Args:
            timeout_s: how long at most; None without limit.

        Returns:
            Whether it is over.

        Raises:
            InvalidArgumentError: a gradient or an environment's number was not finite; the message
                names the layer or the environment. The weights are those before it.
        """
        is_over = self._native.wait(timeout_s)
        if is_over:
            self._native.raise_if_failed()
        return is_over

    def stop(self) -> None:
        """Ends the training within a step of each thread, and waits for that."""
        self._native.stop()
        self._native.wait(None)

    def progress(self) -> TrainProgress:
        """How it stands."""
        return TrainProgress(**self._native.progress())

    def episodes(self, first: int = 0) -> list[Episode]:
        """The finished episodes from number ``first`` on."""
        first = _checks.integer("first", first, 0)
        return [Episode(*episode) for episode in self._native.episodes(first)]

    def evaluations(self) -> list[tuple[int, float]]:
        """Steps and mean return of each evaluation so far, one every ``evaluation_interval``."""
        return self._native.evaluations()

    def best_policy(self) -> Mlp:
        """The policy with the best of `evaluations`, the latest of equals; else `policy`."""
        return Mlp._around(self._native.best_policy(), {})

    def policy(self) -> Mlp:
        """A copy of the network that acts, as it is now."""
        return Mlp._around(self._native.policy(), {})

    def evaluate(
        self, policy: Mlp | None = None, *, episodes: int = 20, seed: int = 0
    ) -> list[float]:
        """The returns of episodes without exploration, in environments apart from the training's.

        Args:
            policy: whose; None is the latest.
            episodes: how many; each the first of an environment of its own.
            seed: of the environments.

        Raises:
            InvalidArgumentError: a number out of range, or a network of another shape.
        """
        policy = self.policy() if policy is None else policy
        own = self._native.policy()
        if tuple(own.widths) != tuple(policy._native.widths):
            raise InvalidArgumentError(
                f"policy has the widths {tuple(policy._native.widths)}; the training's has "
                f"{tuple(own.widths)}"
            )
        episodes = _checks.integer("episodes", episodes, 1, _EPISODES_MAX)
        return self._native.evaluate(policy._native, episodes, _checks.integer("seed", seed, 0))

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Trainer({self.algorithm!r}, {self.env!r}, {self.settings!r})"
