"""A program that ends while daemon threads are in calls of the package; for exits_test.py.

Usage: exits_program.py DOOR HOW [CASE...]

A case has the name of a public method, ``Class.method``, which ``exits_test.py`` finds by
reflection. It makes one call, which its thread repeats for ever, or which never returns. Without
names, all cases run.
"""

import atexit
import contextlib
import re
import sys
import tempfile
import threading
import time
from functools import cached_property
from pathlib import Path

# Registered before the package is imported, so that it runs after all other exit functions. Until
# then Python threads take turns with the main thread, and that time is not measured.
if __name__ == "__main__":
    atexit.register(lambda: print(f"{time.monotonic():.6f}", flush=True))

import numpy as np

import reverie
import reverie.gym
import reverie.moolib
import reverie.reverb
from reverie.envs.native import NativePool
from reverie.groups import Round
from reverie.rpc_batches import Queue
from reverie.rpc_calls import DeferredReturn
from reverie.rpc_served_streams import Inbox
from reverie.rpc_streams import Stream

# This also runs without pytest, which would have the folder in its path.
sys.path.append(str(Path(__file__).parents[1] / "support"))
from eventually import eventually

MADE_BY_OTHERS = [DeferredReturn, Inbox, NativePool, Queue, Round, Stream]

DEADLINE_S = 60.0
# Threads pause between calls until each has made one call; then all call without pauses for RUSH_S.
PAUSE_S = 0.05
RUSH_S = 0.1
# Errors that a call may raise because of another thread's call, or because it need not wait.
ORDINARY = (reverie.ReverieError, StopIteration)


class OneStepEnv:
    """An environment for worker processes, with episodes of one step."""

    def __init__(self):
        import gymnasium

        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        return np.zeros(2, np.float32), {}

    def step(self, action):  # noqa: ARG002
        return np.zeros(2, np.float32), 0.0, True, False, {}


class SlowArray:
    """Its conversion runs Python code inside of a call, and may be interrupted by the end."""

    def __array__(self, dtype=None, copy=None):
        end = time.monotonic() + 0.001
        while time.monotonic() < end:
            pass
        return np.zeros(2, np.float32)


def table(name, max_size, sampler=None, signature=None):
    """A table that samples as soon as it has an item."""
    return reverie.Table(
        name,
        sampler or reverie.selectors.Uniform(),
        reverie.selectors.Fifo(),
        max_size,
        reverie.rate_limiters.MinSize(1),
        signature=signature,
    )


def tables():
    signature = {"x": reverie.TensorSpec((None, 2), np.float32)}
    return [
        table("full", max_size=1000, signature=signature),
        table("empty", max_size=10),
        reverie.Table.queue("queue", 2),
    ]


STEP = {"x": np.zeros(2, np.float32)}


class World:
    """Objects that the cases share, and objects that are made when a case asks for them."""

    def __init__(self, door):
        self.is_embedded = door == "embedded"
        self.home = reverie.Store(tables()) if self.is_embedded else reverie.Server(tables())
        self.client = self.new_client()
        with self.client.trajectory_writer(1) as writer:
            for _ in range(100):
                writer.append(STEP)
                writer.create_item("full", 1.0, {"x": writer.history["x"][-1:]})
            writer.flush()
        for _ in range(2):
            self.client.insert(STEP, {"queue": 1.0})  # the queue is full after two
        self.batch = self.client.sample_batch("full", 8)

    def new_client(self):
        return self.home.client() if self.is_embedded else reverie.Client(self.home.address)

    def new_home(self):
        return reverie.Store(tables()) if self.is_embedded else reverie.Server(tables())

    def writer(self, **options):
        return self.client.trajectory_writer(num_keep_alive_refs=4, **options)

    def filled_writer(self):
        """A writer with rows, and a trajectory of them for items."""
        writer = self.writer(max_in_flight_items=1)
        writer.append(STEP)
        return writer, {"x": writer.history["x"][-1:]}

    def stuck_writer(self):
        """A writer with a queued item that is never inserted."""
        writer, item = self.filled_writer()
        writer.create_item("queue", 1.0, item)
        return writer, item

    def legacy(self):
        writer = self.client.writer(4, max_in_flight_items=1)
        writer.append(STEP)
        return writer

    def stuck_legacy(self):
        writer = self.legacy()
        writer.create_item("queue", 1, 1.0)
        return writer

    def patterns(self, table):
        from reverie import structured

        pattern = structured.pattern_from_transform(STEP, lambda step: {"x": step["x"][-1:]})
        return [structured.create_config(pattern, table)]

    def structured(self, table="full"):
        return self.client.structured_writer(self.patterns(table), max_in_flight_items=1)

    def stuck_structured(self):
        writer = self.structured("queue")
        writer.append(STEP)
        return writer

    def dataset(self, table="full"):
        return self.client.dataset(table, 4)

    def samples(self, kind, table="full"):
        return kind(self.client, table, {"x": np.float32}, {"x": (None, 2)}, 4)

    def buffer(self):
        buffer = reverie.ReplayBuffer(100, prioritized=True)
        self.add(buffer)
        return buffer

    @staticmethod
    def add(buffer):
        buffer.add(STEP["x"], 0, 1.0, STEP["x"], False)

    @cached_property
    def process_pool(self):
        return reverie.EnvPool(OneStepEnv, 2, num_batches=1, num_workers=1, backend="process")

    @cached_property
    def rpc_server(self):
        server = reverie.Rpc("server")
        server.define("echo", lambda value: value)
        server.define_deferred("never", lambda _: None)
        return server

    @cached_property
    def rpc(self):
        """A peer that is connected to a server."""
        rpc = reverie.Rpc("client")
        rpc.connect(self.rpc_server.listen())
        rpc.sync("server", "echo", 1)
        return rpc

    @cached_property
    def group(self):
        """The only member of a group."""
        self.broker = reverie.Broker()
        self.member_rpc = reverie.Rpc("member")
        self.member_rpc.connect(self.broker.listen())
        group = reverie.Group(self.member_rpc, "g")
        group.wait(1)
        return group

    @cached_property
    def lonely_group(self):
        """A group without a broker."""
        self.lonely_rpc = reverie.Rpc()
        return reverie.Group(self.lonely_rpc, "g")

    @cached_property
    def weights(self):
        """A peer's weights, which it has taken from another peer."""
        self.learner_rpc = reverie.Rpc("learner")
        self.published = reverie.Weights(self.learner_rpc, "w")
        self.published.publish(1, LARGE)
        self.actor_rpc = reverie.Rpc("actor")
        self.actor_rpc.connect(self.learner_rpc.listen())
        taken = reverie.Weights(self.actor_rpc, "w", sources=["learner"])
        taken.wait()
        return taken

    @cached_property
    def accumulator(self):
        return reverie.Accumulator("a", [np.zeros(2)], (), self.group)

    @cached_property
    def reverb_server(self):
        """A server in Reverb's words, with a table of items and one without."""
        return reverb_server()

    @cached_property
    def reverb(self):
        client = self.reverb_server.localhost_client()
        client.insert(STEP, {"full": 1.0})
        return client

    @cached_property
    def moolib(self):
        return Moolib()

    @cached_property
    def moolib_pool(self):
        return reverie.moolib.EnvPool(OneStepEnv, 1, 2, 1, output="numpy")


def forever(iterator_of):
    """A call that takes the next value, and makes a new iterator when the old one ends."""
    held = [iterator_of()]

    def call():
        try:
            return next(held[0])
        except StopIteration:
            held[0] = iterator_of()

    return call


def stepped(pool, *arguments):
    """A call that steps the pool and waits for the result."""

    def call():
        return pool.step(*arguments).result()

    return call


def native_pool():
    return NativePool("CartPole-v1", 2, num_threads=1, first_step_resets=True)


ACTIONS = np.zeros(2, np.int64)


def native_stepped():
    pool = native_pool()
    pool.step(ACTIONS).result()
    return pool


# The calls of the threads, by the name of the called method. Each entry is a function that takes
# the world and returns the call.
CASES = {}


