"""Runs clang-tidy over the library's sources, except those in which it found nothing before.

A source is checked again if anything that clang-tidy reads has changed: the preprocessed source
with its comments and macros, the command, the configuration or the program. What was clean is
remembered in BUILD_FOLDER/clean.

Usage: clang_tidy.py BUILD_FOLDER [--program CLANG_TIDY]
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def preprocessing(command: str) -> list[str]:
    """The command that compiles a source, as one that prints it preprocessed instead."""
    words = shlex.split(command)
    at = words.index("-o")
    del words[at : at + 2]
    words.remove("-c")
    return [*words, "-E", "-C", "-dD"]


def check(entry: dict[str, str], program: str, salt: bytes, clean: Path) -> tuple[bool, str]:
    """Whether the source is clean, and what clang-tidy said. Not run if it was clean before."""
    folder = entry["directory"]
    words = preprocessing(entry["command"])
    source = subprocess.run(words, cwd=folder, capture_output=True, check=False)
    key = hashlib.sha256(salt + entry["command"].encode() + b"\0" + source.stdout).hexdigest()
    mark = clean / key
    if source.returncode == 0 and mark.exists():
        mark.touch()
        return True, ""
    done = subprocess.run(
        [program, "-quiet", "-p", folder, entry["file"]],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return False, done.stdout + done.stderr
    mark.touch()
    return True, done.stdout


def main(arguments: list[str]) -> int:
    """Checks each source; 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--program", default="clang-tidy")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the sources")
    options = parser.parse_args(arguments)
    library = options.root.resolve() / "src" / "reverie"
    commands = json.loads((options.build / "compile_commands.json").read_text(encoding="utf-8"))
    entries = [
        entry
        for entry in commands
        if Path(entry["file"]).is_relative_to(library) and not entry["file"].endswith("_test.cc")
    ]
    clean = options.build / "clean"
    clean.mkdir(exist_ok=True)
    before = {mark: mark.stat().st_mtime_ns for mark in clean.iterdir()}
    version = subprocess.run([options.program, "--version"], capture_output=True, check=True).stdout
    salt = version + (options.root / ".clang-tidy").read_bytes()
    failed = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        checks = {
            threads.submit(check, entry, options.program, salt, clean): entry for entry in entries
        }
        for number, done in enumerate(as_completed(checks), start=1):
            is_clean, text = done.result()
            failed += not is_clean
            name = Path(checks[done]["file"]).relative_to(options.root.resolve())
            print(f"[{number}/{len(entries)}] {name}{'' if is_clean else ': FAILED'}", flush=True)
            if text.strip():
                print(text.strip(), flush=True)
    for mark, touched in before.items():
        if mark.stat().st_mtime_ns == touched:
            mark.unlink()  # of a source as it was once
    if not entries:
        print("clang-tidy: no sources were found")
        return 1
    print(f"clang-tidy: {len(entries)} sources, findings in {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
