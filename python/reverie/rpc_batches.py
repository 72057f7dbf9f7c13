r"""Calls that are served together: arguments stacked, one run of the function, results dealt out.

calls   policy(obs 1)   policy(obs 2)   policy(obs 3)
\\               |               /
policy(obs [3, ...]) -> actions [3, ...]
/               |               \\
    results  actions[0]      actions[1]      actions[2]
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reverie import _checks
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    ReverieError,
)

if TYPE_CHECKING:
    from reverie.rpc import DeferredReturn

__all__ = ["BatchOptions", "Queue"]

_LOOK_S = 0.5  # how long a wait lasts at most before it looks whether the Rpc is open


class BatchOptions(NamedTuple):
    """How calls make a batch.

    Attributes:
        size: calls of a batch at most; with ``cat``, rows of one.
        max_wait_s: how long the first call of a batch waits for others; None waits for ``size``.
        dynamic: takes what waits, without waiting: a batch is what came during the one before.
        cat: callers bring batches, which are concatenated; else each brings a row.
        pad: fills the batch up to ``size`` by repeating the last row.
        device: where torch's tensors go.
        is_ready: called with the number of calls that wait; True closes the batch.
        leaves: how values other than arrays are batched. ``"stack"``: numbers are stacked as
            arrays are, of others there is a tuple with one entry a call. ``"each"``: the tuple for
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
        """Itself; raises what names the option that cannot be."""
        _checks.integer("batch_size", self.size, 1, 1 << 20)
        _checks.timeout("max_wait_s", self.max_wait_s)
        _checks.flag("dynamic_batching", self.dynamic)
        _checks.flag("cat", self.cat)
        _checks.flag("pad", self.pad)
        if self.is_ready is not None:
            _checks.function("is_ready", self.is_ready)
        if self.device is not None:
            _checks.text("device", str(self.device))
        return self


class Waiting(NamedTuple):
    """A call that waits for its batch."""

    answer: DeferredReturn
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _is_array(leaf: object) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _is_torch(leaf: object) -> bool:
    return type(leaf).__module__.startswith("torch")


def _joined(leaves: Sequence[Any], options: BatchOptions, path: str) -> Any:  # noqa: ANN401
    """Leaves of the same place in each call, as one."""
    first = leaves[0]
    if not _is_array(first):
        if options.leaves == "first":
            return first
        if (
            options.leaves == "stack"
            and isinstance(first, (bool, int, float))
            and all(isinstance(leaf, (bool, int, float)) for leaf in leaves)
        ):
            leaves = [np.asarray(leaf) for leaf in leaves]
        else:
            return tuple(leaves)
    try:
        if _is_torch(leaves[0]):
            import torch

            whole = torch.cat(list(leaves)) if options.cat else torch.stack(list(leaves))
            return whole if options.device is None else whole.to(options.device)
        return np.concatenate(leaves) if options.cat else np.stack(leaves)
    except (ValueError, RuntimeError, TypeError) as error:
        shapes = ", ".join(str(tuple(np.shape(leaf))) for leaf in leaves[:8])
        raise InvalidArgumentError(
            f"the calls of a batch have arrays at {path or 'their argument'} that do not fit "
            f"together, of shapes {shapes}: {error}"
        ) from None


def _join(nests: Sequence[Any], options: BatchOptions, path: str) -> Any:  # noqa: ANN401
    first = nests[0]
    if isinstance(first, dict):
        if any(not isinstance(nest, dict) or nest.keys() != first.keys() for nest in nests):
            raise InvalidArgumentError(
                f"the calls of a batch have other keys at {path or 'the top'}"
            )
        return {key: _join([n[key] for n in nests], options, f"{path}/{key}") for key in first}
    if isinstance(first, (list, tuple)):
        if any(type(nest) is not type(first) or len(nest) != len(first) for nest in nests):
            raise InvalidArgumentError(
                f"the calls of a batch have other lengths at {path or 'the top'}"
            )
        parts = [_join([n[i] for n in nests], options, f"{path}/{i}") for i in range(len(first))]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return _joined(nests, options, path)


def _arrays(nest: Any) -> Generator[Any, None, None]:  # noqa: ANN401
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, (list, tuple)):
        for value in nest:
            yield from _arrays(value)
    elif _is_array(nest) and len(nest.shape) > 0:
        yield nest


def _is_dealt_out(nest: Any, options: BatchOptions) -> bool:  # noqa: ANN401
    """Whether a list or tuple of a result has an entry for each call."""
    if next(_arrays(nest), None) is not None or options.leaves == "first":
        return False
    return options.leaves == "stack" or isinstance(nest, tuple)


