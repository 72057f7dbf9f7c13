"""examples/cleanrl/port.py, applied to files that make buffers and environments as CleanRL does."""

import ast
import importlib.util

import numpy as np
import pytest

pytest.importorskip("torch")
gym = pytest.importorskip("gymnasium")


@pytest.fixture(scope="module")
def port(root):
    spec = importlib.util.spec_from_file_location("port", root / "examples/cleanrl/port.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The relevant lines of such a file, written again in the same form.
OFF_POLICY = """
import gymnasium as gym
import numpy as np
import torch
from cleanrl_utils.buffers import ReplayBuffer


def thunk_of(seed):
    return lambda: gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"))


envs = gym.vector.SyncVectorEnv(
    [thunk_of(seed) for seed in range(2)]
)
rb = ReplayBuffer(
    1000, envs.single_observation_space, envs.single_action_space, "cpu", n_envs=2,
)
obs, _ = envs.reset(seed=1)
for step in range(60):
    actions = envs.action_space.sample()
    next_obs, rewards, terminations, truncations, infos = envs.step(actions)
    rb.add(obs, next_obs, actions, rewards, terminations, [{}, {}])
    obs = next_obs
data = rb.sample(32)
envs.close()
"""
ON_POLICY = OFF_POLICY.replace("from cleanrl_utils.buffers import ReplayBuffer\n", "").split(
    "rb ="
)[0]
STACKED = """
import gym
import torch
from stable_baselines3.common.buffers import ReplayBuffer

def make_env(env):
    return gym.wrappers.FrameStack(env, 4)

envs = gym.vector.SyncVectorEnv([make_env])
rb = ReplayBuffer(
    10, envs.single_observation_space, device="cpu", optimize_memory_usage=True
)
"""


@pytest.mark.parametrize(("text", "most"), [(OFF_POLICY, 12), (ON_POLICY, 6), (STACKED, 20)])
def test_porting_changes_few_lines(port, text, most):
    after = port.ported(text)
    ast.parse(after)
    lines = port.changed_lines(text, after)
    assert 0 < len(lines) <= most
    assert "SyncVectorEnv" not in after
    assert ("frame_stack=4" in after) == ("FrameStack" in text)


def test_the_ported_file_runs(port):
    namespace = {"__name__": "__main__"}
    exec(port.ported(OFF_POLICY), namespace)
    assert type(namespace["rb"]).__module__ == "reverie.contrib.cleanrl"
    assert type(namespace["envs"]).__name__ == "GymVectorEnv"
    assert namespace["data"].observations.shape == (32, 4)
    assert np.isfinite(namespace["data"].rewards.numpy()).all()


def test_a_file_without_a_replay_buffer_is_refused(port):
    with pytest.raises(ValueError, match="the file has no ReplayBuffer"):
        port.ported("print(1)\n")
