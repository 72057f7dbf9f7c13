"""The models of docs/models, checked by spin: each of their states."""

import shutil
import subprocess

import pytest

# A model, and the rule that it may be told to leave out.
_MODELS = [("at_most_once", "LOSES_RUN")]

pytestmark = pytest.mark.skipif(
    shutil.which("spin") is None, reason="spin is not installed: make deps"
)


def check(root, folder, model, *defines):
    """What the exhaustive search of a model prints."""
    source = root / "docs" / "models" / f"{model}.pml"
    for command in (
        ["spin", *(f"-D{name}" for name in defines), "-a", str(source)],
        ["cc", "-O2", "-w", "-DVECTORSZ=2048", "-DCOLLAPSE", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    done = subprocess.run(
        ["./pan", "-m100000", "-w22"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    return done.stdout


@pytest.mark.parametrize(("model", "rule"), _MODELS)
def test_a_model_without_its_rule_is_found_wrong(root, tmp_path, model, rule):
    assert "assertion violated" in check(root, tmp_path, model, rule)


@pytest.mark.full
@pytest.mark.parametrize("model", [model for model, _ in _MODELS])
def test_no_state_of_the_model_breaks_its_promise(root, tmp_path, model):
    printed = check(root, tmp_path, model)
    assert "errors: 0" in printed, printed
    assert "Search not completed" not in printed, printed
