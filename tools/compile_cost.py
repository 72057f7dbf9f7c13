"""Prints what each source cost to compile, dearest first, as a table.

The seconds are those between a command's start and its end, from ninja's own log: they mean
something where the machine had nothing else to do and no compiler cache helped.

    CCACHE_DISABLE=1 cmake --build --preset release
    python tools/compile_cost.py build/release --count 20

Usage: compile_cost.py BUILD_FOLDER [--count N]
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path

_OBJECT = re.compile(r"CMakeFiles/(?P<target>[^/]+)\.dir/(?P<source>.+)\.(?:o|gch)$")


def costs(log: str) -> dict[tuple[str, str], float]:
    """Seconds by target and source; a source that was compiled again counts as last."""
    found = {}
    for line in log.splitlines()[1:]:  # the first names the format
        start_ms, end_ms, _, output, _ = line.split("\t")
        if match := _OBJECT.search(output):
            found[match["target"], match["source"]] = (int(end_ms) - int(start_ms)) / 1000
    return found


def table(found: dict[tuple[str, str], float], count: int) -> list[str]:
    """A line for each target, then one for each of the dearest sources."""
    by_target = defaultdict(list)
    for (target, _), seconds in found.items():
        by_target[target].append(seconds)
    targets = sorted(by_target.items(), key=lambda item: -sum(item[1]))
    sources = sorted(found.items(), key=lambda item: -item[1])[:count]
    return [
        f"{sum(found.values()):8.1f} s  all {len(found)} sources",
        *(f"{sum(each):8.1f} s  {name}: {len(each)} sources" for name, each in targets),
        "",
        *(f"{seconds:8.1f} s  {source}  ({target})" for (target, source), seconds in sources),
    ]


def main() -> None:
    """Prints the table of a build folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--count", type=int, default=30, help="how many sources to name")
    arguments = parser.parse_args()
    log = (arguments.build / ".ninja_log").read_text(encoding="utf-8")
    print("\n".join(table(costs(log), arguments.count)))


if __name__ == "__main__":
    main()
