"""Reverb's path of ``reverie.TableInfo``."""

from reverie.table import TableInfo

__all__ = ["TableInfo"]
