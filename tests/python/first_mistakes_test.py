"""Calls that are usual in other libraries raise errors that say what to write instead."""

import numpy as np
import pytest

import reverie
from reverie import errors


@pytest.mark.parametrize("backend", ["native", "thread"])
def test_unpacking_a_step_like_gymnasiums_says_to_take_the_result(backend):
    with reverie.EnvPool("CartPole-v1", 2, backend=backend) as pool:
        future = pool.reset()
        with pytest.raises(errors.UnsupportedTypeError, match=r"take its result\(\)"):
            _observations, _infos = future
        future.result()
        with pytest.raises(TypeError, match=r"reverie\.gym\.GymVectorEnv"):
            _obs, _rewards, _terminated, _truncated, _infos = pool.step([0, 0])


@pytest.mark.parametrize("name", ["done", "dones"])
def test_the_error_for_a_done_flag_names_terminated_and_truncated(name):
    buffer = reverie.ReplayBuffer(10)
    obs = np.zeros(2, np.float32)
    with pytest.raises(errors.UnsupportedTypeError, match=r"terminated \| truncated"):
        buffer.add(obs, 0, 1.0, obs, **{name: False})
    buffer.add(obs, 0, 1.0, obs, False)
    with pytest.raises(TypeError, match="terminated is missing"):
        buffer.add(obs, 0, 1.0, obs, None)


@pytest.mark.parametrize("env_id", ["CartPole-v1 ", "Cart Pole", "", ":", "a:b:c", "CartPole-v2"])
def test_a_malformed_environment_id_is_not_found(env_id):
    with pytest.raises((errors.NotFoundError, errors.MissingPackageError)) as error:
        reverie.EnvPool(env_id, 1, backend="thread")
    assert "Traceback" not in str(error.value)


def test_the_error_for_settings_as_a_dict_names_their_class():
    with pytest.raises(errors.UnsupportedTypeError, match=r"a reverie\.TrainSettings"):
        reverie.train("dqn", "CartPole-v1", {"steps": 100})
