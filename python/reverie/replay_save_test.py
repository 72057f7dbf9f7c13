"""Replay buffers that are saved and loaded."""

import copy
import pickle
import random
import threading
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)


def step(number, envs=1, **extra):
    """A step of every environment; episodes end at different times."""
    obs = np.stack([np.array([number, env], np.float32) for env in range(envs)])
    after = np.stack([np.array([number + 1, env], np.float32) for env in range(envs)])
    over = np.array([(number + env) % 13 == 0 for env in range(envs)])
    return {
        "obs": {"state": obs, "picture": np.full((envs, 20, 20), number % 256, np.uint8)},
        "action": np.arange(envs) + number,
        "reward": np.arange(envs) * 0.5 + number,
        "next_obs": {
            "state": after,
            "picture": np.full((envs, 20, 20), (number + 1) % 256, np.uint8),
        },
        "terminated": over,
        **extra,
    }


def go_on(buffer, begin, envs, prioritized):
    """Adds to a buffer, samples from it and updates it; returns the samples."""
    given = []
    for number in range(begin, begin + 40):
        buffer.add(**step(number, envs))
        if len(buffer) == 0:
            continue  # the first item is not complete yet
        batch = buffer.sample(8)
        given.append(
            {name: np.array(value) for name, value in flat(batch).items() if name != "tickets"}
        )
        if prioritized:
            buffer.update_priorities(batch["tickets"], np.abs(batch["reward"]).ravel()[:8] + 0.1)
    return given


def flat(nest, path=""):
    if not isinstance(nest, dict):
        return {path: nest}
    return {
        k: v
        for name, one in nest.items()
        for k, v in flat(one, f"{path}/{name}" if path else name).items()
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"prioritized": True, "beta": 0.7},
        {"prioritized": True, "weights": "buffer", "n_step": 4},
        {"num_envs": 3, "n_step": 2, "prioritized": True},
        {"frame_stack": 3},
        {"sequence_length": 5, "period": 2, "burn_in": 3},
        {"sequence_length": 4, "pad_sequences": False, "num_envs": 2, "prioritized": True},
    ],
)
@pytest.mark.parametrize("capacity", [30, 1000])
def test_a_loaded_buffer_continues_like_the_saved_one(tmp_path, arguments, capacity):
    envs = arguments.get("num_envs", 1)
    prioritized = arguments.get("prioritized", False)
    buffer = reverie.ReplayBuffer(capacity, seed=7, **arguments)
    go_on(buffer, 0, envs, prioritized)
    buffer.save(tmp_path / "it")
    loaded = reverie.ReplayBuffer.load(tmp_path / "it")
    assert len(loaded) == len(buffer)
    assert loaded.stats == buffer.stats
    for ours, theirs in zip(
        go_on(loaded, 40, envs, prioritized), go_on(buffer, 40, envs, prioritized), strict=True
    ):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    assert loaded.max_priority == buffer.max_priority


def by_pickle(buffer):
    return pickle.loads(pickle.dumps(buffer))


class Numbered(reverie.ReplayBuffer):
    """A class that only this program has."""


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle])
@pytest.mark.parametrize(
    "arguments", [{}, {"num_envs": 2, "prioritized": True, "n_step": 3, "beta": 0.7}]
)
def test_a_copy_continues_like_the_original(copied, arguments):
    envs = arguments.get("num_envs", 1)
    prioritized = arguments.get("prioritized", False)
    buffer = Numbered(30, seed=7, **arguments)
    go_on(buffer, 0, envs, prioritized)
    twin = copied(buffer)
    assert type(twin) is Numbered
    assert twin.stats == buffer.stats
    for ours, theirs in zip(
        go_on(twin, 40, envs, prioritized), go_on(buffer, 40, envs, prioritized), strict=True
    ):
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    twin.clear()
    assert len(buffer) == 30


def rising(updates):
    return min(1.0, 0.4 + 0.1 * updates)


def test_a_copy_has_the_functions_of_the_original():
    moments = reverie.transforms.NormalizeObs()
    buffer = reverie.ReplayBuffer(9, prioritized=True, beta=rising, transforms=[moments], seed=1)
    for twin in (copy.deepcopy(buffer), by_pickle(buffer)):  # copies of an empty buffer
        twin.add(np.ones(2), 0, 1.0, np.zeros(2), terminated=True)
        assert len(twin) == 1
    for number in range(9):
        buffer.add(np.full(2, 1.0 * number), 0, 1.0, np.ones(2), terminated=True)
    buffer.update_priorities(buffer.sample(1)["tickets"], [2.0])
    twin = by_pickle(buffer)
    assert twin.update_count == 1
    np.testing.assert_array_equal(twin.sample(5)["obs"], buffer.sample(5)["obs"])
    local = reverie.ReplayBuffer(9, transforms=[lambda batch: batch])
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(local)


def test_a_buffer_that_cannot_be_saved_cannot_be_copied():
    closed = reverie.ReplayBuffer(5)
    closed.add(**step(1))
    closed.close()
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(reverie.ReverieError):
            copied(closed)


def test_custom_columns_are_saved_and_loaded(tmp_path):
    buffer = reverie.ReplayBuffer(50, seed=1)
    for number in range(5):
        buffer.add(**step(number, log_prob=np.array([0.25 * number], np.float32)))
    buffer.save(tmp_path / "it")
    loaded = reverie.ReplayBuffer.load(tmp_path / "it")
    np.testing.assert_array_equal(loaded[:]["log_prob"], buffer[:]["log_prob"])
    loaded.add(**step(5, log_prob=np.array([2.0], np.float32)))
    with pytest.raises(InvalidArgumentError, match="log_prob"):
        loaded.add(**step(6))


