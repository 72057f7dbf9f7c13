"""What a run came to: a table, and the learning curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from rich.table import Table

from reverie.demo.cartpole import FINAL_EPISODES, Outcome

_RETURN_MAX = 500.0
_GREY = "#666666"


def outcome_table(acts: Mapping[str, Sequence[Outcome]]) -> Table:
    """One row a seed, act after act; each has a name."""
    steps = max(outcome.steps for outcomes in acts.values() for outcome in outcomes)
    table = Table(title=f"Greedy return over {FINAL_EPISODES} new episodes, after {steps:,} steps")
    table.add_column("replay", vertical="bottom")
    for title in (
        "seed",
        "mean\nreturn",
        "least\nreturn",
        "kept\nfrom step",
        "time\n[s]",
        "steps/s",
    ):
        table.add_column(title, justify="right", vertical="bottom")
    for name, outcomes in acts.items():
        for at in sorted(outcomes, key=lambda outcome: outcome.seed):
            table.add_row(
                name,
                str(at.seed),
                f"{at.greedy_mean:.1f}",
                f"{at.greedy_least:.0f}",
                f"{at.kept_step:,}",
                f"{at.seconds:.1f}",
                f"{at.steps / at.seconds:,.0f}",
            )
        table.add_section()
    return table


def draw_learning_curves(acts: Mapping[str, Sequence[Outcome]], goal: float, path: Path) -> None:
    """Writes a PNG: greedy return over steps, a line a seed; those of the second act are dashed."""
    figure = Figure(figsize=(8.0, 4.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for style, (name, outcomes) in zip(("-", "--"), acts.items(), strict=False):
        for at in outcomes:
            if at.curve:
                steps, returns = zip(*at.curve, strict=True)
                label = f"{name}, seed {at.seed}"
                axes.plot(steps, returns, style, linewidth=1.2, alpha=0.8, label=label)
    axes.axhline(goal, color=_GREY, linewidth=1.0, linestyle=":")
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
