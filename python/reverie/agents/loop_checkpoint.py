"""What a `Loop` attaches to the checkpoint of its replay buffer: arrays and numbers, no code."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reverie import _checks, _model_arrays, _reverie
from reverie.errors import (
    DataLossError,
    InvalidArgumentError,
    UnimplementedError,
    UnsupportedTypeError,
)

_LOOP = "loop.json"
_METHODS = ("state_dict", "load_state_dict")


def root_of(path: str) -> Path:
    """The folder of checkpoints: ``path``, or its parent if it is a checkpoint."""
    given = Path(path)
    return given.parent if given.name.startswith("checkpoint-") else given


def can_be_saved(part: object) -> bool:
    """Whether it has ``state_dict()`` and ``load_state_dict()``, as PyTorch's modules do."""
    return all(callable(getattr(part, method, None)) for method in _METHODS)


def check_can_be_saved(learner: object) -> None:
    """Refuses a learner whose state cannot be had.

    Raises:
        UnimplementedError: it has not both methods.
    """
    if not can_be_saved(learner):
        raise UnimplementedError(
            f"the learner is {_checks.shown(learner)}, which cannot be saved: give it "
            "state_dict(), arrays by name, and load_state_dict(), which takes them"
        )


def pack(loop: dict[str, Any], parts: Mapping[str, object]) -> bytes:
    """The loop's own numbers, and the state of each part, as bytes."""
    arrays = {_LOOP: np.frombuffer(json.dumps(loop).encode(), np.uint8)}
    for part, owner in parts.items():
        for name, value in owner.state_dict().items():  # type: ignore[attr-defined]
            arrays[f"{part}/{name}"] = _array(part, name, value)
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **arrays)  # type: ignore[arg-type,unused-ignore]
    return out.getvalue()


def unpack(attached: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `pack` made: the loop's numbers, and arrays as ``PART/NAME``.

    Raises:
        InvalidArgumentError: nothing was attached.
        DataLossError: it is damaged.
    """
    if not attached:
        raise InvalidArgumentError(
            "it holds only a replay buffer, and no training; give a folder that Loop.save() or "
            "a training with out= wrote to"
        )
    try:
        with np.load(io.BytesIO(attached), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return json.loads(arrays.pop(_LOOP).tobytes()), arrays
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise DataLossError(
            f"what is attached to the replay buffer is damaged: {error!r}"
        ) from None


def restore(part: str, owner: object, arrays: Mapping[str, np.ndarray], *, as_torch: bool) -> None:
    """Gives a part its arrays, as tensors where the loop's batches are tensors."""
    prefix = f"{part}/"
    own: dict[str, Any] = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    if as_torch:
        import torch

        own = {name: torch.from_numpy(array) for name, array in own.items()}
    owner.load_state_dict(own)  # type: ignore[attr-defined]


def as_json(array: np.ndarray | None) -> list[Any] | None:
    """An array as text can hold it: its type, and its numbers."""
    return None if array is None else [array.dtype.str, array.tolist()]


def from_json(given: list[Any] | None) -> np.ndarray | None:
    """What `as_json` gave."""
    return None if given is None else np.array(given[1], np.dtype(given[0]))


def first_difference(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """The first entry in which a saved training differs from the one that is to go on from it."""
    for name in asked:
        if name != "settings" and saved.get(name) != asked[name]:
            return f"{name} was {saved.get(name)!r} and is {asked[name]!r}"
    # A checkpoint from before a setting existed has its default.
    defaults = _reverie.default_settings(str(asked["algorithm"]))
    before, now = {**defaults, **saved.get("settings", {})}, asked["settings"]
    free = _reverie.settings_free_at_resume()
    for name in {**before, **now}:
        if name not in free and before.get(name) != now.get(name):
            return (
                f"{name} was {before.get(name)!r} and is {now.get(name)!r}; only these settings "
                f"may differ: {', '.join(free)}"
            )
    return None


def _array(part: str, name: str, value: Any) -> np.ndarray:  # noqa: ANN401
    if _model_arrays.is_torch(value):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            raise UnsupportedTypeError(
                f"{name!r} of the {part}'s state_dict() is bfloat16, which NumPy lacks; give it as "
                "float32"
            )
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise UnsupportedTypeError(
            f"{name!r} of the {part}'s state_dict() is {_checks.shown(value)}; it must be an array "
            "of numbers, a tensor or a number: give nested ones flat, with names of their own"
        )
    return array
