"""Two threads use one object: each call is right, waits, or is refused; no data is torn."""

import contextlib
import gc
import sys
import threading

import gymnasium
import numpy as np
import pytest

import reverie
from eventually import eventually

DEADLINE_S = 60.0
IN_USE = "in use by another call, in another thread"


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
def eager_switches():
    """Makes Python switch threads thousands of times per second."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def at_once(*calls):
    """Runs each call in its own thread; returns the errors raised."""
    start = threading.Barrier(len(calls))
    errors = []

    def run(call):
        start.wait(DEADLINE_S)
        try:
            call()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    return errors


@pytest.fixture(params=["embedded", "served"])
def client(request):
    tables = [table("t", max_size=100), table("empty", max_size=10)]
    home = reverie.Store(tables) if request.param == "embedded" else reverie.Server(tables)
    with home:
        embedded = request.param == "embedded"
        client = home.client() if embedded else reverie.Client(home.address)
        for value in range(100):
            client.insert([np.full((4, 4), value, np.float32)], {"t": 1.0})
        yield client


def is_in_use(batch):
    try:
        return batch.table_size < 0
    except reverie.errors.FailedPreconditionError:
        return True


@contextlib.contextmanager
def refilled(client, batch):
    """Runs the body while another thread is in a call that fills ``batch``."""
    taker = client.sample_batch
    thread = threading.Thread(target=lambda: taker("empty", 1, out=batch), daemon=True)
    thread.start()
    eventually(lambda: is_in_use(batch))
    yield
    client.insert([np.zeros((4, 4), np.float32)], {"empty": 1.0})
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_a_batch_cannot_be_used_while_another_thread_fills_it(client):
    batch = client.sample_batch("t", 8)
    with refilled(client, batch):
        with pytest.raises(reverie.errors.FailedPreconditionError, match=IN_USE):
            client.sample_batch("t", 4, out=batch)
        for look in (lambda: batch.data, lambda: batch.keys, lambda: batch.table_size):
            with pytest.raises(reverie.errors.FailedPreconditionError, match=IN_USE):
                look()
        with pytest.raises(reverie.errors.FailedPreconditionError, match=IN_USE):
            batch.convert(lambda array: array)
    assert len(batch) == 1
    assert len(client.sample_batch("t", 4, out=batch)) == 4


def test_a_batch_is_usable_after_a_failed_call(client):
    batch = client.sample_batch("t", 8)
    with pytest.raises(reverie.DeadlineExceededError):
        client.sample_batch("empty", 1, timeout_s=0.0, out=batch)
    assert len(batch) == 8
    client.sample_batch("t", 2, out=batch)


@pytest.mark.usefixtures("eager_switches")
def test_calls_of_two_threads_with_one_batch_succeed_or_are_refused(client):
    batch = client.sample_batch("t", 8)

    def sample(count):
        for _ in range(300):
            with contextlib.suppress(reverie.errors.FailedPreconditionError):
                client.sample_batch("t", count, out=batch)

    assert at_once(lambda: sample(64), lambda: sample(32)) == []
    assert batch.data[0].shape[0] == len(batch)


def buffer_of(steps):
    buffer = reverie.ReplayBuffer(1000, prioritized=True, seed=1)
    for step in range(steps):
        add(buffer, step)
    return buffer


def add(buffer, step):
    obs, next_obs = np.full((2, 4), step, np.float32)
    buffer.add(obs, step, float(step), next_obs + 1, False)


def test_a_buffers_batch_cannot_be_used_while_another_thread_fills_it():
    buffer = buffer_of(1)
    batch = buffer.sample(2)
    buffer.clear()
    thread = threading.Thread(target=lambda: buffer.sample(2, out=batch, timeout_s=DEADLINE_S))
    thread.start()

    def is_refused():
        try:  # until the other thread is in its call, the buffer is empty for this one
            buffer.sample(2, out=batch)
        except reverie.errors.FailedPreconditionError as error:
            return IN_USE in str(error)

    eventually(is_refused)
    add(buffer, 1)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    buffer.sample(2, out=batch)


@pytest.mark.usefixtures("eager_switches")
def test_many_threads_can_add_sample_and_update_one_buffer():
    buffer = buffer_of(100)

    def sample(count):
        for _ in range(200):
            batch = buffer.sample(count)
            np.testing.assert_array_equal(batch["obs"][:, 0], batch["reward"])
            np.testing.assert_array_equal(batch["next_obs"][:, 0], batch["reward"] + 1)
            buffer.update_priorities(batch["tickets"], np.abs(batch["reward"]) + 1)

    def grow():
        for step in range(100, 1000):
            add(buffer, step)

    assert at_once(lambda: sample(64), lambda: sample(200), grow) == []
    assert len(buffer) == 1000


@pytest.mark.usefixtures("eager_switches")
def test_closing_a_buffer_ends_the_calls_of_other_threads():
    for _ in range(20):
        buffer = buffer_of(50)
        going = threading.Event()

        def use(buffer=buffer, going=going):
            while True:
                batch = buffer.sample(64)
                buffer.update_priorities(batch["tickets"], np.ones(64))
                going.set()

        def close(buffer=buffer, going=going):
            going.wait(DEADLINE_S)
            buffer.close()

        errors = at_once(use, use, close)
        assert len(errors) == 2
        assert all(isinstance(error, reverie.errors.CancelledError) for error in errors), errors


def test_priorities_that_change_while_they_are_read_are_checked_as_stored():
    # The priorities that were checked must be those stored: a NaN would break every later draw.
    buffer = buffer_of(500)
    tickets = buffer.sample(500)["tickets"]
    priorities = np.ones(500)
    is_over = threading.Event()

    def spoil():
        while not is_over.is_set():
            priorities[:] = np.nan
            priorities[:] = 1.0

    thread = threading.Thread(target=spoil)
    thread.start()
    for _ in range(300):
        with contextlib.suppress(reverie.errors.InvalidArgumentError):
            buffer.update_priorities(tickets, priorities)
    is_over.set()
    thread.join(DEADLINE_S)
    assert np.isfinite(buffer.sample(64)["weights"]).all()
    assert np.isfinite(buffer.max_priority)


def test_several_threads_can_share_a_dataset(client):
    with client.dataset("t", 4, timeout_s=5.0) as batches:

        def take():
            for _ in range(50):
                assert next(batches).data[0].shape == (4, 1, 4, 4)

        assert at_once(take, take, take) == []
        end = at_once(lambda: [None for _ in batches], batches.close, batches.close)
        assert end == []


@pytest.mark.usefixtures("eager_switches")
def test_rows_batched_by_several_threads_come_out_once():
    # Every second item is converted, by code that lets other threads run in between.
    size, count = 4, 400
    batcher = reverie.Batcher(size, queue_size=8)
    rows = []

    def put(first):
        for value in range(first, first + count):
            dtype = np.float64 if value % 2 else np.float32
            batcher.stack({"x": np.full(2000, value, dtype)})

    def take():
        for _ in range(3 * count // size):
            rows.extend(batcher.get()["x"][:, 0].tolist())

    assert at_once(lambda: put(0), lambda: put(1000), lambda: put(2000), take) == []
    expected = [value for first in (0, 1000, 2000) for value in range(first, first + count)]
    assert sorted(rows) == expected
    assert batcher.filled == 0


class Wide:
    """An environment whose observations take long to copy."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (500_000,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        return np.zeros(500_000, np.float32), {}

    def step(self, action):  # noqa: ARG002
        return np.zeros(500_000, np.float32), 0.0, False, False, {}


