"""The example of elastic training, started as tasks of a launcher."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eventually import eventually

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "elastic_training.py"
LIMIT_S = 300.0


def free_port():
    """A port that belongs to the number of a Slurm job."""
    for port in range(20_000, 30_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port from 20000 to 29999 is free")


SLURM = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SlurmUser=root
SlurmdUser=root
{plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def free_ports(count):
    """Ports that no process listens at."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@pytest.fixture
def slurm(tmp_path):
    """The environment of a cluster: a controller, and two daemons as its nodes, on this host.

    It needs Debian's slurm-wlm and root. Its commands trust each other without munge, which only
    this host can reach.
    """
    pytest.importorskip("torch")
    programs = {name: shutil.which(name) for name in ("slurmctld", "slurmd", "srun", "sinfo")}
    if None in programs.values() or os.geteuid() != 0:
        pytest.skip("slurm-wlm is not installed, or this is not root")
    found = Path(programs["slurmd"]).parents[2].glob("usr/lib/*/slurm-wlm/auth_none.so")
    plugins = next((f"PluginDir={path.parent}" for path in found), "")
    config = tmp_path / "slurm.conf"
    config.write_text(
        SLURM.format(
            host=socket.gethostname(), ports=free_ports(3), folder=tmp_path, plugins=plugins
        )
    )
    (tmp_path / "state").mkdir()
    env = {**os.environ, "SLURM_CONF": str(config)}
    step_daemon = str(Path(programs["slurmd"]).with_name("slurmstepd"))
    commands = [[programs["slurmctld"], "-D"]]
    commands += [[programs["slurmd"], "-D", "-N", node, "-d", step_daemon] for node in ("n1", "n2")]
    daemons = [
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]

    def is_idle():
        nodes = subprocess.run(
            [programs["sinfo"], "-h", "-o", "%D %t"],
            env=env,
            capture_output=True,
            text=True,
            timeout=60.0,
            check=False,
        )
        return any(daemon.poll() is not None for daemon in daemons) or nodes.stdout == "2 idle\n"

    try:
        eventually(is_idle)
        if any(daemon.poll() is not None for daemon in daemons):
            pytest.skip("a daemon of Slurm does not start here")
        yield env
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.communicate()


def test_srun_trains_one_model_on_two_nodes(slurm):
    done = subprocess.run(
        ["srun", "--nodes", "2", "--ntasks", "2", sys.executable, str(EXAMPLE)],
        env={**slurm, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"peer-{rank}: brought" in done.stdout for rank in range(2))


def test_first_host_parses_the_node_list_of_a_slurm_step():
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("elastic_training", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    for hosts, first in (
        ("a7", "a7"),
        ("a7,b2", "a7"),
        ("a[7-9,12],b2", "a7"),
        ("rack-1-node[003,005]", "rack-1-node003"),
    ):
        assert example.first_host(hosts) == first


def test_tasks_of_a_slurm_step_train_one_model():
    pytest.importorskip("torch")
    step = {"SLURM_JOB_ID": str(free_port() - 20_000), "SLURM_STEP_NODELIST": "here[1-2]"}
    tasks = [
        subprocess.Popen(
            [sys.executable, str(EXAMPLE)],
            env={**os.environ, **step, "SLURM_PROCID": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank, task in enumerate(tasks):
            out, _ = task.communicate(timeout=LIMIT_S)
            assert task.returncode == 0, out
            assert f"peer-{rank}: brought" in out
    finally:
        for task in tasks:
            task.kill()
            task.communicate()


@pytest.mark.full
def test_processes_of_torchrun_train_one_model():
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", str(EXAMPLE)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"peer-{rank}: brought" in done.stdout for rank in range(3))
