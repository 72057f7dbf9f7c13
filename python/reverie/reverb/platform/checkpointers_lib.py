"""Reverb's checkpointers, by name: those of ``reverie.checkpointers``.

What they write is this package's own format. A folder that holds none of it but a checkpoint of
dm-reverb's is begun with that one.
"""

from __future__ import annotations

import abc
import logging
import os
from typing import Any

from reverie import _checks, checkpointers
from reverie.errors import InvalidArgumentError, UnsupportedTypeError
from reverie.reverb import pybind


class CheckpointerBase(metaclass=abc.ABCMeta):
    """What names a place for checkpoints. A program may have subclasses of its own."""

    @abc.abstractmethod
    def internal_checkpointer(self) -> pybind.Checkpointer:
        """The place: what ``pybind.create_default_checkpointer`` makes."""


class DefaultCheckpointer(checkpointers.DefaultCheckpointer, CheckpointerBase):
    """A directory of checkpoints.

    Args:
        path: the directory, which need not exist.
        group: must be empty where a server is given the checkpointer.
        fallback_checkpoint_path: the checkpoint to begin with where the directory has none. If it
            is none itself, it is ignored, with a warning.
        options: those of ``reverie.checkpointers.DefaultCheckpointer``: ``keep`` and
            ``on_mismatch``, which is ``"theirs"`` here, as Reverb has it.
    """

    def __init__(
        self,
        path: str,
        group: str = "",
        fallback_checkpoint_path: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        options.setdefault("on_mismatch", "theirs")
        super().__init__(path, "", fallback_checkpoint_path, **options)
        self.group = _checks.text("group", group)

    def _options(
        self, every_s: float | None, every_inserts: int | None, durability: str
    ) -> dict[str, Any]:
        if self.group:
            raise InvalidArgumentError(
                f"group of the checkpointer is {_checks.shown(self.group)}, with which no "
                "checkpoint could be written; leave it out"
            )
        options = super()._options(every_s, every_inserts, durability)
        fallback = options["fallback"]
        if fallback and not _holds_checkpoint(fallback):
            logging.getLogger("reverie").warning(
                "fallback_checkpoint_path is '%s', which holds no checkpoint; it is ignored",
                fallback,
            )
            options["fallback"] = ""
        return options

    def internal_checkpointer(self) -> pybind.Checkpointer:
        """The place."""
        return pybind.create_default_checkpointer(
            self.path, self.group, self.fallback_checkpoint_path
        )

    def __repr__(self) -> str:
        return repr(self.internal_checkpointer())


def _holds_checkpoint(path: str) -> bool:
    """Whether it is a checkpoint of ours or dm-reverb's, or a folder of them."""
    marks = ("manifest", "DONE")
    if any(os.path.exists(os.path.join(path, mark)) for mark in marks):
        return True
    names = os.listdir(path) if os.path.isdir(path) else []
    return any(os.path.exists(os.path.join(path, name, mark)) for name in names for mark in marks)


class TempDirCheckpointer(DefaultCheckpointer):
    """A new directory among the temporary files."""

    def __init__(self) -> None:
        super().__init__(checkpointers.TempDirCheckpointer().path)


def named_place(given: Any) -> DefaultCheckpointer:  # noqa: ANN401
    """The place that a checkpointer of a program names, as a checkpointer of this module.

    Raises:
        TypeError: it has no ``internal_checkpointer``, or that names no place.
    """
    if not hasattr(given, "internal_checkpointer"):
        raise UnsupportedTypeError(
            f"checkpointer is {_checks.shown(given)}; it must be of reverb.checkpointers, or have "
            "their method internal_checkpointer()"
        )
    ours = DefaultCheckpointer.internal_checkpointer
    if isinstance(given, DefaultCheckpointer) and type(given).internal_checkpointer is ours:
        return given
    place = given.internal_checkpointer()
    if not isinstance(place, pybind.Checkpointer):
        raise UnsupportedTypeError(
            f"internal_checkpointer() of {_checks.shown(given)} returned {_checks.shown(place)}; "
            "it must return what reverb.pybind.create_default_checkpointer(path) makes"
        )
    return DefaultCheckpointer(place.path, place.group, place.fallback_checkpoint_path)


__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer"]