def test_closing_a_pool_ends_a_call_that_gathers_results():
    pool = reverie.EnvPool(Wide, 4, num_workers=1, backend="process", batch_size=2)
    going = threading.Event()

    def use():
        batch = pool.reset().result()
        while True:
            ids = batch.env_ids.copy()
            batch = pool.step(np.zeros(2, int), env_ids=ids).result()
            going.set()

    def close():
        going.wait(DEADLINE_S)
        pool.close()

    (error,) = at_once(use, close)
    assert isinstance(error, reverie.errors.FailedPreconditionError | reverie.errors.CancelledError)


def test_several_threads_can_stop_a_server_at_once():
    server = reverie.Server([table("t", max_size=10)])
    assert at_once(*[lambda: server.stop(grace_s=0.5)] * 3) == []


class Other:
    """A thread that runs only when a call releases the interpreter's lock.

    No thread is forced to release the lock meanwhile, so each turn counted here was a release.
    """

    def __enter__(self):
        self.turns = 0
        self._is_over = False
        self._interval = sys.getswitchinterval()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        sys.setswitchinterval(1000.0)
        eventually(lambda: self.turns > 3)  # an earlier request for the lock is over
        return self

    def _run(self):
        pause = threading.Event()
        while not self._is_over:
            self.turns += 1
            pause.wait(1e-5)

    def turns_during(self, call):
        before = self.turns
        call()
        return self.turns - before

    def __exit__(self, *error):
        self._is_over = True
        sys.setswitchinterval(self._interval)
        self._thread.join(DEADLINE_S)


def brief_calls():
    buffer = buffer_of(500)
    batch = buffer.sample(256)
    priorities = np.ones(256)
    store = reverie.Store([table("t", max_size=1000)])
    client = store.client()
    step = {"x": np.zeros(8, np.float32)}
    for _ in range(300):
        client.insert(step, {"t": 1.0})
    out = client.sample_batch("t", 64)
    return {
        "sample": lambda: buffer.sample(256, out=batch),
        "update": lambda: buffer.update_priorities(batch["tickets"], priorities),
        "add": lambda: add(buffer, 1),
        "sample_batch": lambda: client.sample_batch("t", 64, out=out),
        "update_priorities": lambda: client.update_priorities("t", out.tickets, np.ones(64)),
        "priorities": lambda: client.priorities("t", out.keys),
        "insert": lambda: client.insert(step, {"t": 1.0}),
        "sample one": lambda: next(client.sample("t")),
    }


def test_brief_calls_do_not_release_the_gil():
    calls = brief_calls()
    turns = {}

    def are_kept():
        gc.collect()  # objects of earlier tests release the lock when they are closed
        for name, call in calls.items():
            turns[name] = other.turns_during(lambda call=call: [call() for _ in range(100)])
        return sum(turns.values()) <= 3  # a call that releases the lock would have 100

    with Other() as other:
        try:
            eventually(are_kept)
        except AssertionError:
            raise AssertionError(
                f"turns of another thread in 100 calls: {turns}, besides {threading.enumerate()}"
            ) from None


def test_large_calls_and_waits_release_the_gil():
    buffer = reverie.ReplayBuffer(100, seed=1)
    frame = np.zeros((84, 84), np.uint8)
    for _ in range(50):
        buffer.add(frame, 0, 0.0, frame, False)
    client = reverie.Store([table("t", max_size=10)]).client()
    large = reverie.Store([table("t", max_size=10)]).client()
    large.insert({"x": np.zeros(1 << 20, np.uint8)}, {"t": 1.0})

    def wait():
        with pytest.raises(reverie.DeadlineExceededError):
            client.sample_batch("t", 1, timeout_s=0.05)

    with Other() as other:
        eventually(lambda: other.turns_during(lambda: buffer.sample(256)) > 0)
        eventually(lambda: other.turns_during(lambda: next(large.sample("t"))) > 0)
        eventually(lambda: other.turns_during(wait) > 0)
