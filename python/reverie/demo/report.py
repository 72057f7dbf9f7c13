"""What a run came to: a table, and the learning curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray
from rich.table import Table

from reverie.demo.messages import Evaluation, Outcome

_RETURN_MAX = 500.0
_GREY = "#666666"


def outcome_table(acts: Mapping[str, Sequence[Outcome]]) -> Table:
    """One row a seed, act after act; each has a name."""
    outcomes = [outcome for act in acts.values() for outcome in act]
    episodes = max(outcome.greedy_episodes for outcome in outcomes)
    steps = max(outcome.steps for outcome in outcomes)
    table = Table(title=f"Greedy return over {episodes} new episodes, after {steps:,} steps")
    table.add_column("store", vertical="bottom")
    for title in (
        "seed", "mean\nreturn", "least\nreturn", "kept\nfrom step", "time\n[s]", "steps/s",
        "samples/\ninsert",
    ):  # fmt: skip
        table.add_column(title, justify="right", vertical="bottom")
    for name, act in acts.items():
        for at in sorted(act, key=lambda outcome: outcome.seed):
            table.add_row(
                name,
                str(at.seed),
                f"{at.greedy_return_mean:.1f}",
                f"{at.greedy_return_min:.0f}",
                f"{at.kept_step:,}",
                f"{at.seconds:.1f}",
                f"{at.steps / at.seconds:,.0f}",
                f"{at.samples_per_insert:.1f}",
            )
        table.add_section()
    return table


def draw_learning_curves(
    curves: Mapping[int, Sequence[Evaluation]],
    goal: float,
    path: Path,
    *,
    served: Mapping[int, Sequence[Evaluation]] | None = None,
) -> None:
    """Writes a PNG: greedy return over steps, a thin line a seed, and a bold mean.

    Args:
        curves: of each seed, in the order of its steps.
        goal: marked by a dotted line.
        path: of the picture.
        served: of the trainings over a server, dashed.
    """
    figure = Figure(figsize=(8.0, 4.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    lines = _lines(curves)
    for index, (seed, (steps, returns)) in enumerate(lines.items()):
        label = f"seed {seed}" if len(lines) <= 10 else ("one seed" if index == 0 else None)
        axes.plot(steps, returns, linewidth=1.0, alpha=0.75, label=label)
    for index, (steps, returns) in enumerate(_lines(served or {}).values()):
        label = "served" if index == 0 else None
        axes.plot(steps, returns, "--", color=_GREY, linewidth=1.0, label=label)
    # Trainings that were cut short leave curves of several lengths: the mean ends with the first.
    if len(lines) > 1:
        shortest = min((steps for steps, _ in lines.values()), key=len)
        stacked = np.stack([returns[: len(shortest)] for _, returns in lines.values()])
        axes.plot(shortest, stacked.mean(axis=0), color="black", linewidth=2.6, label="mean")
    axes.axhline(goal, color=_GREY, linewidth=1.0, linestyle=":")
    axes.annotate(
        f"goal\n{goal:.0f}",
        (1.0, goal),
        (4, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        color=_GREY,
        fontsize=9,
        verticalalignment="center",
    )
    axes.set_title(
        "Double DQN with prioritised 3-step replay on CartPole-v1", loc="left", fontsize=11
    )
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return of greedy episodes [reward]\n(mean of 10; at most 500)")
    axes.set_xlim(left=0)
    axes.set_ylim(0, _RETURN_MAX * 1.05)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right", ncols=2)
    figure.savefig(path)


def _lines(
    curves: Mapping[int, Sequence[Evaluation]],
) -> dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Steps and returns of each seed that has any."""
    return {
        seed: (
            np.array([at.step for at in curve]),
            np.array([at.greedy_return for at in curve]),
        )
        for seed, curve in sorted(curves.items())
        if curve
    }
