import math
import os
import threading
from collections import deque

import numpy as np
import pytest

import reverie
from reverie import errors


class NaiveBuffer:
    """The model keeps whole episodes in lists, and makes each item when it is complete."""

    def __init__(
        self,
        capacity,
        num_envs=1,
        frame_stack=1,
        n_step=1,
        gamma=0.99,
        sequence_length=None,
        period=None,
        burn_in=0,
        pad_sequences=True,
    ):
        self.items = deque(maxlen=capacity)
        self.episodes = [[] for _ in range(num_envs)]
        self.made = [0] * num_envs  # items made from the current episode
        self.stack, self.n_step, self.gamma = frame_stack, n_step, gamma
        self.length, self.burn_in, self.pad = sequence_length, burn_in, pad_sequences
        self.period = period or sequence_length

    def add(self, obs, action, reward, next_obs, terminated, truncated, mask=None):
        for env, episode in enumerate(self.episodes):
            if mask is not None and not mask[env]:
                continue
            if episode and not np.array_equal(episode[-1]["next_obs"], obs[env]):
                self.end(env)
                episode = self.episodes[env]
            episode.append(
                {
                    "obs": obs[env].copy(),
                    "action": action[env].copy(),
                    "reward": reward[env],
                    "next_obs": next_obs[env].copy(),
                    "terminated": bool(terminated[env]),
                }
            )
            self.make_whole(env)
            if terminated[env] or truncated[env]:
                self.end(env)

    def make_whole(self, env):
        episode = self.episodes[env]
        if self.length is None:
            if len(episode) >= self.n_step:
                self.items.append(self.transition(episode, len(episode) - self.n_step))
                self.made[env] += 1
        elif len(episode) == self.made[env] * self.period + self.length:
            self.items.append(self.sequence(episode, self.made[env] * self.period))
            self.made[env] += 1

    def end(self, env):
        episode = self.episodes[env]
        if self.length is None:
            for begin in range(self.made[env], len(episode)):
                self.items.append(self.transition(episode, begin))
        elif self.pad:
            covered = (self.made[env] - 1) * self.period + self.length if self.made[env] else 0
            if covered < len(episode):
                self.items.append(self.sequence(episode, self.made[env] * self.period))
        self.episodes[env] = []
        self.made[env] = 0

    def frames(self, episode, newest):
        """The stack whose newest frame is number ``newest`` of the episode's frames."""
        all_frames = [step["obs"] for step in episode] + [episode[-1]["next_obs"]]
        picked = [all_frames[max(0, i)] for i in range(newest - self.stack + 1, newest + 1)]
        return np.stack(picked) if self.stack > 1 else picked[0]

    def transition(self, episode, begin):
        steps = episode[begin : begin + self.n_step]
        reward = sum(self.gamma**i * float(step["reward"]) for i, step in enumerate(steps))
        terminated = steps[-1]["terminated"]
        return {
            "obs": self.frames(episode, begin),
            "action": steps[0]["action"],
            "reward": np.float32(reward),
            "next_obs": self.frames(episode, begin + len(steps)),
            "terminated": terminated,
            "discount": np.float32(0 if terminated else self.gamma ** len(steps)),
        }

    def sequence(self, episode, begin):
        first = max(0, begin - self.burn_in)
        last = min(len(episode), begin + self.length)
        total = self.burn_in + self.length
        rows = []
        for i in range(first, first + total):
            step = episode[i] if i < last else None
            zero = np.zeros_like(self.frames(episode, 0))
            rows.append(
                {
                    "obs": self.frames(episode, i) if step else zero,
                    "action": step["action"] if step else np.zeros_like(episode[0]["action"]),
                    "reward": np.float32(step["reward"] if step else 0),
                    "next_obs": self.frames(episode, i + 1) if step else zero,
                    "terminated": step["terminated"] if step else False,
                    "discount": np.float32(self.gamma if step and not step["terminated"] else 0),
                    "mask": begin <= i < last,
                }
            )
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def sort_key(item):
    return tuple(np.asarray(item["obs"], np.float64).ravel()) + tuple(
        np.asarray(item["next_obs"], np.float64).ravel()
    )


def contents(buffer):
    """All items of the buffer, each once, in the model's form."""
    count = len(buffer)
    if count == 0:
        return []
    batch = buffer.sample(count, distinct=True)
    names = [name for name in batch if name not in ("weights", "tickets")]
    return [{name: batch[name][i] for name in names} for i in range(count)]


