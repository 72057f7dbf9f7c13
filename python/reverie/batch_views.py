"""A ``reverie.Batch`` as a dict, as text, and on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reverie import _checks, _reverie
from reverie.frameworks import converter

if TYPE_CHECKING:
    from reverie._reverie import Batch

_ARRAYS = (
    "data",
    "keys",
    "tickets",
    "probabilities",
    "priorities",
    "times_sampled",
    "ages_s",
    "versions",
    "redelivered",
    "shards",
    "weights",
    "lengths",
)


def as_dict(batch: Batch) -> dict[str, Any]:
    """What the batch has, by name."""
    found = {name: getattr(batch, name) for name in _ARRAYS}
    return {name: value for name, value in found.items() if value is not None}


def named(batch: Batch, name: object) -> Any:  # noqa: ANN401
    """One of them."""
    found = as_dict(batch)
    return found[_checks.choice("a batch's array", name, found)]


def unpacked(batch: Batch) -> tuple[Any, Any, Any]:
    """What ``data, weights, tickets = batch`` gives."""
    return batch.data, batch.weights, batch.tickets


def to(batch: Batch, device: object, output: object) -> Batch:
    """Puts what a learner computes with on a device."""
    _checks.choice("output", output, ("torch", "jax"))
    convert = converter(output, device)
    assert convert is not None
    batch.convert(convert)
    return batch


def shown(batch: Batch) -> str:
    """One line: how many items, and what each column is."""
    if batch.keys is None:
        return "<Batch of 0 items>"
    paths, leaves, _ = _reverie.flatten(batch.data)
    columns = [
        f"{path or 'data'} {list(getattr(leaf, 'shape', ()))} {getattr(leaf, 'dtype', '')}".rstrip()
        for path, leaf in zip(paths, leaves, strict=True)
    ]
    beside = "" if batch.weights is None else ", weights"
    return f"<Batch of {len(batch.keys)} items: {', '.join(columns)}{beside}>"
