"""Single items, as Reverb's clients get them: what is drawn ahead, and what an item holds."""

import contextlib
import dataclasses
import threading
import time
from typing import Any

import numpy as np
import pytest

import reverie
from reverie import errors


def table(name, **options):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        **options,
    )


@pytest.fixture(params=["embedded", "one", "shards"])
def store(request):
    """A client of two tables, embedded or of one or two servers."""
    tables = lambda: [table("t"), table("spent", max_times_sampled=1)]  # noqa: E731
    if request.param == "embedded":
        with reverie.Store(tables()) as store:
            yield store.client()
        return
    servers = [reverie.Server(tables()) for _ in range(2 if request.param == "shards" else 1)]
    addresses = [f"localhost:{server.port}" for server in servers]
    yield reverie.Client(addresses if len(addresses) > 1 else addresses[0])
    for server in servers:
        server.stop(grace_s=0)


def write(client, name, count, **columns):
    """Inserts items of one step each; `columns` are functions of the step's number."""
    with client.trajectory_writer(1) as writer:
        for i in range(count):
            writer.append({key: column(i) for key, column in columns.items()})
            item = {key: writer.history[key][-1:] for key in columns}
            writer.create_item(name, 1.0 + i, item)
            writer.end_episode()


def test_every_item_is_complete_and_shares_no_memory(store):
    write(store, "t", 50, x=lambda i: np.full(100, i, np.float32), n=lambda i: np.int64(i))
    samples = list(store.sample("t", 500, emit_timesteps=False))
    assert len(samples) == 500
    for sample in samples:
        n, x = sample.data
        assert x.shape == (1, 100)
        assert (x == n[0]).all()
        assert sample.info.priority == 1.0 + n[0]
        assert sample.info.table_size <= 50  # the first sample only knows one shard
        assert sample.info.times_sampled >= 1
        assert [type(field) for field in sample.info] == [int, float, int, float, int]
        x += 1  # must change no other item
    first, second = samples[-2:]
    assert first.info.table_size == 50
    assert not np.shares_memory(first.data[0], second.data[0])
    assert isinstance(first, reverie.ReplaySample)
    assert isinstance(first.info, reverie.SampleInfo)
    assert store.server_info()["t"].rate_limiter_info.sample_stats.completed >= 500


def test_no_more_items_are_drawn_than_requested(store):
    write(store, "t", 10, x=lambda i: np.float32(i))
    for count in (1, 3, 7, 100):
        before = store.server_info()["t"].rate_limiter_info.sample_stats.completed
        assert len(list(store.sample("t", count))) == count
        after = store.server_info()["t"].rate_limiter_info.sample_stats.completed
        if len(store.shards) == 1:  # a late shard's samples are kept for the next request
            assert after - before == count


def test_nothing_is_drawn_ahead_if_items_may_be_sampled_once(store):
    write(store, "spent", 100, x=lambda i: np.float32(i))
    items = store.sample("spent", 100)
    taken = [next(items)[0].info.key for _ in range(20)]
    del items
    rest = [steps[0].info.key for steps in store.sample("spent", 80, timeout_s=30)]
    assert len({*taken, *rest}) == 100


def as_text(value):
    """Converts a text of a sample, which is bytes over Reverb's protocol."""
    value = np.asarray(value).item()
    return value.decode() if isinstance(value, bytes) else value


def test_items_of_different_lengths_and_types_can_be_sampled(store):
    """Texts, scalars, several steps, and different lengths."""
    with store.trajectory_writer(4) as writer:
        for i in range(40):
            for step in range(4):
                writer.append({"text": f"{i}.{step}", "number": np.int64(10 * i + step)})
            history = writer.history
            steps = 1 + i % 4
            columns = {key: history[key][-steps:] for key in ("text", "number")}
            writer.create_item("t", 1.0, columns)
            writer.end_episode()
    seen = set()
    for steps in store.sample("t", 400, unpack_as_table_signature=False):
        numbers, texts = zip(*(step.data for step in steps), strict=True)
        assert [f"{n // 10}.{n % 10}" for n in numbers] == [as_text(text) for text in texts]
        seen.add(len(steps))
    assert seen == {1, 2, 3, 4}
    for sample in store.sample("t", 100, emit_timesteps=False):
        number, text = sample.data
        assert [f"{n // 10}.{n % 10}" for n in number] == [as_text(one) for one in text]


