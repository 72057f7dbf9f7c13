"""Other interfaces of a pool: torch, JAX, Gymnasium's vector environments, moolib's calls."""

import dataclasses
import math
import threading
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import reverie
from reverie import moolib
from reverie.errors import (
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
    UnsupportedTypeError,
)

gymnasium = pytest.importorskip("gymnasium")
AutoresetMode = gymnasium.vector.AutoresetMode


def cart_poles(backend="process", **options):
    return reverie.EnvPool("CartPole-v1", 4, num_workers=2, backend=backend, seed=3, **options)


def trace(pool, steps=60):
    """The results of a fixed run, as NumPy arrays."""
    found = []
    rng = np.random.default_rng(1)
    batch = pool.reset().result()
    for _ in range(steps):
        fields = (batch.observation, batch.reward, batch.terminated, batch.truncated)
        found.append([np.asarray(field).copy() for field in fields])
        batch = pool.step(rng.integers(0, 2, 4)).result()
    return found


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def plain():
    with cart_poles() as pool:
        return trace(pool)


def test_output_torch_gives_the_same_values(plain):
    torch = pytest.importorskip("torch")
    with cart_poles(output="torch") as pool:
        assert_same(trace(pool), plain)
        first = pool.reset().result()
        assert isinstance(first.observation, torch.Tensor)
        assert first.terminated.dtype == torch.bool
    with cart_poles(output="torch", device="cpu") as pool:
        assert_same(trace(pool), plain)


@pytest.mark.filterwarnings("ignore:os.fork")
def test_tensors_on_a_gpu_are_copies_that_later_steps_do_not_change(plain):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    with cart_poles(output="torch", device="cuda") as pool:
        batch = pool.reset().result()
        kept = []
        rng = np.random.default_rng(1)
        for _ in range(60):
            kept.append(batch)
            actions = torch.from_numpy(rng.integers(0, 2, 4)).cuda()
            batch = pool.step(actions).result()
        for batch, expected in zip(kept, plain, strict=True):
            np.testing.assert_array_equal(batch.observation.cpu().numpy(), expected[0])


def test_output_jax_gives_the_same_values(plain):
    jax = pytest.importorskip("jax")
    with cart_poles(output="jax") as pool:
        assert_same(trace(pool), plain)
        assert isinstance(pool.reset().result().observation, jax.Array)
    with cart_poles(output="jax", device=jax.devices("cpu")[0]) as pool:
        assert_same(trace(pool), plain)


class Seen(NamedTuple):
    place: Any
    rest: Any


@dataclasses.dataclass
class Felt:
    force: Any


class Sees:
    """Observations that are neither dicts nor plain tuples."""

    def __init__(self):
        self.seen = Seen(np.ones(2, np.float32), [Felt(np.full(3, 7)), np.float64(2.0)])

    def reset(self, **_options):
        return self.seen, {}

    def step(self, _action):
        return self.seen, 0.0, False, False, {}


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("output", ["torch", "jax"])
def test_observations_keep_their_classes_in_another_library(output, device):
    pytest.importorskip(output)
    with reverie.EnvPool(Sees, 2, backend="thread", output=output, device=device) as pool:
        pool.reset().result()
        batch = pool.step([0, 0]).result()
    assert isinstance(batch.observation, Seen)
    assert isinstance(batch.observation.rest[0], Felt)
    assert batch.observation.place.tolist() == [[1.0, 1.0]] * 2
    assert batch.observation.rest[0].force.tolist() == [[7] * 3] * 2
    assert type(batch.observation.rest[1]) is type(batch.reward)


