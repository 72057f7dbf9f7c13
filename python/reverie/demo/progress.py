"""How a run fares while it runs: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from reverie.demo.messages import Evaluation, Failure, Message, Outcome, Progress, Restart

_LINE_INTERVAL_S = 4.0


class ProgressView:
    """Shows the latest of each seed; a context manager, since a live table has to be ended.

    Args:
        console: a live table is drawn if it is a terminal, else a line a seed every 4 seconds.
        seeds: in the order in which they are shown.
        steps: of each training.
    """

    def __init__(self, console: Console, seeds: Sequence[int], steps: int) -> None:
        self._console = console
        self._steps = steps
        self._latest: dict[int, Progress] = {}
        self._greedy: dict[int, float] = {}
        self._states = dict.fromkeys(seeds, "waits")
        self._lined: dict[int, float] = {}
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(self._table(), console=console, refresh_per_second=4)

    def __enter__(self) -> ProgressView:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    def show(self, message: Message) -> None:
        """Takes a message in, and draws when it is time to."""
        seed = message.seed
        if isinstance(message, Progress):
            self._latest[seed] = message
            self._states[seed] = "trains"
        elif isinstance(message, Evaluation):
            self._greedy[seed] = message.greedy_return
        elif isinstance(message, Outcome):
            self._greedy[seed] = message.greedy_return_mean
            self._states[seed] = "done"
        elif isinstance(message, Failure):
            self._states[seed] = "failed"
        if self._live:
            self._live.update(self._table())
        elif isinstance(message, Progress):
            now = time.monotonic()
            if now - self._lined.get(seed, -_LINE_INTERVAL_S) >= _LINE_INTERVAL_S:
                self._lined[seed] = now
                self._print(self._line(message))
        elif isinstance(message, Restart):
            self._print(
                f"seed {seed}: killed and started again, {message.found:,} items came back; goes "
                f"on from step {message.step:,}"
            )
        elif isinstance(message, Outcome):
            self._print(
                f"seed {seed}: done after {message.seconds:.1f} s, greedy return "
                f"{message.greedy_return_mean:.1f} over {message.greedy_episodes} new episodes"
            )

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _line(self, at: Progress) -> str:
        return (
            f"seed {at.seed}: step {at.step:,} of {self._steps:,}, "
            f"return {_figure(at.episode_return, '.1f')}, "
            f"greedy {_figure(self._greedy.get(at.seed), '.1f')}, {at.steps_per_s:,.0f} steps/s, "
            f"{at.samples_per_insert:.1f} samples per insert, "
            f"age {_figure(at.age_s, '.1f')} s, loss {_figure(at.loss, '.4f')}, "
            f"epsilon {at.epsilon:.2f}"
        )

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column("seed", justify="right", style="bold")
        table.add_column("", width=9)
        for title in (
            "step", "return", "greedy\nreturn", "steps/s", "samples/\ninsert", "age\n[s]",
            "loss", "epsilon",
        ):  # fmt: skip
            table.add_column(title, justify="right", vertical="bottom")
        for seed, state in self._states.items():
            at = self._latest.get(seed)
            if at is None:
                table.add_row(str(seed), state)
                continue
            bar = ProgressBar(total=self._steps, completed=at.step, width=9)
            table.add_row(
                str(seed),
                state if state in ("done", "failed") else bar,
                f"{at.step:,}",
                _figure(at.episode_return, ".1f"),
                _figure(self._greedy.get(seed), ".1f"),
                f"{at.steps_per_s:,.0f}",
                f"{at.samples_per_insert:.1f}",
                _figure(at.age_s, ".1f"),
                _figure(at.loss, ".4f"),
                f"{at.epsilon:.2f}",
            )
        return table


def _figure(value: float | None, pattern: str) -> str:
    return "-" if value is None else format(value, pattern)
