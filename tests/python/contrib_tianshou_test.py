"""Tianshou with our environments and our buffers; skipped if it is not installed."""

import copy
import os
import pickle

import numpy as np
import pytest

from reverie.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
    UnsupportedTypeError,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of Tianshou and its imports
os.environ.setdefault("OMP_NUM_THREADS", "1")

gymnasium = pytest.importorskip("gymnasium")
torch = pytest.importorskip("torch")
pytest.importorskip("tianshou")

from tianshou.algorithm import DQN, SAC  # noqa: E402
from tianshou.algorithm.algorithm_base import Algorithm  # noqa: E402
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy  # noqa: E402
from tianshou.algorithm.modelfree.sac import SACPolicy  # noqa: E402
from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: E402
from tianshou.data import Batch, Collector  # noqa: E402
from tianshou.data import VectorReplayBuffer as TheirBuffer  # noqa: E402
from tianshou.env import DummyVectorEnv, VectorEnvNormObs  # noqa: E402
from tianshou.trainer import OffPolicyTrainerParams  # noqa: E402
from tianshou.utils.net.common import Net  # noqa: E402
from tianshou.utils.net.continuous import (  # noqa: E402
    ContinuousActorProbabilistic,
    ContinuousCritic,
)

from reverie.contrib import tianshou  # noqa: E402

GAMMA = 0.9


class Ladder(gymnasium.Env):
    """Counts its steps; even episodes terminate after three, odd ones are truncated after five."""

    observation_space = gymnasium.spaces.Box(-1, 99, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = None

    def __init__(self):
        self.action_space = copy.deepcopy(Ladder.action_space)  # a space holds a random generator
        self.episode = -1
        self.height = 7

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.steps = 0
        draw = float(self.np_random.random())
        return np.array([self.episode, 0], np.float32), {"draw": draw, **(options or {})}

    def step(self, action):
        self.steps += 1
        ends = self.episode % 2 == 0 and self.steps == 3
        observation = np.array([self.episode, self.steps], np.float32)
        reward = self.episode + 0.25 * self.steps + float(action)
        return observation, reward, ends, self.steps == 5, {"steps": self.steps}


class Told(Ladder):
    """The same with dict observations."""

    observation_space = gymnasium.spaces.Dict(
        at=Ladder.observation_space, half=gymnasium.spaces.Box(0, 9, (1,), np.float32)
    )

    def _told(self, observation):
        return {"at": observation, "half": observation[1:] / 2}

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return self._told(observation), info

    def step(self, action):
        observation, *rest = super().step(action)
        return self._told(observation), *rest


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, np.ndarray) and other.dtype == object:
            assert one.dtype == object
            assert repr(list(one)) == repr(list(other))
        else:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("env", [Ladder, Told])
def test_the_vector_env_steps_like_dummy_vector_env(env):
    ours, theirs = tianshou.VectorEnv([env] * 3, backend="thread"), DummyVectorEnv([env] * 3)
    assert len(ours) == len(theirs) == 3
    assert ours.seed(4) == theirs.seed(4)
    assert [space.sample() for space in ours.action_space] == [
        space.sample() for space in theirs.action_space
    ]
    assert ours.observation_space == theirs.observation_space
    assert_same(ours.reset(), theirs.reset())
    assert_same(ours.reset(seed=3, options={"a": 1}), theirs.reset(seed=3, options={"a": 1}))
    rng = np.random.default_rng(1)
    for step in range(30):
        ids = rng.permutation(3)[: 1 + step % 3]
        actions = rng.integers(2, size=len(ids))
        mine, yours = ours.step(actions, ids.tolist()), theirs.step(actions, ids.tolist())
        assert_same(mine, yours)
        over = ids[mine[2] | mine[3]]
        if len(over):
            assert_same(ours.reset(over), theirs.reset(over))
    ours.set_env_attr("height", 1, id=[1])
    assert ours.get_env_attr("height") == [7, 1, 7]
    assert ours.get_env_attr("height", 1) == [1]
    ours.close()


def test_native_environments_left_out_of_a_step_must_be_reset():
    ours = tianshou.VectorEnv("CartPole-v1", 3)
    whole = tianshou.GymVectorEnv("CartPole-v1", 3, autoreset_mode="Disabled")
    zeros = np.zeros(3, int)
    np.testing.assert_array_equal(ours.reset(seed=[5, 6, 7])[0], whole.reset(seed=5)[0])
    for _ in range(4):
        assert_same(ours.step(zeros)[:4], whole.step(zeros)[:4])
    whole.close()
    for _ in range(15):  # long enough for the others to end
        found = ours.step([0, 1], [0, 2])
        if (over := np.array([0, 2])[found[2]]).size:
            ours.reset(over)
    with pytest.raises(FailedPreconditionError, match=r"environments \[1\] were left out"):
        ours.step(zeros)
    ours.reset([1])
    assert ours.step(zeros)[0].shape == (3, 4)
    ours.close()


