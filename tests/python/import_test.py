"""What importing the package costs."""

import subprocess
import sys

PROGRAM = """
import sys
import numpy, threading
before = set(sys.modules)
import reverie
print(*sorted(set(sys.modules) - before))
"""

# Modules that importing the package must not import.
SLOW = [
    "dataclasses",
    "json",
    "logging",
    "matplotlib",
    "ml_dtypes",
    "numpy.typing",
    "rich",
    "torch",
]


def test_importing_the_package_loads_no_slow_module():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "reverie._reverie" in loaded
    assert [name for name in loaded if name in SLOW] == []
    assert len(loaded) <= 40, loaded
