"""A replay buffer read by age: indices, slices, iteration, episodes."""

import threading

import numpy as np
import pytest

import reverie
from reverie.errors import (
    FailedPreconditionError,
    OutOfRangeError,
    UnimplementedError,
    UnsupportedTypeError,
)


def filled(count, capacity=10, **options):
    """Steps 0, 1, 2, ... in episodes of three, of which every second is truncated."""
    buffer = reverie.ReplayBuffer(capacity, seed=1, **options)
    for step in range(count):
        now = np.array([step, step // 3], np.float32)
        then = now + np.array([1, 0], np.float32)
        is_last = step % 3 == 2
        is_cut = is_last and (step // 3) % 2 == 1
        buffer.add(now, step, float(step), then, is_last and not is_cut, is_cut)
    return buffer


@pytest.mark.parametrize("prioritized", [False, True])
def test_indices_select_transitions_by_age(prioritized):
    buffer = filled(37, prioritized=prioritized)  # more than three times the capacity
    assert [buffer[i]["action"] for i in range(10)] == list(range(27, 37))
    assert buffer[-1]["action"] == 36
    assert buffer[-10]["obs"].tolist() == [27, 9]
    assert buffer[np.int64(3)]["next_obs"].tolist() == [31, 10]
    for wrong in (10, -11):
        with pytest.raises(OutOfRangeError, match=rf"index is {wrong}; .* 0 to 9"):
            buffer[wrong]
    with pytest.raises(UnsupportedTypeError, match=r"index is 'a'; .* integer of 64 bits"):
        buffer["a"]
    with pytest.raises(OutOfRangeError, match="index is 0; the buffer has no items; add"):
        reverie.ReplayBuffer(9)[0]
    with pytest.raises(UnsupportedTypeError, match="slice holds integers"):
        buffer["a":]


def test_slices_return_batches():
    buffer = filled(37)
    every = list(range(27, 37))
    for chosen in (slice(None), slice(2, 5), slice(-3, None), slice(None, None, 3),
                   slice(None, None, -1), slice(8, 2, -2), slice(5, 99)):  # fmt: skip
        assert buffer[chosen]["action"].tolist() == every[chosen]
    assert buffer[3:3]["obs"].shape == (0, 2)
    batch = buffer[4:7]
    assert set(batch) == set(buffer.sample(1))
    assert batch["weights"].tolist() == [1, 1, 1]
    # The tickets are valid for an update of priorities.
    assert buffer.update_priorities(batch["tickets"], np.ones(3)) == 3


def test_iteration_runs_from_the_oldest_to_the_newest():
    buffer = filled(37)
    assert [row["reward"] for row in buffer] == list(range(27, 37))
    big = filled(9_000, capacity=8_500)  # several blocks
    assert [int(row["action"]) for row in big] == list(range(500, 9_000))


def test_reading_does_not_affect_later_samples():
    one, other = filled(20), filled(20)
    list(one)
    np.testing.assert_array_equal(one.sample(32)["action"], other.sample(32)["action"])


def test_transitions_are_ordered_by_when_they_were_complete():
    buffer = filled(6, n_step=2)
    assert buffer[0]["reward"] == pytest.approx(0 + 0.99 * 1)
    assert [int(row["action"]) for row in buffer] == [0, 1, 2, 3, 4, 5]
    both = reverie.ReplayBuffer(10, 2)
    for step in range(3):
        obs = np.full((2, 1), step, np.float32)
        both.add(obs, np.array([step, 10 + step]), np.zeros(2), obs + 1, np.zeros(2, bool))
    assert [int(row["action"]) for row in both] == [0, 10, 1, 11, 2, 12]


def test_episodes_are_runs_of_steps():
    found = [episode["action"].tolist() for episode in filled(38).episodes()]
    assert found == [[28, 29], [30, 31, 32], [33, 34, 35], [36, 37]]
    big = list(filled(9_000, capacity=9_000).episodes())  # episodes that span blocks
    assert len(big) == 3_000
    assert all(np.ptp(episode["obs"][:, 1]) == 0 for episode in big)
    assert {len(episode["action"]) for episode in big} == {3}


def test_custom_columns_can_be_read():
    buffer = reverie.ReplayBuffer(10)
    for step in range(4):
        now = {"place": np.float32(step)}
        then = {"place": np.float32(step + 1)}
        buffer.add(now, step, 0.0, then, terminated=False, value=np.float64(step / 2))
    assert buffer[2]["value"] == 1
    (episode,) = buffer.episodes()
    assert episode["value"].tolist() == [0, 0.5, 1, 1.5]


def test_episodes_are_refused_for_n_steps_sequences_and_several_environments():
    for options in ({"n_step": 2}, {"sequence_length": 2}, {"num_envs": 2}):
        with pytest.raises(UnimplementedError, match=r"episodes\(\) takes"):
            reverie.ReplayBuffer(10, **options).episodes()


def test_reading_an_empty_buffer_is_refused():
    buffer = reverie.ReplayBuffer(10)
    assert list(buffer) == []
    with pytest.raises(OutOfRangeError, match="index is 0"):
        buffer[0]
    with pytest.raises(FailedPreconditionError, match="add steps first"):
        buffer[:]


def test_one_thread_can_read_while_another_adds():
    buffer = filled(50, capacity=50)
    is_over = threading.Event()
    faults = []

    def read():
        while not is_over.is_set():
            batch = buffer[10:40]
            rows = batch["action"]
            if not (np.diff(rows) == 1).all() or not (batch["reward"] == rows).all():
                faults.append(rows)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(50, 3_000):
        now = np.array([step, 0], np.float32)
        buffer.add(now, step, float(step), now + 1, terminated=False)
    is_over.set()
    reader.join()
    assert not faults


def test_a_buffer_of_one_transition_has_one_episode():
    buffer = reverie.ReplayBuffer(10)
    obs = np.zeros(2, np.float32)
    buffer.add(obs, 0, 1.0, obs, terminated=False)
    (episode,) = buffer.episodes()
    assert episode["obs"].shape == (1, 2)