def case(name):
    def add(make):
        assert name not in CASES, name
        CASES[name] = make
        return make

    return add


def simple(name, make):
    """Registers a case that needs only one line."""
    case(name)(make)


def with_new(make, use):
    """A call that makes a new object each time."""
    return lambda: use(make())


# --- Client.
simple("Client.__init__", lambda w: w.new_client)
simple("Client.sample_batch", lambda w: lambda: w.client.sample_batch("empty", 2))
simple("Client.sample_batch out", lambda w: lambda: w.client.sample_batch("full", 8, out=w.batch))
simple("Client.sample", lambda w: lambda: list(w.client.sample("full", 4)))
simple("Client.sample waiting", lambda w: lambda: next(w.client.sample("empty")))
simple("Client.insert", lambda w: lambda: w.client.insert(STEP, {"queue": 1.0}))
simple("Client.insert slow", lambda w: lambda: w.client.insert({"x": SlowArray()}, {"full": 1.0}))
simple("Client.insert busy", lambda w: lambda: w.client.insert(STEP, {"full": 1.0}))
simple(
    "Client.insert_rows",
    lambda w: lambda: w.client.insert_rows({"x": np.zeros((4, 2), "f4")}, "full"),
)


@case("Client.sample_batch slow")
def _(w):
    """Waits in a user's function that reads external rows."""
    home = w.new_home()
    options = {
        "files": lambda rows: threading.Event().wait(0.01) or np.zeros((rows.row_count, 2), "f4")
    }
    client = home.client(**options) if w.is_embedded else reverie.Client(home.address, **options)
    client.insert_rows({"x": reverie.External("x", shape=(4, 2), dtype="f4")}, "full")
    return lambda: (home, client.sample_batch("full", 8))


simple("Client.sample_batch busy", lambda w: lambda: w.client.sample_batch("full", 8))
simple(
    "Client.update_priorities",
    lambda w: lambda: w.client.update_priorities("full", [1, 2], [1.0, 2.0]),
)
simple(
    "Client.flush",
    lambda w: (
        lambda: (
            w.client.update_priorities("full", keys=[1], priorities=[1.0], wait=False),
            w.client.flush(),
        )
    ),
)
simple(
    "Client.mutate_priorities", lambda w: lambda: w.client.mutate_priorities("full", {1: 2.0}, [3])
)
simple("Client.priorities", lambda w: lambda: w.client.priorities("full", [1, 2]))
simple("Client.max_priority", lambda w: lambda: w.client.max_priority("full"))
simple("Client.delete", lambda w: lambda: w.client.delete("full", [1, 2]))
simple("Client.reset", lambda w: lambda: w.client.reset("empty"))
simple("Client.server_info", lambda w: lambda: w.client.server_info())
simple("Client.checkpoint", lambda w: lambda: w.client.checkpoint(timeout_s=1.0))
simple("Client.loaded_payload", lambda w: lambda: w.client.loaded_payload(timeout_s=1.0))
simple("Client.close", lambda w: lambda: w.client.close())
simple("Client.__enter__", lambda w: lambda: w.client.__enter__())
simple("Client.__exit__", lambda w: lambda: w.client.__exit__(None, None, None))
simple("Client.why_blocked", lambda w: lambda: str(w.client.why_blocked("empty")))
simple("Client.can_sample", lambda w: lambda: w.client.can_sample("full"))
simple("Client.can_insert", lambda w: lambda: w.client.can_insert("full"))
simple("Client.dataset", lambda w: lambda: w.dataset().close())
simple("Client.writer", lambda w: lambda: w.legacy())
simple("Client.trajectory_writer", lambda w: lambda: w.filled_writer())
simple("Client.structured_writer", lambda w: lambda: w.structured())
simple("Client.shards", lambda w: lambda: w.client.shards)
simple("Client.shards_down", lambda w: lambda: w.client.shards_down())
simple("Client.server_address", lambda w: lambda: w.client.server_address)


# --- Store and Server.
simple("Store.__init__", lambda _w: lambda: reverie.Store(tables()))
simple(
    "Store.__enter__", lambda _w: with_new(lambda: reverie.Store(tables()), lambda s: s.__enter__())
)
simple(
    "Store.__exit__",
    lambda _w: with_new(lambda: reverie.Store(tables()), lambda s: s.__exit__(None, None, None)),
)
simple("Store.close", lambda _w: with_new(lambda: reverie.Store(tables()), lambda s: s.close()))
simple("Store.client", lambda _w: with_new(lambda: reverie.Store(tables()), lambda s: s.client()))
simple("Store.__getitem__", lambda _w: lambda: reverie.Store(tables())["full"])
simple("Store.__contains__", lambda _w: lambda: "full" in reverie.Store(tables()))
simple("Store.__iter__", lambda _w: lambda: list(reverie.Store(tables())))
simple("Store.tables", lambda _w: with_new(lambda: reverie.Store(tables()), lambda s: s.tables))
simple("Server.__init__", lambda _w: lambda: reverie.Server(tables()))
simple(
    "Server.__enter__",
    lambda _w: with_new(lambda: reverie.Server(tables()), lambda s: s.__enter__()),
)
simple(
    "Server.__exit__",
    lambda _w: with_new(lambda: reverie.Server(tables()), lambda s: s.__exit__(None, None, None)),
)
simple("Server.stop", lambda _w: with_new(lambda: reverie.Server(tables()), lambda s: s.stop()))


@case("Server.stop waiting")
def _(_w):
    server = reverie.Server(tables())

    def wait():
        with contextlib.suppress(*ORDINARY):
            reverie.Client(server.address).sample_batch("empty", 1)

    threading.Thread(target=wait, daemon=True).start()
    return lambda: server.stop(grace_s=60.0)


@case("Server.wait")
def _(_w):
    server = reverie.Server(tables())
    return lambda: server.wait()


@case("Server.client")
def _(_w):
    server = reverie.Server(tables())
    return lambda: server.client().server_info()


for _name in ("port", "address", "tables", "figures"):

    def _attribute(_w, name=_name):
        server = reverie.Server(tables())
        return lambda: getattr(server, name)

    case(f"Server.{_name}")(_attribute)


