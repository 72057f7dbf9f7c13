"""Calls that wait: how they end, and what they report meanwhile."""

import _thread
import gc
import logging
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import reverie
from eventually import eventually

QUEUE_SIZE = 2


@pytest.fixture
def store():
    with reverie.Store([reverie.Table.queue("q", QUEUE_SIZE)]) as store:
        yield store


@pytest.fixture
def client(store):
    return store.client()


def fill(client):
    for value in range(QUEUE_SIZE):
        client.insert({"x": value}, {"q": 1.0})


def when(is_so, then):
    """Calls ``then`` on another thread as soon as ``is_so()``."""

    def watch():
        eventually(is_so)
        then()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def refusal_of(call):
    try:
        return f"no refusal: {call()}"
    except RuntimeError as error:
        return str(error)


def samples_wait(client):
    return lambda: client.why_blocked("q").samples.waiting > 0


def inserts_wait(client):
    return lambda: client.why_blocked("q").inserts.waiting > 0


def full_writer(client):
    writer = client.trajectory_writer(num_keep_alive_refs=1, max_in_flight_items=1)
    writer.append({"x": 9})
    item = {"x": writer.history["x"][-1:]}
    writer.create_item("q", 1.0, item)  # waits in the writer's queue
    return writer, item


def in_use(writer):
    """Whether a call waits in the writer, so that other calls are refused."""

    def check():
        try:
            return writer.episode_steps < 0
        except RuntimeError:
            return True

    return check


def sampling(client):
    return samples_wait(client), lambda: client.sample_batch("q", 1)


def sampling_one(client):
    return samples_wait(client), lambda: next(client.sample("q"))


def inserting(client):
    fill(client)
    return inserts_wait(client), lambda: client.insert({"x": 9}, {"q": 1.0})


def flushing(client):
    fill(client)
    writer, _ = full_writer(client)
    return in_use(writer), writer.flush


def ending_an_episode(client):
    fill(client)
    writer, _ = full_writer(client)
    return in_use(writer), writer.end_episode


def creating_an_item(client):
    fill(client)
    writer, item = full_writer(client)
    return in_use(writer), lambda: writer.create_item("q", 1.0, item)


CALLS = [sampling, sampling_one, inserting, flushing, ending_an_episode, creating_an_item]


