"""Reverb's module, for programs that are written for dm-reverb 0.14.

    import reverie.reverb as reverb

Names, arguments, answers and errors are Reverb's, down to its inner modules
(``reverb.item_selectors``, ``reverb.cc.schema_pb2``); ``docs/reverb_compatibility.md`` lists what
differs on purpose. Samples and columns are the classes of ``reverie`` itself, and writers add only
Reverb's errors and waits. TensorFlow and protobuf are imported by what needs them, when it is used.
"""

from reverie.replay_sample import ReplaySample, SampleInfo
from reverie.reverb import (
    cc,
    client,
    errors,
    item_selectors,
    pattern_dataset,
    pybind,
    rate_limiters,
    replay_sample,
    reverb_types,
    server,
    structured_writer,
    tf_client,
    timestep_dataset,
    trajectory_dataset,
    trajectory_writer,
)
from reverie.reverb import item_selectors as selectors
from reverie.reverb import structured_writer as structured
from reverie.reverb.client import Client, Writer
from reverie.reverb.errors import DeadlineExceededError, ReverbError
from reverie.reverb.pattern_dataset import PatternDataset
from reverie.reverb.platform.default import checkpointers
from reverie.reverb.server import Server, Table
from reverie.reverb.tf_client import TFClient
from reverie.reverb.timestep_dataset import TimestepDataset
from reverie.reverb.trajectory_dataset import TrajectoryDataset
from reverie.reverb.trajectory_writer import TrajectoryColumn, TrajectoryWriter

__all__ = [
    "Client",
    "DeadlineExceededError",
    "PatternDataset",
    "ReplaySample",
    "ReverbError",
    "SampleInfo",
    "Server",
    "TFClient",
    "Table",
    "TimestepDataset",
    "TrajectoryColumn",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "Writer",
    "cc",
    "checkpointers",
    "client",
    "errors",
    "item_selectors",
    "pattern_dataset",
    "pybind",
    "rate_limiters",
    "replay_sample",
    "reverb_types",
    "selectors",
    "server",
    "structured",
    "structured_writer",
    "tf_client",
    "timestep_dataset",
    "trajectory_dataset",
    "trajectory_writer",
]
