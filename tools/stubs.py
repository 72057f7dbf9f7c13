"""Writes python/reverie/_reverie.pyi, the types of the native module, from the module itself.

The file is committed and shipped; a test compares it with the module that was built.

Usage: stubs.py
"""

import importlib
from pathlib import Path

from nanobind.stubgen import StubGen

# Methods that fill a type's slots in C say nothing of their types.
_SLOTS = {
    "def __len__(self, /):": "def __len__(self) -> int:",
    "def __getitem__(self, key, /):": (
        "def __getitem__(self, key: int | slice | Sequence[int]) -> TrajectoryColumn:"
    ),
}

STUB = Path(__file__).resolve().parent.parent / "python" / "reverie" / "_reverie.pyi"


def generate() -> str:
    """The stub of the native module as it is built now."""
    module = importlib.import_module("reverie._reverie")
    generator = StubGen(module)
    generator.put(module)
    text: str = generator.get()
    for found, typed in _SLOTS.items():
        text = text.replace(found, typed)
    return text


if __name__ == "__main__":
    STUB.write_text(generate())
