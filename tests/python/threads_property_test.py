"""Random programs of three threads over a store, a server, writers, a buffer, a pool and a batcher.

Each rule gives one call, valid or not, to one of three threads, which run them in parallel. A call
has the right result or raises an error of the package. What comes out of a table was inserted
completely, also if it was spilled meanwhile, or restored from a checkpoint and its journal.
"""

import contextlib
import math
import os
import random
import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import reverie
from calling_threads import CallingThread
from reverie import structured
from reverie.envs.native import NativePool
from reverie.errors import InvalidArgumentError

THREADS = 3
WIDTH = 4
MEMORY = 16 << 20
# The bytes of a large step, with which the memory is soon full.
LARGE = 1 << 20

threads = st.integers(0, THREADS - 1)
table_names = st.sampled_from(["a", "a", "signed", "queue", "nowhere", ""])
counts = st.sampled_from([1, 2, 7, 64, 300, 0, -1])
timeouts = st.sampled_from([0.0, 0.001, 0.01])
values = st.integers(0, 1000)
priorities = st.sampled_from([0.0, 0.5, 1.0, 10.0, -1.0, math.nan, math.inf, None])


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


def whole(value):
    """A step with all numbers equal to ``value``."""
    return {"x": np.full(WIDTH, value, np.float32), "n": np.int64(value)}


