"""Environments: pools of them stepped together, and native ones."""

from reverie.envs.adapters import AgentRows, DmEnv, OldGym
from reverie.envs.backend import Backend, EnvBatch, EnvFuture, EnvSpec
from reverie.envs.pool import EnvPool

__all__ = [
    "AgentRows",
    "Backend",
    "DmEnv",
    "EnvBatch",
    "EnvFuture",
    "EnvPool",
    "EnvSpec",
    "OldGym",
]
