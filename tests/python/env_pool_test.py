"""Pools of worker processes: their results, and their errors when an environment fails."""

import _thread
import gc
import importlib.util
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie.envs import worker
from reverie.errors import (
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedTypeError,
)

gymnasium = pytest.importorskip("gymnasium")


class Counter:
    """Observes [seed, episode, steps of the episode, last action]."""

    def __init__(self, length=5, size=4, truncates=False, dtype="float32"):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), dtype)
        self.action_space = gymnasium.spaces.Discrete(10)
        self.length = length
        self.truncates = truncates
        self.dtype = dtype
        self.size = size
        self.seed = -1
        self.episode = -1

    def observation(self, action=-1):
        found = np.zeros(self.size, self.dtype)
        found[:4] = self.seed, self.episode, self.steps, action
        return found

    def reset(self, *, seed=None, **_options):
        self.seed = self.seed if seed is None else seed
        self.episode += 1
        self.steps = 0
        return self.observation(), {"steps": 0, "about": {"episode": self.episode}}

    def step(self, action):
        self.steps += 1
        over = self.steps >= self.length
        info = {"steps": self.steps, "about": {"episode": self.episode}}
        outcome = (over and not self.truncates, over and self.truncates)
        return self.observation(action), float(action), *outcome, info

    def close(self):
        pass


class Busy(Counter):
    """Computes for about a millisecond per step."""

    def step(self, action):
        sum(range(50_000))
        return super().step(action)


class Nested(Counter):
    """Observes a dict of an image, a tuple of numbers, and a flag."""

    def __init__(self):
        super().__init__(length=3)
        box = gymnasium.spaces.Box
        self.observation_space = gymnasium.spaces.Dict(
            {
                "picture": box(0, 255, (210, 160, 3), np.uint8),
                "numbers": gymnasium.spaces.Tuple(
                    (gymnasium.spaces.Discrete(100), box(-1, 1, (2,), np.float64))
                ),
                "flags": gymnasium.spaces.MultiBinary(3),
            }
        )

    def observation(self, _action=-1):
        return {
            "picture": np.full((210, 160, 3), 10 * self.episode + self.steps, np.uint8),
            "flags": np.array([1, 0, 1], np.int8),
            "numbers": (self.steps, np.array([0.5, self.steps / 10])),
        }


class Continuous(Counter):
    """Observes the last action."""

    def __init__(self):
        super().__init__(length=100)
        self.action_space = gymnasium.spaces.Box(-2, 2, (2, 3), np.float32)
        self.observation_space = gymnasium.spaces.Box(-2, 2, (2, 3), np.float32)

    def observation(self, action=None):
        return np.zeros((2, 3), np.float32) if action is None else action

    def step(self, action):
        assert isinstance(action, np.ndarray)
        return self.observation(action), 0.0, False, False, {}


class Faulty(Counter):
    """Fails in the way that the action selects: see ``_FAULTS``."""

    def __init__(self, at="step", what="nothing"):
        super().__init__(length=1000)
        self.at = at
        self.what = what
        if at == "init":
            self.fail()

    def reset(self, *, seed=None, **_options):
        if self.at == "reset":
            self.fail()
        return super().reset(seed=seed)

    def step(self, action):
        if action == 9:
            replaced = self.fail()
            if replaced is not None:
                return replaced
        return super().step(action)

    def fail(self):
        if self.what == "raises":
            raise ValueError("the emulator is out of cartridges")
        if self.what == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "exits":
            os._exit(3)
        if self.what == "hangs":
            threading.Event().wait()
        good = super().step(0)
        return {
            "shape": (np.zeros(5, np.float32), *good[1:]),
            "dtype": (np.zeros(4, np.complex64), *good[1:]),
            "masked": (np.ma.masked_array(good[0], [True, False, False, False]), *good[1:]),
            "nest": ({"x": good[0]}, *good[1:]),
            "nan": (np.full(4, np.nan, np.float32), *good[1:]),
            "values": good[:4],
            "reward": (good[0], "a lot", *good[2:]),
            "none": (None, *good[1:]),
        }.get(self.what)


def alone(env, num_envs=2, **options):
    options.setdefault("num_workers", min(2, num_envs))
    options.setdefault("timeout_s", 30.0)
    return reverie.EnvPool(env, num_envs, backend="process", **options)


def actions_of(pool, value=1):
    return np.full(pool.num_envs, value)


def faulty(what, at="step", **options):
    return alone(Faulty, env_kwargs={"what": what, "at": at}, **options)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- Results of a pool.


class Wider(Counter):
    """Observes float64 although its space says float32."""

    def observation(self, action=-1):
        return super().observation(action).astype(np.float64)


