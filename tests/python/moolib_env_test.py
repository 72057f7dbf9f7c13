"""moolib's EnvPool and Batcher as programs use them: one fact of the interface per test."""

import asyncio
import collections
import threading

import numpy as np
import pytest

from reverie import moolib
from reverie.errors import EnvError

torch = pytest.importorskip("torch")


class Classic:
    """moolib's environment interface: no spaces, no info, and a step returns three values."""

    def __init__(self, length=3):
        self.length = length

    def reset(self):
        self.steps = 0
        return {"board": np.zeros((2, 2), np.uint8)}

    def step(self, action):
        self.steps += 1
        board = np.full((2, 2), action, np.uint8)
        return {"board": board}, 0.5 * action, self.steps == self.length


class Four(Classic):
    """The old Gym's interface, whose fourth value is ignored."""

    def step(self, action):
        return *super().step(action), {"anything": object()}


@pytest.mark.parametrize("kind", [Classic, Four])
def test_an_environment_of_three_or_four_values_is_stepped(kind):
    length = 2
    with moolib.EnvPool(lambda: kind(length), 2, batch_size=2, num_batches=1) as pool:
        actions = torch.tensor([3, 4])
        assert pool.step(0, actions).result()["board"].sum() == 0  # the first step is a reset
        outputs = pool.step(0, actions).result()
        assert outputs["board"][:, 0, 0].tolist() == [3, 4]
        assert outputs["reward"].tolist() == [1.5, 2.0]
        assert outputs["done"].tolist() == [False, False]
        assert outputs["done"].dtype == torch.bool
        outputs = pool.step(0, actions).result()
        assert outputs["done"].tolist() == [True, True]
        assert outputs["board"].sum() == 0


def test_environments_get_the_number_that_was_given():
    gymnasium = pytest.importorskip("gymnasium")

    class FromFive(Classic):
        action_space = gymnasium.spaces.Discrete(3, start=5)

    with moolib.EnvPool(FromFive, 2, batch_size=2, num_batches=1) as pool:
        actions = torch.tensor([5, 7])
        pool.step(0, torch.zeros(2, dtype=torch.int64)).result()
        assert pool.step(0, actions).result()["board"][:, 0, 0].tolist() == [5, 7]
        with pytest.raises(RuntimeError, match="integers"):
            pool.step(0, torch.tensor([5.0, 7.0]))


def test_misuse_of_a_pool_raises_runtime_errors():
    with moolib.EnvPool(Classic, 1, batch_size=2, num_batches=1) as pool:
        future = pool.step(0, torch.tensor([0, 0]))
        with pytest.raises(RuntimeError, match="result"):
            pool.step(0, torch.tensor([0, 0]))
        future.result()
        for actions in (
            torch.zeros(3, dtype=torch.int64),
            torch.zeros(2),
            torch.zeros(2, 1).long(),
        ):
            with pytest.raises(RuntimeError, match="actions"):
                pool.step(0, actions)
        with pytest.raises(RuntimeError, match="batch_index is 1"):
            pool.step(1, torch.tensor([0, 0]))
    batcher = moolib.Batcher(2)
    batcher.stack({"a": torch.zeros(3)})
    with pytest.raises(RuntimeError):
        batcher.cat({"a": torch.zeros(1, 3)})
    with pytest.raises(RuntimeError):
        batcher.stack({"b": torch.zeros(3)})


class Broken(Classic):
    def step(self, _action):
        return 5


def test_a_step_that_returns_another_form_is_reported():
    with moolib.EnvPool(Broken, 1, batch_size=1, num_batches=1) as pool:
        pool.step(0, torch.tensor([0])).result()
        with pytest.raises(EnvError, match="step returned 5; it must return an observation"):
            pool.step(0, torch.tensor([0])).result()


def test_all_items_may_be_added_before_a_batch_is_taken():
    batcher = moolib.Batcher(2, "cpu", 1)
    for i in range(200):  # fills 100 batches from one thread
        batcher.stack({"a": torch.full((3,), i), "b": [np.full(3, i)]})
    assert batcher.size() == 100
    for i in range(100):
        batch = batcher.get()
        assert batch["a"].shape == (3, 2)
        assert batch["a"][0].tolist() == [2 * i, 2 * i + 1]
    assert batcher.empty()


def test_get_waits_for_another_thread():
    batcher = moolib.Batcher(4)
    taken = []
    taker = threading.Thread(target=lambda: taken.append(batcher.get()))
    taker.start()
    batcher.cat({"a": torch.arange(3)})
    batcher.cat({"a": torch.arange(3)})  # the second half begins the next batch
    taker.join()
    assert taken[0]["a"].tolist() == [0, 1, 2, 0]
    assert batcher.filled == 2


