"""Gradients of all members of a group, summed once enough samples are there.

    accumulator = reverie.Accumulator("model", model.parameters(), model.buffers(), group)
    accumulator.set_virtual_batch_size(256)
    while training:
        accumulator.update()
        if accumulator.wants_state():
            accumulator.set_state({"optimizer": optimizer.state_dict()})
        if accumulator.has_new_state():
            optimizer.load_state_dict(accumulator.state()["optimizer"])
        if accumulator.has_gradients():
            optimizer.step()
            accumulator.zero_gradients()
        elif accumulator.wants_gradients() and batch_is_ready():
            loss(batch).backward()
            accumulator.reduce_gradients(batch_size)
        else:
            act()

No call waits. A round ends when the members have contributed ``virtual_batch_size`` samples in
all: one may contribute often, another not at all, and all of them get the same sum and take the
same step. docs/concepts/groups.md draws the states.
"""

from __future__ import annotations

import hashlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from reverie import _checks, _reverie
from reverie._process_bound import ProcessBound
from reverie.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    ReverieError,
    UnsupportedTypeError,
)
from reverie.groups import Group, Round
from reverie.rpc import Rpc

__all__ = ["Accumulator"]

_NAMES = 64  # of rounds, used in turns
_ASK_AGAIN_S = 5.0  # for the model
_RESTART_S = 2.0  # after a round that failed, where no member was lost
_AVERAGES = ("samples", "contributions", "sum")
_HALVES = ("float16", "bfloat16")


class _Key(NamedTuple):
    """Which run of rounds a message belongs to."""

    membership: int
    generation: int


