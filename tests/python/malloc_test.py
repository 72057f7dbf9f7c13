"""Some tests with Python's debug allocator, which detects the use of freed or foreign memory."""

import os
import subprocess
import sys

# Test files that pass many objects through native calls and take only seconds.
FILES = [
    "embedded_store_test.py",
    "history_test.py",
    "legacy_writer_test.py",
    "nests_test.py",
    "refcounts_test.py",
]


def test_tests_pass_with_the_debug_allocator(root):
    command = [sys.executable, "-X", "dev", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # The case of every public call takes too long with this allocator.
    command += ["-k", "not every_public_call"]
    # Development mode turns on warnings that the suite does not avoid.
    command += ["-W", "default", *(str(root / "tests" / "python" / name) for name in FILES)]
    environment = os.environ | {"PYTHONMALLOC": "debug"}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
