"""Dataclasses that travel between peers, by name and by the names of their fields."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from reverie import _checks, _reverie
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

__all__ = ["register_dataclass"]

_Class = TypeVar("_Class", bound=type)
_NAME_BYTES_MAX = 256


@overload
def register_dataclass(cls: _Class, *, name: str | None = None) -> _Class: ...
@overload
def register_dataclass(
    cls: None = None, *, name: str | None = None
) -> Callable[[_Class], _Class]: ...
def register_dataclass(cls: Any = None, *, name: str | None = None) -> Any:
    """Let instances of a dataclass be arguments and results of calls between peers.

        @reverie.register_dataclass
        @dataclasses.dataclass
        class Config:
            learning_rate: float
            layers: list[int]

    Each process registers it. An instance travels as its name and its fields, and comes back as
    ``cls(**fields)``, so the class's own checks see what came; fields that its constructor does not
    take are set afterwards. Nothing else of the class travels.

    Args:
        cls: the dataclass, which is returned; None gives a decorator.
        name: what it travels by; None is the class's own name, ``"Config"``. It must be the same in
            all processes.

    Raises:
        UnsupportedTypeError: ``cls`` is not a dataclass.
        InvalidArgumentError: a name with spaces, or a class whose constructor needs values that its
            instances do not keep.
        AlreadyExistsError: another class travels by this name.
    """
    if cls is None:
        if name is not None:
            _checked(name)
        return lambda given: register_dataclass(given, name=name)
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise UnsupportedTypeError(
            f"cls is {_checks.shown(cls)}; it must be a class made by @dataclasses.dataclass"
        )
    fields = dataclasses.fields(cls)
    taken = _arguments(cls, [field.name for field in fields])
    _reverie.register_record(
        cls,
        _checked(cls.__qualname__ if name is None else name),
        [field.name for field in fields],
        [field.name in taken for field in fields],
    )
    return cls


def _checked(name: object) -> str:
    text = _checks.text("name", name)
    if not text or len(text.encode()) > _NAME_BYTES_MAX or any(c.isspace() for c in text):
        raise InvalidArgumentError(
            f"name is {_checks.shown(text)}; it must have 1 to {_NAME_BYTES_MAX} bytes, and no "
            "spaces"
        )
    return text


def _arguments(cls: type, fields: list[str]) -> set[str]:
    """Which of the fields the constructor takes by name."""
    taken = set()
    for parameter in inspect.signature(cls).parameters.values():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_named and parameter.name in fields:
            taken.add(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise InvalidArgumentError(
                f"cls is {cls.__qualname__}, whose constructor needs {parameter.name!r}, which its "
                "instances do not keep under that name; make it a field"
            )
    return taken
