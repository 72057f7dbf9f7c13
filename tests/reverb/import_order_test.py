"""TensorFlow, which exports symbols of a dozen libraries, imported before or after ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    "order",
    [
        ["tensorflow", "reverie"],
        ["reverie", "tensorflow"],
        ["tensorflow", "grpc", "reverie"],
        ["grpc", "reverie", "tensorflow"],
        ["tensorflow", "reverb", "reverie"],
        ["reverie", "tensorflow", "reverb"],
    ],
    ids="-".join,
)
def test_codecs_and_tls_work_in_any_order(order):
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "import_order.py", *order],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1:] == ["done"]
