"""Writes python/reverie/_reverie.pyi, the types of the native module, from the module itself.

The file is committed and shipped; a test compares it with the module that was built.

Usage: stubs.py
"""

import importlib
from pathlib import Path

from nanobind.stubgen import StubGen

# Methods that fill a type's slots in C do not tell their types.
_SLOTS = {
    "def __len__(self, /):": "def __len__(self) -> int:",
    "def __getitem__(self, key, /):": (
        "def __getitem__(self, key: int | slice | Sequence[int]) -> TrajectoryColumn:"
    ),
}

# The types of a call that depend on its arguments.
_OVERLOADS = {
    "ReplayBuffer.sample": (
        ("output: str | None = None", "-> dict[str, Any]:"),
        ('output: Literal["numpy"] | None = None', "-> dict[str, ArrayNest]: ..."),
        ('output: Literal["torch"]', "-> dict[str, TensorNest]: ..."),
    ),
    "Batch.to": (
        ("output: str = 'torch'", "-> Batch:"),
        ('output: Literal["torch"] = "torch"', "-> Batch[TensorNest]: ..."),
    ),
}
_IMPORTS = "from typing import Annotated, Any, Generic, NoReturn\n"
_TYPING = """from typing import Annotated, Any, Generic, Literal, NoReturn, overload
from typing_extensions import TypeVar
"""
_DATA = """from reverie.nests import ArrayNest, HistoryNest, TensorNest

# The nest of a batch, of NumPy arrays unless the program asked for others.
DataT = TypeVar("DataT", default=ArrayNest)
"""

STUB = Path(__file__).resolve().parent.parent / "python" / "reverie" / "_reverie.pyi"


def generate() -> str:
    """The stub of the native module as it is built now."""
    module = importlib.import_module("reverie._reverie")
    generator = StubGen(module)
    generator.put(module)
    text: str = generator.get()
    for found, typed in _SLOTS.items():
        text = text.replace(found, typed)
    for name, overloads in _OVERLOADS.items():
        text = _with_overloads(text, name, *overloads)
    head, imports, rest = text.partition("from numpy.typing import NDArray\n")
    return head.replace(_IMPORTS, _TYPING) + imports + "\n" + _DATA + rest


def _with_overloads(text: str, name: str, last: tuple[str, str], *others: tuple[str, str]) -> str:
    """The stub with typed overloads before a method, which becomes the last of them."""
    kind, method = name.split(".")
    begin = text.index(f"    def {method}(self", text.index(f"\nclass {kind}"))
    end = text.index("\n", begin)
    line = text[begin:end]
    if any(part not in line for part in last):
        raise ValueError(f"{line.strip()} has not {last}")
    made = "".join(
        "    @overload\n" + line.replace(last[0], argument).replace(last[1], result) + "\n"
        for argument, result in others
    )
    return text[:begin] + made + "    @overload\n" + text[begin:]


if __name__ == "__main__":
    STUB.write_text(generate())
