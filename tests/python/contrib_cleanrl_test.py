"""The loops of CleanRL's off-policy files, with our buffer and our vector environments."""

import copy
import pickle

import numpy as np
import pytest

from reverie.errors import InvalidArgumentError

gymnasium = pytest.importorskip("gymnasium")
torch = pytest.importorskip("torch")

import reverie.gym  # noqa: E402
from reverie.contrib.cleanrl import ReplayBuffer  # noqa: E402


def make_env(name, seed):
    def thunk():
        env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(name))
        env.action_space.seed(seed)
        return env

    return thunk


def collect(envs, buffer, steps):
    """What CleanRL's files do between two updates."""
    obs, _ = envs.reset(seed=1)
    returns = []
    for _ in range(steps):
        actions = envs.action_space.sample()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        if "final_info" in infos:
            returns += infos["final_info"]["episode"]["r"][infos["_final_info"]].tolist()
        real_next_obs = next_obs.copy()
        for index in np.flatnonzero(terminations | truncations):
            real_next_obs[index] = infos["final_obs"][index]
        buffer.add(obs, real_next_obs, actions, rewards, terminations, infos)
        obs = next_obs
    return returns


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_the_cleanrl_loop_fills_the_buffer_and_samples_from_it(name):
    envs = reverie.gym.GymVectorEnv(
        [make_env(name, i) for i in range(2)], autoreset_mode="SameStep", backend="thread"
    )
    buffer = ReplayBuffer(
        500,
        envs.single_observation_space,
        envs.single_action_space,
        torch.device("cpu"),
        n_envs=2,
        handle_timeout_termination=False,
    )
    returns = collect(envs, buffer, 230)
    assert returns
    assert buffer.size() == 460
    data = buffer.sample(64)
    assert (
        data.observations.shape
        == data.next_observations.shape
        == (64, *envs.single_observation_space.shape)
    )
    assert data.actions.shape == data.rewards.shape == data.dones.shape == (64, 1)
    target = data.rewards.flatten() + 0.99 * (1 - data.dones.flatten())
    assert target.dtype == torch.float32
    # Unscaled: the two observations satisfy the dynamics of CartPole.
    if name == "CartPole-v1":
        moved = data.observations[:, 0] + 0.02 * data.observations[:, 1]
        torch.testing.assert_close(moved, data.next_observations[:, 0])
        # About one transition in 25 ends an episode; in a sample of 64 there may be none.
        assert buffer.sample(4000).dones.sum() > 0
    envs.close()


def test_frame_stacks_are_stored_as_frames_and_priorities_are_updated():
    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = ReplayBuffer(
        200, space, gymnasium.spaces.Discrete(4), "cpu",
        optimize_memory_usage=True, frame_stack=4, prioritized=True,
    )  # fmt: skip
    frames = [np.full((84, 84), min(max(i, 3), 99), np.uint8) for i in range(80)]
    for i in range(70):
        stack = np.stack(frames[i : i + 4])[None]
        buffer.add(stack, np.stack(frames[i + 1 : i + 5])[None], [0], [1.0], [False], [{}])
    data = buffer.sample(32)
    assert data.observations.shape == (32, 4, 84, 84)
    newest = data.observations[:, 3, 0, 0].int()
    assert torch.equal(data.observations[:, 0, 0, 0].int(), (newest - 3).clamp(min=3))
    assert buffer.update_priorities(torch.ones(32, requires_grad=True)) > 0
    assert buffer.replay.memory_bytes < 2 * 72 * 84 * 84 + (1 << 20)
    with pytest.raises(InvalidArgumentError, match="frame_stack is 3"):
        ReplayBuffer(10, space, gymnasium.spaces.Discrete(4), frame_stack=3)
    assert copy.deepcopy(buffer).size() == buffer.size()