def assert_same(buffer, model):
    assert len(buffer) == len(model.items)
    mine = sorted(contents(buffer), key=sort_key)
    wanted = sorted(model.items, key=sort_key)
    for a, b in zip(mine, wanted, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            if name == "reward":
                np.testing.assert_allclose(a[name], b[name], rtol=1e-6, atol=1e-6)
            else:
                np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def walk(rng, num_envs, shape, end_rate, jump_rate=0.0, mask_rate=0.0):
    """Random steps of environments; no observation occurs twice."""
    newest = 0

    def fresh(count):
        nonlocal newest
        made = np.arange(newest, newest + count, dtype=np.float32)
        newest += count
        return np.broadcast_to(made.reshape(-1, *[1] * len(shape)), (count, *shape)).copy()

    obs = fresh(num_envs)
    while True:
        next_obs = fresh(num_envs)
        action = rng.integers(0, 9, (num_envs, 2))
        reward = rng.standard_normal(num_envs).astype(np.float32)
        terminated = rng.random(num_envs) < end_rate / 2
        truncated = rng.random(num_envs) < end_rate / 2
        mask = rng.random(num_envs) >= mask_rate
        yield obs, action, reward, next_obs, terminated, truncated, mask
        jumps = terminated | truncated | (rng.random(num_envs) < jump_rate)
        following = np.where(jumps.reshape(-1, *[1] * len(shape)), fresh(num_envs), next_obs)
        # An environment that made no step keeps its observation.
        obs = np.where(mask.reshape(-1, *[1] * len(shape)), following, obs)


SETTINGS = [
    {"capacity": 50},
    {"capacity": 1},
    {"capacity": 37, "num_envs": 3},
    {"capacity": 64, "n_step": 3, "gamma": 0.9},
    {"capacity": 64, "num_envs": 4, "n_step": 5, "gamma": 0.5},
    {"capacity": 40, "frame_stack": 4},
    {"capacity": 70, "num_envs": 2, "frame_stack": 3, "n_step": 4},
    {"capacity": 5, "num_envs": 2, "frame_stack": 6, "n_step": 7},
    {"capacity": 20, "sequence_length": 5},
    {"capacity": 20, "sequence_length": 5, "period": 2, "num_envs": 3},
    {"capacity": 20, "sequence_length": 5, "period": 2, "pad_sequences": False},
    {"capacity": 20, "sequence_length": 6, "period": 3, "burn_in": 4, "num_envs": 2},
    {"capacity": 9, "sequence_length": 4, "period": 1, "burn_in": 3, "frame_stack": 3},
    {"capacity": 9, "sequence_length": 1, "burn_in": 2},
]


def setting_name(setting):
    return "-".join(f"{key}{value}" for key, value in setting.items())


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("shape", [(), (3,), (20, 16)], ids=["scalar", "small", "large"])
@pytest.mark.parametrize("setting", SETTINGS, ids=setting_name)
def test_the_buffer_holds_the_same_items_as_a_naive_model(setting, shape, prioritized):
    rng = np.random.default_rng(3)
    buffer = reverie.ReplayBuffer(prioritized=prioritized, seed=1, **setting)
    model = NaiveBuffer(**setting)
    steps = walk(rng, setting.get("num_envs", 1), shape, 0.1, jump_rate=0.05, mask_rate=0.1)
    for i in range(400):
        step = next(steps)
        buffer.add(*step[:-1], mask=step[-1])
        model.add(*step)
        if i % 20 == 19 or i < 12:
            assert_same(buffer, model)


@pytest.mark.parametrize("end_rate", [0.0, 0.5, 1.0])
def test_episodes_that_never_end_or_end_at_once_match_the_model(end_rate):
    rng = np.random.default_rng(5)
    setting = {"capacity": 30, "num_envs": 2, "frame_stack": 3, "n_step": 3}
    buffer, model = reverie.ReplayBuffer(**setting), NaiveBuffer(**setting)
    for step in (s for s, _ in zip(walk(rng, 2, (4,), end_rate), range(100), strict=False)):
        buffer.add(*step[:-1])
        model.add(*step[:-1])
        assert_same(buffer, model)


def test_clear_empties_the_buffer_and_makes_old_tickets_stale():
    rng = np.random.default_rng(7)
    setting = {"capacity": 30, "num_envs": 2, "n_step": 2}
    buffer, model = reverie.ReplayBuffer(prioritized=True, **setting), NaiveBuffer(**setting)
    steps = walk(rng, 2, (2,), 0.1)
    for _ in range(40):
        buffer.add(*next(steps)[:-1])
    tickets = buffer.sample(8)["tickets"]
    buffer.clear()
    assert len(buffer) == 0
    for _ in range(40):
        step = next(steps)[:-1]
        buffer.add(*step)
        model.add(*step)
    assert_same(buffer, model)
    assert buffer.update_priorities(tickets, np.ones(8)) == 0
    assert buffer.stale_updates == 8


def one_step(value=0.0, **changes):
    step = {
        "obs": np.full(3, value, np.float32),
        "action": np.int64(1),
        "reward": 0.5,
        "next_obs": np.full(3, value + 1, np.float32),
        "terminated": False,
        "truncated": False,
    }
    return step | changes


def filled(count=10, **settings):
    buffer = reverie.ReplayBuffer(100, seed=1, **settings)
    for i in range(count):
        buffer.add(**one_step(i))
    return buffer


def test_a_single_environment_needs_no_environment_axis():
    batch = filled().sample(4)
    assert {name: (array.dtype.name, array.shape) for name, array in batch.items()} == {
        "obs": ("float32", (4, 3)),
        "action": ("int64", (4,)),
        "reward": ("float32", (4,)),
        "next_obs": ("float32", (4, 3)),
        "terminated": ("bool", (4,)),
        "discount": ("float32", (4,)),
        "weights": ("float32", (4,)),
        "tickets": ("uint64", (4,)),
    }
    np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + 1)


