"""Reverb's path of ``reverie.server`` and ``reverie.table``."""

from reverie.server import Server
from reverie.table import Table

__all__ = ["Server", "Table"]
