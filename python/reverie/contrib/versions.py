"""The libraries that the adapters are for, and the oldest version of each that they fit."""

from __future__ import annotations

import importlib.metadata
import re

from reverie.errors import MissingPackageError

LEAST = {
    "stable_baselines3": "2.7",  # batches with discounts
    "tianshou": "2.0",  # algorithms and policies apart
    "torchrl": "0.14",
    "ray": "2.40",  # episodes of the new API stack
}
_INSTALLED_AS = {"stable_baselines3": "stable-baselines3", "ray": "ray[rllib]"}


def install(module: str) -> str:
    """The line that installs the library of that module."""
    return f"pip install '{_INSTALLED_AS.get(module, module)}>={LEAST[module]}'"


def check(module: str, adapter: str) -> None:
    """Refuse a library that can be imported and is too old for its adapter.

    Raises:
        MissingPackageError: it is older than ``LEAST`` has it.
    """
    version = _version(module)
    if version and numbers(version) < numbers(LEAST[module]):
        raise MissingPackageError(
            f"{adapter} needs {module} {LEAST[module]} or newer, and {version} is installed: "
            f"{install(module)}"
        )


def refusal(error: ImportError, module: str, adapter: str) -> MissingPackageError:
    """What an adapter raises whose library cannot be imported: it, or a part of it, is missing."""
    version = _version(module)
    if not version or (isinstance(error, ModuleNotFoundError) and error.name != module):
        return MissingPackageError(f"{adapter} needs {error.name}: {install(module)}")
    return MissingPackageError(
        f"{adapter} needs {module} {LEAST[module]} or newer, and {version} is installed, which "
        f"lacks a part of it ({error}): {install(module)}"
    )


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return ""


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 13, 0) of "2.13.0rc1+cpu"."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")[:3]) if found else ()