def test_a_single_environment_may_have_the_axis_if_the_reward_has_it():
    buffer = reverie.ReplayBuffer(10)
    obs = np.zeros((1, 3), np.float32)
    buffer.add(obs, np.zeros(1, int), np.ones(1), obs + 1, np.ones(1, bool), np.zeros(1, bool))
    assert buffer.sample(2)["obs"].shape == (2, 3)
    with pytest.raises(errors.InvalidArgumentError, match=r"obs is float32 \(3,\)"):
        buffer.add(obs[0], np.zeros(1, int), np.ones(1), obs[0], np.ones(1, bool))


def test_a_small_transition_takes_little_more_memory_than_its_data():
    buffer = reverie.ReplayBuffer(50_000, num_envs=50, prioritized=True)
    obs = np.zeros((50, 8), np.float32)
    over = np.zeros(50, bool)
    for i in range(1_100):
        buffer.add(obs + i, np.zeros(50, np.int32), np.zeros(50), obs + i + 1, over)
    assert len(buffer) == 50_000
    # 32 bytes of observation, stored once, and 9 of action, reward and flags. A buffer that also
    # stores next observations, and a float for the end, needs 76.
    assert buffer.memory_bytes / len(buffer) < 130


def test_observations_and_actions_may_be_nests_and_keep_their_types():
    buffer = reverie.ReplayBuffer(10, num_envs=2)
    obs = {"image": np.zeros((2, 30, 30), np.uint8), "state": (np.ones((2, 4)), np.zeros(2, "i2"))}
    following = {"image": obs["image"] + 1, "state": (np.ones((2, 4)) * 2, np.ones(2, "i2"))}
    action = {"move": np.zeros((2, 2), np.float16), "log_prob": np.zeros(2)}
    buffer.add(obs, action, np.ones(2), following, np.zeros(2, bool), np.zeros(2, bool))
    batch = buffer.sample(5)
    assert batch["obs"]["image"].shape == (5, 30, 30)
    assert batch["obs"]["state"][0].dtype == np.float64
    assert batch["next_obs"]["state"][1].dtype == np.int16
    assert batch["next_obs"]["image"].dtype == np.uint8
    assert batch["action"]["move"].dtype == np.float16
    assert (batch["next_obs"]["image"] == 1).all()
    assert (batch["next_obs"]["state"][0] == 2).all()


def test_truncated_may_be_omitted():
    buffer = reverie.ReplayBuffer(10, num_envs=2)
    obs = np.zeros((2, 1), np.float32)
    buffer.add(obs, np.zeros(2, int), np.zeros(2), obs + 1, np.array([True, False]))
    assert sorted(buffer.sample(2, distinct=True)["terminated"]) == [False, True]


def test_out_is_filled_in_place():
    buffer = filled(prioritized=True)
    batch = buffer.sample(6)
    arrays = dict(batch)
    for array in arrays.values():
        array[...] = 0
    again = buffer.sample(6, out=batch)
    assert again is batch
    assert all(again[name] is arrays[name] for name in arrays)
    np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + 1)
    assert (batch["tickets"] > 0).all()


