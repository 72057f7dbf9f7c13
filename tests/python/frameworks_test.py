"""Arrays of PyTorch and JAX are accepted directly; NumPy arrays are returned."""

import subprocess
import sys

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import reverie

TORCH_TYPES = {
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
}
JAX_TYPES = [
    np.bool_,
    np.int8,
    np.int32,
    np.uint8,
    np.float16,
    np.float32,
    np.complex64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
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
    client.reset("t")
    client.insert(value, {"t": 1.0})
    return client.sample_batch("t", 1).data[0, 0]


@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=str)
def test_torch_tensors_keep_type_and_values(client, dtype):
    values = np.array([[0, 1, 2], [3, 4, 1]])
    stored = through_the_store(client, torch.from_numpy(values).to(dtype))
    assert stored.dtype == TORCH_TYPES[dtype]
    np.testing.assert_array_equal(stored, values.astype(TORCH_TYPES[dtype]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "view", [lambda t: t.T, lambda t: t[:, ::2], lambda t: t[1], lambda t: t[0, 0], lambda t: t[:0]]
)
def test_torch_views_are_stored_row_by_row(client, dtype, view):
    value = view(torch.arange(12).reshape(3, 4).to(dtype))
    stored = through_the_store(client, value)
    np.testing.assert_array_equal(stored.astype(np.float32), value.to(torch.float32).numpy())


def test_tensors_that_torch_does_not_export_are_refused_with_the_reason(client):
    for value, reason in [
        (torch.zeros(2, requires_grad=True), "detach"),
        (torch.zeros(2).to_sparse(), "dense"),
        (torch.zeros(2, device="meta"), "meta"),
    ]:
        with pytest.raises(TypeError, match=reason) as caught:
            client.insert({"loss": value}, {"t": 1.0})
        assert "column 'loss'" in str(caught.value)


@pytest.mark.parametrize("dtype", JAX_TYPES, ids=lambda t: t.__name__)
def test_jax_arrays_keep_type_and_values(client, dtype):
    values = np.array([[0, 1, 2], [3, 4, 1]]).astype(dtype)
    stored = through_the_store(client, jnp.asarray(values))
    assert stored.dtype == dtype
    np.testing.assert_array_equal(stored, values)


def test_jax_scalars_are_stored(client):
    assert through_the_store(client, jnp.float32(1.5)) == 1.5


def test_a_batch_is_passed_to_torch_without_a_copy(client):
    client.insert({"x": torch.arange(4.0)}, {"t": 1.0})
    x = client.sample_batch("t", 2).data["x"]
    tensor = torch.from_numpy(x)
    tensor += 1
    np.testing.assert_array_equal(x[0, 0], [1, 2, 3, 4])


PROGRAM = """
import sys
{imports}
import numpy as np
table = reverie.Table("t", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 10,
                      reverie.rate_limiters.MinSize(1))
client = reverie.Store([table]).client()
client.insert({{"a": torch.ones(3), "b": jnp.ones(2), "c": np.ones(1)}}, {{"t": 1.0}})
assert client.sample_batch("t", 2).data["a"].shape == (2, 1, 3)
assert float(torch.ones(2).sum()) + float(jnp.ones(2).sum()) == 4
"""


@pytest.mark.parametrize(
    "order",
    ["reverie, torch, jax", "torch, jax, reverie", "jax, reverie, torch"],
)
def test_the_order_of_imports_does_not_matter(order):
    imports = f"import {order}\nimport jax.numpy as jnp"
    program = PROGRAM.format(imports=imports)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