@pytest.mark.filterwarnings("ignore:a writer was dropped:ResourceWarning")
@pytest.mark.parametrize("prepare", CALLS)
def test_ctrl_c_ends_any_wait(client, prepare):
    waits, call = prepare(client)
    watcher = when(waits, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        call()
    watcher.join()
    assert client.why_blocked("q").samples.waiting == 0


_WAITING_PROGRAM = """
import sys
import threading
import reverie
client = reverie.Store([reverie.Table.queue("q", 1)]).client()
def tell():
    while client.why_blocked("q").samples.waiting == 0:
        pass
    print("waits", flush=True)
threading.Thread(target=tell).start()
try:
    client.sample_batch("q", 1)
except KeyboardInterrupt:
    sys.exit(33)
"""


def test_sigint_ends_a_waiting_program():
    program = subprocess.Popen(
        [sys.executable, "-c", _WAITING_PROGRAM], stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout.readline() == "waits\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=300) == 33
    finally:
        program.kill()
        program.stdout.close()
        program.wait()


@pytest.mark.filterwarnings("ignore:a writer was dropped:ResourceWarning")
@pytest.mark.parametrize("prepare", CALLS)
def test_closing_the_store_ends_any_wait(store, client, prepare):
    waits, call = prepare(client)
    watcher = when(waits, store.close)
    with pytest.raises(reverie.ReverieError, match="close"):
        call()
    watcher.join()


def test_a_waiting_sample_gets_what_another_thread_inserts(client):
    watcher = when(samples_wait(client), lambda: client.insert({"x": 5}, {"q": 1.0}))
    batch = client.sample_batch("q", 1)
    watcher.join()
    assert batch.data["x"].tolist() == [[5]]
    assert batch.rate_limited


def test_a_batch_larger_than_the_queue_waits_for_further_inserts(client):
    def insert_all():
        for value in range(3 * QUEUE_SIZE):
            client.insert({"x": value}, {"q": 1.0})

    thread = threading.Thread(target=insert_all)
    thread.start()
    batch = client.sample_batch("q", 3 * QUEUE_SIZE)
    thread.join()
    assert batch.data["x"][:, 0].tolist() == list(range(3 * QUEUE_SIZE))


@pytest.mark.parametrize("timeout_s", [0, 0.0, 0.01, np.float32(0.01)])
def test_waiting_calls_raise_timeout_error_at_their_timeout(client, timeout_s):
    with pytest.raises(TimeoutError, match="'q'") as caught:
        client.sample_batch("q", 1, timeout_s=timeout_s)
    assert isinstance(caught.value, reverie.DeadlineExceededError)
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.batch is None
    fill(client)
    with pytest.raises(TimeoutError, match="'q'"):
        client.insert({"x": 9}, {"q": 1.0}, timeout_s=timeout_s)
    assert client.server_info()["q"].current_size == QUEUE_SIZE
    assert client.why_blocked("q").inserts.waiting == 0


def test_items_drawn_before_the_timeout_are_in_the_error(client):
    fill(client)
    with pytest.raises(reverie.DeadlineExceededError) as caught:
        client.sample_batch("q", 5, timeout_s=0.01)
    assert caught.value.batch.data["x"][:, 0].tolist() == [0, 1]
    assert client.server_info()["q"].current_size == 0


@pytest.mark.parametrize("timeout_s", [-1, -1e-9, float("nan"), float("-inf")])
def test_an_invalid_timeout_is_refused(client, timeout_s):
    fill(client)
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    for call in (
        lambda: client.sample_batch("q", 1, timeout_s=timeout_s),
        lambda: next(client.sample("q", timeout_s=timeout_s)),
        lambda: client.insert({"x": 1}, {"q": 1.0}, timeout_s=timeout_s),
        lambda: writer.flush(timeout_s=timeout_s),
        lambda: writer.end_episode(timeout_s=timeout_s),
    ):
        with pytest.raises(ValueError, match="timeout_s is"):
            call()
    with pytest.raises(TypeError, match="timeout_s is 'soon'"):
        client.sample_batch("q", 1, timeout_s="soon")
    with pytest.raises(ValueError, match="timeout_ms and timeout_s"):
        writer.flush(timeout_ms=5, timeout_s=5)
    assert client.server_info()["q"].current_size == QUEUE_SIZE
    writer.close()


def test_why_blocked_names_the_limiting_bound(client):
    fill(client)
    report = client.why_blocked("q")
    assert "max_diff" in report.inserts.reason
    assert report.samples.reason == ""
    assert str(report).startswith("table 'q'")
    with pytest.raises(KeyError, match="'other'"):
        client.why_blocked("other")


def test_a_dropped_writer_warns_of_the_items_it_loses(client):
    fill(client)
    writer, _ = full_writer(client)
    with pytest.warns(ResourceWarning, match="1 of its items"):
        del writer
    assert client.why_blocked("q").inserts.waiting == 0
    assert client.server_info()["q"].current_size == QUEUE_SIZE


def test_a_dropped_writer_inserts_pending_items_if_there_is_room(client):
    fill(client)
    writer, _ = full_writer(client)
    watcher = when(inserts_wait(client), lambda: client.sample_batch("q", 1))
    del writer
    gc.collect()
    watcher.join()
    assert client.sample_batch("q", 2).data["x"][:, 0].tolist() == [1, 9]


def test_a_history_can_outlive_its_writer(client):
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    writer.append({"x": 1})
    history = writer.history
    del writer
    gc.collect()
    assert len(history["x"]) == 1


def test_warnings_of_the_library_are_logged_through_logging(client, caplog):
    fill(client)
    with caplog.at_level(logging.WARNING, logger="reverie"):
        reverie.rate_limiters.SampleToInsertRatio(1.0, 10, (0.0, 5.0))
    assert [record.name for record in caplog.records] == ["reverie"]
    assert "max_diff 5" in caplog.text


def test_using_a_writer_in_two_threads_is_refused(client):
    fill(client)
    writer, _ = full_writer(client)
    told = []

    def use():
        told.append(refusal_of(lambda: writer.append({"x": 1})))
        told.append(refusal_of(lambda: len(writer.history["x"])))
        writer.close()

    watcher = when(in_use(writer), use)
    with pytest.raises(reverie.ReverieError):
        writer.flush()
    watcher.join()
    assert len(told) == 2
    assert all("give each thread a writer of its own" in text for text in told)


def test_eight_threads_can_insert_and_sample_at_once():
    count, each = 8, 300
    table = reverie.Table(
        "t",
        reverie.selectors.Prioritized(0.6, seed=1),
        reverie.selectors.Fifo(),
        500,
        reverie.rate_limiters.MinSize(1),
    )
    client = reverie.Store([table]).client()
    errors = []

    def insert(worker):
        writer = client.trajectory_writer(num_keep_alive_refs=2)
        for i in range(each):
            writer.append({"worker": worker, "value": np.full(7, i)})
            picked = {name: column[-1:] for name, column in writer.history.items()}
            writer.create_item("t", 1.0 + i % 3, picked)
        writer.flush()
        writer.close()

    def sample(_):
        for _ in range(each // 4):
            batch = client.sample_batch("t", 16)
            value = batch.data["value"]
            if not (value == value[:, :, :1]).all():
                errors.append("a row of two steps")
            client.update_priorities("t", batch.tickets, np.arange(16.0))

    def run(work, worker):
        try:
            work(worker)
        except Exception as error:
            errors.append(repr(error))

    threads = [
        threading.Thread(target=run, args=(insert if i % 2 else sample, i)) for i in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    info = client.server_info()["t"].rate_limiter_info
    assert info.insert_stats.completed == count // 2 * each
    assert info.sample_stats.completed == count // 2 * (each // 4) * 16


@pytest.mark.filterwarnings("ignore:os.fork")  # jax warns once it was imported
@pytest.mark.skipif(sys.platform != "linux", reason="os.fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_handles_in_a_forked_child_raise_and_the_child_can_exit(store, client):
    client.insert({"x": 1}, {"q": 1.0})
    writer, _ = full_writer(client)
    child = os.fork()
    if child == 0:
        failures = 0
        for call in (
            lambda: client.sample_batch("q", 1, timeout_s=0),
            lambda: client.insert({"x": 1}, {"q": 1.0}, timeout_s=0),
            lambda: client.server_info(),
            lambda: client.trajectory_writer(1).append({"x": 1}),
            lambda: writer.append({"x": 1}),
            lambda: writer.flush(timeout_s=0),
            lambda: store["q"].info,
            lambda: store.client(),
        ):
            failures += "fork" not in refusal_of(call)
        writer = client = store = None
        gc.collect()
        os._exit(failures)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert client.sample_batch("q", 1).data["x"].tolist() == [[1]]
    writer.flush()
    writer.close()
