"""Reverb's inner module paths, without TensorFlow."""

import importlib
import subprocess
import sys

import pytest

import reverie

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
def test_the_paths_of_reverb_lead_to_our_names(module):
    loaded = importlib.import_module(f"reverie.reverb.{module}")
    for name in MODULES[module]:
        assert hasattr(loaded, name)
        if hasattr(reverie, name) and not name.endswith("Dataset"):
            assert getattr(loaded, name) is getattr(reverie, name)


def test_the_module_has_the_public_names_of_ours():
    reverb = importlib.import_module("reverie.reverb")
    assert reverb.selectors.Fifo is reverie.selectors.Fifo
    assert reverb.structured.create_config is reverie.structured.create_config
    assert reverb.Table is reverie.Table
    assert type(reverb.pybind.HeapSelector(min_heap=True)) is reverie.selectors.MinHeap
    assert type(reverb.pybind.HeapSelector(min_heap=False)) is reverie.selectors.MaxHeap


@pytest.mark.parametrize(
    "make",
    [
        lambda pybind: pybind.ConstantChunkerOptions(3, 4),
        lambda pybind: pybind.AutoTunedChunkerOptions(4, throughput_weight=2.0),
    ],
)
def test_the_options_of_chunks_are_what_configure_takes(make):
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


def test_tensorflow_is_asked_for_when_it_is_needed_and_not_before():
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