def kept(kind):
    """Loads the tables of a store or server from a checkpoint."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tempfile.mkdtemp())
    with reverie.Store(tables(), checkpointer=checkpointer) as store:
        store.checkpoint(b"7")
    return kind(tables(), checkpointer=checkpointer)


for _kind in (reverie.Store, reverie.Server):

    @case(f"{_kind.__name__}.checkpoint")
    def _(_w, kind=_kind):
        made = kept(kind)
        return lambda: made.checkpoint()

    for _name in ("loaded_checkpoint", "loaded_payload", "journal_error"):

        def _loaded(_w, kind=_kind, name=_name):
            made = kept(kind)
            return lambda: getattr(made, name)

        case(f"{_kind.__name__}.{_name}")(_loaded)


for _durability in ("interval", "sync"):

    @case(f"Client.insert durability {_durability}")
    def _(_w, durability=_durability):
        checkpointer = reverie.checkpointers.DefaultCheckpointer(tempfile.mkdtemp())
        store = reverie.Store(tables(), checkpointer=checkpointer, durability=durability)
        client = store.client()
        return lambda: client.insert(STEP, {"full": 1.0})


@case("Server.localhost_client")
def _(_w):
    server = reverie.Server(tables())
    return lambda: server.localhost_client()


# --- Trainings, which start threads: short ones that are repeated, and one without end.
SHORT = reverie.TrainSettings(seed=1, steps=60, warmup_steps=50, hidden=(4,), batch_size=4)
ENDLESS = reverie.TrainSettings(seed=1, steps=10**12, hidden=(4,), actors=1, update_interval=1e6)
simple("train", lambda _w: lambda: reverie.train("ddqn", "CartPole-v1", SHORT, final_episodes=1))
simple("train waiting", lambda _w: lambda: reverie.train("ddqn", "CartPole-v1", ENDLESS))
simple(
    "tune_cores",
    lambda _w: lambda: reverie.agents.tune_cores("dqn", "CartPole-v1", cores=1, measure_s=0.01),
)


@case("evaluate")
def _(_w):
    folder = tempfile.mkdtemp()
    reverie.train("dqn", "CartPole-v1", SHORT, final_episodes=1, out=folder)
    return lambda: reverie.agents.evaluate(folder, episodes=2)


simple(
    "TrainResult.greedy_return",
    lambda _w: with_new(
        lambda: reverie.train("dqn", "CartPole-v1", SHORT, final_episodes=1),
        lambda result: result.greedy_return,
    ),
)


@case("TrainResult.save")
def _(_w):
    """Draws with matplotlib, whose C++ frames cannot be unwound at the end of a program."""
    result = reverie.train("dqn", "CartPole-v1", SHORT, final_episodes=1)
    folder = tempfile.mkdtemp()
    return lambda: result.save(folder)


class Agent:
    """A policy and learner that spend time in Python code."""

    def act(self, observation, *, step, explore):  # noqa: ARG002
        return np.zeros(len(observation), int)

    def learn(self, batch, *, progress):  # noqa: ARG002
        return np.ones(len(batch["reward"]))

    def state_dict(self):
        return {"w": np.zeros(1)}

    def load_state_dict(self, state):
        pass


def trainer():
    return reverie.agents.Trainer("dqn", "CartPole-v1", ENDLESS)


def loop():
    agent = Agent()
    return reverie.agents.Loop(agent, agent, "CartPole-v1", ENDLESS)


def running(make):
    made = make()
    made.start()
    return made


def saved(make):
    """A running training, and the folder that it saves itself to."""
    made = running(make)
    folder = tempfile.mkdtemp()

    def call():
        with contextlib.suppress(*ORDINARY):  # fails before the first step
            made.save(folder)

    return call


for _make, _kind in ((trainer, "Trainer"), (loop, "Loop")):
    simple(f"{_kind}.__init__", lambda _w, make=_make: make)
    simple(f"{_kind}.save", lambda _w, make=_make: saved(make))
    for _name in ("start", "stop", "__enter__"):
        simple(
            f"{_kind}.{_name}",
            lambda _w, make=_make, name=_name: with_new(make, lambda t: getattr(t, name)()),
        )
    simple(
        f"{_kind}.__exit__",
        lambda _w, make=_make: with_new(
            lambda: running(make), lambda t: t.__exit__(None, None, None)
        ),
    )
    for _name in ("wait", "progress", "episodes", "evaluations"):

        def _ask_training(_w, make=_make, name=_name):
            made = running(make)
            return lambda: getattr(made, name)()

        case(f"{_kind}.{_name}")(_ask_training)

    def _evaluate(_w, make=_make):
        made = running(make)
        return lambda: made.evaluate(episodes=2)

    case(f"{_kind}.evaluate")(_evaluate)
for _name in ("policy", "best_policy"):
    simple(
        f"Trainer.{_name}", lambda _w, name=_name: with_new(trainer, lambda t: getattr(t, name)())
    )
simple(
    "Trainer.actors_elsewhere", lambda _w: with_new(trainer, lambda made: made.actors_elsewhere())
)
simple("Trainer.address", lambda _w: with_new(trainer, lambda made: made.address))


def served_trainer():
    return reverie.agents.Trainer("dqn", "CartPole-v1", ENDLESS, listen="127.0.0.1:0")


simple("Trainer.__del__", lambda _w: with_new(served_trainer, lambda made: made.__del__()))


@case("act")
def _(_w):
    made = running(served_trainer)
    return lambda: reverie.agents.act(made.address)


simple("Loop.idle_share", lambda _w: with_new(loop, lambda made: made.idle_share()))


@case("Loop.load")
def _(_w):
    folder = tempfile.mkdtemp()
    with loop() as first:
        first.start()
        eventually(lambda: first.progress().steps > 0)
        first.save(folder)
    return lambda: loop().load(folder)


# --- Networks.
ROWS = np.ones((200, 64), np.float32)


def network():
    return reverie.nn.Mlp((64, 256, 64), seed=1)


def on_network(use):
    def made(_w):
        net = network()
        net.forward(ROWS)
        return lambda: use(net)

    return made


simple("Mlp.__init__", lambda _w: network)
simple("Mlp.__call__", on_network(lambda net: net(ROWS)))
simple("Mlp.forward", on_network(lambda net: net.forward(ROWS)))
simple("Mlp.backward", on_network(lambda net: net.backward(ROWS)))
simple("Mlp.input_gradient", on_network(lambda net: net.input_gradient(ROWS)))
simple("Mlp.approach", on_network(lambda net: net.approach(net.copy(), 0.5)))
for _name in ("copy", "__copy__", "views", "state_dict"):
    simple(f"Mlp.{_name}", on_network(lambda net, name=_name: getattr(net, name)()))
simple("Mlp.__deepcopy__", on_network(lambda net: net.__deepcopy__({})))
simple("Mlp.load_state_dict", on_network(lambda net: net.load_state_dict(net.state_dict())))
for _name in ("activation", "metadata", "output_activation", "parameters", "seed", "widths"):
    simple(f"Mlp.{_name}", on_network(lambda net, name=_name: getattr(net, name)))


@case("Mlp.save")
def _(_w):
    net, path = network(), f"{tempfile.mkdtemp()}/net"
    return lambda: net.save(path)


@case("Mlp.load")
def _(_w):
    path = f"{tempfile.mkdtemp()}/net"
    network().save(path)
    return lambda: reverie.nn.Mlp.load(path)


@case("Adam.step")
def _(_w):
    net = network()
    adam, gradient = reverie.nn.Adam(net), np.ones_like(net.parameters)
    return lambda: adam.step(net, gradient)


def adam():
    return reverie.nn.Adam(network())


simple("Adam.__init__", lambda _w: adam)
simple("Adam.state", lambda _w: with_new(adam, lambda made: made.state()))
simple("Adam.restore", lambda _w: with_new(adam, lambda made: made.restore(*made.state())))
for _name in ("learning_rate", "step_count"):
    simple(f"Adam.{_name}", lambda _w, name=_name: with_new(adam, lambda a: getattr(a, name)))


@case("convert")
def _(_w):
    folder = tempfile.mkdtemp()
    checkpointer = reverie.checkpointers.DefaultCheckpointer(f"{folder}/ours")
    with reverie.Store([table("t", 10)], checkpointer=checkpointer) as store:
        store.client().insert(STEP, {"t": 1.0})
        store.checkpoint()
    rounds = iter(range(1 << 30))
    return lambda: reverie.checkpointers.convert(f"{folder}/ours", f"{folder}/{next(rounds)}")


# --- Batches.
for _name in (
    *("data", "keys", "tickets", "probabilities", "priorities", "times_sampled", "ages_s"),
    *("versions", "redelivered", "shards", "weights", "lengths", "table_size", "rate_limited"),
):
    simple(f"Batch.{_name}", lambda w, name=_name: lambda: getattr(w.batch, name))
simple("Batch.__len__", lambda w: lambda: len(w.batch))
simple("Batch.as_dict", lambda w: lambda: w.batch.as_dict())
simple("Batch.items", lambda w: lambda: list(w.batch.items()))
simple("Batch.names", lambda w: lambda: w.batch.names())
simple("Batch.__getitem__", lambda w: lambda: w.batch["keys"])
simple("Batch.__iter__", lambda w: lambda: list(w.batch))


@case("Batch.convert")
def _(w):
    batch = w.client.sample_batch("full", 8)
    return lambda: batch.convert(lambda array: array)


for _name in ("table", "inserts", "samples"):
    simple(
        f"BlockedReport.{_name}",
        lambda w, name=_name: lambda: getattr(w.client.why_blocked("full"), name),
    )


# --- Datasets.
simple("Dataset.__next__", lambda w: w.dataset().__next__)
simple("Dataset.__next__ waiting", lambda w: w.dataset("empty").__next__)
simple("Dataset.__iter__", lambda w: lambda: iter(w.dataset()))
simple("Dataset.close", lambda w: with_new(w.dataset, lambda d: d.close()))
simple("Dataset.__enter__", lambda w: with_new(w.dataset, lambda d: d.__enter__()))
simple("Dataset.__exit__", lambda w: with_new(w.dataset, lambda d: d.__exit__(None, None, None)))
for _kind in (reverie.TrajectoryDataset, reverie.TimestepDataset):
    _name = _kind.__name__

    def _iterate(w, kind=_kind):
        return forever(lambda: iter(w.samples(kind)))

    def _wait(w, kind=_kind):
        return forever(lambda: iter(w.samples(kind, "empty")))

    case(f"{_name}.__iter__")(_iterate)
    case(f"{_name}.__iter__ waiting")(_wait)
    simple(f"{_name}.__init__", lambda w, kind=_kind: lambda: w.samples(kind))
    simple(f"{_name}.element_spec", lambda w, kind=_kind: lambda: w.samples(kind).element_spec)
    simple(
        f"{_name}.from_table_signature",
        lambda w, kind=_kind: lambda: kind.from_table_signature(w.client, "full", 4),
    )


def pattern_dataset(w):
    return reverie.PatternDataset([STEP] * 8, w.patterns("t"), True, lambda _step: np.bool_(False))


simple("PatternDataset.__init__", lambda w: lambda: pattern_dataset(w))
simple("PatternDataset.__iter__", lambda w: lambda: list(pattern_dataset(w)))


# --- Writers.
@case("TrajectoryWriter.append")
def _(w):
    writer = w.writer()
    return lambda: writer.append(STEP)


@case("TrajectoryWriter.append slow")
def _(w):
    writer = w.writer()
    return lambda: writer.append({"x": SlowArray()})


@case("TrajectoryWriter.append_whole")
def _(w):
    writer = w.writer()
    return lambda: writer.append_whole(STEP)


@case("TrajectoryWriter.create_item")
def _(w):
    writer, item = w.stuck_writer()
    return lambda: writer.create_item("queue", 1.0, item)


@case("TrajectoryWriter.create_item busy")
def _(w):
    writer, item = w.filled_writer()
    return lambda: writer.create_item("full", 1.0, item)


@case("TrajectoryWriter.create_whole_item")
def _(w):
    writer = w.writer(max_in_flight_items=1)
    writer.append_whole(STEP)
    writer.create_whole_item("queue", 1, 1.0)
    return lambda: writer.create_whole_item("queue", 1, 1.0)


@case("TrajectoryWriter.flush")
def _(w):
    writer, _ = w.stuck_writer()
    return lambda: writer.flush()


@case("TrajectoryWriter.end_episode")
def _(w):
    writer, _ = w.stuck_writer()
    return lambda: writer.end_episode()


@case("TrajectoryWriter.configure")
def _(w):
    return lambda: w.writer().configure("x", num_keep_alive_refs=4, max_chunk_length=2)


for _name in ("history", "episode_steps", "pending_items", "closed"):

    def _attribute(w, name=_name):
        writer, _ = w.filled_writer()
        return lambda: getattr(writer, name)

    case(f"TrajectoryWriter.{_name}")(_attribute)
simple("TrajectoryWriter.close", lambda w: with_new(w.filled_writer, lambda pair: pair[0].close()))
simple("TrajectoryWriter.__enter__", lambda w: with_new(w.writer, lambda x: x.__enter__()))
simple(
    "TrajectoryWriter.__exit__",
    lambda w: with_new(w.writer, lambda x: x.__exit__(None, None, None)),
)


def column(w):
    writer, item = w.filled_writer()
    return writer.history["x"], item["x"]


simple("ColumnHistory.__getitem__", lambda w: lambda: column(w)[0][-1:])
simple("ColumnHistory.__len__", lambda w: lambda: len(column(w)[0]))
simple("ColumnHistory.__iter__", lambda w: lambda: list(column(w)[0]))
for _name in ("dtype", "expired", "is_squeezed", "shape"):
    simple(f"TrajectoryColumn.{_name}", lambda w, name=_name: lambda: getattr(column(w)[1], name))
simple("TrajectoryColumn.numpy", lambda w: lambda: column(w)[1].numpy())
simple("TrajectoryColumn.__getitem__", lambda w: lambda: column(w)[1][0])
simple("TrajectoryColumn.__len__", lambda w: lambda: len(column(w)[1]))
simple("TrajectoryColumn.__iter__", lambda w: lambda: list(column(w)[1]))


@case("Writer.append")
def _(w):
    writer = w.legacy()
    return lambda: writer.append(STEP)


@case("Writer.append_sequence")
def _(w):
    writer = w.legacy()
    return lambda: writer.append_sequence({"x": np.zeros((4, 2), np.float32)})


@case("Writer.create_item")
def _(w):
    writer = w.stuck_legacy()
    return lambda: writer.create_item("queue", 1, 1.0)


@case("Writer.flush")
def _(w):
    writer = w.stuck_legacy()
    return lambda: writer.flush()


@case("Writer.close")
def _(w):
    writer = w.stuck_legacy()
    return lambda: writer.close()


simple("Writer.__init__", lambda w: w.legacy)
simple("Writer.__enter__", lambda w: with_new(w.legacy, lambda x: x.__enter__()))
simple("Writer.__exit__", lambda w: with_new(w.legacy, lambda x: x.__exit__(None, None, None)))


@case("StructuredWriter.append")
def _(w):
    writer = w.stuck_structured()
    return lambda: writer.append(STEP)


@case("StructuredWriter.append busy")
def _(w):
    writer = w.structured()
    return lambda: writer.append(STEP)


@case("StructuredWriter.flush")
def _(w):
    writer = w.stuck_structured()
    return lambda: writer.flush()


@case("StructuredWriter.end_episode")
def _(w):
    writer = w.stuck_structured()
    return lambda: writer.end_episode()


for _name in ("pending_items", "closed", "step_is_open"):

    def _attribute(w, name=_name):
        writer = w.structured()
        return lambda: getattr(writer, name)

    case(f"StructuredWriter.{_name}")(_attribute)
simple("StructuredWriter.close", lambda w: with_new(w.structured, lambda x: x.close()))
simple("StructuredWriter.__enter__", lambda w: with_new(w.structured, lambda x: x.__enter__()))
simple(
    "StructuredWriter.__exit__",
    lambda w: with_new(w.structured, lambda x: x.__exit__(None, None, None)),
)


# --- The replay buffer.
@case("ReplayBuffer.add")
def _(w):
    buffer = w.buffer()
    return lambda: w.add(buffer)


@case("ReplayBuffer.add large")
def _(_w):
    buffer = reverie.ReplayBuffer(10)
    picture = np.zeros(100_000, np.uint8)
    return lambda: buffer.add(picture, 0, 1.0, picture, False)


@case("ReplayBuffer.sample")
def _(w):
    buffer = w.buffer()
    return lambda: buffer.sample(256)


@case("ReplayBuffer.sample waiting")
def _(w):
    buffer = w.buffer()
    buffer.clear()
    return lambda: buffer.sample(1, timeout_s=3600.0)


@case("ReplayBuffer.sample before the first add")
def _(_w):
    buffer = reverie.ReplayBuffer(10)
    return lambda: buffer.sample(1, timeout_s=None)


@case("ReplayBuffer.update_priorities")
def _(w):
    buffer = w.buffer()
    tickets = buffer.sample(8)["tickets"]
    return lambda: buffer.update_priorities(tickets, np.ones(8))


@case("ReplayBuffer.clear")
def _(w):
    buffer = w.buffer()
    return lambda: buffer.clear()


@case("ReplayBuffer.save")
def _(w):
    buffer, folder = w.buffer(), tempfile.mkdtemp()
    return lambda: buffer.save(folder)


@case("ReplayBuffer.load")
def _(w):
    folder = tempfile.mkdtemp()
    w.buffer().save(folder)
    return lambda: reverie.ReplayBuffer.load(folder)


simple("ReplayBuffer.close", lambda w: with_new(w.buffer, lambda b: b.close()))
simple("ReplayBuffer.__init__", lambda _w: lambda: reverie.ReplayBuffer(10))
simple("ReplayBuffer.__enter__", lambda w: with_new(w.buffer, lambda b: b.__enter__()))
simple(
    "ReplayBuffer.__exit__", lambda w: with_new(w.buffer, lambda b: b.__exit__(None, None, None))
)
simple("ReplayBuffer.dataset", lambda w: with_new(w.buffer, lambda b: b.dataset(4).close()))


@case("ReplayBuffer.dataset next")
def _(w):
    return w.buffer().dataset(4).__next__


for _name in (
    *("__len__", "capacity", "num_envs", "prioritized", "max_priority", "update_count"),
    *("stale_updates", "stats", "memory_bytes"),
):

    def _attribute(w, name=_name):
        buffer = w.buffer()
        return (lambda: len(buffer)) if name == "__len__" else lambda: getattr(buffer, name)

    case(f"ReplayBuffer.{_name}")(_attribute)


for _name, _read in {
    "__getitem__": lambda buffer: buffer[0],
    "__iter__": lambda buffer: next(iter(buffer)),
    "episodes": lambda buffer: list(buffer.episodes()),
    "read": lambda buffer: buffer.read(0, 8),
}.items():

    def _reading(w, read=_read):
        buffer = w.buffer()
        return lambda: read(buffer)

    case(f"ReplayBuffer.{_name}")(_reading)


# --- Environments.
@case("NativePool.step")
def _(_w):
    return stepped(native_pool(), ACTIONS)


@case("NativePool.reset")
def _(_w):
    pool = native_pool()
    return lambda: pool.reset().result()


@case("NativePool.reset_some")
def _(_w):
    pool = native_pool()
    pool.reset().result()
    return lambda: pool.reset_some([True, False]).result()


@case("NativePool.get_state")
def _(_w):
    pool = native_stepped()
    return lambda: pool.get_state(0)


@case("NativePool.set_state")
def _(_w):
    pool = native_stepped()
    state = pool.get_state(0)
    return lambda: pool.set_state(0, state)


@case("NativePool.render")
def _(_w):
    pool = native_stepped()
    return lambda: pool.render(0)


simple("NativePool.__init__", lambda _w: native_pool)
simple("NativePool.close", lambda _w: with_new(native_pool, lambda p: p.close()))
simple("NativePool.__enter__", lambda _w: with_new(native_pool, lambda p: p.__enter__()))
simple(
    "NativePool.__exit__", lambda _w: with_new(native_pool, lambda p: p.__exit__(None, None, None))
)
simple("NativePool.num_threads", lambda _w: with_new(native_pool, lambda p: p.num_threads))


def auto_pool():
    return reverie.EnvPool("CartPole-v1", 2, backend="native", num_workers=1)


simple("EnvPool.__init__", lambda _w: auto_pool)
simple("EnvPool.close", lambda _w: with_new(auto_pool, lambda p: p.close()))
simple("EnvPool.__enter__", lambda _w: with_new(auto_pool, lambda p: p.__enter__()))
simple("EnvPool.__exit__", lambda _w: with_new(auto_pool, lambda p: p.__exit__(None, None, None)))


@case("EnvPool.render")
def _(_w):
    pool = auto_pool()
    pool.reset().result()
    return lambda: pool.render()


simple("EnvPool.step", lambda w: stepped(w.process_pool, ACTIONS))


@case("EnvPool.reset")
def _(w):
    return lambda: w.process_pool.reset().result()


simple("EnvPool.restart_count", lambda w: lambda: w.process_pool.restart_count)
simple("EnvPool.worker_pids", lambda w: lambda: w.process_pool.worker_pids)


@case("EnvPool.restart")
def _(_w):
    pool = reverie.EnvPool(OneStepEnv, 1, num_workers=1, backend="process")
    return lambda: pool.restart(0)


simple("moolib.EnvPool.__init__", lambda w: lambda: w.moolib_pool)
simple("moolib.EnvPool.step", lambda w: stepped(w.moolib_pool, 0, ACTIONS))


def moolib_future(w):
    return w.moolib_pool.step(0, ACTIONS)


simple("moolib.EnvStepperFuture.__init__", lambda w: lambda: moolib_future(w))
simple(
    "moolib.EnvStepperFuture.done", lambda w: with_new(lambda: moolib_future(w), lambda f: f.done())
)
simple(
    "moolib.EnvStepperFuture.result",
    lambda w: with_new(lambda: moolib_future(w), lambda f: f.result()),
)


def small_moolib_pool():
    return reverie.moolib.EnvPool(OneStepEnv, 1, 1, 1, output="numpy")


simple("moolib.EnvPool.close", lambda _w: with_new(small_moolib_pool, lambda p: p.close()))
simple("moolib.EnvPool.__enter__", lambda _w: with_new(small_moolib_pool, lambda p: p.__enter__()))
simple(
    "moolib.EnvPool.__exit__",
    lambda _w: with_new(small_moolib_pool, lambda p: p.__exit__(None, None, None)),
)


# --- The batcher.
def batcher(size=2, queue_size=1):
    return reverie.Batcher(size, queue_size=queue_size)


def full_batcher():
    made = batcher()
    for _ in range(2):
        made.stack(STEP)
    return made


LARGE = {"x": np.zeros(100_000, np.float32)}


@case("Batcher.stack")
def _(_w):
    made = full_batcher()
    return lambda: made.stack(STEP)


@case("Batcher.stack large")
def _(_w):
    made = batcher()

    def call():
        made.stack(LARGE)
        if not made.empty():
            made.get()

    return call


@case("Batcher.cat")
def _(_w):
    made = batcher()
    rows = {"x": np.zeros((2, 3), np.float32)}
    made.cat(rows)
    return lambda: made.cat(rows)


@case("Batcher.get")
def _(_w):
    made = batcher()
    return lambda: made.get()


@case("Batcher.flush")
def _(_w):
    made = batcher()

    def call():
        made.stack(STEP)
        made.flush()
        made.get()

    return call


for _name in ("empty", "size", "filled"):

    def _ask(_w, name=_name):
        made = batcher()
        return (lambda: made.filled) if name == "filled" else lambda: getattr(made, name)()

    case(f"Batcher.{_name}")(_ask)
simple("Batcher.__init__", lambda _w: batcher)
simple("Batcher.close", lambda _w: with_new(batcher, lambda b: b.close()))
simple("Batcher.__enter__", lambda _w: with_new(batcher, lambda b: b.__enter__()))
simple("Batcher.__exit__", lambda _w: with_new(batcher, lambda b: b.__exit__(None, None, None)))


@case("Batcher.__await__")
def _(_w):
    import asyncio

    async def wait():
        await batcher()

    return lambda: asyncio.run(wait())


# moolib's batcher: the queue is emptied, so that each call adds at once.
def emptied(add):
    def made(_w):
        batches = reverie.moolib.Batcher(2, output="numpy")

        def call():
            add(batches)
            while not batches.empty():
                batches.get()

        return call

    return made


case("moolib.Batcher.__init__")(lambda _w: lambda: reverie.moolib.Batcher(2, output="numpy"))
case("moolib.Batcher.stack")(emptied(lambda batches: batches.stack(STEP)))
case("moolib.Batcher.cat")(emptied(lambda batches: batches.cat({"x": np.zeros((2, 3))})))


@case("moolib.Batcher.get")
def _(_w):
    made = reverie.moolib.Batcher(2, output="numpy")
    return lambda: made.get()


# --- Groups.
def with_group(call):
    def made(_w):
        rpc = reverie.Rpc()

        def called():
            with reverie.Group(rpc, "g") as group:
                call(group)

        return called

    return made


simple("Broker.__init__", lambda _w: lambda: reverie.Broker())
simple("Broker.close", lambda _w: with_new(reverie.Broker, lambda b: b.close()))
simple("Broker.__enter__", lambda _w: with_new(reverie.Broker, lambda b: b.__enter__()))
simple(
    "Broker.__exit__", lambda _w: with_new(reverie.Broker, lambda b: b.__exit__(None, None, None))
)
simple("Broker.listen", lambda _w: with_new(reverie.Broker, lambda b: b.listen()))
simple("Broker.groups", lambda w: lambda: w.group and w.broker.groups())
simple("Broker.name", lambda w: lambda: w.group and w.broker.name)
simple("Group.__init__", with_group(lambda _: None))
simple("Group.__enter__", with_group(lambda group: group.__enter__()))
simple("Group.__exit__", with_group(lambda group: group.__exit__(None, None, None)))
simple("Group.leave", with_group(lambda group: group.leave()))
simple("Group.name", lambda w: lambda: w.group.name)
simple("Group.rpc", lambda w: lambda: w.group.rpc)
simple("Group.host_count", lambda w: lambda: w.group.host_count)
simple("Group.members", lambda w: lambda: w.group.members)
simple("Group.epoch", lambda w: lambda: w.group.epoch)
simple("Group.update", lambda w: lambda: w.group.update())
simple("Group.wait", lambda w: lambda: w.lonely_group.wait(2, None))
simple("Group.why_waiting", lambda w: lambda: w.group.why_waiting())
simple("Group.set_sort_order", lambda w: lambda: w.lonely_group.set_sort_order(1))
simple("Group.set_stall_timeout", lambda w: lambda: w.lonely_group.set_stall_timeout(None))
simple("Group.all_reduce", lambda w: lambda: w.group.all_reduce("large", LARGE).result())
simple("Group.all_gather", lambda w: lambda: w.group.all_gather("gather", STEP).result())
simple("Group.barrier", lambda w: lambda: w.group.barrier().result())
simple(
    "Group.broadcast",
    lambda w: lambda: w.group.broadcast("broadcast", STEP, source="member").result(),
)
simple("Group.shares_memory", lambda w: lambda: w.group.shares_memory)


def new_weights():
    return reverie.Weights(reverie.Rpc(), "w")


simple("Weights.__init__", lambda _w: with_new(new_weights, lambda _: None))
simple("Weights.__enter__", lambda _w: with_new(new_weights, lambda made: made.__enter__()))
simple(
    "Weights.__exit__",
    lambda _w: with_new(new_weights, lambda made: made.__exit__(None, None, None)),
)
simple("Weights.close", lambda _w: with_new(new_weights, lambda made: made.close()))
simple("Weights.publish", lambda _w: with_new(new_weights, lambda made: made.publish(1, LARGE)))
simple("Weights.pull", lambda w: lambda: w.weights.pull())
simple("Weights.wait", lambda w: lambda: w.weights.wait(7, timeout_s=None))
simple("Weights.held", lambda w: lambda: w.weights.held())
simple("Weights.name", lambda w: lambda: w.weights.name)
simple("Weights.version", lambda w: lambda: w.weights.version)
simple("Accumulator.__init__", lambda _w: with_new(new_accumulator, lambda _: None))


def new_accumulator():
    return reverie.Accumulator("a", [np.zeros(2)])


for name in ("close", "__enter__"):
    simple(
        f"Accumulator.{name}",
        lambda _w, name=name: with_new(new_accumulator, lambda a: getattr(a, name)()),
    )
simple(
    "Accumulator.__exit__",
    lambda _w: with_new(new_accumulator, lambda a: a.__exit__(None, None, None)),
)
simple(
    "Accumulator.connect",
    lambda _w: with_new(new_accumulator, lambda a: a.connect("127.0.0.1:1")),
)
for name in (
    *("connected", "is_leader", "get_leader", "model_version", "wants_gradients", "update"),
    *("has_gradients", "has_new_state", "wants_state", "get_gradient_stats", "why_waiting"),
    *("skip_gradients", "gradients", "zero_gradients", "set_state", "state"),
    "parameters",
):
    simple(f"Accumulator.{name}", lambda w, name=name: lambda: getattr(w.accumulator, name)())
for name in ("name", "group"):
    simple(f"Accumulator.{name}", lambda w, name=name: lambda: getattr(w.accumulator, name))
for name in ("set_virtual_batch_size", "set_parallel_gradients"):
    simple(f"Accumulator.{name}", lambda w, name=name: lambda: getattr(w.accumulator, name)(1))
simple("Accumulator.set_model_version", lambda w: lambda: w.accumulator.set_model_version(1 << 40))
simple(
    "Accumulator.reduce_gradients",
    lambda w: lambda: w.accumulator.reduce_gradients(1, [np.ones(2)]),
)


# --- Peers.
simple("Rpc.sync", lambda w: lambda: w.rpc.sync("server", "never"))
simple("Rpc.sync busy", lambda w: lambda: w.rpc.sync("server", "echo", STEP))
simple("Rpc.sync large", lambda w: lambda: w.rpc.sync("server", "echo", LARGE))
simple("Rpc.sync slow", lambda w: lambda: w.rpc.sync("server", "echo", SlowArray()))
simple("Rpc.async_", lambda w: lambda: w.rpc.async_("server", "echo", 1).result())
simple("Rpc.ping", lambda w: lambda: w.rpc.ping("server"))
simple("Rpc.functions", lambda w: lambda: w.rpc.functions("server"))
simple("Rpc.peers", lambda w: lambda: w.rpc.peers())
simple("Rpc.name", lambda w: lambda: w.rpc.name)
simple("Rpc.addresses", lambda w: lambda: w.rpc.addresses)
simple("Rpc.set_max_threads", lambda w: lambda: w.rpc_server.set_max_threads(32))
simple("Rpc.set_transports", lambda _w: with_new(reverie.Rpc, lambda r: r.set_transports(["tcp"])))
simple("Rpc.debug_info", lambda w: lambda: w.rpc.debug_info())
simple("Rpc.__init__", lambda _w: lambda: reverie.Rpc())
simple("Rpc.close", lambda _w: with_new(reverie.Rpc, lambda r: r.close()))
simple("Rpc.__del__", lambda _w: lambda: reverie.Rpc().listen())
simple("Rpc.__enter__", lambda _w: with_new(reverie.Rpc, lambda r: r.__enter__()))
simple("Rpc.__exit__", lambda _w: with_new(reverie.Rpc, lambda r: r.__exit__(None, None, None)))
simple("Rpc.listen", lambda _w: with_new(reverie.Rpc, lambda r: r.listen()))
simple("Rpc.connect", lambda _w: with_new(reverie.Rpc, lambda r: r.connect("127.0.0.1:1")))


@case("Rpc.define")
def _(w):
    def call():
        w.rpc.define("brief", lambda: None)
        w.rpc.undefine("brief")

    return call


simple("Rpc.undefine", lambda w: lambda: w.rpc.undefine("nothing"))


@case("Rpc.define_deferred")
def _(w):
    def call():
        w.rpc.define_deferred("deferred", lambda deferred: deferred())
        w.rpc.undefine("deferred")

    return call


@case("Rpc.define_queue")
def _(w):
    w.rpc.sync("server", "echo", 1)
    queue = w.rpc_server.define_queue("queue")

    def call():
        w.rpc.async_("server", "queue", 1)
        queue.get()[0](1)
        with contextlib.suppress(*ORDINARY):
            queue.get(0.01)

    return call


@case("Rpc.define_stream")
def _(w):
    def call():
        w.rpc.define_stream("stream", lambda: range(3))
        w.rpc.undefine("stream")

    return call


@case("Rpc.stream")
def _(w):
    w.rpc.sync("server", "echo", 1)
    w.rpc_server.define_stream("range", lambda: range(1000))

    def call():
        with w.rpc.stream("server", "range") as stream:
            next(stream)
            next(stream)

    return call


@case("Rpc.define batched")
def _(w):
    w.rpc.sync("server", "echo", 1)
    w.rpc_server.define("batched", lambda x: x, batch_size=4)
    return lambda: w.rpc.sync("server", "batched", 1)


@case("Rpc.async_callback")
def _(w):
    called = threading.Event()

    def call():
        w.rpc.async_callback("server", "echo", lambda _value, _error: called.set(), 1)
        called.wait(1.0)

    return call


def rpc_future(w, function="never"):
    return w.rpc.async_("server", function, *([1] if function == "echo" else []))


simple("Future.__init__", lambda w: lambda: rpc_future(w, "echo"))
simple("Future.done", lambda w: with_new(lambda: rpc_future(w, "echo"), lambda f: f.done()))
simple("Future.cancel", lambda w: with_new(lambda: rpc_future(w), lambda f: f.cancel()))
for _name in ("wait", "result", "exception"):

    def _wait_for_future(w, name=_name):
        future = rpc_future(w)
        return lambda: getattr(future, name)()

    case(f"Future.{_name}")(_wait_for_future)


@case("Future.add_done_callback")
def _(w):
    def call():
        called = threading.Event()
        rpc_future(w, "echo").add_done_callback(lambda _: called.set())
        called.wait(1.0)

    return call


@case("Future.__await__")
def _(w):
    import asyncio

    async def wait():
        return await rpc_future(w, "echo")

    return lambda: asyncio.run(wait())


# --- Results of calls between peers and of groups.
def round_of(w, name):
    return lambda: w.group.all_reduce(name, STEP)


for _name in ("result", "wait", "exception", "done", "cancel"):
    simple(
        f"Round.{_name}",
        lambda w, name=_name: with_new(round_of(w, name), lambda r: getattr(r, name)()),
    )
simple("Round.members", lambda w: with_new(round_of(w, "members"), lambda r: r.members))


@case("Round.__await__")
def _(w):
    import asyncio

    async def wait():
        return await w.group.barrier("awaited")

    return lambda: asyncio.run(wait())


def endless(*_):
    while True:
        yield 1


def mute(*_):
    threading.Event().wait()
    yield 1


def streamed(w, function=endless, **options):
    """A new stream."""
    w.rpc.sync("server", "echo", 1)
    name = f"stream {len(w.rpc_server.functions())}"
    w.rpc_server.define_stream(name, function, **options)
    return lambda: w.rpc.stream("server", name)


@case("Stream.__next__")
def _(w):
    stream = streamed(w)()
    return lambda: next(stream)


@case("Stream.__next__ waiting")
def _(w):
    stream = streamed(w, mute)()
    return lambda: next(stream)


@case("Stream.send")
def _(w):
    stream = streamed(w, mute, takes_values=True)()
    return lambda: stream.send(1)


simple("Stream.finish", lambda w: with_new(streamed(w), lambda s: s.finish()))
simple("Stream.close", lambda w: with_new(streamed(w), lambda s: s.close()))
simple("Stream.__iter__", lambda w: with_new(streamed(w), lambda s: iter(s)))
simple("Stream.__enter__", lambda w: with_new(streamed(w), lambda s: s.__enter__()))
simple("Stream.__exit__", lambda w: with_new(streamed(w), lambda s: s.__exit__(None, None, None)))
simple("Stream.__del__", lambda w: with_new(streamed(w), lambda s: s.__del__()))
simple("Inbox.__next__", lambda _w: lambda: next(Inbox()))
simple("Inbox.__iter__", lambda _w: lambda: iter(Inbox()))
simple("Inbox.__init__", lambda _w: Inbox)


def queued(w, name):
    w.rpc.sync("server", "echo", 1)
    return w.rpc_server.define_queue(name)


@case("Queue.get")
def _(w):
    queue = queued(w, "get")
    return lambda: queue.get()


@case("Queue.__iter__")
def _(w):
    queue = queued(w, "iterate")
    return lambda: next(iter(queue))


@case("Queue.__len__")
def _(w):
    queue = queued(w, "count")
    return lambda: len(queue)


@case("Queue.__await__")
def _(w):
    import asyncio

    queue = queued(w, "await")

    async def take():
        await queue

    return lambda: asyncio.run(take())


def answering(use):
    def made(w):
        name = f"deferred {len(CASES)} {id(use)}"
        w.rpc.sync("server", "echo", 1)
        w.rpc_server.define_deferred(name, use)
        return lambda: w.rpc.sync("server", name)

    return made


simple("DeferredReturn.__call__", answering(lambda answer: answer(1)))
simple("DeferredReturn.fail", answering(lambda answer: answer.fail("no")))
simple(
    "DeferredReturn.when_withdrawn",
    answering(lambda answer: (answer.when_withdrawn(list), answer(1))),
)


# --- Reverb's interface.
def reverb_server():
    made = [reverie.reverb.Table.queue(name, 2) for name in ("empty", "queue")]
    full = reverie.reverb.Table(
        name="full",
        sampler=reverie.reverb.selectors.Uniform(),
        remover=reverie.reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverie.reverb.rate_limiters.MinSize(1),
    )
    server = reverie.reverb.Server([*made, full])
    client = server.localhost_client()
    for _ in range(2):
        client.insert(STEP, {"queue": 1.0})  # it takes no more
    return server


simple("reverb.Client.insert", lambda w: lambda: w.reverb.insert(STEP, {"queue": 1.0}))
simple("reverb.Client.insert busy", lambda w: lambda: w.reverb.insert(STEP, {"full": 1.0}))
simple("reverb.Client.sample", lambda w: lambda: next(w.reverb.sample("empty")))
simple("reverb.Client.sample busy", lambda w: lambda: list(w.reverb.sample("full", 4)))
simple("reverb.Client.server_info", lambda w: lambda: w.reverb.server_info())
simple(
    "reverb.Client.mutate_priorities",
    lambda w: lambda: w.reverb.mutate_priorities("full", {1: 2.0}, [3]),
)


for _name, _call in {
    "insert_rows": lambda client: client.insert_rows({"x": np.ones((2, 3))}, "full"),
    "sample_batch": lambda client: client.sample_batch("empty", 2),
    "update_priorities": lambda client: client.update_priorities("full", keys=[1], priorities=[2]),
    "flush": lambda client: client.flush(),
    "delete": lambda client: client.delete("full", [1, 2]),
    "reset": lambda client: client.reset("empty"),
    "checkpoint": lambda client: client.checkpoint(timeout_s=1.0),
    "loaded_payload": lambda client: client.loaded_payload(timeout_s=1.0),
}.items():
    simple(f"reverb.Client.{_name}", lambda w, call=_call: lambda: call(w.reverb))


@case("reverb.Client.trajectory_writer")
def _(w):
    writer = w.reverb.trajectory_writer(2)
    writer.append(STEP)
    writer.create_item("queue", 1.0, {"x": writer.history["x"][-1:]})
    return lambda: writer.flush()


@case("reverb.TrajectoryWriter.append")
def _(w):
    writer = w.reverb.trajectory_writer(2)
    return lambda: writer.append(STEP)


for _name in ("flush", "end_episode"):

    def _end(w, name=_name):
        writer = w.reverb.trajectory_writer(2)
        writer.append(STEP)
        writer.create_item("queue", 1.0, {"x": writer.history["x"][-1:]})
        return lambda: getattr(writer, name)()

    case(f"reverb.TrajectoryWriter.{_name}")(_end)


def reverb_writer(w, table):
    writer = w.reverb.writer(4, max_in_flight_items=1)
    writer.append(STEP)
    writer.create_item(table, 1, 1.0)
    return writer


simple("reverb.Writer.__init__", lambda w: lambda: reverb_writer(w, "full"))


@case("reverb.Writer.append")
def _(w):
    writer = reverb_writer(w, "full")
    return lambda: writer.append(STEP)


@case("reverb.Writer.create_item")
def _(w):
    writer = reverb_writer(w, "queue")
    return lambda: writer.create_item("queue", 1, 1.0)


@case("reverb.Writer.flush")
def _(w):
    writer = reverb_writer(w, "queue")
    return lambda: writer.flush()


simple("reverb.Writer.close", lambda w: lambda: reverb_writer(w, "full").close())


@case("reverb.Client.structured_writer")
def _(w):
    writer = w.reverb.structured_writer(w.patterns("queue"))
    writer.append(STEP)
    return lambda: writer.flush()


simple("reverb.Server.__init__", lambda _w: reverb_server)
simple("reverb.Server.client", lambda w: lambda: w.reverb_server.client().server_info())
simple(
    "reverb.Server.localhost_client",
    lambda w: lambda: w.reverb_server.localhost_client().server_info(),
)


# --- moolib's interface.
class Moolib:
    """Peers, and a group of one, made with moolib's interface."""

    def __init__(self):
        self.broker = reverie.moolib.Broker()
        self.broker.listen("127.0.0.1:0")
        self.server, self.client = reverie.moolib.Rpc(), reverie.moolib.Rpc()
        self.server.set_name("server")
        self.server.listen("127.0.0.1:0")
        self.server.define("echo", lambda value: value)
        self.server.define_deferred("never", lambda _: None)
        for peer in (self.server, self.broker._rpc):
            self.client.connect(peer._rpc().addresses[0])
        self.group = reverie.moolib.Group(self.client, "g")
        while not self.group.active():
            self.group.update()
        self.accumulator = reverie.moolib.Accumulator("a", [np.zeros(2)], (), self.group)


