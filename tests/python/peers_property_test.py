"""Random programs of three threads over peers: calls, streams, queues, groups, weights, gradients.

As in ``threads_property_test.py``, each rule gives one call, valid or not, to one of three threads.
A call has the right result or raises an error of the package, and no call waits for ever.
"""

import math
import os
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import reverie
from calling_threads import CallingThread

THREADS = 3

MEMBERS = 2
WIDTH = 2000

threads = st.integers(0, THREADS - 1)
timeouts = st.sampled_from([0.0, 0.001, 0.02, 0.5])
names = st.sampled_from(["echo", "echo", "fails", "never", "rows", "queue", "nowhere", ""])
peers = st.sampled_from(["server", "server", "server", "client", "absent", ""])
values = st.sampled_from([1, -1.5, "text", [1, {"a": (2, None)}], object(), math.nan, b"x" * 100])
numbers = st.integers(0, 1000)
sides = st.integers(0, MEMBERS - 1)
callers = st.sampled_from([1, 1, 1, 0])  # the server only takes part sometimes


def whole(value, width=WIDTH):
    """An array with all elements equal to ``value``."""
    return np.full(width, value, np.float32)


def check_whole(array):
    """Checks that all elements of an array are equal."""
    assert array.min() == array.max()


def fails(*_):
    """A user's function that raises."""
    raise ValueError("as it was told to")