def test_wrong_arguments_of_environments_are_refused():
    with pytest.raises(InvalidArgumentError, match="Disabled"):
        tianshou.VectorEnv(tianshou.GymVectorEnv("CartPole-v1", 2))
    with pytest.raises(UnsupportedTypeError, match="no tuples"):
        tianshou.VectorEnv(Pair, 1, backend="thread")
    envs = tianshou.VectorEnv("CartPole-v1", 2)
    with pytest.raises(FailedPreconditionError, match="never reset"):
        envs.step([0, 0])
    with pytest.raises(FailedPreconditionError, match="reset all first"):
        envs.reset([1])
    envs.reset()
    for action, ids, text in (
        ([0], None, "action is"),
        (None, None, "action is None"),
        ([0], [2], "environment 2 is not there"),
        ([0, 0], [1, 1], "each once"),
        ([0], [-1], "each once"),
        ([0], ["a"], "each once"),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            envs.step(action, ids)
    with pytest.raises(InvalidArgumentError, match="seed has 1 entries"):
        envs.seed([1])
    envs.close()
    with pytest.raises(AssertionError, match="after close"):  # raised by Tianshou
        envs.reset()


class Pair(Ladder):
    observation_space = gymnasium.spaces.Tuple([Ladder.observation_space] * 2)


def filled(buffer, envs, steps, seed=3):
    """Stores what a collector stores: mostly steps of all environments, sometimes of a few."""
    rng = np.random.default_rng(seed)
    envs.seed(1)
    obs, _ = envs.reset()
    for step in range(steps):
        ids = np.arange(len(envs)) if step % 4 else np.array([1])
        act = rng.integers(2, size=len(ids))
        then, reward, terminated, truncated, info = envs.step(act, ids)
        outcome = {"rew": reward, "terminated": terminated, "truncated": truncated}
        batch = Batch(obs=obs[ids], act=act, obs_next=then, info=info, policy=Batch(), **outcome)
        found = buffer.add(batch, buffer_ids=ids)
        assert [len(one) for one in found] == [len(ids)] * 4
        obs = obs.copy()
        obs[ids] = then
        over = ids[terminated | truncated]
        if len(over):
            obs[over] = envs.reset(over)[0]
    return buffer


class Wider(Told):
    """Steps give observations of more bits than resets; random actions are int32."""

    observation_space = gymnasium.spaces.Dict(
        at=Ladder.observation_space, half=gymnasium.spaces.Box(0, 9, (1,), np.float64)
    )

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Discrete(2, dtype=np.int32)

    def step(self, action):
        observation, *rest = super().step(action)
        return {**observation, "at": observation["at"].astype(np.float64) + 0.1}, *rest


def test_later_steps_get_the_types_of_the_first():
    envs = DummyVectorEnv([Wider] * 3)
    ours, theirs = tianshou.VectorReplayBuffer(99, 3), TheirBuffer(99, 3)
    obs, _ = envs.reset(seed=1)
    for step in range(3):
        if step == 2:
            ours = pickle.loads(pickle.dumps(ours))
        act = np.ones(3, np.int64 if step else np.int32)
        ids = np.arange(3)[: 2 if step else 3]
        then, rew, terminated, truncated, info = envs.step(act[ids], ids)
        outcome = {"rew": rew, "terminated": terminated, "truncated": truncated, "info": info}
        batch = Batch(obs=obs[ids], act=act[ids], obs_next=then, policy=Batch(), **outcome)
        for buffer in (ours, theirs):
            buffer.add(batch, buffer_ids=ids)
        obs = then
    found, wanted = ours.sample(256)[0], theirs.sample(0)[0]
    assert found.act.dtype == wanted.act.dtype == np.int32
    assert (found.act == 1).all()
    assert found.obs.at.dtype == wanted.obs.at.dtype == found.obs_next.at.dtype == np.float32
    assert found.obs.half.dtype == found.obs_next.half.dtype == wanted.obs.half.dtype
    assert set(found.obs.at[:, 1].tolist()) == set(wanted.obs.at[:, 1].tolist())
    assert ours.replay.stats["cuts"] == 0


@pytest.mark.parametrize(("first", "later"), [(np.uint8(3), 256), (np.int64(1), 0.5)])
def test_numbers_that_the_type_of_the_first_step_does_not_hold_are_refused(first, later):
    buffer = tianshou.VectorReplayBuffer(99)
    given = {"rew": np.ones(1), "terminated": np.zeros(1, bool), "truncated": np.zeros(1, bool)}
    one, other = np.array([first]), np.array([later])
    given |= {"obs": np.zeros((1, 2)), "obs_next": np.zeros((1, 2)), "info": Batch()}
    buffer.add(Batch(act=one, **given))
    with pytest.raises(InvalidArgumentError, match=r"action is .*, but the first step had"):
        buffer.add(Batch(act=other, **given))
    assert len(buffer) == 1
    buffer.add(Batch(act=one.astype(np.int32), **given))
    assert buffer.sample(8)[0].act.dtype == first.dtype


def test_a_collector_stores_random_actions_and_then_those_of_a_policy():
    class Narrow(Ladder):
        def __init__(self):
            super().__init__()
            self.action_space = gymnasium.spaces.Discrete(2, dtype=np.int32)

    torch.set_num_threads(1)
    envs = DummyVectorEnv([Narrow] * 2)
    buffer = tianshou.VectorReplayBuffer(99, 2)
    collector = Collector(dqn(envs), envs, buffer)
    collector.reset()
    collector.collect(n_step=8, random=True)
    collector.collect(n_step=8)
    assert len(buffer) == 16
    assert buffer.sample(8)[0].act.dtype == np.int32


def values(buffer, indices):
    """A stand-in for a value network: the value identifies the observation."""
    following = buffer[indices].obs_next
    return torch.as_tensor(np.asarray(following)[:, 0] * 10 + np.asarray(following)[:, 1])


@pytest.mark.parametrize("n_step", [1, 3, 7])
def test_n_step_targets_match_tianshous_own_buffer(n_step):
    envs = tianshou.VectorEnv([Ladder] * 2, backend="thread")
    ours = tianshou.VectorReplayBuffer(200, 2, n_step=n_step, gamma=GAMMA)
    filled(ours, envs, 60)
    theirs = filled(TheirBuffer(200, 2), tianshou.VectorEnv([Ladder] * 2, backend="thread"), 60)

    def targets(buffer, batch, indices):
        made = Algorithm.compute_nstep_return(batch, buffer, indices, values, GAMMA, n_step)
        obs = np.asarray(batch.obs)
        kinds = zip(obs[:, 0], obs[:, 1], np.asarray(batch.act), strict=True)
        return list(zip(kinds, np.asarray(made.returns).reshape(-1).tolist(), strict=True))

    batch, indices = ours.sample(500)
    assert len(batch) == len(indices) == 500
    whole, places = theirs.sample(0)
    wanted = {}
    for kind, value in targets(theirs, whole, places):
        wanted.setdefault(kind, []).append(value)
    found = targets(ours, batch, indices)
    assert len({kind for kind, _ in found}) > 40
    for kind, value in found:
        assert np.isclose(wanted[kind], value, rtol=1e-4).any()


def test_another_n_step_than_the_buffers_is_refused():
    envs = tianshou.VectorEnv([Ladder] * 2, backend="thread")
    for own, asked in ((1, 3), (3, 1)):
        buffer = filled(tianshou.VectorReplayBuffer(99, 2, n_step=own, gamma=GAMMA), envs, 9)
        batch, indices = buffer.sample(8)
        with pytest.raises(InvalidArgumentError, match=f"n_step of the buffer is {own}"):
            Algorithm.compute_nstep_return(batch, buffer, indices, values, GAMMA, asked)
    with pytest.raises(InvalidArgumentError, match="gamma None"):
        tianshou.VectorReplayBuffer(99, 2, n_step=3)


def test_priorities_are_updated_by_index():
    envs = tianshou.VectorEnv([Ladder] * 2, backend="thread")
    options = {"alpha": 1.0, "beta": 0.5, "n_step": 3, "gamma": GAMMA}
    buffer = filled(tianshou.PrioritizedVectorReplayBuffer(99, 2, **options), envs, 30)
    assert len(buffer) > 40
    batch, indices = buffer.sample(256)
    assert batch.weight.shape == (256,)
    assert batch.weight.max() == 1
    chosen = np.asarray(batch.obs)[:, 1] == 2
    buffer.update_weight(indices, torch.where(torch.as_tensor(chosen), -8.0, 0.0))
    assert (np.asarray(buffer.sample(200)[0].obs)[:, 1] == 2).mean() > 0.95
    buffer.set_beta(0.0)
    assert (buffer.sample(64)[0].weight == 1).all()
    assert not hasattr(tianshou.VectorReplayBuffer(9), "update_weight")


@pytest.mark.parametrize("prioritized", [False, True])
def test_frame_stacks_are_stored_as_single_compressed_frames(prioritized):
    kind = tianshou.PrioritizedVectorReplayBuffer if prioritized else tianshou.VectorReplayBuffer
    options = {"alpha": 0.6, "beta": 0.4} if prioritized else {}
    newest_alone = {"stack_num": 4, "save_only_last_obs": True, **options}
    raw, packed = (kind(1200, 1, codec=codec, **newest_alone) for codec in ("raw", "auto"))
    whole = tianshou.VectorReplayBuffer(1200, 1)
    for step in range(1000):
        first = step - step % 9
        frames = (np.maximum(np.arange(step - 3, step + 2), first) % 225).astype(np.uint8)
        pictures = np.repeat(frames, 36 * 36).reshape(1, 5, 36, 36)
        made = {"obs": pictures[:, :4], "obs_next": pictures[:, 1:], "act": np.zeros(1, int)}
        over = np.array([step % 9 == 8])
        batch = Batch(**made, rew=np.ones(1), terminated=over, truncated=~over & False)
        for one in (raw, packed, whole):
            one.add(batch)
    assert raw.replay.memory_bytes < 0.35 * whole.replay.memory_bytes
    assert packed.replay.memory_bytes < 0.35 * raw.replay.memory_bytes
    for buffer in (raw, packed):
        batch, _ = buffer.sample(64)
        assert batch.obs.shape == batch.obs_next.shape == (64, 4, 36, 36)
        newest = batch.obs[:, 3, 0, 0].astype(int)
        np.testing.assert_array_equal(batch.obs_next[:, 3, 0, 0], (newest + 1) % 225)
        for back in (1, 2, 3):
            older = np.maximum(newest - back, newest - newest % 9)
            np.testing.assert_array_equal(batch.obs[:, 3 - back, 0, 0], older)
    with pytest.raises(InvalidArgumentError, match=r"codec.*gzip"):
        kind(9, codec="gzip", **options)


def network_of(envs):
    return Net(
        state_shape=envs.observation_space[0].shape,
        action_shape=envs.action_space[0].n,
        hidden_sizes=[32],
    )


def dqn(envs, **options):
    policy = DiscreteQLearningPolicy(
        model=network_of(envs), action_space=envs.action_space[0], eps_training=0.3
    )
    return DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), gamma=GAMMA, **options)


