"""TorchRL: reverie's replay buffer for what its collectors give and its losses take.

    from reverie.contrib.torchrl import ReplayBuffer

    buffer = ReplayBuffer(100_000, batch_size=256, prioritized=True)
    for data in collector:
        buffer.extend(data)
        sample = buffer.sample()
        loss = loss_module(sample)["loss"]
        buffer.update_tensordict_priority(sample)

Tried with TorchRL 0.14.1 and TensorDict 0.15.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import reverie
from reverie import _checks, frameworks
from reverie._keys import keys_of
from reverie.contrib import versions
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

try:
    import torch
    from tensordict import TensorDict, TensorDictBase
except ImportError as error:
    raise versions.refusal(error, "torchrl", "reverie.contrib.torchrl") from None

if TYPE_CHECKING:
    from reverie._options import Codec

__all__ = ["ReplayBuffer"]

versions.check("torchrl", "reverie.contrib.torchrl")

_LEAST = 1e-8  # of a priority, as TorchRL has it
# Keys of ("next", ...) that are not observations, and keys of the root that carry nothing new.
_OUTCOMES = ("reward", "done", "terminated", "truncated")
_FLAGS = ("done", "terminated", "truncated", "next", "collector", "is_init")
_to_torch: Any = frameworks.converter("torch")


class ReplayBuffer:
    """The last transitions of TensorDicts, each observation stored once.

    Observations are the entries that ``("next", ...)`` has beside reward and flags. Other entries
    of the root, such as ``sample_log_prob``, are stored and come back too; what a collector says of
    itself (``collector``) does not. Entries are tensors of any element type, or TensorDicts of
    them. A sample has ``done`` where a transition terminated; what was only cut off is not
    ``done``. In ``replay``, the ``reverie.ReplayBuffer`` underneath, the action of a step is a dict
    of ``action`` and the other entries.

    Args:
        capacity: transitions; the oldest make room.
        batch_size: what ``sample()`` draws without a number.
        prioritized: draws by priority.
        alpha: the exponent of priorities.
        beta: the exponent of the weights, in a sample's ``priority_weight``, by which TorchRL's
            losses multiply.
        priority_key: the entry that ``update_tensordict_priority`` reads.
        device: where samples go.
        codec: ``"auto"`` keeps pictures compressed, in 1 to 5 % of the bytes: ``codec`` of
            ``reverie.ReplayBuffer``.
        seed: seeds the draws; None takes a number of torch's generator.

    Raises:
        InvalidArgumentError: a number is out of range, or a device that is not there.
    """

    def __init__(
        self,
        capacity: int,
        *,
        batch_size: int | None = None,
        prioritized: bool = False,
        alpha: float = 0.6,
        beta: float = 0.4,
        priority_key: str = "td_error",
        device: Any = "cpu",  # noqa: ANN401
        codec: Codec = "raw",
        seed: int | None = None,
    ) -> None:
        if batch_size is not None:
            _checks.integer("batch_size", batch_size)
        self._batch_size = batch_size
        self._priority_key = _checks.text("priority_key", priority_key)
        self._device = frameworks.torch_device(device)
        if seed is None:
            seed = int(torch.randint(2**62, ()))
        self.replay = reverie.ReplayBuffer(
            capacity, prioritized=prioritized, alpha=alpha, beta=beta, codec=codec, seed=seed
        )
        # Those of the observations, and of the action and the other entries.
        self._names: tuple[list[str], list[str]] | None = None

    def __len__(self) -> int:
        return len(self.replay)

    def add(self, data: TensorDictBase) -> None:
        """Store one transition: a TensorDict without batch dimensions."""
        self.extend(data.reshape(1))

    def extend(self, data: TensorDictBase) -> None:
        """Store transitions, ``[T]`` of one environment in their order, or ``[N, T]`` of several.

        Raises:
            InvalidArgumentError: no ``action`` or ``next``, another set of entries than before, or
                several rewards or flags of one transition, as of several agents.
            UnsupportedTypeError: no TensorDict, or an entry that is neither a tensor nor one.
        """
        if not isinstance(data, TensorDictBase):
            raise UnsupportedTypeError(
                f"data is {_checks.shown(data)}; it must be a TensorDict, as a collector gives it"
            )
        flat = data.reshape(-1).detach().cpu()
        entries = set(flat.keys())  # "in" of a TensorDict itself is another question
        if not {"action", "next"} <= entries:
            raise InvalidArgumentError(
                f"data has the entries {sorted(entries)}; it must have action and next"
            )
        following = flat["next"]
        observed = set(following.keys()).difference(_OUTCOMES)
        others = entries.difference(_FLAGS, observed) | {"action"}
        names = (sorted(observed & entries), sorted(others))
        if self._names is not None and names != self._names:
            raise InvalidArgumentError(
                f"data has the observations and columns {names}, and the first had {self._names}"
            )
        obs, then = (_arrays(part, names[0]) for part in (flat, following))
        # In a nest, since an entry's name may be that of an argument of add() or of a column.
        columns = _arrays(flat, names[1])
        count = len(flat)
        reward = _one_each("reward", following["reward"], count)
        over = _one_each("done", following["done"], count)
        ended = _one_each("terminated", following.get("terminated", following["done"]), count)
        for i in range(count):
            self.replay.add(
                _row(obs, i),
                _row(columns, i),
                reward[i],
                _row(then, i),
                ended[i],
                over[i] and not ended[i],
            )
        self._names = names

    def sample(self, batch_size: int | None = None) -> TensorDictBase:
        """Draw transitions, ``[B]``, with ``index``; by priority, with ``priority_weight`` too.

        Raises:
            InvalidArgumentError: neither this nor the buffer has a batch size.
            FailedPreconditionError: nothing was stored yet.
        """
        count = self._batch_size if batch_size is None else batch_size
        if count is None:
            raise InvalidArgumentError("batch_size is None; give one here, or to the buffer")
        batch = self.replay.sample(count)
        terminated = torch.from_numpy(batch["terminated"]).reshape(-1, 1)
        following = _tensors(batch["next_obs"]) | {
            "reward": torch.from_numpy(batch["reward"]).reshape(-1, 1),
            "done": terminated,
            "terminated": terminated.clone(),
            "truncated": torch.zeros_like(terminated),
        }
        root = _tensors(batch["obs"]) | _tensors(batch["action"])
        root |= {
            "next": TensorDict(following, [count]),
            "index": torch.from_numpy(batch["tickets"].astype(np.int64)),
        }
        if self.replay.prioritized:
            root["priority_weight"] = torch.from_numpy(batch["weights"])
        return TensorDict(root, [count]).to(self._device)

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """Give a sample's transitions the priorities that a loss has written into it."""
        if self._priority_key not in set(data.keys()):
            raise InvalidArgumentError(
                f"data has no {self._priority_key!r}, which the loss writes; give the buffer the "
                "loss's priority_key"
            )
        self.update_priority(data["index"], data[self._priority_key])

    def update_priority(self, index: Any, priority: Any) -> None:  # noqa: ANN401
        """Give transitions new priorities, by the ``index`` of a sample."""
        tickets = keys_of("index", index)
        priorities = np.abs(_checks.array("priority", priority, np.float64)).reshape(-1) + _LEAST
        if len(priorities) == 1:  # one for all
            priorities = np.broadcast_to(priorities, tickets.shape)
        self.replay.update_priorities(tickets, priorities)

    def empty(self) -> None:
        """Drop all transitions."""
        self.replay.clear()


