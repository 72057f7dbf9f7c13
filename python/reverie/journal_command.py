"""``reverie journal``: what a journal holds, and whether it is good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from reverie._folder_commands import FolderCommand, inspected_journal, size_text

if TYPE_CHECKING:
    from reverie._folder_commands import Commands


def add_command(commands: Commands) -> None:
    """Adds ``journal`` to the subcommands of ``reverie``."""
    journal = FolderCommand(
        commands,
        "journal",
        summary="look at a journal, check it",
        description="Looks at the journal that a store or a server with durability= wrote beside "
        "its checkpoints. Nothing is loaded or changed, and the store may run meanwhile.",
    )
    journal.add(
        "inspect",
        lambda path: _inspect(path, prints_records=True),
        summary="print what is there",
        description="Prints the files of the journal, and how many records of each kind they hold. "
        "Ends with 1 where there is no journal, or it is damaged.",
        paths={"path": "a folder of checkpoints"},
    )
    journal.add(
        "verify",
        lambda path: _inspect(path, prints_records=False),
        summary="check every byte",
        description="Checks every byte of the journal. Ends with 1, naming file and place, where "
        "it is damaged, and where there is none.",
        paths={"path": "a folder of checkpoints"},
    )


def _inspect(path: str, prints_records: bool) -> int:
    found = inspected_journal(path)
    if not found["files"]:
        print(f"reverie journal: there is no journal in {path}", file=sys.stderr)
        return 1
    for name, groups, first, last, size in found["files"]:
        print(f"{name}: records {first} to {last} in {groups} groups, {size_text(size)}, good")
    if found["torn_bytes"]:
        print(f"{found['torn_bytes']} bytes at the end are of an interrupted write")
    if prints_records:
        for name, count in found["records"].items():
            print(f"  {name:18} {count}")
    return 0
