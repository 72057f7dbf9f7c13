"""Repeats and draws the measurements of "Reverb: A Framework for Experience Replay" (2021).

    figure 5    inserts per second over 1 to 200 clients, items of 400 B to 400 kB, and the same
                with clients that limit themselves to a quarter of their speed
    figure 6    samples per second, the same way
    figure 7    inserts per second over clients that use 1, 2, 4 and 8 tables by turns

An item is one step of random float32 numbers in a separate chunk; server and clients run on one
machine, over TCP. Both systems are measured by turns.

Usage: python benchmarks/figures/reverb_paper.py [--out build/figures] [--reverb PYTHON]
           [--seconds 1.0] [--clients 1,8,40,100,200]

Writes figure5.png, figure6.png, figure7.png and reverb_figures.md, and prints the last.
``--reverb`` is an interpreter that has dm-reverb (``make .venv-reverb/made``); without one, its
curves are left out.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from load import ClientProcesses, Server
from matplotlib import pyplot as plt
from paper import ROOT, machine, markdown

SIZES = {"400 B": 100, "4 kB": 1_000, "40 kB": 10_000, "400 kB": 100_000}
TABLES = (1, 2, 4, 8)
NAMES = {"reverie": "Reverie", "reverb": "dm-reverb"}
STYLES = {"reverie": "-", "reverb": "--"}

# Items per second by library, size and clients.
Rates = dict[tuple[str, str, int], float]


class Systems:
    """A server and client processes of each library."""

    def __init__(self, pythons: dict[str, str], seconds: float) -> None:
        self.libraries = list(pythons)
        self._servers = {name: Server(python, name) for name, python in pythons.items()}
        self._clients = {name: ClientProcesses(python, name) for name, python in pythons.items()}
        self._seconds = seconds

    def items_s(self, library: str, work: str, size: str, clients: int, **options: Any) -> float:  # noqa: ANN401
        """Makes one measurement."""
        rate = self._clients[library].items_s(
            work,
            self._servers[library],
            SIZES[size],
            clients,
            seconds=self._seconds,
            **options,
        )
        print(f"{work} {size} {clients} {options} {library}: {rate:,.0f}/s", file=sys.stderr)
        return rate

    def fill(self, size: str) -> None:
        """Fills the tables with items of this size for sampling."""
        for library, clients in self._clients.items():
            clients.fill(self._servers[library], SIZES[size])

    def close(self) -> None:
        """Ends all of them."""
        for one in (*self._clients.values(), *self._servers.values()):
            one.close()


def draw(rates: Rates, held: Rates, clients: Sequence[int], work: str, path: Path) -> None:
    """Draws items and bytes per second, with a colour per size, dashed for dm-reverb."""
    figure, axes = plt.subplots(1, 2, figsize=(13, 4.5), layout="constrained")
    colours = dict(zip(SIZES, plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False))
    for library in sorted({key[0] for key in rates}, reverse=True):
        for size, elements in SIZES.items():
            points = [rates[library, size, count] for count in clients]
            for axis, scale in zip(axes, (1, 4 * elements), strict=True):
                axis.loglog(
                    clients,
                    [scale * point for point in points],
                    STYLES[library],
                    color=colours[size],
                    marker="o",
                    markersize=4,
                    label=f"{NAMES[library]}, {size}",
                )
    for library in sorted({key[0] for key in held}, reverse=True):
        points = [held[library, "400 B", count] for count in clients]
        label = f"{NAMES[library]}, 400 B, held to a quarter"
        axes[0].loglog(clients, points, STYLES[library], color="grey", marker=".", label=label)
    for axis, unit in zip(axes, ("items", "bytes"), strict=True):
        axis.set(xlabel="clients", ylabel=f"{unit} a second", title=f"{work}: {unit}/s")
        axis.set_xticks(clients, [str(count) for count in clients])
        axis.set_xticks([], minor=True)
        axis.grid(visible=True, which="both", alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=7)
    figure.savefig(path, dpi=120)


def load_figure(number: int, work: str, systems: Systems, clients: Sequence[int], out: Path) -> str:
    """Figures 5 and 6."""
    rates: Rates = {}
    held: Rates = {}
    for size in SIZES:
        systems.fill(size)
        for count in clients:
            for library in systems.libraries:
                rates[library, size, count] = systems.items_s(library, work, size, count)
                if size != "400 B":
                    continue
                # Each client at a quarter of the rate that a client alone reaches.
                pace = 0.25 * rates[library, size, clients[0]] / clients[0] * count
                held[library, size, count] = systems.items_s(library, work, size, count, pace=pace)
    draw(rates, held, clients, work, out / f"figure{number}.png")
    rows = [
        [NAMES[library], size, *(f"{rates[library, size, count]:,.0f}" for count in clients)]
        for size in SIZES
        for library in systems.libraries
    ]
    rows += [
        [
            NAMES[library],
            "400 B, held to a quarter",
            *(f"{held[library, '400 B', n]:,.0f}" for n in clients),
        ]
        for library in systems.libraries
    ]
    title = f"Figure {number}: {work}, items a second"
    return markdown(title, ["", "", *(f"{count} clients" for count in clients)], rows)


def tables_figure(systems: Systems, clients: Sequence[int], out: Path) -> str:
    """Figure 7."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    colours = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    rows = []
    for tables, colour in zip(TABLES, colours, strict=False):
        for library in systems.libraries:
            points = [
                systems.items_s(library, "insert", "400 B", count, tables=tables)
                for count in clients
            ]
            axis.semilogx(
                clients,
                points,
                STYLES[library],
                color=colour,
                marker="o",
                markersize=4,
                label=f"{NAMES[library]}, {tables} table{'s' * (tables > 1)}",
            )
            rows.append([NAMES[library], f"{tables} tables", *(f"{n:,.0f}" for n in points)])
    axis.set(xlabel="clients", ylabel="items a second", title="insert 400 B", ylim=(0, None))
    axis.set_xticks(clients, [str(count) for count in clients])
    axis.set_xticks([], minor=True)
    axis.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=7)
    figure.savefig(out / "figure7.png", dpi=120)
    title = "Figure 7: inserts of 400 B into several tables, items a second"
    return markdown(title, ["", "", *(f"{count} clients" for count in clients)], rows)


def main() -> None:
    """Measures, draws and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "figures")
    parser.add_argument("--reverb", help="an interpreter that has dm-reverb")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement")
    parser.add_argument("--clients", default="1,8,40,100,200")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    clients = [int(word) for word in arguments.clients.split(",")]
    pythons = {"reverie": sys.executable}
    if arguments.reverb:
        probe = [arguments.reverb, "-c", "import reverb"]
        if subprocess.run(probe, capture_output=True).returncode:
            parser.error(f"{arguments.reverb} has no dm-reverb; make one: make .venv-reverb/made")
        pythons["reverb"] = arguments.reverb
    systems = Systems(pythons, arguments.seconds)
    try:
        parts = [
            machine(),
            load_figure(5, "insert", systems, clients, arguments.out),
            load_figure(6, "sample", systems, clients, arguments.out),
            tables_figure(systems, clients, arguments.out),
        ]
    finally:
        systems.close()
    text = "\n".join(parts)
    (arguments.out / "reverb_figures.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
