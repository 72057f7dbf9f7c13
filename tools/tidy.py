"""Holds the tree against the table of rooms.

Fails on an include that tools/rooms.toml does not allow, a cycle of includes, a banned word, a
header without ``#pragma once`` or without a comment that opens it, a source of the library without
a test beside it or a line that says where it is tested, a source or a room that has grown too
large, words that mean nothing to a reader of the repository, and comments, docstrings, texts of
programs, build files and pages in the dialect that rooms.toml lists.

Usage: tidy.py [ROOT]
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tomllib

_ROOT = Path(__file__).resolve().parent.parent
_TABLE = Path(__file__).resolve().parent / "rooms.toml"
_TEXT_SUFFIXES = {
    ".cc", ".cmake", ".dot", ".h", ".in", ".json", ".md", ".py", ".pyi", ".svg", ".toml", ".txt",
    ".yaml", ".yml", "",
}  # fmt: skip
_SKIPPED_FOLDERS = {"build", "dist", "__pycache__", "node_modules"}
_KEPT_DOT_NAMES = {".ci", ".clang-tidy", ".clang-format", ".editorconfig"}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_CPP_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)
_PY_NOISE = re.compile(
    r'""".*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL
)
# Files whose every line is read for the dialect; of TOML files the comments are, since rooms.toml
# lists the phrases.
_WHOLE_PROSE = re.compile(r"(.*/)?(.*\.(md|cmake)|CMakeLists\.txt|Makefile)")
_TOML_PROSE = re.compile(r"#[^\n]*")
# Tests apart. A longer source says in its first comment why: "One file, since ...".
_SOURCE_LINES_MAX = 500
_ROOM_LINES_MAX = 5000
_WHY_LONG = re.compile(r"\bOne file,")
_TESTED = re.compile(r"^// Tested in ((?:[^\n]|\n// )+?)\.$", re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    """One thing to mend, and where."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Ban:
    """Code that matches ``pattern`` is refused in the files ``where`` names."""

    name: str
    says: str
    pattern: re.Pattern[str]
    where: re.Pattern[str]
    exempt: re.Pattern[str]


@dataclass
class Room:
    """One row of the table."""

    level: int
    steps: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """A pattern for what one of ``patterns`` matches; without any, for nothing."""
    return re.compile("|".join(f"(?:{p})" for p in patterns) or r"(?!)")


class Table:
    """rooms.toml, with what follows from it."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            data = tomllib.load(file)
        self.rooms = {name: Room(**row) for name, row in data["rooms"].items()}
        self.walls: list[list[str]] = data["walls"]["pairs"]
        self.roof: dict[str, list[str]] = data["roof"]
        self.libraries = {name: _any_of(ps) for name, ps in data["libraries"].items()}
        self.system = _any_of(data["system"]["headers"])
        self.bans = [
            Ban(
                name,
                row["says"],
                re.compile(row["pattern"]),
                _any_of(row["in"]),
                _any_of(row["except"]),
            )
            for name, row in data["bans"].items()
        ]
        self.private = re.compile("|".join(data["words"]["private"]))
        self.private_exempt = _any_of(data["words"]["except"])
        self.dialect = [
            (re.compile(row["pattern"]), row["says"], row.get("only", ""))
            for row in data.get("dialect", [])
        ]

    def reachable(self, room: str) -> set[str]:
        """The rooms that ``room`` may include: itself, base, and whatever its steps lead to."""
        found = {"base"}
        left = [room]
        while left:
            name = left.pop()
            if name not in found or name == room:
                found.add(name)
                left += [s for s in self.rooms[name].steps if s in self.rooms and s not in found]
        return found

    def room_of(self, path: str) -> str | None:
        """The room that ``path`` ("src/reverie/replay/table.h") lies in, if the table has it."""
        inner = path.removeprefix("src/reverie/")
        return max(
            (name for name in self.rooms if inner.startswith(f"{name}/")), key=len, default=None
        )

    def faults(self) -> Iterator[str]:
        """What is wrong with the table itself."""
        for name, room in self.rooms.items():
            for step in room.steps:
                if step not in self.rooms:
                    yield f"room '{name}' steps to '{step}', which is not a room"
                elif self.rooms[step].level >= room.level:
                    yield (
                        f"room '{name}' of level {room.level} steps to '{step}' of level "
                        f"{self.rooms[step].level}; steps lead down"
                    )
            for library in room.libraries:
                if library not in self.libraries:
                    yield f"room '{name}' names the library '{library}', which has no pattern"
        for a, b in self.walls:
            for one, other in ((a, b), (b, a)):
                if other in self.reachable(one):
                    yield f"'{one}' can reach '{other}'; a wall stands between them"


def _files(root: Path) -> Iterator[tuple[str, str]]:
    """Path relative to ``root`` and content of every text file of ours."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED_FOLDERS
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name in _KEPT_DOT_NAMES)
        )
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix not in _TEXT_SUFFIXES and name not in _KEPT_DOT_NAMES:
                continue
            if name.startswith(".") and name not in _KEPT_DOT_NAMES:
                continue
            try:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a program or data without a suffix


def _blank(match: re.Match[str]) -> str:
    """As many lines as the text taken out, so that line numbers stay."""
    return "\n" * match.group().count("\n") or " "


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _check_include(table: Table, path: str, quote: str, target: str) -> str | None:
    """Why the file at ``path`` may not include ``target``, or None if it may."""
    in_source = path.startswith("src/")
    room = table.room_of(path) if in_source else None
    is_test = path.endswith("_test.cc")
    if quote == '"':
        if target.startswith("reverie/"):
            if room is None:
                return None  # the roof enters every room
            to = table.room_of(f"src/{target}")
            if to is None:
                return f'"{target}" lies in no room of tools/rooms.toml'
            if to not in table.reachable(room):
                return f"'{room}' may not include \"{target}\": it has no way down to '{to}'"
            return None
        if target.startswith(("tests/", "python/bindings/", "benchmarks/", "examples/")):
            if in_source and not (is_test and target.startswith("tests/")):
                return f'a room may not include "{target}": it lies above'
            return None
        known = any(pattern.fullmatch(target) for pattern in table.libraries.values())
        if not known:
            return f'write "{target}" with its full path, as "reverie/<room>/x.h"'
    library = next((n for n, p in table.libraries.items() if p.fullmatch(target)), None)
    if library is None:
        if table.system.fullmatch(target):
            return None
        return f"<{target}> belongs to no library of tools/rooms.toml"
    if room is not None:
        allowed = [*table.rooms[room].libraries, *(["gtest"] if is_test else [])]
    else:
        above = next((name for name in table.roof if path.startswith(f"{name}/")), None)
        allowed = table.roof[above] if above else []
    if library in allowed:
        return None
    return f"<{target}>: {library} is not for {f'room {room!r}' if room else path.split('/')[0]}"


def _cycles(includes: dict[str, list[str]]) -> Iterator[list[str]]:
    """Each cycle of headers, once, as the paths along it."""
    state: dict[str, int] = {}  # 1: on the path, 2: done
    path: list[str] = []

    def visit(file: str) -> Iterator[list[str]]:
        state[file] = 1
        path.append(file)
        for target in includes.get(file, []):
            if state.get(target) == 1:
                yield [*path[path.index(target) :], target]
            elif target not in state:
                yield from visit(target)
        path.pop()
        state[file] = 2

    for file in sorted(includes):
        if file not in state:
            yield from visit(file)


def _check_cpp(table: Table, path: str, text: str) -> Iterator[Finding]:
    if path.startswith("src/reverie/") and table.room_of(path) is None:
        yield Finding(path, 1, "lies in no room of tools/rooms.toml")
        return
    for match in _INCLUDE.finditer(text):
        fault = _check_include(table, path, match[1], match[2])
        if fault:
            yield Finding(path, _line(text, match.start()), fault)
    if path.endswith(".h"):
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            yield Finding(path, 1, "has no #pragma once")
        if not text.startswith("//"):
            yield Finding(path, 1, "does not open with a comment that says what it is")


def _untested(root: Path, path: str, text: str) -> Iterator[Finding]:
    """A source of the library that neither has a test beside it nor says where it is tested."""
    if not (path.startswith("src/") and path.endswith(".cc")) or path.endswith("_test.cc"):
        return
    if (root / f"{path.removesuffix('.cc')}_test.cc").is_file():
        return
    said = _TESTED.search(text)
    if said is None:
        yield Finding(
            path,
            1,
            "has no test beside it; write one, or say '// Tested in x_test.cc.' where it is",
        )
        return
    for name in re.split(r",\s+|\s+and\s+", said[1].replace("\n// ", " ")):
        if not (root / name if "/" in name else (root / path).parent / name).is_file():
            yield Finding(
                path, _line(text, said.start()), f"is tested in '{name}', which is missing"
            )


def _prose(path: str, text: str) -> tuple[str, str] | None:
    """What the dialect is looked for in, on its lines: comments and docstrings, and texts.

    Pages and build files are one whole; None for files that are not read.
    """
    if path.startswith("tools/tidy"):
        return None  # names the phrases
    if _WHOLE_PROSE.fullmatch(path):
        return text, ""
    if path.endswith((".h", ".cc")):
        pattern = _CPP_NOISE
    elif path.endswith((".py", ".pyi")):
        pattern = _PY_NOISE
    elif path.endswith(".toml"):
        pattern = _TOML_PROSE
    else:
        return None
    comments: list[str] = []
    texts: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        between = "\n" * text.count("\n", end, match.start())
        lines = "\n" * match.group().count("\n")
        is_comment = match.group().startswith(("//", "/*", "#", '"""'))
        for out, is_its in ((comments, is_comment), (texts, not is_comment)):
            out += [between, " ", match.group() if is_its else lines]
        end = match.end()
    return "".join(comments), "".join(texts)


def _check_dialect(table: Table, path: str, text: str) -> Iterator[Finding]:
    """The phrases of the dialect in the prose of a file."""
    prose = _prose(path, text)
    if prose is None:
        return
    comments, texts = prose
    for pattern, says, only in table.dialect:
        for where in {"comments": [comments], "texts": [texts]}.get(only, [comments, texts]):
            for match in pattern.finditer(where):
                phrase = match.group().strip()
                yield Finding(path, _line(where, match.start()), f"'{phrase}': {says}")


def check(root: Path, table: Table) -> list[Finding]:
    """Everything to mend under ``root``."""
    found = [Finding("tools/rooms.toml", 1, fault) for fault in table.faults()]
    if found:
        return found  # the table is the law: without a sound one nothing can be judged
    includes: dict[str, list[str]] = {}
    for path, text in _files(root):
        is_cpp = path.endswith((".h", ".cc"))
        if is_cpp:
            found += _check_cpp(table, path, text)
            includes[path] = [
                f"src/{m[2]}" if m[2].startswith("reverie/") else m[2]
                for m in _INCLUDE.finditer(text)
                if m[1] == '"'
            ]
        bans = [b for b in table.bans if b.where.fullmatch(path) and not b.exempt.fullmatch(path)]
        if bans:
            code = (_CPP_NOISE if is_cpp else _PY_NOISE).sub(_blank, text)
            found += [
                Finding(path, _line(code, match.start()), f"'{match.group().strip()}': {ban.says}")
                for ban in bans
                for match in ban.pattern.finditer(code)
            ]
        found += _check_dialect(table, path, text)
        if not table.private_exempt.fullmatch(path):
            found += [
                Finding(path, _line(text, m.start()), f"'{m.group()}' means nothing to a reader")
                for m in table.private.finditer(text)
            ]
    found += [
        Finding(cycle[0], 1, f"includes itself: {' -> '.join(cycle)}")
        for cycle in _cycles(includes)
    ]
    return found


def unused_allowances(root: Path, table: Table) -> list[Finding]:
    """Libraries that rooms with sources may include, and that no source of theirs includes."""
    used: dict[str, set[str]] = {}
    for path, text in _files(root):
        room = (
            table.room_of(path)
            if path.startswith("src/") and path.endswith((".h", ".cc"))
            else None
        )
        if room is None:
            continue
        targets = [match[2] for match in _INCLUDE.finditer(text)]
        used.setdefault(room, set()).update(
            name
            for name, pattern in table.libraries.items()
            if any(pattern.fullmatch(target) for target in targets)
        )
    return [
        Finding(
            "tools/rooms.toml",
            1,
            f"room '{room}' may include {library}, which it does not; take it out",
        )
        for room, names in sorted(used.items())
        for library in table.rooms[room].libraries
        if library not in names
    ]


def untested_sources(root: Path) -> list[Finding]:
    """Sources of the library without a test beside them that do not say where they are tested."""
    return [finding for path, text in _files(root) for finding in _untested(root, path, text)]


def _opening(path: str, text: str) -> str:
    """The comment or docstring that opens a source."""
    if path.endswith(".py"):
        return text.split('"""')[1] if text.startswith('"""') else ""
    lines = text.splitlines()
    end = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    return "\n".join(lines[:end])


def large_sources(root: Path, table: Table) -> list[Finding]:
    """Sources and rooms of the library and the package that are longer than they should be."""
    found: list[Finding] = []
    rooms: dict[str, int] = {}
    for path, text in _files(root):
        is_ours = path.startswith(("src/", "python/")) and path.endswith((".h", ".cc", ".py"))
        if not is_ours or path.endswith(("_test.cc", "_test.py")):
            continue
        lines = text.count("\n")
        if room := table.room_of(path):
            rooms[room] = rooms.get(room, 0) + lines
        if lines > _SOURCE_LINES_MAX and not _WHY_LONG.search(_opening(path, text)):
            says = f"has {lines} lines; split it, or say at its top why it is 'One file, ...'"
            found.append(Finding(path, 1, f"{says} ({_SOURCE_LINES_MAX} at most)"))
    for room, lines in sorted(rooms.items()):
        if lines > _ROOM_LINES_MAX:
            says = f"room '{room}' has {lines} lines without its tests, {_ROOM_LINES_MAX} at most"
            found.append(Finding("tools/rooms.toml", 1, says))
    return found


def main(arguments: list[str]) -> int:
    """Prints what is to mend; 1 if there is anything."""
    root = Path(arguments[0]) if arguments else _ROOT
    table = Table(_TABLE)
    found = check(root, table)
    found += unused_allowances(root, table) + untested_sources(root) + large_sources(root, table)
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
