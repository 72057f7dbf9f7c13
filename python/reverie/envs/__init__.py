"""Environments: pools of them stepped together, and native ones."""

from reverie.envs.backend import Backend, EnvBatch, EnvFuture, EnvSpec

__all__ = ["Backend", "EnvBatch", "EnvFuture", "EnvSpec"]
