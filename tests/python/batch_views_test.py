"""A batch of a table by names and as a tuple for a learner; a replay dataset on a device."""

import numpy as np
import pytest

import reverie
from reverie.errors import InvalidArgumentError, UnsupportedTypeError


@pytest.fixture
def batch():
    table = reverie.Table(
        "t",
        sampler=reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=10,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    with reverie.Store([table]) as store:
        client = store.client()
        client.insert({"x": np.arange(3)}, {"t": 1.0})
        yield client.sample_batch("t", 4, beta=0.5)


def test_a_batch_unpacks_into_data_weights_and_tickets(batch):
    data, weights, tickets = batch
    assert data is batch.data
    assert weights is batch.weights
    assert tickets is batch.tickets


def test_arrays_of_a_batch_can_be_read_by_name(batch):
    assert batch["weights"] is batch.weights
    assert batch.names() == list(batch.as_dict())
    assert set(batch.names()) >= {"data", "keys", "tickets", "weights"}
    assert "shards" not in batch.names()  # only with several servers
    with pytest.raises(InvalidArgumentError, match="a batch's array is 'weight'"):
        batch["weight"]
    with pytest.raises(UnsupportedTypeError, match="a batch's array is 0"):
        batch[0]


def filled():
    buffer = reverie.ReplayBuffer(100, seed=1)
    for step in range(50):
        buffer.add(np.float32(step), step, 1.0, np.float32(step + 1), terminated=False)
    return buffer


@pytest.mark.parametrize("output", ["torch", "jax"])
def test_a_dataset_puts_its_batches_on_a_device(output):
    pytest.importorskip(output)
    buffer = filled()
    with buffer.dataset(8, output=output, device="cpu", timeout_s=5) as batches:
        for _ in range(5):
            batch = next(batches)
            assert type(batch["obs"]).__module__.split(".")[0] in (output, "jaxlib")
            np.testing.assert_array_equal(np.asarray(batch["obs"]), np.asarray(batch["action"]))
            assert buffer.update_priorities(batch["tickets"], np.ones(8)) == 8
    with pytest.raises(StopIteration):
        next(batches)


def test_a_dataset_refuses_a_missing_device():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidArgumentError, match="torch sees no GPU here"):
            filled().dataset(8, output="torch", device="cuda")
    with pytest.raises(InvalidArgumentError, match='devices are for "torch"'):
        filled().dataset(8, device="cpu")
