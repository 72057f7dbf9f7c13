"""Reverb's module, for programs that are written against its inner paths or its tf.data datasets.

    import reverie.reverb as reverb

The public names are those of ``reverie`` itself. What differs here: ``TrajectoryDataset``,
``TimestepDataset`` and ``PatternDataset`` are ``tf.data.Dataset``, ``TFClient`` speaks TensorFlow,
and the modules have Reverb's names: ``reverb.item_selectors``, ``reverb.structured_writer`` and so
on. TensorFlow is imported when one of them is called, not before.
"""

from reverie.client import Client
from reverie.errors import DeadlineExceededError, ReverbError
from reverie.replay_sample import ReplaySample, SampleInfo
from reverie.reverb import (
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
from reverie.reverb.pattern_dataset import PatternDataset
from reverie.reverb.tf_client import TFClient
from reverie.reverb.timestep_dataset import TimestepDataset
from reverie.reverb.trajectory_dataset import TrajectoryDataset
from reverie.reverb.trajectory_writer import TrajectoryColumn, TrajectoryWriter
from reverie.server import Server
from reverie.table import Table
from reverie.writer import Writer

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
