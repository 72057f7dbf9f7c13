"""The native lander against Gymnasium's: the same flights and the same scores.

Gymnasium's physics is Box2D 2.3, ours 2.4. The two agree in the air and while legs are within their
limits; beyond its limit, 2.4 holds a leg with more force. So flights are compared step by step, and
whole episodes by their scores.
"""

import math
import warnings

import numpy as np
import pytest

from reverie.envs import native

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D")

HEIGHT = 400 / 30


def make(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Box2D's extension types lack a name
        return gymnasium.make("LunarLander-v3", **options)


def ground_of(seed):
    """The heights of the ground that Gymnasium's lander draws first."""
    rng, _ = gymnasium.utils.seeding.np_random(seed)
    heights = rng.uniform(0, HEIGHT / 2, size=(12,))
    heights[3:8] = HEIGHT / 4
    return heights


def state_of(env, heights):
    """The state of Gymnasium's lander in the form of the native one."""
    numbers = []
    for body in (env.lander, *env.legs):
        numbers += [body.position.x, body.position.y, body.angle]
        numbers += [body.linearVelocity.x, body.linearVelocity.y, body.angularVelocity]
    numbers += [float(leg.ground_contact) for leg in env.legs]
    wind = [getattr(env, "wind_idx", 0), getattr(env, "torque_idx", 0)]
    return [*numbers, env.prev_shaping, *wind, *heights, 0]


@pytest.mark.parametrize("options", [{}, {"gravity": -3.0}, {"enable_wind": True}])
def test_flights_from_the_same_state_match_gymnasium(options):
    theirs = make(**options).unwrapped
    with native.NativePool("LunarLander-v3", 1, num_threads=0, **options) as pool:
        pool.reset().result()
        for seed in range(10):
            theirs.reset(seed=seed)
            pool.set_state(0, state_of(theirs, ground_of(seed)))
            for step in range(30):
                observation, reward, _, _, _ = theirs.step(0)
                batch = pool.step([0]).result()
                # In the first step Gymnasium's joints still have impulses, which are not in the
                # state; from the 15th step on legs are at their limits and pull at the lander.
                near = 1e-4 if step == 0 else 1e-5 if step < 12 else 2e-2
                np.testing.assert_allclose(batch.observation[0], observation, atol=near)
                assert batch.reward[0] == pytest.approx(reward, abs=0.01 if step < 12 else 1)


@pytest.mark.parametrize(("angle", "speed"), [(0.0, -3.0), (0.15, -3.0), (0.3, -5.0), (3.0, -8.0)])
def test_falls_onto_the_pad_end_as_in_gymnasium(angle, speed):
    theirs = make().unwrapped
    theirs.reset(seed=1)
    lander = theirs.lander
    turn = angle - lander.angle
    centre = lander.position.copy()
    for body in (lander, *theirs.legs):
        x, y = body.position - centre
        body.position = (
            10 + x * math.cos(turn) - y * math.sin(turn),
            4.9 + x * math.sin(turn) + y * math.cos(turn),
        )
        body.angle += turn
        body.linearVelocity = (0, speed)
        body.angularVelocity = 0
    with native.NativePool("LunarLander-v3", 1, num_threads=0) as pool:
        pool.reset().result()
        pool.set_state(0, state_of(theirs, ground_of(1)))
        for _ in range(40):
            observation, _, terminated, _, _ = theirs.step(0)
            batch = pool.step([0]).result()
            assert batch.terminated[0] == terminated
            ours = batch.final_observation if terminated else batch.observation
            np.testing.assert_allclose(ours[0], observation, atol=5e-3)
            if terminated:
                break
        assert terminated


def pilot(observation):
    """Lands: leans towards the pad, and slows the fall the lower it is. Returns (lift, turn)."""
    x, y, vx, vy, angle, spin, left, right = observation.T
    stands = left + right > 0
    lean = np.clip(0.5 * x + vx, -0.4, 0.4)
    turn = np.where(stands, 0, 0.5 * (lean - angle) - spin)
    lift = np.where(stands, 0, 0.5 * (0.55 * np.abs(x) - y)) - 0.5 * vy
    return lift, turn


def discrete(observation):
    lift, turn = pilot(observation)
    main = (lift > np.abs(turn)) & (lift > 0.05)
    return np.where(main, 2, np.where(turn < -0.05, 3, np.where(turn > 0.05, 1, 0)))


def continuous(observation):
    lift, turn = pilot(observation)
    return np.clip(np.stack([20 * lift - 1, -20 * turn], axis=1), -1, 1).astype(np.float32)


def scores(options, policy, count):
    """Returns of the first episode of ``count`` native environments."""
    with native.NativePool("LunarLander-v3", count, seed=0, **options) as pool:
        batch = pool.reset().result()
        total = np.zeros(count)
        flies = np.ones(count, dtype=bool)
        while flies.any():
            batch = pool.step(policy(batch.observation)).result()
            total[flies] += batch.reward[flies]
            flies &= ~(batch.terminated | batch.truncated)
    return total


def gymnasium_scores(options, policy, count):
    env = make(**options)
    totals = []
    for seed in range(count):
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action = policy(observation[None])[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + reward, terminated or truncated
        totals.append(total)
    return np.array(totals)


# Gymnasium's mean and standard error over 2,000 episodes, as the full test measures them.
@pytest.mark.parametrize(
    ("options", "policy", "mean", "error"),
    [
        ({}, discrete, 239.0, 2.3),
        ({"continuous": True}, continuous, 281.9, 0.7),
    ],
)
def test_a_policy_has_the_same_mean_score_as_in_gymnasium(options, policy, mean, error):
    ours = scores(options, policy, 400)
    assert abs(ours.mean() - mean) < 4 * np.hypot(error, ours.std() / np.sqrt(len(ours)))


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"continuous": True},
        {"gravity": -5.0},
        {"enable_wind": True},
        {"enable_wind": True, "wind_power": 5.0, "turbulence_power": 0.5},
    ],
)
def test_scores_are_distributed_as_in_gymnasium(options):
    policy = continuous if options.get("continuous") else discrete
    ours = scores(options, policy, 1_000)
    theirs = gymnasium_scores(options, policy, 1_000)
    error = np.hypot(ours.std(), theirs.std()) / np.sqrt(1_000)
    assert abs(ours.mean() - theirs.mean()) < 4 * error
    quartiles = (0.25, 0.5, 0.75)
    for one, other in zip(
        np.quantile(ours, quartiles), np.quantile(theirs, quartiles), strict=True
    ):
        assert abs(one - other) < 6 * error


def test_random_flights_score_as_in_gymnasium():
    # Crashes bend legs beyond their limits: Gymnasium's mean is -181.8 (error 2.4), ours -196.9.
    rng = np.random.default_rng(0)
    ours = scores({}, lambda observation: rng.integers(0, 4, len(observation)), 600)
    assert abs(ours.mean() + 181.8) < 15 + 4 * ours.std() / np.sqrt(600)


def test_first_observations_are_distributed_as_in_gymnasium():
    theirs = make()
    expected = np.array([theirs.reset(seed=seed)[0] for seed in range(500)])
    with native.NativePool("LunarLander-v3", 2_000, seed=0) as pool:
        ours = pool.reset().result().observation
    spread = expected.std(axis=0) + 1e-3
    distance = np.abs(ours.mean(axis=0) - expected.mean(axis=0)) / spread
    np.testing.assert_array_less(distance, 5 * np.sqrt(1 / 500 + 1 / 2_000))
    np.testing.assert_allclose(ours.std(axis=0), expected.std(axis=0), rtol=0.15, atol=1e-3)
