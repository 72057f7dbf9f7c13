"""Groups: processes that come and go while they work, and rounds over all of them.

    broker = reverie.Broker()                              # anywhere; one for any number of groups
    address = broker.listen("127.0.0.1:4431")

    rpc = reverie.Rpc("worker-3")
    rpc.connect(address)
    with reverie.Group(rpc, "training") as group:
        group.wait(4)
        mean = group.all_reduce("gradients", {"w": gradient}, "mean").result()

A member that dies or freezes is dropped within two seconds, and a round that it was part of ends on
all others with ``GroupChangedError``, which names it. See docs/concepts/groups.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

from reverie import _checks, _reverie, _round_nests
from reverie._closing import Closing, Scoped
from reverie._device_copies import host_places, to_host
from reverie._process_bound import ProcessBound
from reverie.errors import (
    DeadlineExceededError,
    GroupChangedError,
    ReverieError,
    UnavailableError,
    UnsupportedTypeError,
)
from reverie.rpc import Rpc
from reverie.tls import PeerTls

__all__ = ["Broker", "Group", "Round"]

_OPS = ("sum", "mean", "min", "max", "product")


class Broker(ProcessBound, Closing):
    """Tells the members of groups which members there are.

    It carries no data and keeps nothing on disk. One that dies and is restarted at the same
    address learns its groups from their members; rounds continue meanwhile.

    Args:
        rpc: the peer that members call; by default one named ``"broker"``, which ends with this.
        token: of that peer; see ``reverie.Rpc``.
        tls: of that peer, a ``reverie.PeerTls``.
        insecure: lets it listen where other machines can reach it, without either.

    Raises:
        AlreadyExistsError: the peer is a broker already.
    """

    _stays_because = "a Broker lives in this process and cannot be pickled or copied"

    def __init__(
        self,
        rpc: Rpc | None = None,
        *,
        token: str | None = None,
        tls: PeerTls | None = None,
        insecure: bool = False,
    ) -> None:
        token = None if token is None else _checks.text("token", token)
        insecure = _checks.flag("insecure", insecure)
        self._owns_rpc = rpc is None
        if rpc is None:
            rpc = Rpc("broker", token=token, tls=tls, insecure=insecure)
        self._rpc = _checks.instance("rpc", rpc, Rpc)
        self._native = _reverie.Broker(rpc._native)

    @property
    def name(self) -> str:
        """The name of its peer."""
        return self._rpc.name

    def listen(self, address: str = "127.0.0.1:0") -> str:
        """Let members connect; returns the chosen address. As ``Rpc.listen``."""
        return self._rpc.listen(address)

    def groups(self) -> list[dict[str, Any]]:
        """The ``name``, ``epoch`` and ``members`` of each group, and which of them are ``missing``.

        A missing member has a moment to return before it is dropped.
        """
        return self._native.groups()

    def close(self) -> None:
        """End it. Idempotent."""
        self._native.close()
        if self._owns_rpc:
            self._rpc.close()

    def __repr__(self) -> str:
        return f"<reverie.Broker {self.name!r}>"


class Round(ProcessBound):
    """A round in progress, made by the methods of ``Group``. Any thread may use or await it."""

    __slots__ = ("_finish", "_native", "_value")

    _stays_because = (
        "a Round lives in this process and cannot be pickled or copied; send its result"
    )

    _native: _reverie.GroupRound
    _finish: Callable[[_reverie.GroupRound], Any]
    _value: tuple[Any] | None

    def __init__(self) -> None:
        raise UnsupportedTypeError("rounds are made by the methods of a Group")

    @classmethod
    def _of(
        cls, native: _reverie.GroupRound, finish: Callable[[_reverie.GroupRound], Any]
    ) -> Round:
        made = object.__new__(cls)
        made._native = native
        made._finish = finish
        made._value = None
        return made

    @property
    def members(self) -> list[str]:
        """The members that the round is over, in their order."""
        return self._native.members()

    def done(self) -> bool:
        """Whether ``result`` would return or raise at once."""
        return self._native.is_done()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; False if ``timeout_s`` is up first: the round continues."""
        return self._native.wait(_checks.timeout("timeout_s", timeout_s))

    def exception(self, timeout_s: float | None = None) -> ReverieError | None:
        """What ``result`` would raise once it has ended, or None."""
        if not self.wait(timeout_s):
            raise DeadlineExceededError(
                f"the round has no result within {timeout_s} s; it continues, ask again or cancel()"
            )
        error = self._native.error()
        if isinstance(error, UnavailableError):
            changed = GroupChangedError(str(error))
            changed.lost = tuple(self._native.lost())
            return changed
        return error  # type: ignore[return-value]

    def result(self, timeout_s: float | None = None) -> Any:  # noqa: ANN401
        """The result of the round. May be called again.

        Raises:
            GroupChangedError: a member was lost, or joined: begin the round again. Or this one has
                stalled: ``wait`` joins again.
            InvalidArgumentError: another member contributed different arrays, which the message
                names, or began another kind of round under this name; or the values are too large
                for a message.
            ResourceExhaustedError: too many calls or bytes wait at a member.
            DeadlineExceededError: no result within ``timeout_s``, and the round continues; or not
                within the time that a member set for the round, and it has ended.
            CancelledError: a member has cancelled it, or this one has left.
            FailedPreconditionError: the broker refuses this member.
        """
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        if self._value is None:
            self._value = (self._finish(self._native),)
        return self._value[0]

    def cancel(self) -> None:
        """End it on all members with ``CancelledError``, unless it has ended."""
        self._native.cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        """``await round`` gives the result."""
        import asyncio  # costs more to import than all of this package

        pause_s = 0.0002
        while not self.done():
            yield from asyncio.sleep(pause_s).__await__()
            pause_s = min(0.01, 1.2 * pause_s)
        return self.result()