class Peers(RuleBasedStateMachine):
    @initialize(number=st.integers(0, 2**32), shares=st.booleans())
    def begin(self, number, shares):  # noqa: ARG002
        self.errors = []
        self.workers = [CallingThread(self.errors) for _ in range(THREADS)]
        self.broker = reverie.Broker()
        address = self.broker.listen()
        options = {"find_timeout_s": 0.2, "timeout_s": 5.0, "max_pending_calls": 100}
        self.rpcs = [reverie.Rpc(name, **options) for name in ("server", "client")]
        for rpc in self.rpcs:
            rpc.connect(address)
        server = self.rpcs[0]
        self.rpcs[1].connect(server.listen())
        server.define("echo", lambda *args: args)
        server.define("fails", fails)
        server.define_deferred("never", lambda *_: None)
        server.define_stream("rows", lambda count=5, *_: (whole(i) for i in range(count)))
        self.queue = server.define_queue("queue")
        self.groups = [reverie.Group(rpc, "g", shared_memory=shares) for rpc in self.rpcs]
        self.weights = [
            reverie.Weights(self.rpcs[0], "w"),
            reverie.Weights(self.rpcs[1], "w", sources=["server"], shared_memory=shares),
        ]
        self.models = [whole(0), whole(0)]
        self.accumulators = [
            reverie.Accumulator("a", [model], group=group)
            for model, group in zip(self.models, self.groups, strict=True)
        ]
        self.rpcs[1].sync("server", "echo", 1)
        for group in self.groups:
            group.wait(MEMBERS)
        self.version = 0
        self.futures = []
        self.stream = None

    def do(self, thread, call):
        self.workers[thread].do(call)

    # --- Calls.

    @rule(thread=threads, peer=peers, name=names, value=values, timeout_s=timeouts, side=callers)
    def call(self, thread, peer, name, value, timeout_s, side):
        def call():
            got = self.rpcs[side].sync(peer, name, value, timeout_s=timeout_s)
            if name == "echo":
                assert got == (value,) or value != value

        self.do(thread, call)

    @rule(thread=threads, name=names, number=numbers, side=callers)
    def begin_a_call(self, thread, name, number, side):
        def call():
            future = self.rpcs[side].async_("server", name, whole(number), timeout_s=1.0)
            self.futures = [*self.futures[-9:], (future, name, number)]

        self.do(thread, call)

    @rule(
        thread=threads, timeout_s=timeouts, how=st.sampled_from(["result", "cancel", "exception"])
    )
    def end_a_call(self, thread, timeout_s, how):
        def call():
            for future, name, number in self.futures[-3:]:
                if how == "cancel":
                    future.cancel()
                    continue
                got = getattr(future, how)(timeout_s)
                if how == "result" and name == "echo":
                    np.testing.assert_array_equal(got[0], whole(number))

        self.do(thread, call)

    @rule(thread=threads, name=names, is_gone=st.booleans(), side=sides)
    def define(self, thread, name, is_gone, side):
        rpc = self.rpcs[side]
        mine = f"of-{name}"
        self.do(thread, lambda: rpc.undefine(mine) if is_gone else rpc.define(mine, fails))

    @rule(thread=threads, address=st.sampled_from(["127.0.0.1:1", "x", "", "unix:@reverie-none"]))
    def connect(self, thread, address):
        self.do(thread, lambda: self.rpcs[1].connect(address))

    @rule(thread=threads, timeout_s=timeouts)
    def take(self, thread, timeout_s):
        def call():
            answer, args, _ = self.queue.get(timeout_s)
            answer(args)

        self.do(thread, call)

    @rule(thread=threads, side=sides)
    def ask(self, thread, side):
        def call():
            rpc = self.rpcs[side]
            rpc.debug_info()
            rpc.peers()
            rpc.functions()
            len(self.queue)
            self.broker.groups()
            rpc.ping("server", timeout_s=1.0)

        self.do(thread, call)

    # --- Streams, one of which is shared by all threads.

    @rule(thread=threads, count=st.integers(-1, 40), window=st.sampled_from([0, 1, 3, 16]))
    def iterate(self, thread, count, window):
        def call():
            with self.rpcs[1].stream("server", "rows", count, window=window) as stream:
                for number, row in enumerate(stream):
                    np.testing.assert_array_equal(row, whole(number))

        self.do(thread, call)

    @rule(thread=threads, how=st.sampled_from(["new", "next", "next", "send", "finish", "close"]))
    def share_a_stream(self, thread, how):
        def call():
            if how == "new" or self.stream is None:
                self.stream = self.rpcs[1].stream("server", "rows", 100, timeout_s=1.0)
            elif how == "next":
                check_whole(next(self.stream))
            elif how == "send":
                self.stream.send(1)
            else:
                getattr(self.stream, how)()

        self.do(thread, call)

    # --- Groups.

    def do_both(self, thread, call):
        """Calls on both members, from two threads."""
        for side in range(MEMBERS):
            self.do((thread + side) % THREADS, lambda side=side: call(side))

    @rule(thread=threads, number=numbers, op=st.sampled_from(["sum", "max", "mode"]))
    def reduce(self, thread, number, op):
        def call(side):
            group, name = self.groups[side], f"round-{op}-{number % 3}"
            check_whole(group.all_reduce(name, whole(number), op, timeout_s=0.3).result())

        self.do_both(thread, call)

    @rule(thread=threads, how=st.sampled_from(["all_gather", "barrier", "broadcast"]))
    def gather(self, thread, how):
        def call(side):
            group = self.groups[side]
            options = {"source": "server"} if how == "broadcast" else {}
            if how != "barrier":
                options["value"] = side
            round_ = getattr(group, how)(f"round-{how}", timeout_s=0.3, **options)
            got = round_.result()
            if how == "all_gather":
                assert set(got.items()) <= {("server", 0), ("client", 1)}
            if how == "broadcast":
                assert got == 0
            round_.cancel()

        self.do_both(thread, call)

    @rule(thread=threads, side=sides, count=st.integers(0, MEMBERS), timeout_s=timeouts)
    def wait_for_members(self, thread, side, count, timeout_s):
        def call():
            group = self.groups[side]
            group.update()
            group.why_waiting()
            assert len(group.wait(count, timeout_s)) >= count

        self.do(thread, call)

    # --- Weights, which the server publishes.

    @rule(thread=threads, step=st.integers(0, 2))
    def publish(self, thread, step):
        self.version += step
        version = self.version
        self.do(thread, lambda: self.weights[0].publish(version, {"w": whole(version)}))

    @rule(thread=threads, side=callers, timeout_s=timeouts, how=st.sampled_from(["pull", "wait"]))
    def pull(self, thread, side, timeout_s, how):
        def call():
            got = getattr(self.weights[side], how)(timeout_s=timeout_s)
            if got is not None:
                np.testing.assert_array_equal(got.value["w"], whole(got.version))

        self.do(thread, call)

    # --- Gradients: each accumulator belongs to one thread, and refuses all others.

    @rule(thread=st.sampled_from([None, None, 2]), side=sides, size=st.integers(-1, 3))
    def accumulate(self, thread, side, size):
        def call():
            accumulator = self.accumulators[side]
            accumulator.update()
            if accumulator.wants_state():
                accumulator.set_state({"step": 1})
            if accumulator.has_new_state():
                accumulator.state()
            if accumulator.has_gradients():
                check_whole(accumulator.gradients()[0])
                accumulator.zero_gradients()
            elif accumulator.wants_gradients():
                accumulator.reduce_gradients(size, [whole(size)])

        self.do(side if thread is None else thread, call)

    @rule(thread=threads, side=sides)
    def look_at_an_accumulator(self, thread, side):
        def call():
            accumulator = self.accumulators[side]
            accumulator.get_gradient_stats()
            accumulator.why_waiting()
            check_whole(accumulator.parameters()[0])
            accumulator.state()

        self.do(thread, call)

    # --- The end.

    @rule(
        thread=threads,
        side=sides,
        what=st.sampled_from(["accumulators", "weights", "groups", "rpcs", *["none"] * 20]),
    )
    def close_one(self, thread, side, what):
        if what == "none":
            return
        one = getattr(self, what)[side]
        self.do(thread, one.leave if what == "groups" else one.close)

    @rule()
    def settle(self):
        for worker in self.workers:
            worker.settle()
        assert self.errors == []

    def teardown(self):
        if not hasattr(self, "workers"):
            return
        closes = [part.close for part in (*self.accumulators, *self.weights, *self.rpcs)]
        for index, close in enumerate([*closes, self.broker.close]):
            self.do(index % THREADS, close)
        for worker in self.workers:
            worker.stop()
        assert self.errors == []


def run_programs(number, examples, steps):
    print(f"REVERIE_SEED={number}")
    rules = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # no shrinking, since threads do not repeat what they did
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(Peers), settings=rules)


def test_random_programs_of_peers_behave_correctly_or_are_refused():
    run_programs(int(os.environ.get("REVERIE_SEED", "1")), examples=6, steps=40)


@pytest.mark.full(minutes=3)
@pytest.mark.timeout(900)
def test_a_minute_of_random_programs_of_peers_behaves_correctly():
    number = int(os.environ.get("REVERIE_SEED", random.randrange(2**32)))
    run_programs(number, examples=150, steps=60)