def test_draws_follow_the_priorities_and_weights_correct_for_them():
    buffer = filled(4, prioritized=True, alpha=1.0, beta=1.0)
    first = buffer.sample(4, distinct=True)
    priorities = first["obs"][:, 0] + 1
    assert buffer.update_priorities(first["tickets"], priorities) == 4
    batch = buffer.sample(40_000)
    drawn = np.bincount(batch["obs"][:, 0].astype(int), minlength=4) / 40_000
    np.testing.assert_allclose(drawn, np.arange(1, 5) / 10, atol=0.015)
    np.testing.assert_allclose(batch["weights"], 1 / (batch["obs"][:, 0] + 1), rtol=1e-5)


def test_new_items_get_the_largest_priority_so_far():
    buffer = filled(2, prioritized=True, alpha=1.0)
    assert buffer.max_priority == 1
    buffer.update_priorities(buffer.sample(2, distinct=True)["tickets"], [0.001, 1000.0])
    assert buffer.max_priority == 1000
    buffer.add(**one_step(2))
    batch = buffer.sample(10_000)
    assert 0.45 < (batch["obs"][:, 0] == 2).mean() < 0.55


def test_beta_may_be_a_function_of_the_updates_so_far():
    seen = []

    def schedule(update_count):
        seen.append(update_count)
        return min(1.0, 0.4 + 0.3 * update_count)

    buffer = filled(2, prioritized=True, alpha=1.0, beta=schedule)
    batch = buffer.sample(2, distinct=True)
    buffer.update_priorities(batch["tickets"], [1.0, 4.0])
    weights = buffer.sample(100)["weights"]
    assert seen == [0, 0, 1], "once when the buffer is made"
    assert buffer.update_count == 1
    np.testing.assert_allclose(sorted(set(weights)), [4**-0.7, 1.0], rtol=1e-5)
    np.testing.assert_allclose(buffer.sample(100, beta=0.0)["weights"], 1.0)


@pytest.mark.parametrize(
    ("beta", "error", "says"),
    [
        (lambda _: "x", errors.UnsupportedTypeError, r"beta\(0\) is 'x'"),
        (lambda _: None, errors.UnsupportedTypeError, r"beta\(0\) is None"),
        (lambda _: -1.0, errors.InvalidArgumentError, r"beta\(0\) is -1"),
        (lambda _: math.nan, errors.InvalidArgumentError, r"beta\(0\) is nan"),
        ("x", errors.UnsupportedTypeError, "beta is 'x'"),
        (math.inf, errors.InvalidArgumentError, "beta is inf"),
    ],
)
@pytest.mark.parametrize("prioritized", [True, False])
def test_an_invalid_beta_is_refused_when_the_buffer_is_created(beta, error, says, prioritized):
    with pytest.raises(error, match=says):
        reverie.ReplayBuffer(10, prioritized=prioritized, beta=beta)


def weigh_by_hand(priorities, drawn, beta, least):
    p = np.asarray(priorities) / np.sum(priorities)
    return (least / p[drawn]) ** beta


def test_weights_are_scaled_by_the_maximum_of_the_batch_or_of_the_buffer():
    for weights in ("batch", "buffer"):
        buffer = filled(8, prioritized=True, alpha=1.0, beta=0.7, weights=weights)
        first = buffer.sample(8, distinct=True)
        priorities = np.arange(1.0, 9.0)
        buffer.update_priorities(first["tickets"], priorities[first["obs"][:, 0].astype(int)])
        for count in (1, 3, 50):
            batch = buffer.sample(count)
            drawn = batch["obs"][:, 0].astype(int)
            least = 1 / 36 if weights == "buffer" else priorities[drawn].min() / 36
            expected = weigh_by_hand(priorities, drawn, 0.7, least)
            np.testing.assert_allclose(batch["weights"], expected, rtol=1e-5)
        with buffer.dataset(16) as batches:
            batch = next(batches)
            drawn = batch["obs"][:, 0].astype(int)
            least = 1 / 36 if weights == "buffer" else priorities[drawn].min() / 36
            expected = weigh_by_hand(priorities, drawn, 0.7, least)
            np.testing.assert_allclose(batch["weights"], expected, rtol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="weights is 'table'"):
        reverie.ReplayBuffer(10, weights="table")


@pytest.mark.parametrize("weights", ["batch", "buffer"])
@pytest.mark.parametrize("count", [1, 5, 8])
def test_distinct_items_of_equal_priority_have_weight_one(weights, count):
    buffer = filled(8, prioritized=True, beta=1.0, weights=weights)
    np.testing.assert_allclose(buffer.sample(count, distinct=True)["weights"], 1.0, rtol=1e-6)


