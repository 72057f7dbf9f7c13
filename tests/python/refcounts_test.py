"""Calls keep and drop no references to their arguments, whether they succeed or fail."""

import contextlib
import gc
import sys
import tempfile

import numpy as np
import pytest

import reverie
from eventually import eventually
from public_calls import CALLS, Worlds, make_call, parameters, run, valid
from reverie import structured
from reverie.envs.native import NativePool

ROUNDS = 50
# Objects that the interpreter or the test itself may keep.
SLACK = 8


class Wrong:
    """A type that no call accepts."""


def leaves_of(argument):
    """The argument and all its leaves."""
    yield argument
    if isinstance(argument, dict):
        argument = argument.values()
    elif not isinstance(argument, list | tuple):
        return
    for part in argument:
        yield from leaves_of(part)


def table(name, max_size, sampler=None, signature=None):
    """A table that can be sampled as soon as it has an item."""
    return reverie.Table(
        name,
        sampler or reverie.selectors.Uniform(),
        reverie.selectors.Fifo(),
        max_size,
        reverie.rate_limiters.MinSize(1),
        signature=signature,
    )


@pytest.fixture
def client(request):
    tables = [table("t", max_size=100), reverie.Table.queue("queue", 1)]
    is_embedded = request.param == "embedded"
    home = reverie.Store(tables) if is_embedded else reverie.Server(tables)
    with home:
        client = home.client() if is_embedded else reverie.Client(home.address)
        client.insert(step(), {"t": 1.0})
        client.insert(step(), {"queue": 1.0})
        yield client


def step():
    return {"x": np.zeros((3, 2), np.float32), "text": np.array(["a", "b"]), "n": 2**40}


def client_calls(client):
    batch = client.sample_batch("t", 4)
    keys = np.array([1, 2], np.uint64)
    numbers = np.array([1.0, 2.0])
    yield client.insert, (step(), {"t": 1.5})
    yield client.insert, (step(), {"queue": 1.5}), {"timeout_s": 0.0}
    yield client.insert, ({"x": [object()]}, {"t": 1.5})
    yield client.sample_batch, ("t", 4)
    yield client.sample_batch, ("t", 4), {"out": batch, "beta": 0.5}
    yield client.sample_batch, ("queue", 4), {"timeout_s": 0.0, "out": batch}
    yield client.sample_batch, ("none", 4), {"out": batch}
    yield lambda *given: next(client.sample(*given)), ("t",)
    yield client.update_priorities, ("t", keys, numbers)
    yield client.update_priorities, ("t", [1, 2], [1.0, -2.0])
    yield client.mutate_priorities, ("t", {1000: 2.5}, [2000])
    yield client.priorities, ("t", keys)
    yield client.delete, ("t", [1000])
    yield client.server_info, ()
    yield client.why_blocked, ("t",)
    yield client.can_sample, ("t",)
    yield batch.convert, (lambda array: array,)


def writer_calls(client):
    writer = client.trajectory_writer(4, max_in_flight_items=10)
    writer.append(step())
    item = {name: writer.history[name][-1:] for name in ("x", "n")}
    squeezed = {"x": writer.history["x"][-1]}
    yield writer.append, (step(),)
    yield writer.append, ([step()["x"]],)
    yield writer.append, ({"x": Wrong()},)
    yield writer.append, ({"x": np.zeros((4, 4))},)
    yield writer.create_item, ("t", 1.0, squeezed)
    yield writer.create_item, ("t", 1.0, item)
    yield writer.create_item, ("none", 1.0, item)
    yield writer.create_item, ("t", Wrong(), item)
    yield lambda: writer.history["x"][-1:].numpy(), ()
    yield lambda: writer.history["x"][Wrong()], ()
    yield writer.flush, ()
    full = client.writer(4, max_in_flight_items=1)
    full.append([step()["x"]])
    full.create_item("queue", 1, 1.0)
    yield full.append, ([step()["x"]],)
    yield full.create_item, ("queue", 1, 1.0), {"timeout_s": 0.0}
    yield full._writer.close, ()
    legacy = client.writer(4)
    legacy.append([step()["x"]])
    yield legacy.append, ([step()["x"]],)
    yield legacy.append, ({"y": step()["x"]},)
    yield legacy.create_item, ("t", 1, 1.0)
    yield legacy.create_item, ("t", 99, 1.0)
    pattern = structured.pattern_from_transform({"x": None}, lambda nest: {"x": nest["x"][-1:]})
    patterns = client.structured_writer([structured.create_config(pattern, "t")])
    yield patterns.append, ({"x": step()["x"]},)
    yield patterns.append, ({"x": Wrong()},)
    yield patterns.end_episode, ()
    yield legacy.close, ()
    yield writer.close, ()
    yield patterns.close, ()


