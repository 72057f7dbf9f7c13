"""The windows that an actor writes, against a table worked by hand."""

import gymnasium
import numpy as np
import pytest

import reverie
from reverie.demo.actor import Actor

GAMMA = 0.5


class Scripted(gymnasium.Env):
    """Episodes of given lengths; an observation tells episode and step, a reward the step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(9)

    def __init__(self, *, lengths, truncates):
        self._lengths = iter(lengths)
        self._truncates = truncates
        self._episode = -1
        self.actions = []

    def reset(self, *, seed=None, options=None):
        del seed, options
        self._episode += 1
        self._length = next(self._lengths)
        self._step = 0
        return self._obs(), {}

    def step(self, action):
        self.actions.append(action)
        self._step += 1
        over = self._step == self._length
        reward = float(self._step)
        return self._obs(), reward, over and not self._truncates, over and self._truncates, {}

    def _obs(self):
        return np.array([self._episode, self._step], np.float32)


def windows_of(lengths, steps, *, truncates, policy=lambda _: 3, epsilon=0.0):
    """All windows of ``steps`` steps in order, the environment, and the returns of episodes."""
    env = Scripted(lengths=[*lengths, 1_000], truncates=truncates)
    with reverie.Store([reverie.Table.queue("windows", max_size=10_000)]) as store:
        client = store.client()
        with client.trajectory_writer(num_keep_alive_refs=4) as writer:
            actor = Actor(
                env,
                writer,
                table="windows",
                window_steps=3,
                gamma=GAMMA,
                rng=np.random.default_rng(2),
            )
            returns = [actor.step(policy, epsilon) for _ in range(steps)]
        size = client.server_info()["windows"].current_size
        data = client.sample_batch("windows", size, timeout_s=0.0).data if size else None
    return data, env, returns


def test_each_step_gets_one_window_and_short_ones_are_filled_up():
    data, _, returns = windows_of([5], 5, truncates=False)
    np.testing.assert_array_equal(data["obs"][:, 1], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(data["last_obs"][:, 1], [3, 4, 5, 5, 5])
    np.testing.assert_array_equal(
        data["reward"], [[1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 0], [5, 0, 0]]
    )
    g = GAMMA
    np.testing.assert_array_equal(
        data["discount"], [[g, g, g], [g, g, g], [g, g, 0], [g, 0, 1], [0, 1, 1]]
    )
    assert returns == [None, None, None, None, 15.0]


def test_a_time_limit_leaves_the_discount_so_that_the_last_value_counts():
    data, _, _ = windows_of([4], 4, truncates=True)
    g = GAMMA
    np.testing.assert_array_equal(data["discount"], [[g, g, g], [g, g, g], [g, g, 1], [g, 1, 1]])
    np.testing.assert_array_equal(data["last_obs"][:, 1], [3, 4, 4, 4])


def test_no_window_reaches_over_an_episodes_end():
    data, _, returns = windows_of([1, 2, 6], 9, truncates=False)
    np.testing.assert_array_equal(data["obs"][:, 0], data["last_obs"][:, 0])
    np.testing.assert_array_equal(data["obs"][:, 0], [0, 1, 1, 2, 2, 2, 2, 2, 2])
    assert [value for value in returns if value is not None] == [1.0, 3.0, 21.0]


def test_a_window_waits_until_its_steps_are_there():
    data, _, _ = windows_of([50], 3, truncates=False)
    assert data is None
    data, _, _ = windows_of([50], 4, truncates=False)
    np.testing.assert_array_equal(data["reward"], [[1, 2, 3]])


def test_the_policy_acts_on_the_latest_observation():
    data, env, _ = windows_of([9], 9, truncates=False, policy=lambda obs: int(obs[1]))
    assert env.actions == list(range(9))
    np.testing.assert_array_equal(data["action"], range(9))


@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_random_actions_come_as_often_as_asked(epsilon):
    _, env, _ = windows_of([], 900, truncates=False, policy=lambda _: 8, epsilon=epsilon)
    random_share = (np.array(env.actions) != 8).mean() * 9 / 8
    assert random_share == pytest.approx(epsilon, abs=0.05)
