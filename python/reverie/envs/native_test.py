import functools
import gc
import os
import signal
import threading

import numpy as np
import pytest

import reverie
from reverie import errors
from reverie.envs import EnvSpec, native
from reverie.specs import TensorSpec

MANY = 200_000  # one step of so many acrobots takes tens of milliseconds


@pytest.fixture
def cart_pole():
    with native.NativePool("CartPole-v1", 4, seed=1) as pool:
        pool.reset().result()
        yield pool


def test_ids_lists_the_native_environments_in_order():
    assert {"CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"} <= set(native.ids())
    assert {"LunarLander-v3", "LunarLanderContinuous-v3"} <= set(native.ids())
    assert native.ids() == sorted(native.ids())


def test_a_specification_describes_observations_and_actions():
    spec = native.spec("CartPole-v1")
    assert spec == EnvSpec(
        "CartPole-v1",
        TensorSpec((4,), np.float32),
        TensorSpec((), np.int64),
        action_count=2,
        max_episode_steps=500,
    )
    spec = native.spec("LunarLander-v3", continuous=True)
    assert spec.action == TensorSpec((2,), np.float32)
    assert spec.action_count is None
    np.testing.assert_array_equal(spec.action_low, np.float32([-1, -1]))
    assert spec.action_high.dtype == np.float32


def test_a_batch_has_the_shapes_and_types_that_a_backend_promises(cart_pole):
    batch = cart_pole.step(np.zeros(4, dtype=np.int64)).result()
    assert batch.observation.shape == (4, 4)
    assert batch.observation.dtype == np.float32
    assert batch.final_observation.shape == (4, 4)
    assert batch.reward.dtype == np.float32
    assert batch.terminated.dtype == batch.truncated.dtype == np.bool_
    np.testing.assert_array_equal(batch.reward, np.ones(4))
    np.testing.assert_array_equal(batch.env_ids, np.arange(4))
    assert batch.env_ids.dtype == np.int32
    assert batch.info == {}


def test_a_step_does_not_change_earlier_results(cart_pole):
    future = cart_pole.step(np.zeros(4, dtype=np.int64))
    first = future.result()
    before = first.observation.copy()
    assert cart_pole.step(np.ones(4, dtype=np.int64)) is future
    assert (future.result().observation != before).any(axis=1).all()
    np.testing.assert_array_equal(first.observation, before)


def test_without_a_copy_steps_overwrite_the_same_arrays():
    with native.NativePool("CartPole-v1", 4, copy=False) as pool:
        first = pool.reset().result()
        before = first.observation.copy()
        second = pool.step(np.ones(4, dtype=np.int64)).result()
        assert np.shares_memory(first.observation, second.observation)
        assert (first.observation != before).any(axis=1).all()


def test_an_episode_that_ends_is_reset_in_the_same_step(cart_pole):
    ends = 0
    for _ in range(100):
        batch = cart_pole.step(np.ones(4, dtype=np.int64)).result()
        for i in np.flatnonzero(batch.terminated):
            assert abs(batch.final_observation[i, 2]) > 12 * 2 * np.pi / 360
            assert np.abs(batch.observation[i]).max() <= 0.05
            ends += 1
    assert ends >= 4 * 9  # always pushing one way ends an episode in about ten steps


def test_an_episode_is_truncated_at_the_step_limit():
    with native.NativePool("Pendulum-v1", 2, seed=1) as pool:
        pool.reset().result()
        for step in range(1, 401):
            batch = pool.step(np.zeros((2, 1), dtype=np.float32)).result()
            assert (batch.truncated == (step % 200 == 0)).all()
            assert not batch.terminated.any()


def test_batches_of_a_pool_are_independent():
    with native.NativePool("CartPole-v1", 3, num_batches=2, seed=1) as pool:
        first, second = (pool.reset(batch=batch).result() for batch in range(2))
        assert not np.array_equal(first.observation, second.observation)
        before = second.observation.copy()
        pool.step([0, 1, 0], 0).result()
        np.testing.assert_array_equal(second.observation, before)
        pool.step([0, 1, 0], batch=1).result()


def test_each_environment_of_a_pool_has_its_own_seed():
    with native.NativePool("CartPole-v1", 3) as pool, native.NativePool("CartPole-v1", 1) as one:
        batch = pool.reset(seed=7).result()
        alone = one.reset(seed=8).result()
        np.testing.assert_array_equal(alone.observation[0], batch.observation[1])
        again = pool.reset(seed=7).result().observation.copy()
        assert not np.array_equal(pool.reset().result().observation, again)


