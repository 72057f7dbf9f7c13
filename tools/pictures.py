"""Draws docs/pictures/*.dot as SVG with Graphviz.

The SVG are committed. Each holds the hash of its source, so that a test sees an old one without
drawing it again.

Usage: pictures.py
"""

import hashlib
import subprocess
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"


def sources() -> list[Path]:
    """Every picture's source."""
    return sorted(_FOLDER.glob("*.dot"))


def stamp(source: Path) -> str:
    """The comment that marks an SVG as drawn from ``source`` as it is now."""
    return f"<!-- source sha256: {hashlib.sha256(source.read_bytes()).hexdigest()} -->"


def draw(source: Path) -> None:
    """Writes the SVG of ``source`` beside it.

    Raises:
        subprocess.CalledProcessError: Graphviz refuses the source.
    """
    command = ["dot", "-Tsvg", str(source)]
    drawn = subprocess.run(command, capture_output=True, text=True, check=True)
    source.with_suffix(".svg").write_text(f"{drawn.stdout.rstrip()}\n{stamp(source)}\n")


if __name__ == "__main__":
    for picture in sources():
        target = picture.with_suffix(".svg")
        if not target.exists() or stamp(picture) not in target.read_text():
            draw(picture)
            print(f"drew {target.name}")
