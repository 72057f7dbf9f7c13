"""Each example runs as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

_EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(example, tmp_path):
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
