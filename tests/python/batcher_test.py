"""Batches gathered from items, compared with NumPy's stack and concatenate."""

import _thread
import asyncio
import contextlib
import gc
import random
import threading
import warnings

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnsupportedTypeError,
)


def item(i, rows=None):
    """A nest whose values identify the item."""
    shape = (2, 3) if rows is None else (2, rows)
    return {
        "obs": {"pixels": np.full((*shape, 4), i, np.uint8), "speed": np.full(shape, i / 2)},
        "pair": (np.full(shape, -i, np.int16), [np.full((*shape, 1), i % 2 == 0)]),
    }


def mapped(function, *nests):
    if isinstance(nests[0], dict):
        return {key: mapped(function, *(nest[key] for nest in nests)) for key in nests[0]}
    if isinstance(nests[0], (list, tuple)):
        return type(nests[0])(mapped(function, *rows) for rows in zip(*nests, strict=True))
    return function(*nests)


def assert_same(found, expected):
    def check(a, b):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)

    mapped(check, found, expected)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_stacking_matches_numpy(dim):
    batcher = reverie.Batcher(5, dim=dim)
    for i in range(5):
        assert batcher.empty()
        assert batcher.filled == i
        batcher.stack(item(i))
    assert batcher.size() == 1
    expected = mapped(lambda *arrays: np.stack(arrays, dim), *map(item, range(5)))
    assert_same(batcher.get(), expected)
    assert batcher.empty()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("size", [1, 3, 7, 10])
def test_concatenating_matches_numpy_split_into_batches(dim, size):
    rng = random.Random(size)
    batcher = reverie.Batcher(size, dim=dim, queue_size=1000)
    lengths = [rng.randrange(1, 12) for _ in range(20)]
    items = [item(i, rows) for i, rows in enumerate(lengths)]
    if dim == 0:
        items = [mapped(lambda a: np.moveaxis(a, 1, 0).copy(), one) for one in items]
    for one in items:
        batcher.cat(one)
    whole = mapped(lambda *arrays: np.concatenate(arrays, dim), *items)
    total = sum(lengths)
    assert batcher.size() == total // size
    assert batcher.filled == total % size
    if batcher.filled:
        assert batcher.flush()
    assert not batcher.flush()
    for begin in range(0, total, size):
        part = [slice(None)] * dim + [slice(begin, min(begin + size, total))]
        assert_same(batcher.get(), mapped(lambda a, part=tuple(part): a[part], whole))
    assert batcher.empty()


def test_a_kept_batch_is_not_overwritten_by_the_next_ones():
    batcher = reverie.Batcher(2)
    kept = []
    for i in range(40):
        batcher.stack({"x": np.full(1000, i)})
        batcher.stack({"x": np.full(1000, i)})
        batch = batcher.get()
        if i % 3 == 0:
            kept.append((i, batch))
    for i, batch in kept:
        assert (batch["x"] == i).all()


def test_memory_of_a_released_batch_is_reused():
    batcher = reverie.Batcher(2)
    places = set()
    for i in range(10):
        batcher.stack(np.full(100_000, i))
        batcher.stack(np.full(100_000, i))
        places.add(batcher.get().ctypes.data)
    assert len(places) <= 2


def test_numbers_are_batched_and_other_leaves_kept_from_the_first_item():
    batcher = reverie.Batcher(2)
    batcher.stack({"x": np.float32(1), "n": 3, "ok": True, "name": "first", "none": None})
    batcher.stack({"x": np.float32(2), "n": 4, "ok": False, "name": "second", "none": None})
    batch = batcher.get()
    assert batch["x"].dtype == np.float32
    assert batch["n"].tolist() == [3, 4]
    assert batch["ok"].tolist() == [True, False]
    assert (batch["name"], batch["none"]) == ("first", None)


def test_arrays_of_any_layout_and_convertible_type_are_accepted():
    batcher = reverie.Batcher(3)
    square = np.arange(9.0, dtype=np.float32).reshape(3, 3)
    batcher.stack(square)
    batcher.stack(square.T)
    batcher.stack(square.astype(np.float64)[::-1])
    np.testing.assert_array_equal(batcher.get(), [square, square.T, square[::-1]])


