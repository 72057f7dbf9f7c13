"""Every check of the tree that takes seconds: formats, rooms, ruff and mypy.

Usage: lint.py [--fix]    --fix writes the formats instead of checking them
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_CPP_FOLDERS = ("benchmarks", "examples", "python", "src", "tests")


def _cpp_files() -> list[str]:
    return [
        str(path)
        for folder in _CPP_FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".cc", ".h"}
    ]


def _typed_paths() -> list[str]:
    """The package, and the programs beside it."""
    programs = [
        path
        for folder in ("examples", "examples/as_reverb", "tools")
        for path in (ROOT / folder).glob("*.py")
    ]
    return ["python/reverie", *sorted(str(p) for p in programs if not p.name.endswith("_test.py"))]


def _clang_format() -> str:
    return shutil.which("clang-format-14") or "clang-format"  # other versions differ in detail


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


def checks() -> dict[str, list[str]]:
    """Name of each check and its command line; one that exits with 0 found nothing."""
    return {
        "clang-format": [_clang_format(), "--dry-run", "-Werror", *_cpp_files()],
        "rooms": [sys.executable, str(ROOT / "tools" / "tidy.py")],
        "ruff format": _module("ruff", "format", "--check", "."),
        "ruff": _module("ruff", "check", "."),
        "mypy": _module("mypy", *_typed_paths()),
    }


def fixes() -> dict[str, list[str]]:
    """Name of each formatter and the command line that lets it write."""
    return {
        "clang-format": [_clang_format(), "-i", *_cpp_files()],
        "ruff": _module("ruff", "check", "--fix", "--quiet", "."),
        "ruff format": _module("ruff", "format", "."),
    }


def main(arguments: list[str]) -> int:
    """Runs them all, prints what they found; 1 if any found something."""
    failed = []
    for name, command in (fixes() if "--fix" in arguments else checks()).items():
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(f"lint: {name}: {'ok' if done.returncode == 0 else 'failed'}", flush=True)
        if done.returncode != 0:
            print(done.stdout + done.stderr, flush=True)
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