def test_weights_of_distinct_draws_remove_the_sampling_bias():
    buffer = filled(8, prioritized=True, alpha=1.0, beta=1.0, weights="buffer")
    first = buffer.sample(8, distinct=True)
    priorities = np.array([1.0, 1, 2, 3, 5, 8, 13, 21])
    buffer.update_priorities(first["tickets"], priorities[first["obs"][:, 0].astype(int)])
    sums = np.zeros(8)
    for _ in range(4_000):
        batch = buffer.sample(4, distinct=True)
        np.add.at(sums, batch["obs"][:, 0].astype(int), batch["weights"])
    # The weights make every item count the same, however rarely it is drawn.
    np.testing.assert_allclose(sums / sums.mean(), 1.0, atol=0.12)


def test_uniform_weights_are_one_whatever_the_priorities():
    buffer = filled(4)
    batch = buffer.sample(4, distinct=True)
    buffer.update_priorities(batch["tickets"], [0.0, 1.0, 2.0, 3.0])
    batch = buffer.sample(1000)
    assert (batch["weights"] == 1).all()
    assert set(batch["obs"][:, 0]) == {0, 1, 2, 3}


def test_the_same_seed_draws_the_same_batches():
    a, b, c = (reverie.ReplayBuffer(50, prioritized=True, seed=seed) for seed in (3, 3, 4))
    for i in range(20):
        for buffer in (a, b, c):
            buffer.add(**one_step(i))
    draws = [buffer.sample(32)["obs"] for buffer in (a, b, c)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def test_updates_of_evicted_items_are_ignored_and_counted():
    buffer = reverie.ReplayBuffer(4, prioritized=True)
    for i in range(4):
        buffer.add(**one_step(i))
    batch = buffer.sample(4, distinct=True)
    for i in range(4, 7):
        buffer.add(**one_step(i))
    assert buffer.update_priorities(batch["tickets"], np.full(4, 2.0)) == 1
    assert buffer.stale_updates == 3


# --- Refusals


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"obs": np.zeros(4, np.float32)}, errors.InvalidArgumentError, r"obs is float32 \(4,\)"),
        ({"next_obs": np.zeros(3)}, errors.InvalidArgumentError, "next_obs is float64"),
        ({"obs": {"a": np.zeros(3)}}, errors.InvalidArgumentError, "obs has the structure"),
        ({"action": 1.5}, errors.InvalidArgumentError, "action is float64"),
        ({"action": "left"}, errors.InvalidArgumentError, "action is str"),
        ({"obs": None}, errors.UnsupportedTypeError, "obs' is None"),
        ({"reward": np.zeros(2)}, errors.InvalidArgumentError, "reward has 2 elements"),
        ({"reward": np.zeros((1, 2))}, errors.InvalidArgumentError, r"reward has the shape \(1, 2"),
        ({"reward": "much"}, errors.UnsupportedTypeError, "reward holds <U4"),
        ({"reward": 1j}, errors.UnsupportedTypeError, "reward holds complex128"),
        ({"terminated": np.zeros(2, bool)}, errors.InvalidArgumentError, "terminated has 2"),
        ({"mask": [True, False]}, errors.InvalidArgumentError, "mask has 2 elements"),
        ({"mask": []}, errors.InvalidArgumentError, "mask has 0 elements"),
    ],
)
def test_a_step_unlike_the_first_is_refused_and_nothing_is_stored(changes, error, says):
    buffer = filled(3)
    with pytest.raises(error, match=says):
        buffer.add(**one_step(3, **changes))
    assert len(buffer) == 3
    buffer.add(**one_step(3))
    assert sorted(item["obs"][0] for item in contents(buffer)) == [0, 1, 2, 3]


def test_another_number_of_environments_is_refused():
    buffer = reverie.ReplayBuffer(10, num_envs=4)
    with pytest.raises(errors.InvalidArgumentError, match="num_envs=4"):
        buffer.add(np.zeros((3, 2)), np.zeros(3), np.zeros(3), np.ones((3, 2)), np.zeros(3, bool))
    step = (np.zeros((4, 2)), np.zeros(4), np.zeros(4), np.ones((4, 2)), np.zeros(4, bool))
    buffer.add(*step)
    with pytest.raises(errors.InvalidArgumentError, match=r"3 elements.*num_envs=4"):
        buffer.add(*(array[:3] for array in step))


