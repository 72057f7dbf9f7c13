"""Reverb's path of ``reverie.structured``."""

from typing import Any

from reverie.structured import (
    Condition,
    ConditionProto,
    Config,
    StructuredWriter,
    constant_priority_fn,
    create_config,
    create_reference_step,
    infer_signature,
    pattern_from_transform,
    td_error,
    unpack_pattern,
)

Pattern = Any  # a nest of PatternNode
ReferenceStep = Any  # a nest of what makes them

__all__ = [
    "Condition",
    "ConditionProto",
    "Config",
    "Pattern",
    "ReferenceStep",
    "StructuredWriter",
    "constant_priority_fn",
    "create_config",
    "create_reference_step",
    "infer_signature",
    "pattern_from_transform",
    "td_error",
    "unpack_pattern",
]
