"""Reverb's protobuf modules, each made when it is asked for; see ``reverie.reverb._messages``."""

import importlib
from typing import Any

_MODULES = ("checkpointing", "patterns_pb2", "schema_pb2")


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
