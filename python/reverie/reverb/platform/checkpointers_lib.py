"""Reverb's checkpointers, by name: those of ``reverie.checkpointers``.

What they write is this package's own format. A folder that holds none of it but a checkpoint of
dm-reverb's is begun with that one.
"""

from __future__ import annotations

import abc
import logging
import os
from typing import Any

from reverie import checkpointers
from reverie.reverb import pybind


class CheckpointerBase(metaclass=abc.ABCMeta):
    """What names a place for checkpoints."""

    @abc.abstractmethod
    def internal_checkpointer(self) -> pybind.Checkpointer:
        """The place."""


class DefaultCheckpointer(checkpointers.DefaultCheckpointer, CheckpointerBase):
    """A directory of checkpoints.

    Args:
        path: the directory, which need not exist.
        group: must be empty.
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
        super().__init__(path, group, fallback_checkpoint_path, **options)

    def _options(
        self, every_s: float | None, every_inserts: int | None, durability: str
    ) -> dict[str, Any]:
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
    """A new directory among the temporary files, made when a server is given this."""

    def __init__(self) -> None:
        self.path = ""
        self.group = ""
        self.fallback_checkpoint_path = None
        self.keep = 1
        self.on_mismatch = "theirs"

    def _options(
        self, every_s: float | None, every_inserts: int | None, durability: str
    ) -> dict[str, Any]:
        if not self.path:
            self.path = checkpointers.TempDirCheckpointer().path
        return super()._options(every_s, every_inserts, durability)


__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer"]
