"""moolib's groups and accumulators, over ``reverie.Group`` and ``reverie.Accumulator``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np

from reverie import _checks, _model_arrays, groups
from reverie._process_bound import ProcessBound
from reverie.accumulator import Accumulator as _Accumulator
from reverie.errors import CancelledError, DeadlineExceededError, GroupChangedError, ReverieError
from reverie.moolib_rpc import Rpc, addresses_of
from reverie.moolib_settings import RpcError, called

__all__ = ["Accumulator", "AllReduce", "Broker", "Group"]


def _translated(error: ReverieError) -> RpcError:
    """The same in moolib's words."""
    if isinstance(error, GroupChangedError):
        return RpcError(f"AllReduce operation cancelled due to a group change: {error}")
    if isinstance(error, DeadlineExceededError):
        return RpcError(f"AllReduce operation timed out: {error}")
    if isinstance(error, CancelledError):
        return RpcError("The operation was cancelled")
    return RpcError(str(error))


def _copied(state: Any) -> Any:  # noqa: ANN401
    """A state as it is now: its containers and arrays are copied, tensors to the CPU."""
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return getattr(state, "_make", type(state))([_copied(value) for value in state])
    if isinstance(state, np.ndarray):
        return state.copy()
    return state.detach().to("cpu", copy=True) if _model_arrays.is_torch(state) else state


class AllReduce(ProcessBound):
    """A reduction under way; made by ``Group.all_reduce``."""

    __slots__ = ("_round",)

    _stays_because = "an AllReduce lives in this process and cannot be pickled or copied"

    def __init__(self, round_: groups.Round) -> None:
        self._round = _checks.instance("round_", round_, groups.Round)

    def done(self) -> bool:
        """Whether ``result`` returns at once."""
        return self._round.done()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end; ``RpcError`` when ``timeout`` seconds are up first."""
        if not self._round.wait(_checks.timeout("timeout", timeout)):
            raise RpcError("The operation timed out")

    def result(self, timeout: float | None = None) -> Any:  # noqa: ANN401
        """The reduced value; raises ``RpcError`` if the round failed."""
        self.wait(timeout)
        try:
            return self._round.result()
        except ReverieError as error:
            raise _translated(error) from error

    def cancel(self) -> None:
        """End it on all members."""
        self._round.cancel()

    def exception(self) -> RpcError | None:
        """The error that it ended with; None while it is in progress, and if it has a result."""
        error = self._round.exception() if self._round.done() else None
        return None if error is None else _translated(error)

    def __await__(self) -> Generator[Any, None, Any]:
        """``await reduction`` gives the result."""
        try:
            return (yield from self._round.__await__())
        except ReverieError as error:
            raise _translated(error) from error

    __iter__ = __await__


class Group(ProcessBound):
    """The membership of ``rpc`` in the broker's group ``name``. It joins with the first ``update``.

    Args:
        rpc: the peer, connected to the broker.
        name: of the group.
    """

    _stays_because = "a Group lives in this process and cannot be pickled or copied"

    def __init__(self, rpc: Rpc, name: str) -> None:
        self._rpc = _checks.instance("rpc", rpc, Rpc)
        self._name = _checks.text("name", name)
        self._broker = "broker"
        self._sort_order = 0
        self._timeout_s: float | None = None
        self._made: groups.Group | None = None
        self._making = threading.Lock()

    def _group(self) -> groups.Group:
        if self._made is None:
            with self._making:  # of threads that use it first, one makes it
                if self._made is None:
                    self._made = groups.Group(
                        self._rpc._rpc(),
                        self._name,
                        broker=self._broker,
                        sort_order=self._sort_order,
                        stall_timeout_s=self._timeout_s,
                    )
        return self._made

    def update(self) -> bool:
        """Say that the program advances; True when the membership has changed."""
        return self._group().update()

    def set_broker_name(self, name: str) -> None:
        """The name of the broker's peer; before the first ``update``."""
        _checks.text("name", name)
        if self._made is not None:
            raise RpcError("set_broker_name must be called before the first update()")
        self._broker = name

    def set_timeout(self, seconds: float) -> None:
        """How long this peer stays a member without a call of ``update``; for ever by default.

        A process that dies is no member within two seconds, whatever this says.
        """
        self._timeout_s = _checks.number("seconds", seconds, 0.1)
        if self._made is not None:
            self._made.set_stall_timeout(self._timeout_s)

    def set_sort_order(self, order: int) -> None:
        """Members are ordered by it, then as they joined."""
        self._sort_order = _checks.integer("order", order, -(1 << 62), 1 << 62)
        if self._made is not None:
            self._made.set_sort_order(self._sort_order)

    def members(self) -> list[str]:
        """The members' names, in the order that all see."""
        return [] if self._made is None else self._made.members

    def sync_id(self) -> int:
        """A number that changes with the membership; 0 without one."""
        return 0 if self._made is None else self._made.epoch

    def name(self) -> str:
        """The name of the group."""
        return self._name

    def active(self) -> bool:
        """Whether there are members."""
        return bool(self.members())

    def all_reduce(
        self,
        name: str,
        data: Any,  # noqa: ANN401
        op: Callable[[Any, Any], Any] | None = None,
    ) -> AllReduce:
        """Reduce what all members bring: sums of tensors, or what ``op`` returns for two values.

        Every member has to begin it. It ends when a member is lost, and after the time that the
        ``Rpc`` gives its calls.
        """
        _checks.text("name", name)
        if op is not None:
            _checks.function("op", op)
        try:
            return AllReduce(
                self._group().all_reduce(
                    name, data, "sum" if op is None else op, timeout_s=self._rpc._timeout_s
                )
            )
        except ReverieError as error:
            if isinstance(error, RuntimeError | TypeError | ValueError):
                raise
            raise _translated(error) from error

    def leave(self) -> None:
        """Leave the group. Dropping the last reference does the same."""
        if self._made is not None:
            self._made.leave()


