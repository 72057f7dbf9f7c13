"""Native environments compared with Gymnasium's, step by step.

At the start of each episode Gymnasium's environment is put into the native one's state, and both
get the same actions from then on: their results must stay equal.
"""

import warnings

import gymnasium
import numpy as np
import pytest

from reverie.envs import native

CLASSIC = [
    ("CartPole-v1", {}),
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("Acrobot-v1", {}),
    ("MountainCar-v0", {}),
    ("MountainCar-v0", {"goal_velocity": 0.03}),
    ("MountainCarContinuous-v0", {}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.04}),
    ("Pendulum-v1", {}),
    ("Pendulum-v1", {"g": 9.81}),
]
ENVS = 16


def make(env_id, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a newer version of the environment exists
        return gymnasium.make(env_id, **options)


def adopt(theirs, env_id, state):
    """Puts Gymnasium's environment into the native one's state at the start of an episode."""
    theirs.reset()
    if env_id == "MountainCarContinuous-v0":
        assert state[2] == 1  # the first step is computed in float64
        theirs.unwrapped.state = np.array(state[:2])
    elif env_id == "Acrobot-v1":
        theirs.unwrapped.state = np.array(state[:-1], dtype=np.float32)
    else:
        theirs.unwrapped.state = np.array(state[:-1])


def policy(env_id, rng, spec):
    """Random actions; for mountain cars half of the actions are such that the car gets out."""
    if spec.action_count:
        random = rng.integers(0, spec.action_count, ENVS)
    else:
        random = rng.uniform(2 * spec.action_low, 2 * spec.action_high, (ENVS, 1))
        random = random.astype(np.float32)

    def act(observation):
        again = rng.random(ENVS) < 0.2
        if spec.action_count:
            random[again] = rng.integers(0, spec.action_count, again.sum())
        else:
            random[again] = rng.uniform(2 * spec.action_low, 2 * spec.action_high, (again.sum(), 1))
        if "MountainCar" in env_id:  # half of the cars accelerate in their direction of motion
            with_it = np.sign(observation[: ENVS // 2, 1])
            if spec.action_count:
                random[: ENVS // 2] = with_it + 1
            else:
                random[: ENVS // 2, 0] = with_it
        return random

    return act


@pytest.mark.parametrize(("env_id", "options"), CLASSIC)
def test_every_step_matches_gymnasium_bit_for_bit(env_id, options):
    rng = np.random.default_rng(5)
    theirs = [make(env_id, options) for _ in range(ENVS)]
    ends = {"terminated": 0, "truncated": 0}
    with native.NativePool(env_id, ENVS, seed=3, **options) as pool:
        act = policy(env_id, rng, pool.spec)
        batch = pool.reset().result()
        for i in range(ENVS):
            adopt(theirs[i], env_id, pool.get_state(i))
        for _ in range(1_100):  # longer than the longest episode of 999 steps
            actions = act(batch.observation)
            given = actions.copy()
            batch = pool.step(actions).result()
            for i in range(ENVS):
                observation, reward, terminated, truncated, _ = theirs[i].step(given[i])
                assert batch.terminated[i] == terminated
                assert batch.truncated[i] == truncated
                assert batch.reward[i] == np.float32(reward)
                ended = terminated or truncated
                ours = batch.final_observation if ended else batch.observation
                np.testing.assert_array_equal(ours[i], observation.astype(np.float32))
                if ended:
                    ends["terminated"] += terminated
                    ends["truncated"] += truncated
                    adopt(theirs[i], env_id, pool.get_state(i))
    # Each kind of end must have been compared.
    assert ends["terminated"] > 0 or env_id == "Pendulum-v1"
    assert ends["truncated"] > 0 or env_id == "CartPole-v1"


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0", "Pendulum-v1", "Acrobot-v1"])
def test_first_observations_are_distributed_as_in_gymnasium(env_id):
    theirs = make(env_id, {})
    expected = np.array([theirs.reset(seed=seed)[0] for seed in range(2_000)])
    with native.NativePool(env_id, 2_000, seed=0) as pool:
        ours = pool.reset().result().observation
    # Means and quantiles of 2,000 samples must agree within 5 standard errors.
    spread = expected.std(axis=0) + 1e-6
    np.testing.assert_array_less(
        np.abs(ours.mean(axis=0) - expected.mean(axis=0)) / spread, 5 * np.sqrt(2 / 2_000)
    )
    np.testing.assert_allclose(ours.std(axis=0), expected.std(axis=0), rtol=0.1, atol=1e-6)
    np.testing.assert_allclose(ours.min(axis=0), expected.min(axis=0), atol=0.02)
    np.testing.assert_allclose(ours.max(axis=0), expected.max(axis=0), atol=0.02)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"])
def test_the_specification_matches_gymnasium(env_id):
    theirs = make(env_id, {})
    ours = native.spec(env_id)
    assert ours.observation.shape == theirs.observation_space.shape
    assert ours.observation.dtype == theirs.observation_space.dtype
    assert ours.max_episode_steps == theirs.spec.max_episode_steps
    if ours.action_count:
        assert ours.action_count == theirs.action_space.n
        assert ours.action.shape == ()
    else:
        np.testing.assert_array_equal(ours.action_low, theirs.action_space.low)
        np.testing.assert_array_equal(ours.action_high, theirs.action_space.high)
        assert ours.action.shape == theirs.action_space.shape
