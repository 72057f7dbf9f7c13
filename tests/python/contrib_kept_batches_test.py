"""Arrays of batches are reused once nothing refers to them, and never before."""

import copy
import pickle

import numpy as np
import pytest

import reverie
from reverie.contrib.kept_batches import KeptBatches


def filled(*, nested=False):
    """Images of one value each, which equals the action."""
    buffer = reverie.ReplayBuffer(200, seed=1)
    for step in range(100):
        now, then = np.full((64, 64), step, np.uint8), np.full((64, 64), step + 1, np.uint8)
        nests = ({"a": now}, {"a": then}) if nested else (now, then)
        buffer.add(nests[0], step, float(step), nests[1], terminated=step % 10 == 9)
    return buffer


def pictures(batch):
    obs = batch["obs"]
    return obs["a"] if isinstance(obs, dict) else obs


def check(batch):
    np.testing.assert_array_equal(pictures(batch)[:, 0, 0], batch["action"])
    np.testing.assert_array_equal(batch["reward"], batch["action"])


@pytest.mark.parametrize("nested", [False, True])
def test_two_sets_of_arrays_alternate_while_one_batch_is_held(nested):
    buffer, batches = filled(nested=nested), KeptBatches()
    seen = set()
    batch = None
    for _ in range(20):
        batch = batches.sample(buffer, 64)  # the previous batch is still referenced
        check(batch)
        seen.add(pictures(batch).ctypes.data)
    assert len(seen) == 2


def test_arrays_that_are_still_referenced_are_not_overwritten():
    torch = pytest.importorskip("torch")
    buffer, batches = filled(), KeptBatches()

    def as_it_is(array):
        return array

    def part(array):
        return array[3:5, 1:].reshape(-1)

    def tensor(array):
        return torch.as_tensor(array)

    def part_of_tensor(array):
        return torch.as_tensor(array[2:])[1:, 5]

    def window(array):
        return memoryview(array)

    held = []
    for turn in range(40):
        batch = batches.sample(buffer, 64)
        check(batch)
        hold = (as_it_is, part, tensor, part_of_tensor, window)[turn % 5]
        value = hold(pictures(batch))
        held.append((value, np.array(np.asarray(value))))
        del batch, value
        if turn % 3 == 0:
            del held[:: 2 + turn % 4]
        for value, as_it_was in held:
            np.testing.assert_array_equal(np.asarray(value), as_it_was)


def test_a_reference_to_any_column_keeps_its_batch():
    buffer, batches = filled(), KeptBatches()
    tickets = [batches.sample(buffer, 64)["tickets"] for _ in range(6)]
    assert len({one.ctypes.data for one in tickets}) == 6


def test_batches_of_other_sizes_and_small_batches_are_not_shared():
    buffer, batches = filled(), KeptBatches()
    for size in (64, 100, 64, 128, 64, 2, 2, 2, 100):
        batch = batches.sample(buffer, size)
        assert len(batch["action"]) == size
        check(batch)
    assert all(len(kept["tickets"]) > 2 for kept in batches._kept)
    for twin in (copy.deepcopy(batches), pickle.loads(pickle.dumps(batches))):
        assert twin._kept == []
