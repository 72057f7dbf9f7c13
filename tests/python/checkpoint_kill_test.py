"""Servers killed while they write checkpoints, full disks, and two servers on one folder."""

import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors

PROGRAM = Path(__file__).with_name("checkpoint_kill_program.py")
_spec = importlib.util.spec_from_file_location("checkpoint_kill_program", PROGRAM)
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)


def open_store(folder, **options):
    return reverie.Store(
        program.tables(),
        checkpointer=reverie.checkpointers.DefaultCheckpointer(folder, keep=3, **options),
    )


class Run:
    """A process of the program, and its output."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, folder, "3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.start = self.next()

    def next(self):
        line = self.process.stdout.readline()
        assert line, "the program ended by itself"
        return json.loads(line)

    def kill(self):
        """Kills the process; returns what it printed before."""
        self.process.send_signal(signal.SIGKILL)
        said = [json.loads(line) for line in self.process.stdout if line.endswith("}\n")]
        self.process.wait(60)
        self.process.stdin.close()
        self.process.stdout.close()
        return said


def check_content(folder):
    """Checks that the newest checkpoint has complete steps, in both tables; returns their count."""
    with open_store(folder) as store:
        counts = [store[name].info for name in ("first", "second")]
        inserts = [info.rate_limiter_info.insert_stats.completed for info in counts]
        assert [info.current_size for info in counts] == inserts
        # The checkpoint is of one moment: the first table has at most one step more.
        assert inserts[0] - inserts[1] in (0, 1)
        payload = int(store.loaded_payload)
        assert payload <= inserts[1]  # what was confirmed before the checkpoint was requested
        for name, count in zip(("first", "second"), inserts, strict=True):
            if count == 0:
                continue
            batch = store.client().sample_batch(name, count, distinct=True)
            steps = np.ravel(batch.data["i"])
            assert sorted(steps.tolist()) == list(range(count))
            assert (batch.data["pad"].reshape(count, -1) == (steps % 251)[:, None]).all()
        return int(Path(store.loaded_checkpoint).name.removeprefix("checkpoint-")), inserts[0]


def kill_again_and_again(folder, kills, seed):
    """Checks after each kill that what was confirmed is there.

    Returns how many checkpoints were confirmed, and how many were interrupted by kills.
    """
    draw = random.Random(seed)
    newest, inserts, confirmed, cut_off, kept_max = 0, 0, 0, 0, 3
    for _ in range(kills):
        run = Run(folder)
        assert run.start["inserts"] == inserts
        assert (run.start["loaded"] is None) == (newest == 0)
        said = [run.next() for _ in range(draw.randrange(3))]
        # Part of the next checkpoint, which takes some milliseconds.
        with pytest.raises(subprocess.TimeoutExpired):
            run.process.wait(draw.uniform(0.0, 0.03))
        said += run.kill()
        confirmed += len(said)
        names = os.listdir(folder)
        cut_off += any(name.startswith("tmp-") for name in names)
        if not said and not any(name.startswith("checkpoint-") for name in names):
            continue
        least = max([newest, *(int(told["path"][-10:]) for told in said)])
        at_least = max([inserts, *(told["inserts"] for told in said)])
        newest, inserts = check_content(folder)
        assert newest >= least
        assert inserts >= at_least
        # No partial checkpoint is left. A kill between a checkpoint and the removal of the oldest
        # leaves one too many, until the next confirmed checkpoint.
        kept_max = 4 if said else kept_max + 1
        names = sorted(os.listdir(folder))
        assert not [name for name in names if name.startswith("tmp-")]
        assert len([name for name in names if name.startswith("checkpoint-")]) <= kept_max
    return confirmed, cut_off


def test_a_server_killed_at_any_moment_keeps_its_newest_checkpoint(tmp_path):
    confirmed, cut_off = kill_again_and_again(tmp_path, 20, seed=1)
    assert confirmed >= 10
    assert cut_off >= 3


@pytest.mark.full(minutes=2)
def test_a_server_killed_500_times_keeps_its_newest_checkpoint(tmp_path):
    for round_ in range(10):  # in new folders, because checking a large table takes long
        folder = tmp_path / str(round_)
        folder.mkdir()
        confirmed, cut_off = kill_again_and_again(folder, 50, seed=2 + round_)
        assert confirmed >= 25
        assert cut_off >= 5
        shutil.rmtree(folder)


def test_two_processes_cannot_share_a_folder(tmp_path):
    run = Run(tmp_path)
    try:
        run.next()
        with pytest.raises(errors.FailedPreconditionError, match=f"process {run.process.pid}"):
            open_store(tmp_path)
    finally:
        run.kill()
    with open_store(tmp_path) as store:  # the lock ended with its process
        assert store.loaded_checkpoint is not None


def test_a_file_size_limit_only_fails_that_checkpoint(tmp_path):
    with open_store(tmp_path) as store:
        client = store.client()
        for i in range(50):
            program.insert(client, i)
        first = store.checkpoint(b"50")
        for i in range(50, 400):
            program.insert(client, i)
        # The limit is of the whole process, and the signal that comes with it is ignored.
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
        try:
            with pytest.raises(errors.ResourceExhaustedError, match="tmp-0000000002"):
                store.checkpoint(b"400")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        assert sorted(os.listdir(tmp_path)) == [os.path.basename(first), "reverie.lock"]
        program.insert(client, 400)  # the store still works in memory
        assert store.checkpoint(b"401").endswith("checkpoint-0000000002")
    assert check_content(tmp_path) == (2, 401)


# Runs on a separate disk of 4 MB.
FULL_DISK = """
    import json, sys
    import checkpoint_kill_program as program
    import reverie
    from reverie import errors

    root = sys.argv[1]
    checkpointer = reverie.checkpointers.DefaultCheckpointer(root + "/replay")
    with reverie.Store(program.tables(), checkpointer=checkpointer) as store:
        client = store.client()
        for i in range(500):
            program.insert(client, i)
        first = store.checkpoint(b"500")
        for i in range(500, 3000):
            program.insert(client, i)
        try:
            store.checkpoint(b"3000")
            said = "written"
        except errors.ResourceExhaustedError as error:
            said = str(error)
        program.insert(client, 3000)
        size = store["second"].info.current_size
    with reverie.Store(program.tables(), checkpointer=checkpointer) as store:
        print(json.dumps([said, size, store["second"].info.current_size]))
"""


def test_a_full_disk_only_fails_that_checkpoint(tmp_path):
    paths = (os.environ.get("PYTHONPATH"), str(PROGRAM.parent))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    small_disk = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    script = 'mount -t tmpfs -o size=4m none "$0" && exec "$@"'
    probe = subprocess.run(
        [*small_disk, script, str(tmp_path), "true"], capture_output=True, check=False
    )
    if probe.returncode != 0:
        pytest.skip(f"no small disk can be had here: {probe.stderr.decode()}")
    command = [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path)]
    done = subprocess.run(
        [*small_disk, script, str(tmp_path), *command],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, size, size_again = json.loads(done.stdout)
    assert "No space left on device" in said
    assert "free some space" in said
    assert (size, size_again) == (3001, 500)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_server_interrupted_while_it_writes_a_checkpoint_ends_at_once(
    tmp_path, ended_within, sign
):
    run = Run(tmp_path)
    run.next()
    begin = time.monotonic()
    run.process.send_signal(sign)
    assert eventually(lambda: run.process.poll() is not None)
    assert ended_within(begin, 1.0)
    run.process.stdin.close()
    run.process.stdout.close()
    newest, _ = check_content(tmp_path)
    assert newest >= 1
