"""The learner of the demonstration's served part, by hand and by the slopes of its loss."""

import numpy as np
import pytest

from reverie.demo.double_dqn import DoubleDqn


def batch_of(rng, size=8):
    return {
        "obs": rng.normal(size=(size, 3)).astype(np.float32),
        "action": rng.integers(2, size=size),
        "reward": rng.normal(size=(size, 3)).astype(np.float32),
        "discount": rng.choice([0.0, 0.5, 1.0], size=(size, 3)).astype(np.float32),
        "last_obs": rng.normal(size=(size, 3)).astype(np.float32),
    }


def test_td_errors_match_the_rule_worked_out_step_by_step():
    dqn = DoubleDqn((3, 16, 2), 1)
    batch = batch_of(np.random.default_rng(2))
    errors, loss = dqn.learn(batch, np.ones(8, np.float32), learning_rate=0.0)
    for row in range(8):
        target = dqn.online(batch["last_obs"][row]).max()  # both networks are still equal
        for step in (2, 1, 0):
            target = batch["reward"][row, step] + batch["discount"][row, step] * target
        value = dqn.online(batch["obs"][row])[batch["action"][row]]
        assert errors[row] == pytest.approx(value - target, abs=1e-5)
    huber = np.where(np.abs(errors) <= 1, 0.5 * errors**2, np.abs(errors) - 0.5)
    assert loss == pytest.approx(huber.mean(), rel=1e-5)


def test_learning_reduces_the_errors_and_the_target_network_follows():
    dqn = DoubleDqn((3, 32, 2), 1, target_rate=0.1)
    batch = batch_of(np.random.default_rng(3))
    batch["discount"][:] = 0  # so that the targets are constant
    weights = np.ones(8, np.float32)
    first, _ = dqn.learn(batch, weights, learning_rate=1e-2)
    for _ in range(200):
        last, _ = dqn.learn(batch, weights, learning_rate=1e-2)
    assert np.abs(last).max() < 0.2 * np.abs(first).max()
    state = dqn.state
    assert 0 < np.abs(state["target"] - state["online"]).max() < 0.1


def test_a_restored_learner_continues_bit_for_bit():
    rng = np.random.default_rng(4)
    batches = [batch_of(rng) for _ in range(20)]
    weights = np.ones(8, np.float32)
    dqn = DoubleDqn((3, 16, 2), 1)
    for batch in batches[:10]:
        dqn.learn(batch, weights, learning_rate=1e-3)
    other = DoubleDqn((3, 16, 2), 2)
    other.restore({name: np.array(value) for name, value in dqn.state.items()})
    for batch in batches[10:]:
        dqn.learn(batch, weights, learning_rate=1e-3)
        other.learn(batch, weights, learning_rate=1e-3)
    assert (dqn.online.parameters == other.online.parameters).all()
