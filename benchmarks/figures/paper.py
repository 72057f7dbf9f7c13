"""Repeats and draws the measurements of "Parallel Actors and Learners" (Zhang et al. 2021).

    figure 8    insert and sample latency over the number of items, with other replay buffers
    figure 9    the paper's tree over its fanout K and four capacities, and ours
    figure 10   a learner's loop over 1 to all cores, under four schemes of locking
    layout      nodes that begin at a cache line against nodes that begin half a line later

Usage: python benchmarks/figures/paper.py [--out build/figures] [--peers PYTHON]
           [--programs build/release/benchmarks] [--items-max 1000000] [--only {8,9,10}]

Writes figure8.png, figure9.png, figure10.png and figures.md, and prints the last. ``--peers`` is an
interpreter that has tianshou, ray[rllib], cpprb or flashbax; those that it lacks are left out.
benchmarks/cc/paper_bench.cc describes the paper's variants.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ("reverie", "cpprb", "tianshou", "rllib", "flashbax")
MODULES = {"rllib": "ray.rllib"}
FANOUTS = (2, 4, 8, 16, 32, 64)
CAPACITIES = (10_000, 100_000, 1_000_000, 10_000_000)
SCHEMES = {
    "GlobalLock": "one lock",
    "TwoLocks": "the paper's two locks",
    "NoLock": "no lock (wrong)",
    "1 table": "Reverie",
    "64 tables": "Reverie, 64 tables",
}

Table = list[list[str]]


def markdown(title: str, header: list[str], rows: Table) -> str:
    """A titled table."""
    lines = [f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def run_program(program: Path, pattern: str) -> dict[str, float]:
    """Items per second of each benchmark that matches ``pattern``: the median of three runs."""
    done = subprocess.run(
        [
            str(program),
            f"--benchmark_filter={pattern}",
            "--benchmark_format=json",
            "--benchmark_repetitions=3",
            "--benchmark_report_aggregates_only=true",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    found = {}
    for entry in json.loads(done.stdout)["benchmarks"]:
        if entry["aggregate_name"] == "median":
            found[entry["run_name"]] = float(entry["items_per_second"])
    return found


def latencies(python: str, items: Iterable[int]) -> dict[tuple[str, int], dict[str, Any]]:
    """The results of ``latency.py`` by system and items, for systems that are installed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    }
    found = {}
    for system in SYSTEMS:
        probe = f"import {MODULES.get(system, system)}"
        if subprocess.run([python, "-c", probe], capture_output=True, env=environment).returncode:
            print(f"{system}: not installed in {python}, left out", file=sys.stderr)
            continue
        for count in items:
            done = subprocess.run(
                [python, str(Path(__file__).parent / "latency.py"), system, str(count)],
                capture_output=True,
                text=True,
                env=environment,
            )
            if done.returncode:
                reason = done.stderr.strip().splitlines()[-1]
                print(f"{system}, {count} items: {reason}", file=sys.stderr)
                break
            found[system, count] = json.loads(done.stdout.splitlines()[-1])
            if "skipped" in found[system, count]:
                break
    return found


def figure_8(python: str, items_max: int, out: Path) -> str:
    """Latency of whole buffers, called from Python."""
    items = [count for count in (1_000, *CAPACITIES) if count <= items_max]
    found = latencies(python, items)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    rows: Table = []
    for axis, what in zip(axes, ("insert", "sample"), strict=True):
        for system in SYSTEMS:
            points = {
                count: entry[f"{what}_us"]
                for (name, count), entry in found.items()
                if name == system and f"{what}_us" in entry
            }
            if not points:
                continue
            axis.loglog(list(points), list(points.values()), marker="o", label=system)
            cells = [f"{points[count]:.1f}" if count in points else "-" for count in items]
            rows.append([what, system, *cells])
        axis.set(xlabel="items", ylabel="microseconds", title=f"{what}, one call")
        axis.grid(visible=True, which="both", alpha=0.3)
    axes[0].legend()
    figure.savefig(out / "figure8.png", dpi=120)
    title = "Figure 8: insert one, sample 64 by priority, from Python, us a call"
    return markdown(title, ["", "", *(f"{count:.0e} items" for count in items)], rows)


