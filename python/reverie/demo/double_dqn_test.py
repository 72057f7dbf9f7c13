"""Targets worked by hand, the loss's gradient, and values that are known."""

import numpy as np
import pytest

from reverie.demo.double_dqn import DoubleDqn, Windows, n_step_return


def floats(values):
    return np.array(values, np.float32)


def linear(weights):
    """A learner whose networks are one linear layer: row s of ``weights`` is Q(s, .)."""
    learner = DoubleDqn((len(weights), len(weights[0])), np.random.default_rng(0))
    for network in (learner.online, learner.target):
        network.parameters[:] = 0.0
        network.parameters[: np.size(weights)] = np.ravel(weights)
    return learner


def one_hot(states, count):
    return np.eye(count, dtype=np.float32)[states]


def test_a_return_is_the_table_worked_by_hand():
    reward = floats([[1, 1, 1], [2, -4, 8], [1, 1, 1], [1, 1, 0]])
    discount = floats([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.5, 0.5, 1.0]])
    returns = n_step_return(reward, discount, floats([10, 0, -8, 10]))
    np.testing.assert_array_equal(returns, floats([3.0, 2.0, 0.75, 4.0]))


def test_termination_cuts_the_bootstrap_off():
    assert n_step_return(floats([[1, 1, 7]]), floats([[0.5, 0, 0.5]]), floats([10])) == [1.5]


def test_the_online_network_chooses_and_the_target_network_values():
    learner = linear([[0.0, 0.0], [1.0, 2.0]])
    learner.target.parameters[:4] = [0.0, 0.0, 30.0, 20.0]
    windows = Windows(
        obs=one_hot([0], 2),
        action=np.array([1]),
        reward=floats([[3.0]]),
        discount=floats([[0.5]]),
        last_obs=one_hot([1], 2),
    )
    # Online prefers action 1 in state 1; the target's value of it is 20, not 30.
    _, td_error, loss = learner.gradient(windows, floats([1.0]))
    assert td_error == [3.0 + 0.5 * 20.0]
    assert loss == 13.0 - 0.5


def test_the_loss_is_weighed_and_hubers():
    learner = linear([[0.0, 0.0]])
    windows = Windows(
        obs=floats([[1.0], [1.0]]),
        action=np.array([0, 1]),
        reward=floats([[0.5], [-4.0]]),
        discount=floats([[0.0], [0.0]]),
        last_obs=floats([[1.0], [1.0]]),
    )
    gradient, td_error, loss = learner.gradient(windows, floats([1.0, 0.25]))
    np.testing.assert_array_equal(td_error, floats([0.5, -4.0]))
    # (1 * .5 * .5^2 + .25 * (4 - .5)) / 2, and half of (-1 * .5, .25 * 1) on weight and bias.
    assert loss == pytest.approx(0.5)
    np.testing.assert_allclose(gradient, [-0.25, 0.125, -0.25, 0.125])


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(8)
    learner = DoubleDqn((3, 2), rng)  # no rectifiers: their kinks spoil finite differences
    windows = Windows(
        obs=rng.normal(size=(9, 3)).astype(np.float32),
        action=rng.integers(2, size=9),
        reward=rng.normal(size=(9, 3)).astype(np.float32),
        discount=np.full((9, 3), 0.9, np.float32),
        last_obs=rng.normal(size=(9, 3)).astype(np.float32),
    )
    weights = rng.random(9).astype(np.float32)
    gradient, td_error, _ = learner.gradient(windows, weights)
    target = td_error + learner.online(windows.obs)[np.arange(9), windows.action]
    direction = rng.normal(size=gradient.shape).astype(np.float32)
    start = learner.online.parameters.copy()

    def loss_at(distance):
        learner.online.parameters[:] = start + distance * direction
        error = np.abs(target - learner.online(windows.obs)[np.arange(9), windows.action])
        return (weights * np.where(error < 1, 0.5 * error**2, error - 0.5)).mean(dtype=np.float64)

    slope = (loss_at(1e-3) - loss_at(-1e-3)) / 2e-3
    assert abs(slope) > 0.01
    assert gradient @ direction == pytest.approx(slope, rel=1e-2)


def test_a_long_gradient_is_shortened_and_the_target_follows():
    learner = DoubleDqn((1, 2), np.random.default_rng(0), target_rate=0.25, gradient_norm_max=1e-6)
    before = learner.online.parameters.copy()
    windows = Windows(floats([[1e4]]), np.array([0]), floats([[9e9]]), floats([[0]]), floats([[1]]))
    learner.learn(windows, floats([1.0]), learning_rate=0.5)
    moved = learner.online.parameters - before
    assert 0 < np.abs(moved).max() <= 0.5
    np.testing.assert_allclose(learner.target.parameters - before, 0.25 * moved, rtol=1e-5)


def test_the_values_of_a_corridor_are_found():
    # States 0 1 2, reward 1 for leaving at the right end; going left from 0 stays. gamma = 1/2.
    states = np.repeat([0, 1, 2], 2)
    actions = np.tile([0, 1], 3)
    following = np.array([0, 1, 0, 2, 1, 2])
    leaves = (states == 2) & (actions == 1)
    windows = Windows(
        obs=one_hot(states, 3),
        action=actions,
        reward=leaves[:, None].astype(np.float32),
        discount=np.where(leaves, 0.0, 0.5)[:, None].astype(np.float32),
        last_obs=one_hot(following, 3),
    )
    learner = DoubleDqn((3, 32, 2), np.random.default_rng(1), target_rate=0.05)
    for _ in range(2_000):
        learner.learn(windows, np.ones(6, np.float32), learning_rate=3e-3)
    expected = [[0.125, 0.25], [0.125, 0.5], [0.25, 1.0]]
    np.testing.assert_allclose(learner.online(one_hot([0, 1, 2], 3)), expected, atol=0.01)
    assert [learner.act(obs) for obs in one_hot([0, 1, 2], 3)] == [1, 1, 1]
