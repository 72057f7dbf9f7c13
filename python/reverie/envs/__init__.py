"""Environments: pools of them stepped together, and native ones."""

from reverie._submodules import loaded_on_use
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

__getattr__ = loaded_on_use(__name__, "atari", "native", "vector_env")
