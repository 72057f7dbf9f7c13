"""Draws figure 3 of the moolib paper: the time of an all-reduce of 128 MB by the number of members.

    all_reduce.png  ours through shared memory and over sockets, beside gloo and OpenMPI where asked

Usage: python benchmarks/figures/all_reduce.py [--out docs/pictures] [--members 2,4,8]
           [--size 134217728] [--seconds S] [--sockets] [--gloo] [--mpi PYTHON]

All members are processes of this host. benchmarks/groups.py measures, and says what the options
mean. It prints the figures as a table.
"""

import argparse
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import groups  # noqa: E402

OURS = "ours"


def main() -> None:
    """Measures, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--members", default="2,3,4,5,6,7,8")
    parser.add_argument("--size", type=int, default=1 << 27)
    parser.add_argument("--seconds", type=float, default=2.0)
    groups.add_peers(parser)
    given = parser.parse_args()
    members = [int(count) for count in given.members.split(",")]
    ways: dict[str, groups.Measure] = {OURS: groups.measured, **groups.peers_of(given)}
    times_ms: dict[str, list[float]] = {name: [] for name in ways}
    for count in members:
        for name, measure in ways.items():
            times_ms[name].append(1e3 * measure(count, given.size, given.seconds))
        row = ", ".join(f"{name} {times[-1]:.1f} ms" for name, times in times_ms.items())
        print(f"{count} members: {row}", flush=True)
    figure, axis = plt.subplots(figsize=(6, 4))
    for name, times in times_ms.items():
        axis.plot(members, times, marker="o", label=name)
    axis.set_xlabel("members")
    axis.set_ylabel(f"all-reduce of {given.size / 2**20:.0f} MiB, ms")
    axis.set_ylim(bottom=0)
    axis.set_xticks(members)
    axis.legend()
    figure.tight_layout()
    figure.savefig(given.out / "all_reduce.png", dpi=120)


if __name__ == "__main__":
    main()
