"""Objects in reference cycles are collected, through callables that they hold and what they keep.

The usual case is a class with a buffer, a peer or a client that calls the class's methods. When
Python collects the cycle, its threads and descriptors are released too.
"""

import gc
import os
import weakref

import gymnasium
import numpy as np
import pytest

import reverie
from eventually import eventually
from public_calls import SUBJECTS, Worlds
from reverie import moolib, structured

STEP = {"x": np.zeros(2, np.float32)}


class Agent:
    """A user's class: each case sets attributes of it, and passes its methods to the package."""

    def answer(self, *values):
        return values

    def beta(self, _update_count):
        return 0.5

    def transform(self, batch):
        return batch

    def reward(self, achieved, _desired, _info):
        return np.zeros(len(achieved))

    def rows_of(self, rows):
        return np.zeros((rows.row_count, *rows.shape), rows.dtype)

    def deferred(self, answer, *values):
        answer(values)

    def is_ready(self, count):
        return count > 0

    def count_up(self):
        number = 0
        while True:
            yield number
            number += 1

    def last_row(self, step):
        return {"x": step["x"][-1:]}

    def env(self):
        return gymnasium.make("CartPole-v1")

    def wrapped(self, env):
        return env

    def fold(self, one, other):
        return one + other


def store():
    table = reverie.Table(
        "t",
        reverie.selectors.Uniform(),
        reverie.selectors.Fifo(),
        100,
        reverie.rate_limiters.MinSize(1),
    )
    return reverie.Store([table])


def filled(agent, **options):
    agent.buffer = reverie.ReplayBuffer(100, prioritized=True, **options)
    agent.buffer.add(STEP["x"], 0, 1.0, STEP["x"], False)
    agent.buffer.sample(2)


def buffer_beta(agent):
    filled(agent, beta=agent.beta)


def buffer_transform(agent):
    filled(agent, transforms=[agent.transform])


def buffer_hindsight(agent):
    agent.buffer = reverie.ReplayBuffer(100, hindsight=reverie.Hindsight(agent.reward))


def buffer_dataset(agent):
    filled(agent, beta=agent.beta, transforms=[agent.transform])
    agent.batches = agent.buffer.dataset(2)
    next(agent.batches)


def external_rows(agent, home):
    agent.home = home
    is_embedded = isinstance(home, reverie.Store)
    options = {"files": agent.rows_of}
    agent.client = (
        home.client(**options) if is_embedded else reverie.Client(home.address, **options)
    )
    agent.client.insert_rows({"x": reverie.External("x", shape=(4, 2), dtype="f4")}, "t")
    agent.items = agent.client.sample("t", 2)
    next(agent.items)
    agent.batches = agent.client.dataset("t", 2)
    next(agent.batches)


def files_of_a_store(agent):
    external_rows(agent, store())


def files_of_a_server(agent):
    external_rows(agent, reverie.Server([table.replace() for table in store().tables]))


def pattern(agent):
    agent.store = store()
    made = structured.pattern_from_transform(STEP, agent.last_row)
    configs = [structured.create_config(made, "t")]
    agent.writer = agent.store.client().structured_writer(configs)
    agent.writer.append(STEP)


def connected(agent):
    agent.server = reverie.Rpc("server")
    agent.caller = reverie.Rpc("caller")
    agent.caller.connect(agent.server.listen())
    return agent.server, agent.caller


def defined(agent):
    server, caller = connected(agent)
    server.define("answer", agent.answer)
    caller.sync("server", "answer", 1)


def defined_alone(agent):
    agent.server = reverie.Rpc("server")
    agent.server.define("answer", agent.answer)


def defined_in_batches(agent):
    server, caller = connected(agent)
    server.define("answer", agent.answer, batch_size=2, is_ready=agent.is_ready)
    caller.sync("server", "answer", 1)


def defined_deferred(agent):
    server, caller = connected(agent)
    server.define_deferred("deferred", agent.deferred)
    caller.sync("server", "deferred", 1)


def defined_queue(agent):
    server, caller = connected(agent)
    agent.queue = server.define_queue("queue", batch_size=2, is_ready=agent.is_ready)
    future = caller.async_("server", "queue", 1)
    agent.queue.get()[0](np.zeros(1))
    future.result()


