"""Environments: pools of them stepped together, and native ones."""

from reverie.envs.backend import Backend, EnvBatch, EnvFuture, EnvSpec
from reverie.envs.pool import EnvPool

__all__ = ["Backend", "EnvBatch", "EnvFuture", "EnvPool", "EnvSpec"]