def figure_9(programs: Path, out: Path) -> str:
    """The tree without a buffer, over its fanout; and the layout."""
    found = run_program(programs / "paper_bench", "BM_Sample|BM_Insert")
    nanoseconds: dict[tuple[str, str, int], float] = {}
    for name, items_s in found.items():
        match = re.match(r"BM_(\w+)<(.+)>/(\d+)", name)
        assert match is not None, name
        nanoseconds[match[1], match[2], int(match[3])] = 1e9 / items_s
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    trees = {f"Paper<{k}>": f"the paper's, K = {k}" for k in FANOUTS}
    rows: Table = []
    for axis, what in zip(axes, ("Insert", "Sample"), strict=True):
        for capacity in CAPACITIES:
            times = [nanoseconds[what, tree, capacity] for tree in trees]
            (line,) = axis.plot(FANOUTS, times, marker="o", label=f"{capacity:.0e}")
            ours = nanoseconds[what, "Ours", capacity]
            axis.axhline(ours, color=line.get_color(), linestyle="--", linewidth=1)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="fanout K (dashed: ours)",
            ylabel="nanoseconds",
            title=f"{what.lower()}, an item of a batch of 64",
        )
        axis.set_xticks(FANOUTS, [str(k) for k in FANOUTS])
        axis.set_xticks([], minor=True)
        axis.grid(visible=True, which="both", alpha=0.3)
        named = {**trees, "Unaligned": "K = 16, not aligned", "Ours": "Reverie, K = 16"}
        for tree, label in named.items():
            times = [nanoseconds[what, tree, capacity] for capacity in CAPACITIES]
            rows.append([what.lower(), label, *(f"{time:.1f}" for time in times)])
    axes[0].legend(title="items")
    figure.savefig(out / "figure9.png", dpi=120)
    title = "Figure 9 and the layout: the tree alone, batches of 64, ns an item"
    return markdown(title, ["", "", *(f"{capacity:.0e}" for capacity in CAPACITIES)], rows)


def figure_10(programs: Path, out: Path) -> str:
    """Loops per second over threads, and the gain from threads compared with no lock."""
    loops: dict[tuple[str, int, int], float] = {}
    for name, items_s in run_program(programs / "paper_bench", "BM_Loop").items():
        match = re.match(r"BM_Loop<(\w+)>/(\d+)/.*threads:(\d+)", name)
        assert match is not None, name
        loops[match[1], int(match[2]), int(match[3])] = items_s
    ours = run_program(programs / "replay_threads_bench", "BM_Loop/")
    for name, items_s in ours.items():
        match = re.match(r"BM_Loop/(\d+)/(\d+)/.*threads:(\d+)", name)
        assert match is not None, name
        scheme = "1 table" if match[2] == "1" else f"{match[2]} tables"
        loops[scheme, int(match[1]), int(match[3])] = items_s
    threads = sorted({count for _, _, count in loops})
    sizes = sorted({items for _, items, _ in loops})
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    rows: Table = []
    for scheme, label in SCHEMES.items():
        # The measure of the paper: the time for 5,000 iterations of every thread.
        seconds = [5_000 * count / loops[scheme, sizes[-1], count] for count in threads]
        axis.plot(threads, seconds, marker="o", label=label)
        for items in sizes:
            rates = [loops[scheme, items, count] for count in threads]
            cells = [f"{rate / 1e3:.0f}" for rate in rates]
            gains = [f"{rate / rates[0]:.2f}" for rate in rates[1:]]
            rows.append([label, f"{items:.0e}", *cells, *gains])
    axis.set(
        xlabel="threads",
        ylabel="seconds for 5,000 loops of each thread",
        title=f"insert 1, sample 64, copy, update 64; {sizes[-1]:.0e} items",
        ylim=(0, None),
    )
    axis.set_xticks(threads)
    axis.grid(visible=True, alpha=0.3)
    axis.legend()
    figure.savefig(out / "figure10.png", dpi=120)
    title = "Figure 10: thousand loops a second of all threads, items of 76 bytes, and their gain"
    header = ["scheme", "items", *(f"{count} threads" for count in threads)]
    header += [f"gain of {count}" for count in threads[1:]]
    return markdown(title, header, rows)


def machine() -> str:
    """The machine and the versions of the figures."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    load = os.getloadavg()[0]
    return (
        f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, commit {commit}, "
        f"load {load:.1f} when it began.\n"
    )


def main() -> None:
    """Measures, draws and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "figures")
    parser.add_argument("--programs", type=Path, default=ROOT / "build" / "release" / "benchmarks")
    parser.add_argument("--peers", default=sys.executable, help="an interpreter that has the peers")
    parser.add_argument("--items-max", type=int, default=1_000_000, help="of figure 8")
    parser.add_argument("--only", type=int, choices=(8, 9, 10), help="this figure alone")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    figures = {
        8: lambda: figure_8(arguments.peers, arguments.items_max, arguments.out),
        9: lambda: figure_9(arguments.programs, arguments.out),
        10: lambda: figure_10(arguments.programs, arguments.out),
    }
    wanted = [arguments.only] if arguments.only else list(figures)
    text = "\n".join([machine(), *(figures[number]() for number in wanted)])
    (arguments.out / "figures.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
