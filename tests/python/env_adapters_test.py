"""Environments with other interfaces: the old Gym's, dm_env's and PettingZoo's."""

import functools
import sys
import types

import numpy as np
import pytest

import reverie
from reverie import envs
from reverie.errors import (
    EnvError,
    InvalidArgumentError,
    MissingPackageError,
    NotFoundError,
    UnsupportedTypeError,
)

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces


class Old:
    """Gym's interface before 0.26: observes [seed, steps]; ends after three steps or at a limit."""

    observation_space = spaces.Box(-9, 99, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length=3, limit=None):
        self.length, self.limit, self.seeded = length, limit, -1

    def seed(self, seed):
        self.seeded = seed

    def reset(self):
        self.steps = 0
        return np.array([self.seeded, 0], np.float32)

    def step(self, action):
        self.steps += 1
        info = {"TimeLimit.truncated": True} if self.steps == self.limit else {}
        over = self.steps in (self.length, self.limit)
        return np.array([self.seeded, self.steps], np.float32), float(action), over, info


def test_environments_of_the_old_gym_can_be_adapted():
    with reverie.EnvPool(lambda: envs.OldGym(Old()), 2, backend="thread") as pool:
        assert pool.reset(seed=5).result().observation.tolist() == [[5, 0], [6, 0]]
        for step in (1, 2, 3):
            batch = pool.step([0, 1]).result()
            assert batch.terminated.tolist() == [step == 3] * 2
            assert not batch.truncated.any()
        assert batch.final_observation.tolist() == [[5, 3], [6, 3]]
    limited = envs.OldGym(Old(limit=2))
    limited.reset()
    limited.step(0)
    assert limited.step(0)[2:4] == (False, True)
    assert limited.length == 3  # reads an attribute of the environment


def test_an_environment_of_the_old_gym_is_refused_naming_its_adapter():
    pool = reverie.EnvPool(Old, 1, backend="thread")
    with pool, pytest.raises(EnvError, match=r"reverie\.envs\.OldGym"):
        pool.reset().result()


class Timed:
    """dm_env's interface: observes a dict, and has an end of each kind."""

    def __init__(self, discount=0.0):
        self.last_discount = discount
        self.task = types.SimpleNamespace(random=np.random.RandomState(0))

    def observation_spec(self):
        shape = types.SimpleNamespace(shape=(2,), dtype=np.dtype(np.float64))
        return {"place": shape, "up": types.SimpleNamespace(shape=(), dtype=np.dtype(bool))}

    def action_spec(self):
        limits = {"minimum": -1.0, "maximum": [1.0, 2.0]}
        return types.SimpleNamespace(shape=(2,), dtype=np.dtype(np.float32), **limits)

    def _given(self, reward):
        is_last = self.steps == 2
        return types.SimpleNamespace(
            observation={"place": self.task.random.rand(2), "up": np.True_},
            reward=reward,
            discount=self.last_discount if is_last else 1.0,
            last=lambda: is_last,
        )

    def reset(self):
        self.steps = 0
        return self._given(None)

    def step(self, action):
        self.steps += 1
        return self._given(float(action.sum()))


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_the_discount_of_dm_env_decides_termination_or_truncation(discount):
    make = lambda: envs.DmEnv(Timed(discount))  # noqa: E731 - a lambda is what is tried
    with reverie.gym.GymVectorEnv(make, 2, backend="thread") as vector:
        box = spaces.Box(np.float32(-1), np.array([1, 2], np.float32), (2,), np.float32)
        assert vector.single_action_space == box
        first, _ = vector.reset(seed=3)
        again, _ = vector.reset(seed=3)
        np.testing.assert_array_equal(first["place"], again["place"])
        assert first["up"].shape == (2,) or first["up"].shape == (2, 1)
        vector.step(np.ones((2, 2), np.float32))
        _, reward, terminated, truncated, _ = vector.step(np.ones((2, 2), np.float32))
        assert reward.tolist() == [2, 2]
        assert terminated.tolist() == [discount == 0] * 2
        assert truncated.tolist() == [discount == 1] * 2


def test_a_seed_that_is_ignored_warns():
    env = Timed()
    env.task = None
    with pytest.warns(UserWarning, match="seed 3 is ignored"), pytest.raises(AttributeError):
        envs.DmEnv(env).reset(seed=3)


