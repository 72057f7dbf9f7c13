"""Reverb's trajectory writer: that of ``reverie``, with Reverb's errors."""

from typing import Any

from reverie import TrajectoryColumn, trajectory_writer
from reverie.reverb._errors import ReverbEnds, explained


class TrajectoryWriter(ReverbEnds, trajectory_writer.TrajectoryWriter):
    """A ``reverie.TrajectoryWriter``; see there.

    A context manager: leaving it flushes, unless a ``ReverbError`` is on its way, and leaves the
    writer open.
    """

    __slots__ = ()

    _explain = staticmethod(explained)

    def append(self, data: Any, *, partial_step: bool = False) -> Any:  # noqa: ANN401
        """Appends one step, or a part of it; see ``reverie.TrajectoryWriter.append``.

        Returns:
            References to the cells that were written, for a ``TrajectoryColumn``: nested as
            ``data``, and None where it has None.
        """
        return self._append_cells(data, partial_step=partial_step)  # type: ignore[attr-defined]


__all__ = ["TrajectoryColumn", "TrajectoryWriter"]