def test_a_refused_first_step_does_not_fix_the_columns():
    buffer = reverie.ReplayBuffer(10)
    with pytest.raises(errors.InvalidArgumentError, match="next_obs"):
        buffer.add(**one_step(0, next_obs=np.zeros(5)))
    with pytest.raises(errors.InvalidArgumentError, match="only arrays of numbers"):
        buffer.add(**one_step(0, action="left"))
    buffer.add(**one_step(0, obs=np.zeros(7), next_obs=np.ones(7)))
    assert buffer.sample(1)["obs"].shape == (1, 7)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"capacity": 0}, "capacity is 0"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"frame_stack": 0}, "frame_stack is 0"),
        ({"frame_stack": 5000}, "frame_stack is 5000"),
        ({"n_step": 0}, "n_step is 0"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"gamma": math.nan}, "gamma is nan"),
        ({"prioritized": True, "alpha": -1.0}, "alpha is -1"),
        ({"prioritized": True, "beta": -1.0}, "beta is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"sequence_length": 0}, "sequence_length is 0"),
        ({"sequence_length": 4, "period": 5}, "period is 5"),
        ({"sequence_length": 4, "burn_in": -1}, "burn_in is -1"),
        ({"sequence_length": 4, "n_step": 2}, "n_step is 2 with sequences"),
        ({"burn_in": 2}, "burn_in 2"),
        ({"period": 2}, "period is 2"),
    ],
)
def test_settings_outside_their_bounds_are_refused(settings, says):
    with pytest.raises(errors.InvalidArgumentError, match=says):
        reverie.ReplayBuffer(**({"capacity": 10} | settings))


def test_sampling_an_empty_buffer_fails_without_waiting():
    buffer = reverie.ReplayBuffer(10, n_step=3)
    with pytest.raises(errors.FailedPreconditionError, match="no items to sample"):
        buffer.sample(1)
    with pytest.raises(errors.FailedPreconditionError, match="no items"):
        buffer.update_priorities([1], [1.0])
    buffer.add(**one_step())
    with pytest.raises(errors.FailedPreconditionError, match="or give timeout_s to wait"):
        buffer.sample(1, timeout_s=0)
    with pytest.raises(errors.FailedPreconditionError, match="timeout_s has passed") as waited:
        buffer.sample(1, timeout_s=0.01)
    assert "give timeout_s" not in str(waited.value)


@pytest.mark.parametrize("timeout_s", [None, 30.0])
@pytest.mark.parametrize("count", [0, 1])
def test_a_sample_waits_for_the_first_item(timeout_s, count):
    buffer = reverie.ReplayBuffer(10, n_step=2)
    for i in range(count):
        buffer.add(**one_step(i))
    batches = []
    thread = threading.Thread(target=lambda: batches.append(buffer.sample(3, timeout_s=timeout_s)))
    thread.start()
    assert thread.is_alive()
    for i in range(count, 2):
        buffer.add(**one_step(i))
    thread.join(30)
    assert batches[0]["obs"][:, 0].tolist() == [0, 0, 0]


def test_a_sample_that_waits_for_the_first_item_ends_when_the_buffer_is_closed():
    buffer = reverie.ReplayBuffer(10)
    raised = []

    def sample():
        try:
            buffer.sample(1, timeout_s=None)
        except errors.CancelledError as error:
            raised.append(error)

    thread = threading.Thread(target=sample)
    thread.start()
    buffer.close()
    thread.join(30)
    assert len(raised) == 1


@pytest.mark.parametrize("name", ["terminated", "truncated", "mask"])
@pytest.mark.parametrize("flag", [0.5, 2, -1, math.nan, [0.5], np.array([3], np.uint8)])
def test_a_flag_that_is_neither_true_nor_false_is_refused(name, flag):
    buffer = filled(2)
    with pytest.raises(errors.InvalidArgumentError, match=f"{name} holds .*0 and 1"):
        buffer.add(**one_step(2, **{name: flag}))
    assert len(buffer) == 2


@pytest.mark.parametrize("flag", [True, 1, 1.0, np.int8(1), [True], np.ones(1), np.bool_(True)])
def test_flags_are_bool_or_0_and_1(flag):
    buffer = reverie.ReplayBuffer(10)
    array = np.full((1, 3), 0.0, np.float32)
    buffer.add(array, np.zeros(1), [0.0], array + 1, flag if np.ndim(flag) else [flag], [0])
    assert buffer.sample(1)["terminated"].tolist() == [True]


