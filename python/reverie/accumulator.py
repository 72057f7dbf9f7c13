"""Sums the gradients of all members of a group, once there are enough samples.

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
total: one may contribute often, another not at all, and all of them get the same sum and take the
same step. docs/concepts/groups.md shows the states.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from reverie import _checks, _model_arrays, _reverie
from reverie._closing import Closing
from reverie._device_copies import to_host
from reverie._process_bound import ForkGuard, ProcessBound
from reverie.errors import FailedPreconditionError, InvalidArgumentError
from reverie.groups import Group
from reverie.rpc import Rpc

__all__ = ["Accumulator"]

_PARALLEL_MAX = 32
_AVERAGES = ("samples", "contributions", "sum")


class Accumulator(ProcessBound, Closing):
    """A member's part in the training of one model.

    The member with the highest model version leads: it counts samples, and members with another
    model get the leader's from any member that has it. All methods must be called by one thread,
    the one that calls ``update`` first.

    Args:
        name: the same on all members of the group.
        parameters: tensors of torch or arrays of NumPy, which ``update`` overwrites when another
            member's model is adopted. The ``grad`` of a torch tensor is its gradient. Or a tree of
            JAX arrays, which cannot be overwritten: ``parameters()`` returns the newest, and
            ``zero_gradients`` takes those that the step made.
        buffers: arrays that belong to the model and have no gradients.
        group: the group to be a member of; None makes one with the name ``name`` and its own
            ``Rpc``, which ``connect`` connects to the broker.
        average: gradients are divided by the number of ``"samples"`` of the round, each
            contribution counting as many as its batch has; of ``"contributions"``; or are a
            ``"sum"``.
        finite: refuse gradients that are infinite or NaN.
        state_interval_s: how often the leader gives its model and state to all members, even if
            none needs them.
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
        tree = _model_arrays.jax_tree(parameters)
        self._structure = None if tree is None else tree[1]  # of a JAX tree
        if tree is None:
            self._parameters = _model_arrays.arrays("parameters", parameters)
        else:
            self._parameters = tree[0]
        self._buffers = _model_arrays.arrays("buffers", buffers)
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
        self._kinds = _model_arrays.kinds(parameters=self._parameters, buffers=self._buffers)
        self._fork_guard = ForkGuard()
        self._owner: int | None = None
        self._closed = False
        # What the program sees; changes in update() and by its own calls.
        self._leader = ""
        self._is_connected = False
        self._version = 0
        self._wants = False
        self._wants_state = False
        self._reduced: list[np.ndarray[Any, Any]] | None = None
        self._arriving: tuple[list[Any], Any] | None = None  # of a round, and not all are taken
        self._stats = {"num_gradients": 0, "num_skipped": 0, "batch_size": 0}
        self._state: tuple[Any] | None = None
        self._refreshed_s = time.monotonic()
        self._native = _reverie.Accumulator(
            self._rpc._native,
            group._native,
            self._name,
            self._average,
            list(self._kinds.values()),
            [_model_arrays.gradient_like(parameter) for parameter in self._parameters],
        )

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
        self._fork_guard.check("accumulator")
        return self._is_connected

    def is_leader(self) -> bool:
        """Whether this member is the leader."""
        self._fork_guard.check("accumulator")
        return self._leader == self._me

    def get_leader(self) -> str:
        """The name of the leader; empty while there is none."""
        self._fork_guard.check("accumulator")
        return self._leader

    def model_version(self) -> int:
        """How many times the model was changed."""
        self._fork_guard.check("accumulator")
        return self._version

    def wants_gradients(self) -> bool:
        """Whether ``reduce_gradients`` or ``skip_gradients`` may be called now."""
        self._fork_guard.check("accumulator")
        return self._wants

    def has_gradients(self) -> bool:
        """Whether a round's gradients have arrived: take a step, then ``zero_gradients``."""
        self._fork_guard.check("accumulator")
        return self._reduced is not None

    def has_new_state(self) -> bool:
        """Whether the model was adopted from another member; ``state`` returns its state."""
        self._fork_guard.check("accumulator")
        return self._state is not None

    def wants_state(self) -> bool:
        """Whether another member needs the model from this one: call ``set_state``.

        The leader chooses the member, in turns among those that have the model.
        """
        if self.has_gradients():
            return False
        return self._wants_state or (self.is_leader() and self._is_refresh_due())

    def get_gradient_stats(self) -> dict[str, int]:
        """The last round's ``num_gradients`` and ``batch_size``, over all contributions.

        ``num_skipped`` is how many members contributed none.
        """
        self._fork_guard.check("accumulator")
        return dict(self._stats)

    def why_waiting(self) -> str:
        """What this member waits for, as text; empty if it does not wait."""
        texts = (self._group.why_waiting(), self._native.why_waiting())
        return "; ".join(text for text in texts if text)

    # --- Settings.

    def connect(self, address: str) -> None:
        """Connect its ``Rpc`` to the broker."""
        self._rpc.connect(address)

    def set_virtual_batch_size(self, size: int) -> None:
        """The least number of samples of a round. The leader's value is used."""
        self._check_open("set_virtual_batch_size")
        self._native.set_virtual_batch_size(_checks.integer("size", size, 1, 1 << 50))

    def set_parallel_gradients(self, count: int) -> None:
        """How many rounds may be in progress at once; their gradients are then older."""
        self._check_open("set_parallel_gradients")
        self._native.set_parallel(_checks.integer("count", count, 1, _PARALLEL_MAX))

    def set_model_version(self, version: int) -> None:
        """Set the version of a model that was read from a checkpoint: the highest leads."""
        self._check_open("set_model_version")
        _checks.integer("version", version, 0, (1 << 62) - 1)
        if version < self._version:
            raise InvalidArgumentError(
                f"version is {version}; the model has {self._version}, and versions must increase"
            )
        self._native.set_version(version)
        self._version = version

    # --- The program's loop.

    def update(self) -> None:
        """Update the state: call it often. The results of all other methods change only here."""
        self._check("update")
        # If a model or gradients cannot be taken, nothing goes on until a later call takes them.
        self._leader, self._is_connected, self._wants, self._wants_state = "", False, False, False
        try:
            view = self._native.update(self.has_gradients() or self._arriving is not None)
            if view[5] is not None:
                self._check_kinds()  # before another member's model is copied into them
        except InvalidArgumentError:  # another model
            self.close()
            self._group.leave()
            raise
        state, result = view[5:]
        if state is not None:
            self._take_state(*state[0])
            self._native.adopted()
        if result is not None:  # also the one of an update() that was interrupted
            if self._arriving is None:
                self._arriving = [], result
            self._native.adopted()
        if self._arriving is not None:
            self._take_gradients(*self._arriving)
        self._leader, self._is_connected, wants, self._wants_state, self._version = view[:5]
        self._wants = wants and not self.has_gradients()

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
        arrays = self._host_gradients(gradients)
        self._native.contribute(batch_size, arrays, [""] * len(arrays), weight)
        self._wants = False
        if gradients is None:
            _model_arrays.zero_grads(self._parameters)

    def skip_gradients(self) -> None:
        """Contribute nothing now. Optional: a member that does nothing gets the sum too.

        Raises:
            FailedPreconditionError: ``wants_gradients`` is False.
        """
        self._check("skip_gradients")
        self._check_wanted("skip_gradients")
        self._wants = False

    def parameters(self) -> Any:  # noqa: ANN401
        """This member's parameters: a list, or the JAX tree."""
        self._fork_guard.check("accumulator")
        if self._structure is None:
            return list(self._parameters)
        return self._structure.unflatten(self._parameters)

    def gradients(self) -> Any:  # noqa: ANN401
        """The gradients of the round while ``has_gradients``: an array for each parameter.

        A list of NumPy arrays, or a JAX tree like the parameters.

        Raises:
            FailedPreconditionError: there are none.
        """
        self._fork_guard.check("accumulator")
        if self._reduced is None:
            raise FailedPreconditionError("there are no gradients now; ask has_gradients() first")
        if self._structure is None:
            return self._reduced
        pairs = zip(self._reduced, self._parameters, strict=True)
        return self._structure.unflatten([_model_arrays.jax_like(*pair) for pair in pairs])

    def zero_gradients(self, parameters: Any = None) -> None:  # noqa: ANN401
        """After the step: set gradients to zero, and continue with the next round.

        Args:
            parameters: the new ones, of a model that is a JAX tree; None for others.

        Raises:
            FailedPreconditionError: there are no gradients.
            InvalidArgumentError: parameters of another structure, type or shape.
        """
        self._check("zero_gradients")
        stepped = self._stepped(parameters)
        if self._reduced is None:
            raise FailedPreconditionError("there are no gradients now; ask has_gradients() first")
        self._parameters = stepped
        _model_arrays.zero_grads(self._parameters)
        self._reduced = None

    def set_state(self, state: Any = None) -> None:  # noqa: ANN401
        """Give the model, the buffers and ``state`` to the members that need them.

        Args:
            state: what can be sent: numbers, text, arrays, and nests of such. Give large values as
                arrays, up to 4 GiB: all others together may have 64 MiB.

        Raises:
            FailedPreconditionError: this member neither leads nor ``wants_state``, or has gradients
                and no step taken.
            InvalidArgumentError: a parameter or buffer has another type or shape than when the
                accumulator was made; or a state of more than 64 MiB besides its arrays.
            UnsupportedTypeError: a state that cannot be sent.
        """
        self._check("set_state")
        if not self.is_leader() and not self._wants_state:
            raise FailedPreconditionError(
                f"no member needs the state from '{self._me}', which is not the leader; ask "
                "wants_state() first"
            )
        if self.has_gradients():
            raise FailedPreconditionError("take the step and call zero_gradients() first")
        self._check_kinds()
        is_due = self.is_leader() and self._is_refresh_due()
        model = [_model_arrays.host(array) for array in to_host(self._parameters)]
        buffers = [_model_arrays.host(array) for array in to_host(self._buffers)]
        self._native.give_state(model, buffers, state, is_due)
        self._wants_state = False
        if is_due:
            self._refreshed_s = time.monotonic()

    def state(self) -> Any:  # noqa: ANN401
        """The state that came with the model; it is returned once.

        Raises:
            FailedPreconditionError: ``has_new_state`` is False.
        """
        self._fork_guard.check("accumulator")
        given, self._state = self._state, None
        if given is None:
            raise FailedPreconditionError("there is no new state; ask has_new_state() first")
        return given[0]

    def close(self) -> None:
        """Stop taking part, and leave a group that was made here. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._native.close()
        if self._owns:
            self._group.leave()
            self._rpc.close()

    def __repr__(self) -> str:
        return f"<reverie.Accumulator {self._name!r} of {self._me!r}>"

    # --- Checks.

    def _check_open(self, what: str) -> None:
        self._fork_guard.check("accumulator")
        if self._closed:
            raise FailedPreconditionError(
                f"{what}() of accumulator '{self._name}', which is closed"
            )

    def _check(self, what: str) -> None:
        self._check_open(what)
        me = threading.get_ident()
        if self._owner is None:
            self._owner = me
        elif self._owner != me:
            raise FailedPreconditionError(
                f"{what}() on another thread than the first call of accumulator '{self._name}'; "
                "use it on one thread"
            )

    def _check_kinds(self) -> None:
        now = _model_arrays.kinds(parameters=self._parameters, buffers=self._buffers)
        _model_arrays.check_kinds(now, self._kinds, self._me)

    def _check_wanted(self, what: str) -> None:
        if not self._wants:
            raise FailedPreconditionError(
                f"{what}() while no gradients are wanted; ask wants_gradients() first"
            )

    def _stepped(self, parameters: Any) -> list[Any]:  # noqa: ANN401
        if self._structure is None:
            if parameters is not None:
                raise InvalidArgumentError(
                    "parameters is given, but only JAX arrays are replaced; change others in place"
                )
            return self._parameters
        if parameters is None:
            raise InvalidArgumentError(
                "parameters is None; JAX arrays cannot be changed, so give those that the step made"
            )
        return _model_arrays.jax_stepped(parameters, self._structure, self._parameters)

    def _host_gradients(self, gradients: Any) -> list[np.ndarray[Any, Any]]:  # noqa: ANN401
        if gradients is None:
            given: list[Any] = [_model_arrays.grad(p) for p in self._parameters]
        elif self._structure is not None:
            given = _model_arrays.jax_leaves("gradients", gradients, self._structure)
        else:
            given = _checks.items("gradients", gradients, "one array for each parameter")
        if len(given) != len(self._parameters):
            raise InvalidArgumentError(
                f"gradients has {len(given)} arrays; it must have one for each of the "
                f"{len(self._parameters)} parameters"
            )
        given = to_host(_model_arrays.dense(given))
        arrays = []
        for i, (gradient, parameter) in enumerate(zip(given, self._parameters, strict=True)):
            shape = tuple(parameter.shape)
            if gradient is None:
                arrays.append(np.zeros(shape, _model_arrays.sum_dtype(parameter)))
                continue
            array = np.asarray(  # contribute() copies it
                _model_arrays.wide(gradient), dtype=_model_arrays.sum_dtype(parameter), order="C"
            )
            if array.shape != shape:
                raise InvalidArgumentError(
                    f"gradients[{i}] has the shape {array.shape}; parameter {i} has {shape}"
                )
            if self._finite and not np.isfinite(array).all():
                raise InvalidArgumentError(
                    f"gradients[{i}] holds values that are not finite, on '{self._me}'"
                )
            arrays.append(array)
        return arrays

    # --- Results from other members.

    def _is_refresh_due(self) -> bool:
        is_late = time.monotonic() - self._refreshed_s >= self._state_interval_s
        return is_late and len(self._group.members) > 1

    def _take_state(self, model: list[Any], buffers: list[Any], state: Any) -> None:  # noqa: ANN401
        if self._structure is not None:
            pairs = zip(model, self._parameters, strict=True)
            self._parameters = [_model_arrays.jax_like(*pair) for pair in pairs]
        else:
            for mine, theirs in zip(self._parameters, model, strict=True):
                _model_arrays.assign(mine, theirs)
        for mine, theirs in zip(self._buffers, buffers, strict=True):
            _model_arrays.assign(mine, theirs)
        self._state = (state,)

    def _take_gradients(self, means: list[Any], result: Any) -> None:  # noqa: ANN401
        contributions, skipped, samples, done = result
        self._stats.update(num_gradients=contributions, num_skipped=skipped, batch_size=samples)
        number = {"samples": samples, "contributions": contributions, "sum": 1}[self._average]
        for i in range(len(means), len(self._parameters)):  # an update() that failed divided some
            total = done.array(i + 1)  # memory of this round, which no other object uses
            is_float = total.dtype.kind in "fc"
            divisor = (total.dtype.type if is_float else np.float64)(max(number, 1))
            # In place, in one call of C code: Ctrl-C comes before or after both steps.
            with np.errstate(all="ignore"):
                means.extend(map(np.divide, [total], [divisor], [total if is_float else None]))
        _model_arrays.set_grads(self._parameters, means)
        self._reduced, self._arriving = means, None
