"""Packages that contain the same libraries as ours, imported before or after ours."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent.parent / "support" / "import_order.py"


@pytest.mark.parametrize("package", ["torch", "jax", "grpc"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
def test_codecs_and_tls_work_beside_other_libraries(package, is_first):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    order = [package, "reverie"] if is_first else ["reverie", package]
    done = subprocess.run(
        [sys.executable, PROGRAM, *order], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1:] == ["done"]