def moolib_call(name, call):
    """Registers a case that calls the shared moolib peers."""
    simple(f"moolib.{name}", lambda w: lambda: call(w.moolib))


def awaited(future):
    import asyncio

    async def wait():
        return await future

    return asyncio.run(wait())


def new_moolib_rpc():
    return reverie.moolib.Rpc()


moolib_call("Rpc.sync", lambda m: m.client.sync("server", "never"))
moolib_call("Rpc.async_", lambda m: m.client.async_("server", "echo", 1).result())
moolib_call("Rpc.async_callback", lambda m: m.client.async_callback("server", "echo", print_not, 1))
moolib_call("Rpc.get_name", lambda m: m.client.get_name())
moolib_call("Rpc.set_timeout", lambda m: m.client.set_timeout(120.0))
moolib_call("Rpc.undefine", lambda m: m.server.undefine("nothing"))


def print_not(*_):
    pass


for _name, _arguments in {
    "__init__": None,
    "set_name": ("x",),
    "set_transports": (["tcp"],),
    "listen": ("127.0.0.1:0",),
    "connect": ("127.0.0.1:1",),
    "define": ("f", print_not),
    "define_deferred": ("f", print_not),
    "define_queue": ("f",),
    "close": (),
}.items():

    def _on_new_peer(_w, name=_name, arguments=_arguments):
        def call():
            peer = new_moolib_rpc()
            if arguments is not None:
                getattr(peer, name)(*arguments)

        return call

    case(f"moolib.Rpc.{_name}")(_on_new_peer)
