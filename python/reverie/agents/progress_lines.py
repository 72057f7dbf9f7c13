"""How a training stands, a line at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reverie.agents.trainer import Trainer, TrainProgress

if TYPE_CHECKING:
    from reverie.agents.torch_training import TorchTrainer


class ProgressLines:
    """Rates from one line to the next."""

    def __init__(self, trainer: Trainer | TorchTrainer) -> None:
        self._trainer = trainer
        settings = trainer.settings
        self._steps = settings.steps or 0
        self._batch_size = settings.batch_size or 0
        self._interval = settings.update_interval or 1.0
        self._is_parallel = bool(settings.actors)
        self._is_asynchronous = bool(settings.asynchronous)
        # A training that is resumed has steps behind it.
        self._first = self._last = trainer.progress()

    def line(self, now: TrainProgress) -> str:
        """How it stands, in one line."""
        # The last line is about the whole run: since the line before there was hardly time.
        last = self._last if now.end == "running" else self._first
        elapsed = now.elapsed_s - last.elapsed_s
        per_s = 1.0 / elapsed if elapsed > 0 else 0.0
        steps_per_s = (now.steps - last.steps) * per_s
        updates_per_s = (now.updates - last.updates) * per_s
        shown = "-" if now.mean_return is None else f"{now.mean_return:.1f}"
        parts = [
            f"{now.steps:>9,} steps",
            f"return {shown:>7}",
            f"{steps_per_s:>7,.0f} steps/s",
            f"{updates_per_s:>7,.0f} gradient steps/s",
        ]
        evaluations = self._trainer.evaluations()
        if evaluations:
            parts.append(f"without exploration {evaluations[-1][1]:.1f}")
        if now.measured_interval:
            parts.append(
                f"{self._batch_size / now.measured_interval:.1f} samples per insert "
                f"(wanted {self._batch_size / self._interval:.1f})"
            )
        if self._is_parallel:
            waits = [
                (now.actors_waited_s - last.actors_waited_s) * per_s,
                (now.learners_waited_s - last.learners_waited_s) * per_s,
            ]
            parts.append(f"waiting: actors {waits[0]:.0%}, learners {waits[1]:.0%}")
        if not isinstance(self._trainer, Trainer) and self._is_parallel:
            parts.append(f"learner idle {self._trainer.idle_share():.0%}")
        if isinstance(self._trainer, Trainer) and self._trainer.address is not None:
            parts.append(f"{self._trainer.actors_elsewhere()} actors elsewhere")
        if self._is_asynchronous:
            parts.append(
                f"staleness {now.staleness_mean:.1f} (most {now.staleness_max}, "
                f"{now.dropped} dropped)"
            )
        if steps_per_s > 0 and now.end == "running":
            parts.append(f"{(self._steps - now.steps) / steps_per_s:.0f} s left")
        self._last = now
        return "  ".join(parts)
