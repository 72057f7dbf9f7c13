"""The paths of Reverb's inner modules, without TensorFlow."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie.reverb._specs import TensorSpec

MODULES = {
    "client": ["Client", "Writer"],
    "errors": ["DeadlineExceededError", "ReverbError"],
    "item_selectors": ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Uniform"],
    "pattern_dataset": ["PatternDataset", "pattern_dataset_with_info"],
    "pybind": ["FifoSelector", "HeapSelector", "PrioritizedSelector", "RateLimiter"],
    "rate_limiters": ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"],
    "replay_sample": ["ReplaySample", "SampleInfo"],
    "reverb_types": ["TableInfo"],
    "server": ["Server", "Table"],
    "structured_writer": ["Condition", "StructuredWriter", "create_config", "td_error"],
    "tf_client": ["TFClient"],
    "timestep_dataset": ["TimestepDataset"],
    "trajectory_dataset": ["TrajectoryDataset"],
    "trajectory_writer": ["TrajectoryColumn", "TrajectoryWriter"],
}


@pytest.mark.parametrize("module", MODULES)
def test_the_module_paths_of_reverb_can_be_imported(module):
    loaded = importlib.import_module(f"reverie.reverb.{module}")
    for name in MODULES[module]:
        assert hasattr(loaded, name)
        ours = getattr(reverie, name, None)
        own = ("TableInfo", "DeadlineExceededError")
        if isinstance(ours, type) and name not in own and not name.endswith("Dataset"):
            assert issubclass(getattr(loaded, name), ours)


def test_samples_are_the_classes_of_the_library_and_writers_have_its_methods():
    reverb = importlib.import_module("reverie.reverb")
    for name in ("ReplaySample", "SampleInfo", "TrajectoryColumn"):
        assert getattr(reverb, name) is getattr(reverie, name)
    # An item costs no line of Python more than by our own names; a step returns its cells besides.
    for method in ("create_item", "history"):
        assert getattr(reverb.TrajectoryWriter, method) is getattr(reverie.TrajectoryWriter, method)
    by_pattern = reverb.structured.StructuredWriter
    assert by_pattern.append is reverie.structured.StructuredWriter.append


def test_selectors_of_the_reverb_module_equal_those_of_the_library():
    reverb = importlib.import_module("reverie.reverb")
    for name in ("Fifo", "Lifo", "Uniform", "MaxHeap", "MinHeap"):
        ours = getattr(reverie.selectors, name)()
        assert getattr(reverb.selectors, name)() == ours
        assert getattr(reverb.selectors, name)().spec == ours.spec
    assert reverb.selectors.Prioritized(0.5) == reverie.selectors.Prioritized(0.5)


def test_the_dtype_of_a_signature_is_not_none():
    dtype = TensorSpec((), "float64").dtype
    assert dtype != None  # noqa: E711 - as programs write it
    assert dtype not in (None, "float32")
    assert dtype in (None, np.float64)


WITHOUT_PROTOBUF = """
import sys
sys.modules["google"] = sys.modules["google.protobuf"] = None  # as if it were not installed
import reverie, reverie.reverb as reverb
table = reverb.Table("t", reverb.selectors.Prioritized(0.5), reverb.selectors.MinHeap(), 10,
                     reverb.rate_limiters.MinSize(1), signature=reverie.TensorSpec((), "int64"))
server = reverb.Server([table])
client = server.localhost_client()
client.insert(3, {"t": 1.0})
info = client.server_info()["t"]
assert info.sampler_options.WhichOneof("distribution") == "prioritized"
assert info.sampler_options.prioritized.priority_exponent == 0.5
assert not info.sampler_options.HasField("heap") and info.sampler_options.heap.min_heap is False
assert info.remover_options.heap.min_heap and info.remover_options.is_deterministic
assert info.rate_limiter_info.insert_stats.completed == 1
assert info.table_worker_time.running_ms == 0
assert info.signature.is_compatible_with(reverie.TensorSpec((), "int64"))
step = reverb.structured.create_reference_step({"a": None})
config = reverb.structured.create_config([step["a"][-1]], "t")
writer = client.structured_writer([config])
writer.append({"a": 4})
writer.flush()
assert table.info.current_size == 2
for call in (
    lambda: __import__("reverie.reverb.cc.schema_pb2"),
    info.sampler_options.SerializeToString,
    lambda: reverb.reverb_types.TableInfo.from_serialized_proto(b""),
):
    try:
        call()
    except reverie.errors.MissingPackageError as error:
        assert "protobuf" in str(error)
    else:
        raise AssertionError(call)
