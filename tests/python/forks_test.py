"""A forked child drops what its parent made: nothing waits for threads that it has not."""

import subprocess
import sys

import pytest

MAKE = """
import gc, os, signal, sys, tempfile
import numpy as np
import reverie

folder = tempfile.mkdtemp()
made = {}
made["broker"] = broker = reverie.Broker()
made["server"] = server = reverie.Rpc("server")
made["client"] = client = reverie.Rpc("client")
server.define("echo", lambda value: value)
server.define_stream("rows", lambda: range(5))
made["queue"] = server.define_queue("queue")
client.connect(server.listen())
client.sync("server", "echo", 1)
server.connect(broker.listen())
made["group"] = group = reverie.Group(server, "g")
group.wait(1)
made["published"] = published = reverie.Weights(server, "w")
published.publish(1, np.zeros(3))
made["taken"] = taken = reverie.Weights(client, "w", sources=["server"])
taken.pull()
made["accumulator"] = accumulator = reverie.Accumulator("a", [np.zeros(2)], (), group)
accumulator.update()
made["future"] = client.async_("server", "echo", 1)
made["stream"] = client.stream("server", "rows")
made["round"] = group.barrier()
settings = reverie.TrainSettings(seed=1, steps=10**9, hidden=(4,), actors=1)
made["trainer"] = trainer = reverie.agents.Trainer("dqn", "CartPole-v1", settings)
trainer.start()
made["store"] = store = reverie.Store(
    [reverie.Table.queue("q", 10)],
    checkpointer=reverie.checkpointers.DefaultCheckpointer(folder),
    durability="interval",
    memory_bytes=16 << 20,
    spill_folder=folder,
)
made["clients"] = (store.client(), store.client().trajectory_writer(1))
made["buffer"] = reverie.ReplayBuffer(100)
made["batcher"] = reverie.Batcher(2)
names = list(made)
del broker, server, client, group, published, taken, accumulator, trainer, store
gc.collect()
for name in [*names, "all of them"]:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        if name in made:
            del made[name]
        else:
            made.clear()
        gc.collect()
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 7, (name, status)
print("ended", flush=True)
os._exit(3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="os.fork")
def test_a_forked_child_drops_what_its_parent_made():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MAKE], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "ended\n", "")