@pytest.mark.parametrize("reward", [1e39, -1e39, [1e39], np.array([1e39]), np.float64(4e38)])
def test_a_reward_that_float32_cannot_hold_is_refused(reward):
    buffer = filled(2)
    with pytest.raises(errors.InvalidArgumentError, match=r"reward holds -?[14]e\+\d+.*float32"):
        buffer.add(**one_step(2, reward=reward))
    assert len(buffer) == 2
    buffer.add(**one_step(2, reward=math.inf))
    assert buffer.sample(3, distinct=True)["reward"].max() == math.inf, "what is infinite is given"


@pytest.mark.parametrize("name", ["obs", "action", "next_obs", "reward", "terminated", "mask"])
def test_masked_arrays_are_refused(name):
    buffer = filled(2)
    masked = np.ma.masked_array(np.zeros(3, np.float32), [True, False, False])
    with pytest.raises(errors.UnsupportedTypeError, match="masked array"):
        buffer.add(**one_step(2, **{name: masked}))
    with pytest.raises(errors.UnsupportedTypeError, match="priorities is a masked array"):
        buffer.update_priorities(buffer.sample(2)["tickets"], np.ma.masked_less([1.0, -1], 0))
    assert len(buffer) == 2


def test_invalid_tickets_are_refused():
    buffer = filled(4, prioritized=True)
    batch = buffer.sample(4)
    for tickets in (np.arange(4), [7] * 4, [2**33 + 90_000] * 4):
        with pytest.raises(errors.InvalidArgumentError, match=r"tickets holds .* place 0 of 4"):
            buffer.update_priorities(tickets, np.full(4, 2.0))
    assert buffer.max_priority == 1
    assert buffer.update_priorities(batch["tickets"], np.full(4, 2.0)) == 4


def test_clear_keeps_the_largest_priority():
    buffer = filled(2, prioritized=True, alpha=1.0)
    buffer.update_priorities(buffer.sample(2, distinct=True)["tickets"], [1.0, 1000.0])
    buffer.clear()
    assert buffer.max_priority == 1000
    for i in range(2):
        buffer.add(**one_step(i))
    batch = buffer.sample(2, distinct=True)
    buffer.update_priorities(batch["tickets"][:1], [10.0])
    drawn = buffer.sample(10_000)["tickets"]
    assert (drawn == batch["tickets"][1]).mean() > 0.95, "one of 1000, one of 10"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_observations_that_compare_equal_do_not_cut_an_episode(dtype):
    buffer = reverie.ReplayBuffer(10, n_step=2)
    zero, minus = np.array([0.0, 1.0], dtype), np.array([-0.0, 1.0], dtype)
    nan = np.array([math.nan, 1.0], dtype)
    other_nan = np.array([-math.nan, 1.0], dtype)
    buffer.add(zero, 0, 1.0, minus, False)
    buffer.add(zero, 0, 1.0, nan, False)
    buffer.add(other_nan, 0, 1.0, zero, False)
    assert buffer.stats["cuts"] == 0
    assert len(buffer) == 2
    assert buffer.sample(2, distinct=True)["reward"].tolist() == [np.float32(1.99)] * 2
    buffer.add(zero + 1, 0, 1.0, zero, False)
    assert buffer.stats["cuts"] == 1
    assert len(buffer) == 3, "the cut completes the transition before it, which is shorter"


def test_stats_count_what_happened():
    buffer = reverie.ReplayBuffer(10, num_envs=2)
    zeros, ones = np.zeros((2, 3)), np.ones((2, 3))
    buffer.add(zeros, np.zeros(2), np.zeros(2), ones, [True, False], [False, False])
    buffer.add(zeros, np.zeros(2), np.zeros(2), ones, [False, False], [False, False])
    buffer.add(ones, np.zeros(2), np.zeros(2), ones, [0, 0], [1, 0], mask=[True, False])
    buffer.update_priorities(buffer.sample(4)["tickets"], np.ones(4))
    expected = {"items": 5, "steps": 5, "episodes": 2, "cuts": 1, "updates": 1, "stale_updates": 0}
    assert buffer.stats == expected
    buffer.clear()
    assert buffer.stats == expected | {"items": 0}


def test_no_more_distinct_items_can_be_drawn_than_the_buffer_holds():
    buffer = filled(10)
    assert len(buffer.sample(1000)["obs"]) == 1000
    assert sorted(buffer.sample(10, distinct=True)["obs"][:, 0]) == list(range(10))
    with pytest.raises(errors.InvalidArgumentError, match=r"11 distinct items.*has 10"):
        buffer.sample(11, distinct=True)
    with pytest.raises(errors.InvalidArgumentError, match="101 distinct"):
        buffer.sample(101, distinct=True)


