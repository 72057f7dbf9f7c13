"""Draws how an all-reduce scales: the trees of a forest, and tree, forest and ring compared.

    forest_trees.png    the trees over seven members, as figure 2 of the moolib paper shows them
    forest_scaling.png  steps, bytes per link and time of tree, forest and ring, 2 to 128 members

Usage: python benchmarks/figures/forest.py [--out docs/pictures]
           [--programs build/release/benchmarks]

All figures come from forest_bench, which runs the real rounds over the real trees on simulated
links, as benchmarks/cc/forest_bench.cc describes. The script fails if the forest takes more steps
than 2 floor(log2 P), or if the bytes sent by a member, or the time, are much more than the
2 N (P - 1) / P that is a lower bound for every all-reduce. It prints the figures as a table.
"""

import argparse
import json
import subprocess
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("Tree", "Forest", "Ring")
COUNTERS = {"steps": "steps", "bytes": "sent by one member, x N", "time": "time, x N / rate"}
DRAWN_MEMBERS = 7
SLACK = 1.05  # for parts of unequal size, and latency


def run(program: Path) -> tuple[dict[str, dict[int, dict[str, float]]], dict[int, str]]:
    """The counters by kind and members, and the trees by members."""
    done = subprocess.run(
        [str(program), "--benchmark_format=json"], check=True, capture_output=True, text=True
    )
    found: dict[str, dict[int, dict[str, float]]] = {kind: {} for kind in KINDS}
    trees: dict[int, str] = {}
    for entry in json.loads(done.stdout)["benchmarks"]:
        kind, members = entry["name"].removeprefix("BM_").split("/")[:2]
        if kind == "Topology":
            trees[int(members)] = entry["label"]
        else:
            found[kind][int(members)] = {name: entry[name] for name in COUNTERS}
    return found, trees


def check(found: dict[str, dict[int, dict[str, float]]]) -> None:
    """Checks what the paper says about a forest."""
    for members, counters in found["Forest"].items():
        steps_max = 2 * (members.bit_length() - 1)
        least = 2 * (members - 1) / members
        if counters["steps"] > steps_max or counters["bytes"] > SLACK * least:
            raise SystemExit(f"{members} members: {counters}; {steps_max} steps, {least:.2f} N")
        if counters["time"] > SLACK * least:
            raise SystemExit(f"{members} members take {counters['time']:.2f}; least {least:.2f}")


def draw_tree(axis: Axes, tree: int, edges: str) -> None:
    """Draws one tree from its root down; a member has the colour of the tree whose root it is."""
    parents = {int(child): int(parent) for child, parent in (e.split(">") for e in edges.split())}
    members = sorted({*parents, *parents.values()})
    root = next(member for member in members if member not in parents)
    places = {root: (0.0, 0.0)}
    level = [root]
    while level:
        below: list[int] = []
        for parent in level:
            children = [child for child in members if parents.get(child) == parent]
            x, y = places[parent]
            width = 1.0 / 2 ** (1 - y)
            for child, side in zip(children, (-1, 1), strict=False):
                places[child] = (x + side * width, y - 1)
            below += children
        level = below
    colors = plt.get_cmap("tab10")
    for child, parent in parents.items():
        axis.annotate(
            "",
            xy=places[parent],
            xytext=places[child],
            arrowprops={
                "arrowstyle": "-|>",
                "color": colors(tree),
                "shrinkA": 9,
                "shrinkB": 9,
                "lw": 1.6,
            },
        )
    for member, (x, y) in places.items():
        axis.scatter([x], [y], s=260, color=colors(member), zorder=3)
        axis.text(x, y, str(member), ha="center", va="center", color="white", zorder=4)
    axis.set(xlim=(-1.2, 1.2), ylim=(-2.4, 0.4), title=f"tree {tree}")
    axis.axis("off")


def draw_trees(edges: str, out: Path) -> None:
    """Draws all trees of one forest, and what a member sends in each step."""
    trees = edges.split(";")[:DRAWN_MEMBERS]
    figure, axes = plt.subplots(2, 4, figsize=(12, 5), layout="constrained")
    for tree, (axis, one) in enumerate(zip(axes.flat, trees, strict=False)):
        draw_tree(axis, tree, one)
    text = (
        "Upwards: part i of the array goes from the\nleaves of tree i to its root, combined at\n"
        "each member. Downwards: the same way back.\n\nMember 0 is a leaf in trees "
        + ", ".join(str(t) for t, one in enumerate(trees) if ">0 " not in one + " ")
        + ",\nand the root of tree 0. It sends 4/7 N in the\nfirst step up and 2/7 N in the second."
    )
    axes.flat[-1].text(0.0, 0.5, text, va="center", fontsize=9)
    axes.flat[-1].axis("off")
    figure.savefig(out / "forest_trees.png", dpi=100)


def draw_scaling(found: dict[str, dict[int, dict[str, float]]], out: Path) -> None:
    """Draws one plot for each counter."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for axis, (counter, title) in zip(axes, COUNTERS.items(), strict=True):
        for kind in KINDS:
            points = {members: c[counter] for members, c in sorted(found[kind].items())}
            style = "--" if kind == "Ring" else "-"  # dashed, since it covers the forest's curve
            axis.plot(list(points), list(points.values()), style, marker=".", label=kind.lower())
        axis.set(xscale="log", xlabel="members", title=title)
        axis.set_xticks([2, 4, 8, 16, 32, 64, 128], labels=["2", "4", "8", "16", "32", "64", "128"])
        axis.minorticks_off()
        axis.grid(visible=True, alpha=0.3)
        if counter == "steps":
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
    axes[0].legend()
    figure.savefig(out / "forest_scaling.png", dpi=100)


def main() -> None:
    """Runs the program, draws the pictures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures")
    parser.add_argument("--programs", type=Path, default=ROOT / "build/release/benchmarks")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found, trees = run(given.programs / "forest_bench")
    check(found)
    draw_trees(trees[DRAWN_MEMBERS], given.out)
    draw_scaling(found, given.out)
    print("| members |" + "".join(f" {kind.lower()} |" for kind in KINDS))
    print("|---|" + "---|" * len(KINDS))
    for members in (2, 4, 8, 16, 32, 64, 128):
        cells = [found[kind][members] for kind in KINDS]
        print(
            f"| {members} |"
            + "".join(
                f" {c['steps']:.0f} steps, {c['bytes']:.2f}, {c['time']:.2f} |" for c in cells
            )
        )


if __name__ == "__main__":
    main()
