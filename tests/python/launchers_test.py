"""The example of elastic training, started as tasks of a launcher."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_first_host_of_a_slurm_step():
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
