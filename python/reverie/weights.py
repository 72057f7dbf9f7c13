"""Weights by version: a learner publishes them, and actors take the newest when they want it.

    rpc = reverie.Rpc("learner")                            # one process
    weights = reverie.Weights(rpc, "policy")
    weights.publish(1, {"w": w, "b": b})

    rpc = reverie.Rpc("actor")                              # another
    rpc.connect(address)
    weights = reverie.Weights(rpc, "policy", sources=["learner"])
    version, policy = weights.wait()
    ...
    version, policy = weights.pull()                        # the newest, now and then

docs/concepts/weights.md says what happens where the processes are on one host, and where not.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from reverie import _checks, _reverie
from reverie._closing import Closing
from reverie._process_bound import ProcessBound
from reverie.rpc import Rpc

__all__ = ["Version", "Weights"]

_VERSION_MAX = (1 << 62) - 1


class Version(NamedTuple):
    """One version of weights."""

    version: int
    value: Any


class Weights(ProcessBound, Closing):
    """Weights of one name, on one peer: published here, or taken from other peers.

    A version is complete, and the arrays that a peer has of it never change. On one host they are
    in memory that all peers share, so that nothing is copied; a peer that writes to them gets
    copies of the pages that it writes to. To other hosts they are sent.

    Args:
        rpc: the peer, connected such that it can reach its sources.
        name: the same on all that take part.
        sources: names of peers to ask, in this order: the one that publishes, and others that take
            from it. Every peer that has a version serves it, so one that joins after the publisher
            has died gets the last version from another.
        shared_memory: map the arrays of peers on this host; False has them sent.

    Raises:
        AlreadyExistsError: the peer has weights of this name.
        InvalidArgumentError: a name out of bounds, or a source that is this peer.
    """

    _stays_because = "Weights live in this process and cannot be pickled or copied"

    def __init__(
        self, rpc: Rpc, name: str, *, sources: Sequence[str] = (), shared_memory: bool = True
    ) -> None:
        self._rpc = _checks.instance("rpc", rpc, Rpc)
        self._name = _checks.text("name", name)
        named = [
            _checks.text("sources", one)
            for one in _checks.items("sources", sources, "names of peers")
        ]
        self._native = _reverie.Weights(
            rpc._native, self._name, named, _checks.flag("shared_memory", shared_memory)
        )
        self._taken: Version | None = None
        self._taking = threading.RLock()

    @property
    def name(self) -> str:
        """The name of the weights."""
        return self._name

    @property
    def version(self) -> int | None:
        """The version that this peer has; None before the first."""
        return self._native.version()

    def publish(self, version: int, value: Any) -> None:  # noqa: ANN401
        """Publish a version: arrays, and nests of arrays and other values. It is copied.

        Other objects are pickled if the ``Rpc`` allows that: then only peers that allow it too can
        read the version.

        Raises:
            InvalidArgumentError: the version is not above the one before.
            UnsupportedTypeError: a value that cannot be sent.
            CancelledError: the weights are closed.
        """
        self._native.publish(_checks.integer("version", version, 0, _VERSION_MAX), value)

    def pull(self, *, timeout_s: float | None = 60.0) -> Version | None:
        """The newest version of the first source that can be reached; None before there is one.

        Its number is lower than before if the publisher was restarted with a lower one.

        Raises:
            UnavailableError: no source can be reached. ``held`` returns the last version.
            NotFoundError: no source is known by its name.
            DeadlineExceededError: no answer within ``timeout_s``.
            UnsupportedTypeError: the version has a pickle, and the ``Rpc`` here allows none.
        """
        self._native.pull(_checks.timeout("timeout_s", timeout_s))
        return self.held()

    def wait(self, above: int | None = None, *, timeout_s: float | None = 60.0) -> Version:
        """Wait for a version above ``above``, by default for any; sources may connect meanwhile.

        For a peer that has a version, the first one of a restarted publisher ends the wait too,
        whatever its number.

        Raises:
            DeadlineExceededError: none within ``timeout_s``.
        """
        limit = _checks.timeout("timeout_s", timeout_s)
        at_least = 0 if above is None else _checks.integer("above", above, 0, _VERSION_MAX) + 1
        self._native.wait_for(at_least, limit)
        held = self.held()
        assert held is not None
        return held

    def held(self) -> Version | None:
        """The version that this peer has, without asking; None before the first."""
        self._native.is_given()  # refuses a forked child, where the lock may be held forever
        with self._taking:  # until the value of what counts as given is there
            if self._taken is None or not self._native.is_given():
                found = self._native.held()
                self._taken = None if found is None else Version(*found)
            return self._taken

    def close(self) -> None:
        """Stop serving and asking. Arrays that were taken stay valid. Idempotent."""
        self._native.close()

    def __repr__(self) -> str:
        return f"<reverie.Weights {self._name!r} of {self._rpc.name!r}, version {self.version}>"
