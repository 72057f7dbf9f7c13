"""Repeated calls do not make the process grow, as the kernel counts its memory."""

import contextlib
import gc
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

import reverie

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
GROWTH_MAX_MIB = 6
ALL_CALLS = 100_000


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


@contextlib.contextmanager
def peers():
    with reverie.Rpc("server") as server, reverie.Rpc("caller", find_timeout_s=0.01) as caller:
        caller.connect(server.listen())
        server.define("echo", lambda value: value)
        server.define_stream("rows", lambda x: [x, x])
        server.define_deferred("never", lambda *_: None)
        caller.sync("server", "echo", 1)
        yield server, caller


@contextlib.contextmanager
def small_calls():
    with peers() as (_, caller):
        value = {"a": [1, 2.5, "text"], "b": np.zeros(10)}
        yield lambda: caller.sync("server", "echo", value)


@contextlib.contextmanager
def large_calls():
    with peers() as (_, caller):
        array = np.zeros(MIB, np.uint8)
        yield lambda: caller.sync("server", "echo", array)


@contextlib.contextmanager
def calls_that_are_given_up():
    with peers() as (_, caller):
        yield lambda: caller.async_("server", "never", "x" * 1000).cancel()


@contextlib.contextmanager
def calls_that_fail():
    with peers() as (_, caller):
        # Each name is used once: what is known about a name must be freed with its call.
        names = (f"nothing-{number}" for number in range(1 << 30))

        def call():
            with contextlib.suppress(reverie.ReverieError):
                caller.sync("server", next(names))

        yield call


@contextlib.contextmanager
def streams():
    with peers() as (_, caller):
        array = np.zeros(1000)
        yield lambda: list(caller.stream("server", "rows", array))


@contextlib.contextmanager
def peers_that_come_and_go():
    with peers() as (server, _):
        address = server.addresses[0]

        def call():
            with reverie.Rpc(transports=["tcp"]) as rpc:
                rpc.connect(address)
                rpc.sync("server", "echo", 1)

        yield call


@contextlib.contextmanager
def rounds():
    with reverie.Broker() as broker, reverie.Rpc("member") as rpc:
        rpc.connect(broker.listen())
        with reverie.Group(rpc, "g") as group:
            group.wait(1)
            array = np.zeros(10_000, np.float32)
            yield lambda: group.all_reduce("sum", array).result()


@contextlib.contextmanager
def weights():
    with peers() as (server, caller):
        published = reverie.Weights(server, "w")
        taken = reverie.Weights(caller, "w", sources=["server"])
        array = np.zeros(100_000, np.float32)
        versions = iter(range(1 << 30))

        def call():
            published.publish(next(versions), array)
            taken.pull()

        yield call


@contextlib.contextmanager
def networks():
    net = reverie.nn.Mlp((64, 64, 4), seed=1)
    adam, inputs, outputs = reverie.nn.Adam(net), np.ones((32, 64)), np.ones((32, 4))

    def call():
        net.forward(inputs)
        adam.step(net, net.backward(outputs))
        net.copy()

    yield call


@contextlib.contextmanager
def trainings():
    settings = reverie.TrainSettings(
        seed=1, steps=60, warmup_steps=50, hidden=(4,), capacity=1000, actors=0
    )

    def call():
        with reverie.agents.Trainer("dqn", "CartPole-v1", settings) as trainer:
            trainer.start()
            trainer.wait()
            trainer.evaluate(episodes=1)

    yield call


@contextlib.contextmanager
def checkpoints():
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = reverie.checkpointers.DefaultCheckpointer(folder)
        tables = [reverie.Table.queue("q", 100)]
        with reverie.Store(tables, checkpointer=checkpointer, durability="interval") as store:
            client = store.client()
            step = {"x": np.zeros(1000, np.float32)}

            def call():
                client.insert(step, {"q": 1.0})
                store.checkpoint(b"payload")
                client.sample_batch("q", 1)

            yield call


# The number of calls in a quick run, and the divisor of ALL_CALLS in a full run.
CASES = {
    small_calls: (3000, 1),
    large_calls: (200, 50),
    calls_that_are_given_up: (2000, 1),
    calls_that_fail: (2000, 1),
    streams: (300, 10),
    peers_that_come_and_go: (100, 100),
    rounds: (1000, 1),
    weights: (300, 10),
    networks: (2000, 1),
    trainings: (40, 500),
    checkpoints: (60, 500),
}


def check(case, count):
    with case() as call:
        for _ in range(max(20, count // 4)):
            call()
        gc.collect()
        before = resident_bytes()
        for _ in range(count):
            call()
        gc.collect()
        growth = (resident_bytes() - before) / MIB
    print(f"\n{case.__name__}, {count} times: resident {growth:+.1f} MiB", end="")
    assert growth < GROWTH_MAX_MIB


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_repeated_calls_do_not_grow_resident_memory(case):
    check(case, CASES[case][0])


@pytest.mark.full(minutes=0.1)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_hundred_thousand_calls_do_not_grow_resident_memory(case):
    check(case, ALL_CALLS // CASES[case][1])
