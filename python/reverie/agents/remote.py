"""Actors of a training in other processes, on this host or others: ``act``, and what serves it.

    with Trainer("dqn", "CartPole-v1", listen="127.0.0.1:4432") as trainer:   # one process
        trainer.start()
        trainer.wait()

    act("127.0.0.1:4432")                                                     # any number of others

The commands are ``reverie train --listen`` and ``reverie act``; see docs/concepts/learn.md.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from reverie import _checks, _reverie
from reverie.agents.envs import BACKENDS, env_source, raised_by
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    ReverieError,
    UnavailableError,
)
from reverie.rpc import Rpc
from reverie.tls import PeerTls

if TYPE_CHECKING:
    from reverie.agents.trainer import Trainer

LEARNER = "learner"
_JOIN = "reverie.train.join"
_JOIN_S = 10.0
_JOIN_LEAST_S = 0.5
_TRY_AGAIN_S = 0.2
_LOOK_S = 0.1


class Acted(NamedTuple):
    """What an actor has done."""

    steps: int
    """Environment steps that it took."""
    episodes: int
    policies: int
    """Versions of the policy that it took."""
    trainings: int
    """How often it joined: 1, and more where the learner was lost and came back; 0 if the training
    was closed while it joined."""


class Door:
    """Where a training is reached by actors elsewhere."""

    def __init__(
        self, listen: str, *, token: str | None, tls: PeerTls | None, insecure: bool
    ) -> None:
        self._listen = _checks.text("listen", listen, "127.0.0.1:4432")
        self._rpc = Rpc(LEARNER, token=token, tls=tls, insecure=insecure)
        self.address = ""
        # One that closes beside another waits: the actors are told before the peer is closed.
        self._closing = threading.RLock()

    def open(self, trainer: Trainer) -> None:
        """Serves from here on."""
        native = trainer._native
        try:
            run = native.serve(self._rpc._native)
            numbers = itertools.count(native.progress()["steps"])
            described = {
                "algorithm": trainer.algorithm,
                "env": trainer.env,
                "env_options": trainer.env_options,
                "env_backend": trainer.env_backend,
                "env_timeout_s": trainer.env_timeout_s,
                "settings": trainer.settings.options(),
                "run": run,
            }
            self._rpc.define(_JOIN, lambda: {**described, "number": next(numbers)})
            try:
                self.address = self._rpc.listen(self._listen)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"listen: {error}") from None
        except BaseException:
            self.close(trainer)
            raise

    def close(self, trainer: Trainer) -> None:
        """Ends the actors too. Idempotent."""
        with self._closing:
            try:
                trainer._native.end_serving()
            finally:
                self._rpc.close()


def door_of(
    listen: str | None, *, token: str | None, tls: PeerTls | None, insecure: bool
) -> Door | None:
    """The door that these arguments ask for; None for none."""
    _checks.flag("insecure", insecure)
    if listen is not None:
        return Door(listen, token=token, tls=tls, insecure=insecure)
    given = {"token": token, "tls": tls, "insecure": insecure or None}
    for name, value in given.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{name} is given without listen; say where actors join, as listen='127.0.0.1:0'"
            )
    return None


def act(
    address: str,
    *,
    token: str | None = None,
    tls: PeerTls | None = None,
    env_backend: str | None = None,
    patience_s: float = 60.0,
) -> Acted:
    """Acts for a training in another process, until that is over.

    The environment, the algorithm and all settings are those of the training. Ctrl-C ends it at
    once; reported steps are kept.

    Args:
        address: where the training listens.
        token: the training's.
        tls: the training's; None does not encrypt.
        env_backend: what steps the environments; None: as in the training.
        patience_s: how long to wait for a learner that is not there yet, was lost, or has as many
            actors as it takes.

    Raises:
        UnavailableError: no learner came within ``patience_s``.
        ResourceExhaustedError: for so long it had as many actors as it takes.
        EnvError: an environment cannot be made, or raised.
    """
    address = _checks.text("address", address, "127.0.0.1:4432")
    patience_s = _checks.number("patience_s", patience_s, 0.0)
    if env_backend is not None:
        _checks.choice("env_backend", env_backend, BACKENDS)
    done = Acted(0, 0, 0, 0)
    join_s = min(_JOIN_S, max(_JOIN_LEAST_S, patience_s))
    until = time.monotonic() + patience_s
    pause = threading.Event()
    while True:
        now, lost = _stay(address, token, tls, env_backend, join_s)
        done = Acted(*(before + more for before, more in zip(done, now, strict=True)))
        if lost is None:
            return done
        if now.trainings > 0:
            until = time.monotonic() + patience_s
        elif time.monotonic() >= until:
            if isinstance(lost, ResourceExhaustedError):
                raise lost
            raise UnavailableError(f"no training answers at {address}: {lost}") from None
        pause.wait(_TRY_AGAIN_S)


def _stay(
    address: str,
    token: str | None,
    tls: PeerTls | None,
    env_backend: str | None,
    join_s: float,
) -> tuple[Acted, ReverieError | None]:
    """Joins, and acts as long as that goes; what ended it, if that was not the training's end."""
    with Rpc(token=token, tls=tls) as rpc:
        end = _reverie.TrainingEnd(rpc._native)  # first: a training may be closed at any time
        rpc.connect(address)
        try:
            joined = rpc.sync(LEARNER, _JOIN, timeout_s=join_s)
        except (UnavailableError, NotFoundError, DeadlineExceededError) as error:
            return Acted(0, 0, 0, 0), None if end.is_over() else error
        try:
            actor = _Actor(rpc, env_backend, joined, end)
        except (UnavailableError, NotFoundError, DeadlineExceededError) as error:
            if end.is_over():
                return Acted(0, 0, 0, 1), None
            return Acted(0, 0, 0, 0), error
        lost: ReverieError | None = None
        is_taken = True
        try:
            actor.run()
        except (UnavailableError, NotFoundError, CancelledError) as error:
            lost = error
        except ResourceExhaustedError as error:  # the places of lost actors become free soon
            lost = error
            is_taken = False
        finally:
            counts = actor.close()
    steps = counts["steps"]
    joins = 1 if is_taken or steps > 0 else 0
    return Acted(steps, counts["episodes"], counts["policies"], joins), lost


