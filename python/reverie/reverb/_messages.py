"""Reverb's protobuf messages, made when one of their modules is first imported.

``reverb.cc.schema_pb2`` and its kin are the classes that are declared here. They lie in a
descriptor pool of their own, so the real dm-reverb and TensorFlow, which have messages of the same
names, can live in the same process. Whatever Python protobuf is installed makes them, from 3.20 on;
it is not imported before.

Declared are the messages of Reverb's public modules, and what they need of TensorFlow's. A test
holds the numbers and types against ``proto/reverb.proto``.
"""

from __future__ import annotations

import contextlib
from typing import Any

from reverie.packages import import_package

_REVERB = "deepmind.reverb"
_TENSORFLOW = "tensorflow"

# One line a field: number, type and name. "*" is repeated, "?x" a member of the oneof x. A type
# that begins with a capital is a message of the file's own, another one with a dot that of a
# package; an indented "message" is declared inside the last one.
_FILES = {
    "reverie/tensorflow/structured_value.proto": (
        _TENSORFLOW,
        (),
        """
message TensorShapeProto
  message Dim
    1 int64 size
    2 string name
  2 * TensorShapeProto.Dim dim
  3 bool unknown_rank
message TensorProto
  1 int32 dtype
  2 TensorShapeProto tensor_shape
  3 int32 version_number
  4 bytes tensor_content
  8 * bytes string_val
message TensorSpecProto
  1 string name
  2 TensorShapeProto shape
  3 int32 dtype
message BoundedTensorSpecProto
  1 string name
  2 TensorShapeProto shape
  3 int32 dtype
  4 TensorProto minimum
  5 TensorProto maximum
message NoneValue
message ListValue
  1 * StructuredValue values
message TupleValue
  1 * StructuredValue values
message DictValue
  message FieldsEntry
    1 string key
    2 StructuredValue value
  1 * DictValue.FieldsEntry fields
message PairValue
  1 string key
  2 StructuredValue value
message NamedTupleValue
  1 string name
  2 * PairValue values
message StructuredValue
  1 ?kind NoneValue none_value
  11 ?kind double float64_value
  12 ?kind sint64 int64_value
  13 ?kind string string_value
  14 ?kind bool bool_value
  31 ?kind TensorShapeProto tensor_shape_value
  32 ?kind int32 tensor_dtype_value
  33 ?kind TensorSpecProto tensor_spec_value
  35 ?kind BoundedTensorSpecProto bounded_tensor_spec_value
  51 ?kind ListValue list_value
  52 ?kind TupleValue tuple_value
  53 ?kind DictValue dict_value
  54 ?kind NamedTupleValue named_tuple_value
""",
    ),
    "reverie/protobuf/timestamp.proto": (
        "google.protobuf",
        (),
        """
message Timestamp
  1 int64 seconds
  2 int32 nanos
""",
    ),
    "reverb/cc/schema.proto": (
        _REVERB,
        ("reverie/protobuf/timestamp.proto", "reverie/tensorflow/structured_value.proto"),
        """
message ChunkData
  message Data
    1 * tensorflow.TensorProto tensors
  1 uint64 chunk_key
  2 SequenceRange sequence_range
  5 ChunkData.Data data
  6 int32 data_tensors_len
  7 int64 data_uncompressed_size
  4 bool delta_encoded
  3 * tensorflow.TensorProto deprecated_data
message SliceRange
  1 int32 offset
  2 int32 length
message SequenceRange
  1 uint64 episode_id
  2 int32 start
  3 int32 end
  4 bool sparse
message FlatTrajectory
  message ChunkSlice
    1 uint64 chunk_key
    2 int32 offset
    3 int32 length
    4 int32 index
  message Column
    1 * FlatTrajectory.ChunkSlice chunk_slices
    2 bool squeeze
  1 * FlatTrajectory.Column columns
message PrioritizedItem
  1 uint64 key
  2 string table
  5 double priority
  6 int32 times_sampled
  7 google.protobuf.Timestamp inserted_at
  8 FlatTrajectory flat_trajectory
  3 * uint64 deprecated_chunk_keys
  4 SliceRange deprecated_sequence_range
message KeyWithPriority
  1 uint64 key
  2 double priority
message SampleInfo
  1 PrioritizedItem item
  2 double probability
  3 int64 table_size
  4 bool rate_limited
message TableInfo
  8 string name
  1 KeyDistributionOptions sampler_options
  2 KeyDistributionOptions remover_options
  3 int64 max_size
  4 int32 max_times_sampled
  5 RateLimiterInfo rate_limiter_info
  6 tensorflow.StructuredValue signature
  7 int64 current_size
  9 int64 num_episodes
  10 int64 num_deleted_episodes
  11 int64 num_unique_samples
  12 TableWorkerTime table_worker_time
message RateLimiterCallStats
  2 int64 completed
message RateLimiterInfo
  1 double samples_per_insert
  2 double min_diff
  3 double max_diff
  4 int64 min_size_to_sample
  5 RateLimiterCallStats insert_stats
  6 RateLimiterCallStats sample_stats
message TableWorkerTime
  1 int64 running_ms
  2 int64 sampling_ms
  3 int64 inserting_ms
  4 int64 sleeping_ms
  5 int64 waiting_for_sampling_ms
  6 int64 waiting_for_inserts_ms
message KeyDistributionOptions
  message Prioritized
    1 double priority_exponent
  message Heap
    1 bool min_heap
  1 ?distribution bool fifo
  2 ?distribution bool uniform
  3 ?distribution KeyDistributionOptions.Prioritized prioritized
  4 ?distribution KeyDistributionOptions.Heap heap
  6 ?distribution bool lifo
  7 bool is_deterministic
message Uint128
  1 uint64 high
  2 uint64 low
message Timeout
  1 int64 milliseconds
""",
    ),
    "reverb/cc/patterns.proto": (
        _REVERB,
        ("reverie/tensorflow/structured_value.proto",),
        """
message PatternNode
  1 int32 flat_source_index
  2 ?start_or_none int32 start
  3 ?stop_or_none int32 stop
  4 ?step_or_none int32 step
message Condition
  message ModuloEq
    1 int32 mod
    2 int32 eq
  1 ?left bool step_index
  2 ?left bool steps_since_applied
  3 ?left bool buffer_length
  4 ?left bool is_end_episode
  9 ?left int32 flat_source_index
  5 ?cmp int32 eq
  6 ?cmp int32 ge
  7 ?cmp Condition.ModuloEq mod_eq
  8 bool inverse
message Priority
  message ConstantPriorityFn
    1 double value
  message TDError
    1 double max_priority_weight
    2 int32 flat_source_index
  1 ?priority_fn Priority.ConstantPriorityFn constant_fn
  2 ?priority_fn Priority.TDError td_error
message StructuredWriterConfig
  1 * PatternNode flat
  2 tensorflow.StructuredValue pattern_structure
  3 string table
  4 Priority priority
  5 * Condition conditions
""",
    ),
    "reverb/cc/checkpointing/checkpoint.proto": (
        _REVERB,
        ("reverb/cc/schema.proto", "reverie/tensorflow/structured_value.proto"),
        """
message PriorityTableCheckpoint
  1 string table_name
  6 int64 max_size
  7 int32 max_times_sampled
  2 * PrioritizedItem deprecated_items
  3 RateLimiterCheckpoint rate_limiter
  4 KeyDistributionOptions sampler
  5 KeyDistributionOptions remover
  8 int64 num_deleted_episodes
  9 tensorflow.StructuredValue signature
  10 int64 num_unique_samples
message RateLimiterCheckpoint
  2 double samples_per_insert
  3 double min_diff
  4 double max_diff
  5 int64 min_size_to_sample
  6 int64 sample_count
  7 int64 insert_count
  8 int64 delete_count
""",
    ),
    "reverb/server_executable/reverb_config.proto": (
        _REVERB,
        ("reverb/cc/checkpointing/checkpoint.proto",),
        """
message ReverbServerConfig
  1 * PriorityTableCheckpoint tables
  2 int32 port
""",
    ),
}