for _name in ("wait", "result", "done", "cancel", "exception"):
    moolib_call(
        f"Future.{_name}",
        lambda m, name=_name: getattr(m.client.async_("server", "never"), name)(),
    )
    moolib_call(
        f"AllReduce.{_name}",
        lambda m, name=_name: getattr(m.group.all_reduce(name, STEP["x"]), name)(),
    )
moolib_call("Future.__await__", lambda m: awaited(m.client.async_("server", "never")))
moolib_call("AllReduce.__await__", lambda m: awaited(m.group.all_reduce("await", STEP["x"])))
for _name in ("Future", "AllReduce"):  # __await__ is a generator, like __iter__
    CASES[f"moolib.{_name}.__iter__"] = CASES[f"moolib.{_name}.__await__"]


def moolib_queue(count=1):
    made = reverie.moolib.Queue()
    for _ in range(count):
        made.enqueue(print_not)
    return made


simple("moolib.Queue.__init__", lambda _w: moolib_queue)
simple("moolib.Queue.enqueue", lambda _w: with_new(moolib_queue, lambda q: q.enqueue(print_not)))
simple("moolib.Queue.__len__", lambda _w: with_new(moolib_queue, len))
simple("moolib.Queue.get", lambda _w: with_new(moolib_queue, lambda q: (q.get(), q.get())))
simple("moolib.Queue.__await__", lambda _w: with_new(lambda: moolib_queue(0), awaited))
moolib_call("Future.__init__", lambda m: m.client.async_("server", "echo", 1))
moolib_call("AllReduce.__init__", lambda m: m.group.all_reduce("init", STEP["x"]))
for _name in ("update", "members", "sync_id", "name", "active"):
    moolib_call(f"Group.{_name}", lambda m, name=_name: getattr(m.group, name)())
