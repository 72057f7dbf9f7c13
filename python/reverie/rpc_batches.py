"""Calls served together: arguments are stacked, the function runs once, results are split.

For instance, with a batch of three:

    three calls     policy(obs 1), policy(obs 2), policy(obs 3)
    run once        policy(obs [3, ...]) -> actions [3, ...]
    three results   actions[0], actions[1], actions[2]
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

import numpy as np

from reverie import _checks, _reverie
from reverie._awaiting import Awaiting
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    UnsupportedTypeError,
)
from reverie.rpc_calls import DeferredReturn, ServingThreads, error_parts
from reverie.rpc_served_streams import checked_name

__all__ = ["BatchOptions", "Queue"]

_LOOK_S = 0.5  # how long a wait lasts at most before it looks whether the Rpc is open


class BatchOptions(NamedTuple):
    """How calls make a batch.

    Attributes:
        size: the most calls in a batch, also with ``cat``; with ``pad``, the fewest rows.
        max_wait_s: how long the first call of a batch waits for others; None waits for ``size``.
        dynamic: takes what waits, without waiting: a batch is what arrived during the one before.
        cat: callers send batches, which are concatenated; else each sends a row. The arrays of a
            call must have equally many rows.
        pad: fills the batch up to ``size`` by repeating the last row.
        device: where torch's tensors go.
        is_ready: called with the number of calls that wait; True closes the batch.
        leaves: how values other than arrays are batched. ``"stack"``: numbers are stacked as
            arrays are, others become a tuple with one entry per call. ``"each"``: the tuple for
            numbers too. ``"first"``: those of the first call, and results reach all callers.
    """

    size: int
    max_wait_s: float | None
    dynamic: bool
    cat: bool
    pad: bool
    device: str | None
    is_ready: Callable[[int], bool] | None
    leaves: str = "stack"

    def checked(self) -> BatchOptions:
        """Returns itself; raises an error that names an invalid option."""
        _checks.integer("batch_size", self.size, 1, 1 << 20)
        _checks.timeout("max_wait_s", self.max_wait_s)
        _checks.flag("dynamic_batching", self.dynamic)
        _checks.flag("cat", self.cat)
        _checks.flag("pad", self.pad)
        if self.is_ready is not None:
            _checks.function("is_ready", self.is_ready)
        if self.device is not None:
            _checks.text("device", _checks.written("device", self.device, "a device of torch"))
        return self

    def define(
        self,
        native: _reverie.RpcPeer,
        name: str,
        function: Callable[..., Any] | None,
        *,
        batched: bool = True,
        deferred: bool = False,
    ) -> _reverie.RpcGatherer | None:
        """Have calls of ``name`` gathered; without a ``function`` the program takes them."""
        size, max_wait_s, dynamic, cat, pad, device, is_ready, leaves = self
        wait = _checks.timeout("max_wait_s", max_wait_s)
        return native.define_gathered(
            *(checked_name(name), function, size, wait, dynamic, cat, pad, device),
            *(is_ready, leaves, batched, deferred),
        )


def _join_leaves(leaves: list[Any], cat: bool, pad: int, where: str) -> Any:  # noqa: ANN401
    """Leaves of the same place in each call as one, where native code does not: not all alike."""
    try:
        if type(leaves[0]).__module__.startswith("torch"):
            import torch

            places = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
            if len(places) > 1:  # only some callers share a GPU with this process
                place = max(places, key=str)  # after "cpu"
                leaves = [leaf.to(place) for leaf in leaves]
            whole = torch.cat(leaves) if cat else torch.stack(leaves)
            if pad and whole.shape[0] > 0:
                whole = torch.cat([whole, whole[-1:].expand(pad, *whole.shape[1:])])
            return whole
        joined = np.concatenate(leaves) if cat else np.stack([np.asarray(leaf) for leaf in leaves])
        if pad and joined.shape[0] > 0:
            joined = np.concatenate([joined, np.repeat(joined[-1:], pad, axis=0)])
        return joined
    except (ValueError, RuntimeError, TypeError) as error:
        shapes = ", ".join(str(tuple(np.shape(leaf))) for leaf in leaves[:8])
        raise InvalidArgumentError(
            f"the calls of a batch have arrays at {where} that do not fit together, of shapes "
            f"{shapes}: {error}"
        ) from None


_reverie.set_rpc_batch_helpers(_join_leaves, error_parts)


class Queue(ProcessBound):
    """Calls that a program takes when it wants to; made by ``Rpc.define_queue``.

    ``get`` and ``await queue`` give ``(answer, args, kwargs)``: ``answer(value)`` answers the call,
    ``answer.fail(error)`` fails it. With a batch size they give the waiting calls as one, with
    stacked arguments, and ``answer`` splits the result. Any thread may take.
    """

    _stays_because = "a Queue of calls lives in this process and cannot be pickled or copied"

    _gatherer: _reverie.RpcGatherer
    _pool: ServingThreads
    _fork_guard: ForkGuard
    _awaiting: Awaiting

    def __init__(self) -> None:
        raise UnsupportedTypeError("queues are made by Rpc.define_queue")

    @classmethod
    def _of(cls, gatherer: _reverie.RpcGatherer, pool: ServingThreads) -> Queue:
        made = object.__new__(cls)
        made._gatherer = gatherer
        made._pool = pool
        made._fork_guard = ForkGuard()
        made._awaiting = Awaiting()
        return made

    def _take_within(
        self, limit: float | None
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
        self._fork_guard.check("queue of calls")
        taken = self._gatherer.take(limit)
        if taken is None or len(taken) == 3:
            return taken
        session, call, caller, function, (args, kwargs) = taken
        return DeferredReturn._of(self._pool, session, call, caller, function), args, kwargs

    def __len__(self) -> int:
        """How many calls wait."""
        self._fork_guard.check("queue of calls")
        return len(self._gatherer)

    def get(self, timeout_s: float | None = None) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The next call or batch.

        Raises:
            DeadlineExceededError: none came within ``timeout_s``.
            CancelledError: the Rpc is closed, or the function was undefined.
        """
        taken = self._take_within(_checks.timeout("timeout_s", timeout_s))
        if taken is None:
            raise DeadlineExceededError(f"no call arrived within {timeout_s} s")
        return taken

    def __await__(self) -> Generator[Any, None, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
        """``await queue`` takes the next call or batch."""
        return self._take().__await__()

    async def _take(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        with self._awaiting.woken() as came:
            while True:
                came.clear()
                self._fork_guard.check("queue of calls")
                self._awaiting.be_told(self._gatherer.when_added)
                taken = self._take_within(0.0)
                if taken is not None:
                    return taken
                # A batch may also become ready by waiting.
                left = self._gatherer.time_left()
                wait_s = _LOOK_S if left is None else min(left, _LOOK_S)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(came.wait(), max(wait_s, 0.001))

    def __iter__(self) -> Iterable[Any]:
        """The calls as they arrive, until the Rpc is closed or the function undefined."""
        try:
            while True:
                yield self.get()
        except CancelledError:
            return
