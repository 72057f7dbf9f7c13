"""The columns that a replay buffer accepts, and those that a learner of another library gets."""

import logging

import numpy as np
import pytest

import reverie
from reverie import replay_output
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

N = 3


def step(index, num_envs=N):
    """A step of each environment, whose values identify the step."""
    obs = np.full((num_envs, 2), index, np.float32)
    return {
        "obs": obs,
        "action": np.full(num_envs, index, np.int64),
        "reward": np.full(num_envs, index, np.float32),
        "next_obs": obs + 1,
        "terminated": np.zeros(num_envs, bool),
    }


def filled(count=5, **options):
    buffer = reverie.ReplayBuffer(100, N, seed=1, **options)
    for index in range(count):
        log_prob = np.full(N, -index, np.float32)
        buffer.add(**step(index), log_prob=log_prob, mask_of={"legal": np.full((N, 2), index)})
    return buffer


def test_custom_columns_are_returned_by_name():
    batch = filled().sample(32)
    assert sorted(batch) == [
        "action", "discount", "log_prob", "mask_of", "next_obs", "obs", "reward", "terminated",
        "tickets", "weights",
    ]  # fmt: skip
    np.testing.assert_array_equal(batch["log_prob"], -batch["action"])
    np.testing.assert_array_equal(batch["mask_of"]["legal"][:, 1], batch["action"])
    assert batch["log_prob"].dtype == np.float32


def test_custom_columns_come_from_the_first_of_n_steps_or_each_of_a_sequence():
    batch = filled(n_step=3).sample(32)
    np.testing.assert_array_equal(batch["log_prob"], -batch["obs"][:, 0])
    batch = filled(sequence_length=2).sample(8)
    assert batch["log_prob"].shape == (8, 2)
    np.testing.assert_array_equal(batch["log_prob"], -batch["action"])


def test_custom_columns_work_with_out_and_with_datasets():
    buffer = filled()
    batch = buffer.sample(8)
    kept = batch["log_prob"]
    assert buffer.sample(8, out=batch)["log_prob"] is kept
    np.testing.assert_array_equal(kept, -batch["action"])
    with pytest.raises(InvalidArgumentError, match="out has no 'log_prob'"):
        buffer.sample(8, out={name: batch[name] for name in batch if name != "log_prob"})
    with buffer.dataset(4) as batches:
        batch = next(batches)
        np.testing.assert_array_equal(batch["log_prob"], -batch["action"])


def test_custom_columns_must_be_given_in_each_step():
    buffer = filled(1)
    with pytest.raises(InvalidArgumentError, match="column log_prob is missing"):
        buffer.add(**step(1), mask_of={"legal": np.zeros((N, 2), int)})
    with pytest.raises(InvalidArgumentError, match="column value was not in the first step"):
        buffer.add(**step(1), log_prob=0, mask_of=0, value=np.zeros(N))
    plain = reverie.ReplayBuffer(10, N)
    with pytest.raises(InvalidArgumentError, match="weights is a column of each batch already"):
        plain.add(**step(0), weights=np.ones(N))
    plain.add(**step(0))
    with pytest.raises(InvalidArgumentError, match="column value was not in the first step"):
        plain.add(**step(1), value=np.zeros(N))
    assert plain.stats["steps"] == N


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (np.int64, np.int32),
        (np.float64, np.float32),
        (np.float32, np.float16),
        (np.int16, np.uint8),
        (np.float64, np.int32),
    ],
)
def test_types_that_can_be_cast_without_loss_are_cast(first, later):
    buffer = reverie.ReplayBuffer(10, N)
    buffer.add(**{**step(0), "action": np.zeros(N, first)})
    buffer.add(**{**step(1), "action": np.array([1, 2, 3], later)})
    batch = buffer.sample(64)
    assert batch["action"].dtype == first
    assert set(batch["action"].tolist()) == {0, 1, 2, 3}


def test_observations_and_python_numbers_are_cast_to_the_columns_type():
    buffer = reverie.ReplayBuffer(10)
    buffer.add(np.float32(1), np.int32(0), 1, np.float32(2), terminated=False)
    buffer.add(2.0, 1, np.float64(1), np.float16(3), terminated=False)
    assert buffer.stats["cuts"] == 0
    batch = buffer.sample(64)
    assert batch["obs"].dtype == np.float32
    assert batch["action"].dtype == np.int32
    assert set(batch["next_obs"].tolist()) == {2, 3}


@pytest.mark.parametrize("wrong", [np.array([0.5] * N), np.array([True] * N), 2**40])
def test_types_that_cannot_be_cast_without_loss_are_refused_with_a_remedy(wrong):
    buffer = reverie.ReplayBuffer(10, N)
    first = np.zeros(N, np.uint8)
    buffer.add(**{**step(0), "action": first})
    if np.asarray(wrong).dtype == bool:  # bool to uint8 loses nothing
        return buffer.add(**{**step(1), "action": wrong})
    with pytest.raises(InvalidArgumentError, match=r"the first step had uint8 .*; convert it"):
        buffer.add(**{**step(1), "action": wrong})
    assert buffer.stats["steps"] == N
    return None


