"""Programs written for dm-reverb, run by their own tests with the module aliased.

TF-Agents' replay buffer, observers, RLDS converter and variable container, and Acme's adders come
from their packages, as they are installed. ``programs/as_reverb.py`` gives them ours.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "programs"
PYTHON = HERE.parents[2] / "python"

# Items of seven columns for a table whose signature has six, by a writer that was told not to look.
# dm-reverb's server takes them; ours refuses them (docs/reverb_compatibility.md).
BREAKS_SIGNATURE = {
    f"test_push_to_reverb_with_policy_{kind}_episode{plural}"
    for kind, plural in (("complete", ""), ("multiple", "s"), ("truncated", ""))
}
# Test modules, how many of their cases dm-reverb 0.14 passes, and what ours does not.
PROGRAMS = {
    "acme.adders.reverb.transition_test": (17, set()),
    "acme.adders.reverb.sequence_test": (16, set()),
    "acme.adders.reverb.episode_test": (12, set()),
    "tf_agents.replay_buffers.reverb_replay_buffer_test": (30, set()),
    "tf_agents.replay_buffers.reverb_utils_test": (23, set()),
    "tf_agents.replay_buffers.rlds_to_reverb_test": (39, BREAKS_SIGNATURE),
    "tf_agents.experimental.distributed.reverb_variable_container_test": (17, set()),
}


def file_of(module):
    package = module.split(".")[0]
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed: make .venv-reverb/made")
    return Path(found.origin).parent.parent / (module.replace(".", "/") + ".py")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("module", PROGRAMS)
def test_a_program_passes_its_own_tests(module):
    passes, differs = PROGRAMS[module]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "as_reverb", "-c", HERE / "pytest.ini"]
    run = subprocess.run(
        [*command, "--rootdir", HERE, file_of(module)],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{PYTHON}"},
    )
    failed = set(re.findall(r"^FAILED \S+::(\w+)", run.stdout, re.MULTILINE))
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed, run.stdout[-3000:] + run.stderr[-2000:]
    assert failed == differs, run.stdout[-3000:]
    assert int(passed[1]) == passes - len(differs)