def test_auto_chooses_the_native_environment_if_it_supports_the_arguments():
    from reverie.envs import native

    assert "CartPole-v1" in native.ids()
    with reverie.EnvPool("CartPole-v1", 4) as pool:
        assert pool.backend == "native"
        assert pool.step.__self__ is pool._backend  # a step calls the backend directly
        assert pool.reset(3).result().observation.shape == (4, 4)
        with pytest.raises(UnimplementedError, match="native"):
            pool.restart()
    with reverie.EnvPool("CartPole-v1", 2, num_workers=1, info=["x"]) as pool:
        assert pool.backend == "process"
    with reverie.EnvPool(
        "CartPole-v1", 2, num_workers=1, env_kwargs={"sutton_barto_reward": True}
    ) as pool:
        pool.reset().result()
        assert pool.step([0, 0]).result().reward.shape == (2,)
    with reverie.EnvPool("Acrobot-v1", 2, num_workers=1, output="torch") as pool:
        assert pool.reset().result().observation.shape == (2, 6)
    with pytest.raises(InvalidArgumentError, match="info"):
        reverie.EnvPool("CartPole-v1", 2, backend="native", info=["x"])
    with pytest.raises(InvalidArgumentError, match="by their id"):
        reverie.EnvPool(Dicts, 2, backend="native")


def test_a_pool_of_native_environments_renders_images():
    from reverie.envs.vector_env import GymVectorEnv

    with reverie.EnvPool("CartPole-v1", 2, seed=3) as pool:
        pool.reset().result()
        pictures = GymVectorEnv(pool).render()
        assert [picture.shape for picture in pictures] == [pool.render(1).shape] * 2
        assert np.array_equal(pictures[1], pool.render(1))
        assert not np.array_equal(*pictures)
        with pytest.raises(InvalidArgumentError):
            pool.render(2)
    with cart_poles() as pool, pytest.raises(UnimplementedError, match="render_mode"):
        pool.render()