def test_pools_without_a_seed_differ():
    with native.NativePool("CartPole-v1", 3) as one, native.NativePool("CartPole-v1", 3) as other:
        assert not np.array_equal(
            one.reset().result().observation, other.reset().result().observation
        )


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint64, ">i8"])
def test_actions_may_have_any_integer_type(cart_pole, dtype):
    actions = np.array([0, 1, 1, 0])
    start = [cart_pole.get_state(i) for i in range(4)]
    expected = cart_pole.step(actions).result().observation.copy()
    for i in range(4):
        cart_pole.set_state(i, start[i])
    given = cart_pole.step(actions.astype(dtype)).result()
    np.testing.assert_array_equal(given.observation, expected)


def test_actions_need_not_be_contiguous(cart_pole):
    cart_pole.step(np.zeros((4, 3), dtype=np.int64)[:, 1]).result()
    cart_pole.step([0, 1, 0, 1]).result()
    with native.NativePool("Pendulum-v1", 4) as pool:
        pool.reset().result()
        pool.step(np.zeros((1, 4), dtype=np.float64).T).result()
        pool.step(np.zeros((4, 1), dtype=np.int32)).result()


def test_torch_tensors_are_accepted_as_actions(cart_pole):
    torch = pytest.importorskip("torch")
    cart_pole.step(torch.zeros(4, dtype=torch.int64)).result()


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (np.zeros(3, np.int64), ValueError, r"\(3,\).*4 environments of CartPole-v1 take \(4,\)"),
        (np.zeros((4, 1), np.int64), ValueError, r"shape \(4, 1\)"),
        (1, ValueError, r"shape \(\)"),
        (np.array([0, 1, 2, 0]), ValueError, "environment 2 is 2; CartPole-v1 takes 0 to 1"),
        (np.array([0, -1, 0, 0]), ValueError, "environment 1 is -1"),
        (np.zeros(4), TypeError, "float64; CartPole-v1 takes integers"),
        (np.zeros(4, bool), TypeError, "bool"),
        (["a"] * 4, TypeError, "<U1"),
        (None, TypeError, "object"),
    ],
)
def test_wrong_discrete_actions_are_refused(cart_pole, actions, error, message):
    state = cart_pole.get_state(0)
    with pytest.raises(error, match=message) as raised:
        cart_pole.step(actions)
    assert isinstance(raised.value, errors.ReverieError)
    np.testing.assert_array_equal(cart_pole.get_state(0), state)
    cart_pole.step([0, 0, 0, 0]).result()  # the pool is still usable


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (np.zeros(2, np.float32), ValueError, r"\(2,\).*take \(2, 1\)"),
        (np.array([[0.0], [np.nan]], np.float32), ValueError, "environment 1.*finite"),
        (np.full((2, 1), 1e300), ValueError, "environment 0.*finite"),
        (np.zeros((2, 1), complex), TypeError, "complex128; Pendulum-v1 takes float32"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_wrong_continuous_actions_are_refused(actions, error, message):
    with native.NativePool("Pendulum-v1", 2) as pool:
        pool.reset().result()
        with pytest.raises(error, match=message):
            pool.step(actions)


def test_the_error_for_an_unknown_name_suggests_similar_names():
    with pytest.raises(errors.NotFoundError, match="near it are: CartPole-v1"):
        native.NativePool("CartPole-v0", 4)
    with pytest.raises(errors.NotFoundError, match="near it are: LunarLander-v3"):
        native.spec("LunarLander-v2")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_envs": 0}, ValueError, "num_envs is 0"),
        ({"num_envs": 2.5}, TypeError, "num_envs is 2.5"),
        ({"num_batches": 0}, ValueError, "num_batches is 0"),
        ({"num_threads": -1}, ValueError, "num_threads is -1"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": "a"}, TypeError, "seed is 'a'"),
        ({"gravity": 9.8}, ValueError, "no option 'gravity'"),
        ({"sutton_barto_reward": 2}, ValueError, "must be true or false"),
        ({"sutton_barto_reward": None}, TypeError, "option sutton_barto_reward is a NoneType"),
    ],
)
def test_invalid_arguments_of_a_pool_are_refused(arguments, error, message):
    with pytest.raises(error, match=message) as raised:
        native.NativePool("CartPole-v1", **{"num_envs": 2, **arguments})
    assert isinstance(raised.value, errors.ReverieError)


