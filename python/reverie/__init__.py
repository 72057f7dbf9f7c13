"""Reverie: the data plane of reinforcement learning."""

from reverie._reverie import version as _version

__version__ = _version()

__all__ = ["__version__"]
