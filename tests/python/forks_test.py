"""In a forked child, inherited objects raise an error or are dropped; nothing waits for threads."""

import contextlib
import inspect
import os
import signal
import subprocess
import sys

import pytest

from public_calls import (
    CALLS,
    ENDS,
    Worlds,
    is_record,
    parameters,
    run,
    subject,
    valid,
)
from reverie import errors, moolib

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
def test_a_forked_child_can_drop_objects_of_its_parent():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MAKE], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "ended\n", "")


EXITS = """
import os, signal, sys
import reverie.reverb as reverb

server = reverb.Server([reverb.Table.queue("q", 1)])
child = os.fork()
if child == 0:
    signal.alarm(20)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(os.path.isdir(server.localhost_client().checkpoint(timeout_s=20)), flush=True)
os._exit(3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="os.fork")
def test_a_forked_child_that_exits_leaves_the_checkpoint_directory_of_its_parent():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXITS], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "True\n", "")


# Objects that work in the child, because they only use the process's own memory.
LIVES_IN_THE_CHILD = {
    "Adam": "arrays",
    "AtariEnv": "an emulator of its own",
    "Batch": "arrays",
    "BlockedReport": "numbers and text",
    "ColumnHistory": "rows that were written",
    "Condition": "plain data",
    "ConditionBuilder": "plain data",
    "DmEnv": "the user's environment",
    "Mlp": "arrays",
    "OldGym": "the user's environment",
    "PatternDataset": "the user's steps",
    "ReferenceNode": "plain data",
    "RunningMoments": "arrays",
    "ServerLimits": "plain data",
    "TimestepDataset": "has no client open before it is iterated over",
    "TrainResult": "arrays and numbers",
    "TrajectoryColumn": "rows that were written",
    "TrajectoryDataset": "has no client open before it is iterated over",
}
# Members that describe an object: they work in the child.
PLAIN = {
    *("__enter__", "address", "addresses", "backend", "capacity", "device", "name", "num_batches"),
    *("num_envs", "num_threads", "num_workers", "options", "output", "port", "prioritized"),
    *("server_address", "shards", "spec", "tables", "group", "rpc", "closed", "is_async"),
    *("caller", "function", "get_name"),
}
# Calls that start objects which begin with their first call.
OPENINGS = {
    "moolib.Broker": lambda broker: broker.listen("127.0.0.1:0"),
    "moolib.Rpc": lambda rpc: rpc.listen("127.0.0.1:0"),
}
# Members that may do nothing in a child, so that with blocks can end.
ENDINGS = ENDS | {"close_extras"}
ANSWERS = {
    "Extension.summary": "says that it belongs to no store",
    "Group.set_broker_name": "comes too late in any process",
    "Broker.set_name": "comes too late in any process",
    "Rpc.set_name": "the same",
    "Rpc.set_timeout": "a setting",
    "Rpc.set_transports": "comes too late in any process",
    "Loop.evaluate": "plays in environments of its own",
    "Server.localhost_client": "makes a client, of the parent's server",
    "Store.__getitem__": "gives a table, which says so itself",
    "Table.replace": "makes another",
}
CHILD_S = 60


def members(kind):
    """Public methods and properties; the ones that end the object come last."""
    found = set()
    for name in dir(kind):
        owner = next(base for base in kind.__mro__ if name in vars(base))
        value = vars(owner)[name]
        if not owner.__module__.startswith("reverie") or isinstance(
            value, classmethod | staticmethod
        ):
            continue
        is_special = name in ("__getitem__", "__len__", "__next__", "__enter__")
        if (is_special or not name.startswith("_")) and (
            callable(value) or isinstance(value, property) or inspect.isdatadescriptor(value)
        ):
            found.add(name)
    return sorted(found, key=lambda name: (name in ENDINGS, name))


def call_of(world, name, kind, member, thing):
    """A call of the member, with arguments that the parent makes."""
    is_property = isinstance(inspect.getattr_static(kind, member), property)
    if is_property or not callable(getattr(kind, member)):
        return lambda: getattr(thing, member)
    if member.startswith("__"):
        return lambda: getattr(thing, member)(*([0] if member == "__getitem__" else []))
    takes = parameters(kind, member, None)
    given = {one.name: valid(world, f"{name}.{member}", one.name) for one in takes}
    return lambda: run(getattr(thing, member), takes, given)


def outcome(call):
    """A word for how the call ended."""
    try:
        call()
    except (errors.FailedPreconditionError, moolib.RpcError) as error:
        return "told" if "before a fork" in str(error) else f"other: {error}"
    except BaseException as error:
        return f"other: {type(error).__name__}: {error}"
    return "answered"


def answer_of_a_child(call):
    """The outcome of the call in a forked child, which is ended if it waits."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(CHILD_S)
            os.write(writing, outcome(call).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text or "waits"


KINDS = {}
for _name, _kind, _member in CALLS:
    if isinstance(_member, str) and not is_record(_kind) and members(_kind):
        KINDS[_name.rpartition(".")[0]] = _kind


def is_expected(kind, member, got):
    if got == "told":
        return True
    names = [base.__name__ for base in kind.__mro__]
    if any(name in LIVES_IN_THE_CHILD or f"{name}.{member}" in ANSWERS for name in names):
        return got != "waits"
    return got == "answered" and member in PLAIN | ENDINGS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(KINDS))
def test_calls_of_an_inherited_object_in_a_forked_child_raise(name):
    kind = KINDS[name]
    if kind.__name__ == "TFClient":
        pytest.importorskip("tensorflow")
    if "Atari" in name:
        pytest.importorskip("ale_py")
    with Worlds() as world:
        thing = subject(world, f"{name}.", kind)
        OPENINGS.get(name, lambda _: None)(thing)
        got = {
            member: answer_of_a_child(call_of(world, name, kind, member, thing))
            for member in members(kind)
            if hasattr(type(thing), member)
        }
    wrong = {member: text for member, text in got.items() if not is_expected(kind, member, text)}
    assert not wrong