class Accumulator(ProcessBound):
    """A member's part in the training of one model.

    The member with the highest model version leads: it counts samples, and gives the model to those
    that have another one. All methods are for one thread, the one that calls ``update`` first.

    Args:
        name: the same on all members of the group.
        parameters: tensors of torch or arrays of NumPy, which ``update`` overwrites where another
            member's model is taken over. Gradients of torch's are their ``grad``.
        buffers: what goes along with the model without gradients.
        group: what to be a member of; None makes one of the name ``name``, with an ``Rpc`` of its
            own, for which ``connect`` says where the broker is.
        average: gradients are divided by the number of ``"samples"`` of the round, each
            contribution counting as many as its batch has; of ``"contributions"``; or are a
            ``"sum"``.
        finite: refuse gradients that are infinite or no number.
        state_interval_s: how often the leader gives its state to all, besides.
        token: of the ``Rpc`` that is made.
        insecure: of the ``Rpc`` that is made.

    Raises:
        InvalidArgumentError: no parameters, or an argument out of bounds.
        UnsupportedTypeError: a parameter that is neither a tensor nor an array.
        AlreadyExistsError: the peer has an accumulator of this name in this group.
    """

    _stays_because = "an Accumulator lives in this process and cannot be pickled or copied"

    def __init__(
        self,
        name: str,
        parameters: Iterable[Any],
        buffers: Iterable[Any] = (),
        group: Group | None = None,
        *,
        average: str = "samples",
        finite: bool = False,
        state_interval_s: float = 600.0,
        token: str | None = None,
        insecure: bool = False,
    ) -> None:
        self._name = _checks.text("name", name)
        self._parameters = _arrays("parameters", parameters)
        self._buffers = _arrays("buffers", buffers)
        if not self._parameters:
            raise InvalidArgumentError("parameters is empty; give those of the model")
        self._average = _checks.choice("average", average, _AVERAGES)
        self._finite = _checks.flag("finite", finite)
        self._state_interval_s = _checks.number("state_interval_s", state_interval_s, 0.001)
        self._owns = group is None
        if group is None:
            group = Group(Rpc(token=token, insecure=insecure), name)
        self._group = _checks.instance("group", group, Group)
        self._rpc = group.rpc
        self._me = self._rpc.name
        self._function = f"reverie.accumulator.{group.name}::{name}"
        self._signature = [_kind(array) for array in (*self._parameters, *self._buffers)]
        self._virtual_batch_size = 1
        self._parallel = 1
        self._owner: int | None = None
        self._closed = False

        # What handlers on other threads touch too.
        self._lock = threading.RLock()
        self._key = _Key(0, 0)
        self._members: list[str] = []
        self._leader = ""
        self._election: Round | None = None
        self._election_s = 0.0
        self._early: list[tuple[str, _Key, tuple[Any, ...]]] = []
        self._version = 0
        self._lineage = _reverie.random_seed()
        self._has_model = False
        self._asked_s = 0.0
        self._failed_s: float | None = None
        self._restart: _Key | None = None
        self._sums: list[np.ndarray[Any, Any]] | None = None
        self._contributions = 0
        self._samples = 0
        self._open = 0  # the slot that contributions go to
        self._delivered = 0  # slots whose gradients this member has taken
        self._offered = 0  # samples of the open slot that the leader knows of
        self._gone: set[int] = set()
        self._rounds: deque[tuple[int, Round]] = deque()
        self._needers: dict[str, None] = {}
        self._refreshed_s = time.monotonic()
        self._incoming: tuple[Any, ...] | None = None

        # What the program sees; changes in update() and by its own calls.
        self._wants = False
        self._has = False
        self._reduced: list[np.ndarray[Any, Any]] = []
        self._stats = {"num_gradients": 0, "num_skipped": 0, "batch_size": 0}
        self._state: tuple[Any] | None = None
        weak = weakref.ref(self)  # the peer keeps its functions

        def on_message(what: str, key: list[int], *arguments: Any) -> None:  # noqa: ANN401
            accumulator = weak()
            if accumulator is not None:
                accumulator._on_message(what, key, *arguments)

        self._rpc.define(self._function, on_message)

    # --- What is known.

    @property
    def name(self) -> str:
        """The name of the accumulator."""
        return self._name

    @property
    def group(self) -> Group:
        """The group that it is a part of."""
        return self._group

    def connected(self) -> bool:
        """Whether there is a leader, and this member has its model."""
        return bool(self._leader) and self._has_model

    def is_leader(self) -> bool:
        """Whether this member is the leader."""
        return self._leader == self._me

    def get_leader(self) -> str:
        """The name of the leader; empty while there is none."""
        return self._leader

    def model_version(self) -> int:
        """How many times the model was changed."""
        return self._version

    def wants_gradients(self) -> bool:
        """Whether ``reduce_gradients`` or ``skip_gradients`` may be called now."""
        return self._wants

    def has_gradients(self) -> bool:
        """Whether the gradients of a round are there: take a step, then ``zero_gradients``."""
        return self._has

    def has_new_state(self) -> bool:
        """Whether the model was taken over from another member; ``state`` gives what came along."""
        return self._state is not None

    def wants_state(self) -> bool:
        """Whether another member needs the model: call ``set_state``. Only on the leader."""
        with self._lock:
            if not self.is_leader() or self._has:
                return False
            is_due = time.monotonic() - self._refreshed_s >= self._state_interval_s
            return bool(self._needers) or (is_due and len(self._members) > 1)

    def get_gradient_stats(self) -> dict[str, int]:
        """The last round's ``num_gradients`` and ``batch_size``, over all contributions.

        ``num_skipped`` is how many members brought none.
        """
        return dict(self._stats)

    def why_waiting(self) -> str:
        """What this member waits for, in words; empty if for nothing."""
        text = self._group.why_waiting()
        if self._leader and not self._has_model:
            more = f"leader '{self._leader}' has not given the model of '{self._name}' yet"
            text = f"{text}; {more}" if text else more
        return text

    # --- Settings.

    def connect(self, address: str) -> None:
        """Connect its ``Rpc`` to the broker."""
        self._rpc.connect(address)

    def set_virtual_batch_size(self, size: int) -> None:
        """How many samples a round has, at least. The leader's counts."""
        self._virtual_batch_size = _checks.integer("size", size)

    def set_parallel_gradients(self, count: int) -> None:
        """How many rounds may be under way at once, whose gradients are then older."""
        self._parallel = _checks.integer("count", count, 1, _NAMES // 2)

    def set_model_version(self, version: int) -> None:
        """Set the version of a model that was read from a checkpoint: the highest leads."""
        _checks.integer("version", version, 0)
        with self._lock:
            if version < self._version:
                raise InvalidArgumentError(
                    f"version is {version}; the model has {self._version}, and versions rise"
                )
            self._version = version
            self._lineage = _reverie.random_seed()

    # --- The program's loop.

    def update(self) -> None:
        """Let the state change: call it often. All that the other methods tell changes here."""
        self._check("update")
        self._group.update()
        with self._lock:
            self._follow_membership()
            self._follow_election()
            if not self._has:
                self._take_model()
                self._take_gradients()
            self._lead()
            self._wants = (
                self.connected()
                and not self._has
                and self._failed_s is None
                and self._open - self._delivered < self._parallel
            )

    def reduce_gradients(self, batch_size: int, gradients: Any = None) -> None:  # noqa: ANN401
        """Contribute gradients, the mean over ``batch_size`` samples. They are copied.

        Args:
            batch_size: samples that they were computed from.
            gradients: one array for each parameter; by default the ``grad`` of torch's tensors,
                which are zeroed.

        Raises:
            FailedPreconditionError: ``wants_gradients`` is False.
            InvalidArgumentError: a gradient of another shape than its parameter, or one that is not
                finite where ``finite`` was asked for.
        """
        self._check("reduce_gradients")
        _checks.integer("batch_size", batch_size, 1, 1 << 40)
        self._check_wanted("reduce_gradients")
        weight = batch_size if self._average == "samples" else 1
        arrays = self._host_gradients(gradients, weight)
        with self._lock:
            if self._sums is None:
                self._sums = arrays
            else:
                for total, array in zip(self._sums, arrays, strict=True):
                    total += array
            self._contributions += 1
            self._samples += batch_size
            self._wants = False
            self._offer(batch_size)
        if gradients is None:
            self._zero()

    def skip_gradients(self) -> None:
        """Contribute nothing now. Not needed: a member that does nothing gets the sum too.

        Raises:
            FailedPreconditionError: ``wants_gradients`` is False.
        """
        self._check("skip_gradients")
        self._check_wanted("skip_gradients")
        self._wants = False

    def gradients(self) -> list[np.ndarray[Any, Any]]:
        """The gradients of the round, one array for each parameter, while ``has_gradients``.

        Raises:
            FailedPreconditionError: there are none.
        """
        if not self._has:
            raise FailedPreconditionError("there are no gradients now; ask has_gradients() first")
        return self._reduced

    def zero_gradients(self) -> None:
        """The step was taken: set gradients to zero, and go on to the next round.

        Raises:
            FailedPreconditionError: there are none.
        """
        self._check("zero_gradients")
        if not self._has:
            raise FailedPreconditionError("there are no gradients now; ask has_gradients() first")
        self._zero()
        self._has = False
        self._reduced = []

    def set_state(self, state: Any = None) -> None:  # noqa: ANN401
        """Give the model, the buffers and ``state`` to the members that need them.

        Args:
            state: what can be sent: numbers, text, arrays, and nests of such.

        Raises:
            FailedPreconditionError: this member does not lead, or has gradients and no step taken.
            UnsupportedTypeError: a state that cannot be sent.
        """
        self._check("set_state")
        with self._lock:
            if not self.is_leader():
                raise FailedPreconditionError(
                    f"the leader gives the state, and that is '{self._leader}'; ask wants_state()"
                )
            if self._has:
                raise FailedPreconditionError("take the step and call zero_gradients() first")
            is_due = time.monotonic() - self._refreshed_s >= self._state_interval_s
            targets = [m for m in self._members if m != self._me] if is_due else list(self._needers)
            model = [_host(array) for array in self._parameters]
            buffers = [_host(array) for array in self._buffers]
            for member in targets:
                self._tell(
                    member,
                    "state",
                    (self._version, self._lineage, self._delivered, model, buffers, state),
                )
            self._needers.clear()
            if is_due:
                self._refreshed_s = time.monotonic()

    def state(self) -> Any:  # noqa: ANN401
        """What came along with the model, once.

        Raises:
            FailedPreconditionError: ``has_new_state`` is False.
        """
        if self._state is None:
            raise FailedPreconditionError("there is no new state; ask has_new_state() first")
        (state,) = self._state
        self._state = None
        return state

    def close(self) -> None:
        """Take part no more, and leave a group that was made here. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._rpc.undefine(self._function)
        if self._owns:
            self._group.leave()
            self._rpc.close()

    def __repr__(self) -> str:
        return f"<reverie.Accumulator {self._name!r} of {self._me!r}>"

    def __enter__(self) -> Accumulator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- Checks.

    def _check(self, what: str) -> None:
        if self._closed:
            raise FailedPreconditionError(
                f"{what}() of accumulator '{self._name}', which is closed"
            )
        me = threading.get_ident()
        if self._owner is None:
            self._owner = me
        elif self._owner != me:
            raise FailedPreconditionError(
                f"{what}() on another thread than the first call of accumulator '{self._name}'; "
                "use it on one thread"
            )

    def _check_wanted(self, what: str) -> None:
        if not self._wants:
            raise FailedPreconditionError(
                f"{what}() while no gradients are wanted; ask wants_gradients() first"
            )

    def _host_gradients(self, gradients: Any, weight: int) -> list[np.ndarray[Any, Any]]:  # noqa: ANN401
        if gradients is None:
            given: list[Any] = [_grad(p) for p in self._parameters]
        else:
            given = _checks.items("gradients", gradients, "one array for each parameter")
        if len(given) != len(self._parameters):
            raise InvalidArgumentError(
                f"gradients has {len(given)} arrays; it must have one for each of the "
                f"{len(self._parameters)} parameters"
            )
        arrays = []
        for i, (gradient, parameter) in enumerate(zip(given, self._parameters, strict=True)):
            shape = tuple(parameter.shape)
            if gradient is None:
                arrays.append(np.zeros(shape, _sum_dtype(parameter)))
                continue
            array = np.array(_wide(gradient), dtype=_sum_dtype(parameter))
            if array.shape != shape:
                raise InvalidArgumentError(
                    f"gradients[{i}] has the shape {array.shape}; parameter {i} has {shape}"
                )
            if self._finite and not np.isfinite(array).all():
                raise InvalidArgumentError(
                    f"gradients[{i}] holds values that are not finite, on '{self._me}'"
                )
            if weight != 1:
                array *= weight
            arrays.append(array)
        return arrays

    def _zero(self) -> None:
        for parameter in self._parameters:
            grad = getattr(parameter, "grad", None)
            if grad is not None:
                grad.detach_().zero_()

    # --- Membership and the leader. Under the lock, as all that follows.

    def _follow_membership(self) -> None:
        epoch, membership, members = self._group._native.membership()
        key = self._key
        if membership != key.membership:
            key = _Key(membership, 0)
        elif self._restart is not None and self._restart.membership == membership:
            key = self._restart
        if key == self._key:
            return
        self._key = key
        self._members = members if epoch > 0 else []
        self._leader = ""
        self._election = None
        self._failed_s = None
        self._restart = None
        self._sums = None
        self._contributions = self._samples = self._offered = 0
        self._open = self._delivered = 0
        self._gone.clear()
        self._rounds.clear()
        self._needers.clear()
        self._incoming = None

    def _follow_election(self) -> None:
        if self._leader or not self._members or self._has:
            return
        if self._election is None:
            if time.monotonic() < self._election_s:
                return
            mine = [self._version, self._me, self._lineage, self._signature, self._average]
            try:
                self._election = self._group.all_gather(
                    f"{self._function}/leader/{self._key.generation % 2}", mine
                )
            except ReverieError:  # the membership has changed, or there is none now
                self._election_s = time.monotonic() + 0.02
                return
        if not self._election.done():
            return
        if self._election.exception() is not None:
            self._election = None
            self._election_s = time.monotonic() + 0.02
            return
        votes = self._election.result()
        leader = max(votes.values(), key=lambda vote: (vote[0], vote[1]))
        self._refuse_another_model(leader)
        self._has_model = leader[2] == self._lineage
        self._leader = leader[1]
        self._asked_s = 0.0
        early, self._early = self._early, []
        for caller, key, message in early:
            self._receive(caller, key, message)

    def _refuse_another_model(self, leader: list[Any]) -> None:
        _, name, _, signature, average = leader
        if signature == self._signature and average == self._average:
            return
        self.close()
        self._group.leave()
        if average != self._average:
            raise InvalidArgumentError(
                f"average is '{self._average}' on '{self._me}' and '{average}' on '{name}'"
            )
        for i, mine in enumerate(self._signature):
            theirs = signature[i] if i < len(signature) else "nothing"
            if theirs != mine:
                raise InvalidArgumentError(
                    f"parameters[{i}] is {mine} on '{self._me}' and {theirs} on the leader '{name}'"
                )
        raise InvalidArgumentError(
            f"'{self._me}' has {len(self._signature)} parameters and buffers, and the leader "
            f"'{name}' {len(signature)}"
        )

    # --- Messages.

    def _tell(self, member: str, what: str, arguments: tuple[Any, ...] = ()) -> None:
        try:
            self._rpc.async_(member, self._function, what, list(self._key), *arguments)
        except UnsupportedTypeError:
            raise
        except ReverieError:
            return  # the membership will change

    def _on_message(self, what: str, key: list[int], *arguments: Any) -> None:  # noqa: ANN401
        """On a thread of the Rpc's."""
        with self._lock:
            self._receive("", _Key(*key), (what, *arguments))

    def _receive(self, caller: str, key: _Key, message: tuple[Any, ...]) -> None:
        if key != self._key or not self._leader:
            if key == self._key or key.membership != self._key.membership:
                if len(self._early) >= 10_000:
                    del self._early[:1_000]
                self._early.append((caller, key, message))
            elif key.generation > self._key.generation:
                self._restart = key
            return
        what, *arguments = message
        if what == "offer":
            slot, samples = arguments
            if slot == self._open:
                self._offered += samples
                self._lead()
        elif what == "go":
            self._gone.add(arguments[0])
            self._go()
        elif what == "need":
            self._needers[arguments[0]] = None
        elif what == "state":
            self._incoming = tuple(arguments)

    # --- Rounds.

    def _offer(self, samples: int) -> None:
        if self.is_leader():
            self._offered += samples
            self._lead()
        else:
            self._tell(self._leader, "offer", (self._open, samples))

    def _lead(self) -> None:
        """Begin rounds for which there are samples enough."""
        if not self.is_leader() or self._failed_s is not None:
            return
        while (
            self._offered >= self._virtual_batch_size
            and self._open - self._delivered < self._parallel
        ):
            slot = self._open
            for member in self._members:
                if member != self._me:
                    self._tell(member, "go", (slot,))
            self._gone.add(slot)
            self._go()
            if self._open == slot:
                return

    def _go(self) -> None:
        """Begin the rounds that the leader has called for, in order."""
        while self._open in self._gone and self._failed_s is None:
            slot = self._open
            if self._sums is None:
                self._sums = [np.zeros(tuple(p.shape), _sum_dtype(p)) for p in self._parameters]
            skipped = 1 if self._contributions == 0 else 0
            counts = np.array([self._contributions, skipped, self._samples], np.int64)
            try:
                round_ = self._group.all_reduce(
                    f"{self._function}/{slot % _NAMES}", [counts, *self._sums]
                )
            except AlreadyExistsError:
                return  # so many are under way; later
            except ReverieError:
                self._failed_s = time.monotonic()
                return
            self._gone.discard(slot)
            self._rounds.append((slot, round_))
            self._sums = None
            self._contributions = self._samples = self._offered = 0
            self._open = slot + 1

    def _take_gradients(self) -> None:
        if self._failed_s is not None:
            self._restart_after_failure()
            return
        self._go()
        if self._has_model and self._rounds and self._rounds[0][1].done():
            slot, round_ = self._rounds.popleft()
            if round_.exception() is not None:
                self._failed_s = time.monotonic()
                return
            counts, *sums = round_.result()
            self._stats = {
                "num_gradients": int(counts[0]),
                "num_skipped": int(counts[1]),
                "batch_size": int(counts[2]),
            }
            number = {"samples": counts[2], "contributions": counts[0], "sum": 1}[self._average]
            self._reduced = [total / total.dtype.type(max(int(number), 1)) for total in sums]
            for parameter, array in zip(self._parameters, self._reduced, strict=True):
                _set_grad(parameter, array)
            self._delivered = slot + 1
            self._version += 1
            self._lineage = _next_lineage(self._lineage, self._key, slot)
            self._has = True
            self._wants = False

    def _restart_after_failure(self) -> None:
        """A round failed although no member was lost: all begin again from the leader's model."""
        assert self._failed_s is not None
        if time.monotonic() - self._failed_s < _RESTART_S:
            return
        self._failed_s = time.monotonic()
        again = _Key(self._key.membership, self._key.generation + 1)
        self._restart = again
        for member in self._members:
            if member != self._me:
                try:
                    self._rpc.async_(member, self._function, "restart", list(again))
                except ReverieError:
                    continue

    def _take_model(self) -> None:
        if not self._leader:
            return
        if self._incoming is not None:
            version, lineage, delivered, model, buffers, state = self._incoming
            self._incoming = None
            is_same = lineage == self._lineage and delivered == self._delivered
            if is_same or not self._has_model:
                for mine, theirs in zip(self._parameters, model, strict=True):
                    _assign(mine, theirs)
                for mine, theirs in zip(self._buffers, buffers, strict=True):
                    _assign(mine, theirs)
                self._version = version
                self._lineage = lineage
                self._has_model = True
                self._state = (state,)
                self._delivered = delivered
                while self._rounds and self._rounds[0][0] < delivered:
                    self._rounds.popleft()
        if not self._has_model and time.monotonic() - self._asked_s >= _ASK_AGAIN_S:
            self._asked_s = time.monotonic()
            self._tell(self._leader, "need", (self._me,))


# --- Arrays of torch and NumPy.


def _arrays(name: str, given: Iterable[Any]) -> list[Any]:
    arrays = _checks.items(name, given, "tensors or arrays")
    for i, array in enumerate(arrays):
        if not (_is_torch(array) or isinstance(array, np.ndarray)):
            raise UnsupportedTypeError(
                f"{name}[{i}] is {_checks.shown(array)}; it must be a tensor of torch or an array"
            )
    return arrays


def _is_torch(array: object) -> bool:
    return type(array).__module__.partition(".")[0] == "torch" or hasattr(array, "data_ptr")


def _kind(array: Any) -> str:  # noqa: ANN401
    dtype = str(array.dtype).removeprefix("torch.")
    return f"{dtype}{list(array.shape)}"


def _sum_dtype(array: Any) -> np.dtype[Any]:  # noqa: ANN401
    name = str(array.dtype).removeprefix("torch.")
    return np.dtype("float32" if name in _HALVES else name)


def _grad(parameter: Any) -> Any:  # noqa: ANN401
    if not _is_torch(parameter):
        raise InvalidArgumentError(
            "gradients is None; arrays of NumPy have no grad, so give one for each parameter"
        )
    return parameter.grad


def _wide(array: Any) -> Any:  # noqa: ANN401
    """An array of the host that NumPy can read."""
    if not _is_torch(array):
        return array
    tensor = array.detach()
    if str(tensor.dtype).removeprefix("torch.") == "bfloat16":
        tensor = tensor.float()
    return tensor.cpu().numpy()


def _host(array: Any) -> Any:  # noqa: ANN401
    return array.detach().cpu() if _is_torch(array) else array


def _set_grad(parameter: Any, array: np.ndarray[Any, Any]) -> None:  # noqa: ANN401
    if not _is_torch(parameter) or not parameter.requires_grad:
        return
    import torch

    grad = torch.from_numpy(array).to(device=parameter.device, dtype=parameter.dtype)
    if parameter.grad is None:
        parameter.grad = grad
    else:
        parameter.grad.detach_().copy_(grad)


def _assign(mine: Any, theirs: Any) -> None:  # noqa: ANN401
    if _is_torch(mine):
        import torch

        with torch.no_grad():
            mine.copy_(torch.as_tensor(theirs))
    else:
        mine[...] = theirs


def _next_lineage(lineage: int, key: _Key, slot: int) -> int:
    text = f"{lineage} {key.membership} {key.generation} {slot}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