def train(algorithm, envs, buffer, steps, batch_size=32):
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=64, random=True)
    return algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=steps,
            collection_step_num_env_steps=8,
            update_step_num_gradient_steps_per_sample=0.25,
            batch_size=batch_size,
            test_step_num_episodes=0,
            test_in_training=False,
            verbose=False,
            show_progress=False,
        )
    )


@pytest.mark.parametrize("prioritized", [False, True])
def test_dqn_trains_for_a_few_steps(prioritized):
    torch.set_num_threads(1)
    envs = tianshou.VectorEnv("CartPole-v1", 4)
    kind = tianshou.VectorReplayBuffer
    options = {"n_step": 3, "gamma": GAMMA}
    if prioritized:
        kind = tianshou.PrioritizedVectorReplayBuffer
        options |= {"alpha": 0.6, "beta": 0.4}
    buffer = kind(500, 4, **options)
    algorithm = dqn(envs, n_step_return_horizon=3, target_update_freq=20)
    result = train(algorithm, envs, buffer, 400)
    assert result.update_step == 50
    assert result.train_episode > 5
    assert len(buffer) > 400
    assert buffer.replay.stats["updates"] == (100 if prioritized else 0)
    envs.close()


def test_sac_trains_with_normalised_observations():
    torch.set_num_threads(1)
    envs = VectorEnvNormObs(tianshou.VectorEnv("Pendulum-v1", 2))
    space, action = envs.observation_space[0], envs.action_space[0]

    def network(**options):
        return Net(state_shape=space.shape, hidden_sizes=[16], **options)

    policy = SACPolicy(
        actor=ContinuousActorProbabilistic(
            preprocess_net=network(), action_shape=action.shape, unbounded=True
        ),
        action_space=action,
    )
    critic = ContinuousCritic(preprocess_net=network(action_shape=action.shape, concat=True))
    factory = AdamOptimizerFactory(lr=1e-3)
    algorithm = SAC(policy=policy, policy_optim=factory, critic=critic, critic_optim=factory)
    result = train(algorithm, envs, tianshou.VectorReplayBuffer(500, 2), 40)
    assert result.update_step == 5
    envs.close()


