"""Reverie: the data plane of reinforcement learning."""

from reverie import errors, extensions, rate_limiters, selectors
from reverie._reverie import (
    Batch,
    BlockedReport,
    ColumnHistory,
    TrajectoryColumn,
    load_plugin,
)
from reverie._reverie import version as _version
from reverie.batcher import Batcher, unbatch
from reverie.client import Client
from reverie.dataset import Dataset
from reverie.envs.pool import EnvPool
from reverie.errors import DeadlineExceededError, ReverbError, ReverieError
from reverie.replay_buffer import ReplayBuffer
from reverie.replay_sample import ReplaySample, SampleInfo
from reverie.specs import TensorSpec
from reverie.store import Store
from reverie.table import Table, TableInfo
from reverie.trajectory_writer import TrajectoryWriter
from reverie.writer import Writer

__version__ = _version()

__all__ = [
    "Batch",
    "Batcher",
    "BlockedReport",
    "Client",
    "ColumnHistory",
    "Dataset",
    "DeadlineExceededError",
    "EnvPool",
    "ReplayBuffer",
    "ReplaySample",
    "ReverbError",
    "ReverieError",
    "SampleInfo",
    "Store",
    "Table",
    "TableInfo",
    "TensorSpec",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "Writer",
    "__version__",
    "errors",
    "extensions",
    "load_plugin",
    "rate_limiters",
    "selectors",
    "unbatch",
]
