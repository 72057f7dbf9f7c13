"""External columns: their rows are in files, which the client that samples reads."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import reverie
from reverie.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedTypeError,
)

ROWS, WIDTH, LENGTH = 64, 6, 8
FRAMES = np.arange(ROWS * WIDTH, dtype=np.int16).reshape(ROWS, WIDTH)
ACTIONS = np.arange(ROWS, dtype=np.float32) / 2
ITEMS = [(begin, begin + LENGTH) for begin in range(0, ROWS, LENGTH)]
HEAD = 24  # bytes before the rows


@pytest.fixture
def folder(tmp_path):
    files = tmp_path / "files"
    (files / "deep").mkdir(parents=True)
    (files / "deep" / "frames.bin").write_bytes(b"h" * HEAD + FRAMES.tobytes())
    return files


def table(name="t", **options):
    return reverie.Table(
        name,
        sampler=options.pop("sampler", None) or reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        **options,
    )


def frames(file="deep/frames.bin", **other):
    given = {"shape": FRAMES.shape, "dtype": np.int16, "offset": HEAD, **other}
    return reverie.External(file, **given)


def rows(**other):
    return {"obs": {"frame": frames(**other)}, "action": ACTIONS}


@pytest.fixture(params=["embedded", "served", "served to peers", "served with shards"])
def opened(request):
    """Makes clients of one store."""
    if request.param == "embedded":
        with reverie.Store([table(), table("queue", sampler=reverie.selectors.Fifo())]) as store:
            yield lambda **options: store.client(**options)
        return
    tables = [table(), table("queue", sampler=reverie.selectors.Fifo())]
    with reverie.Server(tables) as server:
        address = f"localhost:{server.port}"
        if request.param == "served":
            yield lambda **options: reverie.Client(address, **options)
        elif request.param == "served to peers":
            yield lambda **options: reverie.Client(address, protocol="peer", **options)
        else:
            yield lambda **options: reverie.Client([address], **options)


def columns(nest):
    """The arrays of a batch in order; without a signature a server gives them as a list."""
    if isinstance(nest, list):
        return nest
    if not isinstance(nest, dict):
        return [nest]
    return [column for key in sorted(nest) for column in columns(nest[key])]


def check(batch):
    action, frame = columns(batch.data)
    assert frame.shape == (len(action), LENGTH, WIDTH)
    for rows, first in zip(frame, (2 * action[:, 0]).astype(int), strict=True):
        np.testing.assert_array_equal(rows, FRAMES[first : first + LENGTH])


def draw_many(client):
    for _ in range(100):
        client.sample_batch("t", 32, timeout_s=10)


def test_items_with_rows_in_a_file_are_read_when_sampled(opened, folder):
    client = opened(files=folder)
    keys = client.insert_rows(rows(), "t", items=ITEMS, priorities=1.0)
    assert len(set(keys.tolist())) == len(ITEMS)
    batch = client.sample_batch("t", 100, timeout_s=10)
    assert len(batch) == 100
    check(batch)
    assert set(batch.keys.tolist()) <= set(keys.tolist())
    for sample in client.sample("t", 20, emit_timesteps=False, timeout_s=10):
        first = int(2 * sample.data[0][0])
        np.testing.assert_array_equal(sample.data[1], FRAMES[first : first + LENGTH])
    with client.dataset("t", batch_size=16, timeout_s=10) as batches:
        for _ in range(5):
            check(next(batches))


def test_the_file_is_not_read_before_an_item_is_sampled(opened, folder):
    client = opened(files=folder)
    client.insert_rows({"x": frames(file="later.bin")}, "t")
    (folder / "later.bin").write_bytes(b"h" * HEAD + (FRAMES + 1).tobytes())
    drawn = client.sample_batch("t", 1, timeout_s=10)
    np.testing.assert_array_equal(columns(drawn.data)[0][0], FRAMES + 1)


def test_rows_without_files_are_stored_unchanged(opened):
    client = opened()
    client.insert_rows({"frame": FRAMES, "action": ACTIONS}, "t", items=ITEMS)
    check(client.sample_batch("t", 50, timeout_s=10))


@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), np.array(2)])
def test_one_priority_for_all_items_may_be_any_number(number):
    with reverie.Store([table()]) as store:
        client = store.client()
        keys = client.insert_rows({"x": ACTIONS}, "t", items=ITEMS, priorities=number)
        assert client.priorities("t", keys).tolist() == [2.0] * len(ITEMS)
        keys = client.insert_rows({"x": ACTIONS}, "t", priorities=number)
        assert client.priorities("t", keys).tolist() == [2.0]
        with pytest.raises(UnsupportedTypeError, match="priorities"):
            client.insert_rows({"x": ACTIONS}, "t", priorities="high")


def test_an_item_over_a_few_rows_of_a_chunk_returns_these_rows(opened, folder):
    client = opened(files=folder)
    client.insert_rows(rows(), "t", items=[(40, 43)])
    batch = client.sample_batch("t", 1, timeout_s=10)
    np.testing.assert_array_equal(columns(batch.data)[1][0], FRAMES[40:43])


def test_a_missing_file_affects_only_its_items(opened, folder):
    client = opened(files=folder)
    client.insert_rows(rows(), "t", items=ITEMS)
    lost = client.insert_rows(rows(file="gone.bin"), "t", items=[(0, LENGTH)])
    strict = opened(files=folder, on_corrupt="raise")
    with pytest.raises(DataLossError, match=r"gone\.bin"):
        draw_many(strict)
    assert client.server_info()["t"].current_size == len(ITEMS) + 1  # the item stays
    for _ in range(20):
        batch = client.sample_batch("t", 32, timeout_s=10)
        check(batch)
        assert lost[0] not in batch.keys
    info = client.server_info()["t"]
    assert info.current_size == len(ITEMS)
    assert info.corrupt_items == 1


def test_a_truncated_file_affects_only_the_items_beyond_its_end(opened, folder):
    cut = HEAD + FRAMES[:40].nbytes
    (folder / "cut.bin").write_bytes((b"h" * HEAD + FRAMES.tobytes())[:cut])
    client = opened(files=folder)
    client.insert_rows(rows(file="cut.bin"), "t", items=ITEMS)
    for _ in range(20):
        batch = client.sample_batch("t", 32, timeout_s=10)
        check(batch)
    assert client.server_info()["t"].current_size == 40 // LENGTH


def test_a_client_without_files_raises_and_removes_nothing(opened, folder):
    opened().insert_rows(rows(), "t", items=ITEMS)
    with pytest.raises(FailedPreconditionError, match=r"deep/frames\.bin.*files="):
        opened().sample_batch("t", 4, timeout_s=10)
    with pytest.raises(FailedPreconditionError, match="files="):
        next(opened().sample("t", 1, timeout_s=10))
    check(opened(files=folder).sample_batch("t", 4, timeout_s=10))


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "deep/../../secret", "link"])
def test_an_untrusted_file_name_opens_nothing_outside_the_folder(opened, folder, name):
    (folder.parent / "secret").write_bytes(b"h" * HEAD + FRAMES.tobytes())
    (folder / "link").symlink_to(folder.parent / "secret")
    client = opened(files=folder, on_corrupt="raise")
    client.insert_rows({"x": frames(file=name)}, "t")
    with pytest.raises(DataLossError, match=name):
        client.sample_batch("t", 1, timeout_s=10)


def test_a_function_may_provide_the_rows(opened):
    asked = []

    def decode(wanted):
        asked.append(wanted)
        return FRAMES[wanted.first_row : wanted.first_row + wanted.row_count]

    client = opened(files=decode)
    video = {"frame": frames(file="s3://videos/7", size_bytes=9), "action": ACTIONS}
    client.insert_rows(video, "t", items=ITEMS)
    check(client.sample_batch("t", 8, timeout_s=10))
    one = asked[0]
    assert (one.file, one.offset, one.size_bytes) == ("s3://videos/7", HEAD, 9)
    assert (one.row_count, one.dtype, one.shape) == (LENGTH, np.dtype(np.int16), (WIDTH,))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ZeroDivisionError("broken"), "ZeroDivisionError: broken"),
        (np.zeros((LENGTH, WIDTH), np.float32), "float32"),
        (np.zeros((LENGTH, WIDTH + 1), np.int16), r"\(8, 7\)"),
        ("text", "gave"),
    ],
)
def test_a_failing_function_raises_and_removes_nothing(opened, answer, text):
    def broken(_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = opened(files=broken)
    client.insert_rows(rows(), "t", items=ITEMS)
    with pytest.raises(FailedPreconditionError, match=text) as raised:
        client.sample_batch("t", 2, timeout_s=10)
    assert "deep/frames.bin" in str(raised.value)
    assert client.server_info()["t"].current_size == len(ITEMS)


def test_file_not_found_error_in_a_function_means_that_rows_are_missing(opened):
    def missing(wanted):
        raise FileNotFoundError(wanted.file)

    client = opened(files=missing, on_corrupt="raise")
    client.insert_rows(rows(), "t", items=ITEMS)
    with pytest.raises(DataLossError, match="missing"):
        client.sample_batch("t", 2, timeout_s=10)


def test_a_failed_call_returns_its_items_to_the_queue(folder):
    def broken(_):
        raise ValueError("not now")

    with reverie.Store([reverie.Table.queue("q", 100)]) as store:
        store.client().insert_rows(rows(), "q", items=ITEMS)
        with pytest.raises(FailedPreconditionError, match="not now"):
            store.client(files=broken).sample_batch("q", 4, timeout_s=10)
        check(store.client(files=folder).sample_batch("q", len(ITEMS), timeout_s=10))


def test_a_failed_iterator_returns_its_items_to_the_queue_and_can_go_on(folder):
    errors_left = [ValueError("not now") for _ in range(3)]

    def decode(wanted):
        if errors_left:
            raise errors_left.pop()
        return FRAMES[wanted.first_row : wanted.first_row + wanted.row_count]

    with reverie.Store([reverie.Table.queue("q", 100)]) as store:
        store.client().insert_rows(rows(), "q", items=ITEMS)
        items = store.client(files=decode).sample("q", 2, emit_timesteps=False, timeout_s=10)
        for _ in range(3):
            with pytest.raises(FailedPreconditionError, match="not now"):
                next(items)
        assert store.client().server_info()["q"].current_size == len(ITEMS)
        firsts = [sample.data[0][0] for sample in items]
        assert firsts == [ACTIONS[begin] for begin, _ in ITEMS[:2]], "in their order"
        check(store.client(files=folder).sample_batch("q", len(ITEMS) - 2, timeout_s=10))


def test_several_threads_can_sample_and_insert_at_once(opened, folder):
    client = opened(files=folder)
    client.insert_rows(rows(), "t", items=ITEMS)
    failed = []

    def work():
        try:
            for _ in range(20):
                client.insert_rows(rows(), "t", items=ITEMS[:2])
                check(client.sample_batch("t", 16, timeout_s=10))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed


def test_a_client_that_reads_files_can_be_pickled(folder):
    with reverie.Server([table()]) as server:
        client = reverie.Client(f"localhost:{server.port}", files=str(folder))
        client.insert_rows(rows(), "t", items=ITEMS)
        check(pickle.loads(pickle.dumps(client)).sample_batch("t", 4, timeout_s=10))


@pytest.mark.parametrize("durability", ["none", "sync"])
def test_checkpoints_and_journals_store_file_names_and_not_the_rows(tmp_path, folder, durability):
    kept = reverie.checkpointers.DefaultCheckpointer(tmp_path / "kept")
    with reverie.Store([table()], checkpointer=kept, durability=durability) as store:
        store.client().insert_rows(rows(), "t", items=ITEMS[:4])
        if durability == "none":
            store.checkpoint()
    with reverie.Store([table()], checkpointer=kept, durability=durability) as store:
        assert store["t"].info.current_size == 4
        check(store.client(files=folder).sample_batch("t", 20, timeout_s=10))
    held = sum(entry.stat().st_size for entry in (tmp_path / "kept").rglob("*") if entry.is_file())
    assert held < FRAMES.nbytes + ACTIONS.nbytes + 4000  # the frames are stored only in their file


def test_items_with_files_cannot_be_converted_to_dm_reverb(tmp_path):
    kept = reverie.checkpointers.DefaultCheckpointer(tmp_path / "kept")
    with reverie.Store([table()], checkpointer=kept) as store:
        store.client().insert_rows(rows(), "t", items=ITEMS)
        path = store.checkpoint()
    with pytest.raises(FailedPreconditionError, match=r"deep/frames\.bin"):
        reverie.checkpointers.convert(path, tmp_path / "theirs")


def test_ctrl_c_ends_a_slow_function():
    program = """