def test_a_step_needs_a_reset_first():
    with native.NativePool("CartPole-v1", 2, num_batches=2) as pool:
        pool.reset(batch=0).result()
        with pytest.raises(errors.FailedPreconditionError, match="reset"):
            pool.step([0, 0], 1)
        with pytest.raises(ValueError, match="batch is 2"):
            pool.step([0, 0], 2)
        with pytest.raises(ValueError, match="batch is -1"):
            pool.reset(batch=-1)


def test_the_first_step_resets_if_first_step_resets_is_set():
    with native.NativePool("CartPole-v1", 2, seed=3, first_step_resets=True) as pool:
        first = pool.step([0, 1]).result()
        assert (first.reward == 0).all()
        expected = first.observation.copy()
        with native.NativePool("CartPole-v1", 2, seed=3) as other:
            np.testing.assert_array_equal(other.reset().result().observation, expected)
        assert (pool.step([0, 1]).result().reward == 1).all()


def test_a_reset_waits_for_a_running_step():
    with native.NativePool("Acrobot-v1", MANY, seed=1, num_threads=1) as pool:
        pool.reset().result()
        pool.step(np.zeros(MANY, dtype=np.int64))
        batch = pool.reset(seed=5).result()
        expected = batch.observation[:10].copy()
    with native.NativePool("Acrobot-v1", 10, seed=5) as pool:
        np.testing.assert_array_equal(pool.reset().result().observation, expected)


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_step_is_refused_until_the_last_result_is_taken(num_threads):
    with native.NativePool("CartPole-v1", 2, num_threads=num_threads) as pool:
        pool.reset().result()
        future = pool.step([0, 0])
        with pytest.raises(errors.FailedPreconditionError, match="result"):
            pool.step([0, 0])
        future.result()
        future.result()  # a result can be taken again
        pool.step([0, 0]).result()


def test_a_closed_pool_refuses_calls_and_keeps_earlier_results():
    pool = native.NativePool("CartPole-v1", 2, num_threads=1)
    batch = pool.reset().result()
    before = batch.observation.copy()
    pool.close()
    pool.close()
    for call in (
        functools.partial(pool.step, [0, 0]),
        pool.reset,
        functools.partial(pool.get_state, 0),
        pool.render,
    ):
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            call()
    del call
    del pool
    gc.collect()
    np.testing.assert_array_equal(batch.observation, before)


def test_a_future_outlives_its_pool():
    pool = native.NativePool("LunarLander-v3", 8, seed=1)
    future = pool.reset()
    del pool
    gc.collect()
    assert future.result().observation.shape == (8, 8)


def test_states_can_be_set_and_read(cart_pole):
    state = [0.1, 0.2, -0.03, 0.4, 17]
    cart_pole.set_state(2, state)
    np.testing.assert_array_equal(cart_pole.get_state(2), state)
    batch = cart_pole.step([0, 0, 0, 0]).result()
    assert cart_pole.get_state(2)[-1] == 18
    assert batch.observation[2, 0] == np.float32(0.1 + 0.02 * 0.2)
    with pytest.raises(ValueError, match="has 5 numbers, 4 are given"):
        cart_pole.set_state(2, state[:4])
    with pytest.raises(ValueError, match="env_index is 4"):
        cart_pole.get_state(4)


@pytest.mark.parametrize("env_id", native.ids())
def test_no_number_of_a_state_keeps_a_step_from_ending(env_id):
    with native.NativePool(env_id, 1, seed=1, num_threads=0) as pool:
        pool.reset().result()
        try:
            state = pool.get_state(0)
        except errors.UnimplementedError:
            return
        action = native.spec(env_id).action
        actions = np.zeros((1, *action.shape), action.dtype)
        for i in range(len(state) - 1):
            for number in [-1e6, 1e6]:
                damaged = state.copy()
                damaged[i] = number
                pool.set_state(0, damaged)
                pool.step(actions).result(timeout_s=20)
            damaged[i] = 1.1e6
            with pytest.raises(errors.InvalidArgumentError, match="has 1100000 in it"):
                pool.set_state(0, damaged)
        state[-1] = 1e4
        with pytest.raises(errors.InvalidArgumentError, match="the number of steps so far"):
            pool.set_state(0, state)


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_an_environment_whose_episode_is_over_continues_from_a_state_that_is_set(mode):
    with native.NativePool("CartPole-v1", 1, seed=1, num_threads=0, autoreset_mode=mode) as pool:
        pool.reset().result()
        start = pool.get_state(0)
        expected = pool.step([1]).result()
        assert any(pool.step([1]).result().terminated[0] for _ in range(100))
        pool.set_state(0, start)
        given = pool.step([1]).result()
        np.testing.assert_array_equal(given.observation, expected.observation)
        assert given.reward[0] == 1
        assert not given.terminated[0]


