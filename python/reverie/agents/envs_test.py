"""Trainings with Gymnasium's environments, in worker processes and threads."""

import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from reverie.__main__ import main
from reverie.agents import Loop, Trainer, TrainSettings, evaluate, train, tune_cores
from reverie.agents.checkpoints import CHECKPOINTS
from reverie.agents.envs import PoolEnvs, env_source
from reverie.agents.episodes import PlayedActions, SeededEpisodes, environment_seed, episode_seed
from reverie.errors import (
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedTypeError,
)

gymnasium = pytest.importorskip("gymnasium")

SHORT = TrainSettings(seed=1, steps=400, hidden=(16,), warmup_steps=100, batch_size=16)

# A module for the workers, with environments that fail after a number of steps.
MODULE = """
    import time

    import gymnasium
    import numpy as np


    class Faulty(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float64)
        action_space = gymnasium.spaces.Discrete(3, start=5)

        def __init__(self, fault="none", space="box", action="discrete"):
            self.fault, self.steps = fault, 0
            if space == "dict":
                self.observation_space = gymnasium.spaces.Dict({"a": self.observation_space})
            if space == "multi":
                self.observation_space = gymnasium.spaces.MultiDiscrete([2, 3])
            if action == "integer":
                self.action_space = gymnasium.spaces.Box(-2, 3, (2,), np.int32)
            if action == "multi":
                self.action_space = gymnasium.spaces.MultiDiscrete([2, 3])
            if action == "box":
                self.action_space = gymnasium.spaces.Box(-2, 3, (2, 1), np.float64)
            if action == "narrow":  # in float32, each bound is beyond itself
                self.action_space = gymnasium.spaces.Box(-0.1, 0.1, (2, 1), np.float64)
            if action == "empty":
                self.action_space = gymnasium.spaces.Box(-1, 1, (0,), np.float32)
            if action == "unbounded":
                self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.uniform(-1, 1, 3), {}

        def step(self, action):
            assert self.action_space.contains(action), action
            self.steps += 1
            value = 0.5
            if self.steps > 150:
                if self.fault == "nan":
                    value = float("nan")
                elif self.fault == "raise":
                    raise ValueError("out of fuel")
                elif self.fault == "hang":
                    time.sleep(1000)
                elif self.fault == "exit":
                    import os
                    os._exit(3)
            return np.full(3, value), 1.0, self.steps % 20 == 0, False, {}


    class Cells(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(3, start=2)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, last):
            self.last = last

        def reset(self, *, seed=None, options=None):
            return 2, {}

        def step(self, action):
            return self.last, 0.0, True, False, {}


    gymnasium.register("Faulty-v0", Faulty)
    gymnasium.register("Cells-v0", Cells, disable_env_checker=True)
"""


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    (tmp_path / "faulty_envs.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "faulty_envs:Faulty-v0"
    sys.modules.pop("faulty_envs", None)
    gymnasium.registry.pop("Faulty-v0", None)
    gymnasium.registry.pop("Cells-v0", None)


def test_each_episode_has_its_own_seed():
    seeds = [episode_seed(seed, episode) for seed in (0, 1, 2**31) for episode in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_an_episode_and_its_successors_can_be_repeated_from_a_seed():
    env = SeededEpisodes(gymnasium.make("CartPole-v1"))
    first = env.reset(seed=7)[0]
    second = env.reset()[0]
    assert (first != second).any()
    np.testing.assert_array_equal(env.reset(seed=7)[0], first)
    np.testing.assert_array_equal(env.reset()[0], second)


@pytest.mark.parametrize(
    ("space", "actions", "given"),
    [
        (gymnasium.spaces.Discrete(3, start=5), [2, 0], [7, 5]),
        (gymnasium.spaces.MultiBinary(3), [[1, 0, 1], [0, 0, 1]], [[1, 0, 1], [0, 0, 1]]),
        (gymnasium.spaces.MultiDiscrete([2, 3]), [[1, 2], [0, 1]], [[1, 2], [0, 1]]),
        (gymnasium.spaces.Box(-1, 1, (1, 2)), [[0.5, -1.0]], [[[0.5, -1.0]]]),
    ],
)
def test_actions_of_every_space_are_played_again(space, actions, given):
    taken = []

    class Recorder(gymnasium.Env):
        action_space = space

        def reset(self, *, seed=None, options=None):  # noqa: ARG002
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            assert self.action_space.contains(action), action
            taken.append(action.tolist())
            return len(taken), 0.0, False, False, {}

    env = SeededEpisodes(Recorder(), {7: (0, actions)})
    assert env.reset(seed=7)[0] == len(actions)
    assert taken == given


def test_gymnasium_environments_train_with_either_backend(tmp_path):
    runs = [
        train(
            "ddqn",
            "CartPole-v1",
            SHORT,
            env_backend=backend,
            final_episodes=1,
            out=tmp_path / "run" if backend == "process" else None,
        )
        for backend in ("process", "thread")
    ]
    assert runs[0].progress.end == "all steps"
    # One thread acts and learns, so a seed repeats the run with either backend.
    assert runs[0].episodes == runs[1].episodes
    np.testing.assert_array_equal(runs[0].policy.parameters, runs[1].policy.parameters)
    assert evaluate(tmp_path / "run", episodes=1) == runs[0].greedy_returns


def test_the_seed_of_an_evaluation_reaches_environments_of_gymnasium():
    # Every seed that a program writes, and those that are drawn from the training's.
    assert [environment_seed(seed) for seed in (0, 1, 2**31 - 1)] == [0, 1, 2**31 - 1]
    assert all(0 <= environment_seed(seed) < 2**31 for seed in (2**33, 2**33 - 1, 2**64 - 1))
    assert environment_seed(1 << 40) == 128
    with Trainer("ddqn", "CartPole-v1", SHORT, env_backend="thread") as trainer:
        first, again, other = (trainer.evaluate(episodes=5, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_steps_limit_does_not_bound_the_start_of_a_worker(faulty):
    class Still:
        def act(self, observation, *, step, explore):  # noqa: ARG002
            return np.zeros(len(observation), np.int64)

        def learn(self, batch, *, progress):  # noqa: ARG002
            return np.ones(len(batch["reward"]))

    still = Still()
    options = {"fault": "hang"}
    # A worker needs longer than that to begin.
    with Loop(still, still, faulty, SHORT, env_options=options, env_timeout_s=0.1) as loop:
        loop.start()
        with pytest.raises(DeadlineExceededError):
            loop.wait(60)


def test_ctrl_c_in_a_checkpoint_ends_the_call_as_such(tmp_path, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    with Trainer("ddqn", "CartPole-v1", SHORT, env_backend="thread") as trainer:
        trainer.start()
        trainer.wait()
        with monkeypatch.context() as patch:
            patch.setattr(PlayedActions, "state", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trainer.save(tmp_path / "it")
        with monkeypatch.context() as patch:  # before anything there could handle it
            patch.setattr(PoolEnvs, "state", lambda *_: interrupted(None))
            with pytest.raises(KeyboardInterrupt):
                trainer.save(tmp_path / "it")
        trainer.save(tmp_path / "it")


def test_a_step_whose_recording_ctrl_c_has_ended_is_not_saved(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with Trainer("ddqn", "CartPole-v1", SHORT, env_backend="thread") as trainer:
        trainer.start()
        trainer.wait()
        with monkeypatch.context() as patch:
            patch.setattr(PlayedActions, "add", interrupted)
            with pytest.raises(KeyboardInterrupt):
                trainer.save(tmp_path / "it")
        with pytest.raises(FailedPreconditionError, match="use the last checkpoint"):
            trainer.save(tmp_path / "it")


def test_actors_on_threads_train_with_worker_processes():
    settings = TrainSettings(
        seed=1, steps=300, hidden=(16,), warmup_steps=100, actors=2, envs_per_actor=2, learners=2
    )
    result = train("dqn", "CartPole-v1", settings, env_backend="process", final_episodes=1)
    assert result.progress.end == "all steps"
    assert result.episodes


def test_discrete_observations_are_one_hot_encoded():
    pytest.importorskip("gymnasium.envs.toy_text.frozen_lake")
    result = train("dqn", "FrozenLake-v1", SHORT, env_backend="thread", final_episodes=1)
    assert result.policy.widths[0] == 16


def test_an_environment_may_end_before_others_with_observations_that_begin_far_from_0():
    class Far(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(3, start=9)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):  # noqa: ARG002
            super().reset(seed=seed)
            return 9, {}

        def step(self, action):
            return 10, 1.0, bool(action), False, {}

    gymnasium.register("Far-v0", Far, disable_env_checker=True)
    _, source = env_source("Far-v0", None, backend="thread", count=2)
    try:
        envs = source.make(2, seed=1)
        assert envs.reset() is None
        envs.actions[:] = [0, 1]
        assert envs.step() is None
        np.testing.assert_array_equal(envs.terminated, [0, 1])
        np.testing.assert_array_equal(envs.obs, [[0, 1, 0], [1, 0, 0]])
        np.testing.assert_array_equal(envs.final_obs[1], [0, 1, 0])
    finally:
        source.close()
        gymnasium.registry.pop("Far-v0", None)


def test_bounds_and_shapes_of_actions_come_from_the_environment(faulty):
    settings = TrainSettings(seed=1, steps=200, hidden=(16,), warmup_steps=100, batch_size=16)
    result = train(
        "td3",
        faulty,
        settings,
        env_options={"action": "box"},
        env_backend="thread",
        final_episodes=1,
    )
    assert result.policy.widths == (3, 16, 2)


def test_actions_that_are_played_again_are_within_the_bounds(faulty, tmp_path):
    settings = TrainSettings(
        seed=1, steps=150, hidden=(16,), warmup_steps=100, batch_size=16, noise_sigma=2.0
    )
    options = {"env_options": {"action": "narrow"}, "env_backend": "thread"}
    with Trainer("ddpg", faulty, settings, **options) as trainer:
        trainer.start()
        assert trainer.wait(timeout_s=30)
        trainer.save(tmp_path / "it")
    with Trainer("ddpg", faulty, settings, resume=tmp_path / "it", **options) as trainer:
        assert trainer.progress().steps == 150


def test_options_reach_the_environment():
    with pytest.raises(EnvError, match="no_such_option"):
        Trainer("dqn", "CartPole-v1", env_options={"no_such_option": 1}, env_backend="process")


@pytest.mark.parametrize(
    ("algorithm", "options", "error", "words"),
    [
        ("dqn", {"space": "dict"}, UnsupportedTypeError, "FlattenObservation"),
        ("dqn", {"space": "multi"}, UnsupportedTypeError, "FlattenObservation"),
        ("dqn", {"action": "multi"}, UnsupportedTypeError, "MultiDiscrete"),
        ("sac", {"action": "multi"}, UnsupportedTypeError, "MultiDiscrete"),
        ("sac", {"action": "integer"}, UnsupportedTypeError, "int32"),
        ("dqn", {"action": "box"}, InvalidArgumentError, "use ddpg, td3 or sac"),
        ("sac", {"action": "discrete"}, InvalidArgumentError, "dqn"),
        ("sac", {"action": "unbounded"}, InvalidArgumentError, "inf"),
        ("sac", {"action": "empty"}, UnsupportedTypeError, "actions without numbers"),
    ],
)
@pytest.mark.parametrize("learner", ["native", "torch"])
def test_environments_that_an_algorithm_does_not_support_are_refused(
    faulty, algorithm, options, error, words, learner
):
    if learner == "torch":
        pytest.importorskip("torch")
    threads = threading.active_count()
    with pytest.raises(error, match=words):
        train(algorithm, faulty, env_options=options, env_backend="thread", learner=learner)
    assert threading.active_count() <= threads


@pytest.mark.parametrize("learner", ["native", "torch"])
@pytest.mark.parametrize("last", [1, 5])
@pytest.mark.usefixtures("faulty")
def test_an_observation_that_its_discrete_space_lacks_is_refused(last, learner):
    if learner == "torch":
        pytest.importorskip("torch")
    settings = TrainSettings(
        seed=1, steps=100, actors=0, hidden=(16,), warmup_steps=10, batch_size=8
    )
    with pytest.raises(InvalidArgumentError, match=f"{last}.*; its Discrete space has 2 to 4"):
        train(
            "dqn",
            "faulty_envs:Cells-v0",
            settings,
            env_options={"last": last},
            env_backend="thread",
            learner=learner,
        )


def test_the_error_for_an_unknown_environment_suggests_similar_names():
    with pytest.raises(NotFoundError, match="CartPole-v1"):
        Trainer("dqn", "CartPol-v1")


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("raise", EnvError, "out of fuel"),
        ("nan", InvalidArgumentError, "element 0 is nan"),
        ("exit", EnvError, "exited with status 3"),
        ("hang", DeadlineExceededError, "env_timeout_s"),
    ],
)
def test_an_error_in_an_environment_keeps_the_training_so_far(faulty, fault, error, words):
    settings = TrainSettings(seed=1, steps=1000, hidden=(16,), warmup_steps=100, batch_size=16)
    timeout_s = 1.0 if fault == "hang" else 30.0
    with Trainer(
        "dqn", faulty, settings, env_options={"fault": fault}, env_timeout_s=timeout_s
    ) as trainer:
        trainer.start()
        with pytest.raises(error, match=words):
            trainer.wait(timeout_s=30)
        with pytest.raises(error, match=words):  # the error is raised again
            trainer.wait(timeout_s=0)
        progress = trainer.progress()
        assert progress.end == "failed"
        assert progress.steps == 150
        assert np.isfinite(trainer.policy().parameters).all()


@pytest.mark.parametrize("learner", ["native", "torch"])
@pytest.mark.parametrize("fault", ["raise", "exit", "hang"])
def test_the_error_of_an_environment_has_a_trainings_remedy(faulty, learner, fault):
    if learner == "torch":
        pytest.importorskip("torch")
    settings = TrainSettings(seed=1, steps=1000, actors=0, hidden=(16,), warmup_steps=500)
    options = {"env_options": {"fault": fault}, "env_timeout_s": 1.0 if fault == "hang" else 30.0}
    with pytest.raises((EnvError, DeadlineExceededError)) as caught:
        train("dqn", faulty, settings, learner=learner, **options)
    said = str(caught.value)
    assert said.startswith(faulty)
    assert ("env_timeout_s" if fault == "hang" else "resume from its last checkpoint") in said
    assert "restart" not in said
    assert fault != "raise" or caught.value.traceback_text in said


def test_a_step_that_is_not_finite_is_taken_again_on_resume(faulty, tmp_path):
    settings = TrainSettings(seed=1, steps=1000, hidden=(16,), warmup_steps=100, batch_size=16)
    options = {"env_options": {"fault": "nan"}}
    with pytest.raises(InvalidArgumentError, match="element 0 is nan"):
        train("dqn", faulty, settings, out=tmp_path, **options)
    with Trainer("dqn", faulty, settings, resume=tmp_path / CHECKPOINTS, **options) as trainer:
        assert trainer.progress().steps == 150


def test_the_command_keeps_its_results_if_an_environment_raises(faulty, tmp_path, capsys):
    flags = ["--algorithm", "dqn", "--env", faulty, "--env-option", "fault=raise", "--seed", "1"]
    sizes = ["--steps", "1000", "--hidden", "16", "--warmup-steps", "100", "--batch-size", "16"]
    assert main(["train", *flags, *sizes, "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr()
    assert "out of fuel" in said.err
    assert f"--resume --out {tmp_path / 'run'}" in said.out
    # The header, and seven complete episodes of 20 steps within 150 steps.
    assert len((tmp_path / "run" / "curve.csv").read_text().splitlines()) == 1 + 7
    assert np.isfinite(evaluate(tmp_path / "run", episodes=1)).all()


def test_a_hanging_step_does_not_block_stop(faulty):
    settings = TrainSettings(seed=1, steps=1000, hidden=(16,), warmup_steps=100)
    with Trainer("dqn", faulty, settings, env_options={"fault": "hang"}) as trainer:
        trainer.start()
        while trainer.progress().steps < 150:
            trainer.wait(timeout_s=0.02)
        begin = time.monotonic()
        trainer.stop()
        assert time.monotonic() - begin < 30.0  # the step itself hangs for longer
        assert trainer.progress().end == "stopped"


def test_tune_cores_works_with_gymnasium_environments():
    settings = TrainSettings(hidden=(16,), batch_size=16, warmup_steps=200)
    tuning = tune_cores(
        "dqn", "CartPole-v1", settings, cores=1, measure_s=0.05, env_backend="thread"
    )
    assert tuning.learner_cores == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"env_backend": "gpu"}, "env_backend"),
        ({"env_backend": "native", "env": "Taxi-v3"}, "Taxi-v3"),
        ({"env_backend": "process", "env_timeout_s": 0.0}, "env_timeout_s"),
        ({"env_options": {3: 1}}, "env_options"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments, words):
    given = {"env": "CartPole-v1", **arguments}
    with pytest.raises((ValueError, TypeError), match=words):
        Trainer("dqn", given.pop("env"), **given)