def make_sync(num_envs, mode="SameStep"):
    return gymnasium.make_vec(
        "CartPole-v1", num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_vector_environments_of_gymnasium_can_be_a_backend(plain, mode):
    pool = reverie.EnvPool(
        make_sync, 4, backend="vector", seed=3, env_kwargs={"mode": mode}, info=["missing"]
    )
    with pool:
        assert_same(trace(pool), plain)
        overs = 0
        for _ in range(60):
            batch = pool.step(np.ones(4, int)).result()
            over = batch.terminated | batch.truncated
            overs += over.sum()
            # CartPole terminates when the pole leans or the cart is too far from the centre.
            assert (np.abs(batch.final_observation[over][:, [0, 2]]) > [2.4, 0.2]).any(1).all()
            assert np.isnan(batch.info["missing"]).all()
        assert overs > 4
        with pytest.raises(UnimplementedError, match="vector"):
            pool.restart()
    pool.close()
    with pytest.raises(FailedPreconditionError, match="closed"):
        pool.reset()


class Counted(gymnasium.vector.VectorWrapper):
    """Counts steps in info, not of its first environment, and breaks an observation."""

    steps = 0

    def step(self, actions):
        observation, *others, info = super().step(actions)
        self.steps += 1
        if self.steps == 60:
            observation[0] = np.nan
        info["count"] = np.full(self.num_envs, self.steps)
        info["_count"] = np.arange(self.num_envs) > 0
        return observation, *others, info


def test_vector_environments_have_info_and_nan_as_other_backends():
    def make(num_envs):
        return Counted(gymnasium.wrappers.vector.RecordEpisodeStatistics(make_sync(num_envs)))

    info = {"count": np.int32, "episode/r": np.float32, "episode/none": np.int64}
    with reverie.EnvPool(make, 3, backend="vector", seed=1, info=info, refuse_nan=True) as pool:
        pool.reset().result()
        returns = np.zeros(3)
        overs = 0
        for step in range(1, 60):
            batch = pool.step(np.ones(3, int)).result()
            returns += batch.reward
            over = batch.terminated | batch.truncated
            assert {name: array.dtype for name, array in batch.info.items()} == info
            assert batch.info["count"].tolist() == [0, step, step]
            np.testing.assert_array_equal(batch.info["episode/r"], np.where(over, returns, np.nan))
            assert not batch.info["episode/none"].any()
            returns[over] = 0
            overs += over.sum()
        assert overs > 10
        with pytest.raises(EnvError, match="NaN"):
            pool.step(np.ones(3, int)).result()


class Levels(gymnasium.vector.VectorWrapper):
    """Says at each reset how many there were."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        self.resets += 1
        over = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        return observation, {**info, "level": np.full(self.num_envs, self.resets), "_level": over}


def test_what_only_the_info_of_a_masked_reset_has_becomes_a_column():
    def make(num_envs):
        return Levels(make_sync(num_envs, "Disabled"))

    with reverie.EnvPool(make, 3, backend="vector", seed=1, info=["level"]) as pool:
        assert pool.reset().result().info["level"].tolist() == [1.0] * 3
        resets = 1
        for _ in range(60):
            batch = pool.step(np.ones(3, int)).result()
            over = batch.terminated | batch.truncated
            resets += over.any()
            np.testing.assert_array_equal(batch.info["level"], np.where(over, resets, np.nan))
        assert resets > 4


class Troubled(gymnasium.vector.VectorWrapper):
    """Fails its first reset, hangs in the step that it is told, and fails when it is closed."""

    goes_on = threading.Event()
    closed = 0
    resets = 0

    def reset(self, **options):
        self.resets += 1
        if self.resets == 1:
            raise RuntimeError("not yet")
        return super().reset(**options)

    def step(self, actions):
        if actions.all():
            self.goes_on.wait()
        return super().step(actions)

    def close(self, **options):
        super().close(**options)
        Troubled.closed += 1
        raise RuntimeError("no end")


def test_a_vector_environment_whose_reset_failed_is_reset_by_the_next_step():
    with reverie.EnvPool(make_sync, 2, backend="vector") as pool:
        pool._backend._envs[0] = troubled = Troubled(pool._backend._envs[0])
        with pytest.raises(EnvError, match="not yet"):
            pool.reset(1).result()
        assert not pool.step([0, 0]).result().reward.any()
        assert pool.step([0, 0]).result().reward.all()
        assert troubled.resets == 2
        pool._backend._envs[0] = troubled.env


def test_closing_vector_environments_waits_for_none_that_hangs_and_closes_the_others(caplog):
    def make(num_envs):
        return Troubled(make_sync(num_envs))

    pool = reverie.EnvPool(make, 2, backend="vector", num_batches=3, timeout_s=1.0)
    for batch in range(3):
        with pytest.raises(EnvError, match="not yet"):
            pool.reset(batch=batch).result()
        pool.reset(batch=batch).result()
    future = pool.step([1, 1], 1)
    with pytest.raises(DeadlineExceededError, match="still steps"):
        future.result(0.01)
    before = Troubled.closed
    with pytest.raises(RuntimeError, match="no end"):
        pool.close()
    assert Troubled.closed == before + 2
    assert "batch 1 still steps after 1 s" in caplog.text
    Troubled.goes_on.set()
    assert future.result(60.0).reward.all()


def test_vector_environments_have_no_workers():
    for name in ("num_workers", "restarts"):
        with pytest.raises(InvalidArgumentError, match=name):
            reverie.EnvPool(make_sync, 2, backend="vector", **{name: 1})


def test_vector_environments_without_same_step_reset_are_refused():
    with pytest.raises(UnsupportedTypeError, match="SAME_STEP"):
        reverie.EnvPool(make_sync, 2, backend="vector", env_kwargs={"mode": "NextStep"})
    with pytest.raises(UnsupportedTypeError, match="vector environments"):
        reverie.EnvPool(lambda num_envs: num_envs, 2, backend="vector")
    with pytest.raises(InvalidArgumentError, match="batch_size"):
        reverie.EnvPool(make_sync, 2, backend="vector", batch_size=1)
    with reverie.EnvPool(make_sync, 2, backend="vector") as pool:
        pool.reset().result()
        with pytest.raises(InvalidArgumentError, match="shape"):
            pool.step([1])
        with pytest.raises(InvalidArgumentError, match=r"actions\[1\] is 2"):
            pool.step([1, 2])
        with pytest.raises(UnsupportedTypeError, match="float64"):
            pool.step([0.5, 1.0])
        future = pool.step([1, 1])
        with pytest.raises(FailedPreconditionError, match="already"):
            pool.step([1, 1])
        future.result()


def test_the_vector_environment_of_ale_py_can_be_a_backend():
    pytest.importorskip("ale_py")
    options = {"reward_clipping": False, "max_num_frames_per_episode": 200, "noop_max": 0}
    pool = reverie.EnvPool(
        "ALE/Pong-v5", 3, backend="vector", num_batches=2, env_kwargs=options, info=["lives"]
    )
    with pool:
        assert pool.spec.observation == reverie.TensorSpec((4, 84, 84), "uint8")
        futures = [pool.reset(batch=b) for b in range(2)]
        cuts = 0
        for step in range(200):
            b = step % 2
            batch = futures[b].result()
            cuts += int(batch.truncated.sum())
            if batch.truncated.any():
                # The next game's first frames differ from the last frames of the game that ended.
                assert (batch.observation != batch.final_observation).any()
            futures[b] = pool.step(np.full(3, 2), b)
        assert cuts >= 6
        assert batch.reward.dtype == np.float32
        assert batch.info["lives"].tolist() == [0, 0, 0]


class Stuck(gymnasium.vector.VectorEnv):
    """Waits until it is released, then raises."""

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = gymnasium.spaces.Box(0, 1, (1,))
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.gate = threading.Event()
        _STUCK.append(self)

    def reset(self, **_options):
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, _actions):
        self.gate.wait()
        raise ValueError("stuck")


_STUCK = []


def test_a_vector_environment_that_hangs_or_raises_is_reported():
    with reverie.EnvPool(Stuck, 2, backend="vector") as pool:
        pool.reset().result()
        future = pool.step([0, 0])
        assert not future.done()
        with pytest.raises(DeadlineExceededError, match="batch 0"):
            future.result(0.01)
        _STUCK[-1].gate.set()
        with pytest.raises(EnvError, match="stuck"):
            future.result()


@pytest.mark.parametrize("limit_s", [math.inf, 1e100])
def test_a_vector_environment_can_be_waited_for_without_a_limit(limit_s):
    with reverie.EnvPool(Stuck, 2, backend="vector", timeout_s=limit_s) as pool:
        pool.reset().result()
        future = pool.step([0, 0])
        threading.Timer(0.05, _STUCK[-1].gate.set).start()
        with pytest.raises(EnvError, match="stuck"):
            future.result()


class Late(gymnasium.vector.SyncVectorEnv):
    """Its every second step raises a TimeoutError, as one that asks a remote simulator may."""

    def __init__(self, num_envs):
        make = lambda: gymnasium.make("CartPole-v1")  # noqa: E731
        super().__init__([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.count = 0

    def step(self, actions):
        self.count += 1
        if self.count % 2 == 0:
            raise TimeoutError("the simulator did not answer")
        return super().step(actions)


def test_a_time_limit_of_a_vector_environment_is_an_env_error_and_frees_the_batch():
    with reverie.EnvPool(Late, 2, backend="vector") as pool:
        pool.reset().result()
        for _ in range(2):
            pool.step([0, 0]).result()
            with pytest.raises(EnvError, match="the simulator did not answer") as told:
                pool.step([0, 0]).result()
            assert told.value.batch == 0


def test_a_pool_is_a_vector_environment_of_gymnasium():
    from reverie.envs.vector_env import GymVectorEnv

    with cart_poles() as pool:
        env = GymVectorEnv(pool)
        model = make_sync(4)
        assert env.single_action_space == model.single_action_space
        assert env.single_observation_space.shape == model.single_observation_space.shape
        observation, _ = env.reset(seed=3)
        np.testing.assert_array_equal(observation, model.reset(seed=3)[0])
        rng = np.random.default_rng(1)
        overs = 0
        for _ in range(200):
            actions = rng.integers(0, 2, 4)
            ours, theirs = env.step(actions), model.step(actions)
            for a, b in zip(ours[:4], theirs[:4], strict=True):
                np.testing.assert_array_equal(a, b)
            assert ("final_obs" in ours[4]) == ("final_obs" in theirs[4])
            if "final_obs" in ours[4]:
                np.testing.assert_array_equal(ours[4]["_final_obs"], theirs[4]["_final_obs"])
                for i in np.flatnonzero(ours[4]["_final_obs"]):
                    overs += 1
                    final = theirs[4]["final_obs"][i]
                    np.testing.assert_array_equal(ours[4]["final_obs"][i], final)
        assert overs > 10
        env.close()
        with pytest.raises(FailedPreconditionError):
            pool.reset()


def test_gymnasium_wrappers_work_over_a_pool():
    from reverie.envs.vector_env import GymVectorEnv

    pool = reverie.EnvPool("Pendulum-v1", 3, num_workers=1)
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(GymVectorEnv(pool, copy=False))
    env.reset(seed=1)
    for _ in range(200):
        *_, truncated, info = env.step(env.action_space.sample())
    assert truncated.all()
    assert info["episode"]["l"].tolist() == [200] * 3
    env.close()
    with (
        pytest.raises(InvalidArgumentError, match="num_batches=1"),
        cart_poles(num_batches=2) as several,
    ):
        GymVectorEnv(several)


class Dicts:
    """An environment with a dict of observations, as users of moolib write them."""

    def reset(self, **_options):
        self.steps = 0
        return {"board": np.zeros((2, 2), np.uint8), "clock": np.float32(0)}, {}

    def step(self, action):
        self.steps += 1
        over = self.steps == 3
        observation = {"board": np.full((2, 2), action, np.uint8), "clock": np.float32(self.steps)}
        return observation, 0.5, over, False, {}

    def close(self):
        pass


def test_the_calls_of_a_moolib_pool_work():
    torch = pytest.importorskip("torch")
    with moolib.EnvPool(Dicts, num_processes=8, batch_size=2, num_batches=2) as pool:
        actions = torch.tensor([4, 5])
        futures = [pool.step(b, actions) for b in range(2)]
        for future in futures:  # the first step is a reset
            outputs = future.result()
            assert set(outputs) == {"board", "clock", "reward", "done"}
            assert outputs["reward"].tolist() == [0, 0]
            assert outputs["done"].tolist() == [False, False]
        for step in range(1, 4):
            outputs = pool.step(0, actions).result()
            assert outputs["done"].tolist() == [step == 3] * 2
            assert outputs["reward"].tolist() == [0.5, 0.5]
        assert outputs["clock"].tolist() == [0, 0]
        with pytest.raises(InvalidArgumentError):
            pool.step(2, actions)
    with moolib.EnvPool("CartPole-v1", 1, 2, 1, output="numpy") as pool:
        future = pool.step(0, np.zeros(2, np.int64))
        assert set(future.result()) == {"state", "reward", "done"}
        assert future.done()


class Clears(gymnasium.vector.VectorEnv):
    """Keeps what its steps give, and clears that of the environments that are reset."""

    metadata: ClassVar = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.single_observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.state = np.zeros((num_envs, 1), np.float32)
        self.reward = np.zeros(num_envs)
        self.terminated = np.zeros(num_envs, bool)
        self.truncated = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        over = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for array in (self.state, self.reward, self.terminated, self.truncated):
            array[over] = 0
        return self.state, {}

    def step(self, _actions):
        self.state += 1
        self.reward[:] = self.state[:, 0]
        self.terminated[:] = self.state[:, 0] == 3
        return self.state, self.reward, self.terminated, self.truncated, {}


def test_a_reset_that_clears_what_the_last_step_gave_loses_no_end_of_an_episode():
    with reverie.EnvPool(Clears, 2, backend="vector") as pool:
        pool.reset().result()
        for _ in range(3):
            batch = pool.step(np.zeros(2, int)).result()
        assert batch.terminated.tolist() == [True, True]
        assert batch.reward.tolist() == [3, 3]
        assert batch.final_observation.tolist() == [[3], [3]]
        assert batch.observation.tolist() == [[0], [0]]