def _part(nest: Any, begin: int, end: int, index: int, count: int, options: BatchOptions) -> Any:  # noqa: ANN401
    """The part of a result that is one caller's: rows [begin, end), or entry ``index``."""
    if isinstance(nest, dict):
        return {k: _part(v, begin, end, index, count, options) for k, v in nest.items()}
    if isinstance(nest, (list, tuple)):
        if _is_dealt_out(nest, options) and len(nest) >= count:
            return nest[index]
        parts = [_part(value, begin, end, index, count, options) for value in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)
    if _is_array(nest) and len(nest.shape) > 0:
        return nest[begin:end] if options.cat else nest[begin]
    return nest


class Batch:
    """Calls that are served together."""

    def __init__(self, calls: Sequence[Waiting], options: BatchOptions) -> None:
        self._calls = calls
        self._options = options
        nests = [(call.args, call.kwargs) for call in calls]
        self.args, self.kwargs = _join(nests, options, "")
        self._rows = [
            next((int(a.shape[0]) for a in _arrays(nest)), 1) if options.cat else 1
            for nest in nests
        ]
        self._padded = sum(self._rows)
        if options.pad and self._padded < options.size:
            self.args, self.kwargs = _pad((self.args, self.kwargs), options.size - self._padded)
            self._padded = options.size

    def __call__(self, value: Any = None) -> None:  # noqa: ANN401
        """Deal a result out: each caller gets its rows."""
        for array in _arrays(value):
            if array.shape[0] != self._padded:
                error = InvalidArgumentError(
                    f"the function of a batch of {self._padded} rows gave an array of "
                    f"{array.shape[0]}; each caller's rows must be there"
                )
                self.fail(error)
                return
        is_dealt_out = isinstance(value, (list, tuple)) and _is_dealt_out(value, self._options)
        if is_dealt_out and len(value) not in (len(self._calls), self._padded):
            self.fail(
                InvalidArgumentError(
                    f"the function of a batch of {len(self._calls)} calls gave {len(value)} "
                    "values; each caller is to have one"
                )
            )
            return
        begin = 0
        for index, (call, rows) in enumerate(zip(self._calls, self._rows, strict=True)):
            count = len(self._calls)
            mine = _part(value, begin, begin + rows, index, count, self._options)
            begin += rows
            try:
                call.answer(mine)
            except ReverieError:
                continue  # it cannot be sent, and its caller knows; the others get theirs

    def fail(self, error: BaseException | str) -> None:
        """Give all callers the same error."""
        for call in self._calls:
            if not call.answer._answered:
                call.answer.fail(error)


def _pad(nest: Any, count: int) -> Any:  # noqa: ANN401
    if isinstance(nest, dict):
        return {key: _pad(value, count) for key, value in nest.items()}
    if isinstance(nest, (list, tuple)):
        parts = [_pad(value, count) for value in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)
    if not _is_array(nest) or len(nest.shape) == 0 or nest.shape[0] == 0:
        return nest
    if _is_torch(nest):
        import torch

        return torch.cat([nest, nest[-1:].expand(count, *nest.shape[1:])])
    return np.concatenate([nest, np.repeat(nest[-1:], count, axis=0)])


class Gatherer:
    """Calls that wait, and what takes them in batches. Any thread may add and take."""

    def __init__(self, options: BatchOptions, check_open: Callable[[], None]) -> None:
        self.options = options
        self._check_open = check_open
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, Waiting]] = deque()
        self._is_running = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: Waiting) -> None:
        """One more."""
        with self._changed:
            self._waiting.append((time.monotonic(), call))
            self._changed.notify()

    def _left_s(self) -> float:
        """Seconds until the calls that wait are a batch; 0: now. Under the lock."""
        options = self.options
        count = len(self._waiting)
        if count == 0:
            return float("inf")
        if options.dynamic or count >= options.size:
            return 0.0
        if options.is_ready is not None and options.is_ready(count):
            return 0.0
        if options.max_wait_s is None:
            return float("inf")
        return max(0.0, self._waiting[0][0] + options.max_wait_s - time.monotonic())

    def take(self, deadline: float) -> list[Waiting]:
        """The calls of the next batch; none when ``deadline`` is up first."""
        with self._changed:
            while (left := self._left_s()) > 0:
                now = time.monotonic()
                if now >= deadline:
                    return []
                self._check_open()
                self._changed.wait(min(left, deadline - now, _LOOK_S))
            return self._taken()

    def take_now(self) -> list[Waiting]:
        """The same without waiting."""
        with self._changed:
            return self._taken() if self._left_s() == 0 else []

    def _taken(self) -> list[Waiting]:
        count = min(self.options.size, len(self._waiting))
        return [self._waiting.popleft()[1] for _ in range(count)]

    def serve(self, function: Callable[..., Any]) -> None:
        """Run batches on this thread while calls wait, unless another one does already."""
        options = self.options
        while True:
            with self._changed:
                can_wait = options.max_wait_s is not None or options.dynamic
                has_batch = self._left_s() == 0 or (can_wait and len(self._waiting) > 0)
                if self._is_running or not has_batch:
                    return
                self._is_running = True
            try:
                run(self.take(float("inf")), options, function)
            finally:
                self._is_running = False


