"""Stored values keep their type, their shape and their bits."""

import ml_dtypes
import numpy as np
import pytest

import reverie

NUMPY_TYPES = "?bhilqBHILQefdFD"
SMALL_FLOATS = [
    "bfloat16",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
]


@pytest.fixture
def client():
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        10,
        reverie.rate_limiters.MinSize(1),
    )
    with reverie.Store([table]) as store:
        yield store.client()


def through_the_store(client, value):
    """The value of a column of one row after passing a writer, a table and a batch."""
    client.reset("t")
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append({"x": value})
        column = writer.history["x"][-1]
        writer.create_item("t", 1.0, {"x": column})
    batch = client.sample_batch("t", 1).data["x"]
    looked_at = column.numpy()
    assert looked_at.dtype == batch.dtype
    stored = batch.reshape(batch.shape[1:])
    np.testing.assert_array_equal(looked_at, stored)
    return stored


def bits(dtype, shape, seed=3):
    """An array of random bits, or of random truth values for bool."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype) == bool:
        return rng.integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0,), (2, 0, 3)])
@pytest.mark.parametrize("code", [*NUMPY_TYPES, *SMALL_FLOATS])
def test_arrays_keep_type_shape_and_bits(client, code, shape):
    dtype = np.dtype(getattr(ml_dtypes, code) if code in SMALL_FLOATS else code)
    value = bits(dtype, shape)
    stored = through_the_store(client, value)
    assert stored.dtype == dtype
    assert stored.shape == shape
    assert stored.tobytes() == value.tobytes()


@pytest.mark.parametrize("code", [*NUMPY_TYPES, *SMALL_FLOATS])
def test_scalars_are_stored_as_arrays_without_axes(client, code):
    dtype = np.dtype(getattr(ml_dtypes, code) if code in SMALL_FLOATS else code)
    scalar = bits(dtype, (1,))[0]
    stored = through_the_store(client, scalar)
    assert stored.dtype == dtype
    assert stored.shape == ()
    assert stored.tobytes() == scalar.tobytes()


@pytest.mark.parametrize("code", [code for code in NUMPY_TYPES if np.dtype(code).itemsize > 1])
def test_byte_swapped_arrays_are_stored_in_native_order(client, code):
    value = bits(code, (5,))
    swapped = value.astype(value.dtype.newbyteorder())
    assert same_bits(through_the_store(client, swapped), value)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a[:, ::-1],
        lambda a: a.T,
        lambda a: a[1:3, 2],
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[0], (4, 6)),
        lambda a: a[3],
    ],
)
def test_views_of_any_layout_are_stored_row_by_row(client, view):
    value = view(np.arange(24, dtype=np.int32).reshape(4, 6))
    np.testing.assert_array_equal(through_the_store(client, value), value)


def test_an_unaligned_array_is_stored(client):
    raw = np.zeros(9, np.uint8)
    value = raw[1:].view(np.float64)
    value[0] = 1.5
    assert through_the_store(client, value)[0] == 1.5


def test_an_array_subclass_is_stored_as_an_array(client):
    value = np.arange(6).reshape(2, 3).view(np.recarray)
    np.testing.assert_array_equal(through_the_store(client, value), np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "bool"), (7, "int64"), (-(2**63), "int64"), (0.5, "float64"), (1 + 2j, "complex128")],
)
def test_python_numbers_have_their_default_widths(client, value, dtype):
    stored = through_the_store(client, value)
    assert stored.dtype == dtype
    assert stored == value


@pytest.mark.parametrize("value", ["", "a", "grün 火", "\ud800 alone", "x" * 100_000])
def test_str_is_returned_as_str(client, value):
    stored = through_the_store(client, value)
    assert stored.dtype == object
    assert stored.item() == value


@pytest.mark.parametrize("value", [b"", b"\0\xff\0", b"x" * 100_000])
def test_bytes_are_returned_as_bytes(client, value):
    stored = through_the_store(client, value)
    assert stored.item() == value
    assert type(stored.item()) is bytes


@pytest.mark.parametrize(
    "value",
    [
        np.array([["a", "bc"], ["", "grün"]]),
        np.array(["a", "bc"], dtype=object),
        np.array([b"a", b"bc"]),
        np.array([b"a\0b", b""], dtype=object),
        np.array(["a", "b"])[::-1],
        np.char.array(["a", "bc"]),
        np.char.array([b"a", b"bc"]),
        np.str_("a"),
        np.bytes_(b"a"),
    ],
)
def test_arrays_of_text_are_returned_as_object_arrays(client, value):
    stored = through_the_store(client, value)
    assert stored.dtype == object
    assert stored.tolist() == np.asarray(value).tolist()


def test_an_object_whose_array_holds_one_text_is_stored(client):
    class Tensor:
        def __init__(self, element):
            self.element = element

        def __array__(self, dtype=None, copy=None):
            return np.array(self.element, dtype=object)

    assert through_the_store(client, Tensor(b"a\0b")).item() == b"a\0b"
    with pytest.raises(TypeError, match="dtype object, which cannot be stored"):
        client.insert({"x": Tensor({})}, {"t": 1.0})


def test_text_of_several_steps_is_gathered_into_one_array(client):
    writer = client.trajectory_writer(num_keep_alive_refs=3)
    for step in range(6):
        writer.append({"word": "w" * step, "raw": np.array([b"a" * step, b"b"])})
        if step >= 2:
            picked = {name: column[-3:] for name, column in writer.history.items()}
            writer.create_item("t", 1.0, picked)
    samples = list(client.sample("t", 1, emit_timesteps=False))
    raw, word = samples[0].data
    assert word.tolist() == ["", "w", "ww"]
    assert raw.tolist() == [[b"", b"b"], [b"a", b"b"], [b"aa", b"b"]]


@pytest.mark.parametrize("serves", [False, True])
@pytest.mark.parametrize("said", [str, bytes])
def test_text_is_read_as_the_type_in_the_signature(serves, said):
    signature = {"s": reverie.TensorSpec((2,), said), "x": reverie.TensorSpec((2,), np.float32)}
    table = reverie.Table(
        "t",
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Fifo(),
        max_size=9,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_times_sampled=1,
        signature=signature,
    )
    words = ["grün", "grün".encode(), b"\xff", "\ud800"]
    wanted = {
        str: ["grün", "grün", "\udcff", "\ud800"],
        bytes: ["grün".encode(), "grün".encode(), b"\xff", b"\xed\xa0\x80"],
    }
    store = reverie.Server([table]) if serves else reverie.Store([table])
    with store:
        client = reverie.Client(f"localhost:{store.port}") if serves else store.client()
        for word in words:
            with client.trajectory_writer(num_keep_alive_refs=2) as writer:
                for x in range(2):
                    writer.append({"s": word, "x": np.float32(x)})
                picked = {name: column[-2:] for name, column in writer.history.items()}
                writer.create_item("t", 1.0, picked)
        batch = client.sample_batch("t", len(words))
        assert batch.data["s"].tolist() == [[word, word] for word in wanted[said]]
        assert batch.data["s"].dtype == object
        assert batch.data["x"].tolist() == [[0, 1]] * len(words)
        for word in words:
            client.insert(
                {"s": np.array([word, word], dtype=object), "x": np.zeros(2, "f4")}, {"t": 1.0}
            )
        samples = client.sample(
            "t", len(words), emit_timesteps=False, unpack_as_table_signature=True
        )
        found = [sample.data["s"].tolist() for sample in samples]
        assert found == [[[word, word]] for word in wanted[said]]


@pytest.mark.parametrize(
    ("value", "named", "remedy"),
    [
        (np.array(["2020-01-01"], "M8[D]"), "datetime64[D]", "int64"),
        (np.datetime64("2020-01-01"), "datetime64[D]", "int64"),
        (np.timedelta64(1, "s"), "timedelta64[s]", "int64"),
        (np.zeros(2, np.longdouble), "float128", "float64"),
        (np.zeros(2, np.clongdouble), "complex256", "complex128"),
        (np.zeros(2, [("a", int)]), "'a'", "dict of arrays"),
        (np.array([1, "a"], dtype=object), "element 0 is a int", "all bytes"),
        (np.array(["a", b"b"], dtype=object), "element 1 is a bytes", "all bytes"),
        (np.zeros(2, ml_dtypes.int4), "int4", "float32"),
        ({1, 2}, "set", "NumPy array"),
        (object(), "object", "NumPy array"),
        (np, "module", "NumPy array"),
    ],
)
def test_a_type_that_cannot_be_stored_is_refused_by_name(client, value, named, remedy):
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    with pytest.raises(TypeError, match="column 'obs/x'") as caught:
        writer.append({"obs": {"x": value}})
    assert isinstance(caught.value, reverie.ReverieError)
    assert named in str(caught.value)
    assert remedy in str(caught.value)
    writer.append({"obs": {"x": 1.0}})  # the writer is still usable
    writer.close()


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_an_int_beyond_64_bits_is_refused(client, value):
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    with pytest.raises(ValueError, match=f"column 'x' is the int {value}"):
        writer.append({"x": value})
    writer.close()
