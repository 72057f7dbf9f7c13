"""Selectors and extensions by the name that the native store knows, with their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from reverie import _checks
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

if TYPE_CHECKING:
    from reverie.external import Files

OptionValue: TypeAlias = bool | int | float | str
ComponentSpec: TypeAlias = tuple[str, dict[str, OptionValue]]
OnCorrupt: TypeAlias = Literal["remove", "raise"]
Codec: TypeAlias = Literal["auto", "raw", "lz4", "zstd"]

Durability: TypeAlias = Literal["none", "interval", "sync"]
DURABILITY = ("none", "interval", "sync")
OnMismatch: TypeAlias = Literal["refuse", "mine", "theirs", "drop"]
ON_MISMATCH = ("refuse", "mine", "theirs", "drop")
CODECS = ("auto", "raw", "lz4", "zstd")


def native_files(files: Files | None) -> Any:  # noqa: ANN401
    """A client's ``files`` as the native client takes it."""
    if files is None:
        return None
    from reverie import external  # few programs have rows in files

    return external.native_files(files)


def raises_on_corrupt(on_corrupt: OnCorrupt) -> bool:
    """Whether a client's argument of that name is ``"raise"``, not ``"remove"``."""
    return _checks.choice("on_corrupt", on_corrupt, ("remove", "raise")) == "raise"


class Component:
    """A name and its options. Immutable; two with the same are equal."""

    __slots__ = ("_spec",)

    def __init__(self, *, _name: str | None = None, **options: OptionValue | None) -> None:
        name = type(self).__name__ if _name is None else _name
        given = {key: _checked(name, key, value) for key, value in options.items()}
        self._spec: ComponentSpec = (
            name,
            {key: value for key, value in given.items() if value is not None},
        )

    @property
    def spec(self) -> ComponentSpec:
        """The registered name, and the options that were given."""
        return self._spec[0], dict(self._spec[1])

    @property
    def options(self) -> Mapping[str, OptionValue]:
        """The options that were given."""
        return dict(self._spec[1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Component):
            return NotImplemented
        return self._spec == other._spec

    def __hash__(self) -> int:
        return hash((self._spec[0], tuple(sorted(self._spec[1].items()))))

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._spec[1].items())
        return f"{self._spec[0]}({options})"


def checked_seed(seed: int | None) -> int | None:
    """The seed, if it is one: an integer that fits into 63 bits."""
    if seed is None:
        return None
    return _checks.integer("seed", seed, 0)


def _checked(component: str, key: str, value: OptionValue | None) -> OptionValue | None:
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise UnsupportedTypeError(
            f"option {key} of {component} is a {type(value).__name__}; options are bool, int, "
            "float or str"
        )
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidArgumentError(f"option {key} of {component} is {value}; the bound is 64 bits")
    return value
