"""Reverb's checkpointers, by name.

A server takes one, but writes and reads no checkpoints: ``Client.checkpoint`` raises
``NotImplementedError``, and so does a server whose checkpointer has a checkpoint to load. Nothing
is written to their paths.
"""

from __future__ import annotations

import abc

from reverie.reverb import pybind


class CheckpointerBase(metaclass=abc.ABCMeta):
    """What names a place for checkpoints."""

    @abc.abstractmethod
    def internal_checkpointer(self) -> pybind.Checkpointer:
        """The place."""


class DefaultCheckpointer(CheckpointerBase):
    """A directory of checkpoints.

    Args:
        path: the directory, which need not exist.
        group: must be empty.
        fallback_checkpoint_path: the checkpoint to begin with where the directory has none.
    """

    def __init__(
        self, path: str, group: str = "", fallback_checkpoint_path: str | None = None
    ) -> None:
        self.path = path
        self.group = group
        self.fallback_checkpoint_path = fallback_checkpoint_path

    def internal_checkpointer(self) -> pybind.Checkpointer:
        """The place."""
        return pybind.create_default_checkpointer(
            self.path, self.group, self.fallback_checkpoint_path
        )

    def __repr__(self) -> str:
        return repr(self.internal_checkpointer())


class TempDirCheckpointer(DefaultCheckpointer):
    """No directory: a server that was given none. Reverb makes a temporary one."""

    def __init__(self) -> None:
        super().__init__("")


__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer"]
