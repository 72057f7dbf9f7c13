"""RLlib's prioritised episodes over our buffer; skipped if Ray is not installed."""

import pickle

import numpy as np
import pytest

from reverie.errors import InvalidArgumentError

pytest.importorskip("ray.rllib")
gymnasium = pytest.importorskip("gymnasium")

from ray.rllib.env.single_agent_episode import SingleAgentEpisode  # noqa: E402

from reverie.contrib.rllib import PrioritizedEpisodeReplayBuffer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of Ray and its imports


def episode(number, length, *, terminated=True):
    made = SingleAgentEpisode(observation_space=gymnasium.spaces.Box(0, 999, (2,)))
    made.add_env_reset(np.array([number, 0], np.float32))
    for step in range(length):
        is_last = step == length - 1
        made.add_env_step(
            np.array([number, step + 1], np.float32),
            step % 2,
            float(step),
            terminated=is_last and terminated,
            truncated=is_last and not terminated,
        )
    return made


def test_samples_are_the_transitions_that_were_added():
    buffer = PrioritizedEpisodeReplayBuffer(1000, seed=1)
    buffer.add([episode(0, 5), episode(1, 7, terminated=False)])
    assert buffer.get_num_timesteps() == len(buffer) == 12
    assert buffer.get_added_timesteps() == 12
    for drawn in buffer.sample(64, beta=0.4, n_step=1, gamma=0.99):
        now, then = drawn.get_observations(0), drawn.get_observations(1)
        assert then[0] == now[0]
        assert then[1] == now[1] + 1
        assert drawn.get_rewards(0) == now[1]
        assert drawn.get_actions(0) == now[1] % 2
        assert drawn.is_terminated == (now.tolist() == [0, 4])
        assert drawn.get_extra_model_outputs("weights", 0) == 1
        assert drawn.get_extra_model_outputs("n_step", 0) == 1


def test_alternating_chunks_of_two_episodes_do_not_mix():
    buffer = PrioritizedEpisodeReplayBuffer(1000, n_step=2, seed=1)
    first, second = episode(0, 8), episode(1, 8)
    for begin in (0, 4):
        buffer.add([one[begin : begin + 4] for one in (first, second)])
    for drawn in buffer.sample(200, n_step=2):
        now, then = drawn.get_observations(0), drawn.get_observations(1)
        taken = drawn.get_extra_model_outputs("n_step", 0)
        assert then[0] == now[0]
        if not drawn.is_terminated:
            assert then[1] == now[1] + taken
        gained = sum(0.99**i * (now[1] + i) for i in range(int(then[1] - now[1])))
        assert drawn.get_rewards(0) == pytest.approx(gained)


def test_items_are_sampled_by_priority():
    buffer = PrioritizedEpisodeReplayBuffer(1000, alpha=1.0, seed=1)
    buffer.add(episode(0, 10))
    for _ in range(3):
        steps = np.array([drawn.get_observations(0)[1] for drawn in buffer.sample(256)])
        buffer.update_priorities(np.where(steps == 3, 9.0, 1.0))
    drawn = buffer.sample(512, beta=1.0)
    steps = np.array([one.get_observations(0)[1] for one in drawn])
    weights = np.array([one.get_extra_model_outputs("weights", 0) for one in drawn])
    assert 0.4 < (steps == 3).mean() < 0.6  # its probability is 9 of 18
    np.testing.assert_allclose(weights, np.where(steps == 3, 1 / 9, 1), rtol=1e-5)


def test_unsupported_arguments_are_refused():
    buffer = PrioritizedEpisodeReplayBuffer(1000, n_step=3)
    buffer.add(episode(0, 10))
    with pytest.raises(
        InvalidArgumentError, match='give replay_buffer_config the entry "n_step": 1'
    ):
        buffer.sample(4, n_step=1)
    with pytest.raises(InvalidArgumentError, match="use RLlib's own"):
        buffer.sample(4, batch_length_T=20)
    with pytest.raises(InvalidArgumentError, match="of this buffer's get_state"):
        buffer.set_state({"episodes": []})
    with pytest.raises(InvalidArgumentError, match="leave it out"):
        buffer.add(episode(1, 3), weight=0.5)


def test_the_state_of_a_buffer_can_be_restored():
    buffer = PrioritizedEpisodeReplayBuffer(1000, seed=1)
    buffer.add(episode(0, 10))
    state = pickle.loads(pickle.dumps(buffer.get_state()))
    buffer.add(episode(1, 7))
    other = PrioritizedEpisodeReplayBuffer(1000, seed=2)
    other.set_state(state)
    assert other.get_num_timesteps() == 10
    other.add(episode(1, 7))
    drawn = [one.sample(64) for one in (buffer, other)]
    steps = [[one.get_observations(0).tolist() for one in many] for many in drawn]
    assert steps[0] == steps[1]


@pytest.mark.full
def test_dqn_trains_with_the_buffer():
    from ray.rllib.algorithms.dqn import DQNConfig

    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(
            train_batch_size_per_learner=32,
            num_steps_sampled_before_learning_starts=100,
            replay_buffer_config={
                "type": "reverie.contrib.rllib.PrioritizedEpisodeReplayBuffer",
                "capacity": 10_000,
                "alpha": 0.6,
                "beta": 0.4,
            },
        )
        .reporting(min_sample_timesteps_per_iteration=50, min_time_s_per_iteration=0)
    )
    algorithm = config.build_algo()
    for _ in range(4):
        result = algorithm.train()
    assert type(algorithm.local_replay_buffer) is PrioritizedEpisodeReplayBuffer
    assert algorithm.local_replay_buffer.replay.stats["updates"] > 10
    assert result["env_runners"]["num_env_steps_sampled_lifetime"] > 0
    algorithm.stop()
