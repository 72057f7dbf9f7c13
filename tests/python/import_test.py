"""What importing the package costs, and what it says of names that it lacks."""

import subprocess
import sys

import pytest

import reverie

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


def test_an_error_that_is_looked_for_in_the_package_is_named_in_full():
    with pytest.raises(
        AttributeError, match=r"'NotFoundError'; it is reverie\.errors\.NotFoundErr"
    ):
        _ = reverie.NotFoundError
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = reverie.nothing
