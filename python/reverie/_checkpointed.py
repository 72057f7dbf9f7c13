"""What stores and servers have of checkpoints."""

from __future__ import annotations

from reverie import _checks, _reverie


class Checkpointed:
    """A mixin for what holds tables that a checkpointer keeps."""

    __slots__ = ()

    _native: _reverie.Store | _reverie.Server

    def checkpoint(self, payload: bytes = b"", *, timeout_s: float | None = None) -> str:
        """Writes a checkpoint of all tables, as they are at one moment; returns its path.

        Clients continue meanwhile. Once this returns, the checkpoint survives a power cut. Ctrl-C
        and a time-out abandon it; then nothing of it is left.

        Args:
            payload: any bytes to store with it, at most 16 MiB: a step number, the name of the
                weights. :attr:`loaded_payload` returns them.
            timeout_s: how long to wait for it; None waits without limit.

        Raises:
            DeadlineExceededError: it was not written in time.
            ResourceExhaustedError: the disk is full, or eight other checkpoints wait already.
            UnimplementedError: there is no checkpointer.
        """
        return self._native.client().checkpoint(_checks.payload(payload), timeout_s)

    @property
    def loaded_checkpoint(self) -> str | None:
        """The path of the checkpoint that the tables were loaded from; None if they began empty."""
        loaded = self._native.loaded_checkpoint()
        return None if loaded is None else loaded[0]

    @property
    def loaded_payload(self) -> bytes | None:
        """The payload of the checkpoint that was loaded; None if the tables began empty."""
        loaded = self._native.loaded_checkpoint()
        return None if loaded is None else loaded[1]

    @property
    def journal_error(self) -> str | None:
        """Why changes cannot be confirmed now: the journal cannot be written.

        None while it can, or if there is no journal. Memory still serves requests meanwhile, and
        the next successful checkpoint, which is tried every 5 s, ends it.
        """
        return self._native.journal_error()