def large(value):
    """A step that takes a large part of the memory of a store that spills."""
    return {"n": np.int64(value), "x": np.full((LARGE // 4 // WIDTH, WIDTH), value, np.float32)}


def other(value):
    """A step that the signatures here do not allow."""
    return {"x": np.full((WIDTH, 2), value, np.float64), "n": np.int64(value)}


def check_whole(data):
    """Checks that a step's columns belong together."""
    if isinstance(data, list):  # from a server's table without a signature: sorted by name
        data = dict(zip(("n", "x"), data, strict=True))
    numbers, rows = data["n"], data["x"]
    if rows.shape[-1] == WIDTH:
        numbers = numbers.reshape(numbers.shape + (1,) * (rows.ndim - numbers.ndim))
        np.testing.assert_array_equal(rows, np.broadcast_to(numbers, rows.shape))


def tables_of(number):
    """The tables of a program; ``number`` is a seed."""
    signature = {
        "x": reverie.TensorSpec((None, WIDTH), np.float32),
        "n": reverie.TensorSpec((None,), np.int64),
    }
    return [
        table("a", sampler=reverie.selectors.Prioritized(0.6, seed=number), max_size=50),
        table("signed", max_size=20, signature=signature),
        reverie.Table.queue("queue", 5),
        table("large", max_size=40),
    ]


def on_disk():
    """A folder on a disk to spill to; None if there is no disk."""
    folder = tempfile.TemporaryDirectory(dir=os.environ.get("REVERIE_DISK"))
    try:
        reverie.Store(
            [reverie.Table.queue("q", 1)], memory_bytes=MEMORY, spill_folder=folder.name
        ).close()
    except InvalidArgumentError:  # the folder is in memory
        folder.cleanup()
        return None
    return folder


class Threads(RuleBasedStateMachine):
    @initialize(
        is_served=st.booleans(),
        number=st.integers(0, 2**32),
        durability=st.sampled_from([None, "none", "interval", "sync"]),
        has_file=st.booleans(),
    )
    def begin(self, is_served, number, durability, has_file):
        tables = tables_of(number)
        self.number, self.options, self.spill = number, {}, on_disk() if has_file else None
        self.folder = None if durability is None else tempfile.TemporaryDirectory()
        if self.folder:
            self.options["checkpointer"] = reverie.checkpointers.DefaultCheckpointer(
                self.folder.name, keep=1 + number % 2
            )
            self.options["durability"] = durability
        if self.spill:
            self.options |= {"memory_bytes": MEMORY, "spill_folder": self.spill.name}
        home = reverie.Server if is_served else reverie.Store
        self.home = home(tables, **self.options)
        self.client = reverie.Client(self.home.address) if is_served else self.home.client()
        self.errors = []
        self.workers = [CallingThread(self.errors) for _ in range(THREADS)]
        self.client.insert(whole(1), {"a": 1.0})
        self.batch = self.client.sample_batch("a", 1)
        self.writer = self.client.trajectory_writer(4, max_in_flight_items=8)
        self.legacy = self.client.writer(4, max_in_flight_items=8)
        pattern = structured.pattern_from_transform(
            {"x": None, "n": None}, lambda step: {"x": step["x"][-2:], "n": step["n"][-2:]}
        )
        self.structured = self.client.structured_writer(
            [structured.create_config(pattern, "a")], max_in_flight_items=8
        )
        self.buffer = reverie.ReplayBuffer(50, prioritized=True, seed=number)
        self.buffer_batch = None
        self.pool = NativePool("CartPole-v1", 3, num_threads=2, first_step_resets=True, seed=1)
        self.batcher = reverie.Batcher(3, queue_size=2, timeout_s=0.01)

    # --- The store.

    @rule(thread=threads, table=table_names, value=values, priority=priorities, timeout_s=timeouts)
    def insert(self, thread, table, value, priority, timeout_s):
        step = {table: priority}
        self.workers[thread].do(lambda: self.client.insert(whole(value), step, timeout_s=timeout_s))

    @rule(thread=threads, table=table_names, value=values, timeout_s=timeouts)
    def insert_another(self, thread, table, value, timeout_s):
        self.workers[thread].do(
            lambda: self.client.insert(
                other(value), {table: 1.0, "signed": 1.0}, timeout_s=timeout_s
            )
        )

    @rule(
        thread=threads, table=table_names, count=counts, timeout_s=timeouts, is_shared=st.booleans()
    )
    def sample(self, thread, table, count, timeout_s, is_shared):
        out = self.batch if is_shared else None

        def call():
            batch = self.client.sample_batch(
                table, count, timeout_s=timeout_s, pad=True, beta=0.4, out=out
            )
            if not is_shared:
                check_whole(batch.data)
                assert np.isfinite(batch.weights).all()

        self.workers[thread].do(call)

    @rule(thread=threads)
    def look_at_the_batch(self, thread):
        self.workers[thread].do(lambda: (self.batch.data, self.batch.keys.sum(), len(self.batch)))

    @rule(thread=threads, table=table_names, count=counts, priority=priorities)
    def update(self, thread, table, count, priority):
        def call():
            tickets = self.client.sample_batch("a", 8, timeout_s=0.0, pad=True).tickets
            self.client.update_priorities(table, tickets[:count], [priority] * max(0, count))

        self.workers[thread].do(call)

    @rule(thread=threads, table=table_names, keys=st.lists(st.integers(-1, 2**64), max_size=3))
    def delete(self, thread, table, keys):
        self.workers[thread].do(lambda: self.client.delete(table, keys, timeout_s=1.0))

    @rule(thread=threads, table=table_names)
    def ask(self, thread, table):
        def call():
            self.client.server_info()
            str(self.client.why_blocked(table))
            self.client.priorities(table, [1, 2])

        self.workers[thread].do(call)

    @rule(thread=threads, table=table_names)
    def reset(self, thread, table):
        self.workers[thread].do(lambda: self.client.reset(table, timeout_s=1.0))

    @rule(thread=threads, table=table_names, count=counts)
    def iterate(self, thread, table, count):
        def call():
            with self.client.dataset(table, count, timeout_s=0.0, pad=True) as batches:
                for batch, _ in zip(batches, range(3), strict=False):
                    check_whole(batch.data)

        self.workers[thread].do(call)

    @rule(thread=threads, value=values, count=counts)
    def insert_much(self, thread, value, count):
        """Inserts large steps, which after some calls exceed the memory of a store that spills."""

        def call():
            for i in range(min(count, 7)):
                self.client.insert(large(value + i), {"large": 1.0}, timeout_s=0.1)

        self.workers[thread].do(call)

    @rule(thread=threads, count=counts)
    def sample_much(self, thread, count):
        def call():
            data = self.client.sample_batch("large", count, timeout_s=0.0, pad=True).data
            check_whole(data)

        self.workers[thread].do(call)

    # --- What survives the store.

    @rule(thread=threads, payload=st.sampled_from([b"", b"step", "text", None]))
    def write_a_checkpoint(self, thread, payload):
        self.workers[thread].do(lambda: self.home.checkpoint(payload, timeout_s=10.0))

    @rule(thread=threads)
    def ask_for_a_checkpoint(self, thread):
        self.workers[thread].do(lambda: self.client.checkpoint(timeout_s=10.0))

    @rule(thread=threads)
    def look_at_what_is_kept(self, thread):
        def call():
            assert self.home.journal_error is None
            assert self.home.loaded_checkpoint is None
            assert self.home.loaded_payload is None

        self.workers[thread].do(call)

    # --- Writers, which three threads share: all but one call at a time are refused.

    @rule(thread=threads, value=values, is_other=st.booleans())
    def append(self, thread, value, is_other):
        step = other(value) if is_other else whole(value)
        self.workers[thread].do(lambda: self.writer.append(step))

    @rule(thread=threads, table=table_names, count=st.integers(-1, 6), priority=priorities)
    def create_item(self, thread, table, count, priority):
        def call():
            history = self.writer.history
            item = {name: history[name][-count:] for name in ("x", "n")}
            self.writer.create_item(table, priority, item, timeout_s=0.01)

        self.workers[thread].do(call)

    @rule(thread=threads, timeout_s=timeouts, clears=st.booleans())
    def end_episode(self, thread, timeout_s, clears):
        self.workers[thread].do(lambda: self.writer.end_episode(clears, timeout_s=timeout_s))

    @rule(thread=threads, value=values, table=table_names, count=st.integers(-1, 6))
    def write_legacy(self, thread, value, table, count):
        def call():
            self.legacy.append(whole(value))
            self.legacy.create_item(table, count, 1.0, timeout_s=0.01)

        self.workers[thread].do(call)

    @rule(thread=threads, timeout_s=timeouts)
    def flush_legacy(self, thread, timeout_s):
        self.workers[thread].do(lambda: self.legacy.flush(timeout_s=timeout_s))

    @rule(thread=threads, value=values, is_other=st.booleans(), ends=st.booleans())
    def write_structured(self, thread, value, is_other, ends):
        step = other(value) if is_other else whole(value)

        def call():
            self.structured.append(step, timeout_s=0.01)
            if ends:
                self.structured.end_episode(timeout_s=0.01)

        self.workers[thread].do(call)

    @rule(thread=threads, which=st.sampled_from(["writer", "legacy", "structured"]))
    def close_a_writer(self, thread, which):
        writer = getattr(self, which)
        keywords = {"timeout_s": 0.01} if which == "legacy" else {}
        self.workers[thread].do(lambda: writer.close(**keywords))

    # --- The buffer, the pool and the batcher.

    @rule(thread=threads, value=values, is_over=st.booleans(), is_other=st.booleans())
    def add(self, thread, value, is_over, is_other):
        step = np.full((WIDTH, 2) if is_other else WIDTH, value, np.float32)
        self.workers[thread].do(lambda: self.buffer.add(step, value, value, step, is_over))

    @rule(thread=threads, count=counts, priority=priorities, is_shared=st.booleans())
    def learn(self, thread, count, priority, is_shared):
        def call():
            batch = self.buffer.sample(count, out=self.buffer_batch if is_shared else None)
            if not is_shared:
                first = batch["obs"].reshape(count, -1)[:, 0]  # its shape is that of the first step
                np.testing.assert_array_equal(first, batch["reward"])
                self.buffer_batch = batch
            self.buffer.update_priorities(batch["tickets"], [priority or 0.0] * count)

        self.workers[thread].do(call)

    @rule(thread=threads)
    def clear(self, thread):
        self.workers[thread].do(lambda: self.buffer.clear())

    @rule(thread=threads, action=st.integers(-1, 2))
    def step(self, thread, action):
        self.workers[thread].do(lambda: self.pool.step(np.full(3, action)).result(timeout_s=1.0))

    @rule(thread=threads)
    def reset_pool(self, thread):
        self.workers[thread].do(lambda: self.pool.reset(1).result(timeout_s=1.0))

    @rule(thread=threads, value=values, is_other=st.booleans())
    def stack(self, thread, value, is_other):
        step = other(value) if is_other else whole(value)
        self.workers[thread].do(lambda: self.batcher.stack(step))

    @rule(thread=threads, flushes=st.booleans())
    def take(self, thread, flushes):
        def call():
            if flushes:
                self.batcher.flush()
            check_whole(self.batcher.get(timeout_s=0.0))

        self.workers[thread].do(call)

    # --- The end.

    @rule()
    def settle(self):
        for worker in self.workers:
            worker.settle()
        assert self.errors == []
        for info in self.client.server_info().values():
            assert 0 <= info.current_size <= info.max_size

    def teardown(self):
        if not hasattr(self, "workers"):
            return
        closes = [self.buffer.close, self.pool.close, self.batcher.close, self.writer.close]
        for index, close in enumerate(closes):
            self.workers[index % THREADS].do(close)
        for worker in self.workers:
            worker.stop()
        with contextlib.suppress(reverie.ReverieError):
            self.legacy.close(timeout_s=0.0)
        self.structured.close()
        sizes = {name: one.current_size for name, one in self.client.server_info().items()}
        (self.home.close if isinstance(self.home, reverie.Store) else self.home.stop)()
        assert self.errors == []
        if self.folder:
            self.check_what_is_kept(sizes)
            self.folder.cleanup()
        if self.spill:
            assert os.listdir(self.spill.name) == []
            self.spill.cleanup()

    def check_what_is_kept(self, sizes):
        """A store restored from the folder has complete items, and with a journal all of them."""
        with reverie.Store(tables_of(self.number), **self.options) as again:
            client = again.client()
            for name, info in client.server_info().items():
                if self.options["durability"] != "none":
                    assert info.current_size == sizes[name], name
                for _ in range(min(info.current_size, 5)):
                    check_whole(client.sample_batch(name, 1, timeout_s=1.0).data)


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
    # `seed` decorates a test function, which here is the class.
    run_state_machine_as_test(seed(number)(Threads), settings=rules)


def test_random_programs_of_three_threads_behave_correctly_or_are_refused():
    run_programs(int(os.environ.get("REVERIE_SEED", "1")), examples=8, steps=40)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_minute_of_random_programs_of_three_threads_behaves_correctly():
    number = int(os.environ.get("REVERIE_SEED", random.randrange(2**32)))
    run_programs(number, examples=300, steps=60)
