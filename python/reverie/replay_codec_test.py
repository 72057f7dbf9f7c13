"""Replay buffers that compress their full chunks give the same data as raw ones."""

import copy
import pickle

import numpy as np
import pytest

import reverie
from reverie.errors import InvalidArgumentError

KINDS = [
    {},
    {"frame_stack": 4},
    {"frame_stack": 3, "n_step": 3, "num_envs": 2, "prioritized": True},
    {"sequence_length": 5, "period": 2, "burn_in": 3, "frame_stack": 2},
    {"sequence_length": 4, "num_envs": 3},
]


def picture(numbers):
    """Images with a moving bar, and a corner that encodes the number."""
    made = np.zeros((len(numbers), 28, 28), np.uint8)
    for row, number in enumerate(numbers):
        made[row, number % 28] = 200
        made[row, 27, 20:] = (number // 7) % 251
    return made


def step(number, envs, **columns):
    """One step of each environment, whose episodes end at different times."""
    now = number + 1000 * np.arange(envs)
    return {
        "obs": {"picture": picture(now), "state": now.astype(np.float32)},
        "action": {"kind": now, "force": np.repeat(now[:, None], 200, 1).astype(np.float32)},
        "reward": now * 0.5,
        "next_obs": {"picture": picture(now + 1), "state": (now + 1).astype(np.float32)},
        "terminated": (number + np.arange(envs)) % 23 == 22,
        **columns,
    }


def filled(codec, begin=0, end=400, capacity=300, **kind):
    buffer = reverie.ReplayBuffer(capacity, codec=codec, seed=3, **kind)
    return go_on(buffer, begin, end)


def go_on(buffer, begin, end):
    for number in range(begin, end):
        buffer.add(**step(number, buffer.num_envs))
    return buffer


def assert_same(ours, theirs):
    _, a, structure = reverie._reverie.flatten(ours)
    _, b, other = reverie._reverie.flatten(theirs)
    assert str(structure) == str(other)
    for one, two in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, two)


def drawn(buffer):
    batch = buffer.sample(64)
    del batch["tickets"]  # tickets are counted from a random number
    return batch


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("codec", ["lz4", "zstd", "auto"])
def test_samples_and_slices_match_those_of_a_raw_buffer(codec, kind):
    packed, raw = filled(codec, **kind), filled("raw", **kind)
    for _ in range(10):
        assert_same(drawn(packed), drawn(raw))
    ours, theirs = packed[:], raw[:]
    del ours["tickets"], theirs["tickets"]
    assert_same(ours, theirs)
    assert packed.memory_bytes < raw.memory_bytes


def test_compressed_images_take_less_than_a_tenth_of_the_memory():
    packed, raw = (reverie.ReplayBuffer(1000, frame_stack=4, codec=c) for c in ("auto", "raw"))
    frame = np.zeros((84, 84), np.uint8)
    for number in range(1200):
        after = frame.copy()
        after[number % 84] = number % 251
        for buffer in (packed, raw):
            buffer.add(frame, number, 0.0, after, terminated=False)
        frame = after
    assert packed.memory_bytes < raw.memory_bytes / 10


def test_episodes_match_those_of_a_raw_buffer():
    packed, raw = filled("lz4"), filled("raw")
    lengths = 0
    for ours, theirs in zip(packed.episodes(), raw.episodes(), strict=True):
        del ours["tickets"], theirs["tickets"]
        assert_same(ours, theirs)
        lengths += len(ours["reward"])
    assert lengths == len(packed)


@pytest.mark.parametrize("capacity", [40, 5000])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("by", ["save", "deepcopy", "pickle"])
def test_saved_and_copied_buffers_continue_like_the_original(tmp_path, by, kind, capacity):
    buffer = filled("lz4", end=333, capacity=capacity, **kind)
    if by == "save":
        buffer.save(tmp_path / "it")
        twin = reverie.ReplayBuffer.load(tmp_path / "it")
    else:
        twin = copy.deepcopy(buffer) if by == "deepcopy" else pickle.loads(pickle.dumps(buffer))
    assert twin.memory_bytes < buffer.memory_bytes * 1.1 + 200_000
    for begin in (333, 400):
        go_on(buffer, begin, begin + 67)
        go_on(twin, begin, begin + 67)
        assert_same(drawn(twin), drawn(buffer))
    twin.save(tmp_path / "again")  # with chunks that were loaded from the disk
    assert_same(drawn(reverie.ReplayBuffer.load(tmp_path / "again")), drawn(twin))


def test_incompressible_data_is_returned_unchanged():
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, (301, 30, 30), np.uint8)
    for codec in ("auto", "zstd"):
        buffer = reverie.ReplayBuffer(1000, codec=codec, seed=1)
        for number in range(300):
            buffer.add(noise[number], number, 0.0, noise[number + 1], terminated=False)
        batch = buffer.sample(200)
        np.testing.assert_array_equal(batch["obs"], noise[batch["action"]])
        np.testing.assert_array_equal(batch["next_obs"], noise[batch["action"] + 1])


def test_buffers_with_only_small_columns_are_not_compressed():
    packed = reverie.ReplayBuffer(1000, codec="zstd", seed=1)
    raw = reverie.ReplayBuffer(1000, seed=1)
    for number in range(900):
        for buffer in (packed, raw):
            buffer.add(np.zeros(100, np.float32), number, 0.0, np.zeros(100, np.float32), False)
    assert packed.memory_bytes == raw.memory_bytes


def reached(achieved, desired, info):
    assert info == {}
    return -np.abs(achieved - desired).reshape(len(achieved), -1).max(axis=1)


@pytest.mark.parametrize("goal_size", [1, 300])  # with the small columns, or a separate column
@pytest.mark.parametrize("codec", ["lz4", "auto"])
def test_hindsight_goals_match_those_of_a_raw_buffer(codec, goal_size):
    def seen(number, goal):
        return {
            "observation": picture([number])[0],
            "achieved_goal": np.full(goal_size, number, np.float32),
            "desired_goal": np.full(goal_size, goal, np.float32),
        }

    for kept in (codec, "raw"):
        hindsight = reverie.Hindsight(reached, "future")
        buffer = reverie.ReplayBuffer(400, hindsight=hindsight, codec=kept, seed=5)
        for number in range(700):
            after = seen(number + 1, -1)
            buffer.add(seen(number, -1), number, -1.0, after, False, number % 31 == 30)
        batch = buffer.sample(512)
        chosen = batch["hindsight"]
        assert 0.7 < chosen.mean() < 0.9
        goal = batch["obs"]["desired_goal"][:, 0]
        assert (goal[chosen] > batch["action"][chosen]).all()
        assert (goal[chosen] // 31.0001 == batch["action"][chosen] // 31).all()
        assert (goal[~chosen] == -1).all()
        np.testing.assert_array_equal(batch["obs"]["observation"], picture(batch["action"]))
        after = picture(batch["action"] + 1)
        np.testing.assert_array_equal(batch["next_obs"]["observation"], after)


def test_a_cleared_buffer_can_be_filled_again():
    buffer = filled("lz4", frame_stack=4)
    buffer.clear()
    go_on(buffer, 400, 700)
    fresh = filled("lz4", begin=400, end=700, frame_stack=4)
    ours, theirs = buffer[:], fresh[:]
    del ours["tickets"], theirs["tickets"]
    assert_same(ours, theirs)


def test_an_unknown_codec_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"codec.*gzip.*lz4"):
        reverie.ReplayBuffer(10, codec="gzip")