class _Actor:
    """One stay at a training."""

    def __init__(
        self,
        rpc: Rpc,
        env_backend: str | None,
        joined: dict[str, Any],
        end: _reverie.TrainingEnd,
    ) -> None:
        settings = joined["settings"]
        options, self._source = env_source(
            joined["env"],
            joined["env_options"],
            backend=joined["env_backend"] if env_backend is None else env_backend,
            timeout_s=joined["env_timeout_s"],
            count=int(settings["envs_per_actor"]),
        )
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        try:
            with raised_by(self._source):
                self._native = _reverie.RemoteActor(
                    rpc._native,
                    LEARNER,
                    joined["number"],
                    joined.get("run", 0),  # learners of earlier versions have none
                    end,
                    joined["algorithm"],
                    joined["env"],
                    options if self._source is None else {},
                    settings,
                    self._source,
                )
        except BaseException:
            if self._source is not None:
                self._source.close()
            raise

    def run(self) -> None:
        """Acts until the training is over; Ctrl-C ends it."""
        thread = threading.Thread(target=self._act, name="reverie-act", daemon=True)
        thread.start()
        try:
            while not self._is_over.wait(_LOOK_S):
                pass
        finally:
            if self._source is not None:
                self._source.stop()
            self._native.stop()
            thread.join()
        if self._error is not None:
            raise self._error

    def close(self) -> dict[str, int]:
        """Ends the environments; says what was done."""
        if self._source is not None:
            self._source.close()
        return self._native.counts()

    def _act(self) -> None:
        try:
            with raised_by(self._source):
                self._native.run()
        except BaseException as error:  # raised where it is waited for
            self._error = error
        finally:
            self._is_over.set()