_MODULES = {
    file: "reverie." + file.replace("/", ".").replace(".proto", "_pb2")
    for file in _FILES
    if file.startswith("reverb/")
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name[:1].isupper():  # a message of TensorFlow's, which pickle looks for
        with contextlib.suppress(KeyError):
            return message_class(f"{_TENSORFLOW}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def import_protobuf(module: str) -> Any:  # noqa: ANN401
    """A module of protobuf's.

    Raises:
        MissingPackageError: protobuf is not installed.
    """
    return import_package(f"google.protobuf.{module}", "protobuf")


def message_classes(file: str) -> dict[str, Any]:
    """The classes of the messages that a file declares, by name, and its ``DESCRIPTOR``."""
    pool = _pool()
    descriptor = pool.FindFileByName(file)
    classes = {
        name: _class_of(message) for name, message in descriptor.message_types_by_name.items()
    }
    return {"DESCRIPTOR": descriptor, **classes}


def message_class(name: str) -> Any:  # noqa: ANN401
    """The class of one message: ``"deepmind.reverb.TableInfo"``."""
    return _class_of(_pool().FindMessageTypeByName(name))


_made: dict[str, Any] = {}


def _pool() -> Any:  # noqa: ANN401
    pool = _made.get("pool")
    if pool is None:
        pool = import_protobuf("descriptor_pool").DescriptorPool()
        for file, (package, imports, text) in _FILES.items():
            pool.AddSerializedFile(_file_descriptor(file, package, imports, text))
        # Another thread may have been faster: all must see the same classes.
        pool = _made.setdefault("pool", pool)
    return pool


def _class_of(descriptor: Any) -> Any:  # noqa: ANN401
    name = descriptor.full_name
    if name not in _made:
        factory = import_protobuf("message_factory")
        if hasattr(factory, "GetMessageClass"):
            made = factory.GetMessageClass(descriptor)
        else:  # protobuf 3
            made = factory.MessageFactory(_pool()).GetPrototype(descriptor)
        # Where pickle finds it.
        made.__module__ = _MODULES.get(descriptor.file.name, __name__)
        made.__qualname__ = name.removeprefix(f"{descriptor.file.package}.")
        _made.setdefault(name, made)
    return _made[name]


def _file_descriptor(file: str, package: str, imports: tuple[str, ...], text: str) -> bytes:
    proto = import_protobuf("descriptor_pb2").FileDescriptorProto(
        name=file, package=package, syntax="proto3", dependency=imports
    )
    open_messages: list[tuple[int, Any]] = []
    for line in text.strip().splitlines():
        depth = len(line) - len(line.lstrip())
        words = line.split()
        while open_messages and open_messages[-1][0] >= depth:
            open_messages.pop()
        if words[0] == "message":
            holder = open_messages[-1][1].nested_type if open_messages else proto.message_type
            open_messages.append((depth, holder.add(name=words[1])))
            if words[1].endswith("Entry"):
                open_messages[-1][1].options.map_entry = True
        else:
            _add_field(open_messages[-1][1], words, package)
    return bytes(proto.SerializeToString())


def _add_field(message: Any, words: list[str], package: str) -> None:  # noqa: ANN401
    number, kind, name = int(words[0]), words[-2], words[-1]
    field = message.field.add(name=name, number=number)
    is_message = "." in kind or kind[0].isupper()
    if is_message:
        own = kind[0].isupper()
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}" if own else f".{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    field.label = field.LABEL_REPEATED if "*" in words else field.LABEL_OPTIONAL
    for word in words:
        if word.startswith("?"):
            names = [oneof.name for oneof in message.oneof_decl]
            if word[1:] not in names:
                message.oneof_decl.add(name=word[1:])
                names.append(word[1:])
            field.oneof_index = names.index(word[1:])