def buffer_calls(_client):
    buffer = reverie.ReplayBuffer(100, prioritized=True, seed=1)
    obs = np.zeros(4, np.float32)
    buffer.add(obs, 0, 1.0, obs, False)
    batch = buffer.sample(4)
    yield buffer.add, (np.zeros(4, np.float32), 0, 1.5, np.zeros(4, np.float32), False)
    yield buffer.add, (np.zeros(5, np.float32), 0, 1.5, np.zeros(4, np.float32), False)
    yield buffer.add, (Wrong(), Wrong(), Wrong(), Wrong(), Wrong())
    yield buffer.sample, (4,)
    yield buffer.sample, (4,), {"out": batch}
    yield buffer.sample, (5,), {"out": batch}
    yield buffer.sample, (4,), {"beta": Wrong()}
    yield buffer.update_priorities, (batch["tickets"], np.ones(4))
    yield buffer.update_priorities, (batch["tickets"], np.ones(3))
    yield buffer.update_priorities, (Wrong(), Wrong())
    yield buffer.clear, ()


def pool_calls(_client):
    pool = NativePool("CartPole-v1", 2, num_threads=0, first_step_resets=True, seed=1)
    continuous = NativePool("Pendulum-v1", 2, num_threads=0, first_step_resets=True, seed=1)
    yield lambda *given: pool.step(*given).result(), (np.zeros(2, np.int64),)
    yield lambda *given: pool.step(*given).result(), ([0, 1],)
    yield lambda *given: pool.step(*given).result(), ([0, 7],)
    yield lambda *given: pool.step(*given).result(), (Wrong(),)
    yield lambda *given: continuous.step(*given).result(), (np.zeros((2, 1)),)
    yield lambda: pool.reset(5).result(), ()
    yield pool.get_state, (0,)
    yield pool.set_state, (0, np.zeros(5))
    yield pool.set_state, (0, [1.0])
    yield pool.render, (0,)


def batcher_calls(_client):
    batcher = reverie.Batcher(2, queue_size=4, timeout_s=0.0)

    def stacked(*given):
        try:
            batcher.stack(*given)
        finally:
            while not batcher.empty():
                batcher.get()

    yield stacked, (step()["x"],)
    yield stacked, ({"x": step()["x"], "n": 1.5},)
    yield stacked, (Wrong(),)
    yield stacked, (np.zeros((3, 2), np.float64),)
    yield batcher.cat, (np.zeros((5, 2)),)
    yield batcher.get, ()
    yield reverie.unbatch, ({"x": np.zeros((2, 3))},)


def stream_calls(client):
    with client.dataset("t", 4) as batches:
        yield batches.__next__, ()
    yield lambda: client.dataset("t", 4).close(), ()
    samples = reverie.TrajectoryDataset(client, "t", {"x": np.float32}, {"x": (None, 3, 2)}, 4)
    yield lambda: iter(samples).close(), ()


@contextlib.contextmanager
def peers():
    """Two peers, of which one is a server."""
    with reverie.Rpc("server") as server, reverie.Rpc("caller", find_timeout_s=0.01) as caller:
        caller.connect(server.listen())
        server.define("echo", lambda *args, **kwargs: (args, kwargs))
        server.define("fails", lambda *_: Wrong().wrong)
        server.define("batched", lambda x: x, batch_size=2, max_wait_s=0.0)
        server.define_stream("rows", lambda x: [x, x])
        caller.sync("server", "echo")
        yield server, caller


def rpc_calls(_client):
    with peers() as (server, caller):
        value = {"a": [1.5, (step(), None)], "text": "some text", "bytes": b"x" * 100}
        large = np.zeros(100_000, np.float32)
        queue = server.define_queue("queue")
        deferred = []
        server.define_deferred("deferred", lambda answer, *_: deferred.append(answer))

        def end_all():
            for answer in deferred:
                answer(1)
            deferred.clear()

        yield caller.sync, ("server", "echo", value)
        yield caller.sync, ("server", "echo", large), {"named": large}
        yield caller.sync, ("server", "batched", large)
        yield caller.sync, ("server", "echo", Wrong())
        yield caller.sync, ("server", "fails", value)
        yield caller.sync, ("server", "nothing", value)
        yield caller.sync, ("absent", "echo", value), {"timeout_s": 0.001}
        yield caller.sync, ("server", "deferred", value), {"timeout_s": 0.001}
        yield end_all, ()
        yield lambda *given: caller.async_(*given).result(), ("server", "echo", value)
        yield lambda *given: caller.async_(*given).cancel(), ("server", "deferred", value)
        yield end_all, ()
        yield lambda *given: list(caller.stream("server", "rows", *given)), (large,)
        yield lambda *given: caller.stream("server", "rows", *given).close(), (value,)

        def through_a_queue(*given):
            future = caller.async_("server", "queue", *given)
            answer, args, _ = queue.get()
            answer(args)
            return future.result()

        yield through_a_queue, (large,)
        yield server.define, ("echo", Wrong)
        yield caller.functions, ("server",)
        yield caller.debug_info, ()


