"""Builds and tests the parts that are named, and ends with one summary that counts all of them.

A part is a preset of CMakePresets.json, which is built and tested by ctest, or one of ``PARTS``.
Each step that a part takes is a test of its own: a build that fails is a failed test, and nothing
stops the rest from running. What the steps and the tests outside pytest gave is handed to pytest as
JUnit XML, and pytest reports it with its own tests. Where the time went is printed before the last
line.

Usage: test.py [--full] PART...
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
FULL = "REVERIE_FULL"  # read by tests/scale.h


class Run:
    """The steps that were taken, and the files in which others report their tests."""

    def __init__(self, *, full: bool) -> None:
        self.full = full
        self.results: list[Path] = []
        self.cmake = os.environ.get("CMAKE", "cmake")
        self.ctest = str(Path(self.cmake).with_name("ctest"))
        self._steps = ElementTree.Element("testsuite", name="steps")

    def step(self, name: str, *command: str | Path, **environment: str) -> bool:
        """Runs ``command`` and notes its seconds and whether its status was 0."""
        print(f"== {name}", flush=True)
        start = time.monotonic()
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, check=False)
        seconds = time.monotonic() - start
        case = ElementTree.SubElement(self._steps, "testcase", name=name, time=f"{seconds:.1f}")
        if done.returncode != 0:
            said = f"{' '.join(words)}\nended with status {done.returncode}; see its output above"
            ElementTree.SubElement(case, "failure").text = said
        outcome = "ok" if done.returncode == 0 else "failed"
        print(f"== {name}: {outcome} in {seconds:.0f} s", flush=True)
        return done.returncode == 0

    def expect(self, results: Path) -> Path:
        """A JUnit file that the next step writes; it is a failure if the file does not appear."""
        results.unlink(missing_ok=True)
        self.results.append(results)
        return results

    def write_steps(self) -> Path:
        """Writes the steps as JUnit XML."""
        path = BUILD / "steps" / "tests.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        ElementTree.ElementTree(self._steps).write(path)
        return path


def configure_and_build(run: Run, preset: str, *options: str, target: str = "") -> bool:
    """Configures ``preset`` and builds ``target`` of it, by default what its build preset names."""
    targets = ["--target", target] if target else []
    return run.step(f"configure {preset}", run.cmake, "--preset", preset, *options) and run.step(
        f"build {' '.join([preset, target]).strip()}",
        *(run.cmake, "--build", "--preset", preset, *targets),
    )


def preset(run: Run, name: str, *options: str) -> None:
    """Builds a preset and runs its tests under ctest.

    Only those of ``release`` have full counts in a full run: under a sanitizer they take up to ten
    times as long, and more repetitions of one path show it nothing new.
    """
    results = run.expect(BUILD / name / "tests.xml")
    if configure_and_build(run, name, *options):
        counts = {FULL: "1"} if run.full and name == "release" else {}
        run.step(f"test {name}", run.ctest, "--preset", name, "--output-junit", results, **counts)


def fuzz(run: Run) -> None:
    """The fuzz targets under sanitizers, each for a fixed number of inputs."""
    # Said each time, since cmake remembers it.
    preset(run, "fuzz", f"-DREVERIE_FUZZ_RUNS={400_000 if run.full else 100_000}")


def benchmarks(run: Run) -> None:
    """Each benchmark compiles and runs: a look, and no measurement.

    Ten million items are left out: to insert them takes minutes, and shows no more.
    """
    if configure_and_build(run, "release", target="benchmarks"):
        for program in sorted((BUILD / "release" / "benchmarks").glob("*_bench")):
            run.step(
                program.name,
                program,
                "--benchmark_min_time=0.001",
                "--benchmark_filter=-/10000000(/|$)",
            )


def tidy(run: Run) -> None:
    """clang-tidy over the library: the build is the test."""
    configure_and_build(run, "tidy")


def arm64(run: Run) -> None:
    """Tables and codecs for arm64, and their tests under qemu."""
    program = ROOT / "tools" / "arm64_libraries"
    if run.step("libraries for arm64", program, BUILD / "arm64-libraries"):
        preset(run, "arm64")


def asan_python(run: Run) -> None:
    """The Python tests over an extension with the address and undefined-behaviour sanitizers."""
    results = run.expect(BUILD / "asan" / "python-tests.xml")
    if configure_and_build(run, "asan-python"):
        program = ROOT / "tools" / "asan_python.py"
        run.step("test asan-python", sys.executable, program, "--results", results)


# The parts that are not a preset whose tests ctest runs.
PARTS: dict[str, Callable[[Run], None]] = {
    "arm64": arm64,
    "asan-python": asan_python,
    "benchmarks": benchmarks,
    "fuzz": fuzz,
    "tidy": tidy,
}


def main(arguments: list[str]) -> int:
    """Runs the parts and then pytest, whose status is the run's."""
    run = Run(full="--full" in arguments)
    for name in arguments:
        if name in PARTS:
            PARTS[name](run)
        elif name != "--full":
            preset(run, name)
    reported = [run.write_steps(), *run.results]
    command = [sys.executable, "-m", "pytest", *(f"--results={path}" for path in reported)]
    # A file's tests stay in one process and in their order: they share fixtures. Many of them wait
    # for a deadline or a child, so there is one process more than cores.
    processes = min(len(os.sched_getaffinity(0)) + 1, 4)
    command += [f"--numprocesses={processes}", "--dist=loadfile"]
    # In a full run, the conftest beside reverie says which files begin first.
    command += ["--full", "--no-loadscope-reorder"] if run.full else []
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
