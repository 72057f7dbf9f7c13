"""Loops as users of Acme and TF-Agents write them: fill, limit, sample, train, update.

The tests of these packages do not cover the last two. ``programs_test.py`` runs this file with
dm-reverb, with ours in its place, and with dm-reverb's clients and our server.
"""

import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme import datasets, specs
from acme.adders import reverb as adders
from acme.testing import fakes
from acme.utils import reverb_utils

OBSERVATIONS = specs.BoundedArray((3,), np.float32, -1.0, 1.0)
ENVIRONMENT = specs.EnvironmentSpec(
    observations=OBSERVATIONS,
    actions=specs.BoundedArray((2,), np.float32, -1.0, 1.0),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)
TABLE = adders.DEFAULT_PRIORITY_TABLE


def fill(adder, episodes=4, length=10):
    env = fakes.Environment(ENVIRONMENT, episode_length=length)
    for _ in range(episodes):
        timestep = env.reset()
        adder.add_first(timestep)
        while not timestep.last():
            action = np.full(2, 0.5, np.float32)
            timestep = env.step(action)
            adder.add(action, next_timestep=timestep)


@pytest.mark.parametrize("prefetch", [None, 2])
def test_a_critic_trains_on_acmes_transitions_and_updates_priorities(prefetch):
    table = reverb.Table(
        name=TABLE,
        sampler=reverb.selectors.Prioritized(0.6),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverb.rate_limiters.MinSize(20),
        signature=adders.NStepTransitionAdder.signature(ENVIRONMENT),
    )
    server = reverb.Server([table])
    client = server.localhost_client()
    fill(adders.NStepTransitionAdder(client, n_step=3, discount=0.9))
    assert client.server_info()[TABLE].current_size == 4 * (10 + 2)
    dataset = datasets.make_reverb_dataset(
        server_address=f"localhost:{server.port}",
        batch_size=16,
        prefetch_size=prefetch,
        num_parallel_calls=2,
    )
    critic = tf.keras.Sequential([tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.05)
    updater = reverb.TFClient(f"localhost:{server.port}")
    losses = []
    for _, sample in zip(range(10), dataset, strict=False):
        transition = reverb_utils.replay_sample_to_sars_transition(sample, is_sequence=False)
        with tf.GradientTape() as tape:
            error = critic(transition.observation)[:, 0] - (transition.reward + 1.0)
            loss = tf.reduce_mean(error**2)
        gradient = tape.gradient(loss, critic.trainable_variables)
        optimizer.apply_gradients(zip(gradient, critic.trainable_variables, strict=True))
        updater.update_priorities(TABLE, sample.info.key, tf.cast(tf.abs(error), tf.float64) + 3.0)
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    drawn = [sample.info.priority for sample in client.sample(TABLE, 50, emit_timesteps=False)]
    assert max(drawn) > 2.9
    del dataset
    server.stop()


def test_acmes_sequences_are_limited_by_the_rate_limiter():
    table = reverb.Table(
        name=TABLE,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
            samples_per_insert=2.0, min_size_to_sample=2, error_buffer=20.0
        ),
        signature=adders.SequenceAdder.signature(ENVIRONMENT, sequence_length=5),
    )
    like = reverb_utils.make_replay_table_from_info(table.info)
    assert like.info.rate_limiter_info == table.info.rate_limiter_info
    server = reverb.Server([table])
    client = server.localhost_client()
    adder = adders.SequenceAdder(client, sequence_length=5, period=5, max_in_flight_items=100)
    fill(adder, episodes=2)
    dataset = reverb.TrajectoryDataset.from_table_signature(
        server_address=f"localhost:{server.port}",
        table=TABLE,
        max_in_flight_samples_per_worker=1,
        rate_limiter_timeout_ms=1000,
    )
    shapes = {tuple(sample.data.observation.shape) for sample in dataset}
    assert shapes == {(5, 3)}
    limiter = client.server_info()[TABLE].rate_limiter_info
    inserted, sampled = limiter.insert_stats.completed, limiter.sample_stats.completed
    assert 0 < sampled <= 2 * inserted + 20
    server.stop()


def test_tf_agents_trains_on_its_replay_buffer():
    from tf_agents.agents.dqn import dqn_agent
    from tf_agents.drivers import py_driver
    from tf_agents.environments import random_py_environment, tf_py_environment
    from tf_agents.networks import q_network
    from tf_agents.policies import random_py_policy
    from tf_agents.replay_buffers import reverb_replay_buffer
    from tf_agents.replay_buffers import reverb_utils as observers
    from tf_agents.specs import array_spec, tensor_spec

    env = random_py_environment.RandomPyEnvironment(
        array_spec.BoundedArraySpec((3,), np.float32, -1, 1),
        array_spec.BoundedArraySpec((), np.int32, 0, 1),
        episode_end_probability=0.1,
    )
    tf_env = tf_py_environment.TFPyEnvironment(env)
    agent = dqn_agent.DqnAgent(
        tf_env.time_step_spec(),
        tf_env.action_spec(),
        q_network.QNetwork(tf_env.observation_spec(), tf_env.action_spec(), fc_layer_params=(8,)),
        optimizer=tf.keras.optimizers.legacy.Adam(1e-3),
    )
    agent.initialize()
    table = reverb.Table(
        "uniform",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=tensor_spec.add_outer_dim(tensor_spec.from_spec(agent.collect_data_spec)),
    )
    server = reverb.Server([table])
    buffer = reverb_replay_buffer.ReverbReplayBuffer(
        agent.collect_data_spec,
        table_name="uniform",
        sequence_length=2,
        server_address=f"localhost:{server.port}",
    )
    observer = observers.ReverbAddTrajectoryObserver(buffer.py_client, "uniform", sequence_length=2)
    policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec())
    py_driver.PyDriver(env, policy, [observer], max_steps=60).run(env.reset())
    observer.flush()
    assert buffer.num_frames() > 0
    dataset = buffer.as_dataset(sample_batch_size=8, num_steps=2).prefetch(2)
    losses = [
        float(agent.train(experience).loss)
        for _, (experience, _) in zip(range(5), dataset, strict=False)
    ]
    assert np.isfinite(losses).all()
    observer.close()
    server.stop()