def test_rows_that_begin_the_next_batch_keep_their_own_type():
    batcher = reverie.Batcher(4, queue_size=10)
    batcher.cat({"x": np.zeros(3, np.int32), "y": np.zeros(3)})
    batcher.cat({"x": np.full(8, 2**40), "y": np.arange(8, dtype=np.float32)})
    batcher.cat({"x": np.ones(1, np.int8), "y": np.ones(1)})
    first, second, third = (batcher.get() for _ in range(3))
    assert (first["x"].dtype, first["y"].dtype) == (np.int32, np.float64)
    assert first["y"].tolist() == [0, 0, 0, 0]
    for batch in (second, third):
        assert (batch["x"].dtype, batch["y"].dtype) == (np.int64, np.float32)
    assert second["x"].tolist() == [2**40] * 4
    assert second["y"].tolist() == [1, 2, 3, 4]
    assert third["x"].tolist() == [2**40] * 3 + [1]
    assert third["y"].tolist() == [5, 6, 7, 1]


def test_torch_tensors_are_batched_into_torch_tensors():
    torch = pytest.importorskip("torch")
    batcher = reverie.Batcher(3, dim=1)
    items = [
        {
            "x": torch.arange(6, dtype=torch.float32).reshape(2, 3) + i,
            "half": torch.full((2,), i, dtype=torch.bfloat16),
            "turned": (torch.arange(6).reshape(2, 3) * i).T,
        }
        for i in range(3)
    ]
    for one in items:
        batcher.stack(one)
    batch = batcher.get()
    for name in items[0]:
        expected = torch.stack([one[name] for one in items], 1)
        assert batch[name].dtype == expected.dtype
        assert torch.equal(batch[name], expected)
    grown = reverie.Batcher(2)
    grown.stack(torch.ones(3, requires_grad=True))
    grown.stack(torch.zeros(3, dtype=torch.float64))
    assert grown.get().tolist() == [[1, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("output", [None, "numpy", "torch"])
@pytest.mark.parametrize("dim", [0, 1])
def test_stacking_tensors_of_any_kind_matches_torch(dim, output):
    torch = pytest.importorskip("torch")

    class Derived(torch.Tensor):
        pass

    forms = [
        lambda t: t,
        lambda t: t.clone(),
        lambda t: t.T.contiguous().T,
        lambda t: torch.stack([t, -t], 2)[:, :, 0],
        lambda t: t.clone().requires_grad_(),
        lambda t: torch.nn.Parameter(t.clone()),
        lambda t: t.clone().as_subclass(Derived),
        lambda t: t.double(),
        lambda t: t.half(),
        lambda t: t.numpy(),
        lambda t: t.numpy()[:, ::-1].copy()[:, ::-1],
        lambda t: t.numpy().astype(np.float64),
    ]

    def item(value, form):
        one = value[0, 0] if dim == 0 else value[0, :1]
        return {"x": form(value), "one": one, "none": value[:, :0], "n": one.numpy().astype(int)}

    rng = random.Random(dim)
    values = [torch.arange(6.0).reshape(2, 3) + 10 * i for i in range(160)]
    batcher = reverie.Batcher(4, dim=dim, output=output)
    for begin in range(0, len(values), 4):
        rows = values[begin : begin + 4]
        # The first one determines the element types.
        given = [item(rows[0], forms[0]), *(item(row, rng.choice(forms)) for row in rows[1:])]
        for one in given:
            batcher.stack(dict(rng.sample(list(one.items()), len(one))))
        batch = batcher.get()
        assert isinstance(batch["x"], np.ndarray if output == "numpy" else torch.Tensor)
        for name, array in batch.items():
            expected = np.stack([np.asarray(item(row, forms[0])[name]) for row in rows], dim)
            np.testing.assert_array_equal(np.asarray(array), expected, strict=True)


def test_conjugated_and_negated_views_keep_their_values():
    torch = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j, 3 - 1j])
    views = {
        "conjugates": z.conj(),
        "turned": torch.outer(z, z).conj().T,
        "imaginary": z.conj().imag,
        "one": z[1:].conj().imag,
        "reshaped": z[0].conj().imag.reshape(1),
        "scalar": z[0].conj().imag,
    }
    assert any(view.is_conj() for view in views.values())
    assert any(view.is_neg() for view in views.values())
    plain = {name: view.clone().resolve_conj().resolve_neg() for name, view in views.items()}
    for items in ((views, plain, views), (plain, views, plain)):
        batcher = reverie.Batcher(3)
        for one in items:
            batcher.stack(one)
        batch = batcher.get()
        for name in views:
            assert torch.equal(batch[name], torch.stack([plain[name]] * 3)), name


