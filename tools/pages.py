"""The code blocks of the documentation, taken out so that tests can run them.

A block's language is the first word behind its fence; what follows is its ``info``.

Usage: pages.py OUT_FOLDER    writes each cpp block as a source file, for cmake/pages.cmake
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_FENCE = re.compile(r"^```(?P<head>[^\n`]*)\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_INCLUDES = re.compile(r"^[ \t]*#[ \t]*include[^\n]*\n", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: ``line`` is that of its first line of code."""

    page: Path
    line: int
    language: str
    info: str
    code: str


def pages(root: Path = ROOT) -> list[Path]:
    """Every page of the documentation."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of ``page``, in order."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        language, _, info = match["head"].strip().partition(" ")
        line = text.count("\n", 0, match.start("code")) + 1
        yield Block(page, line, language, info.strip(), match["code"])


def is_program(block: Block) -> bool:
    """Whether ``block`` is a whole C++ program, to be run and not only compiled."""
    return "int main(" in block.code


def cpp_source(block: Block) -> str:
    """A source file for ``block``: as it stands, or inside a function if it is statements.

    Raises:
        ValueError: the block's info is neither empty nor ``declarations``.
    """
    here = f'#line {block.line} "{block.page}"\n'
    if is_program(block):
        return here + block.code
    includes = "".join(_INCLUDES.findall(block.code))
    rest = here + _INCLUDES.sub("\n", block.code)
    if block.info == "declarations":
        return f"{includes}using namespace reverie;\n{rest}"
    if block.info:
        raise ValueError(
            f"{block.page}:{block.line}: a cpp block may be marked 'declarations', not "
            f"'{block.info}'"
        )
    return (
        f'#include "reverie/base/status.h"\n{includes}using namespace reverie;\n'
        f"[[maybe_unused]] static Status snippet() {{\n{rest}return {{}};\n}}\n"
    )


def write_cpp(out: Path) -> None:
    """Writes a ``..._program.cc`` or ``..._snippet.cc`` for each cpp block; drops stale ones."""
    out.mkdir(parents=True, exist_ok=True)
    wanted = {}
    for page in pages():
        stem = page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "_").lower()
        for block in blocks(page):
            if block.language == "cpp":
                kind = "program" if is_program(block) else "snippet"
                wanted[out / f"{stem}_{block.line}_{kind}.cc"] = cpp_source(block)
    for path in set(out.glob("*.cc")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:  # unchanged files are not built again
            path.write_text(text)


if __name__ == "__main__":
    write_cpp(Path(sys.argv[1]))