def group_calls(_client):
    with reverie.Broker() as broker, reverie.Rpc("member") as rpc:
        rpc.connect(broker.listen())
        with reverie.Group(rpc, "g") as group:
            group.wait(1)
            arrays = {"w": np.zeros((3, 4), np.float32), "b": [np.ones(2), 1.5]}
            yield lambda *given: group.all_reduce("sum", *given).result(), (arrays,)
            yield lambda *given: group.all_reduce("fold", *given).result(), (arrays, max)
            yield lambda *given: group.all_gather("all", *given).result(), (arrays,)
            yield lambda *given: group.all_gather("wrong", *given).result(), (Wrong(),)
            yield group.all_reduce, ("wrong", Wrong())
            yield lambda: group.barrier().result(), ()
            model = [np.zeros((5, 5), np.float32), np.zeros(3)]
            accumulator = reverie.Accumulator("a", model, group=group)
            gradients = [np.ones((5, 5), np.float32), np.ones(3)]

            def accumulate(*given):
                accumulator.update()
                if accumulator.wants_state():
                    accumulator.set_state({"step": given[0][1]})
                if accumulator.has_gradients():
                    accumulator.gradients()
                    accumulator.zero_gradients()
                if accumulator.wants_gradients():
                    accumulator.reduce_gradients(1, *given)

            yield accumulate, (gradients,)
            yield accumulate, ([np.ones(2)],)
            accumulator.close()


def weights_calls(_client):
    with peers() as (server, caller):
        published = reverie.Weights(server, "w")
        taken = reverie.Weights(caller, "w", sources=["server"])
        arrays = {"w": np.zeros((30, 40), np.float32), "n": [1, "text"]}
        versions = iter(range(1 << 30))

        def travel(*given):
            published.publish(next(versions), *given)
            taken.pull()
            return taken.held()

        yield travel, (arrays,)
        yield published.publish, (0, arrays)
        yield lambda *given: published.publish(next(versions), *given), (Wrong(),)
        yield taken.wait, (1 << 40,), {"timeout_s": 0.0}


def network_calls(_client):
    net = reverie.nn.Mlp((8, 16, 4), seed=1)
    adam = reverie.nn.Adam(net)
    inputs, outputs = np.ones((3, 8), np.float32), np.ones((3, 4), np.float32)

    def learn(*given):
        net.forward(given[0])
        adam.step(net, net.backward(given[1]), norm_max=1.0)

    yield net, (inputs,)
    yield net, (outputs,)
    yield learn, (inputs, outputs)
    yield learn, (inputs, inputs)
    yield net.load_state_dict, (net.state_dict(),)
    yield net.approach, (net.copy(), 0.5)
    yield adam.restore, adam.state()


def training_calls(_client):
    settings = reverie.TrainSettings(seed=1, steps=60, warmup_steps=50, hidden=(4,), actors=0)

    def train(*given):
        with reverie.agents.Trainer(*given) as trainer:
            trainer.start()
            trainer.wait()

    yield train, ("dqn", "CartPole-v1", settings)
    with reverie.agents.Trainer("dqn", "CartPole-v1", settings) as trainer:
        trainer.start()
        trainer.wait()
        policy = trainer.policy()
        yield trainer.evaluate, (policy,), {"episodes": 2}
        yield trainer.evaluate, (reverie.nn.Mlp((2, 2)),)
        yield trainer.progress, ()
        yield trainer.episodes, ()


def checkpoint_calls(_client):
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = reverie.checkpointers.DefaultCheckpointer(folder)
        payload = b"p" * 1000
        tables = [table("t", max_size=10)]
        options = {"checkpointer": checkpointer, "durability": "interval", "spill_folder": folder}
        with reverie.Store(tables, memory_bytes=16 << 20, **options) as store:
            client = store.client()
            yield client.insert, (step(), {"t": 1.5})
            yield store.checkpoint, (payload,)
            yield client.sample_batch, ("t", 4)
            yield store.checkpoint, (Wrong(),)


GROUPS = [
    *(client_calls, writer_calls, buffer_calls, pool_calls, batcher_calls, stream_calls),
    *(rpc_calls, group_calls, weights_calls, network_calls, training_calls, checkpoint_calls),
]
OF_ONE_DOOR = {buffer_calls, pool_calls, batcher_calls, rpc_calls, group_calls, weights_calls}
OF_ONE_DOOR |= {network_calls, training_calls, checkpoint_calls}
CASES = [
    pytest.param(group, door, id=f"{group.__name__}-{door}")
    for group in GROUPS
    for door in ("embedded", "served")
    if door == "embedded" or group not in OF_ONE_DOOR
]


