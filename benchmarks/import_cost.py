"""What ``import reverie`` costs beyond NumPy: seconds and resident megabytes, in fresh processes.

Usage: import_cost.py [RUNS]
"""

import statistics
import subprocess
import sys

_PROGRAM = """
import time
import numpy

def resident_mb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6

before = resident_mb()
begin = time.perf_counter()
import reverie
print(time.perf_counter() - begin, resident_mb() - before)
"""


def main() -> None:
    """Prints the median of several processes, and their spread."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    costs = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True
        )
        seconds, megabytes = map(float, done.stdout.split())
        costs.append((seconds, megabytes))
    times, sizes = zip(*costs, strict=True)
    print(
        f"import reverie: {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f}), "
        f"{statistics.median(sizes):.1f} MB ({min(sizes):.1f} to {max(sizes):.1f}) in {runs} runs"
    )


if __name__ == "__main__":
    main()