def test_a_last_axis_of_length_one_is_ignored():
    buffer = reverie.ReplayBuffer(10, N, prioritized=True)
    given = step(1)
    for name in ("reward", "terminated"):
        given[name] = given[name][:, None]
    buffer.add(**given, truncated=np.zeros((N, 1)), mask=np.ones((N, 1), bool))
    batch = buffer.sample(4)
    assert batch["reward"].tolist() == [1] * 4
    assert buffer.update_priorities(batch["tickets"], np.ones((4, 1))) > 0
    with pytest.raises(InvalidArgumentError, match="flat"):
        buffer.add(**{**given, "reward": np.ones((N, 2))})


def test_a_capacity_may_be_a_float_with_an_integer_value():
    assert reverie.ReplayBuffer(1e5).capacity == 100_000
    with pytest.raises(UnsupportedTypeError, match=r"capacity is 1\.5"):
        reverie.ReplayBuffer(1.5)


def test_output_torch_gives_tensors_and_accepts_their_tickets():
    torch = pytest.importorskip("torch")
    buffer = filled(prioritized=True)
    batch = buffer.sample(8, output="torch")
    assert all(isinstance(batch[name], torch.Tensor) for name in ("obs", "weights", "tickets"))
    assert isinstance(batch["mask_of"]["legal"], torch.Tensor)
    assert batch["action"].dtype == torch.int64
    errors = torch.ones(8, requires_grad=True) * 2
    assert buffer.update_priorities(batch["tickets"], errors) > 0
    assert buffer.max_priority == 2
    assert buffer.sample(8, output="torch", device="cpu")["obs"].device.type == "cpu"
    buffer.sample(8, output="torch", pin_memory=True)
    with pytest.raises(InvalidArgumentError, match="device is 'nowhere'"):
        buffer.sample(8, output="torch", device="nowhere")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidArgumentError, match="torch sees no GPU here"):
            buffer.sample(8, output="torch", device="cuda")
        return
    moved = buffer.sample(8, output="torch", device="cuda", pin_memory=True)
    assert moved["obs"].device.type == "cuda"
    assert buffer.update_priorities(moved["tickets"], moved["weights"]) > 0


def test_output_jax_gives_arrays_and_logs_narrowed_columns(caplog):
    jax = pytest.importorskip("jax")
    buffer = filled()
    replay_output._tell_once.cache_clear()  # of other tests in this process
    with caplog.at_level(logging.WARNING, "reverie"):
        for _ in range(2):
            batch = buffer.sample(8, output="jax")
    told = [record.getMessage() for record in caplog.records if "holds" in record.getMessage()]
    assert "JAX holds the column action, int64, as int32" in told[0]
    assert len(told) == 2  # one for action and one for mask_of/legal
    assert isinstance(batch["obs"], jax.Array)
    assert batch["tickets"].dtype == np.uint64
    assert buffer.update_priorities(batch["tickets"], np.ones(8)) > 0
    assert buffer.sample(8, output="jax", device="cpu")["obs"].shape == (8, 2)
    with pytest.raises(InvalidArgumentError, match="JAX does not see"):
        buffer.sample(8, output="jax", device="nowhere")


@pytest.mark.parametrize("output", ["torch", "jax"])
def test_a_batch_that_is_filled_again_keeps_its_arrays(output):
    pytest.importorskip(output)
    buffer = filled()
    batch = buffer.sample(8)
    arrays = dict(batch)
    for _ in range(2):
        made = buffer.sample(8, out=batch, output=output)
        np.testing.assert_array_equal(np.asarray(made["obs"]), batch["obs"])
        np.testing.assert_array_equal(np.asarray(made["tickets"]), batch["tickets"])
    assert batch.keys() == arrays.keys()
    assert all(batch[name] is array for name, array in arrays.items())


def test_invalid_combinations_of_output_options_are_refused():
    buffer = filled()
    for options, text in (
        ({"output": "tensorflow"}, "output is 'tensorflow'"),
        ({"device": "cpu"}, "device is 'cpu' with output"),
        ({"pin_memory": True}, "pin_memory is True"),
        ({"output": "jax", "pin_memory": True}, "pin_memory is True"),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            buffer.sample(4, **options)


def test_a_batch_has_a_repr_as_dict_and_to():
    store = reverie.Store([reverie.Table.queue("t", 10)])
    client = store.client()
    client.insert({"obs": np.zeros(3, np.float32), "reward": np.float32(1)}, {"t": 1.0})
    batch = client.sample_batch("t", 1)
    assert repr(batch) == "<Batch of 1 items: obs [1, 1, 3] float32, reward [1, 1] float32>"
    found = batch.as_dict()
    assert found["data"] is batch.data
    assert dict(batch.items()).keys() == found.keys() >= {"keys", "tickets", "priorities"}
    assert "weights" not in found
    torch = pytest.importorskip("torch")
    assert batch.to("cpu") is batch
    assert isinstance(batch.data["obs"], torch.Tensor)
    with pytest.raises(InvalidArgumentError, match="output is 'numpy'"):
        batch.to("cpu", output="numpy")
