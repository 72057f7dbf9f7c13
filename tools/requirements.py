"""Prints what pip must install to build this project, and the named extras of pyproject.toml.

Usage: requirements.py [EXTRA...]
"""

import sys
from pathlib import Path

import tomllib


def requirements(extras: list[str]) -> list[str]:
    """The build requirements, the package's own, and those of ``extras``."""
    with (Path(__file__).parent.parent / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    optional = project["project"]["optional-dependencies"]
    found = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in extras:
        found += optional[extra]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