def test_an_item_that_cannot_be_split_into_steps_is_refused_by_name(store):
    with store.trajectory_writer(2) as writer:
        for i in range(2):
            writer.append({"a": np.float32(i), "b": np.float32(i)})
        history = writer.history
        writer.create_item("t", 1.0, {"a": history["a"][-1], "b": history["b"][-2:]})
    with pytest.raises(errors.UnsupportedTypeError, match=r"column '[a0]' .* is squeezed"):
        next(store.sample("t"))
    store.reset("t")
    with store.trajectory_writer(2) as writer:
        for i in range(2):
            writer.append({"a": np.float32(i), "b": np.float32(i)})
        history = writer.history
        writer.create_item("t", 1.0, {"a": history["a"][-1:], "b": history["b"][-2:]})
    with pytest.raises(
        errors.InvalidArgumentError, match=r"differ in length, {'[a0]': 1, '[b1]': 2}"
    ):
        next(store.sample("t"))
    sample = next(store.sample("t", emit_timesteps=False))
    assert [len(column) for column in sample.data] == [1, 2]


def test_an_iterator_allows_one_thread_at_a_time(store):
    items = store.sample("t", 3)
    found, refused = [], []
    is_refused = threading.Event()

    def take():
        try:
            found.append(next(items))
        except errors.FailedPreconditionError as error:
            refused.append(str(error))
            is_refused.set()

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert is_refused.wait(timeout=30)  # the other thread waits for an item
    write(store, "t", 1, x=lambda i: np.float32(i))
    for thread in threads:
        thread.join()
    assert "in use by another call, in another thread" in refused[0]
    assert len(found) == 1
    assert len(list(items)) == 2


@contextlib.contextmanager
def items_that_call(set_x):
    """Three times an item of a dataclass, for which `set_x` is called whenever one is built."""

    @dataclasses.dataclass
    class Watched:
        x: Any = None

    def keep(self, value):
        vars(self)["kept"] = value
        set_x()

    Watched.x = property(lambda self: vars(self)["kept"], keep)
    signature = Watched(reverie.TensorSpec((None, 1000), np.int64))
    with reverie.Store([table("t", signature=signature)]) as store:
        client = store.client()
        written = np.full(1000, 7)  # kept, so that new arrays do not find its memory
        with client.trajectory_writer(1) as writer:
            writer.append(Watched(written))
            writer.create_item("t", 1.0, Watched(writer.history.x[-1:]))
        yield client.sample("t", 3, emit_timesteps=False, unpack_as_table_signature=True)
        assert (written == 7).all()


def test_an_item_that_could_not_be_built_is_whole_when_it_is_asked_for_again():
    errors_left = []

    def set_x():
        if errors_left:
            raise errors_left.pop()

    with items_that_call(set_x) as items:
        for _ in range(3):
            errors_left.append(ValueError("not now"))
            with pytest.raises(ValueError, match="not now"):
                next(items)
            assert (next(items).data.x == 7).all()
        assert list(items) == []


def test_an_iterator_is_refused_to_code_that_runs_while_its_item_is_built():
    used = []

    def set_x():
        if used:
            with pytest.raises(errors.FailedPreconditionError, match="in use by another call"):
                next(used.pop())

    with items_that_call(set_x) as items:
        used.append(items)
        assert len(list(items)) == 3
        assert not used


def test_an_item_is_returned_as_soon_as_there_is_one(store):
    """Drawing ahead does not make the reader wait for more than the next item."""
    write(store, "t", 20, x=lambda i: np.float32(i))
    items = store.sample("t", 1000, timeout_s=0.2)
    assert len([next(items) for _ in range(200)]) == 200
    store.reset("t")
    left = []
    with pytest.raises(errors.DeadlineExceededError):
        left.extend(items)
    assert len(left) <= 64


def test_reading_the_signature_of_an_absent_server_times_out():
    begin = time.monotonic()
    with pytest.raises(errors.DeadlineExceededError):
        reverie.Client("localhost:1").sample("t", unpack_as_table_signature=True, timeout_s=0.2)
    assert time.monotonic() - begin < 30  # not retry_timeout_s
