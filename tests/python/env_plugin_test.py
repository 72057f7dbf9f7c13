"""The native environment of examples/cc, loaded as Python programs load it."""

import numpy as np
import pytest

import reverie
from reverie import errors
from reverie.envs import native


@pytest.fixture(scope="module")
def plugin(root):
    """Loads the plugin that the release build made."""
    path = root / "build" / "release" / "examples" / "plugin_env.so"
    native.load_plugin(str(path))
    return path


@pytest.mark.usefixtures("plugin")
def test_an_environment_of_a_plugin_is_listed_with_the_native_ones():
    assert "Catch-v0" in native.ids()
    spec = native.spec("Catch-v0", columns=7)
    assert spec.observation.shape == (10, 7)
    assert spec.observation.dtype == np.uint8
    assert spec.action_count == 3
    assert spec.max_episode_steps is None


@pytest.mark.usefixtures("plugin")
def test_following_the_ball_always_catches_it():
    with native.NativePool("Catch-v0", 32, seed=1) as pool:
        board = pool.reset().result().observation
        assert (board.sum(axis=(1, 2)) == 2).all()
        for step in range(1, 91):
            ball = board[:, :-1].any(axis=1).argmax(axis=1)
            paddle = board[:, -1].argmax(axis=1)
            batch = pool.step(np.sign(ball - paddle) + 1).result()
            assert (batch.terminated == (step % 9 == 0)).all()
            np.testing.assert_array_equal(batch.reward, np.where(batch.terminated, 1, 0))
            board = batch.observation
        assert pool.render().shape == (200, 100, 3)


@pytest.mark.usefixtures("plugin")
def test_options_are_passed_to_the_plugin_and_its_errors_are_raised():
    with pytest.raises(ValueError, match="Catch-v0: the board is 1 x 5; rows must be in"):
        native.NativePool("Catch-v0", 1, rows=1)
    with pytest.raises(ValueError, match="no option 'width'; known are: columns, rows"):
        native.NativePool("Catch-v0", 1, width=3)


@pytest.mark.usefixtures("plugin")
def test_a_pool_of_a_plugin_can_use_threads():
    with (
        native.NativePool("Catch-v0", 9, seed=4, num_threads=2) as pool,
        native.NativePool("Catch-v0", 9, seed=4) as inline,
    ):
        pool.reset().result()
        inline.reset().result()
        for _ in range(50):
            actions = np.arange(9) % 3
            one, other = pool.step(actions).result(), inline.step(actions).result()
            np.testing.assert_array_equal(one.observation, other.observation)


def test_a_plugin_loaded_twice_is_refused(plugin):
    with pytest.raises(errors.AlreadyExistsError, match="'Catch-v0' is registered"):
        native.load_plugin(str(plugin))


def test_a_missing_plugin_file_is_refused(tmp_path):
    with pytest.raises(errors.NotFoundError, match="cannot be loaded"):
        native.load_plugin(str(tmp_path / "env.so"))


def test_plugins_of_every_kind_are_loaded_by_one_function():
    assert native.load_plugin is reverie.load_plugin


def test_a_library_that_is_not_a_plugin_is_refused():
    with pytest.raises(errors.FailedPreconditionError, match="defines no REVERIE_PLUGIN"):
        native.load_plugin("libm.so.6")
