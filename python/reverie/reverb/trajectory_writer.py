"""Reverb's path of ``reverie.trajectory_writer``."""

from reverie import TrajectoryColumn, TrajectoryWriter

__all__ = ["TrajectoryColumn", "TrajectoryWriter"]
