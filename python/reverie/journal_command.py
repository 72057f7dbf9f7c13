"""``reverie journal``: what a journal holds, and whether it is good."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from reverie import _reverie
from reverie.checkpoint_command import size_text
from reverie.errors import ReverieError


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``journal`` to the subcommands of ``reverie``."""
    journal = commands.add_parser(
        "journal",
        help="look at a journal, check it",
        description="Looks at the journal that a store or a server with durability= wrote beside "
        "its checkpoints. Nothing is loaded or changed, and the store may run meanwhile.",
    )
    actions = journal.add_subparsers(metavar="action", required=True)
    inspect = actions.add_parser(
        "inspect",
        help="print what is there",
        description="Prints the files of the journal, and how many records of each kind they hold. "
        "Ends with 1 where there is no journal, or it is damaged.",
    )
    inspect.add_argument("path", help="a folder of checkpoints")
    inspect.set_defaults(run=lambda given: _run(given.path, prints_records=True))
    verify = actions.add_parser(
        "verify",
        help="check every byte",
        description="Checks every byte of the journal. Ends with 1, naming file and place, where "
        "it is damaged, and where there is none.",
    )
    verify.add_argument("path", help="a folder of checkpoints")
    verify.set_defaults(run=lambda given: _run(given.path, prints_records=False))


def _run(path: str, prints_records: bool) -> int:
    try:
        found: dict[str, Any] = _reverie.inspect_journal(path)
    except (ReverieError, OSError) as error:
        print(f"reverie journal: {error}", file=sys.stderr)
        return 1
    if not found["files"]:
        print(f"reverie journal: there is no journal in {path}", file=sys.stderr)
        return 1
    for name, groups, first, last, size in found["files"]:
        print(f"{name}: records {first} to {last} in {groups} groups, {size_text(size)}, good")
    if found["torn_bytes"]:
        print(f"{found['torn_bytes']} bytes at the end are of a write that was cut off")
    if prints_records:
        for name, count in found["records"].items():
            print(f"  {name:18} {count}")
    return 0
