"""Where stores and servers keep checkpoints of their tables.

    checkpointer = reverie.checkpointers.DefaultCheckpointer("/data/replay")
    with reverie.Store([table], checkpointer=checkpointer) as store:  # begins with the newest one
        ...
        store.checkpoint()  # all tables, as they are at one moment; others go on meanwhile

``docs/durability.md`` explains what is kept, and what a crash costs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from reverie import _checks
from reverie._options import DURABILITY, ON_MISMATCH
from reverie.errors import InvalidArgumentError

if TYPE_CHECKING:
    from reverie.table import Table


class DefaultCheckpointer:
    """A folder of checkpoints.

    Args:
        path: of the folder, which is created if it does not exist; or of one checkpoint in it, as
            ``checkpoint()`` returned it, to begin with that one. Other files in the folder are not
            touched. Only one store at a time may use it. If it has none of our checkpoints, the
            store begins with dm-reverb's newest in it.
        group: must be empty. Reverb uses it to set permissions.
        fallback_checkpoint_path: of a checkpoint, or a folder of them, to begin with if ``path``
            has none.
        keep: how many checkpoints to keep; older ones are removed once a new one is on the disk.
        on_mismatch: what to do with a table that differs from what the checkpoint says.
            ``"refuse"``: the store is not opened, and the error names the difference. ``"mine"``:
            the items are loaded into the table as given; if it refuses one, the store is not
            opened. ``"theirs"``: the table is made as in the checkpoint. ``"drop"``: it begins
            empty.

    Raises:
        InvalidArgumentError: an empty path, a group, ``keep`` below 1, or no such choice.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: str = "",
        fallback_checkpoint_path: str | os.PathLike[str] | None = None,
        *,
        keep: int = 1,
        on_mismatch: str = "refuse",
    ) -> None:
        self.path = _checks.path("path", path)
        if not self.path:
            raise InvalidArgumentError("path is empty; give the path of a folder")
        self.group = _checks.text("group", group)
        if self.group:
            raise InvalidArgumentError(f"group is {_checks.shown(group)}; it must be empty")
        self.fallback_checkpoint_path = (
            None
            if fallback_checkpoint_path is None
            else _checks.path("fallback_checkpoint_path", fallback_checkpoint_path)
        )
        self.keep = _checks.integer("keep", keep)
        self.on_mismatch = _checks.choice("on_mismatch", on_mismatch, ON_MISMATCH)

    def _options(
        self, every_s: float | None, every_inserts: int | None, durability: str
    ) -> dict[str, Any]:
        """As the native store takes it."""
        if every_s is not None:
            every_s = _checks.number("checkpoint_every", every_s, 0.0)
            if every_s <= 0:
                raise InvalidArgumentError("checkpoint_every is 0; it must be seconds above 0")
        if every_inserts is not None:
            _checks.integer("checkpoint_every_inserts", every_inserts)
        return {
            "path": os.path.abspath(self.path),
            "keep": self.keep,
            "fallback": self.fallback_checkpoint_path or "",
            "on_mismatch": self.on_mismatch,
            "every_s": every_s or 0.0,
            "every_inserts": every_inserts or 0,
            "durability": durability,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


class TempDirCheckpointer(DefaultCheckpointer):
    """A new folder of checkpoints among the temporary files, for experiments.

    The folder stays when the program ends.

    Args:
        keep: how many checkpoints to keep.
    """

    def __init__(self, *, keep: int = 1) -> None:
        _checks.integer("keep", keep)
        import tempfile

        super().__init__(tempfile.mkdtemp(prefix="reverie-checkpoints-"), keep=keep)


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> str:
    """Converts one of our checkpoints to dm-reverb's format, or one of dm-reverb's to ours.

    What the other format cannot express is left out: dm-reverb's has no payload, no bound in
    bytes, no state of extensions and generators, no order of a selector beyond the times of
    insertion, and bytes for text.

    Args:
        source: a checkpoint in either format, or a folder, whose newest is used. It is not changed.
        target: the folder that the new one is written into, which is made if it is not there.

    Returns:
        The path of the new checkpoint.

    Raises:
        InvalidArgumentError: an empty path.
        NotFoundError: ``source`` has no checkpoint.
        DataLossError: it is damaged; the message names the file and the place.
        FailedPreconditionError: ``target`` has checkpoints in that format already, or a journal
            continues the source.
        UnimplementedError: a table has a selector, a type or a signature that the other format does
            not support.
    """
    from reverie import _reverie

    paths = {"source": _checks.path("source", source), "target": _checks.path("target", target)}
    for name, path in paths.items():
        if not path:
            raise InvalidArgumentError(f"{name} is empty; give the path of a folder")
    made: str = _reverie.convert_checkpoint(**paths)[1]
    return made


def native_options(
    checkpointer: DefaultCheckpointer | None,
    every_s: float | None,
    every_inserts: int | None,
    durability: str,
    tables: Iterable[Table],
) -> dict[str, Any] | None:
    """The arguments of a store in the form that the native store takes.

    Raises:
        InvalidArgumentError: an interval or ``durability``, of the store or a table, without a
            checkpointer, or out of range.
        UnsupportedTypeError: something that is not a checkpointer.
    """
    _checks.choice("durability", durability, DURABILITY)
    if checkpointer is None:
        reason = what_needs_a_folder(every_s, every_inserts, durability, tables)
        if reason is not None:
            raise InvalidArgumentError(
                f"{reason} without a checkpointer, whose folder holds the checkpoints and the "
                "journal; give checkpointer=reverie.checkpointers.DefaultCheckpointer(path)"
            )
        return None
    _checks.instance("checkpointer", checkpointer, DefaultCheckpointer)
    return checkpointer._options(every_s, every_inserts, durability)


def what_needs_a_folder(
    every_s: float | None, every_inserts: int | None, durability: str, tables: Iterable[Table]
) -> str | None:
    """The first of a store's arguments that needs a folder of checkpoints; None if none does."""
    wanted: dict[str, str | None] = {"durability": durability}
    wanted |= {f"durability of table '{table.name}'": table._durability for table in tables}
    for name, value in wanted.items():
        if value not in (None, "none"):
            return f"{name} is {value!r}"
    if every_s is not None:
        return "checkpoint_every is given"
    return None if every_inserts is None else "checkpoint_every_inserts is given"


def native_memory(
    memory_bytes: int | None,
    spill_folder: str | os.PathLike[str] | None,
    tables: Iterable[Table],
) -> tuple[str, int | None] | None:
    """Where the chunks of a store of these tables lie, in the form that the native store takes.

    Raises:
        InvalidArgumentError: ``spill_folder`` without ``memory_bytes`` of the store or a table, or
            that too small.
    """
    if memory_bytes is None and all(table._memory_bytes is None for table in tables):
        if spill_folder is not None:
            raise InvalidArgumentError(
                "spill_folder is given without memory_bytes, the memory beyond which "
                "chunks are moved there; give both, or a table with memory_bytes"
            )
        return None
    if memory_bytes is not None:
        memory_bytes = _checks.integer("memory_bytes", memory_bytes, _checks.MEMORY_BYTES_MIN)
    if spill_folder is None:
        import tempfile  # takes milliseconds, and few programs need it

        return tempfile.gettempdir(), memory_bytes
    folder = _checks.path("spill_folder", spill_folder)
    if not os.path.isdir(folder):
        raise InvalidArgumentError(f"spill_folder is {folder!r}; give an existing folder")
    return folder, memory_bytes


__all__ = ["DefaultCheckpointer", "TempDirCheckpointer", "convert"]
