"""Results of a pool do not change later; with copy=False, using an overwritten one is an error.

The programs are what a user writes first: they keep results of the pool without copying them.
"""

import numpy as np
import pytest

import reverie
from reverie import moolib
from reverie.envs.backend import EnvBatch
from reverie.errors import FailedPreconditionError

gymnasium = pytest.importorskip("gymnasium")

ENVS = 4


def make_vector(num_envs):
    same = gymnasium.vector.AutoresetMode.SAME_STEP
    return Reusing(
        gymnasium.make_vec(
            "CartPole-v1",
            num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": same, "copy": False},
        )
    )


class Reusing(gymnasium.vector.VectorWrapper):
    """Passes on the arrays of the wrapped environment, which reuses them."""


def make_pool(backend, **options):
    num_workers = None if backend == "vector" else 2
    env = make_vector if backend == "vector" else "CartPole-v1"
    return reverie.EnvPool(env, ENVS, num_workers=num_workers, backend=backend, seed=1, **options)


def rows(nest):
    return np.asarray(nest, np.float32).copy()


def assert_stored(buffer, expected):
    """Checks that the buffer holds only pairs (obs, next_obs) in ``expected``."""
    sample = buffer.sample(512)
    pairs = zip(rows(sample["obs"]), rows(sample["next_obs"]), strict=True)
    stored = {obs.tobytes() + next_obs.tobytes() for obs, next_obs in pairs}
    assert stored
    assert stored <= expected


BACKENDS = ("native", "process", "vector")