def test_observations_wider_than_their_space_are_reported_once(capfd):
    with alone(Wider, 2, num_workers=1) as pool:
        pool.reset(1).result()
        for _ in range(3):
            batch = pool.step(actions_of(pool)).result()
        assert batch.observation.dtype == np.float32
    said = capfd.readouterr().err
    assert said.count("observation has dtype float64, but its space says float32") == 1
    with alone(Counter, 2, num_workers=1) as pool:
        pool.reset(1).result()
    assert "dtype" not in capfd.readouterr().err


def test_a_pool_steps_like_its_environments_one_by_one():
    pool = alone("CartPole-v1", 6, num_batches=2, num_workers=3)
    with pool:
        models = [[gymnasium.make("CartPole-v1") for _ in range(6)] for _ in range(2)]
        rng = np.random.default_rng(3)
        for b in range(2):
            first = pool.reset(100 * b, batch=b).result()
            expected = [env.reset(seed=100 * b + i)[0] for i, env in enumerate(models[b])]
            np.testing.assert_array_equal(first.observation, expected)
            assert not first.terminated.any()
            assert not first.truncated.any()
            assert (first.reward == 0).all()
            assert first.env_ids.tolist() == list(range(6))
        overs = 0
        for _ in range(150):
            actions = rng.integers(0, 2, (2, 6))
            futures = [pool.step(actions[b], b) for b in range(2)]
            for b, future in enumerate(futures):
                batch = future.result()
                for i, env in enumerate(models[b]):
                    obs, reward, terminated, truncated, _ = env.step(int(actions[b, i]))
                    if terminated or truncated:
                        overs += 1
                        np.testing.assert_array_equal(batch.final_observation[i], obs)
                        obs, _ = env.reset()
                    np.testing.assert_array_equal(batch.observation[i], obs)
                    assert batch.reward[i] == reward
                    assert (batch.terminated[i], batch.truncated[i]) == (terminated, truncated)
        assert overs > 20


def test_the_specification_is_read_from_the_environment():
    with alone("Pendulum-v1") as pool:
        spec = pool.spec
    assert spec.observation == reverie.TensorSpec((3,), "float32")
    assert spec.action == reverie.TensorSpec((1,), "float32")
    assert spec.action_count is None
    np.testing.assert_array_equal(spec.action_low, np.float32([-2]))
    np.testing.assert_array_equal(spec.action_high, np.float32([2]))
    assert spec.max_episode_steps == 200
    assert "process" in repr(pool)