def test_observations_are_stored_as_the_dtype_of_their_space():
    # As sac_continuous_action.py does, for MuJoCo's observations of float64.
    space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    space.dtype = np.float32
    actions = gymnasium.spaces.Box(-1, 1, (2,))
    buffer = ReplayBuffer(10, space, actions, handle_timeout_termination=False)
    obs = np.array([[0.1, 0.2, 0.3]])
    buffer.add(obs, obs + 1, np.zeros((1, 2)), np.ones(1), np.zeros(1, bool), {})
    data = buffer.sample(4)
    assert data.observations.dtype == data.next_observations.dtype == torch.float32
    assert torch.equal(data.next_observations[0], torch.tensor([1.1, 1.2, 1.3]))
    torch.nn.Linear(5, 1)(torch.cat([data.observations, data.actions], 1))

    parts = {
        "picture": gymnasium.spaces.Box(0, 255, (2,), np.uint8),
        "speed": gymnasium.spaces.Box(-1, 1, (2,), np.float16),
    }
    buffer = ReplayBuffer(10, gymnasium.spaces.Dict(parts), actions)
    obs = {"picture": np.array([[1, 255]]), "speed": np.array([[0.5, -0.5]])}
    buffer.add(obs, obs, np.zeros((1, 2)), np.ones(1), np.ones(1, bool), [{}])
    data = buffer.sample(1)
    assert data.observations["picture"].dtype == torch.uint8
    assert data.next_observations["speed"].dtype == torch.float16
    assert data.observations["picture"].tolist() == [[1, 255]]
    assert data.next_observations["speed"].tolist() == [[0.5, -0.5]]


def test_actions_are_stored_as_the_dtype_of_their_space():
    spaces = gymnasium.spaces
    obs = np.zeros((1, 3), np.float32)
    given = (np.array([1], np.int32), np.array([2]), [0], np.array([2.0], np.float32))
    for space, dtype in [
        (spaces.Discrete(3, dtype=np.int32), torch.int32),
        (spaces.Discrete(3), torch.int64),
        (spaces.Box(-9, 9, (1,), np.float64), torch.float32),
        (spaces.Box(-9, 9, (1,), np.float16), torch.float16),
        (spaces.MultiDiscrete([3], dtype=np.uint8), torch.uint8),
    ]:
        buffer = ReplayBuffer(10, spaces.Box(-1, 9, (3,)), space, handle_timeout_termination=False)
        for step, action in enumerate(given):
            buffer.add(obs + step, obs + step + 1, action, [1.0], [False], [{}])
        data = buffer.sample(64)
        assert data.actions.dtype == dtype
        wanted = torch.tensor([1, 2, 0, 2])[data.observations[:, 0].long()]
        assert torch.equal(data.actions[:, 0].long(), wanted)


def test_steps_of_a_single_environment_need_no_environment_axis():
    spaces = gymnasium.spaces
    obs = {"a": np.array([0.5, 1.0], np.float32), "b": 3}
    for space, step in [
        (spaces.Box(-1, 1, (2,)), obs["a"]),
        (spaces.Discrete(5), obs["b"]),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(5)), obs),
    ]:
        one, vector = (ReplayBuffer(10, space, spaces.Discrete(4), seed=1) for _ in range(2))
        one.add(step, step, 2, 1.5, True, [{}])
        batched = {k: np.array([v]) for k, v in obs.items()} if step is obs else np.array([step])
        vector.add(batched, batched, np.array([2]), np.array([1.5]), np.array([True]), [{}])
        ours, theirs = one.sample(3), vector.sample(3)
        for name in ("actions", "rewards", "dones"):
            assert getattr(ours, name).shape == (3, 1)
        for a, b in zip(ours[:5], theirs[:5], strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
    # A number has an axis of its own, as in Stable-Baselines3.
    assert theirs.observations["b"].tolist() == [[3]] * 3


def test_steps_of_another_number_of_environments_are_refused_by_name():
    space, actions = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)
    buffer = ReplayBuffer(10, space, actions, n_envs=2)
    right = {
        "obs": np.zeros((2, 3)),
        "next_obs": np.zeros((2, 3)),
        "action": np.zeros(2, int),
        "reward": np.zeros(2),
        "done": np.zeros(2, bool),
    }
    for name, wrong in right.items():
        with pytest.raises(
            InvalidArgumentError, match=rf"{name[-3:]}.* has the shape \(1,.*n_envs=2"
        ):
            buffer.add(**{**right, name: wrong[:1]}, infos=[{}, {}])
    assert buffer.size() == 0


