"""Builds presets, runs their tests, and ends with one summary that counts all of them.

The native tests run first, under ctest; what they gave is handed to pytest, which reports it with
its own tests. A build that fails is a failed test too, and nothing stops the rest from running.

Usage: test.py [--full] PRESET...
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _step(name: str, command: list[str]) -> bool:
    print(f"== {name}", flush=True)
    start = time.monotonic()
    ok = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    print(f"== {name}: {'ok' if ok else 'failed'} in {time.monotonic() - start:.0f} s", flush=True)
    return ok


def native(preset: str, *, full: bool) -> Path:
    """Builds and tests ``preset``; returns where ctest's results lie, a missing file if none do."""
    results = ROOT / "build" / preset / "tests.xml"
    results.unlink(missing_ok=True)
    cmake = os.environ.get("CMAKE", "cmake")
    ctest = str(Path(cmake).with_name("ctest"))
    # Said each time, since cmake remembers it.
    runs = [f"-DREVERIE_FUZZ_RUNS={1_000_000 if full else 20_000}"] if preset == "fuzz" else []
    built = _step(f"configure {preset}", [cmake, "--preset", preset, *runs]) and _step(
        f"build {preset}", [cmake, "--build", "--preset", preset]
    )
    if built and preset != "tidy":  # its build is its test
        _step(f"test {preset}", [ctest, "--preset", preset, "--output-junit", str(results)])
    elif built:
        results.write_text('<testsuite><testcase name="clang-tidy" status="run"/></testsuite>')
    return results


def main(arguments: list[str]) -> int:
    """Runs the presets and then pytest; its status is the run's."""
    full = "--full" in arguments
    if full:
        os.environ["REVERIE_FULL"] = "1"  # tests/scale.h
    presets = [argument for argument in arguments if argument != "--full"]
    results = [native(preset, full=full) for preset in presets]
    command = [sys.executable, "-m", "pytest", *(f"--results={path}" for path in results)]
    command += ["--full"] if full else []
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