def test_complex32_tensors_are_refused():
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them experimental
        halves = torch.ones(2, dtype=torch.complex32)
    with pytest.raises(UnsupportedTypeError, match="complex32"):
        reverie.Batcher(2).stack(halves)


def test_a_nest_that_changes_between_calls_is_read_again():
    torch = pytest.importorskip("torch")
    batcher = reverie.Batcher(6)
    nest = {"a": torch.zeros(4), "b": torch.zeros(1, dtype=torch.int64)}
    batcher.stack(nest)
    nest["a"] += 1  # in place
    batcher.stack(nest)
    nest["a"].set_(torch.full((8,), 2.0).untyped_storage(), 4, (4,), (1,))  # elsewhere
    batcher.stack(nest)
    nest["a"] = torch.tensor([[3.0, 0.0]] * 4)[:, 0]  # another layout
    batcher.stack(nest)
    nest["a"] = torch.full((3,), 9.0)
    nest["b"] += 7
    with pytest.raises(InvalidArgumentError, match="'a' has shape"):
        batcher.stack(nest)
    nest["a"].resize_(4).fill_(4)
    nest["b"].zero_()
    batcher.stack(nest)
    batcher.stack({"b": nest["b"], "a": torch.full((4,), 5.0)})  # another order of the keys
    batch = batcher.get()
    assert batch["a"].tolist() == [[float(i)] * 4 for i in range(6)]
    assert batch["b"].tolist() == [[0]] * 6


def test_tensors_of_a_batch_are_ordinary_and_outlive_the_batcher():
    torch = pytest.importorskip("torch")
    batcher = reverie.Batcher(2)
    kept = []
    for i in range(20):
        for _ in range(2):
            batcher.stack({"x": torch.full((3,), i), "y": torch.full((), i, dtype=torch.bool)})
        kept.append(batcher.get())
    del batcher
    for i, batch in enumerate(kept):
        assert batch["x"].tolist() == [[i] * 3] * 2
        assert batch["y"].tolist() == [i != 0] * 2
    x = kept[5]["x"]
    assert (x.is_leaf, x.requires_grad, x.is_contiguous()) == (True, False, True)
    x.numpy()[0, 0] = -1  # the same memory
    assert x[0].tolist() == [-1, 5, 5]
    assert (kept[5]["x"].float().requires_grad_() * 2).sum().item() == 48
    # The last view may be dropped by any thread.
    views = [batch["x"][1] for batch in kept]
    kept.clear()
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert not views


def test_memory_of_a_released_batch_of_tensors_is_reused():
    torch = pytest.importorskip("torch")
    batcher = reverie.Batcher(2)
    places = set()
    for i in range(10):
        for _ in range(2):
            batcher.stack(torch.full((1000,), i))
        places.add(batcher.get().data_ptr())
    assert len(places) <= 2


def test_output_chooses_the_framework():
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    for output, kind in (("numpy", np.ndarray), ("torch", torch.Tensor), ("jax", jax.Array)):
        batcher = reverie.Batcher(2, output=output)
        for value in (np.ones(2, np.float32), torch.ones(2)):
            batcher.stack(value)
        batch = batcher.get()
        assert isinstance(batch, kind)
        assert np.asarray(batch).tolist() == [[1, 1], [1, 1]]
    batcher = reverie.Batcher(2)
    for i in range(2):
        batcher.stack(jax.numpy.full(3, i))
    assert isinstance(batcher.get(), jax.Array)


