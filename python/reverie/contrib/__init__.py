"""Adapters for other libraries. Each module needs its library, and is imported by who uses it."""

from reverie._submodules import loaded_on_use

__getattr__ = loaded_on_use(__name__, "cleanrl", "flashbax", "rllib", "sb3", "tianshou", "torchrl")