def test_the_step_count_is_part_of_the_state(cart_pole):
    for i in range(4):
        cart_pole.set_state(i, [0, 0, 0, 0, 498 + i % 2])
    batch = cart_pole.step([0, 1, 0, 1]).result()
    np.testing.assert_array_equal(batch.truncated, [False, True, False, True])


@pytest.mark.parametrize("env_id", native.ids())
def test_a_rendered_image_is_not_blank(env_id):
    with native.NativePool(env_id, 2, seed=3, num_threads=0) as pool:
        pool.reset().result()
        picture = pool.render(1)
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 5
        assert not np.array_equal(picture, pool.render(0))


def test_a_pool_with_one_thread_steps_without_the_caller_waiting():
    with native.NativePool("LunarLander-v3", 64, seed=1, num_threads=1) as pool:
        pool.reset().result()
        future = pool.step(np.zeros(64, dtype=np.int64))
        while not future.done():  # the pool's thread does the work, since no call waits
            pass
        assert future.result().reward.shape == (64,)


def test_a_wait_ends_at_its_timeout_and_the_step_continues():
    actions = np.zeros(MANY, dtype=np.int64)
    with native.NativePool("Acrobot-v1", MANY, seed=1, num_threads=2) as pool:
        pool.reset().result()
        future = pool.step(actions)
        with pytest.raises(errors.DeadlineExceededError, match=f"of {MANY} environments are left"):
            future.result(timeout_s=0)
        assert future.result(timeout_s=60).observation.shape == (MANY, 6)
        with pytest.raises(ValueError, match="timeout_s is -1"):
            pool.step(actions).result(timeout_s=-1)


@pytest.mark.parametrize("num_threads", [0, 1, 2])
def test_other_threads_run_while_a_batch_is_stepped(num_threads):
    counted = [0]
    is_over = threading.Event()

    def count():
        while not is_over.is_set():
            counted[0] += 1

    with native.NativePool("Acrobot-v1", MANY, seed=1, num_threads=num_threads) as pool:
        pool.reset().result()
        thread = threading.Thread(target=count)
        thread.start()
        before = counted[0]
        pool.step(np.zeros(MANY, dtype=np.int64)).result()
        after = counted[0]
        is_over.set()
        thread.join()
    assert after > before


@pytest.mark.parametrize("num_threads", [1, 2])
def test_ctrl_c_ends_a_wait(num_threads):
    # So many that a step takes several times the 50 ms between two checks for signals.
    with native.NativePool("Acrobot-v1", 1_000_000, seed=1, num_threads=num_threads) as pool:
        pool.reset().result()
        future = pool.step(np.zeros(1_000_000, dtype=np.int64))
        timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            future.result()
        assert not future.done()
        timer.join()
        assert future.result().reward.shape == (1_000_000,)


def is_refused_after_a_fork(call):
    try:
        call()
    except errors.FailedPreconditionError as error:
        return "fork" in str(error)
    return False


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork")  # jax warns once it was imported
def test_a_forked_child_gets_errors_and_can_exit():
    pool = native.NativePool("LunarLander-v3", 4, num_threads=2)
    future = pool.reset()
    future.result()
    child = os.fork()
    if child == 0:
        calls = [functools.partial(pool.step, [0] * 4), pool.reset, future.result, pool.render]
        all_refused = all(map(is_refused_after_a_fork, calls))
        pool.close()
        del pool, future, calls
        gc.collect()
        os._exit(0 if all_refused else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    pool.step([0] * 4).result()
    pool.close()


def test_the_repr_of_a_pool_shows_its_settings(cart_pole):
    assert repr(cart_pole) == "NativePool('CartPole-v1', 4, num_batches=1, num_threads=0)"


def test_env_pool_chooses_the_native_backend_by_itself():
    with reverie.EnvPool("CartPole-v1", 4, num_batches=2, seed=1) as pool:
        assert pool.backend == "native"
        first = pool.step(np.zeros(4, dtype=np.int64)).result()  # the first step is a reset
        assert (first.reward == 0).all()
        assert pool.spec == native.spec("CartPole-v1")
    options = {"continuous": True, "enable_wind": True}
    with reverie.EnvPool("LunarLander-v3", 4, env_kwargs=options, output="torch") as pool:
        assert pool.backend == "native"
        torch = pytest.importorskip("torch")
        pool.reset().result()
        batch = pool.step(torch.zeros((4, 2))).result()
        assert batch.observation.shape == (4, 8)
        assert isinstance(batch.reward, torch.Tensor)
