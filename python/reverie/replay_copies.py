"""Copies of a ``ReplayBuffer``, for ``copy`` and ``pickle``: its checkpoint, as bytes.

A pickle of a buffer holds the files that ``save`` writes, which are read as ``load`` reads them:
nothing in them is code. What a checkpoint leaves out goes beside it: the functions that the buffer
was given, which travel as any function does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverie.hindsight import Hindsight
    from reverie.replay_buffer import ReplayBuffer


def files_of(buffer: ReplayBuffer) -> dict[str, bytes]:
    """What ``save`` writes, by its path."""
    with tempfile.TemporaryDirectory(prefix="reverie-copy-") as name:
        folder = Path(name) / "buffer"
        buffer.save(folder)
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def loaded(
    kind: type[ReplayBuffer],
    files: dict[str, bytes],
    beta: Callable[[int], float] | None,
    transforms: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...],
    hindsight: Hindsight | None = None,
) -> ReplayBuffer:
    """The buffer whose ``files_of`` these are."""
    with tempfile.TemporaryDirectory(prefix="reverie-copy-") as name:
        folder = Path(name) / "buffer"
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        return kind.load(folder, beta=beta, transforms=transforms, hindsight=hindsight)


def made(kind: type[ReplayBuffer], arguments: dict[str, Any]) -> ReplayBuffer:
    """A buffer that nothing was added to."""
    return kind(**arguments)