def test_episodes_are_counted_as_in_tianshous_collector():
    algorithm = dqn(DummyVectorEnv([Ladder] * 3))

    def collected(envs, buffer):
        collector = Collector(algorithm, envs, buffer)
        collector.reset()
        episodes = []
        collector.set_on_episode_done_hook(lambda episode: episodes.append(list(episode.rew)))
        return collector.collect(n_episode=7), episodes

    ours, mine = collected(
        tianshou.VectorEnv([Ladder] * 3, backend="thread"), tianshou.VectorReplayBuffer(99, 3)
    )
    theirs, others = collected(DummyVectorEnv([Ladder] * 3), TheirBuffer(99, 3))
    np.testing.assert_array_equal(ours.lens, theirs.lens)
    np.testing.assert_allclose(ours.returns, theirs.returns)
    assert mine == others
    # The same with native environments, some of which are idle at the end.
    envs = tianshou.VectorEnv("CartPole-v1", 4)
    few = Collector(dqn(envs), envs, tianshou.VectorReplayBuffer(999, 4))
    few.reset()
    assert few.collect(n_episode=6).n_collected_episodes == 6
    assert few.collect(n_episode=5).n_collected_episodes == 5
    envs.close()


def test_hasnull_reports_a_nan_once_it_is_added():
    buffer = tianshou.VectorReplayBuffer(9)
    step = {
        "act": np.zeros(1, int),
        "terminated": np.zeros(1, bool),
        "truncated": np.zeros(1, bool),
    }
    seen = {"obs": np.zeros((1, 2)), "obs_next": np.ones((1, 2))}
    buffer.add(Batch(rew=np.ones(1), **seen, **step))
    assert not buffer.hasnull()
    buffer.add(Batch(rew=np.ones(1), obs=np.ones((1, 2)), obs_next=np.full((1, 2), np.nan), **step))
    assert buffer.hasnull()
    buffer.reset()
    assert not buffer.hasnull()
    assert len(buffer) == 0


