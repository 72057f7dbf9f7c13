"""A user's typed program passes strict pyright and mypy, and both find its mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("typed_program.py")


def checked(root, *command):
    environment = os.environ | {"PYTHONPATH": "", "MYPYPATH": str(root / "python")}
    return subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        cwd=root,
        env=environment,
        check=False,
    )


def test_pyright_accepts_a_typed_program(root, tmp_path):
    settings = {
        "include": [str(PROGRAM)],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": True,
        "enableTypeIgnoreComments": False,
        "extraPaths": [str(root / "python")],
        "pythonVersion": "3.11",
    }
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    # basedpyright is pyright with a bundled Node.
    done = checked(root, "basedpyright", "--project", str(project), "--outputjson")
    found = json.loads(done.stdout)
    lines = [
        f"{one['range']['start']['line'] + 1}: {one['message']}"
        for one in found["generalDiagnostics"]
    ]
    assert lines == []
    assert found["summary"]["filesAnalyzed"] == 1
    assert done.returncode == 0


def test_mypy_accepts_a_typed_program(root):
    done = checked(root, "mypy", "--strict", "--warn-unused-ignores", str(PROGRAM))
    assert done.returncode == 0, done.stdout + done.stderr
