"""Reverb's checkpointers; see ``reverb.platform.checkpointers_lib``."""

from __future__ import annotations

from reverie.reverb.platform.checkpointers_lib import (
    CheckpointerBase,
    DefaultCheckpointer,
    TempDirCheckpointer,
)


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """What a server has that was given none; ``group`` means nothing."""
    del group
    return TempDirCheckpointer()


__all__ = [
    "CheckpointerBase",
    "DefaultCheckpointer",
    "TempDirCheckpointer",
    "default_checkpointer",
]
