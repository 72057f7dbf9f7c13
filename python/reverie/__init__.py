"""Reverie: the data plane of reinforcement learning."""

import sys
from typing import TYPE_CHECKING, Any

if "t" in getattr(sys, "abiflags", ""):
    raise ImportError(
        "reverie relies on the global lock of CPython, which this free-threaded build "
        f"does not have; use an ordinary python{sys.version_info[0]}.{sys.version_info[1]}"
    )

from reverie import checkpointers, errors, extensions, rate_limiters, selectors
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
from reverie.errors import DeadlineExceededError, ReverbError, ReverieError
from reverie.replay_buffer import ReplayBuffer
from reverie.replay_sample import ReplaySample, SampleInfo
from reverie.server import Server, ServerLimits
from reverie.specs import TensorSpec
from reverie.store import Store
from reverie.table import Table, TableInfo
from reverie.tls import ClientTls, PeerTls, ServerTls
from reverie.trajectory_writer import TrajectoryWriter
from reverie.writer import Writer

if TYPE_CHECKING:
    from reverie import agents, nn, rl, structured, transforms
    from reverie.accumulator import Accumulator
    from reverie.agents import TrainSettings, train
    from reverie.envs.pool import EnvPool
    from reverie.external import External, ExternalRows
    from reverie.groups import Broker, Group
    from reverie.hindsight import Hindsight
    from reverie.log_levels import set_log_level
    from reverie.pattern_dataset import PatternDataset
    from reverie.rpc import Future, Rpc, create_uid
    from reverie.sample_datasets import TimestepDataset, TrajectoryDataset
    from reverie.sent_dataclasses import register_dataclass
    from reverie.weights import Weights

__version__ = _version()

__all__ = [
    "Accumulator",
    "Batch",
    "Batcher",
    "BlockedReport",
    "Broker",
    "Client",
    "ClientTls",
    "ColumnHistory",
    "Dataset",
    "DeadlineExceededError",
    "EnvPool",
    "External",
    "ExternalRows",
    "Future",
    "Group",
    "Hindsight",
    "PatternDataset",
    "PeerTls",
    "ReplayBuffer",
    "ReplaySample",
    "ReverbError",
    "ReverieError",
    "Rpc",
    "SampleInfo",
    "Server",
    "ServerLimits",
    "ServerTls",
    "Store",
    "Table",
    "TableInfo",
    "TensorSpec",
    "TimestepDataset",
    "TrainSettings",
    "TrajectoryColumn",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "Weights",
    "Writer",
    "__version__",
    "agents",
    "checkpointers",
    "create_uid",
    "errors",
    "extensions",
    "load_plugin",
    "nn",
    "rate_limiters",
    "register_dataclass",
    "rl",
    "selectors",
    "set_log_level",
    "structured",
    "train",
    "transforms",
    "unbatch",
]


_LAZY = {
    "Accumulator": "reverie.accumulator",
    "Broker": "reverie.groups",
    "Group": "reverie.groups",
    "TrainSettings": "reverie.agents",
    "EnvPool": "reverie.envs.pool",
    "External": "reverie.external",
    "ExternalRows": "reverie.external",
    "Future": "reverie.rpc",
    "Hindsight": "reverie.hindsight",
    "PatternDataset": "reverie.pattern_dataset",
    "Rpc": "reverie.rpc",
    "TimestepDataset": "reverie.sample_datasets",
    "TrajectoryDataset": "reverie.sample_datasets",
    "Weights": "reverie.weights",
    "train": "reverie.agents",
    "create_uid": "reverie.rpc",
    "register_dataclass": "reverie.sent_dataclasses",
    "set_log_level": "reverie.log_levels",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Loads modules that most programs do not need on first use."""
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in (
        "agents",
        "contrib",
        "envs",
        "gym",
        "moolib",
        "nests",
        "nn",
        "reverb",
        "rl",
        "structured",
        "transforms",
    ):
        return importlib.import_module(f"reverie.{name}")
    hint = f"; it is reverie.errors.{name}" if hasattr(errors, name) else ""
    raise AttributeError(f"module 'reverie' has no attribute {name!r}{hint}")
