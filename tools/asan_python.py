"""Runs the Python tests over an extension built with the address and UB sanitizers.

They run in a copy of what git tracks, with the extension of the preset asan-python beside the
package, so that every path and every child process of a test finds that one. Leaks are not looked
for: the interpreter and NumPy keep a good deal until the process ends.

Usage: asan_python.py [--results FILE] [PYTEST ARGUMENT...]
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "asan" / "python"
TREE = ROOT / "build" / "asan" / "tree"

# Files and tests that do not run here, and why.
LEFT_OUT = {
    "python/reverie/agents/agents_test.py::test_a_forked_child_gets_an_error_and_can_exit": "forks "
    "beside threads that allocate: clang 14's allocator may be locked in the child for ever",
    "tests/attacks/floods_test.py::test_a_flood_of_calls_that_are_reset_at_once": "measures "
    "resident memory",
    "tests/attacks/floods_test.py::test_a_flood_of_priorities": "measures resident memory, too",
    "tests/attacks/memory_test.py": "measures resident memory, too",
    "tests/attacks/rpc_test.py::test_a_peer_that_never_reads_is_disconnected": "measures resident "
    "memory, too",
    "tests/attacks/rpc_test.py::test_malformed_nested_values_take_bounded_memory": "the same",
    "tests/attacks/rpc_test.py::test_announced_sizes_take_no_memory": "the same",
    "python/reverie/bench_test.py": "measures",
    "tests/python/docs_test.py": "imports torch, and builds programs",
    "tests/python/demo_test.py": "imports torch",
    "tests/python/examples_test.py": "imports torch, and builds programs",
    "tests/python/frameworks_test.py": "imports torch and JAX",
    "tests/python/import_order_test.py": "about the order of libraries that are loaded",
    "tests/python/lint_test.py": "reads sources",
    "tests/python/memory_test.py": "measures resident memory",
    "tests/python/native_test.py": "reports other tests",
    "tests/python/notebooks_test.py": "imports torch",
    "tests/python/packaging_test.py": "about another build",
    "tests/python/results_test.py": "about the test run itself",
    "tests/python/resident_test.py": "measures resident memory",
    **dict.fromkeys(
        (
            f"tests/python/spill_test.py::test_{name}"
            for name in (
                "a_batch_larger_than_the_memory_is_sampled_within_the_bound",
                "a_table_ten_times_its_memory_works_with_every_selector",
                "a_tables_own_bound_holds_beside_an_unbounded_table",
                "steps_shared_with_an_unbounded_table_stay_in_memory_until_removed",
                "removed_items_free_their_space_on_disk",
                "a_limit_of_file_sizes_is_a_lack_of_space",
            )
        ),
        "measures what is resident or spilled, and the sanitizer has a heap of its own",
    ),
    "tests/python/wheel_test.py": "about another build",
}


def copy_tree() -> None:
    """Copies what git tracks, and what is new, and puts the extension beside the package."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    shutil.rmtree(TREE, ignore_errors=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)
    (TREE / ".venv").symlink_to(ROOT / ".venv")
    (TREE / "build").mkdir(exist_ok=True)
    (TREE / "build" / "release").symlink_to(ROOT / "build" / "release")  # peers and plugins
    for library in BUILT.glob("*.so*"):
        shutil.copy2(library, TREE / "python" / "reverie" / library.name)


def runtime() -> str:
    """The sanitizers' runtime, which must be loaded before anything else."""
    found = subprocess.run(
        ["clang++-14", "-print-file-name=libclang_rt.asan-x86_64.so"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    if not Path(found).is_absolute():
        raise SystemExit("clang's sanitizer runtime is missing; install libclang-rt-14-dev")
    return found


def environment() -> dict[str, str]:
    """The variables under which Python finds the copy, and the sanitizers see its objects."""
    path = os.pathsep.join([str(TREE / "python"), str(TREE / "tools")])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": runtime(),
        "ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def main(arguments: list[str]) -> int:
    """Copies, and runs pytest; its status is the run's."""
    copy_tree()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # As in tools/test.py.
    processes = min(len(os.sched_getaffinity(0)) + 1, 4)
    command += [f"--numprocesses={processes}", "--dist=loadfile"]
    if arguments[:1] == ["--results"]:
        command.append(f"--junitxml={Path(arguments[1]).resolve()}")
        arguments = arguments[2:]
    command += [f"--deselect={name}" if "::" in name else f"--ignore={name}" for name in LEFT_OUT]
    return subprocess.run(command + arguments, cwd=TREE, env=environment(), check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
