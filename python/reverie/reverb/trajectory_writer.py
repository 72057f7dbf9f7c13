"""Reverb's trajectory writer: that of ``reverie``, with Reverb's errors."""

from reverie import TrajectoryColumn, trajectory_writer
from reverie.reverb._errors import ReverbEnds, explained


class TrajectoryWriter(ReverbEnds, trajectory_writer.TrajectoryWriter):
    """A ``reverie.TrajectoryWriter``; see there.

    A context manager: leaving it flushes, unless a ``ReverbError`` is on its way, and leaves the
    writer open.
    """

    __slots__ = ()

    _explain = staticmethod(explained)


__all__ = ["TrajectoryColumn", "TrajectoryWriter"]
