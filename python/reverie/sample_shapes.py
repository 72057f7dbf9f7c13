"""The shapes that a dataset of samples is given, as a nest, and those of its table."""

from __future__ import annotations

from typing import Any

from reverie import _checks, _reverie
from reverie.errors import InvalidArgumentError
from reverie.specs import TensorSpec


class ShapeLeaf:
    """A shape as a leaf of a nest."""

    def __init__(self, shape: tuple[int | None, ...]) -> None:
        self.shape = shape


def column_specs(columns: list[tuple[str, str, list[int]]]) -> list[TensorSpec]:
    """The specifications of columns as the native store tells them: (path, dtype, extents)."""
    return [
        TensorSpec([None if extent < 0 else extent for extent in shape], dtype)
        for _, dtype, shape in columns
    ]


def is_compatible(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> bool:
    """Whether one array may have both shapes."""
    return len(a) == len(b) and all(
        x is None or y is None or x == y for x, y in zip(a, b, strict=True)
    )


def leaves_like(structure: str, count: int, shapes: Any) -> list[Any]:  # noqa: ANN401
    """The shapes in ``shapes``, which has the nest ``structure`` down to them."""
    found: list[Any] = [None] * count

    def differs(what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"dtypes and shapes must be the same nest, but {what}")

    def take(places: Any, nest: Any, path: str) -> None:  # noqa: ANN401
        if isinstance(places, int):
            found[places] = nest.shape if isinstance(nest, ShapeLeaf) else nest
        elif isinstance(places, dict):
            if not isinstance(nest, dict) or set(nest) != set(places):
                raise differs(
                    f"'{path}' has the keys {list(places)} in dtypes and is {_checks.shown(nest)}"
                )
            for key, place in places.items():
                take(place, nest[key], f"{path}/{key}" if path else str(key))
        elif isinstance(places, (list, tuple)):
            if not isinstance(nest, (list, tuple)) or len(nest) != len(places):
                raise differs(
                    f"'{path}' has {len(places)} entries in dtypes and is {_checks.shown(nest)}"
                )
            for i, place in enumerate(places):
                take(place, nest[i], f"{path}/{i}" if path else str(i))
        else:  # a dataclass
            for name, place in vars(places).items():
                take(place, getattr(nest, name, None), f"{path}/{name}" if path else name)

    take(_reverie.fold(structure, list(range(count))), shapes, "")
    return found