def _arrays(data: TensorDictBase, names: list[str]) -> dict[str, Any]:
    """Entries as arrays, those that are TensorDicts themselves as dicts of them."""
    found: dict[str, Any] = {}
    for name in names:
        value = data[name]
        if isinstance(value, TensorDictBase):
            found[name] = _arrays(value, list(value.keys()))
        elif isinstance(value, torch.Tensor):
            found[name] = _array(value)
        else:
            raise UnsupportedTypeError(
                f"data[{name!r}] is {_checks.shown(value)}; an entry must be a tensor or a "
                f"TensorDict of tensors: leave it out, data.exclude({name!r})"
            )
    return found


def _array(tensor: Any) -> Any:  # noqa: ANN401
    """An array; the tensor itself if NumPy lacks its type (bfloat16, fp8): add() takes its rows."""
    try:
        return tensor.numpy()
    except TypeError:
        return tensor


def _tensors(arrays: Any) -> dict[str, Any]:  # noqa: ANN401
    """What ``_arrays`` took apart, of a batch; a TensorDict makes TensorDicts of nested dicts."""
    return {
        name: _tensors(value) if isinstance(value, dict) else _to_torch(value)
        for name, value in arrays.items()
    }


def _one_each(name: str, values: Any, count: int) -> Any:  # noqa: ANN401
    """A reward or a flag of each transition, flat."""
    if values.numel() != count:
        raise InvalidArgumentError(
            f"('next', '{name}') has the shape {tuple(values.shape)} for {count} transitions; it "
            "must have one element for each, as of a single agent"
        )
    flat = _array(values.reshape(-1))
    return flat if isinstance(flat, np.ndarray) else flat.float().numpy()


def _row(arrays: dict[str, Any], index: int) -> dict[str, Any]:
    return {
        name: _row(value, index) if isinstance(value, dict) else value[index]
        for name, value in arrays.items()
    }