class Team:
    """PettingZoo's parallel API: agents leave one after the other, agent i after i + 1 steps."""

    possible_agents = ("ann", "bob", "cat")
    metadata = {"name": "team"}  # noqa: RUF012

    def observation_space(self, _agent):
        return spaces.Box(-1, 9, (2,), np.float32)

    def action_space(self, _agent):
        return spaces.Discrete(3)

    def _observed(self, agents):
        place = self.possible_agents.index
        return {agent: np.array([place(agent), self.steps], np.float32) for agent in agents}

    def reset(self, seed=None, options=None):
        assert options is None
        self.seeded, self.steps, self.agents = seed, 0, list(self.possible_agents)
        return self._observed(self.agents), {agent: {"seed": seed or 0} for agent in self.agents}

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        self.steps += 1
        agents = list(self.agents)
        over = {agent: self.possible_agents.index(agent) + 1 == self.steps for agent in agents}
        self.agents = [agent for agent in agents if not over[agent]]
        rewards = {agent: float(actions[agent]) for agent in agents}
        return self._observed(agents), rewards, over, dict.fromkeys(agents, False), {}

    def render(self):
        return "picture"

    def close(self):
        self.steps = -1


def test_agents_are_rows_and_those_that_left_are_marked_as_not_alive():
    rows = envs.AgentRows(Team)
    assert rows.agent_ids == ("ann", "bob", "cat")
    observation, infos = rows.reset(seed=4)
    assert observation.tolist() == [[0, 0], [1, 0], [2, 0]]
    assert infos["seed"].tolist() == [4, 4, 4]
    assert infos["alive"].all()
    actions = np.array([0, 1, 2])
    observation, reward, terminated, _, infos = rows.step(actions)
    assert terminated.tolist() == [True, False, False]
    assert infos["alive"].tolist() == [False, True, True]
    assert infos["final_obs"][0].tolist() == [0, 1]
    assert observation.tolist() == [[0, 0], [1, 1], [2, 1]]
    assert reward.tolist() == [0, 1, 2]
    rows.step(actions)
    observation, reward, terminated, _, infos = rows.step(actions)  # the last agent leaves
    assert terminated.tolist() == [False, False, True]
    assert observation.tolist() == [[0, 0], [1, 0], [2, 0]]
    assert infos["alive"].all()
    assert infos["final_obs"][2].tolist() == [2, 3]
    assert rows.render() == "picture"
    rows.close()


def test_agents_can_be_the_environments_of_a_pool():
    make = functools.partial(envs.AgentRows, Team)
    with reverie.EnvPool(make, 3, backend="vector", info=["alive"]) as pool:
        pool.reset(seed=1).result()
        batch = pool.step([0, 1, 2]).result()
        assert batch.info["alive"].tolist() == [0, 1, 1]
        assert batch.final_observation[0].tolist() == [0, 1]
    with pytest.raises(InvalidArgumentError, match="has 3 agents"):
        reverie.EnvPool(make, 2, backend="vector")
    different = Team()
    different.action_space = lambda agent: spaces.Discrete(2 + (agent == "bob"))
    with pytest.raises(InvalidArgumentError, match="agent 'bob'"):
        envs.AgentRows(different)


def test_an_id_may_name_the_module_that_registers_it(tmp_path, monkeypatch):
    (tmp_path / "late_games.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Late-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with reverie.EnvPool("late_games:Late-v0", 2, num_workers=1, backend="process") as pool:
        assert pool.reset(1).result().observation.shape == (2, 4)
    assert "late_games" not in sys.modules  # only the workers import it
    spec = gymnasium.spec("CartPole-v1")
    with reverie.EnvPool(spec, 2, backend="thread", wrappers=[Halved]) as pool:
        first = pool.reset(1).result().observation
    np.testing.assert_array_equal(first[0], gymnasium.make(spec).reset(seed=1)[0] / 2)
    with pytest.raises(MissingPackageError, match="module nowhere_at_all"):
        reverie.EnvPool("nowhere_at_all:X-v0", 2, num_workers=1)


class Halved(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return observation / 2


def test_each_environment_may_be_made_by_its_own_function():
    fns = [lambda length=length: envs.OldGym(Old(length)) for length in (1, 2, 4)]
    with reverie.EnvPool(fns, 3, backend="thread") as pool:
        pool.reset().result()
        ends = [pool.step([0] * 3).result().terminated.tolist() for _ in range(4)]
    assert np.argwhere(np.transpose(ends)).tolist() == [
        [0, 0], [0, 1], [0, 2], [0, 3], [1, 1], [1, 3], [2, 3]
    ]  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="list of 3 functions and num_envs is 2"):
        reverie.EnvPool(fns, 2, backend="thread")


def test_values_that_are_not_environments_are_refused():
    for wrong in (5, None):
        with pytest.raises(InvalidArgumentError, match="env is"):
            reverie.EnvPool(wrong, 1, backend="thread")
    with pytest.raises(UnsupportedTypeError, match=r"makes a int, 5, which has no reset\(\)"):
        reverie.EnvPool(lambda: 5, 1, backend="thread")
    with pytest.raises(NotFoundError, match="CartPole-v1"):
        reverie.EnvPool("CartPol-v1", 1, backend="thread")
