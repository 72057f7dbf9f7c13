"""What a table is and how it stands, as Reverb shows it; and what a selector is."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from reverie import selectors
from reverie.reverb import _messages, pybind
from reverie.reverb._plain_message import PlainMessage
from reverie.reverb._specs import shown_signature
from reverie.table import TableInfo as NativeInfo

Fifo = pybind.FifoSelector
Heap = pybind.HeapSelector
Lifo = pybind.LifoSelector
Prioritized = pybind.PrioritizedSelector
Uniform = pybind.UniformSelector

SelectorType: TypeAlias = Fifo | Heap | Lifo | Prioritized | Uniform
SpecNest: TypeAlias = Any | Iterable["SpecNest"] | Mapping[str, "SpecNest"]


@dataclasses.dataclass
class TableInfo:
    """What a table is and how it stands.

    ``sampler_options``, ``remover_options``, ``rate_limiter_info`` and ``table_worker_time`` are
    messages of ``reverb.cc.schema_pb2`` where protobuf is installed, and can be read likewise where
    it is not. The times of a table's worker are 0: no table has a thread of its own.

    Attributes:
        signature: a nest of ``tf.TensorSpec`` where TensorFlow is loaded, else of specifications
            that can be asked the same; None where the table has none.
    """

    name: str
    sampler_options: Any
    remover_options: Any
    max_size: int
    max_times_sampled: int
    rate_limiter_info: Any
    signature: Any
    current_size: int
    num_episodes: int
    num_deleted_episodes: int
    num_unique_samples: int
    table_worker_time: Any

    @classmethod
    def from_serialized_proto(cls, proto_string: bytes) -> TableInfo:
        """What a serialised ``schema_pb2.TableInfo`` says. Needs protobuf."""
        from reverie.reverb._nests import decode_nest

        proto = _messages.message_class("deepmind.reverb.TableInfo").FromString(proto_string)
        fields = {field.name: getattr(proto, field.name) for field in dataclasses.fields(cls)}
        has_signature = proto.HasField("signature")
        fields["signature"] = (
            shown_signature(decode_nest(proto.signature)) if has_signature else None
        )
        return cls(**fields)


def table_info(info: NativeInfo) -> TableInfo:
    """What the library knows of a table, in Reverb's fields."""
    limiter = info.rate_limiter_info
    return TableInfo(
        name=info.name,
        sampler_options=key_distribution(info.sampler_options),
        remover_options=key_distribution(info.remover_options),
        max_size=info.max_size,
        max_times_sampled=info.max_times_sampled,
        rate_limiter_info=_message(
            "RateLimiterInfo",
            samples_per_insert=limiter.samples_per_insert,
            min_diff=limiter.min_diff,
            max_diff=limiter.max_diff,
            min_size_to_sample=limiter.min_size_to_sample,
            insert_stats=_message("RateLimiterCallStats", completed=limiter.insert_stats.completed),
            sample_stats=_message("RateLimiterCallStats", completed=limiter.sample_stats.completed),
        ),
        signature=shown_signature(info.signature),
        current_size=info.current_size,
        num_episodes=info.num_episodes,
        num_deleted_episodes=info.num_deleted_episodes,
        num_unique_samples=info.num_unique_samples,
        table_worker_time=_message("TableWorkerTime"),
    )


def key_distribution(selector: selectors.Selector) -> Any:  # noqa: ANN401
    """A selector as the message ``KeyDistributionOptions``; empty for one that Reverb lacks."""
    name, options = selector.spec
    match name:
        case "Fifo" | "Lifo":
            fields = {name.lower(): True, "is_deterministic": True}
        case "Uniform":
            fields = {"uniform": True}
        case "MaxHeap" | "MinHeap":
            heap = _message(
                "KeyDistributionOptions.Heap", **({"min_heap": True} if name == "MinHeap" else {})
            )
            fields = {"heap": heap, "is_deterministic": True}
        case "Prioritized":
            exponent = options["priority_exponent"]
            fields = {
                "prioritized": _message(
                    "KeyDistributionOptions.Prioritized", priority_exponent=exponent
                )
            }
        case _:
            fields = {}
    return _message("KeyDistributionOptions", **fields)


_HAS_PROTOBUF: list[bool] = []  # once it was looked for
_NO_STATS = PlainMessage({"completed": 0}, {})
_DEFAULTS: dict[str, dict[str, Any]] = {
    "RateLimiterCallStats": {"completed": 0},
    "RateLimiterInfo": {
        "samples_per_insert": 0.0,
        "min_diff": 0.0,
        "max_diff": 0.0,
        "min_size_to_sample": 0,
        "insert_stats": _NO_STATS,
        "sample_stats": _NO_STATS,
    },
    "TableWorkerTime": {
        f"{state}_ms": 0
        for state in (
            "running",
            "sampling",
            "inserting",
            "sleeping",
            "waiting_for_sampling",
            "waiting_for_inserts",
        )
    },
    "KeyDistributionOptions.Heap": {"min_heap": False},
    "KeyDistributionOptions.Prioritized": {"priority_exponent": 0.0},
    "KeyDistributionOptions": {
        "fifo": False,
        "uniform": False,
        "prioritized": PlainMessage({"priority_exponent": 0.0}, {}),
        "heap": PlainMessage({"min_heap": False}, {}),
        "lifo": False,
        "is_deterministic": False,
    },
}
_DISTRIBUTIONS = ("fifo", "uniform", "prioritized", "heap", "lifo")


def has_protobuf() -> bool:
    """Whether protobuf is installed; looked for once."""
    if not _HAS_PROTOBUF:
        _HAS_PROTOBUF.append(_can_import_protobuf())
    return _HAS_PROTOBUF[0]


def _message(name: str, **fields: Any) -> Any:  # noqa: ANN401
    if has_protobuf():
        return _messages.message_class(f"deepmind.reverb.{name}")(**fields)
    if name == "KeyDistributionOptions":
        return PlainMessage(_DEFAULTS[name], fields, "distribution", _DISTRIBUTIONS)
    return PlainMessage(_DEFAULTS[name], fields)


def _can_import_protobuf() -> bool:
    try:
        return importlib.util.find_spec("google.protobuf.message_factory") is not None
    except (ImportError, ValueError):
        return False