class Group(ProcessBound, Scoped):
    """The membership of a peer in a group of a broker.

    All members see the same members, in the same order, in numbered epochs. A member is dropped
    when its process dies, freezes or cannot be reached, which native threads detect; a program that
    computes, or is stopped in a debugger, stays a member, and rounds wait for it.

    Args:
        rpc: the peer, connected to the broker. If it does not listen, it is made to, at a free
            port, so that others can reach it; with a token, or ``insecure``, at all interfaces.
        name: of the group.
        broker: the name of the broker's peer.
        sort_order: members are ordered by it, then as they joined.
        stall_timeout_s: a member whose program does not call ``update``, wait in ``wait`` or begin
            a round for so long leaves, and joins again with the next of these calls. None: never.
        shared_memory: use shared memory for arrays among members of one host, if all members allow
            it; False on one member has all of them send.
        host: members with the same name share memory; None: the machine and its network namespace.

    Raises:
        InvalidArgumentError: a name or number out of bounds; the peer is the broker itself.
        AlreadyExistsError: the peer is a member of this group.
    """

    _stays_because = "a Group lives in this process and cannot be pickled or copied"

    def __init__(
        self,
        rpc: Rpc,
        name: str,
        *,
        broker: str = "broker",
        sort_order: int = 0,
        stall_timeout_s: float | None = None,
        shared_memory: bool = True,
        host: str | None = None,
    ) -> None:
        self._rpc = _checks.instance("rpc", rpc, Rpc)
        self._name = _checks.text("name", name)
        if stall_timeout_s is not None:
            stall_timeout_s = _checks.number("stall_timeout_s", stall_timeout_s, 0.1)
        self._native = _reverie.Group(
            rpc._native,
            self._name,
            _checks.text("broker", broker),
            _checks.integer("sort_order", sort_order, -(1 << 62), 1 << 62),
            stall_timeout_s,
            _checks.flag("shared_memory", shared_memory),
            "" if host is None else _checks.text("host", host),
        )

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._name

    @property
    def rpc(self) -> Rpc:
        """The peer that is the member."""
        return self._rpc

    @property
    def members(self) -> list[str]:
        """The names of the members, in the order that all see; empty while there are none."""
        return self._native.membership()[2]

    @property
    def epoch(self) -> int:
        """The number of the membership, which grows with each change; 0 while there is none."""
        return self._native.membership()[0]

    @property
    def shares_memory(self) -> bool | None:
        """Whether arrays go through shared memory among members of one host.

        None until the first round of arrays among these members.
        """
        return self._native.shares_memory()

    @property
    def host_count(self) -> int | None:
        """How many hosts the members are on; None unless arrays go through shared memory."""
        return self._native.host_count()

    def update(self) -> bool:
        """Report progress; True if the membership has changed since the last call."""
        return self._native.update()

    def wait(self, count: int = 1, timeout_s: float | None = 60.0) -> list[str]:
        """Wait until the group has at least ``count`` members; returns them.

        Raises:
            DeadlineExceededError: not within ``timeout_s``; says why.
            FailedPreconditionError: this member has left, or the broker refuses it.
        """
        _checks.integer("count", count, 1, 1 << 20)
        self._native.wait_members(count, _checks.timeout("timeout_s", timeout_s))
        return self.members

    def why_waiting(self) -> str:
        """What this member waits for, as text: the broker, or members that have not begun a round.

        Empty if it does not wait.
        """
        return self._native.why_waiting()

    def set_sort_order(self, sort_order: int) -> None:
        """Change the order of members, which changes the membership."""
        self._native.set_sort_order(_checks.integer("sort_order", sort_order, -(1 << 62), 1 << 62))

    def set_stall_timeout(self, stall_timeout_s: float | None) -> None:
        """Leave when the program has not advanced for so long, until its next call; None: never."""
        if stall_timeout_s is not None:
            stall_timeout_s = _checks.number("stall_timeout_s", stall_timeout_s, 0.1)
        self._native.set_stall_timeout(stall_timeout_s)

    # --- Rounds. Each call returns immediately; every member must begin a round of that name.

    def all_reduce(
        self,
        name: str,
        data: Any,  # noqa: ANN401
        op: str | Callable[[Any, Any], Any] = "sum",
        *,
        timeout_s: float | None = None,
    ) -> Round:
        """Combine the arrays of all members, element by element; all get the same bytes.

        Args:
            name: of the round, the same on all members. Reuse it after the round: each new name
                takes about 115 bytes on every member until the membership changes.
            data: an array of NumPy, torch or JAX, a number, or a dict, list or tuple of such. It is
                copied. The result has its shape, types and frameworks.
            op: ``"sum"``, ``"mean"``, ``"min"``, ``"max"`` or ``"product"``; 16-bit floats are
                combined in float32. Or a function of two values: then values may be anything that
                can be sent, all members get all values, and each reduces them in the order of
                members, on the thread that takes the result.
            timeout_s: after which the round ends on all members without a result; None: it waits as
                long as all of them are alive.

        Raises:
            FailedPreconditionError: the group has no members yet, or this one has left.
            AlreadyExistsError: a round with this name is in progress.
            InvalidArgumentError: the arrays do not support the operation; a nest of more than 100
                levels.
            UnsupportedTypeError: a value that is not a dense array of numbers; keys of a dict that
                cannot be sorted.
        """
        limit = _checks.timeout("timeout_s", timeout_s)
        _checks.text("name", name)
        if callable(op):
            native = self._native.all_gather(name, "values to fold", data, limit)
            # The function may change its first argument, and raise: then result() begins again.
            return Round._of(
                native, lambda done: functools.reduce(op, _in_order(done, copies=True))
            )
        _checks.choice("op", op, _OPS)
        # Its own dicts and lists: the program may change those of ``data`` before the round ends.
        nest = _round_nests.rebuilt(data, (leaf for _, leaf in _round_nests.leaves(data)))
        names: list[str] = []
        leaves: list[Any] = []
        for path, leaf in _round_nests.leaves(nest):
            names.append(path)
            leaves.append(_round_nests.checked(leaf))
        native = self._native.all_reduce(
            name, op, [_round_nests.as_array(leaf) for leaf in to_host(leaves)], names, limit
        )

        def finish(done: _reverie.GroupRound) -> Any:  # noqa: ANN401
            places = host_places(leaves)
            like = _round_nests.like
            arrays = (like(leaf, done, i, places.get(i)) for i, leaf in enumerate(leaves))
            return _round_nests.rebuilt(nest, arrays)

        return Round._of(native, finish)

    def all_gather(
        self,
        name: str,
        value: Any = None,  # noqa: ANN401
        *,
        timeout_s: float | None = None,
    ) -> Round:
        """The values of all members, as a dict by their names, in the members' order.

        Together they may have 64 MiB besides their arrays, which may have 4 GiB: beyond that the
        round ends on all members with ``InvalidArgumentError``. ``broadcast`` and an ``all_reduce``
        with a function have the same bounds.
        """
        limit = _checks.timeout("timeout_s", timeout_s)
        native = self._native.all_gather(_checks.text("name", name), "values", value, limit)
        return Round._of(
            native, lambda done: dict(zip(done.members(), _in_order(done), strict=True))
        )

    def broadcast(
        self,
        name: str,
        value: Any = None,  # noqa: ANN401
        *,
        source: str,
        timeout_s: float | None = None,
    ) -> Round:
        """Sends the value of member ``source`` to all; those of others are not sent."""
        limit = _checks.timeout("timeout_s", timeout_s)
        native = self._native.broadcast(
            _checks.text("name", name), _checks.text("source", source), value, limit
        )
        return Round._of(native, lambda done: _in_order(done)[0])

    def barrier(self, name: str = "barrier", *, timeout_s: float | None = None) -> Round:
        """Ends once all members have begun it."""
        limit = _checks.timeout("timeout_s", timeout_s)
        native = self._native.all_gather(_checks.text("name", name), "a barrier", None, limit)
        return Round._of(native, lambda _: None)

    # --- The end.

    def leave(self) -> None:
        """Leave the group; rounds in progress end on all members. Idempotent."""
        self._native.leave()

    def __repr__(self) -> str:
        return f"<reverie.Group {self._name!r} of {self._rpc.name!r}>"

    def _leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        self.leave()


def _in_order(done: _reverie.GroupRound, *, copies: bool = False) -> list[Any]:
    values = done.values(copies)
    return [values[i] for i in sorted(values)]
