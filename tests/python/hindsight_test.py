"""Hindsight replay against a model: goals are what later rows of the same episode achieved."""

import pickle
import random
import threading
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie.errors import (
    DataLossError,
    InvalidArgumentError,
    UnimplementedError,
    UnsupportedTypeError,
)

NO_GOAL = -1.0


def distance(achieved, desired, info):
    assert info == {}
    return -np.abs(achieved - desired)[:, 0]


def observation(episodes, times):
    """What was achieved encodes episode and time; arrays are ``[N, ...]`` for N environments."""
    episodes, times = np.broadcast_arrays(np.asarray(episodes), np.asarray(times))
    row = np.stack([episodes, times], axis=1).astype(np.float32)
    return {
        "observation": row,
        "achieved_goal": (1000 * row[:, :1] + row[:, 1:]),
        "desired_goal": np.full((len(row), 1), NO_GOAL, np.float32),
    }


def filled(lengths, capacity=10_000, num_envs=1, last_is_over=True, **options):
    """A buffer with one episode per environment for each of ``lengths``."""
    hindsight = options.pop("hindsight", None) or reverie.Hindsight(distance, **options)
    buffer = reverie.ReplayBuffer(capacity, num_envs, seed=1, hindsight=hindsight)
    for number, length in enumerate(lengths):
        episodes = np.arange(num_envs) + number * num_envs
        for time in range(length):
            over = np.full(num_envs, time == length - 1)
            if number == len(lengths) - 1 and not last_is_over:
                over[:] = False
            buffer.add(
                observation(episodes, time),
                np.zeros(num_envs, np.int64),
                np.full(num_envs, -7.0),
                observation(episodes, time + 1),
                np.zeros(num_envs, bool),
                over,
            )
    return buffer


def drawn(buffer, count=4000):
    """For transitions with a new goal: episode and time, the goal's episode and time; the batch."""
    batch = buffer.sample(count)
    chosen = batch["hindsight"]
    rows = batch["obs"]["observation"][chosen].astype(int)
    goals = batch["obs"]["desired_goal"][chosen, 0].astype(int)
    return rows[:, 0], rows[:, 1], goals // 1000, goals % 1000, batch


