"""Modules of a package that are loaded when a program first names them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType


def loaded_on_use(package: str, *names: str) -> Callable[[str], ModuleType]:
    """A module's ``__getattr__``: ``reverie.envs.atari`` works after ``import reverie``."""

    def __getattr__(name: str) -> ModuleType:  # noqa: N807
        if name in names:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
