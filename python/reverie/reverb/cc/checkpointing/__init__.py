"""Reverb's messages of checkpoints."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name == "checkpoint_pb2":
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