@pytest.mark.parametrize("num_envs", [1, 3])
def test_future_goals_were_achieved_later_in_the_same_episode(num_envs):
    lengths = [5, 1, 12, 7]
    buffer = filled(lengths, num_envs=num_envs)
    episode, time, goal_episode, goal_time, batch = drawn(buffer)
    length = np.array(lengths)[episode // num_envs]
    np.testing.assert_array_equal(goal_episode, episode)
    assert (goal_time > time).all()
    assert (goal_time <= length).all()
    # Every later step is equally likely.
    first = (length == 12) & (time == 2)
    seen = np.bincount(goal_time[first], minlength=13)[3:]
    assert (seen > 0).all()
    assert abs(len(episode) / 4000 - 0.8) < 0.03
    kept = ~batch["hindsight"]
    assert (batch["obs"]["desired_goal"][kept] == NO_GOAL).all()
    assert (batch["reward"][kept] == -7).all()


def test_both_observations_have_the_goal_and_the_reward_is_recomputed_for_it():
    batch = drawn(filled([20, 30]))[-1]
    np.testing.assert_array_equal(batch["obs"]["desired_goal"], batch["next_obs"]["desired_goal"])
    chosen = batch["hindsight"]
    wanted = distance(batch["next_obs"]["achieved_goal"], batch["next_obs"]["desired_goal"], {})
    np.testing.assert_array_equal(batch["reward"][chosen], wanted[chosen])
    assert (batch["reward"][chosen] == 0).any()
    rows = batch["obs"]["observation"]
    np.testing.assert_array_equal(batch["obs"]["achieved_goal"][:, 0], rows @ [1000, 1])


def test_final_goals_were_achieved_by_the_last_step():
    lengths = [5, 1, 12]
    episode, _, goal_episode, goal_time, _ = drawn(filled(lengths, strategy="final"))
    np.testing.assert_array_equal(goal_episode, episode)
    np.testing.assert_array_equal(goal_time, np.array(lengths)[episode])


def test_episode_goals_were_achieved_by_any_step():
    episode, time, goal_episode, goal_time, _ = drawn(filled([5, 8], strategy="episode"))
    np.testing.assert_array_equal(goal_episode, episode)
    assert (goal_time >= 1).all()
    assert (goal_time <= time).any()
    assert set(goal_time[episode == 1]) == set(range(1, 9))


def test_the_last_step_so_far_ends_a_running_episode():
    episode, _, _, goal_time, _ = drawn(filled([3, 4], strategy="final", last_is_over=False))
    assert set(goal_time[episode == 1]) == {4}


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_stay_within_the_episode_while_old_steps_are_evicted(strategy):
    num_envs, rng = 3, np.random.default_rng(2)
    lengths = rng.integers(1, 90, 60).tolist()
    buffer = filled(lengths, capacity=700, num_envs=num_envs, strategy=strategy)
    episode, time, goal_episode, goal_time, batch = drawn(buffer, 8000)
    np.testing.assert_array_equal(goal_episode, episode)
    length = np.array(lengths)[episode // num_envs]
    assert (goal_time <= length).all()
    if strategy == "future":
        assert (goal_time > time).all()
    if strategy == "final":
        np.testing.assert_array_equal(goal_time, length)
    assert abs(len(episode) / len(batch["reward"]) - 0.8) < 0.03  # no transition was left out


def test_memory_does_not_grow_with_evicted_steps():
    short = filled([50] * 40, capacity=1000).memory_bytes
    assert filled([50] * 400, capacity=1000).memory_bytes < 1.5 * short


def test_an_idle_environment_does_not_keep_memory_of_the_others():
    buffer = reverie.ReplayBuffer(500, 2, seed=1, hindsight=reverie.Hindsight(distance))
    sizes = []
    for time in range(20_000):
        episodes = np.array([time // 100, 0])
        now, then = (observation(episodes, [time % 100 + i, 0]) for i in (0, 1))
        over = np.array([time % 100 == 99, False])
        none = np.zeros(2, bool)
        mask = np.array([True, time < 3])
        buffer.add(now, np.zeros(2, int), np.zeros(2), then, none, over, mask=mask)
        if time in (2_000, 19_999):
            sizes.append(buffer.memory_bytes)
    assert sizes[1] < 1.5 * sizes[0]
    episode, _, goal_episode, _, _ = drawn(buffer)
    np.testing.assert_array_equal(goal_episode, episode)


def test_a_cut_ends_the_episode():
    buffer = reverie.ReplayBuffer(100, seed=1, hindsight=reverie.Hindsight(distance))
    for episode in range(4):  # no step ends the episode
        for time in range(5):
            now, then = observation([episode], time), observation([episode], time + 1)
            buffer.add(now, np.zeros(1, int), np.zeros(1), then, np.zeros(1, bool))
    assert buffer.stats["cuts"] == 3
    episode, time, goal_episode, goal_time, _ = drawn(buffer)
    np.testing.assert_array_equal(goal_episode, episode)
    assert ((goal_time > time) & (goal_time <= 5)).all()


def test_a_cleared_buffer_has_no_goals_of_earlier_episodes():
    buffer = filled([5, 6])
    buffer.clear()
    for time in range(4):
        now, then = observation([9], time), observation([9], time + 1)
        buffer.add(now, np.zeros(1, int), np.zeros(1), then, np.zeros(1, bool))
    episode, _, goal_episode, goal_time, _ = drawn(buffer)
    assert set(goal_episode) == set(episode) == {9}
    assert goal_time.max() == 4


def test_transitions_read_by_age_are_not_relabelled():
    buffer = filled([5, 6])
    assert not buffer[:]["hindsight"].any()
    assert (buffer[:]["obs"]["desired_goal"] == NO_GOAL).all()
    assert len(list(buffer.episodes())) == 2


def test_goals_sets_the_ratio_of_relabelled_to_original_transitions():
    assert not filled([9], goals=0).sample(500)["hindsight"].any()
    share = filled([9], goals=1).sample(4000)["hindsight"].mean()
    assert abs(share - 0.5) < 0.05


def test_the_terminated_function_recomputes_the_end_of_the_episode():
    def reached(achieved, desired, _):
        return (achieved == desired)[:, 0]

    buffer = filled([9], terminated=reached)
    batch = buffer.sample(500)
    ended = batch["reward"] == 0
    assert ended.any()
    np.testing.assert_array_equal(batch["terminated"], ended)
    np.testing.assert_allclose(batch["discount"], np.where(ended, 0, 0.99), rtol=1e-6)


def test_the_same_seed_draws_the_same_goals():
    first, second = (drawn(filled([9, 8]))[-1] for _ in range(2))
    np.testing.assert_array_equal(first["obs"]["desired_goal"], second["obs"]["desired_goal"])


def test_relabelling_works_with_out_and_with_datasets():
    buffer = filled([9, 8])
    batch = buffer.sample(64)
    assert buffer.sample(64, out=batch) is batch
    with buffer.dataset(64) as batches:
        batch = next(batches)
    chosen = batch["hindsight"]
    assert chosen.any()
    assert (batch["reward"][chosen] > -7).all()


def test_goals_may_be_entries_of_an_inner_dict():
    hindsight = reverie.Hindsight(distance, achieved="hand/at", desired="wanted")
    buffer = reverie.ReplayBuffer(100, seed=1, hindsight=hindsight)
    for time in range(6):
        now, then = (
            {"hand": {"at": np.array([t], np.float32)}, "wanted": np.array([-1], np.float32)}
            for t in (time, time + 1)
        )
        buffer.add(now, 0, 0.0, then, terminated=False)
    batch = buffer.sample(100)
    chosen = batch["hindsight"]
    assert (batch["obs"]["wanted"][chosen] > batch["obs"]["hand"]["at"][chosen]).all()


def test_several_threads_can_add_and_sample_at_once():
    buffer = filled([5], capacity=300)
    failures = []

    def sample():
        try:
            for _ in range(300):
                episode, time, goal_episode, goal_time, _ = drawn(buffer, 64)
                assert (goal_episode == episode).all()
                assert (goal_time > time).all()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=sample) for _ in range(2)]
    for thread in threads:
        thread.start()
    episode = 1
    while any(thread.is_alive() for thread in threads):
        for time in range(20):
            now, then = observation([episode], time), observation([episode], time + 1)
            over = np.array([time == 19])
            buffer.add(now, np.zeros(1, int), np.full(1, -7.0), then, np.zeros(1, bool), over)
        episode = episode % 500 + 1
    for thread in threads:
        thread.join()
    assert failures == []


def test_settings_and_observations_that_cannot_be_relabelled_are_refused():
    with pytest.raises(InvalidArgumentError, match="for single steps, but n_step is 3"):
        reverie.ReplayBuffer(10, n_step=3, hindsight=reverie.Hindsight(distance))
    with pytest.raises(InvalidArgumentError, match="sequence_length 4"):
        reverie.ReplayBuffer(10, sequence_length=4, hindsight=reverie.Hindsight(distance))
    with pytest.raises(InvalidArgumentError, match="strategy is 'last'"):
        reverie.Hindsight(distance, "last")
    with pytest.raises(UnsupportedTypeError, match="reward is None"):
        reverie.Hindsight(None)
    with pytest.raises(UnsupportedTypeError, match="it must be a reverie"):
        reverie.ReplayBuffer(10, hindsight="future")
    buffer = reverie.ReplayBuffer(10, hindsight=reverie.Hindsight(distance))
    flat = np.zeros(3, np.float32)
    with pytest.raises(InvalidArgumentError, match="achieved is 'achieved_goal', but an observ"):
        buffer.add(flat, 0, 0.0, flat, terminated=False)
    uneven = {"achieved_goal": flat, "desired_goal": flat[:2]}
    with pytest.raises(InvalidArgumentError, match="give both one type and shape"):
        buffer.add(uneven, 0, 0.0, uneven, terminated=False)


def test_a_reward_function_that_does_not_return_one_reward_per_goal_is_refused():
    def one_number(*_):
        return 0.0

    with pytest.raises(InvalidArgumentError, match="the function reward gave 0"):
        filled([5], hindsight=reverie.Hindsight(one_number)).sample(50)


def copied_by_pickle(buffer, _):
    return pickle.loads(pickle.dumps(buffer))


def saved_and_loaded(buffer, folder):
    buffer.save(folder)
    return reverie.ReplayBuffer.load(folder, hindsight=buffer._hindsight)


def go_on(buffer, number, num_envs):
    """Adds two episodes, of which the second does not end; returns a batch drawn at each step."""
    batches = []
    for episode in (number, number + 1):
        episodes = np.arange(num_envs) + episode * num_envs
        for time in range(30):
            over = np.full(num_envs, time == 29 and episode == number)
            now, then = observation(episodes, time), observation(episodes, time + 1)
            none = np.zeros(num_envs, bool)
            buffer.add(now, np.zeros(num_envs, int), np.zeros(num_envs), then, none, over)
            batches.append(buffer.sample(16))
    return batches


@pytest.mark.parametrize("copied", [saved_and_loaded, copied_by_pickle])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize(("capacity", "num_envs"), [(10_000, 1), (300, 1), (700, 3)])
def test_a_loaded_or_copied_buffer_draws_the_same_goals(
    tmp_path, copied, strategy, capacity, num_envs
):
    lengths = np.random.default_rng(2).integers(1, 90, 30).tolist()
    options = {"capacity": capacity, "num_envs": num_envs, "strategy": strategy}
    for last_is_over in (True, False):
        buffer = filled(lengths, last_is_over=last_is_over, **options)
        buffer.sample(100)
        twin = copied(buffer, tmp_path / "it")
        assert twin.stats == buffer.stats
        for ours, theirs in zip(
            go_on(twin, 30, num_envs), go_on(buffer, 30, num_envs), strict=True
        ):
            for name in ("reward", "hindsight", "discount"):
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
            for name, value in ours["obs"].items():
                np.testing.assert_array_equal(value, theirs["obs"][name], err_msg=name)
    episode, time, goal_episode, goal_time, _ = drawn(twin)
    np.testing.assert_array_equal(goal_episode, episode)
    assert strategy != "future" or (goal_time > time).all()


def test_an_environment_that_was_idle_for_long_is_saved(tmp_path):
    buffer = reverie.ReplayBuffer(500, 2, seed=1, hindsight=reverie.Hindsight(distance))
    for time in range(3_000):
        episodes = np.array([time // 100, 0])
        now, then = (observation(episodes, [time % 100 + i, 0]) for i in (0, 1))
        over = np.array([time % 100 == 99, False])
        none, mask = np.zeros(2, bool), np.array([True, time < 3])
        buffer.add(now, np.zeros(2, int), np.zeros(2), then, none, over, mask=mask)
    twin = saved_and_loaded(buffer, tmp_path / "it")
    for ours, theirs in zip(go_on(twin, 50, 2), go_on(buffer, 50, 2), strict=True):
        np.testing.assert_array_equal(ours["obs"]["desired_goal"], theirs["obs"]["desired_goal"])


def test_compressed_images_beside_the_goals_are_saved_and_loaded(tmp_path):
    hindsight = reverie.Hindsight(distance)
    buffer = reverie.ReplayBuffer(1000, seed=1, hindsight=hindsight, codec="zstd")
    picture = np.zeros((64, 64), np.uint8)
    for time in range(600):
        now, then = (
            {
                "picture": picture + time % 200,
                "achieved_goal": np.array([time // 50 * 1000 + time % 50 + i], np.float32),
                "desired_goal": np.array([NO_GOAL], np.float32),
            }
            for i in (0, 1)
        )
        buffer.add(now, 0, 0.0, then, terminated=time % 50 == 49)
    buffer.save(tmp_path / "it")
    twin = reverie.ReplayBuffer.load(tmp_path / "it", hindsight=hindsight)
    ours, theirs = twin.sample(500), buffer.sample(500)
    assert ours["hindsight"].any()
    for name in ("picture", "achieved_goal", "desired_goal"):
        np.testing.assert_array_equal(ours["obs"][name], theirs["obs"][name])


def test_load_needs_the_same_hindsight_to_be_given_again(tmp_path):
    buffer = filled([5, 6])
    buffer.save(tmp_path / "goals")
    with pytest.raises(InvalidArgumentError, match=r"give it again, hindsight=reverie.Hindsight"):
        reverie.ReplayBuffer.load(tmp_path / "goals")
    with pytest.raises(UnsupportedTypeError, match="hindsight is 'future'"):
        reverie.ReplayBuffer.load(tmp_path / "goals", hindsight="future")
    other = reverie.Hindsight(distance, desired="observation")
    with pytest.raises(InvalidArgumentError, match="'achieved_goal' and 'desired_goal'; give thes"):
        reverie.ReplayBuffer.load(tmp_path / "goals", hindsight=other)
    final = reverie.Hindsight(distance, "final", goals=1e9)  # another strategy is allowed
    loaded = reverie.ReplayBuffer.load(tmp_path / "goals", hindsight=final)
    episode, _, _, goal_time, _ = drawn(loaded)
    np.testing.assert_array_equal(goal_time, np.array([5, 6])[episode])
    plain = reverie.ReplayBuffer(9)
    plain.add(np.zeros(2), 0, 0.0, np.ones(2), terminated=True)
    plain.save(tmp_path / "plain")
    with pytest.raises(InvalidArgumentError, match="is of a buffer without; leave it out"):
        reverie.ReplayBuffer.load(tmp_path / "plain", hindsight=final)


def test_damage_to_saved_goals_is_detected(tmp_path):
    buffer = filled([5, 6, 40], capacity=30)
    folder = Path(buffer.save(tmp_path / "it"))
    draw = random.Random(5)
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        for place in draw.sample(range(len(whole)), 40):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << draw.randrange(8)
            file.write_bytes(damaged)
            with pytest.raises((DataLossError, UnimplementedError)):
                reverie.ReplayBuffer.load(folder, hindsight=buffer._hindsight)
        file.write_bytes(whole)
    assert len(reverie.ReplayBuffer.load(folder, hindsight=buffer._hindsight)) == 30
