"""Programs written for dm-reverb, run by their own tests.

TF-Agents' replay buffer, observers, RLDS converter and variable container, and Acme's adders,
dataset and utilities are used as installed. With ``programs/as_reverb.py`` they get our module
instead of dm-reverb; with ``programs/our_server.py`` dm-reverb's clients and our server.
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

# Test modules, and how many of their tests dm-reverb 0.14 passes.
PROGRAMS = {
    "acme.adders.reverb.transition_test": 17,
    "acme.adders.reverb.sequence_test": 16,
    "acme.adders.reverb.episode_test": 12,
    "tf_agents.replay_buffers.reverb_replay_buffer_test": 30,
    "tf_agents.replay_buffers.reverb_utils_test": 23,
    "tf_agents.replay_buffers.rlds_to_reverb_test": 39,
    "tf_agents.experimental.distributed.reverb_variable_container_test": 17,
}
# They use SampleInfo with the four fields of earlier releases, so dm-reverb 0.14 fails.
OF_EARLIER_RELEASES = {"acme.utils.reverb_utils_test": 2}

# Our own programs, in the same folder, written as users write them.
LOOPS = "loops_test"


def file_of(module):
    if module == LOOPS:
        return HERE / f"{module}.py"
    package = module.split(".")[0]
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed: make .venv-reverb/made")
    return Path(found.origin).parent.parent / (module.replace(".", "/") + ".py")


def run(plugin, module):
    """How many tests of a module passed, and the names of those that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-c", HERE / "pytest.ini"]
    done = subprocess.run(
        [*command, "--rootdir", HERE, file_of(module)],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{PYTHON}"},
    )
    failed = set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE))
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout[-3000:] + done.stderr[-2000:]
    return int(passed[1]), failed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plugin", ["dm_reverb", "as_reverb", "our_server"])
def test_loops_run_with_each_library_as_client_and_server(plugin):
    assert run(plugin, LOOPS) == (4, set())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("module", [*PROGRAMS, *OF_EARLIER_RELEASES])
def test_a_program_passes_its_own_tests(module):
    assert run("as_reverb", module) == ({**PROGRAMS, **OF_EARLIER_RELEASES}[module], set())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("module", PROGRAMS)
def test_a_program_passes_with_dm_reverbs_clients_and_reveries_server(module):
    assert run("our_server", module) == (PROGRAMS[module], set())