class Broker(ProcessBound):
    """Tells peers who is in their groups.

    Args:
        rpc: the peer that they call; None makes one of the name ``"broker"``.
        token: of the peer that is made; None is what ``configure`` has set.
        insecure: of the peer that is made.
    """

    _stays_because = "a Broker lives in this process and cannot be pickled or copied"

    def __init__(
        self, rpc: Rpc | None = None, *, token: str | None = None, insecure: bool | None = None
    ) -> None:
        if token is not None:
            _checks.text("token", token)
        if insecure is not None:
            _checks.flag("insecure", insecure)
        if rpc is None:
            rpc = Rpc(token=token, insecure=insecure)
            rpc.set_name("broker")
        self._rpc = _checks.instance("rpc", rpc, Rpc)

        self._made: groups.Broker | None = None
        self._making = threading.Lock()

    def _broker(self) -> groups.Broker:
        with self._making:
            if self._made is None:
                self._made = groups.Broker(self._rpc._rpc())
            return self._made

    def set_name(self, name: str) -> None:
        """The name of its peer; before anything else."""
        self._rpc.set_name(name)

    def listen(self, address: str) -> None:
        """Let peers connect."""
        self._broker()
        self._rpc.listen(address)

    def update(self) -> None:
        """Nothing is left to do here: the broker's own threads serve."""
        self._broker().groups()

    def close(self) -> None:
        """End it, with its peer."""
        with self._making:
            if self._made is not None:
                self._made.close()
            self._rpc.close()


class Accumulator(_Accumulator):
    """As ``reverie.Accumulator``, with moolib's arguments and its mean over contributions.

    Args:
        name: the same on all members.
        parameters: ``model.parameters()``.
        buffers: ``model.buffers()``.
        group: None makes one of that name, with an ``Rpc`` of its own.
        token: of the ``Rpc`` that is made, and so is ``insecure``.
        insecure: see ``Rpc``.
        options: the others of ``reverie.Accumulator``.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[Any],
        buffers: Iterable[Any] = (),
        group: Group | None = None,
        *,
        token: str | None = None,
        insecure: bool | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        owns = group is None
        if group is None:
            group = Group(Rpc(token=token, insecure=insecure), name)
        options = {"average": "contributions", **options}
        made = _checks.instance("group", group, Group)
        super().__init__(name, parameters, buffers, made._group(), **options)
        self._owns = owns
        for parameter in self._parameters:  # a program may clip or read them at once
            if getattr(parameter, "requires_grad", False) and parameter.grad is None:
                parameter.grad = parameter.detach().new_zeros(parameter.shape)
        self._kept: tuple[Any] | None = None  # the last state, which came or was given

    def connect(self, address: str) -> None:
        """Connect its ``Rpc`` to the broker, at an address as ``Rpc.connect`` takes it."""
        called(super().connect, addresses_of(address)[-1])

    def set_state(self, state: Any = None) -> None:  # noqa: ANN401
        """Give the model, the buffers and ``state`` to the members that need them.

        Args:
            state: as in ``reverie.Accumulator``; ``state()`` returns a copy of it afterwards.
        """
        super().set_state(state)
        self._kept = (_copied(state),)

    def state(self) -> Any:  # noqa: ANN401
        """The last state that came with the model, or that ``set_state`` gave; again and again."""
        if self.has_new_state() or self._kept is None:
            self._kept = (super().state(),)
        return self._kept[0]

    def zero_gradients(self, parameters: Any = None) -> None:  # noqa: ANN401
        """Set gradients to zero; after a step, continue with the next round.

        Args:
            parameters: as in ``reverie.Accumulator``.
        """
        if parameters is not None or self.has_gradients():
            super().zero_gradients(parameters)
            return
        self._check("zero_gradients")
        _model_arrays.zero_grads(self._parameters)
