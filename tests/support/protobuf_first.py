"""Makes messages of ``reverie.reverb`` after others with the same names have been registered.

Prints the version of protobuf at the end. The first argument, if any, is the folder to import
protobuf from.
"""

import pickle
import sys

if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])

import google.protobuf
from google.protobuf import descriptor_pb2, descriptor_pool

# Files and messages with the names that dm-reverb and TensorFlow register, but with other fields.
for file, package, name in (
    ("reverb/cc/schema.proto", "deepmind.reverb", "TableInfo"),
    ("tensorflow/core/protobuf/struct.proto", "tensorflow", "StructuredValue"),
):
    proto = descriptor_pb2.FileDescriptorProto(name=file, package=package, syntax="proto3")
    proto.message_type.add(name=name).field.add(name="other", number=1, type=9, label=1)
    descriptor_pool.Default().AddSerializedFile(proto.SerializeToString())

import reverie  # noqa: E402
import reverie.reverb as reverb  # noqa: E402
from reverie.reverb.cc import patterns_pb2, schema_pb2  # noqa: E402

table = reverb.Table(
    "t",
    reverb.selectors.Prioritized(0.5),
    reverb.selectors.MinHeap(),
    10,
    reverb.rate_limiters.MinSize(1),
    signature={"a": reverie.TensorSpec((), "int64")},
)
server = reverb.Server([table])
client = reverb.Client(f"localhost:{server.port}")
step = reverb.structured.create_reference_step({"a": None})
config = reverb.structured.create_config(
    {"a": step["a"][-1]}, "t", [reverb.structured.Condition.step_index() % 2 == 0]
)
assert isinstance(config, patterns_pb2.StructuredWriterConfig)
assert patterns_pb2.StructuredWriterConfig.FromString(config.SerializeToString()) == config
writer = client.structured_writer([config])
for i in range(4):
    writer.append({"a": i})
writer.flush()
info = client.server_info()["t"]
assert info.current_size == 2
assert isinstance(info.sampler_options, schema_pb2.KeyDistributionOptions)
assert info.sampler_options.WhichOneof("distribution") == "prioritized"
assert info.remover_options.heap.min_heap
assert info.rate_limiter_info.insert_stats.completed == 2
assert pickle.loads(pickle.dumps(info.rate_limiter_info)) == info.rate_limiter_info
told = schema_pb2.TableInfo(name="u", sampler_options=info.sampler_options, max_size=3)
assert reverb.reverb_types.TableInfo.from_serialized_proto(told.SerializeToString()).max_size == 3
found = descriptor_pool.Default().FindMessageTypeByName("deepmind.reverb.TableInfo")
assert [field.name for field in found.fields] == ["other"]
server.stop()
print(google.protobuf.__version__)