def defined_stream(agent):
    server, caller = connected(agent)
    server.define_stream("rows", agent.count_up)
    agent.rows = caller.stream("server", "rows", window=2)
    next(agent.rows)


def callback_of_a_call(agent):
    server, caller = connected(agent)
    server.define("answer", print)
    agent.future = caller.async_("server", "answer")
    agent.future.result()
    agent.future.add_done_callback(agent.answer)


def moolib_peer(agent):
    agent.peer = moolib.Rpc()
    agent.peer.define("answer", agent.answer)
    agent.peer.define_deferred("deferred", agent.deferred)
    agent.queue = agent.peer.define_queue("queue")
    agent.peer.listen("127.0.0.1:0")


def group(agent):
    agent.broker = reverie.Broker()
    agent.peer = reverie.Rpc("member")
    agent.peer.define("answer", agent.answer)
    agent.peer.connect(agent.broker.listen())
    agent.group = reverie.Group(agent.peer, "g")
    agent.group.wait(1)
    agent.round = agent.group.all_reduce("sum", 1.0, agent.fold)
    agent.round.result()
    agent.accumulator = reverie.Accumulator("a", [np.zeros(2)], (), agent.group)
    agent.weights = reverie.Weights(agent.peer, "w")
    agent.weights.publish(1, STEP)


def vector(agent):
    agent.pool = reverie.EnvPool("CartPole-v1", 2, backend="native")
    agent.future = agent.pool.reset()
    agent.future.result()


def pool_of_threads(agent):
    agent.pool = reverie.EnvPool(agent.env, 2, backend="thread", wrappers=[agent.wrapped])
    agent.pool.reset().result()
    agent.pool.step([0, 1]).result()


class Policy(Agent):
    def act(self, observation, *, step, explore):  # noqa: ARG002
        return np.zeros(len(observation), int)

    def learn(self, batch, *, progress):  # noqa: ARG002
        return np.ones(len(batch["reward"]))


def loop(agent):
    settings = reverie.TrainSettings(
        seed=1, steps=60, warmup_steps=50, hidden=(4,), batch_size=4, actors=0
    )
    policy = Policy()
    policy.agent = agent
    agent.loop = reverie.agents.Loop(policy, policy, "CartPole-v1", settings)
    agent.loop.start()
    agent.loop.wait()


CASES = [
    *(buffer_beta, buffer_transform, buffer_hindsight, buffer_dataset),
    *(files_of_a_store, files_of_a_server, pattern),
    *(defined, defined_alone, defined_in_batches, defined_deferred, defined_queue),
    *(defined_stream, callback_of_a_call, moolib_peer, group, vector, pool_of_threads, loop),
]


def held():
    """The number of descriptors and of threads of this process."""
    return tuple(len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task"))


@pytest.fixture
def few_objects():
    """Excludes existing objects from collections, which would take a tenth of a second each."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("make", CASES, ids=lambda case: case.__name__)
def test_an_object_in_a_reference_cycle_is_collected(make):
    def made_and_dropped():
        agent = Agent()
        agent.itself = agent
        make(agent)
        return weakref.ref(agent)

    def is_gone(agent, before):
        gc.collect()
        return agent() is None and all(
            now <= then for now, then in zip(held(), before, strict=True)
        )

    for _ in range(2):  # the first calls start threads that the process keeps
        agent = made_and_dropped()
        eventually(lambda agent=agent: gc.collect() + 1 and agent() is None)
    before = held()
    again = made_and_dropped()
    eventually(lambda: is_gone(again, before))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_closing_an_object_leaves_no_thread_or_descriptor(name):
    """Without the garbage collector: closing releases everything."""
    if name == "AtariEnv":
        pytest.importorskip("ale_py")

    def made_and_closed():
        with Worlds() as world:
            made = SUBJECTS[name](world)
            close = getattr(made, "close", None)
            if callable(close):
                close()

    for _ in range(2):  # the first calls start threads that the process keeps
        made_and_closed()
    gc.collect()
    before = held()
    for _ in range(3):
        made_and_closed()
    eventually(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
