"""How long the demonstration takes on two cores: wall time and processor time of both parts.

Usage: demo_acts.py [--cores 2]

The second part, over a server, should add at most a minute to the first. Run it on an idle machine:
otherwise the figures include waiting for a core.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile

TARGET_S = 60.0


def run(cores: int, *arguments: str) -> tuple[float, float]:
    """Seconds of the last part, and processor seconds of everything."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, "-m", "reverie", "demo", "--out", out, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = re.findall(r"in (\d+ of \d+) seeds?, (\d+) s in all \((\w+)\)", done.stdout)
    if not found:
        raise SystemExit(done.stdout + done.stderr)
    for reached, seconds, name in found:
        print(f"  {name:9} {seconds:>4} s, {reached} seeds reach the goal")
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(found[-1][1]), busy


def main() -> None:
    """Runs the demonstration with and without the second part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=2)
    cores = parser.parse_args().cores
    print(f"the first act alone, {cores} cores (load now {os.getloadavg()[0]:.1f}):")
    _, busy_alone = run(cores, "--served", "0")
    print("both acts:")
    seconds, busy = run(cores)
    print(f"the second act takes {seconds:.0f} s; at most {TARGET_S:.0f} are wanted")
    print(f"  and {busy - busy_alone:.0f} s of processor time beside {busy_alone:.0f}")


if __name__ == "__main__":
    main()
