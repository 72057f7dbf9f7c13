"""A training that runs on its own threads while the program continues."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from dataclasses import dataclass
from typing import NamedTuple

from reverie import _checks, _reverie
from reverie._closing import Scoped, close_in_del
from reverie._options import OptionValue, checked_seed
from reverie._process_bound import ProcessBound
from reverie.agents.envs import env_source, raised_by
from reverie.agents.remote import door_of
from reverie.agents.settings import TrainSettings, checked_algorithm, checked_settings
from reverie.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
)
from reverie.nn import Mlp
from reverie.tls import PeerTls

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
    """The mean return of the last ``return_window`` episodes, or of fewer."""
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


def _shape(network: _reverie.Mlp) -> str:
    """Widths and activations of a network, as an error tells them."""
    hidden = f", {network.hidden} after hidden layers" if len(network.widths) > 2 else ""
    return f"the widths {tuple(network.widths)}{hidden} and {network.output} after the last one"


def _env_count(algorithm: str, settings: TrainSettings) -> int:
    """Environments of an actor; settings that are out of range are refused on the way."""
    return int(_reverie.checked_settings(algorithm, settings.options())["envs_per_actor"])


# A thread of the library must not outlive what it works with, and actors elsewhere are told.
_running: weakref.WeakSet[Trainer] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for trainer in list(_running):
        with contextlib.suppress(FailedPreconditionError):  # in a forked child there are no threads
            trainer.stop()
            trainer._close_door()


class Trainer(ProcessBound, Scoped):
    """One training. A context manager that stops it at its end.

        with Trainer("dqn", "CartPole-v1", TrainSettings(seed=1)) as trainer:
            trainer.start()
            while not trainer.wait(timeout_s=1.0):
                print(trainer.progress().mean_return)
            policy = trainer.policy()

    Thread-safe. No Python code runs while it trains in a native environment.

    Args:
        algorithm: one of `algorithms`.
        env: a native environment, one of ``reverie.envs.native.ids()``, or a Gymnasium id;
            ``"package.module:Id"`` imports the module first.
        settings: what differs from the algorithm's defaults.
        env_options: keyword arguments of the environment, such as ``{"enable_wind": True}``.
        env_backend: ``"auto"`` steps native environments in C++ and others in worker processes,
            a pool of them for each actor; ``"process"``, ``"thread"`` and ``"native"`` insist.
        env_timeout_s: how long a step may take, of an environment that is not native.
        resume: a folder that `save` wrote to, or one checkpoint of it; the training goes on from
            the newest there. Algorithm, environment and settings must be those of the training that
            was saved, its seed among them, except for those of its length, evaluations, step sizes
            and noise; the error for any other difference lists them.
        listen: where actors of other processes join (`act`), as ``"127.0.0.1:4432"``; a port 0
            takes a free one. ``actors`` are then threads of this process besides, and may be 0.
        token: a secret that these actors have too; as for an ``Rpc``, like the next two.
        tls: encrypts what actors send, and accepts only those with a certificate.
        insecure: accepts every actor that can reach ``listen``, which may then be any address.

    Raises:
        NotFoundError: no such algorithm or environment; the message has the nearest names.
        InvalidArgumentError: a setting is out of range, or the algorithm does not serve the
            environment's actions.
        UnsupportedTypeError: a setting has a wrong type, or the algorithms do not take the
            environment's spaces.
        EnvError: the environment cannot be made.
        DataLossError: the checkpoint to resume from is damaged, or cut short.
    """

    _stays_because = (
        "a Trainer lives in this process and cannot be pickled or copied; save() it, and give "
        "resume= to another one"
    )

    learner = "native"

    def __init__(
        self,
        algorithm: str,
        env: str,
        settings: TrainSettings | None = None,
        *,
        env_options: dict[str, OptionValue] | None = None,
        env_backend: str = "auto",
        env_timeout_s: float = 60.0,
        resume: str | os.PathLike[str] | None = None,
        listen: str | None = None,
        token: str | None = None,
        tls: PeerTls | None = None,
        insecure: bool = False,
    ) -> None:
        checked_algorithm(algorithm)
        checkpoint = "" if resume is None else _checks.path("resume", resume)
        settings = checked_settings(settings)
        checked_seed(settings.seed)
        self._door = door_of(listen, token=token, tls=tls, insecure=insecure)
        options, source = env_source(
            env,
            env_options,
            backend=env_backend,
            timeout_s=env_timeout_s,
            count=_env_count(algorithm, settings),
        )
        self._source = source
        self._is_started = False
        try:
            self._native = _reverie.Trainer(
                algorithm,
                env,
                options if source is None else {},  # the source has them, of any type
                settings.options(),
                source,
                checkpoint,
                self._door is not None,
            )
        except BaseException as error:
            if source is not None:
                source.close()
                raise source.error_of(str(error)) or error from None
            raise
        self.algorithm = algorithm
        self.env = env
        self.env_options = options
        self.env_backend = env_backend
        self.env_timeout_s = env_timeout_s
        self.agent_timeout_s: float | None = None  # it calls no code of the user's
        self.settings = TrainSettings.from_options(self._native.settings())
        if self._door is not None:
            try:
                self._door.open(self)
            except BaseException:
                if source is not None:
                    source.close()
                raise
        _running.add(self)

    @property
    def address(self) -> str | None:
        """Where actors of other processes join; None without ``listen``."""
        return None if self._door is None else self._door.address

    def actors_elsewhere(self) -> int:
        """How many actors of other processes are active."""
        return self._native.actors_elsewhere()

    def start(self) -> None:
        """Starts the threads.

        Raises:
            FailedPreconditionError: it was started before, or this is a forked child.
        """
        self._native.start()
        self._is_started = True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the training is over; Ctrl-C ends only the wait.

        Args:
            timeout_s: how long at most; None waits without limit.

        Returns:
            Whether it is over. Without a limit it does not wait for a training that was not
            started: False.

        Raises:
            InvalidArgumentError: a gradient or an environment's number was not finite; the message
                names the layer or the environment. The weights are those before that.
            EnvError: an environment raised, or its worker ended; the weights are kept.
            DeadlineExceededError: a step of an environment took longer than ``env_timeout_s``.
        """
        limit = _checks.timeout("timeout_s", timeout_s)
        is_over = self._native.wait(limit if self._is_started or limit is not None else 0.0)
        if is_over:
            with raised_by(self._source):
                self._native.raise_if_failed()
        return is_over

    def stop(self) -> None:
        """Ends the training within a step of each thread, and waits for that."""
        self._native.stop()
        if self._source is not None:
            self._source.stop()
        self._native.wait(None)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the whole state of the training, to continue from with ``resume=``.

        Weights, optimisers, replay, every generator, and the environments as their episodes' seeds
        and actions, which are played again. Threads pause meanwhile, between two steps or batches.
        With ``actors=0`` a training that continues from it ends with the same bits as one that was
        never interrupted.

        Args:
            path: a folder, which is made if it is not there, and is this training's until it is
                over or saves to another one. The checkpoint replaces an earlier one there once it
                is whole and on the disk; rows that are there already are not written again.

        Returns:
            The path of the checkpoint.

        Raises:
            ResourceExhaustedError: the disk is full; an old checkpoint is unchanged, and the
                training continues. The same holds for the others.
            FailedPreconditionError: another training or store saves to that folder.
            InvalidArgumentError: ``path`` is a file.
            UnimplementedError: an environment cannot be saved.
        """
        with raised_by(self._source):
            return self._native.save(_checks.path("path", path))

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
        """The policy with the best of `evaluations`, the latest among equals; else `policy`."""
        return Mlp._around(self._native.best_policy(), {})

    def policy(self) -> Mlp:
        """A copy of the current policy network."""
        return Mlp._around(self._native.policy(), {})

    def evaluate(
        self, policy: Mlp | None = None, *, episodes: int = 20, seed: int = 0
    ) -> list[float]:
        """The returns of episodes without exploration, in environments apart from the training's.

        Args:
            policy: the policy; None is the latest.
            episodes: how many; each is the first of a separate environment.
            seed: seeds the environments.

        Raises:
            InvalidArgumentError: a number out of range, or a network of another shape or other
                activations.
        """
        policy = self.policy() if policy is None else _checks.instance("policy", policy, Mlp)
        own = self._native.policy()
        given, wanted = _shape(policy._native), _shape(own)
        if given != wanted:
            raise InvalidArgumentError(f"policy has {given}; the training's has {wanted}")
        episodes = _checks.integer("episodes", episodes, 1, _EPISODES_MAX)
        seed = _checks.integer("seed", seed, 0)
        with raised_by(self._source):
            return self._native.evaluate(policy._native, episodes, seed)

    def _leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        try:
            self.stop()
        finally:
            self._native.release()
            self._close_door()
            if self._source is not None:
                self._source.close()

    def _close_door(self) -> None:
        if self._door is not None:
            self._door.close(self)

    def __del__(self) -> None:
        if getattr(self, "_native", None) is not None:
            close_in_del(self._close_door)

    def __repr__(self) -> str:
        return f"Trainer({self.algorithm!r}, {self.env!r}, {self.settings!r})"