moolib_call("Group.all_reduce", lambda m: m.group.all_reduce("all", STEP["x"]).result())
moolib_call("Group.set_timeout", lambda m: m.group.set_timeout(1e6))
moolib_call("Group.set_sort_order", lambda m: m.group.set_sort_order(1))
moolib_call("Accumulator.__init__", lambda m: m.accumulator.update())
simple("moolib.Broker.__init__", lambda _w: reverie.moolib.Broker)
for _name, _arguments in {
    "set_name": ("x",),
    "listen": ("127.0.0.1:0",),
    "update": (),
    "close": (),
}.items():

    def _on_new_broker(_w, name=_name, arguments=_arguments):
        return lambda: getattr(reverie.moolib.Broker(), name)(*arguments)

    case(f"moolib.Broker.{_name}")(_on_new_broker)
for _name, _arguments in {"__init__": None, "leave": (), "set_broker_name": ("b",)}.items():

    def _on_new_group(_w, name=_name, arguments=_arguments):
        def call():
            group = reverie.moolib.Group(new_moolib_rpc(), "g")
            if arguments is not None:
                getattr(group, name)(*arguments)

        return call

    case(f"moolib.Group.{_name}")(_on_new_group)


# --- Vector environments.
def vector_env():
    return reverie.gym.GymVectorEnv("CartPole-v1", 2, backend="native")


