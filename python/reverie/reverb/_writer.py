"""Reverb's first writer: that of ``reverie``, which flushes as Reverb's does."""

from __future__ import annotations

import contextlib
from typing import Any

from reverie import errors, writer
from reverie.reverb._errors import explained, in_time, with_words


class Writer(writer.Writer):
    """A ``reverie.Writer``; see there.

    ``close`` waits for all items, and raises if some could not be inserted.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._open_steps = 0  # of the chunk that is not full yet
        self._has_open_items = False  # of which Reverb's writer has not sent any

    def append(self, data: Any) -> None:  # noqa: ANN401
        """Appends one step; see ``reverie.Writer.append``."""
        self._writer.append_whole(data)
        self._open_steps += 1
        if self._open_steps == self._chunk_length:
            self._end_chunk()

    def create_item(
        self, table: str, num_timesteps: int, priority: float, *, timeout_s: float | None = None
    ) -> None:
        """Makes an item of the last steps; see ``reverie.Writer.create_item``."""
        try:
            super().create_item(table, num_timesteps, priority, timeout_s=timeout_s)
        except errors.NotFoundError as error:
            raise with_words(f"Unable to find signatures for table '{table}'", error) from None
        except errors.DeadlineExceededError as error:
            raise explained(error) from None
        self._has_open_items = self._open_steps > 0

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Sends the items of a chunk that is not full; without any it waits for all items.

        ``timeout_s`` concerns that wait.

        So a program of one thread can flush what a full queue does not accept yet, and sample then.
        """
        if not self._has_open_items:
            in_time(super().flush, timeout_s=timeout_s)
            return
        self._end_chunk()
        with contextlib.suppress(errors.DeadlineExceededError):
            super().flush(timeout_s=0)

    def close(self, retry_on_unavailable: bool = True, *, timeout_s: float | None = None) -> None:
        """Flushes and ends the writer; see ``reverie.Writer.close``."""
        in_time(super().close, retry_on_unavailable, timeout_s=timeout_s)

    def _end_chunk(self) -> None:
        self._open_steps = 0
        self._has_open_items = False


__all__ = ["Writer"]
