"""``reverie checkpoint``: what lies in a folder of checkpoints, and whether it is good."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from typing import Any

from reverie import _reverie
from reverie.errors import ReverieError

_NAME = re.compile(r"checkpoint-\d{10}")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``checkpoint`` to the subcommands of ``reverie``."""
    checkpoint = commands.add_parser(
        "checkpoint",
        help="look at checkpoints and journals, check them, compare them",
        description="Looks at the checkpoints and the journal that a store or a server wrote. "
        "Nothing is loaded or changed, and the store may run meanwhile.",
    )
    actions = checkpoint.add_subparsers(metavar="action", required=True)
    inspect = actions.add_parser("inspect", help="print what is there")
    inspect.add_argument("path", help="a folder of checkpoints, or one of them")
    inspect.set_defaults(run=lambda given: _told(_inspect, given.path, False))
    verify = actions.add_parser(
        "verify",
        help="check every byte",
        description="Checks every byte of the checkpoints and of the journal. Ends with 1, naming "
        "file and place, where one is damaged.",
    )
    verify.add_argument("path", help="a folder of checkpoints, or one of them")
    verify.set_defaults(run=lambda given: _told(_inspect, given.path, True))
    diff = actions.add_parser(
        "diff",
        help="compare the tables of two checkpoints",
        description="Compares the tables of two checkpoints. Ends with 1 where they differ, with 2 "
        "where one cannot be read.",
    )
    diff.add_argument("one", help="a checkpoint, or a folder whose newest it is")
    diff.add_argument("other", help="the same")
    diff.set_defaults(run=lambda given: _told(_diff, given.one, given.other, on_error=2))


def _told(run: Any, *given: object, on_error: int = 1) -> int:  # noqa: ANN401
    try:
        status: int = run(*given)
    except (ReverieError, OSError) as error:
        print(f"reverie checkpoint: {error}", file=sys.stderr)
        return on_error
    return status


def _checkpoints(path: str) -> list[str]:
    """The paths of those in a folder, the oldest first; of one, that one."""
    if _NAME.fullmatch(os.path.basename(os.path.abspath(path))):
        return [os.path.abspath(path)]
    names = sorted(name for name in os.listdir(path) if _NAME.fullmatch(name))
    return [os.path.join(path, name) for name in names]


def _inspect(path: str, verifies: bool) -> int:
    checkpoints = _checkpoints(path)
    is_one = checkpoints == [os.path.abspath(path)]
    for place, folder in enumerate(checkpoints):
        found = _reverie.inspect_checkpoint(folder, verifies)
        size = sum(found["files"].values())
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["created_s"]))
        said = ", good" if verifies else ""
        print(
            f"{folder}: {when}, {size_text(size)}, {found['chunks']} chunks, payload of "
            f"{len(found['payload'])} bytes{said}"
        )
        if place < len(checkpoints) - 1 or verifies:
            continue
        for name, table in found["tables"].items():
            print(f"  table {name!r}")
            for key, text in table.items():
                print(f"    {key:17} {text}")
    if is_one:
        return 0
    journal = _reverie.inspect_journal(path)
    if not checkpoints and not journal["files"]:
        print(f"{path}: neither a checkpoint nor a journal")
        return 1
    if journal["files"]:
        torn = journal["torn_bytes"]
        print(
            f"journal: records {journal['first_record']} to {journal['last_record']}, "
            f"{size_text(journal['size_bytes'])} in {len(journal['files'])} files"
            + (f", and {torn} bytes of a write that was cut off" if torn else "")
        )
    return 0


def _diff(one: str, other: str) -> int:
    found = []
    for path in (one, other):
        checkpoints = _checkpoints(path)
        if not checkpoints:
            raise FileNotFoundError(f"{path} holds no checkpoint; give the path of one")
        found.append(_reverie.inspect_checkpoint(checkpoints[-1], False)["tables"])
    ours, theirs = found
    differs = False
    for name in sorted({*ours, *theirs}):
        if name not in ours or name not in theirs:
            print(f"table {name!r} is in {other if name in theirs else one} alone")
            differs = True
            continue
        for key, text in ours[name].items():
            if theirs[name][key] != text:
                print(f"table {name!r}: {key} {text} | {theirs[name][key]}")
                differs = True
    return 1 if differs else 0


def size_text(size: int) -> str:
    """Bytes for people: ``"1.5 kB"``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
