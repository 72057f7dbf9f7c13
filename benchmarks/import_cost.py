"""The cost of an import beyond NumPy's: seconds, CPU and resident megabytes, in fresh processes.

For ``reverie``, ``reverie.reverb``, and dm-reverb if it is installed. Bytecode is cached, as in an
installed package; the modules take turns.

Usage: import_cost.py [RUNS]
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile

_PROGRAM = """
import sys, threading, time
import numpy

def resident_mb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6

before = resident_mb()
begin, cpu = time.perf_counter(), time.process_time()
__import__(sys.argv[1])
print(time.perf_counter() - begin, time.process_time() - cpu, resident_mb() - before)
"""


def cost(module: str, environment: dict[str, str]) -> list[float]:
    """Seconds, CPU seconds and megabytes of one import."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, module],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return [float(figure) for figure in done.stdout.split()]


def main() -> None:
    """Prints the median of several processes, and their spread."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    modules = ["reverie", "reverie.reverb"]
    if importlib.util.find_spec("reverb") is not None:
        modules.append("reverb")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        environment |= {"PYTHONPYCACHEPREFIX": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
        for module in modules:
            cost(module, environment)
        costs = [[cost(module, environment) for module in modules] for _ in range(runs)]
    for module, of_runs in zip(modules, zip(*costs, strict=True), strict=True):
        texts = [
            f"{statistics.median(figures):.{digits}f} {unit} "
            f"({min(figures):.{digits}f} to {max(figures):.{digits}f})"
            for figures, unit, digits in zip(
                zip(*of_runs, strict=True), ("s", "s CPU", "MB"), (3, 3, 1), strict=True
            )
        ]
        print(f"import {module}: {', '.join(texts)} in {runs} runs")


if __name__ == "__main__":
    main()