def joined(calls: Sequence[Waiting], options: BatchOptions) -> Batch | None:
    """The calls as one; None where they do not fit together, which their callers are told."""
    try:
        return Batch(calls, options)
    except ReverieError as error:
        for call in calls:
            call.answer.fail(error)
        return None


def run(calls: Sequence[Waiting], options: BatchOptions, function: Callable[..., Any]) -> None:
    """Serve these calls together."""
    batch = joined(calls, options)
    if batch is None:
        return
    try:
        batch(function(*batch.args, **batch.kwargs))
    except BaseException as error:  # all callers are to know
        batch.fail(error)


class Queue(ProcessBound):
    """Calls that a program takes when it likes; made by ``Rpc.define_queue``.

    ``get`` and ``await queue`` give ``(answer, args, kwargs)``: ``answer(value)`` answers the call,
    ``answer.fail(error)`` fails it. With a batch size they give the calls that wait as one, their
    arguments stacked, and ``answer`` deals the result out. Any thread may take.
    """

    _stays_because = "a Queue of calls lives in this process and cannot be pickled or copied"

    def __init__(self, gatherer: Gatherer, is_batched: bool) -> None:
        self._gatherer = _checks.instance(
            "gatherer", gatherer, Gatherer, "what Rpc.define_queue made"
        )
        self._is_batched = _checks.flag("is_batched", is_batched)
        self._fork_guard = ForkGuard()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def _added(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _made(self, calls: list[Waiting]) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
        if not self._is_batched:
            return calls[0].answer, calls[0].args, calls[0].kwargs
        batch = joined(calls, self._gatherer.options)
        return None if batch is None else (batch, batch.args, batch.kwargs)

    def __len__(self) -> int:
        """How many calls wait."""
        self._fork_guard.check("queue of calls")
        return len(self._gatherer)

    def get(self, timeout_s: float | None = None) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The next call or batch.

        Raises:
            DeadlineExceededError: none came within ``timeout_s``.
            CancelledError: the Rpc is closed.
        """
        limit = _checks.timeout("timeout_s", timeout_s)
        self._fork_guard.check("queue of calls")
        deadline = float("inf") if limit is None else time.monotonic() + limit
        while True:
            try:
                calls = self._gatherer.take(deadline)
            except ReverieError:
                raise CancelledError("the Rpc of this queue is closed") from None
            if not calls:
                raise DeadlineExceededError(f"no call came within {timeout_s} s")
            made = self._made(calls)
            if made is not None:
                return made

    def __await__(self) -> Generator[Any, None, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
        """``await queue`` takes the next call or batch."""
        return self._take().__await__()

    async def _take(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        self._fork_guard.check("queue of calls")
        loop = asyncio.get_running_loop()
        while True:
            came = asyncio.Event()

            def wake(came: asyncio.Event = came) -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(came.set)

            with self._lock:
                self._callbacks.append(wake)
            calls = self._gatherer.take_now()
            if calls:
                with self._lock:
                    if wake in self._callbacks:
                        self._callbacks.remove(wake)
                made = self._made(calls)
                if made is not None:
                    return made
                continue
            # A batch may also become ready by waiting.
            left = min(self._gatherer._left_s(), _LOOK_S)
            try:
                await asyncio.wait_for(came.wait(), max(left, 0.001))
            except asyncio.TimeoutError:
                try:
                    self._gatherer._check_open()
                except ReverieError:
                    raise CancelledError("the Rpc of this queue is closed") from None

    def __iter__(self) -> Iterable[Any]:
        """The calls as they come, until the Rpc is closed."""
        try:
            while True:
                yield self.get()
        except CancelledError:
            return
