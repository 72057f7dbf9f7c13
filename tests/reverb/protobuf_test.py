"""Every release of protobuf that a user may have; the ``Makefile`` installs them."""

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RELEASES = sorted(ROOT.glob(".venv-reverb/protobuf-*"))


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_messages_can_be_created_with_each_protobuf_release(folder):
    paths = [ROOT / "python", *site.getsitepackages()]
    done = subprocess.run(
        # -S ignores the .pth files that would put another release first.
        [sys.executable, "-S", ROOT / "tests" / "support" / "protobuf_first.py", folder],
        env={**os.environ, "PYTHONPATH": ":".join(map(str, paths))},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"protobuf-{done.stdout.split('.')[0]}" == folder.name


def test_several_protobuf_releases_are_installed():
    assert len(RELEASES) >= 4