for _name, _arguments in {
    "__init__": None,
    "reset": (),
    "step": (ACTIONS,),
    "call": ("spec",),
    "get_attr": ("spec",),
    "set_attr": ("mark", 1),
    "render": (),
    "close_extras": (),
}.items():

    def _on_vector_env(_w, name=_name, arguments=_arguments):
        def call():
            env = vector_env()
            env.reset()
            if arguments is not None:
                getattr(env, name)(*arguments)

        return call

    case(f"GymVectorEnv.{_name}")(_on_vector_env)


@case("GymVectorEnv.step busy")
def _(_w):
    env = vector_env()
    env.reset()
    return lambda: env.step(ACTIONS)


for _name in ("np_random", "np_random_seed"):
    simple(
        f"GymVectorEnv.{_name}",
        lambda _w, name=_name: with_new(vector_env, lambda env: getattr(env, name)),
    )


# Programs of their own, by the first word of a case: trainings would keep the others from starting.
PARTS = {
    "trainings": re.compile(r"Trainer|Loop|TrainResult|tune_cores|evaluate|act$"),
    "peers": re.compile(
        r"Round|Stream|Inbox|Queue|DeferredReturn|Mlp|Adam|GymVectorEnv|convert"
        r"|moolib\.(Rpc|Future|AllReduce|Group|Broker|Accumulator)"
    ),
}


