"""The models of docs/models: spin checks every state."""

import importlib.util
import shutil
import subprocess

import pytest

# A model, and a rule that it can be checked without.
_RULES = [
    ("at_most_once", "LOSES_RUN"),
    ("insert_once", "LOSES_NUMBERS"),
    ("insert_once", "LOSES_TURNS"),
    ("insert_once", "LOSES_ORDER"),
    ("insert_once", "LOSES_AGE"),
]
# A model, and the definitions that it is checked with.
_MODELS = [("at_most_once", ()), ("insert_once", ()), ("insert_once", ("JOURNAL",))]

pytestmark = pytest.mark.skipif(
    shutil.which("spin") is None, reason="spin is not installed: make deps"
)


def check(root, folder, model, *defines):
    """The output of the exhaustive search of a model."""
    source = root / "docs" / "models" / f"{model}.pml"
    for command in (
        ["spin", *(f"-D{name}" for name in defines), "-a", str(source)],
        ["cc", "-O2", "-w", "-DVECTORSZ=2048", "-DCOLLAPSE", "-DSAFETY", "-o", "pan", "pan.c"],
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


@pytest.mark.parametrize(("model", "rule"), _RULES)
def test_a_model_without_a_necessary_rule_violates_an_assertion(root, tmp_path, model, rule):
    assert "assertion violated" in check(root, tmp_path, model, rule)


@pytest.mark.full(minutes=2)
@pytest.mark.timeout(2000)  # twenty million states, possibly on a busy machine
@pytest.mark.parametrize(("model", "defines"), _MODELS)
def test_no_state_of_the_model_violates_an_assertion(root, tmp_path, model, defines):
    printed = check(root, tmp_path, model, *defines)
    assert "errors: 0" in printed, printed
    assert "Search not completed" not in printed, printed


@pytest.mark.parametrize("model", ["at_most_once", "insert_once"])
def test_the_stored_traces_match_the_models(root, request, model):
    spec = importlib.util.spec_from_file_location(
        "make_model_traces", root / "tests" / "data" / "make_model_traces.py"
    )
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    kept = (root / "tests" / "data" / "models" / f"{model}.txt").read_text()
    runs = [block.splitlines() for block in kept.split("seed ")[1:]]
    assert len(runs) == maker.RUNS
    some = runs if request.config.getoption("--full") else runs[::15]
    for seed, *events in some:
        assert maker.run_of(model, int(seed)) == events, f"seed {seed}"