def test_a_buffer_can_be_copied_and_pickled():
    envs = tianshou.VectorEnv([Ladder] * 2, backend="thread")
    buffer = filled(tianshou.PrioritizedVectorReplayBuffer(99, 2, alpha=0.6, beta=0.4), envs, 20)
    for twin in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        assert len(twin) == len(buffer)
        filled(twin, envs, 20)
        assert len(twin) > len(buffer)
        twin.update_weight(twin.sample(8)[1], np.ones(8))


def test_unsupported_methods_are_refused():
    envs = tianshou.VectorEnv([Ladder] * 2, backend="thread")
    buffer = filled(tianshou.VectorReplayBuffer(99, 2), envs, 9)
    for call in (
        lambda: buffer.sample(0),
        lambda: buffer.sample(None),
        lambda: buffer[:],
        lambda: buffer["obs"],
        lambda: buffer.save_hdf5("file"),
        lambda: buffer.load_hdf5("file"),
        lambda: buffer.from_data(1),
        lambda: buffer.update(buffer),
        lambda: buffer.set_batch(Batch()),
    ):
        with pytest.raises(UnimplementedError, match=r"is|was"):
            call()
    with pytest.raises(FailedPreconditionError, match="sample"):
        buffer[np.arange(3)]
    with pytest.raises(FailedPreconditionError, match="add steps first"):
        tianshou.VectorReplayBuffer(9).sample(1)
    buffer.sample(4)
    for indices in ([4], [-1], [1 << 62]):
        with pytest.raises(InvalidArgumentError, match="index is"):
            buffer[np.array(indices)]
    with pytest.raises(AttributeError, match="no 'prev_things'"):
        buffer.prev_things  # noqa: B018
    wrong = Batch(obs=np.zeros((2, 2)), obs_next=np.zeros((2, 2)), act=np.zeros(2), rew=np.zeros(3))
    wrong.terminated = wrong.truncated = np.zeros(2, bool)
    with pytest.raises(InvalidArgumentError, match="rew has the shape"):
        buffer.add(wrong)