def part_of(name):
    return next((part for part, words in PARTS.items() if words.match(name)), "stores")


class Thread:
    """Repeats one call for ever, without pauses once ``rush`` is set."""

    def __init__(self, name, call, rush):
        self.name = name
        self.call = call
        self.rush = rush
        self.entered = threading.Event()
        self.error = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        try:
            self.entered.set()
            while True:
                self.rush.wait(PAUSE_S)
                with contextlib.suppress(*ORDINARY):
                    self.call()
        except Exception as error:
            self.error = error


def main(door, how, names):
    sys.setswitchinterval(1e-3)  # so that each of many threads runs soon
    world = World(door)
    rush = threading.Event()
    threads = [Thread(name, CASES[name](world), rush) for name in names or CASES]
    for thread in threads:
        thread.thread.start()
    deadline = time.monotonic() + DEADLINE_S
    for thread in threads:
        assert thread.entered.wait(deadline - time.monotonic()), thread.name
    rush.set()
    threading.Event().wait(RUSH_S)
    wrong = [f"{thread.name}: {thread.error!r}" for thread in threads if thread.error is not None]
    assert not wrong, "\n".join(wrong)
    if how == "exit":
        sys.exit(3)
    if how == "error":
        raise ValueError("the program's own")
    return world, threads  # kept as globals, so that the interpreter destroys them at the end


if __name__ == "__main__":
    kept = main(sys.argv[1], sys.argv[2], sys.argv[3:])