@pytest.mark.parametrize(
    ("priorities", "error", "says"),
    [
        ([1.0], errors.InvalidArgumentError, "4 tickets but 1 priorities"),
        ([1.0, 1.0, math.nan, 1.0], errors.InvalidArgumentError, "priority is nan"),
        ([1.0, 1.0, 1.0, -2.0], errors.InvalidArgumentError, "priority is -2"),
        ([1.0, 1.0, 1.0, math.inf], errors.InvalidArgumentError, "priority is inf"),
        (np.ones((4, 2)), errors.InvalidArgumentError, r"priorities has the shape \(4, 2\)"),
        (["a"] * 4, errors.UnsupportedTypeError, "priorities holds"),
    ],
)
def test_invalid_priorities_are_refused_without_any_update(priorities, error, says):
    buffer = filled(4, prioritized=True)
    tickets = buffer.sample(4, distinct=True)["tickets"]
    with pytest.raises(error, match=says):
        buffer.update_priorities(tickets, priorities)
    assert buffer.max_priority == 1
    with pytest.raises(errors.UnsupportedTypeError, match="tickets holds float64"):
        buffer.update_priorities(np.ones(4), np.ones(4))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_priorities_of_any_numeric_type_are_accepted(dtype):
    buffer = filled(4, prioritized=True)
    tickets = buffer.sample(4, distinct=True)["tickets"]
    assert buffer.update_priorities(tickets, np.full(4, 7, dtype)) == 4
    assert buffer.update_priorities(list(map(int, tickets)), [8] * 4) == 4
    assert buffer.max_priority == 8


def test_an_out_that_does_not_fit_is_refused():
    buffer = filled(prioritized=True)
    batch = buffer.sample(4)
    with pytest.raises(errors.InvalidArgumentError, match=r"out\['obs'\].*\(5, 3\)"):
        buffer.sample(5, out=batch)
    with pytest.raises(errors.UnsupportedTypeError, match="out is 3"):
        buffer.sample(4, out=3)
    with pytest.raises(errors.InvalidArgumentError, match="out has no 'weights'"):
        buffer.sample(4, out={k: v for k, v in batch.items() if k != "weights"})
    batch["reward"].flags.writeable = False
    with pytest.raises(errors.InvalidArgumentError, match=r"out\['reward'\] is not a writable"):
        buffer.sample(4, out=batch)


def test_calls_of_a_closed_buffer_raise_cancelled_error():
    with filled(3) as buffer:
        pass
    with pytest.raises(errors.CancelledError):
        buffer.add(**one_step(3))
    with pytest.raises(errors.CancelledError):
        buffer.sample(1)
    buffer.close()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_an_error():
    buffer = filled(3)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            buffer.sample(1)
        except errors.FailedPreconditionError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    assert "ReplayBuffer" in told
    assert "fork" in told


def test_one_thread_adds_while_others_sample_and_update():
    setting = {"capacity": 200, "num_envs": 4, "n_step": 3, "frame_stack": 2}
    buffer = reverie.ReplayBuffer(prioritized=True, seed=1, **setting)
    stop = threading.Event()
    problems = []

    def learn():
        out = None
        try:
            while not stop.is_set():
                out = buffer.sample(64, timeout_s=5.0, out=out)
                # Frames are numbered, so that a batch with mixed steps is noticed.
                newest = out["obs"][:, 1, 0]
                gap = out["next_obs"][:, 1, 0] - newest
                assert ((gap >= 1) & (gap <= 3)).all()
                buffer.update_priorities(out["tickets"], np.abs(out["reward"]) + 0.1)
        except BaseException as error:
            problems.append(error)

    rng = np.random.default_rng(1)
    obs = np.zeros((4, 5), np.float32)
    buffer.add(obs, np.zeros(4), np.zeros(4), obs + 1, np.zeros(4, bool))
    threads = [threading.Thread(target=learn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(1, 3000):
        over = rng.random(4) < 0.05
        at = np.full((4, 5), i, np.float32)
        buffer.add(at, np.zeros(4), rng.random(4), at + 1, over)
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems


def test_two_threads_can_sample_large_batches_at_once():
    buffer = filled(2_000)
    failures = []

    def learn():
        try:
            for _ in range(400):
                buffer.sample(1_024)
        except errors.ReverieError as error:
            failures.append(error)

    threads = [threading.Thread(target=learn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