@pytest.mark.parametrize("output", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_simple_loop_stores_correct_transitions(backend, output):
    pytest.importorskip(output)
    expected = set()
    pool = make_pool(backend, output=output)
    buffer = reverie.ReplayBuffer(10_000, num_envs=ENVS, seed=1)
    batch = pool.reset().result()
    obs = batch.observation
    for step in range(60):
        before = rows(obs)
        action = np.full(ENVS, step % 2)
        batch = pool.step(action).result()
        np.testing.assert_array_equal(rows(obs), before)  # no step changes an earlier result
        over = np.asarray(batch.terminated | batch.truncated)[:, None]
        next_obs = np.where(over, batch.final_observation, batch.observation)
        buffer.add(obs, action, batch.reward, next_obs, batch.terminated, batch.truncated)
        expected |= {a.tobytes() + b.tobytes() for a, b in zip(before, next_obs, strict=True)}
        assert (before != next_obs).any(axis=1).all()
        obs = batch.observation
    assert_stored(buffer, expected)
    pool.close()


def test_a_loop_over_the_first_ready_environments_stores_correct_transitions():
    last = {}
    expected = set()
    buffer = reverie.ReplayBuffer(10_000, num_envs=2, seed=1)
    with make_pool("process", batch_size=2) as pool:
        batch = pool.reset().result()
        kept = []
        for _ in range(80):
            for i, env in enumerate(batch.env_ids):
                last[int(env)] = batch.observation[i]  # a view of a result
            kept.append((batch.env_ids, batch.observation, rows(batch.observation)))
            batch = pool.step(np.ones(2, int), env_ids=batch.env_ids).result()
            if any(int(env) not in last for env in batch.env_ids):
                continue
            obs = np.stack([last[int(env)] for env in batch.env_ids])
            over = (batch.terminated | batch.truncated)[:, None]
            next_obs = np.where(over, batch.final_observation, batch.observation)
            buffer.add(
                obs, batch.env_ids, batch.reward, next_obs, batch.terminated, batch.truncated
            )
            expected |= {a.tobytes() + b.tobytes() for a, b in zip(obs, next_obs, strict=True)}
        for _, observation, before in kept:
            np.testing.assert_array_equal(observation, before)
    assert_stored(buffer, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_vector_environment_returns_arrays_that_do_not_change(backend):
    from reverie.envs.vector_env import GymVectorEnv

    env = GymVectorEnv(make_pool(backend))
    obs, _ = env.reset()
    for _ in range(20):
        before = rows(obs)
        next_obs, reward, *_ = env.step(np.ones(ENVS, int))
        kept = rows(reward)
        np.testing.assert_array_equal(obs, before)
        env.step(np.zeros(ENVS, int))
        np.testing.assert_array_equal(reward, kept)
        obs = next_obs
    env.close()


def test_the_moolib_pool_returns_arrays_that_do_not_change_unless_copy_is_false():
    for copy in (True, False):
        with moolib.EnvPool("CartPole-v1", 1, 2, 1, output="numpy", copy=copy) as pool:
            state = pool.step(0, np.zeros(2, int)).result()["state"]
            before = rows(state)
            pool.step(0, np.zeros(2, int)).result()
            assert np.array_equal(state, before) == copy


class Nested:
    """Observes several arrays."""

    def reset(self, **_options):
        self.steps = 0
        return self.observation(), {}

    def step(self, _action):
        self.steps += 1
        return self.observation(), 1.0, self.steps % 7 == 0, False, {"steps": self.steps}

    def observation(self):
        return {
            "picture": np.full((300, 300, 3), self.steps, np.uint8),
            "pair": (np.int64(self.steps), np.float32([self.steps])),
        }

    def close(self):
        pass


def test_kept_nests_and_info_do_not_change():
    with reverie.EnvPool(Nested, 2, num_workers=1, info=["steps"]) as pool:
        kept = [pool.reset().result()]
        kept += [pool.step(np.zeros(2, int)).result() for _ in range(9)]
        for step, batch in enumerate(kept):
            shown = step if step < 7 else step - 7  # an episode has seven steps
            assert (batch.observation["picture"] == shown).all()
            assert batch.observation["pair"][0].tolist() == [shown] * 2
        assert kept[7].terminated.all()
        assert (kept[7].final_observation["picture"] == 7).all()
        assert kept[7].info["steps"].tolist() == [7, 7]
        assert kept[7].observation["pair"][1].tolist() == [[0], [0]]


@pytest.mark.parametrize("backend", ["native", "process"])
def test_a_loop_that_keeps_no_results_reuses_memory(backend):
    with make_pool(backend) as pool:
        batch = pool.reset().result()
        places = set()
        for _ in range(100):
            batch = pool.step(np.zeros(ENVS, int)).result()
            places.add(batch.observation.ctypes.data)
        assert len(places) <= 2


def test_changes_to_a_batch_do_not_affect_later_batches():
    with make_pool("native") as pool:
        pool.reset().result()
        for _ in range(5):
            batch = pool.step(np.zeros(ENVS, int)).result()
            assert batch.reward.tolist() == [1] * ENVS
            assert batch.env_ids.tolist() == list(range(ENVS))
            batch.reward *= 0
            batch.env_ids += 7
            batch.reward = None
            batch.info["mine"] = 1
            assert isinstance(batch, EnvBatch)


def stepped(pool):
    """The result of a reset and that of the step after it."""
    first = pool.reset().result()
    return first, pool.step(np.zeros(ENVS, int)).result()


def flags():
    return np.zeros(ENVS, bool)


@pytest.mark.parametrize("backend", ["native", "process"])
def test_an_overwritten_view_is_refused_by_name(backend):
    with make_pool(backend, copy=False) as pool:
        first, second = stepped(pool)
        buffer = reverie.ReplayBuffer(100, num_envs=ENVS)
        action = np.zeros(ENVS, int)
        good = (second.observation, action, second.reward, second.observation, flags(), flags())
        buffer.add(*good)  # views of the last result are valid
        for place, name, value in (
            (0, "obs", first.observation),
            (0, "obs", first.observation[:, :]),
            (2, "reward", first.reward),
            (3, "next_obs", first.observation),
            (4, "terminated", first.terminated),
        ):
            wrong = [*good[:place], value, *good[place + 1 :]]
            with pytest.raises(FailedPreconditionError, match=f"{name}.*overwritten.*copy=True"):
                buffer.add(*wrong)
        copied = first.observation.copy()  # overwritten values, but no view of the pool
        buffer.add(copied, *good[1:])
        store = reverie.Store([reverie.Table.queue("q", 9)])
        with (
            store.client().trajectory_writer(2) as writer,
            pytest.raises(FailedPreconditionError, match=r"'obs'.*overwritten"),
        ):
            writer.append({"obs": first.observation})
        with pytest.raises(FailedPreconditionError, match="overwritten"):
            reverie.Batcher(2).stack({"obs": first.observation})
        assert np.shares_memory(first.observation, second.observation)


@pytest.mark.parametrize("backend", ["native", "process"])
def test_a_view_kept_over_many_steps_is_refused(backend):
    with make_pool(backend, copy=False) as pool:
        pool.reset().result()
        buffer = reverie.ReplayBuffer(100, num_envs=ENVS)
        kept = []
        for _ in range(12):
            batch = pool.step(np.zeros(ENVS, int)).result()
            kept.append(batch.observation[:, :])
        for view in kept[:-1]:
            with pytest.raises(FailedPreconditionError, match="overwritten"):
                buffer.add(view, flags(), batch.reward, kept[-1], flags(), flags())
        buffer.add(kept[-1], flags(), batch.reward, kept[-1], flags(), flags())


def test_torch_views_without_a_copy_share_the_memory_of_the_pool():
    torch = pytest.importorskip("torch")
    with make_pool("process", output="torch", copy=False) as pool:
        first = pool.reset().result().observation
        second = pool.step(torch.ones(ENVS, dtype=torch.int32)).result().observation
        assert first.data_ptr() == second.data_ptr()
