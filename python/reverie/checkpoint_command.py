"""``reverie checkpoint``: lists a folder of checkpoints, and verifies them."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

from reverie import _reverie
from reverie._folder_commands import LISTINGS_MAX, FolderCommand, inspected_journal, size_text
from reverie.errors import ReverieError

if TYPE_CHECKING:
    from reverie._folder_commands import Commands

_NAME = re.compile(r"checkpoint-\d{10}")


_FOLDER = "a folder of checkpoints, or one of them"


def add_command(commands: Commands) -> None:
    """Adds ``checkpoint`` to the subcommands of ``reverie``."""
    checkpoint = FolderCommand(
        commands,
        "checkpoint",
        summary="look at checkpoints and journals, check them, compare them",
        description="Looks at the checkpoints and the journal that a store or a server wrote. "
        "Nothing is loaded or changed, and the store may run meanwhile.",
    )
    checkpoint.add(
        "inspect",
        lambda path: _inspect(path, False),
        summary="print what is there",
        paths={"path": _FOLDER},
    )
    checkpoint.add(
        "verify",
        lambda path: _inspect(path, True),
        summary="check every byte",
        description="Checks every byte of the checkpoints and of the journal. Ends with 1, naming "
        "file and place, where one is damaged, and with 2 where a running store replaced each "
        "checkpoint before it was read.",
        paths={"path": _FOLDER},
    )
    checkpoint.add(
        "diff",
        _diff,
        summary="compare the tables of two checkpoints",
        description="Compares the tables of two checkpoints: options, counts, signatures, and of "
        "the items keys, priorities, times sampled and rows. Ends with 1 where they differ, with 2 "
        "where one cannot be read.",
        paths={"one": "a checkpoint, or a folder whose newest it is", "other": "the same"},
        status_of_error=2,
    )
    checkpoint.add(
        "convert",
        _convert,
        summary="write a checkpoint of ours as dm-reverb's, or dm-reverb's as ours",
        description="Writes a checkpoint in the other form: one of ours as dm-reverb's, so that a "
        "server of dm-reverb's begins with it, and the other way round. The source stays as it is.",
        paths={
            "source": "a checkpoint, or a folder whose newest it is",
            "target": "the folder that the new one is written into",
        },
        writes=True,
    )


def _checkpoints(path: str) -> list[str]:
    """The paths of those in a folder, the oldest first; of one, that one."""
    if _NAME.fullmatch(os.path.basename(os.path.abspath(path))):
        return [os.path.abspath(path)]
    names = sorted(name for name in os.listdir(path) if _NAME.fullmatch(name))
    return [os.path.join(path, name) for name in names]


def _inspect(path: str, verifies: bool) -> int:
    waiting = _checkpoints(path)
    is_one = waiting == [os.path.abspath(path)]
    listings_left = LISTINGS_MAX - 1
    are_any_read = False
    while waiting:
        folder = waiting.pop(0)
        try:
            found = _reverie.inspect_checkpoint(folder, verifies)
        except (ReverieError, OSError):
            if is_one or os.path.isdir(folder):
                raise
            print(f"{folder}: the store removed it meanwhile")
            if not waiting:
                waiting = [each for each in _checkpoints(path) if each > folder]
                listings_left -= 1
            if waiting and listings_left < 0:
                print(
                    f"reverie checkpoint: the store replaced each checkpoint in {path} before it "
                    "was read; write them less often, or keep more than one",
                    file=sys.stderr,
                )
                return 2
            continue
        are_any_read = True
        size = sum(found["files"].values())
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["created_s"]))
        said = ", good" if verifies else ""
        print(
            f"{folder}: {when}, {size_text(size)}, {found['chunks']} chunks, payload of "
            f"{len(found['payload'])} bytes{said}"
        )
        if waiting or verifies:
            continue
        for name, table in found["tables"].items():
            print(f"  table {name!r}")
            for key, text in table.items():
                print(f"    {key:17} {text}")
    if is_one:
        return 0
    journal = inspected_journal(path)
    if not are_any_read and not journal["files"]:
        theirs = any(os.path.isfile(os.path.join(path, name, "DONE")) for name in os.listdir(path))
        hint = "; it holds dm-reverb's, which `reverie checkpoint convert` reads" if theirs else ""
        print(f"{path}: neither a checkpoint nor a journal{hint}")
        return 1
    if journal["files"]:
        torn = journal["torn_bytes"]
        print(
            f"journal: records {journal['first_record']} to {journal['last_record']}, "
            f"{size_text(journal['size_bytes'])} in {len(journal['files'])} files"
            + (f", and {torn} bytes of an interrupted write" if torn else "")
        )
    return 0


def _convert(source: str, target: str) -> int:
    taken, made, form, tables, items = _reverie.convert_checkpoint(source, target)
    whose = "dm-reverb's" if form == "reverb" else "ours"
    print(f"{taken} is written as {whose}: {made}, {tables} tables, {items} items")
    return 0


def _newest(path: str) -> str:
    checkpoints = _checkpoints(path)
    if not checkpoints:
        raise FileNotFoundError(f"{path} holds no checkpoint; give the path of one")
    return checkpoints[-1]


def _differences(one: str, other: str) -> list[tuple[str, str, str, str]]:
    found = (_newest(one), _newest(other))
    for _ in range(LISTINGS_MAX - 1):
        try:
            return _reverie.compare_checkpoints(*found)
        except (ReverieError, OSError):  # noqa: PERF203 - each listing is tried
            before, found = found, (_newest(one), _newest(other))
            if before == found:  # no store has replaced one of them
                raise
    return _reverie.compare_checkpoints(*found)


def _diff(one: str, other: str) -> int:
    differences = _differences(one, other)
    for table, what, ours, theirs in differences:
        if what:
            print(f"table {table!r}: {what} {ours} | {theirs}")
        else:
            print(f"table {table!r} is in {one if ours else other} alone")
    return 1 if differences else 0
