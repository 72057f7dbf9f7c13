"""A part of the suite under Python's own checks of memory: freed and foreign memory is noticed."""

import os
import subprocess
import sys

# Files that pass many objects through native calls and take seconds.
FILES = [
    "embedded_store_test.py",
    "history_test.py",
    "legacy_writer_test.py",
    "nests_test.py",
    "refcounts_test.py",
]


def test_calls_leave_the_interpreters_memory_whole(root):
    command = [sys.executable, "-X", "dev", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Development mode warns of more than the suite promises.
    command += ["-W", "default", *(str(root / "tests" / "python" / name) for name in FILES)]
    environment = os.environ | {"PYTHONMALLOC": "debug"}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
