"""Flashbax's functions over our buffer: pairs and sequences of timesteps, as they were added."""

from typing import NamedTuple

import numpy as np
import pytest

from reverie.errors import InvalidArgumentError, UnsupportedTypeError

jax = pytest.importorskip("jax")

from reverie.contrib import flashbax as fbx  # noqa: E402


class Step(NamedTuple):
    obs: object
    done: object


def timestep(time, stream=0):
    obs = np.array([stream, time], np.float32)
    return {"step": Step(obs, np.bool_(time % 5 == 4)), "reward": np.float32(time)}


def stacked(times, streams):
    """Timesteps as arrays ``[streams, T, ...]``."""
    rows = [[timestep(t, s) for t in times] for s in range(streams)]
    return jax.tree.map(
        lambda *x: np.stack(x), *[jax.tree.map(lambda *x: np.stack(x), *row) for row in rows]
    )


def test_samples_are_pairs_of_consecutive_timesteps():
    buffer = fbx.make_flat_buffer(100, min_length=10, sample_batch_size=32, seed=1)
    state = buffer.init(timestep(0))
    for time in range(20):
        assert buffer.can_sample(state) == (time >= 10)
        state = buffer.add(state, timestep(time))
    batch = buffer.sample(state, jax.random.key(0))
    first, second = batch.experience
    assert isinstance(first["step"], Step)
    assert first["step"].obs.shape == (32, 2)
    assert isinstance(first["reward"], jax.Array)
    np.testing.assert_array_equal(second["reward"], first["reward"] + 1)
    np.testing.assert_array_equal(first["step"].done, first["reward"] % 5 == 4)


@pytest.mark.parametrize("add_sequences", [True, False])
def test_timesteps_of_different_streams_do_not_mix(add_sequences):
    buffer = fbx.make_flat_buffer(
        60, 1, sample_batch_size=64, add_sequences=add_sequences, add_batch_size=3, seed=1
    )
    state = buffer.init(timestep(0))
    steps = stacked(range(40), 3)
    if add_sequences:
        for part in (range(25), range(25, 40)):
            state = buffer.add(state, jax.tree.map(lambda x, p=part: x[:, p.start : p.stop], steps))
    else:
        for time in range(40):
            state = buffer.add(state, jax.tree.map(lambda x, t=time: x[:, t], steps))
    first, second = buffer.sample(state, None).experience
    np.testing.assert_array_equal(second["step"].obs, first["step"].obs + np.array([0, 1]))
    assert set(np.asarray(first["step"].obs)[:, 0]) == {0, 1, 2}
    assert first["reward"].min() >= 40 - 60 / 3 - 1  # the oldest were evicted


def test_sequences_have_the_sample_length_and_start_at_multiples_of_the_period():
    buffer = fbx.make_trajectory_buffer(
        2, 32, sample_sequence_length=4, period=2, min_length_time_axis=4, max_size=1000, seed=1
    )
    state = buffer.init(timestep(0))
    state = buffer.add(state, stacked(range(21), 2))
    assert buffer.can_sample(state)
    experience = buffer.sample(state, None).experience
    assert experience["step"].obs.shape == (32, 4, 2)
    times = np.asarray(experience["reward"])
    np.testing.assert_array_equal(times - times[:, :1], np.tile(np.arange(4), (32, 1)))
    assert (times[:, 0] % 2 == 0).all()


@pytest.mark.parametrize(
    "make", [fbx.make_trajectory_buffer, fbx.make_prioritised_trajectory_buffer]
)
def test_the_bound_of_a_stream_is_that_of_all_streams_divided_by_their_number(make):
    made = [
        make(2, 4, 2, 1, 2, **bound).init(timestep(0)).replay.capacity
        for bound in ({"max_size": 100}, {"max_length_time_axis": 50})
    ]
    assert made == [100, 100]
    for bounds in ({}, {"max_size": 100, "max_length_time_axis": 50}):
        with pytest.raises(InvalidArgumentError, match=r"max_length_time_axis.*give one of them"):
            make(2, 4, 2, 1, 2, **bounds)


def test_arguments_by_position_are_those_of_flashbax():
    buffer = fbx.make_prioritised_trajectory_buffer(2, 4, 2, 1, 2, None, 50, 1.0, "gpu", seed=1)
    assert buffer.init(timestep(0)).replay.capacity == 100
    assert fbx.make_prioritised_flat_buffer(100, 1, 4, False, None, 0.6, "tpu").init(timestep(0))
    with pytest.raises(InvalidArgumentError, match="device is 'cuda'"):
        fbx.make_prioritised_flat_buffer(100, 1, 4, device="cuda")


def test_items_are_sampled_by_priority():
    buffer = fbx.make_prioritised_flat_buffer(100, 1, 256, priority_exponent=1.0, seed=1)
    state = buffer.init(timestep(0))
    for time in range(11):
        state = buffer.add(state, timestep(time))
    for _ in range(3):
        batch = buffer.sample(state, None)
        times = np.asarray(batch.experience.first["reward"])
        state = buffer.set_priorities(state, batch.indices, np.where(times == 3, 9.0, 1.0))
    batch = buffer.sample(state, None)
    times = np.asarray(batch.experience.first["reward"])
    assert 0.35 < (times == 3).mean() < 0.65  # its probability is 9 of 18
    likely = np.asarray(batch.probabilities)
    np.testing.assert_allclose(likely[times == 3].mean() / likely[times != 3].mean(), 9, rtol=1e-3)


@pytest.mark.parametrize("traced", [jax.jit, jax.vmap])
def test_a_draw_in_a_traced_function_is_refused(traced):
    buffer = fbx.make_trajectory_buffer(
        1, 4, sample_sequence_length=2, period=1, min_length_time_axis=2, max_size=100
    )
    state = buffer.init(timestep(0))
    state = buffer.add(state, stacked(range(10), 1))
    keys = jax.random.split(jax.random.key(0))
    with pytest.raises(UnsupportedTypeError, match=r"the key is traced.*call sample"):
        traced(lambda key: buffer.sample(state, key).experience["reward"])(keys)
    assert buffer.sample(state, keys[0]).experience["reward"].shape == (4, 2)


def test_wrong_arguments_are_refused():
    buffer = fbx.make_flat_buffer(100, 1, 4)
    state = buffer.init(timestep(0))
    with pytest.raises(InvalidArgumentError, match="but init"):
        buffer.add(state, {"other": np.zeros(3)})
    with pytest.raises(UnsupportedTypeError, match="the experience is traced"):
        jax.jit(lambda step: buffer.add(state, step) and 0)(timestep(0))
    with pytest.raises(InvalidArgumentError, match="sample_batch_size is 0"):
        fbx.make_flat_buffer(100, 1, 0)
    with pytest.raises(UnsupportedTypeError, match="state is None"):
        buffer.sample(None, None)
    many = fbx.make_flat_buffer(100, 1, 4, add_batch_size=2)
    with pytest.raises(InvalidArgumentError, match="num_envs=2"):
        many.add(many.init(timestep(0)), jax.tree.map(lambda x: np.stack([x] * 3), timestep(0)))