def test_batches_can_be_built_on_a_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    items = [torch.arange(12.0).reshape(3, 4) * i for i in range(4)]
    for place in ("cpu", "cuda"):
        batcher = reverie.Batcher(4, device="cuda", dim=1)
        for one in items:
            batcher.stack({"x": one.to(place)})
        batch = batcher.get()["x"]
        assert batch.is_cuda
        assert torch.equal(batch.cpu(), torch.stack(items, 1))
        batcher = reverie.Batcher(5, device="cuda")
        for one in items:
            batcher.cat(one.to(place))
        assert torch.equal(batcher.get().cpu(), torch.cat(items)[:5])
    near = reverie.Batcher(2, output="numpy")
    near.stack(items[1].cuda())
    near.stack(items[2].cuda())
    np.testing.assert_array_equal(near.get(), torch.stack(items[1:3]).numpy())
    rows = torch.arange(9)
    for output in (None, "numpy"):
        batcher = reverie.Batcher(4, output=output)
        batcher.cat(torch.zeros(3, dtype=torch.int32))
        batcher.cat(rows.cuda())  # its first row goes to the CPU
        batches = [torch.as_tensor(batcher.get()) for _ in range(3)]
        assert [batch.dtype for batch in batches] == [torch.int32, torch.int64, torch.int64]
        assert [batch.is_cuda for batch in batches] == [False, output is None, output is None]
        assert torch.equal(torch.cat([batch.cpu() for batch in batches[1:]]), rows[1:])


@pytest.fixture
def full_device(monkeypatch):
    """A device of JAX that has no memory while the list has an element."""
    jax = pytest.importorskip("jax")
    put = jax.device_put
    full = ["out of memory"]

    def put_if_there_is_room(*arguments):
        if full:
            raise RuntimeError(full[0])
        return put(*arguments)

    monkeypatch.setattr(jax, "device_put", put_if_there_is_room)
    return full