server.stop()
"""


def test_without_protobuf_only_its_modules_are_missing():
    subprocess.run([sys.executable, "-c", WITHOUT_PROTOBUF], check=True)


def test_importing_loads_neither_tensorflow_nor_protobuf():
    program = """
import sys, reverie.reverb
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"tensorflow", "google", "tree", "absl"}, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_messages_have_the_field_numbers_of_the_schema(tmp_path):
    protoc = shutil.which("protoc")
    if protoc is None:
        pytest.skip("protoc is not installed")
    from google.protobuf import descriptor_pb2

    from reverie.reverb import _messages

    root = Path(__file__).parents[2] / "proto"
    made = tmp_path / "reverb.bin"
    subprocess.run(
        [protoc, f"-I{root}", f"--descriptor_set_out={made}", root / "reverb.proto"], check=True
    )
    [file] = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file

    def fields(message, prefix=""):
        for nested in message.nested_type:
            yield from fields(nested, f"{prefix}{message.name}.")
        for field in message.field:
            what = (field.type, field.type_name.rsplit(".", 1)[-1], field.label)
            yield f"{prefix}{message.name}.{field.name}", (field.number, what)

    expected = {name: field for message in file.message_type for name, field in fields(message)}
    seen = 0
    for path in ("reverb/cc/schema.proto", "reverie/tensorflow/structured_value.proto"):
        proto = descriptor_pb2.FileDescriptorProto()
        _messages.message_classes(path)["DESCRIPTOR"].CopyToProto(proto)
        for message in proto.message_type:
            for name, field in fields(message):
                assert expected[name] == field, name
                seen += 1
    assert seen > 90


def test_messages_can_coexist_with_others_of_the_same_names():
    program = Path(__file__).parents[1] / "support" / "protobuf_first.py"
    subprocess.run([sys.executable, program], check=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda pybind: pybind.ConstantChunkerOptions(3, 4),
        lambda pybind: pybind.AutoTunedChunkerOptions(4, throughput_weight=2.0),
    ],
)
def test_configure_accepts_the_chunk_options(make):
    pybind = importlib.import_module("reverie.reverb.pybind")
    table = reverie.Table.queue("t", 10)
    with reverie.Store([table]) as store:
        with store.client().trajectory_writer(6) as writer:
            writer.configure(("x",), **make(pybind).arguments())
            for step in range(6):
                writer.append({"x": step})
            writer.create_item("t", 1.0, {"x": writer.history["x"][-4:]})
            with pytest.raises(ValueError, match="expired"):
                writer.create_item("t", 1.0, {"x": writer.history["x"][[0]]})
        assert store.client().sample_batch("t", 1).data["x"].tolist() == [[2, 3, 4, 5]]


def test_tensorflow_is_required_only_when_it_is_needed():
    program = """
import sys
sys.modules["tensorflow"] = None  # as if it were not installed
import reverie, reverie.reverb as reverb
for call in (
    lambda: reverb.TrajectoryDataset("localhost:1", "t", "float32", (), 1),
    lambda: reverb.TimestepDataset("localhost:1", "t", "float32", (), 1),
    lambda: reverb.TFClient("localhost:1"),
    lambda: reverie.TrajectoryDataset("localhost:1", "t", "float32", (), 1).as_tf(),
    reverie.SampleInfo.tf_dtypes,
):
    try:
        call()
    except reverie.errors.MissingPackageError as error:
        assert "tensorflow" in str(error)
    else:
        raise AssertionError(call)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