def test_infos_of_a_vector_environment_must_say_which_episodes_a_time_limit_cut_off():
    space, actions = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)
    obs, reward = np.zeros((2, 3), np.float32), np.zeros(2)
    step = (obs, obs, np.zeros(2, int), reward, np.array([True, True]))
    buffer = ReplayBuffer(10, space, actions, n_envs=2, seed=1)
    for infos in ({}, {"final_info": {}, "_final_info": np.array([True, True])}):
        with pytest.raises(InvalidArgumentError, match=r"infos.*handle_timeout_termination=False"):
            buffer.add(*step, infos)
    assert buffer.size() == 0
    buffer.add(*step, {"TimeLimit.truncated": np.array([True, False])})
    assert sorted(set(buffer.sample(64).dones[:, 0].tolist())) == [0.0, 1.0]
    terminations = ReplayBuffer(10, space, actions, n_envs=2, handle_timeout_termination=False)
    terminations.add(*step, {})
    assert terminations.sample(8).dones.all()


def test_a_program_that_seeds_numpy_draws_the_same_again():
    def drawn(seed):
        np.random.seed(seed)  # noqa: NPY002
        space = gymnasium.spaces.Box(0, 99, (1,))
        buffer = ReplayBuffer(100, space, gymnasium.spaces.Discrete(2))
        for step in range(100):
            obs = np.full((1, 1), step, np.float32)
            buffer.add(obs, obs + 1, [0], [0.0], [False], [{}])
        return buffer.sample(32).observations[:, 0].tolist()

    assert drawn(1) == drawn(1) != drawn(2)


def test_an_unknown_or_missing_device_is_refused():
    space, actions = gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Discrete(2)
    wrong = ["gpu", *([] if torch.cuda.is_available() else ["cuda", torch.device("cuda:1")])]
    for device in wrong:
        with pytest.raises(InvalidArgumentError, match=r"device is .*(not know|no GPU)"):
            ReplayBuffer(10, space, actions, device)


def test_batches_go_to_the_device_that_a_loaded_buffer_is_given():
    # As Stable-Baselines3's load_replay_buffer() does on a machine with another device.
    space = gymnasium.spaces.Box(-1, 1, (3,))
    buffer = ReplayBuffer(10, space, gymnasium.spaces.Discrete(2), "cpu")
    obs = np.zeros((1, 3), np.float32)
    buffer.add(obs, obs, [0], [1.0], [False], [{}])
    loaded = pickle.loads(pickle.dumps(buffer))
    assert loaded.sample(4).observations.device.type == "cpu"
    loaded.device = torch.device("meta")
    batch = loaded.sample(4)
    assert {part.device.type for part in batch if part is not None} == {"meta"}
    assert loaded.weights.device.type == "meta"
    assert buffer.sample(4).observations.device.type == "cpu"


def test_images_are_stored_compressed_and_returned_unchanged():
    space = gymnasium.spaces.Box(0, 255, (4, 36, 36), np.uint8)
    raw, packed = (
        ReplayBuffer(1000, space, gymnasium.spaces.Discrete(4), frame_stack=4, codec=codec)
        for codec in ("raw", "auto")
    )
    for step in range(800):
        first = step - step % 200
        frames = (np.maximum(np.arange(step - 3, step + 2), first) % 200).astype(np.uint8)
        pictures = np.repeat(frames, 36 * 36).reshape(1, 5, 36, 36)
        over = [step % 200 == 199]
        for buffer in (raw, packed):
            buffer.add(pictures[:, :4], pictures[:, 1:], [step % 4], [1.0], over, [{}])
    assert packed.replay.memory_bytes < 0.35 * raw.replay.memory_bytes
    data = packed.sample(64)
    newest = data.observations[:, 3, 7, 9].int()
    assert torch.equal(data.next_observations[:, 3, 7, 9].int(), (newest + 1) % 200)
    assert torch.equal(data.observations[:, 0, 7, 9].int(), (newest - 3).clamp(min=0))