import os, signal, threading, time
import numpy as np
import reverie
def slow(wanted):
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    threading.Event().wait(30)
table = reverie.Table("t", sampler=reverie.selectors.Fifo(), remover=reverie.selectors.Fifo(),
                      max_size=9, rate_limiter=reverie.rate_limiters.MinSize(1))
with reverie.Store([table]) as store:
    client = store.client(files=slow)
    client.insert_rows({"x": reverie.External("f", shape=(4, 2), dtype="f4")}, "t")
    begin = time.monotonic()
    try:
        client.sample_batch("t", 1)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - begin < 5)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "interrupted True", done.stderr


def test_wrong_arguments_are_refused():
    with reverie.Store([table()]) as store:
        client = store.client()
        for error, text, call in [
            (NotFoundError, "nowhere", lambda: store.client(files="/nowhere/at/all")),
            (UnsupportedTypeError, "files", lambda: store.client(files=7)),
            (NotFoundError, "there is no table", lambda: client.insert_rows(rows(), "u")),
            (
                InvalidArgumentError,
                "63 rows|64",
                lambda: client.insert_rows({"a": FRAMES[1:], "b": frames()}, "t"),
            ),
            (
                InvalidArgumentError,
                r"\[60, 65\)",
                lambda: client.insert_rows(rows(), "t", items=[(60, 65)]),
            ),
            (
                InvalidArgumentError,
                "at least one",
                lambda: client.insert_rows(rows(), "t", items=[(6, 6)]),
            ),
            (InvalidArgumentError, "pairs", lambda: client.insert_rows(rows(), "t", items=[1, 2])),
            (
                InvalidArgumentError,
                "empty",
                lambda: client.insert_rows(rows(), "t", items=np.empty((0, 2), int)),
            ),
            (
                InvalidArgumentError,
                "2 entries for 1",
                lambda: client.insert_rows(rows(), "t", priorities=[1.0, 2.0]),
            ),
            (
                InvalidArgumentError,
                "no axis",
                lambda: client.insert_rows({"a": np.float32(1)}, "t"),
            ),
            (
                InvalidArgumentError,
                "fixed size",
                lambda: client.insert_rows({"a": np.array(["x", "y"])}, "t"),
            ),
            (
                InvalidArgumentError,
                "134217728",
                lambda: client.insert_rows(
                    {"a": frames(shape=(1 << 20, 1 << 10), dtype="u1")}, "t"
                ),
            ),
            (
                InvalidArgumentError,
                "NUL|null",
                lambda: client.insert_rows({"a": frames(file="a\0b")}, "t"),
            ),
            (
                InvalidArgumentError,
                "4096",
                lambda: client.insert_rows({"a": frames(file="a" * 5000)}, "t"),
            ),
            (
                InvalidArgumentError,
                "2\\^63",
                lambda: client.insert_rows({"a": frames(offset=2**63 - 1, size_bytes=2)}, "t"),
            ),
            (InvalidArgumentError, "first extent", lambda: frames(shape=())),
            (InvalidArgumentError, "offset", lambda: frames(offset=-1)),
            (UnsupportedTypeError, "fixed size", lambda: frames(dtype=str)),
            (UnsupportedTypeError, "byte order", lambda: frames(dtype=">i2")),
        ]:
            with pytest.raises(error, match=text):
                call()
        assert store["t"].info.current_size == 0


def test_a_pipe_in_the_folder_does_not_block_a_call(opened, folder):
    os.mkfifo(folder / "pipe")
    client = opened(files=folder, on_corrupt="raise")
    client.insert_rows({"x": frames(file="pipe")}, "t")
    begin = time.monotonic()
    with pytest.raises(DataLossError, match="no regular file"):
        client.sample_batch("t", 1, timeout_s=20)
    assert time.monotonic() - begin < 10
    assert signal.getsignal(signal.SIGPIPE) is not None
