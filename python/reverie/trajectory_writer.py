"""The writer whose items are any rows of the last steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from reverie import _checks, _reverie
from reverie._closing import Flushing
from reverie._process_bound import ProcessBound

_OPENS = "that of a reverie.Client; call its trajectory_writer()"


class TrajectoryWriter(ProcessBound, _reverie.TrajectoryWriter, Flushing):
    """Turns a stream of steps into items that share their rows.

    ``reverie.Client.trajectory_writer()`` makes one::

        with client.trajectory_writer(num_keep_alive_refs=3) as writer:
            writer.append({"obs": obs, "action": action})
            if writer.episode_steps >= 3:
                last = {name: column[-3:] for name, column in writer.history.items()}
                writer.create_item("replay", priority=1.0, trajectory=last)

    A context manager: leaving it flushes, unless one of our own errors is on its way, and leaves
    the writer open. A writer that is dropped unclosed flushes for at most a second, then warns
    with the number of items lost. Use it from one thread at a time.
    """

    __slots__ = ()

    _stays_because = (
        "a TrajectoryWriter cannot be pickled; open one in the other process, with a client of "
        "its own"
    )
    # A subclass's function of an error of append or create_item, and of the trajectory (None of
    # append), which returns the error to raise.
    _explain: ClassVar[Callable[[BaseException, Any], BaseException] | None] = None

    def __init__(
        self,
        client: _reverie.Client,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        chunk_length: int | None = None,
        max_in_flight_items: int = 1000,
        codec: str = "auto",
    ) -> None:
        super().__init__(
            _checks.instance("client", client, _reverie.Client, _OPENS),
            num_keep_alive_refs,
            validate_items=_checks.flag("validate_items", validate_items),
            chunk_length=chunk_length,
            max_in_flight_items=max_in_flight_items,
            codec=codec,
            explain=type(self)._explain,
        )
