"""Stable-Baselines3 with our environments and our buffer; skipped if it is not installed."""

import os
import pickle

import numpy as np
import pytest

import reverie
from reverie.errors import InvalidArgumentError

pytest.importorskip("stable_baselines3")
gymnasium = pytest.importorskip("gymnasium")
torch = pytest.importorskip("torch")

from stable_baselines3 import DQN, PPO, SAC  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import (  # noqa: E402
    DummyVecEnv,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
)

from reverie.contrib import sb3  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of SB3 and its imports
os.environ.setdefault("OMP_NUM_THREADS", "1")


class Ladder(gymnasium.Env):
    """Counts its steps; even episodes terminate after three, odd ones are truncated after five."""

    observation_space = gymnasium.spaces.Box(-1, 99, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = None

    def __init__(self):
        self.episode = -1
        self.height = 7

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.steps = 0
        return np.array([self.episode, 0], np.float32), {"seen": seed or 0, **(options or {})}

    def step(self, _action):
        self.steps += 1
        ends = self.episode % 2 == 0 and self.steps == 3
        observation = np.array([self.episode, self.steps], np.float32)
        return observation, 1.0, ends, self.steps == 5, {"steps": self.steps}

    def climb(self, by):
        return self.height + by


def test_the_vec_env_steps_like_dummy_vec_env():
    ours, theirs = sb3.VecEnv([Ladder] * 3, backend="thread"), DummyVecEnv([Ladder] * 3)
    for envs in (ours, theirs):
        envs.seed(4)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    assert ours.reset_infos == theirs.reset_infos
    for _ in range(12):
        mine, yours = ours.step(np.zeros(3, int)), theirs.step(np.zeros(3, int))
        for one, other in zip(mine[:3], yours[:3], strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert ours.reset_infos == theirs.reset_infos
        for one, other in zip(mine[3], yours[3], strict=True):
            if "terminal_observation" in other:
                final = other.pop("terminal_observation")
                np.testing.assert_array_equal(one.pop("terminal_observation"), final)
                episode = one.pop("episode")
                assert episode["r"] == episode["l"] == one["steps"]
            assert one == other
    assert ours.get_attr("height") == [7] * 3
    assert ours.env_method("climb", 2) == [9] * 3
    ours.set_attr("height", 1, indices=[1])
    assert ours.get_attr("height") == [7, 1, 7]
    assert [climb(1) for climb in ours.get_attr("climb")] == [8, 2, 8]
    for name in ("height", "climb", "reset", "width"):
        assert ours.has_attr(name) == theirs.has_attr(name) == (name != "width")
    assert ours.step(np.zeros(3, int))[3][0]["steps"] == 2  # has_attr("reset") has reset none
    with pytest.raises(InvalidArgumentError, match="indices"):
        ours.env_method("climb", 2, indices=[0])
    ours.close()


def test_a_monitor_inside_keeps_its_episodes():
    class Halved(gymnasium.RewardWrapper):
        def reward(self, reward):
            return reward / 2

    ours = sb3.VecEnv([lambda: Halved(Monitor(Ladder()))] * 2, backend="thread")
    ours.reset()
    ended = [
        info for _ in range(12) for info in ours.step(np.zeros(2, int))[3] if "episode" in info
    ]
    assert len(ended) >= 4
    assert all(info["episode"]["r"] == info["episode"]["l"] == info["steps"] for info in ended)
    ours.close()


def test_a_pool_is_reset_with_the_seeds_of_a_model():
    pool = reverie.EnvPool("CartPole-v1", 2)
    envs = sb3.VecEnv(sb3.GymVectorEnv(pool))
    envs.seed(3)
    native = sb3.VecEnv("CartPole-v1", 2)
    native.seed(3)
    np.testing.assert_array_equal(envs.reset(), native.reset())
    model = DQN("MlpPolicy", envs, seed=1, learning_starts=10, buffer_size=100)
    model.learn(20)
    envs.close()


def test_environments_without_same_step_reset_are_refused():
    late = sb3.GymVectorEnv(Ladder, 1, backend="thread")
    with late, pytest.raises(InvalidArgumentError, match="SameStep"):
        sb3.VecEnv(late)


def filled(buffer, envs, steps):
    """Stores what SB3's collection loop stores."""
    obs = envs.reset()
    for _ in range(steps):
        action = np.array([envs.action_space.sample() for _ in range(envs.num_envs)])
        new_obs, reward, done, infos = envs.step(action)
        next_obs = new_obs.copy()
        for i in np.flatnonzero(done):
            next_obs[i] = infos[i]["terminal_observation"]
        buffer.add(obs, next_obs, action, reward, done, infos)
        obs = new_obs
    return buffer


def make_buffer(envs, size=100, **options):
    spaces = (envs.observation_space, envs.action_space)
    return sb3.ReplayBuffer(size, *spaces, device="cpu", n_envs=envs.num_envs, seed=1, **options)


def test_a_batch_has_the_fields_that_sb3_learns_from():
    envs = sb3.VecEnv(Ladder, 2, backend="thread")
    buffer = filled(make_buffer(envs), envs, 20)
    assert buffer.size() == 40
    assert buffer.pos == 20
    assert not buffer.full
    batch = buffer.sample(64)
    assert batch.observations.shape == (64, 2)
    assert batch.actions.shape == batch.rewards.shape == batch.dones.shape == (64, 1)
    assert batch.actions.dtype == torch.int64
    assert batch.discounts is None
    # The next step of the same episode; `dones` only marks terminated episodes.
    assert torch.equal(batch.next_observations[:, 0], batch.observations[:, 0])
    assert torch.equal(batch.next_observations[:, 1], batch.observations[:, 1] + 1)
    ended = (batch.next_observations[:, 0] % 2 == 0) & (batch.next_observations[:, 1] == 3)
    assert torch.equal(batch.dones[:, 0].bool(), ended)
    envs.close()


def test_n_steps_priorities_and_normalisation_are_supported():
    envs = VecNormalize(sb3.VecEnv(Ladder, 2, backend="thread"), norm_reward=False)
    buffer = make_buffer(envs, n_steps=3, gamma=0.5, prioritized=True)
    obs = envs.reset()
    for _ in range(30):
        obs = envs.get_original_obs()
        new_obs, reward, done, infos = envs.step(np.zeros(2, int))
        next_obs = envs.get_original_obs().copy()
        for i in np.flatnonzero(done):
            next_obs[i] = envs.unnormalize_obs(infos[i]["terminal_observation"])
        buffer.add(obs, next_obs.round(), np.zeros(2, int), reward, done, infos)
    batch = buffer.sample(32, env=envs)
    assert batch.discounts.shape == (32, 1)
    assert set(batch.rewards.flatten().tolist()) <= {1.0, 1.5, 1.75}
    assert batch.observations.abs().max() < 10
    assert buffer.weights.shape == (32, 1)
    assert buffer.update_priorities(torch.ones(32, 1)) > 0
    assert new_obs is not obs
    envs.close()


class Pictures(gymnasium.Env):
    """Observes an image whose pixels identify the step."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = None

    def _picture(self):
        return np.full((36, 36, 1), self.steps, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.steps = 1
        return self._picture(), {}

    def step(self, _action):
        self.steps += 1
        return self._picture(), 1.0, self.steps == 9, False, {}


def test_frame_stacks_are_assembled_when_they_are_sampled():
    def stacked():
        envs = sb3.VecEnv(Pictures, 2, backend="thread")
        return VecTransposeImage(VecFrameStack(envs, 4))

    envs = stacked()
    buffer = filled(make_buffer(envs, 400, frame_stack=4), envs, 150)
    whole = filled(make_buffer(stacked(), 400), envs, 150)
    assert buffer.replay.memory_bytes < 0.35 * whole.replay.memory_bytes
    batch = buffer.sample(64)
    assert batch.observations.shape == (64, 4, 36, 36)
    newest = batch.observations[:, 3, 0, 0].int()
    assert torch.equal(batch.next_observations[:, 3, 0, 0].int(), newest + 1)
    for back in (1, 2, 3):
        older = batch.observations[:, 3 - back, 0, 0].int()
        assert torch.equal(older, (newest - back).clamp(min=1))
    with pytest.raises(InvalidArgumentError, match="frame_stack is 3"):
        make_buffer(envs, frame_stack=3)
    envs.close()


def test_a_step_may_be_given_by_name():
    envs = sb3.VecEnv(Ladder, 1, backend="thread")
    buffer = make_buffer(envs)
    obs = envs.reset()
    step = {"action": np.zeros(1, int), "reward": np.ones(1), "done": np.zeros(1, bool)}
    buffer.add(obs=obs, next_obs=obs + 1, infos=[{}], **step)
    buffer.add(obs + 1, obs + 2, **step, infos=[{}])
    assert buffer.size() == buffer.pos == 2
    envs.close()


def test_optimize_memory_usage_is_refused():
    envs = sb3.VecEnv(Ladder, 1, backend="thread")
    with pytest.raises(InvalidArgumentError, match="optimize_memory_usage"):
        make_buffer(envs, optimize_memory_usage=True)
    envs.close()


def test_a_replay_buffer_can_be_saved_and_loaded(tmp_path):
    torch.set_num_threads(1)
    options = {"learning_starts": 20, "seed": 1, "replay_buffer_class": sb3.ReplayBuffer}
    model = DQN("MlpPolicy", sb3.VecEnv("CartPole-v1", 2), buffer_size=500, **options)
    model.learn(100)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = DQN.load(tmp_path / "model", env=sb3.VecEnv("CartPole-v1", 2))
    again.load_replay_buffer(tmp_path / "buffer")
    assert again.replay_buffer.size() == model.replay_buffer.size() >= 100
    ours, theirs = (one.replay_buffer.sample(16) for one in (again, model))
    assert torch.equal(ours.observations, theirs.observations)
    again.learn(50, reset_num_timesteps=False)
    assert again.replay_buffer.size() >= model.replay_buffer.size() + 50
    assert len(pickle.loads(pickle.dumps(make_buffer(model.get_env()))).replay) == 0


def test_a_seeded_model_learns_the_same_again():
    torch.set_num_threads(1)

    def learned():
        envs = sb3.VecEnv("CartPole-v1", 2)
        options = {"learning_starts": 20, "buffer_size": 500, "train_freq": 1}
        model = DQN(
            "MlpPolicy", envs, seed=1, replay_buffer_class=sb3.ReplayBuffer, **options
        ).learn(100)
        return np.concatenate([part.detach().numpy().ravel() for part in model.policy.parameters()])

    np.testing.assert_array_equal(learned(), learned())


def test_ppo_dqn_and_sac_run_for_a_few_steps():
    torch.set_num_threads(1)
    envs = sb3.VecEnv("CartPole-v1", 4)
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=2, seed=1)
    model.learn(512)
    assert len(model.ep_info_buffer) > 5
    options = {"learning_starts": 50, "seed": 1, "replay_buffer_class": sb3.ReplayBuffer}
    model = DQN("MlpPolicy", sb3.VecEnv("CartPole-v1", 2), buffer_size=500, **options)
    model.learn(200)
    assert model.replay_buffer.size() == 200
    model.learn(50, reset_num_timesteps=False)
    model = SAC("MlpPolicy", sb3.VecEnv("Pendulum-v1", 1), **options)
    model.learn(80)
    assert isinstance(model.replay_buffer, sb3.ReplayBuffer)


def test_dqn_learns_whatever_the_integer_type_of_its_actions():
    class Narrow(Ladder):
        action_space = gymnasium.spaces.Discrete(2, dtype=np.int32)

    # Random actions are int32, those of the network int64.
    envs = DummyVecEnv([Narrow, Narrow])
    options = {"learning_starts": 8, "exploration_final_eps": 0.0, "exploration_fraction": 0.01}
    model = DQN(
        "MlpPolicy", envs, seed=1, buffer_size=100, replay_buffer_class=sb3.ReplayBuffer, **options
    )
    model.learn(40)
    assert model.replay_buffer.size() == 40
    assert model.replay_buffer.sample(8).actions.dtype == torch.int32
    theirs = DQN("MlpPolicy", envs, seed=1, buffer_size=100, **options).learn(40)
    assert theirs.replay_buffer.sample(8).actions.dtype == torch.int32


class Goals(gymnasium.Env):
    """Counts up towards a goal that it never reaches."""

    def __init__(self):
        space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gymnasium.spaces.Dict(dict.fromkeys(names, space))
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def step(self, _action):
        self.steps += 1
        return self.seen(), -1.0, False, self.steps == 10, {}

    def seen(self):
        at = np.array([self.steps], np.float32)
        return {"observation": at, "achieved_goal": at, "desired_goal": np.full(1, 99, np.float32)}

    @staticmethod
    def compute_reward(achieved, desired, _info):
        return np.where((achieved == desired)[:, 0], 0.0, -1.0)


def test_hindsight_goals_are_sampled():
    hindsight = reverie.Hindsight(Goals.compute_reward, "future", goals=4)
    model = DQN(
        "MultiInputPolicy",
        DummyVecEnv([Goals, Goals]),
        replay_buffer_class=sb3.ReplayBuffer,
        replay_buffer_kwargs={"hindsight": hindsight, "seed": 1},
        buffer_size=1000,
        learning_starts=20,
        seed=1,
    )
    model.learn(60)
    samples = model.replay_buffer.sample(200)
    goals = samples.observations["desired_goal"][:, 0].numpy()
    assert 0.6 < (goals != 99).mean() < 0.95
    chosen = goals != 99
    now = samples.observations["achieved_goal"][:, 0].numpy()
    assert (goals[chosen] > now[chosen]).all()
    wanted = np.where(goals == now + 1, 0.0, -1.0)
    np.testing.assert_array_equal(samples.rewards[:, 0].numpy()[chosen], wanted[chosen])