def test_load_needs_a_beta_function_to_be_given_again(tmp_path):
    def rising(updates):
        return min(1.0, 0.4 + 0.1 * updates)

    buffer = reverie.ReplayBuffer(50, prioritized=True, beta=rising, seed=1)
    buffer.add(**step(1))
    buffer.update_priorities(buffer.sample(1)["tickets"], [2.0])
    buffer.save(tmp_path / "it")
    with pytest.raises(InvalidArgumentError, match="beta"):
        reverie.ReplayBuffer.load(tmp_path / "it")
    loaded = reverie.ReplayBuffer.load(tmp_path / "it", beta=rising)
    assert loaded.update_count == buffer.update_count == 1


@pytest.mark.parametrize("beta", [np.float32(0.25), np.int64(1), np.array(0.5)])
def test_a_beta_of_numpys_is_saved_and_copied(tmp_path, beta):
    buffer = reverie.ReplayBuffer(50, prioritized=True, beta=beta, seed=1)
    assert copy.copy(buffer)._given["beta"] == beta
    for number in range(20):
        buffer.add(**step(number))
    buffer.update_priorities(buffer.sample(8)["tickets"], np.arange(1.0, 9.0))
    buffer.save(tmp_path / "it")
    copies = [
        reverie.ReplayBuffer.load(tmp_path / "it"),
        copy.deepcopy(buffer),
        pickle.loads(pickle.dumps(buffer)),
    ]
    weights = buffer.sample(8)["weights"]
    for one in copies:
        np.testing.assert_array_equal(one.sample(8)["weights"], weights)


def test_save_and_load_refuse_empty_or_closed_buffers_and_wrong_paths(tmp_path):
    buffer = reverie.ReplayBuffer(50, seed=1)
    with pytest.raises(FailedPreconditionError):
        buffer.save(tmp_path / "it")
    buffer.add(**step(1))
    with pytest.raises(NotFoundError):
        reverie.ReplayBuffer.load(tmp_path / "it")
    with pytest.raises(TypeError):
        buffer.save(3)
    (tmp_path / "text").write_text("nothing of ours")
    for act in (buffer.save, reverie.ReplayBuffer.load):
        with pytest.raises(InvalidArgumentError, match="text"):
            act(tmp_path / "text")
    buffer.close()
    with pytest.raises(reverie.ReverieError):
        buffer.save(tmp_path / "it")


def test_the_checkpoint_of_a_store_cannot_be_loaded_as_a_buffer(tmp_path):
    table = reverie.Table.queue("queue", 5)
    checkpointer = reverie.checkpointers.DefaultCheckpointer(str(tmp_path / "it"))
    with reverie.Store([table], checkpointer=checkpointer) as store:
        store.checkpoint(b"anything")
    with pytest.raises(InvalidArgumentError, match="no checkpoint of a ReplayBuffer"):
        reverie.ReplayBuffer.load(tmp_path / "it")


def test_saving_again_replaces_the_earlier_checkpoint(tmp_path):
    buffer = reverie.ReplayBuffer(50, seed=1)
    for number in range(3):
        buffer.add(**step(number))
        assert buffer.save(tmp_path / "it") == str(tmp_path / "it" / f"checkpoint-{number + 1:010}")
    assert [path.name for path in (tmp_path / "it").glob("checkpoint-*")] == [
        "checkpoint-0000000003"
    ]
    assert len(reverie.ReplayBuffer.load(tmp_path / "it")) == 3


def test_a_cleared_and_refilled_buffer_can_be_saved_and_loaded(tmp_path):
    buffer = reverie.ReplayBuffer(50, n_step=3, prioritized=True, seed=1)
    go_on(buffer, 0, 1, prioritized=True)
    buffer.clear()
    go_on(buffer, 100, 1, prioritized=True)
    buffer.save(tmp_path / "it")
    loaded = reverie.ReplayBuffer.load(tmp_path / "it")
    for ours, theirs in zip(
        go_on(loaded, 140, 1, prioritized=True),
        go_on(buffer, 140, 1, prioritized=True),
        strict=True,
    ):
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_another_thread_can_sample_while_the_buffer_is_saved(tmp_path):
    buffer = reverie.ReplayBuffer(5_000, prioritized=True, seed=1)
    for number in range(2_000):
        buffer.add(**step(number))
    stopped = threading.Event()
    failures = []

    def learn():
        try:
            while not stopped.is_set():
                batch = buffer.sample(16)
                buffer.update_priorities(batch["tickets"], np.ones(16))
        except reverie.ReverieError as error:
            failures.append(error)

    learner = threading.Thread(target=learn)
    learner.start()
    for _ in range(5):
        buffer.save(tmp_path / "it")
    stopped.set()
    learner.join()
    assert not failures
    np.testing.assert_array_equal(
        reverie.ReplayBuffer.load(tmp_path / "it")[:]["reward"], buffer[:]["reward"]
    )


def test_damage_anywhere_in_a_checkpoint_is_detected(tmp_path):
    buffer = reverie.ReplayBuffer(50, prioritized=True, seed=1)
    for number in range(20):
        buffer.add(**step(number))
    folder = Path(buffer.save(tmp_path / "it"))
    draw = random.Random(5)
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        for place in draw.sample(range(len(whole)), 40):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << draw.randrange(8)
            file.write_bytes(damaged)
            with pytest.raises((DataLossError, reverie.errors.UnimplementedError)):
                reverie.ReplayBuffer.load(folder)
        for size in draw.sample(range(len(whole)), 10):
            file.write_bytes(whole[:size])
            with pytest.raises(DataLossError):
                reverie.ReplayBuffer.load(folder)
        file.write_bytes(whole)
    again = reverie.ReplayBuffer.load(folder)
    np.testing.assert_array_equal(again[:]["reward"], buffer[:]["reward"])
