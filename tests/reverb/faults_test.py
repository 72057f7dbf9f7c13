"""Programs that are killed, fork, or use both libraries; servers that stop and restart."""

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
import reverb
import tensorflow as tf

import reverie
import reverie.reverb as ours
from eventually import eventually

# The programs import TensorFlow, which takes long.
pytestmark = pytest.mark.timeout(600)

PYTHON = Path(__file__).parents[2] / "python"


def start(program, *arguments):
    """Starts a process that runs a program and reads and writes lines."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(PYTHON), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def fifo(module, **options):
    return module.Table(
        name="t",
        sampler=module.selectors.Fifo(),
        remover=module.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=module.rate_limiters.MinSize(1),
        **options,
    )


WRITER = """
import sys
import numpy as np
import reverb
client = reverb.Client(sys.argv[1])
with client.trajectory_writer(2) as writer:
    i = 0
    while True:
        for _ in range(10):
            writer.append([np.int64(i), np.zeros(1000, np.float32)])
            writer.create_item("t", 1.0, [writer.history[0][-1:], writer.history[1][-1:]])
            i += 1
        if i % 100 == 0:
            writer.flush()
            print(i, flush=True)
"""


def test_confirmed_items_of_a_killed_dm_reverb_writer_stay(serve):
    server = serve(fifo(reverie, max_times_sampled=1))
    writer = start(WRITER, f"localhost:{server.port}")
    confirmed = [int(writer.stdout.readline()) for _ in range(5)][-1]
    kill(writer)
    eventually(lambda: server.figures["connections"] == 0)
    client = reverb.Client(f"localhost:{server.port}")
    size = client.server_info()["t"].current_size
    assert size >= confirmed
    client.insert([np.int64(-1), np.zeros(1000, np.float32)], {"t": 1.0})
    seen = [int(sample.data[0][0]) for sample in client.sample("t", size + 1, emit_timesteps=False)]
    assert seen == [*range(size), -1]


SAMPLER = """
import sys
import reverb
print("ready", flush=True)
next(reverb.Client(sys.argv[1]).sample("t", 1))
"""


def test_a_dm_reverb_sampler_killed_while_it_waits_takes_no_item(serve):
    server = serve(reverie.Table.queue("t", 10))
    sampler = start(SAMPLER, f"localhost:{server.port}")
    assert sampler.stdout.readline() == "ready\n"
    eventually(lambda: server.client().why_blocked("t").samples.waiting == 1)
    kill(sampler)
    eventually(lambda: server.client().why_blocked("t").samples.waiting == 0)
    client = reverb.Client(f"localhost:{server.port}")
    client.insert(np.int64(7), {"t": 1.0})
    assert next(client.sample("t", 1))[0].data[0] == 7


# A program that imports TensorFlow first, uses a client, and then forks its actors.
FORKING = """
import os, sys
import tensorflow as tf
import numpy as np
import reverie.reverb as reverb

client = reverb.Client(sys.argv[1])
writer = client.trajectory_writer(1)
def write(writer, i):
    writer.append([np.int64(i)])
    writer.create_item("t", 1.0, [writer.history[0][-1:]])
    writer.flush()
write(writer, 0)
child = os.fork()
if child == 0:
    for stale in (client.server_info, lambda: write(writer, 1)):
        try:
            stale()
        except RuntimeError as error:
            assert "fork" in str(error)
        else:
            os._exit(3)
    with reverb.Client(sys.argv[1]).trajectory_writer(1) as own:
        write(own, 2)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
write(writer, 3)
writer.close()
seen = [int(step[0].data[0]) for step in client.sample("t", 2)]
assert seen == [0, 2], seen
dataset = reverb.TrajectoryDataset(
    sys.argv[1], "t", (tf.int64,), (tf.TensorShape([None]),), 1, max_samples=1
)
assert [int(sample.data[0][0]) for sample in dataset] == [3]
print("done", flush=True)
"""


@pytest.mark.parametrize("module", [reverb, ours], ids=["dm_reverb", "ours"])
def test_a_program_can_fork(module):
    server = module.Server([fifo(module, max_times_sampled=1)])
    program = start(FORKING, f"localhost:{server.port}")
    said, _ = program.communicate()
    assert program.returncode == 0
    assert said == "done\n"
    server.stop()


def test_both_libraries_work_side_by_side_in_one_process(serve, dm_serve):
    addresses = {
        "ours": f"localhost:{serve(fifo(reverie, max_times_sampled=1)).port}",
        "theirs": f"localhost:{dm_serve(fifo(reverb, max_times_sampled=1)).port}",
    }
    failed = []

    def work(module, address, first):
        """Writes and draws with one library, while threads use the other."""
        try:
            client = module.Client(address)
            with client.trajectory_writer(2) as writer:
                for i in range(first, first + 100):
                    writer.append({"n": np.int64(i), "s": str(i).encode()})
                    columns = {name: column[-1:] for name, column in writer.history.items()}
                    writer.create_item("t", 1.0, columns)
            dataset = module.TrajectoryDataset(
                address,
                "t",
                dtypes={"n": tf.int64, "s": tf.string},
                shapes={"n": tf.TensorShape([None]), "s": tf.TensorShape([None])},
                max_in_flight_samples_per_worker=1,
                max_samples=100,
            )
            for sample in dataset:
                number = int(sample.data["n"][0])
                assert int(sample.data["s"].numpy()[0]) == number
                numbers.append(number)
        except Exception as error:
            failed.append(error)

    numbers = []
    threads = [
        threading.Thread(target=work, args=(module, address, 100 * i))
        for i, (module, address) in enumerate(
            (module, address) for module in (reverb, ours) for address in addresses.values()
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(numbers) == list(range(400))
    # Infos of the tables have different classes in the two libraries, and equal contents.
    for address in addresses.values():
        theirs = reverb.Client(address).server_info()["t"]
        shown = ours.Client(address).server_info()["t"]
        assert type(shown.sampler_options) is not type(theirs.sampler_options)
        assert shown.sampler_options.fifo
        for info in (shown, theirs):
            assert info.rate_limiter_info.insert_stats.completed == 200


def test_a_dm_reverb_dataset_continues_when_the_server_is_back(serve):
    # Its table has the same name and another signature after the restart.
    signature = {"a": tf.TensorSpec((1,), tf.int64)}
    server = serve(fifo(reverie, max_times_sampled=1, signature=signature))
    port = server.port
    client = reverb.Client(f"localhost:{port}")
    client.insert({"a": np.int64(1)}, {"t": 1.0})
    dataset = reverb.TrajectoryDataset.from_table_signature(
        f"localhost:{port}", "t", max_in_flight_samples_per_worker=1
    )
    samples = iter(dataset)
    assert next(samples).data["a"].numpy().tolist() == [1]
    server.stop()
    again = serve(fifo(reverie, max_times_sampled=1), port=port)
    again.client().insert({"b": np.int64(2)}, {"t": 1.0})
    assert next(samples).data["a"].numpy().tolist() == [2]