def test_a_batch_is_made_on_the_requested_device():
    batcher = moolib.Batcher(1, device=torch.device("cpu"))
    batcher.stack(torch.zeros(2))
    assert batcher.get().device.type == "cpu"
    if torch.cuda.is_available():
        batcher = moolib.Batcher(1, "cuda")
        batcher.stack(torch.zeros(2))
        assert batcher.get().device.type == "cuda"


def test_leaves_that_are_not_arrays_are_taken_from_the_first_item():
    batcher = moolib.Batcher(2)
    for i in range(4):
        batcher.stack({"x": torch.full((3,), i), "n": 5 + i, "l": [i / 2, (True, f"{i}")]})
    batch = batcher.get()
    assert batch["x"].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert (batch["n"], batch["l"]) == (5, [0.0, (True, "0")])
    assert batcher.get()["n"] == 7


def test_numbers_of_numpy_are_batched_whatever_their_type():
    batcher = moolib.Batcher(2)
    kinds = (np.float64, np.float32, np.int64)
    for i in range(2):
        batcher.stack({kind.__name__: kind(i) for kind in kinds})
    batch = batcher.get()
    assert {name: array.dtype for name, array in batch.items()} == {
        kind.__name__: np.dtype(kind) for kind in kinds
    }
    assert all(array.tolist() == [0, 1] for array in batch.values())


def test_later_items_are_converted_to_the_type_of_the_first():
    batcher = moolib.Batcher(2)
    batcher.stack(torch.zeros(1))
    batcher.stack(torch.ones(1, dtype=torch.float64))
    assert batcher.get().dtype == torch.float32


def test_a_batcher_can_be_awaited():
    async def take():
        batcher = moolib.Batcher(1)
        batcher.stack({"x": torch.ones(2), "n": 3})
        return await batcher

    batch = asyncio.run(take())
    assert batch["x"].tolist() == [[1, 1]]
    assert batch["n"] == 3


def test_items_that_do_not_fit_a_batch_raise_runtime_errors():
    batcher = moolib.Batcher(4)
    batcher.stack({"x": torch.zeros(2)})
    with pytest.raises(RuntimeError, match="made by stack"):
        batcher.cat({"x": torch.zeros(2)})
    with pytest.raises(RuntimeError, match="structure"):
        batcher.stack({"x": torch.zeros(2), "y": torch.zeros(2)})
    with pytest.raises(RuntimeError, match="rows along dim 0"):
        moolib.Batcher(4).cat({"x": torch.zeros(2), "y": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="size is 0"):
        moolib.Batcher(0)


def test_one_thread_can_batch_steps_unrolls_and_learner_batches():
    """The loop of moolib's vtrace agent: it stacks over time, and splits unrolls by columns."""
    columns, unroll, learner_columns = 4, 3, 2
    learner = moolib.Batcher(learner_columns, "cpu", 1)
    with moolib.EnvPool(Classic, 2, batch_size=columns, num_batches=2) as pool:
        times = [moolib.Batcher(unroll + 1, "cpu") for _ in range(2)]
        futures = [None, None]
        actions = [torch.zeros(columns, dtype=torch.int64) for _ in range(2)]
        for turn in range(2 * (2 * unroll + 1)):  # two unrolls of both batches
            b = turn % 2
            if futures[b] is None:
                futures[b] = pool.step(b, actions[b])
            outputs = futures[b].result()
            entry = {**outputs, "prev_action": actions[b], "agent": ({"core": [actions[b] * 0.5]},)}
            actions[b] = (torch.arange(columns) + turn) % 7
            futures[b] = pool.step(b, actions[b])
            times[b].stack(entry)
            if times[b].empty():
                continue
            unrolled = times[b].get()
            unrolled["first"] = unrolled["prev_action"][0].unsqueeze(0)
            learner.cat(unrolled)
            times[b].stack(entry)  # the last entry is also the first of the next unroll
    assert learner.size() == 2 * 2 * columns // learner_columns
    seen = []
    while not learner.empty():
        batch = learner.get()
        assert batch["board"].shape == (unroll + 1, learner_columns, 2, 2)
        assert batch["reward"].dtype == torch.float32
        assert type(batch["agent"]) is tuple
        assert torch.equal(batch["agent"][0]["core"][0], batch["prev_action"] * 0.5)
        assert torch.equal(batch["first"][0], batch["prev_action"][0])
        # A board shows the action before it, except at the start of an episode.
        is_first = batch["board"][..., 0, 0] != batch["prev_action"]
        assert (batch["board"][..., 0, 0][is_first] == 0).all()
        seen.append(batch)
    assert torch.equal(seen[0]["board"][-1], seen[4]["board"][0])  # the next unroll of the batch


def test_nests_are_returned_as_plain_dicts_tuples_and_lists():
    named = collections.namedtuple("Named", "x y")
    batcher = moolib.Batcher(1)
    batcher.stack(collections.OrderedDict(a=named(torch.ones(2), [torch.zeros(1)])))
    batch = batcher.get()
    assert type(batch) is dict
    assert type(batch["a"]) is tuple
    assert type(batch["a"][1]) is list
