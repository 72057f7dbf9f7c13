"""Every linter is a test."""

import subprocess

import pytest

import lint


@pytest.mark.parametrize("name", lint.checks())
def test_the_linter_finds_nothing(name, root):
    done = subprocess.run(
        lint.checks()[name], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