def test_a_batch_that_cannot_be_copied_to_its_device_is_kept(full_device):
    batcher = reverie.Batcher(2, output="jax")
    batcher.stack(np.zeros(3))
    with pytest.raises(FailedPreconditionError, match=r"batch of 2 rows.*out of memory") as raised:
        batcher.stack(np.ones(3))
    assert isinstance(raised.value.__cause__, RuntimeError)
    for call in (lambda: batcher.stack(np.full(3, 9.0)), batcher.flush, batcher.get):
        with pytest.raises(FailedPreconditionError, match=r"out of memory.*did nothing else"):
            call()
    assert (batcher.size(), batcher.filled) == (0, 0)
    full_device.clear()
    batcher.stack(np.full(3, 2.0))
    assert (batcher.size(), batcher.filled) == (1, 1)
    batcher.stack(np.full(3, 3.0))
    assert [np.asarray(batcher.get())[:, 0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]


def test_rows_of_a_concatenation_that_were_not_added_are_counted(full_device):
    batcher = reverie.Batcher(2, output="jax")
    with pytest.raises(FailedPreconditionError, match="the last 3 rows of this item were not"):
        batcher.cat(np.arange(5.0))
    full_device.clear()
    batcher.cat(np.arange(2.0, 5.0))
    assert batcher.flush()
    found = [np.asarray(batcher.get()).tolist() for _ in range(3)]
    assert found == [[0, 1], [2, 3], [4]]


def test_a_flushed_batch_that_cannot_be_copied_is_kept_after_close(full_device):
    batcher = reverie.Batcher(4, output="jax")
    batcher.stack(np.ones(3))
    with pytest.raises(FailedPreconditionError, match="batch of 1 rows"):
        batcher.flush()
    batcher.close()
    with pytest.raises(FailedPreconditionError, match="out of memory"):
        batcher.get()
    full_device.clear()
    assert np.asarray(batcher.get()).tolist() == [[1, 1, 1]]
    with pytest.raises(CancelledError):
        batcher.get()


def test_a_tensor_that_cannot_be_copied_leaves_a_batch_on_a_gpu_as_it_was():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")

    class Lost(torch.Tensor):
        def detach(self):
            raise RuntimeError("the device is lost")

    for filled in (1, 2):  # the last row too
        batcher = reverie.Batcher(3)
        for i in range(filled):
            batcher.stack(torch.full((2,), float(i), device="cuda"))
        with pytest.raises(RuntimeError, match="the device is lost"):
            batcher.stack(torch.zeros(2, device="cuda").as_subclass(Lost))
        with pytest.raises(UnsupportedTypeError, match=r"tensor on a device.*torch\.Tensor"):
            batcher.stack(np.zeros(2, np.float32))
        assert batcher.filled == filled
        for i in range(filled, 3):
            batcher.stack(torch.full((2,), float(i), device="cuda"))
        assert batcher.get()[:, 0].tolist() == [0, 1, 2]


def test_unbatching_gives_the_items_back():
    batcher = reverie.Batcher(4, dim=1)
    for i in range(4):
        batcher.stack({**item(i), "name": "kept"})
    rows = reverie.unbatch(batcher.get(), dim=1)
    assert len(rows) == 4
    for i, row in enumerate(rows):
        assert row.pop("name") == "kept"
        assert_same(row, item(i))
    with pytest.raises(InvalidArgumentError, match="'b'"):
        reverie.unbatch({"a": np.zeros(2), "b": np.zeros(3)})


@pytest.mark.parametrize(
    ("second", "error", "text"),
    [
        ({"x": np.zeros(4)}, InvalidArgumentError, r"'x' has shape \(4,\).*\(3,\)"),
        ({"y": np.zeros(3)}, InvalidArgumentError, "structure"),
        ({"x": np.zeros(3, complex)}, UnsupportedTypeError, "complex128.*float64"),
        ({"x": None}, UnsupportedTypeError, "'x' is a NoneType"),
        ({"x": np.array(["a"] * 3)}, UnsupportedTypeError, "text"),
    ],
)
def test_an_item_unlike_the_first_is_refused_and_the_batch_is_kept(second, error, text):
    batcher = reverie.Batcher(2)
    batcher.stack({"x": np.zeros(3)})
    with pytest.raises(error, match=text):
        batcher.stack(second)
    batcher.stack({"x": np.ones(3)})
    assert batcher.get()["x"].tolist() == [[0, 0, 0], [1, 1, 1]]


def test_an_item_that_adds_no_row_does_not_determine_the_next_batch():
    batcher = reverie.Batcher(2)
    with pytest.raises(InvalidArgumentError, match="rows along dim 0"):
        batcher.cat({"x": np.zeros(2), "y": np.zeros(3)})
    batcher.cat({"z": np.zeros((0, 3))})
    for i in range(2):
        batcher.stack({"w": i})
    assert batcher.get()["w"].tolist() == [0, 1]


def test_invalid_settings_and_items_are_refused():
    for options in ({"size": 0}, {"dim": -1}, {"queue_size": 0}, {"output": "tf"}):
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            reverie.Batcher(**{"size": 2, **options})
    with pytest.raises(InvalidArgumentError, match="device"):
        reverie.Batcher(2, "cuda", output="numpy")
    with pytest.raises(InvalidArgumentError, match="no array"):
        reverie.Batcher(2).stack({"name": "x"})
    with pytest.raises(InvalidArgumentError, match="stack along dim 1"):
        reverie.Batcher(2, dim=1).stack(np.float32(1))
    with pytest.raises(InvalidArgumentError, match="cat along dim 0"):
        reverie.Batcher(2).cat({"x": np.float32(1)})
    with pytest.raises(InvalidArgumentError, match="rows along dim 0"):
        reverie.Batcher(2).cat({"x": np.zeros(2), "y": np.zeros(3)})
    batcher = reverie.Batcher(4)
    batcher.stack(np.zeros(2))
    with pytest.raises(InvalidArgumentError, match="mixed with cat"):
        batcher.cat(np.zeros((2, 2)))


def test_get_waits_until_its_timeout_or_ctrl_c():
    batcher = reverie.Batcher(2, timeout_s=0.02)
    batcher.stack(1)
    for timeout_s in (None, 0, 0.01):
        with pytest.raises(DeadlineExceededError, match="1 of 2 rows"):
            batcher.get(timeout_s)
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        batcher.get(30)


def test_a_full_queue_blocks_stack_until_its_timeout():
    batcher = reverie.Batcher(1, queue_size=2, timeout_s=0.02)
    batcher.stack(0)
    batcher.stack(1)
    with pytest.raises(DeadlineExceededError, match="2 batches wait"):
        batcher.stack(2)
    patient = reverie.Batcher(1, queue_size=2)
    thread = threading.Thread(target=lambda: [patient.stack(i) for i in range(50)])
    thread.start()
    assert [patient.get().item() for _ in range(50)] == list(range(50))
    thread.join()


def test_a_flush_that_times_out_during_a_copy_keeps_the_batch():
    batcher = reverie.Batcher(2, timeout_s=0)
    large = np.ones(1 << 26, np.uint8)

    def is_flushed():
        try:
            return batcher.flush()
        except DeadlineExceededError:
            return False

    for _ in range(50):  # until a flush comes during the copy, which takes some milliseconds
        thread = threading.Thread(target=batcher.stack, args=(large,))
        thread.start()
        eventually(lambda: batcher.filled)
        is_whole = is_flushed()
        thread.join()
        if not is_whole:
            break
        batcher.get()
    else:
        pytest.fail("no flush came during a copy")
    assert batcher.filled == 1
    assert batcher.flush()
    found = batcher.get()
    assert found.shape == (1, large.size)
    assert found.all()


def test_closing_ends_every_wait_and_keeps_finished_batches():
    batcher = reverie.Batcher(1)
    batcher.stack(1)
    batcher.close()
    assert batcher.get().item() == 1
    for call in (batcher.get, lambda: batcher.stack(1), batcher.flush):
        with pytest.raises(CancelledError, match="closed"):
            call()
    batcher = reverie.Batcher(1)
    timer = threading.Timer(0.05, batcher.close)
    timer.start()
    with pytest.raises(CancelledError):
        batcher.get()


def test_awaiting_a_batcher_keeps_nothing_until_the_next_batch():
    batcher = reverie.Batcher(2)

    def event_count():
        gc.collect()
        return sum(type(one) is asyncio.Event for one in gc.get_objects())

    async def wait_in_vain():
        for _ in range(20):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(batcher, 0.01)

    async def take():
        awaited = [asyncio.ensure_future(batcher) for _ in range(2)]
        await asyncio.wait(awaited, timeout=0.01)  # they run until they wait
        for number in range(4):
            batcher.stack(number)
        return sorted([(await one).tolist() for one in awaited])

    before = event_count()
    asyncio.run(wait_in_vain())
    assert event_count() == before
    assert asyncio.run(take()) == [[0, 1], [2, 3]]
    batcher.close()
    with pytest.raises(CancelledError):
        asyncio.run(wait_in_vain())


def test_await_returns_batches_in_order():
    batcher = reverie.Batcher(2)

    async def take():
        return [(await batcher).tolist() for _ in range(20)]

    def add():
        for i in range(40):
            batcher.stack(i)

    thread = threading.Thread(target=add)
    thread.start()
    found = asyncio.run(asyncio.wait_for(take(), 30))
    thread.join()
    assert found == [[2 * i, 2 * i + 1] for i in range(20)]


@pytest.mark.parametrize("elements", [4, 100_000])
def test_many_threads_add_and_take_and_nothing_is_lost_or_torn(elements):
    batcher = reverie.Batcher(8, queue_size=4)
    count, each = 4, 100 if elements > 1000 else 2000
    found = []

    def add(worker):
        for i in range(each):
            batcher.stack(np.full(elements, worker * each + i))

    def take():
        for _ in range(count * each // 8 // 2):
            batch = batcher.get()
            assert (batch == batch[:, :1]).all()
            found.extend(batch[:, 0].tolist())

    threads = [threading.Thread(target=add, args=(worker,)) for worker in range(count)]
    threads += [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(count * each))


@pytest.mark.parametrize("batch", [5, "text", {}, {"a": None}])
def test_unbatch_refuses_values_without_an_array(batch):
    with pytest.raises(reverie.errors.InvalidArgumentError, match="it must hold an array"):
        reverie.unbatch(batch)