class Choices(Counter):
    """Takes several discrete actions, which do not begin at 0."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.MultiDiscrete([2, 3], start=[1, -1])


def test_the_bounds_of_several_discrete_actions_begin_where_their_space_does():
    with reverie.EnvPool(Choices, 1, backend="thread") as pool:
        assert pool.spec.action_low.tolist() == [1, -1]
        assert pool.spec.action_high.tolist() == [2, 1]


def test_nests_of_any_size_are_double_buffered():
    with alone(Nested, 3, num_batches=2) as pool:
        for b in range(2):
            pool.reset(batch=b).result()
        futures = [pool.step(actions_of(pool), b) for b in range(2)]
        batches = [future.result() for future in futures]
        for batch in batches:
            assert set(batch.observation) == {"picture", "numbers", "flags"}
            picture = batch.observation["picture"]
            assert picture.shape == (3, 210, 160, 3)
            assert (picture == 1).all()
            number, vector = batch.observation["numbers"]
            assert number.dtype == np.int64
            assert number.tolist() == [1, 1, 1]
            assert vector[2].tolist() == [0.5, 0.1]
            assert batch.observation["flags"].dtype == np.int8
        one = batches[1].observation["picture"].copy()
        for _ in range(2):
            batch = pool.step(actions_of(pool), 0).result()
        assert (batch.final_observation["picture"] == 3).all()
        assert (batch.observation["picture"] == 10).all()  # the first of the next episode
        np.testing.assert_array_equal(batches[1].observation["picture"], one)


def test_termination_and_truncation_are_distinguished():
    with alone(Counter, env_kwargs={"truncates": True, "length": 2}) as pool:
        pool.reset().result()
        pool.step(actions_of(pool)).result()
        batch = pool.step(actions_of(pool)).result()
        assert batch.truncated.all()
        assert not batch.terminated.any()
        assert batch.final_observation[:, 2].tolist() == [2, 2]
        assert batch.observation[:, 2].tolist() == [0, 0]


def test_without_a_copy_batches_are_views_of_the_same_memory():
    with alone(Counter, copy=False) as pool:
        first = pool.reset().result()
        second = pool.step(actions_of(pool, 4)).result()
        assert np.shares_memory(second.observation, first.observation)
        assert first.observation[0, 3] == 4
    assert first.observation[0, 3] == 4  # results stay valid after the pool is closed


def test_selected_info_entries_are_returned_as_columns():
    info = {"steps": np.int32, "about/episode": np.float64, "missing": np.float32}
    with alone(Counter, info=info, env_kwargs={"length": 2}) as pool:
        assert pool.reset().result().info["steps"].tolist() == [0, 0]
        pool.step(actions_of(pool)).result()
        batch = pool.step(actions_of(pool)).result()
        assert batch.info["steps"].dtype == np.int32
        assert batch.info["steps"].tolist() == [2, 2]  # of the last step, not of the reset after it
        assert batch.info["about/episode"].tolist() == [0, 0]
        assert np.isnan(batch.info["missing"]).all()
    with pytest.raises(InvalidArgumentError, match=r"\['steps'\]"):
        alone(Counter, info="steps")


def test_the_same_seed_repeats_a_run():
    def run(**options):
        with alone("CartPole-v1", 3, **options) as pool:
            batch = pool.reset().result()
            return batch.observation.copy()

    np.testing.assert_array_equal(run(seed=5), run(seed=5))
    assert (run(seed=5) != run(seed=6)).any()
    with alone(Counter, 3, num_batches=2, seed=40) as pool:
        assert pool.reset(batch=1).result().observation[:, 0].tolist() == [43, 44, 45]
        assert pool.reset(batch=1).result().observation[:, 0].tolist() == [43, 44, 45]
        assert pool.reset(7, batch=1).result().observation[:, 0].tolist() == [7, 8, 9]


def test_continuous_actions_reach_the_environment_unchanged():
    with alone(Continuous) as pool:
        pool.reset().result()
        actions = np.random.default_rng(1).uniform(-2, 2, (2, 2, 3)).astype(np.float32)
        np.testing.assert_array_equal(pool.step(actions).result().observation, actions)
        doubles = actions.astype(np.float64)[::-1]
        np.testing.assert_array_equal(pool.step(doubles).result().observation, actions[::-1])


def test_the_first_step_of_a_pool_resets():
    with alone(Counter) as pool:
        batch = pool.step(actions_of(pool)).result()
        assert batch.observation[:, 2].tolist() == [0, 0]
        assert batch.reward.tolist() == [0, 0]


class Forgetful(Counter):
    """Observes the seed of its last reset, -1 without one."""

    def reset(self, *, seed=None, **_options):
        return super().reset(seed=-1 if seed is None else seed)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_the_seed_of_a_pool_seeds_a_first_step_too(backend):
    options = {"num_workers": 2, "backend": backend, "seed": 40}

    def seeds(future):
        return future.result().observation[:, 0].tolist()

    with reverie.EnvPool(Forgetful, 3, num_batches=2, **options) as pool:
        assert seeds(pool.step([1] * 3, 1)) == [43, 44, 45]
        assert seeds(pool.reset(batch=1)) == [-1] * 3  # the seed is used
        assert seeds(pool.reset()) == [40, 41, 42]
        assert seeds(pool.reset()) == [-1] * 3
        assert seeds(pool.reset(7)) == [7, 8, 9]
    with reverie.EnvPool(Forgetful, 3, batch_size=1, **options) as pool:
        assert seeds(pool.step([1], env_ids=[2])) == [42]
        assert seeds(pool.step([1], env_ids=[0])) == [40]


def test_a_result_can_be_polled_with_done():
    with alone(Counter) as pool:
        future = pool.reset()
        eventually(future.done)
        assert future.result(0).observation.shape == (2, 4)


def test_pools_can_step_in_several_threads_of_one_process():
    failures = []

    def work(number):
        try:
            with alone(Counter, 2, num_workers=1) as pool:
                pool.reset(number).result()
                for step in range(1, 200):
                    batch = pool.step(actions_of(pool, step % 10)).result()
                    assert (batch.observation[:, 0] == [number, number + 1]).all()
                    assert (batch.observation[:, 3] == step % 10).all() or step % 5 == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(10 * i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_pool_outlives_the_thread_that_made_it():
    made = []
    thread = threading.Thread(target=lambda: made.append(alone(Counter)))
    thread.start()
    thread.join()
    with made[0] as pool:
        assert pool.reset().result().observation.shape == (2, 4)


# --- Batches of the environments that are ready first.


def test_a_batch_holds_the_environments_that_are_ready_first():
    with alone(Counter, 6, batch_size=2, num_workers=3, env_kwargs={"length": 7}) as pool:
        batch = pool.reset(0).result()
        steps = [0] * 6
        episodes = [0] * 6
        seen = set()
        count = 0
        until = time.monotonic() + 60
        # A worker without processor time is overtaken by the others.
        while count < 400 or len(seen) < 6:
            assert time.monotonic() < until, seen
            count += 1
            ids = batch.env_ids
            assert len(set(ids)) == 2
            seen |= set(ids)
            for row, i in enumerate(ids):
                assert batch.observation[row, :3].tolist() == [i, episodes[i], steps[i]]
            for i in ids:
                steps[i] += 1
                if steps[i] == 7:
                    steps[i], episodes[i] = 0, episodes[i] + 1
            batch = pool.step(np.ones(2, int), env_ids=ids).result()
            for row, i in enumerate(batch.env_ids):
                if batch.terminated[row]:
                    assert batch.final_observation[row, 2] == 7
                    assert steps[i] == 0
        again = pool.reset(50).result()
        assert (again.observation[:, 0] == 50 + again.env_ids).all()


def test_a_slow_environment_does_not_delay_the_others():
    with faulty("hangs", num_envs=4, num_workers=4, batch_size=1) as pool:
        slow = int(pool.reset().result().env_ids[0])
        batch = pool.step([9], env_ids=[slow]).result()
        for _ in range(30):
            assert batch.env_ids[0] != slow
            batch = pool.step([1], env_ids=batch.env_ids).result()


def test_a_pool_with_batch_size_refuses_wrong_env_ids():
    with alone(Counter, 4, batch_size=2) as pool:
        batch = pool.reset().result()
        ids = batch.env_ids.copy()
        with pytest.raises(FailedPreconditionError, match="is being stepped already"):
            pool.step(np.ones(4, int))
        with pytest.raises(InvalidArgumentError, match="twice"):
            pool.step([1, 1], env_ids=[ids[0], ids[0]])
        with pytest.raises(InvalidArgumentError, match="env_ids has 4"):
            pool.step([1], env_ids=[4])
        with pytest.raises(InvalidArgumentError, match="empty"):
            pool.step(np.zeros(0, int), env_ids=[])
        with pytest.raises(InvalidArgumentError, match="shape"):
            pool.step([1, 1, 1], env_ids=ids)
        future = pool.step([1], env_ids=ids[:1])
        future.result()
        with pytest.raises(FailedPreconditionError, match="a result holds 2"):
            future.result()


# --- Invalid arguments.


@pytest.mark.parametrize(
    ("actions", "error", "text"),
    [
        ([1, 2, 3], InvalidArgumentError, r"shape \(3,\); 2 environments take \(2,\)"),
        ([[1], [2]], InvalidArgumentError, "shape"),
        (1, InvalidArgumentError, "shape"),
        ([0.5, 1.0], UnsupportedTypeError, "dtype float64"),
        ([1, 10], InvalidArgumentError, r"actions\[1\] is 10; actions are 0 to 9"),
        ([-1, 1], InvalidArgumentError, r"actions\[0\] is -1"),
        (None, UnsupportedTypeError, "dtype object"),
        ([[1], [1, 2]], UnsupportedTypeError, "actions is a list that NumPy cannot read"),
        (np.ma.masked_array([1, 2], [True, False]), UnsupportedTypeError, "masked array"),
    ],
)
def test_invalid_actions_are_refused(actions, error, text):
    with alone(Counter) as pool:
        pool.reset().result()
        with pytest.raises(error, match=text):
            pool.step(actions)
        assert pool.step([1, 2]).result().observation[:, 3].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"num_batches": 0}, "num_batches is 0"),
        ({"num_workers": 3}, "num_workers is 3"),
        ({"batch_size": 3}, "batch_size is 3"),
        ({"batch_size": 1, "num_batches": 2}, "num_batches is 2"),
        ({"output": "tensorflow"}, "output is"),
        ({"device": "cuda"}, "device is"),
        ({"env": 5}, "env is 5"),
    ],
)
def test_invalid_arguments_of_a_pool_are_refused(options, text):
    with pytest.raises(InvalidArgumentError, match=text):
        alone(**{"env": Counter, "num_envs": 2, **options})


def test_local_functions_are_sent_to_workers_by_value():
    length = 2

    def make(more):
        return Counter(length + more())

    with alone(make, env_kwargs={"more": lambda: 1}) as pool:
        pool.reset().result()
        ends = [pool.step([0, 0]).result().terminated.tolist() for _ in range(4)]
    assert ends == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]


class Sized(Counter):
    """Made by a class method, which subclasses inherit."""

    SIZE = 4

    @classmethod
    def make(cls):
        return cls(size=cls.SIZE)


class Wide(Sized):
    SIZE = 6


def test_an_inherited_class_method_makes_environments_of_the_subclass():
    for made, size in ((Sized, 4), (Wide, 6)):
        with alone(made.make) as pool:
            assert pool.reset().result().observation.shape == (2, size)


def test_a_module_that_workers_cannot_import_is_sent_to_them(tmp_path):
    file = tmp_path / "of_a_plugin.py"
    file.write_text(
        "import numpy as np\n"
        "class Plain:\n"
        "    def reset(self, **_options):\n"
        "        return np.zeros(2, np.float32), {}\n"
        "    def step(self, action):\n"
        "        return np.ones(2, np.float32), 1.0, False, False, {}\n"
        "def maker():\n"
        "    return lambda: Plain()\n"
    )
    spec = importlib.util.spec_from_file_location("of_a_plugin", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["of_a_plugin"] = module
    spec.loader.exec_module(module)
    with alone(module.maker()) as pool:
        assert pool.reset().result().observation.shape == (2, 2)
    del sys.modules["of_a_plugin"]


def test_a_value_that_cannot_be_sent_is_refused_with_the_reason():
    import threading

    lock = threading.Lock()
    with pytest.raises(UnsupportedTypeError, match=r"env cannot travel .*lock.* inside of it"):
        alone(lambda: Counter(lock))
    with pytest.raises(UnsupportedTypeError, match="env_kwargs cannot travel"):
        alone(Counter, env_kwargs={"length": lock})
    with pytest.raises(UnsupportedTypeError, match=r"makes a NoneType, None, which has no reset"):
        alone(lambda: None)


def test_a_definition_with_too_much_data_is_refused_with_a_remedy():
    with pytest.raises(InvalidArgumentError, match=r"68\d{6} bytes.* 67108864 .*load .* inside"):
        alone(Counter, env_kwargs={"length": "x" * (65 << 20)})


def test_a_worker_that_ends_before_it_has_read_its_task_is_an_env_error(monkeypatch):
    monkeypatch.setattr(worker, "command", lambda: [sys.executable, "-c", ""])
    text = "x" * (8 << 20)  # more than a socket keeps
    with pytest.raises(EnvError, match="worker 0 ended before") as caught:
        alone(Counter, env_kwargs={"length": text})
    assert caught.value.worker == 0


def test_without_cloudpickle_a_local_function_is_refused_with_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)

    def make():
        return Counter()

    with pytest.raises(InvalidArgumentError, match=r"top level of a module.*reverie\[closures\]"):
        alone(make)
    with reverie.EnvPool(make, 2, backend="thread") as pool:
        assert pool.reset().result().observation.shape[0] == 2


def test_the_result_of_a_pool_that_is_gone_is_refused():
    with pytest.raises(FailedPreconditionError, match="kept no name for it"):
        alone(Counter).reset().result()


def test_the_error_for_an_unknown_id_suggests_similar_names():
    with pytest.raises(NotFoundError, match="CartPole-v1"):
        alone("CartPol-v1")
    with pytest.raises(InvalidArgumentError, match="backend is 'threads'"):
        reverie.EnvPool("CartPole-v1", 1, backend="threads")


def test_environments_with_values_that_are_not_arrays_are_refused():
    with pytest.raises(UnsupportedTypeError, match="observation_space"):
        alone(texts)
    with pytest.raises(UnsupportedTypeError, match="action_space"):
        alone(of_two_actions)


def texts():
    env = Counter()
    env.observation_space = gymnasium.spaces.Text(5)
    return env


def of_two_actions():
    env = Counter()
    env.action_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})
    return env


def test_a_batch_in_flight_cannot_be_stepped_again():
    with alone(Counter) as pool:
        pool.reset().result()
        future = pool.step(actions_of(pool))
        with pytest.raises(FailedPreconditionError, match="batch 0 is being stepped already"):
            pool.step(actions_of(pool))
        with pytest.raises(InvalidArgumentError, match="env_ids"):
            pool.step(actions_of(pool), env_ids=[0])
        with pytest.raises(InvalidArgumentError, match="batch is 1"):
            pool.step(actions_of(pool), 1)
        again = pool.reset()
        with pytest.raises(FailedPreconditionError, match="overwritten"):
            future.result()
        assert again.result().observation[:, 2].tolist() == [0, 0]


def test_calls_of_a_closed_pool_are_refused():
    pool = alone(Counter)
    future = pool.reset()
    pids = pool.worker_pids
    pool.close()
    pool.close()
    assert not any(is_alive(pid) for pid in pids)
    for call in (lambda: pool.step([1, 1]), pool.reset, future.result, pool.restart):
        with pytest.raises(FailedPreconditionError, match="closed"):
            call()


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}])
def test_a_pool_that_closes_while_its_actions_are_read_refuses_the_step(options):
    class Closing:
        def __array__(self, *_, **__):
            pool.close()
            return np.ones(2, int)

    pool = alone(Counter, **options)
    pool.reset().result()
    with pytest.raises(FailedPreconditionError, match="closed"):
        pool.step(Closing(), **({"env_ids": [0, 1]} if options else {}))


def test_a_dropped_pool_leaves_no_process():
    pool = alone(Counter)
    pids = pool.worker_pids
    assert all(is_alive(pid) for pid in pids)
    del pool
    gc.collect()
    eventually(lambda: not any(is_alive(pid) for pid in pids))


# --- Environments that fail.

_RAISE = {
    "raises": "ValueError: the emulator is out of cartridges",
    "shape": r"the observation has shape \(5,\); its space says \(4,\)",
    "dtype": "the observation has dtype complex64; its space says float32",
    "masked": "the observation is a masked array",
    "nest": "structure",
    "values": "step returned 4 values",
    "reward": "the reward is a str",
    "none": "the observation has shape",
}


@pytest.mark.parametrize("what", _RAISE)
def test_the_error_of_a_failed_step_names_the_environment(what):
    with faulty(what, num_envs=4) as pool:
        pool.reset().result()
        future = pool.step([1, 1, 9, 1])
        with pytest.raises(EnvError, match=_RAISE[what]) as caught:
            future.result()
        error = caught.value
        assert (error.env_id, error.batch, error.worker) == (2, 0, 1)
        assert "environment 2 of batch 0, in worker 1" in str(error)
        with pytest.raises(EnvError, match="raised"):
            future.result()
        with pytest.raises(FailedPreconditionError):
            pool.step([1, 1, 1, 1])
        pool.restart(1)
        batch = future.result()
        # The other workers' steps are kept; the failed worker's environments are reset.
        assert batch.observation[:, 2].tolist() == [1, 1, 0, 0]
        assert batch.truncated.tolist() == [False, False, True, True]
        assert pool.step([1] * 4).result().observation[:, 2].tolist() == [2, 2, 1, 1]


def test_the_error_has_the_traceback_of_the_worker():
    with faulty("raises") as pool:
        pool.reset().result()
        with pytest.raises(EnvError) as caught:
            pool.step([1, 9]).result()
        assert "in fail" in caught.value.traceback_text
        assert "env_pool_test.py" in caught.value.traceback_text


class Wordy(Counter):
    """Raises a long text of characters of four bytes, with `action` characters of one byte."""

    def step(self, action):
        raise ValueError("\N{GRINNING FACE}" * 8000 + "x" * int(action))


def test_a_long_traceback_is_cut_between_characters():
    with alone(Wordy, 1) as pool:
        pool.reset().result()
        for action in range(4):
            with pytest.raises(EnvError) as caught:
                pool.step([action]).result()
            text = "\N{GRINNING FACE}" * 4000 + "x" * action + "\n"
            assert caught.value.traceback_text.endswith(text)
            pool.reset().result()


def test_a_reset_recreates_an_environment_that_raised():
    with faulty("raises") as pool:
        pids = pool.worker_pids
        pool.reset().result()
        with pytest.raises(EnvError):
            pool.step([1, 9]).result()
        assert pool.reset().result().observation[:, 2].tolist() == [0, 0]
        assert pool.step([1, 1]).result().observation[:, 2].tolist() == [1, 1]
        assert pool.worker_pids == pids


class Logged(Counter):
    """Appends to a file what happens to it; the second that is made fails."""

    def __init__(self, file):
        super().__init__()
        self.file = Path(file)
        self.number = self.file.read_text().count("made") if self.file.exists() else 0
        self.write("made")
        if self.number == 1:
            raise ValueError("no more")

    def write(self, what):
        with self.file.open("a") as file:
            file.write(f"{what} {self.number}\n")

    def step(self, action):
        if action == 9:
            raise ValueError("nine")
        return super().step(action)

    def close(self):
        self.write("closed")
        raise ValueError("closing")


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_each_environment_is_closed_once_and_before_its_successor_is_made(backend, tmp_path):
    file = tmp_path / "log"
    with reverie.EnvPool(Logged, 1, backend=backend, env_kwargs={"file": str(file)}) as pool:
        pool.reset().result()
        with pytest.raises(EnvError, match="nine"):
            pool.step([9]).result()
        with pytest.raises(EnvError, match="no more"):
            pool.reset().result()
        pool.reset().result()
        told = ["made 0", "closed 0", "made 1", "made 2"]
        assert file.read_text().splitlines() == told
    assert file.read_text().splitlines() == [*told, "closed 2"]


def test_nan_is_returned_unless_refuse_nan_is_set():
    with faulty("nan") as pool:
        pool.reset().result()
        assert np.isnan(pool.step([9, 1]).result().observation[0]).all()
    with faulty("nan", refuse_nan=True) as pool:
        pool.reset().result()
        with pytest.raises(EnvError, match="NaN"):
            pool.step([9, 1]).result()


@pytest.mark.parametrize("what", ["raises", "dies", "exits"])
def test_an_environment_that_cannot_be_created_raises_at_once(what):
    with pytest.raises(EnvError, match="cartridges" if what == "raises" else "ended"):
        faulty(what, at="init")


def test_the_error_for_an_environment_that_hangs_in_init_names_the_worker():
    with pytest.raises(DeadlineExceededError, match="worker 0"):
        faulty("hangs", at="init", timeout_s=1.5)


def test_a_reset_that_raises_is_reported_as_an_env_error():
    with faulty("raises", at="reset") as pool, pytest.raises(EnvError, match="cartridges"):
        pool.reset().result()


@pytest.mark.parametrize(("what", "how"), [("dies", "signal 9"), ("exits", "status 3")])
def test_a_worker_that_dies_is_reported_within_a_second(what, how, ended_within):
    with faulty(what, num_envs=4) as pool:
        pool.reset().result()
        future = pool.step([1, 1, 9, 1])
        begin = time.monotonic()
        with pytest.raises(EnvError, match=f"worker 1 .*{how}.*environment 2 of batch 0") as caught:
            future.result()
        assert ended_within(begin, 1.0)
        assert (caught.value.worker, caught.value.env_id) == (1, 2)
        pool.restart()
        assert pool.restart_count == 1
        assert future.result().truncated.tolist() == [False, False, True, True]
        assert pool.step([1] * 4).result().observation[:, 2].tolist() == [2, 2, 1, 1]


class Frail(Counter):
    """Its worker is killed by action 9."""

    def step(self, action):
        if action == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


@pytest.mark.parametrize("length", [2, 1000])
def test_environments_that_finished_a_step_keep_its_outcome_when_their_worker_dies(length):
    with alone(Frail, 3, num_workers=1, restarts=2, env_kwargs={"length": length}) as pool:
        pool.reset(7).result()
        pool.step([1, 2, 3]).result()
        batch = pool.step([4, 5, 9]).result()
        assert batch.reward.tolist() == [4, 5, 0]
        is_over = length == 2
        assert batch.terminated.tolist() == [is_over, is_over, False]
        assert batch.truncated.tolist() == [not is_over, not is_over, True]
        assert batch.final_observation.tolist() == [[7, 0, 2, 4], [8, 0, 2, 5], [9, 0, 1, 3]]
        # First ones of new environments.
        assert batch.observation.tolist() == [[-1, 0, 0, -1]] * 3
        batch = pool.step([9, 1, 1]).result()
        assert batch.reward.tolist() == [0, 0, 0]
        assert batch.truncated.tolist() == [True, True, True]
        assert batch.final_observation.tolist() == [[-1, 0, 0, -1]] * 3


def test_a_hanging_step_is_reported_with_its_worker_and_ended_by_restart():
    with faulty("hangs", num_envs=4) as pool:
        pool.reset().result()
        future = pool.step([1, 1, 9, 1])
        text = r"worker 1 \(at environment 2 of batch 0\)"
        with pytest.raises(DeadlineExceededError, match=text):
            future.result(0.3)
        pool.restart(1)
        assert future.result().observation[:, 2].tolist() == [1, 1, 0, 0]


def test_ctrl_c_ends_a_wait_and_the_step_continues():
    with faulty("hangs") as pool:
        pool.reset().result()
        future = pool.step([1, 9])
        timer = threading.Timer(0.1, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            future.result()
        pool.restart(1)
        assert future.result().observation[:, 2].tolist() == [1, 0]


def test_failed_workers_are_replaced_up_to_the_number_of_restarts():
    with faulty("dies", restarts=2) as pool:
        pool.reset().result()
        for count in (1, 2):
            batch = pool.step([1, 9]).result()
            assert batch.truncated.tolist() == [False, True]
            assert pool.restart_count == count
        with pytest.raises(EnvError, match="signal 9"):
            pool.step([1, 9]).result()


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_workers_killed_while_stepping_raise_typed_errors_and_are_replaced(batch_size, kills):
    rng = random.Random(7)
    with alone(Busy, 6, num_workers=3, batch_size=batch_size) as pool:
        batch = pool.reset(0).result()
        errors = []
        for _ in range(kills):
            for _ in range(rng.randrange(3)):
                ids = None if batch_size is None else batch.env_ids.copy()
                batch = pool.step(np.ones(pool.batch_size, int), env_ids=ids).result()
            ids = None if batch_size is None else batch.env_ids.copy()
            future = pool.step(np.ones(pool.batch_size, int), env_ids=ids)
            killed = rng.choice(pool.worker_pids)
            os.kill(killed, signal.SIGKILL)
            try:
                batch = future.result()
            except EnvError as error:
                errors.append(str(error))
                pool.restart(error.worker)
                batch = future.result()
            # The worker may have finished its part of the step before it died.
            eventually(lambda pid=killed: pid not in pool.worker_pids)
            pool.restart()
        assert pool.restart_count == kills
        assert len(errors) <= kills
        # With batch_size, other workers may have filled the batch meanwhile.
        assert errors or batch_size is not None
        assert all("signal 9" in text for text in errors)
        assert pool.reset(0).result().observation.shape == (pool.batch_size, 4)
        assert all(is_alive(pid) for pid in pool.worker_pids)


# --- Whole programs.


def run_program(text, folder, *arguments, **options):
    program = folder / "program.py"
    program.write_text(textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, str(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


_PROGRAM = """
    import numpy as np
    import reverie

    class Env:
        def reset(self, *, seed=None, **_options):
            return np.zeros(2), {}

        def step(self, action):
            return np.ones(2), 1.0, False, False, {}

        def close(self):
            pass

    def main():
        pool = reverie.EnvPool(Env, 2, num_workers=2, backend="process")
        pool.reset().result()
        print(*pool.worker_pids, flush=True)
        while True:
            pool.step([0, 0]).result()

    """
_GUARD = 'if __name__ == "__main__":\n        main()\n'


def test_no_worker_outlives_a_killed_program(tmp_path, ended_within):
    program = run_program(_PROGRAM + _GUARD, tmp_path)
    pids = [int(pid) for pid in program.stdout.readline().split()]
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)
    before = {path.name for path in Path("/dev/shm").iterdir()}
    program.kill()
    program.communicate()
    killed = time.monotonic()
    eventually(lambda: not any(is_alive(pid) for pid in pids))
    assert ended_within(killed, 2.0)
    assert {path.name for path in Path("/dev/shm").iterdir()} <= before


def test_ctrl_c_during_a_step_ends_the_program_and_its_workers_quietly(tmp_path):
    program = run_program(_PROGRAM + _GUARD, tmp_path, start_new_session=True)
    pids = [int(pid) for pid in program.stdout.readline().split()]
    os.killpg(program.pid, signal.SIGINT)  # a terminal sends Ctrl-C to the workers too
    _, said = program.communicate(timeout=300)
    assert program.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1
    assert "KeyboardInterrupt" in said
    eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_workers_have_the_arguments_of_the_program(tmp_path):
    text = """
        import argparse
        import sys
        import numpy as np
        import reverie

        parser = argparse.ArgumentParser()
        parser.add_argument("--size", type=int, required=True)
        size = parser.parse_args().size
        name_size = len(sys.argv[0])

        class Env:
            def reset(self, *, seed=None, **_options):
                return np.full(size, name_size), {}

            def step(self, action):
                return np.full(size, name_size), 1.0, False, False, {}

        if __name__ == "__main__":
            with reverie.EnvPool(Env, 2, num_workers=2, backend="process") as pool:
                observation = pool.reset().result().observation
            print(observation.shape, (observation == len(sys.argv[0])).all())
    """
    program = run_program(text, tmp_path, "--size", "3")
    printed, said = program.communicate(timeout=300)
    assert (program.returncode, printed) == (0, "(2, 3) True\n"), said


def test_a_program_without_a_main_guard_gets_an_explanation(tmp_path):
    program = run_program(_PROGRAM + "main()\n", tmp_path)
    _, said = program.communicate(timeout=300)
    assert program.returncode == 1
    assert '__name__ == "__main__"' in said


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_forked_child_cannot_step_and_does_not_end_the_workers():
    pool = alone(Counter)
    pool.reset().result()
    child = os.fork()
    if child == 0:
        try:
            pool.step([1, 1])
            status = 1
        except FailedPreconditionError:
            status = 0
        del pool
        gc.collect()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert pool.step([1, 1]).result().observation[:, 2].tolist() == [1, 1]
    pool.close()


class Forks(Counter):
    """Leaves its children to what is above it, in the way that ``how`` selects."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.made = self.fork()

    def fork(self):
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if self.how == "exit":
            sys.exit(7)
        if self.how == "raise":
            raise ValueError("the child's own")
        return -1

    def step(self, action):
        left = self.fork()
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float(100 * self.made + left), terminated, truncated, info


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.parametrize(("how", "reward"), [("exit", 707), ("raise", 101), ("return", 0)])
def test_a_child_that_an_environment_forks_ends_and_does_not_answer(how, reward):
    with reverie.EnvPool(lambda: Forks(how), num_envs=2, backend="process") as pool:
        pool.reset(seed=1).result()
        for _ in range(3):
            assert pool.step([0, 1]).result(timeout_s=60).reward.tolist() == [reward] * 2