def growth(call, arguments, keywords):
    """The growth of each argument's reference count, and of the object count, in ROUNDS calls."""
    passed = [*leaves_of(list(arguments)), *leaves_of(keywords)]

    def go():
        with contextlib.suppress(Exception):
            call(*arguments, **keywords)

    for _ in range(5):  # fills caches, and memory that calls reuse
        go()
    gc.collect()
    before = [sys.getrefcount(leaf) for leaf in passed]
    objects = len(gc.get_objects())
    for _ in range(ROUNDS):
        go()
    gc.collect()
    more = len(gc.get_objects()) - objects
    after = [sys.getrefcount(leaf) for leaf in passed]
    return [(leaf, a - b) for leaf, a, b in zip(passed, after, before, strict=True)], more


@pytest.fixture(scope="module")
def whole_collections():
    """Once this module is done, collections see all objects again."""
    yield
    gc.unfreeze()


@pytest.fixture
def few_objects(whole_collections):  # noqa: ARG001
    """Excludes existing objects from collections, which would take a tenth of a second each."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize(("group", "client"), CASES, indirect=["client"])
@pytest.mark.usefixtures("few_objects")
def test_calls_leave_reference_counts_unchanged(group, client):
    for call, arguments, *keywords in group(client):
        for _ in range(3):  # threads that these calls start allocate objects once
            changes, more = growth(call, arguments, keywords[0] if keywords else {})
            if more < ROUNDS // 2 + SLACK:
                break
        for leaf, change in changes:
            # The whole process shares small numbers, None and the like.
            if isinstance(leaf, int | float | str | bool | None):
                continue
            assert abs(change) < ROUNDS // 2, (call, leaf, change)
        assert more < ROUNDS // 2 + SLACK, (call, arguments, more)


# What is not called again and again: with what says so.
LEFT_OUT = {
    "Server.wait": "waits for a signal",
    "act": "waits for a training that is not there; agents/remote_test.py",
    "tune_cores": "takes a second",
}
# What keeps an argument on purpose, as long as its object: each call has one of its own.
KEEPS = {"moolib.Queue.enqueue": "get() gives what is in the queue"}
EMPTY = ()
# Few, for some calls take long; a reference that each call keeps is seen all the same.
FEW_ROUNDS = 8
# Other threads bring objects of their own, once, and let go of what a call gave them when that has
# ended: a callback of a call to a peer that is not found, for one.
PATIENCE_S = (0.1, 0.5, 20.0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize(("name", "kind", "member"), CALLS, ids=[name for name, _, _ in CALLS])
def test_every_public_call_leaves_reference_counts_unchanged(name, kind, member):
    """Passes valid arguments and then wrong ones, each a separate object."""
    method = member if isinstance(member, str) else None
    function = None if kind is not None else member
    if name in LEFT_OUT:
        pytest.skip(LEFT_OUT[name])
    if kind is not None and kind.__name__ == "TFClient":
        pytest.importorskip("tensorflow")
    if "Atari" in name or name == "make":
        pytest.importorskip("ale_py")
    takes = parameters(kind, method, function)
    with Worlds() as world:
        made = make_call(world, name, kind, method, function)
        arguments = [{one.name: valid(world, name, one.name) for one in takes}]
        if takes:
            arguments.append({one.name: Wrong() for one in takes})
        for given in arguments:

            def call(given=given):
                kept = make_call(world, name, kind, method, function) if name in KEEPS else made
                run(kept, takes, given)

            kept = kept_by(call, given)
            assert not kept, (name, given, kept)


def kept_by(call, arguments):
    """What is held more often, or less, for every second call at least; and the new objects."""
    # Small numbers, None, classes, the one empty tuple and the like belong to the whole process.
    common = int | float | str | bool | None | type
    leaves = [leaf for leaf in leaves_of(arguments) if not isinstance(leaf, common)]
    passed = [leaf for leaf in leaves if leaf is not EMPTY]
    before = [sys.getrefcount(leaf) for leaf in passed]

    def found():
        gc.collect()
        more = len(gc.get_objects()) - objects
        after = [sys.getrefcount(leaf) for leaf in passed]
        changes = [(leaf, a - b) for leaf, a, b in zip(passed, after, before, strict=True)]
        kept = [change for change in changes if abs(change[1]) >= FEW_ROUNDS // 2]
        return kept + [("objects", more)] * (more >= FEW_ROUNDS // 2 + SLACK)

    for limit_s in PATIENCE_S:
        gc.collect()
        objects = len(gc.get_objects())
        for _ in range(FEW_ROUNDS):
            with contextlib.suppress(Exception):
                call()
        with contextlib.suppress(AssertionError):
            eventually(lambda: not found(), limit_s)
            return []
    return found()
