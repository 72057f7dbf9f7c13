"""A `Loop` and PyTorch's trainings, interrupted and resumed."""

import gc
import json
import os
import shutil
import threading

import numpy as np
import pytest

from eventually import eventually
from reverie import _reverie
from reverie.__main__ import main
from reverie.agents import Loop, Trainer, TrainSettings, evaluate, loop_checkpoint, train
from reverie.agents.checkpoints import describe, has_checkpoint
from reverie.agents.folder_lock import FolderLock
from reverie.agents.loop_checkpoint import first_difference
from reverie.agents.loop_envs import LoopEnvs
from reverie.errors import (
    DataLossError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnimplementedError,
    UnsupportedTypeError,
)

gymnasium = pytest.importorskip("gymnasium")

SHORT = TrainSettings(seed=3, steps=600, warmup_steps=100, batch_size=16, hidden=(8,))


class Linear:
    """A policy and learner in NumPy, whose values are linear in the observation."""

    def __init__(self):
        self.weights = np.zeros((4, 2))
        self.draws = np.random.default_rng(1)

    def act(self, observation, *, step, explore):  # noqa: ARG002
        values = observation @ self.weights
        if explore:
            values = values + self.draws.normal(size=values.shape)
        return values.argmax(1)

    def learn(self, batch, *, progress):  # noqa: ARG002
        values = batch["obs"] @ self.weights
        rows = np.arange(len(values))
        error = batch["reward"] - 0.1 * values[rows, batch["action"]]
        np.add.at(self.weights.T, batch["action"], 0.01 * error[:, None] * batch["obs"])
        return np.abs(error)

    def state_dict(self):
        state = json.dumps(self.draws.bit_generator.state).encode()
        return {"weights": self.weights, "draws": np.frombuffer(state, np.uint8)}

    def load_state_dict(self, state):
        self.weights = np.array(state["weights"])
        self.draws.bit_generator.state = json.loads(state["draws"].tobytes())


def interrupted(agent, folder, *, moments, **arguments):
    """Runs a loop that is stopped and saved at each of the moments, and resumed."""
    for moment_s in [*moments, None]:
        with Loop(agent, agent, "CartPole-v1", SHORT, **arguments) as loop:
            if folder.exists():
                agent.weights[:] = 7  # loading must overwrite them
                loop.load(folder)
            loop.start()
            loop.wait(moment_s)
            loop.stop()
            if loop.progress().steps > 0:
                loop.save(folder)
    return loop


@pytest.mark.parametrize("backend", ["native", "thread"])
def test_a_loop_resumes_bit_for_bit(tmp_path, backend):
    whole = Linear()
    with Loop(whole, whole, "CartPole-v1", SHORT, env_backend=backend) as loop:
        loop.start()
        loop.wait()
        episodes, stats = loop.episodes(), loop.buffer.stats
    parts = Linear()
    moments = [0.01, 0.02, 0.05]
    resumed = interrupted(parts, tmp_path / "run", moments=moments, env_backend=backend)
    assert resumed.episodes() == episodes
    assert resumed.buffer.stats["items"] == stats["items"]
    np.testing.assert_array_equal(parts.weights, whole.weights)


def test_an_evaluation_that_a_stop_interrupts_is_made_after_resuming(tmp_path):
    settings = TrainSettings(
        **{**vars(SHORT), "evaluation_interval": 200, "evaluation_episodes": 2}
    )

    class Stopping(Linear):
        loop = None

        def act(self, observation, *, step, explore):
            if not explore and self.loop is not None:
                self.loop.stop()
            return super().act(observation, step=step, explore=explore)

    whole = Linear()
    with Loop(whole, whole, "CartPole-v1", settings) as loop:
        loop.start()
        loop.wait()
        episodes, evaluations = loop.episodes(), loop.evaluations()
    assert [step for step, _ in evaluations] == [200, 400, 600]
    agent = Stopping()
    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        agent.loop = loop
        loop.start()
        loop.wait()
        assert (loop.progress().steps, loop.evaluations()) == (200, [])
        loop.save(tmp_path / "it")
    agent.loop = None
    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        loop.load(tmp_path / "it")
        loop.start()
        loop.wait()
        assert (loop.episodes(), loop.evaluations()) == (episodes, evaluations)
    np.testing.assert_array_equal(agent.weights, whole.weights)


def test_a_resumed_loop_with_a_longer_interval_is_evaluated_in_time(tmp_path):
    def settings(steps, interval):
        changed = {"steps": steps, "evaluation_interval": interval, "evaluation_episodes": 1}
        return TrainSettings(**{**vars(SHORT), **changed})

    agent = Linear()
    with Loop(agent, agent, "CartPole-v1", settings(300, 100)) as loop:
        loop.start()
        loop.wait()
        loop.save(tmp_path / "it")
    with Loop(agent, agent, "CartPole-v1", settings(800, 200)) as loop:
        loop.load(tmp_path / "it")
        loop.start()
        loop.wait()
        assert [step for step, _ in loop.evaluations()] == [100, 200, 300, 400, 600, 800]


def test_a_setting_that_is_left_out_at_resuming_is_a_difference():
    saved = {"algorithm": "sac", "settings": {"target_entropy": -3.0}}
    asked = {"algorithm": "sac", "settings": {**_reverie.default_settings("sac")}}
    assert "target_entropy was -3.0" in first_difference(saved, asked)
    assert first_difference({**saved, "settings": {}}, asked) is None


class Fails(gymnasium.Env):
    """CartPole, one step of which fails once in this process."""

    failures = 0

    def __init__(self):
        self.env = gymnasium.make("CartPole-v1").unwrapped
        self.observation_space, self.action_space = (
            self.env.observation_space,
            self.env.action_space,
        )
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        self.steps += 1
        if self.steps == 250 and Fails.failures:
            Fails.failures -= 1
            raise RuntimeError("once")
        return self.env.step(action)


@pytest.mark.usefixtures("one_torch_thread")
def test_a_pytorch_training_with_a_failed_step_resumes_bit_for_bit(tmp_path):
    from reverie.agents.torch_training import TorchTrainer

    gymnasium.register("FailsOnce-v0", Fails)
    settings = TrainSettings(**{**vars(SHORT), "actors": 0})

    def made(**options):
        return TorchTrainer("ddqn", "FailsOnce-v0", settings, env_backend="thread", **options)

    try:
        with made() as trainer:
            trainer.start()
            trainer.wait()
            whole = trainer.episodes(), numbers(trainer.state_dict())
        Fails.failures = 1
        with made() as trainer:
            trainer.start()
            with pytest.raises(EnvError, match="once"):
                trainer.wait()
            trainer.save(tmp_path / "it")
        with made(resume=tmp_path / "it") as trainer:
            trainer.start()
            trainer.wait()
            assert trainer.episodes() == whole[0]
            for name, value in numbers(trainer.state_dict()).items():
                np.testing.assert_array_equal(value, whole[1][name], err_msg=name)
    finally:
        del gymnasium.registry["FailsOnce-v0"]


@pytest.mark.usefixtures("one_torch_thread")
def test_an_option_that_only_gymnasium_knows_does_not_end_the_evaluation(tmp_path):
    settings = TrainSettings(**{**vars(SHORT), "steps": 200, "actors": 0})
    options = {"env_options": {"max_episode_steps": 30}, "learner": "torch", "out": tmp_path}
    result = train("ddqn", "CartPole-v1", settings, final_episodes=2, **options)
    assert max(result.greedy_returns) <= 30
    assert max(evaluate(tmp_path, episodes=2)) <= 30


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("learner", ["native", "torch"])
def test_a_training_resumes_with_options_that_a_file_holds_in_another_type(tmp_path, learner):
    settings = TrainSettings(**{**vars(SHORT), "steps": 150, "actors": 0})
    asked = {
        "env_options": {"desc": ("SFF", "FFF", "FFG"), "is_slippery": np.bool_(False)},
        "env_backend": "thread",
        "learner": learner,
        "out": tmp_path,
        "final_episodes": 1,
    }
    train("dqn", "FrozenLake-v1", settings, **asked)
    saved = json.loads((tmp_path / "settings.json").read_text())
    assert saved["env_options"] == {"desc": ["SFF", "FFF", "FFG"], "is_slippery": False}
    longer = TrainSettings(**{**vars(settings), "steps": 200})
    assert train("dqn", "FrozenLake-v1", longer, **asked, resume=True).progress.steps == 200
    # The command has the options from the file.
    arguments = ["--resume", "--out", str(tmp_path), "--steps", "250", "--final-episodes", "1"]
    assert main(["train", *arguments, "--quiet"]) == 0
    (tmp_path / "policy.safetensors").unlink()  # as of a training that was killed
    assert len(evaluate(tmp_path, episodes=2)) == 2


def test_an_option_that_no_file_holds_is_refused_by_name_where_it_is_saved(tmp_path):
    agent = Linear()
    options = {"sutton_barto_reward": len}
    arguments = {"env_options": options, "env_backend": "thread"}
    with Loop(agent, agent, "CartPole-v1", SHORT, **arguments) as loop:
        loop.start()
        loop.wait()
        with pytest.raises(UnsupportedTypeError, match="env_options has sutton_barto_reward="):
            loop.save(tmp_path / "loop")
    with pytest.raises(UnsupportedTypeError, match="cannot be saved"):
        train("dqn", "CartPole-v1", SHORT, **arguments, out=tmp_path / "train")


def test_the_policy_of_a_training_before_is_not_that_of_a_running_one(tmp_path):
    with Trainer("ddqn", "CartPole-v1", TrainSettings(seed=1, hidden=(8,))) as trainer:
        trainer.policy().save(tmp_path / "policy.safetensors")
        describe(tmp_path, trainer, end="all steps")
        assert (tmp_path / "policy.safetensors").exists()
        describe(tmp_path, trainer)
    assert os.listdir(tmp_path) == ["settings.json"]


def test_a_folder_with_a_nul_is_refused(tmp_path):
    agent = Linear()
    with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
        loop.start()
        eventually(lambda: loop.progress().steps > 0)
        for call in (loop.save, loop.load):
            with pytest.raises(InvalidArgumentError, match="must not contain a NUL"):
                call(f"{tmp_path}/a\0b")
        loop.stop()
        loop.save(tmp_path / "good")


def test_threads_pause_while_a_loop_is_saved(tmp_path):
    agent = Linear()
    settings = TrainSettings(**{**vars(SHORT), "actors": 1, "envs_per_actor": 2, "steps": 20_000})
    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        loop.start()
        eventually(lambda: loop.progress().batches >= 10)
        for _ in range(5):
            loop.save(tmp_path / "run")
            batches = loop.progress().batches
            eventually(lambda batches=batches: loop.progress().batches > batches)
        loop.stop()
        saved = loop.save(tmp_path / "run")
        steps, weights = loop.progress().steps, agent.weights.copy()
    other = Linear()
    with Loop(other, other, "CartPole-v1", settings) as loop:
        loop.load(saved)
        assert loop.progress().steps == steps
        np.testing.assert_array_equal(other.weights, weights)
        loop.start()
        loop.wait()
        assert loop.progress().end == "all steps"
        assert loop.progress().batches == loop.progress().batch_count


def test_a_training_runs_and_stops_while_another_thread_keeps_saving(tmp_path):
    agent = Linear()
    settings = TrainSettings(**{**vars(SHORT), "actors": 1, "steps": 1_000_000})
    is_over = threading.Event()

    def save():
        while not is_over.is_set():
            loop.save(tmp_path / "run")

    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        loop.start()
        eventually(lambda: loop.progress().batches > 0)
        saver = threading.Thread(target=save)
        saver.start()
        begin = loop.progress().steps
        eventually(lambda: loop.progress().steps > begin + 50)
        loop.stop()
        is_over.set()
        saver.join()
    assert loop.progress().end == "stopped"


@pytest.mark.parametrize("raised", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
@pytest.mark.parametrize("count", [0, 1])
def test_a_loop_whose_threads_did_not_all_start_can_be_saved(tmp_path, monkeypatch, raised, count):
    settings = TrainSettings(**{**vars(SHORT), "actors": 1, "steps": 1_000_000})
    agent = Linear()
    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        loop.start()
        eventually(lambda: loop.progress().steps > 0)
        loop.stop()
        loop.save(tmp_path)
    start = threading.Thread.start
    started = []

    def start_some(thread):
        if len(started) == count:
            raise raised
        started.append(thread)
        start(thread)

    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        loop.load(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_some)
            expected = ResourceExhaustedError if isinstance(raised, Exception) else type(raised)
            with pytest.raises(expected):
                loop.start()
        loop.stop()
        assert loop.progress().end == ("stopped" if expected is KeyboardInterrupt else "failed")
        assert loop.progress().elapsed_s >= 0
        saving = threading.Thread(target=loop.save, args=(tmp_path,))
        saving.start()
        saving.join(30.0)
        assert not saving.is_alive()


def test_a_training_can_be_saved_while_no_batch_is_due(tmp_path):
    """Then the thread that draws batches waits for steps, and the save pauses the steps."""
    settings = TrainSettings(
        seed=3, steps=10**9, warmup_steps=10, actors=1, update_interval=1e6, hidden=(8,)
    )
    agent = Linear()
    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        loop.start()
        eventually(lambda: loop.progress().steps > 0)
        saving = threading.Thread(target=lambda: loop.save(tmp_path), daemon=True)
        saving.start()
        saving.join(30.0)
        assert not saving.is_alive()
        steps = loop.progress().steps
        eventually(lambda: loop.progress().steps > steps)
    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        loop.load(tmp_path)


def test_a_thread_does_not_rest_for_a_save_that_has_ended():
    """It sees that there is one, and the save is interrupted before the thread has the lock."""

    class EndsBefore:
        def __init__(self, loop):
            self.loop, self.condition = loop, loop._changed

        def __enter__(self):
            self.condition.acquire()
            if self.loop._is_saved:
                self.loop._is_saved = False
                self.loop._saves += 1

        def __exit__(self, *error):
            self.condition.release()

        def __getattr__(self, name):
            return getattr(self.condition, name)

    agent = Linear()
    with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
        loop._is_saved = True
        loop._changed = EndsBefore(loop)
        thread = threading.Thread(target=loop._rest)
        thread.start()
        thread.join(5.0)
        is_resting = thread.is_alive()
        loop.stop()
        thread.join()
    assert not is_resting


def test_loops_that_cannot_be_saved_or_loaded_are_refused(tmp_path):
    class Forgetful:
        act, learn = Linear.act, Linear.learn

    agent = Linear()
    with Loop(agent, Forgetful(), "CartPole-v1", SHORT) as loop:
        with pytest.raises(UnimplementedError, match="state_dict"):
            loop.save(tmp_path / "run")
        with pytest.raises(UnimplementedError, match="state_dict"):
            loop.load(tmp_path / "run")
    with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
        with pytest.raises(FailedPreconditionError, match="no step"):
            loop.save(tmp_path / "run")
        with pytest.raises(NotFoundError, match="checkpoint"):
            loop.load(tmp_path / "run")
        loop.start()
        loop.wait()
        loop.save(tmp_path / "run")
        with pytest.raises(FailedPreconditionError, match="started"):
            loop.load(tmp_path / "run")
        with (
            Loop(agent, agent, "CartPole-v1", SHORT) as other,
            pytest.raises(FailedPreconditionError, match="another training"),
        ):
            other.load(tmp_path / "run")
        loop.buffer.save(tmp_path / "buffer")
        (tmp_path / "file").touch()
        with pytest.raises(InvalidArgumentError, match="file"):
            loop.save(tmp_path / "file")
    different = TrainSettings(**{**vars(SHORT), "gamma": 0.5})
    for env, settings, folder, said in (
        ("CartPole-v1", SHORT, "buffer", "no training"),
        ("CartPole-v1", different, "run", r"gamma was 0\.99 and is 0\.5"),
        ("Acrobot-v1", SHORT, "run", "env was 'CartPole-v1'"),
    ):
        with (
            Loop(agent, agent, env, settings) as loop,
            pytest.raises(InvalidArgumentError, match=said),
        ):
            loop.load(tmp_path / folder)


def test_a_checkpoint_from_before_a_setting_existed_has_its_default(tmp_path):
    agent = Linear()
    with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
        loop.start()
        loop.wait()
        del loop._s["replay_shards"]
        loop.save(tmp_path / "run")
    with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
        loop.load(tmp_path / "run")
        assert loop.progress().steps == SHORT.steps
    different = TrainSettings(**{**vars(SHORT), "replay_shards": 1})
    with (
        Loop(agent, agent, "CartPole-v1", different) as loop,
        pytest.raises(InvalidArgumentError, match="replay_shards was 0 and is 1"),
    ):
        loop.load(tmp_path / "run")


def test_a_state_that_does_not_consist_of_arrays_is_refused(tmp_path):
    class Nested(Linear):
        def state_dict(self):
            return {"weights": {"first": self.weights}}

    agent = Nested()
    with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
        loop.start()
        loop.wait()
        with pytest.raises(UnsupportedTypeError, match="'weights'"):
            loop.save(tmp_path / "run")


def test_environments_from_a_function_begin_new_episodes_on_resume(tmp_path):
    gymnasium = pytest.importorskip("gymnasium")
    agent = Linear()

    def make():
        return gymnasium.make("CartPole-v1")

    begun = []
    for _ in range(3):
        with Loop(agent, agent, make, SHORT, env_backend="thread") as loop:
            if (tmp_path / "run").exists():
                loop.load(tmp_path / "run")
            first = len(loop.buffer)
            loop.start()
            eventually(lambda loop=loop, first=first: len(loop.buffer) > first)
            begun.append(loop.buffer[first]["obs"].tolist())
            steps = loop.progress().steps
            eventually(lambda loop=loop, steps=steps: loop.progress().steps > steps or loop.wait(0))
            loop.stop()
            loop.save(tmp_path / "run")
    assert begun[0] != begun[1] != begun[2] != begun[0]


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "LunarLander-v3"])
@pytest.mark.parametrize("backend", ["native", "thread"])
def test_environments_are_replayed_to_their_saved_state(env, backend):
    pytest.importorskip("gymnasium")
    if env == "LunarLander-v3" and backend == "thread":
        pytest.importorskip("Box2D")
    arguments = {"options": {}, "backend": backend, "timeout_s": 60.0, "seed": 5}
    first, second = (LoopEnvs(env, 3, **arguments) for _ in "ab")
    draws = np.random.default_rng(1)

    def actions():
        if first.spec.action_count is not None:
            return draws.integers(first.spec.action_count, size=3)
        return draws.uniform(-1, 1, (3, 1)).astype(np.float32)

    try:
        obs = first.reset()
        for _ in range(230):  # Pendulum's first episodes end after 200 steps
            obs = first.step(actions()).observation
        state = json.loads(json.dumps(first.state()))
        np.testing.assert_array_equal(second.resume(state), obs)
        for _ in range(230):
            taken = actions()
            one, other = first.step(taken), second.step(taken)
            for name in ("observation", "after", "reward", "terminated", "truncated"):
                np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
        for damaged in (None, [], [[0]], [[0, []], [0, []]], [["x", []]] * 3):
            with pytest.raises(DataLossError, match="environments"):
                second.resume(damaged)
    finally:
        first.close()
        second.close()


def test_a_step_that_is_not_finite_is_taken_again_on_resume():
    gymnasium = pytest.importorskip("gymnasium")

    class OneNan(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):  # noqa: ARG002
            super().reset(seed=seed)
            self.steps = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):  # noqa: ARG002
            self.steps += 1
            value = np.nan if self.steps == 3 else self.steps / 10
            return np.full(1, value, np.float32), 1.0, False, False, {}

    gymnasium.register("OneNan-v0", OneNan, disable_env_checker=True)
    arguments = {"options": {}, "backend": "thread", "timeout_s": 60.0, "seed": 5}
    first, second = (LoopEnvs("OneNan-v0", 1, **arguments) for _ in "ab")
    action = np.ones(1, np.int64)
    try:
        first.reset()
        first.step(action)
        obs = first.step(action).observation
        with pytest.raises(InvalidArgumentError, match="not finite"):
            first.step(action)
        np.testing.assert_array_equal(second.resume(first.state()), obs)
        with pytest.raises(InvalidArgumentError, match="not finite"):
            second.step(action)
    finally:
        first.close()
        second.close()
        gymnasium.registry.pop("OneNan-v0", None)


# --- PyTorch.


@pytest.fixture
def one_torch_thread():
    """Uses one thread, since more do not help with networks as small as these."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def numbers(state):
    """The arrays of a state as NumPy arrays."""
    return {
        name: np.asarray(value.detach() if hasattr(value, "detach") else value)
        for name, value in state.items()
    }


class Stopped(Exception):  # noqa: N818
    """Raised by a report to end a training."""


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize(
    ("algorithm", "env"), [("ddqn", "CartPole-v1"), ("sac", "Pendulum-v1"), ("td3", "Pendulum-v1")]
)
def test_a_pytorch_training_resumes_bit_for_bit(tmp_path, algorithm, env):
    from reverie.agents.torch_training import TorchTrainer

    settings = TrainSettings(**{**vars(SHORT), "steps": 400, "evaluation_interval": 150})
    with TorchTrainer(algorithm, env, settings) as trainer:
        trainer.start()
        trainer.wait()
        whole = numbers(trainer.state_dict())
        best, evaluations = trainer.best_policy().state, trainer.evaluations()
    moments = [0.05, 0.1, None]
    for number, moment_s in enumerate(moments):
        resume = tmp_path / "run" if number > 0 and (tmp_path / "run").exists() else None
        with TorchTrainer(algorithm, env, settings, resume=resume) as trainer:
            trainer.start()
            trainer.wait(moment_s)
            trainer.stop()
            if trainer.progress().steps > 0:
                trainer.save(tmp_path / "run")
    resumed = numbers(trainer.state_dict())
    assert resumed.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)
    assert trainer.evaluations() == evaluations
    assert all((trainer.best_policy().state[name] == value).all() for name, value in best.items())


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize(("algorithm", "env"), [("ddqn", "CartPole-v1"), ("td3", "Pendulum-v1")])
def test_evaluating_a_policy_does_not_change_what_was_learned(algorithm, env):
    from reverie.agents.torch_training import TorchTrainer

    with TorchTrainer(algorithm, env, SHORT) as trainer:
        first = trainer.best_policy()
        trainer.start()
        trainer.wait()
        learned, latest = numbers(trainer.state_dict()), trainer.best_policy().state
        for policy in (first, None):
            trainer.evaluate(policy, episodes=1)
            state = numbers(trainer.state_dict())
            for name in state:
                np.testing.assert_array_equal(state[name], learned[name], err_msg=name)
            now = trainer.best_policy().state
            assert all((now[name] == value).all() for name, value in latest.items())


@pytest.mark.usefixtures("one_torch_thread")
def test_a_running_pytorch_training_is_evaluated_by_its_newest_checkpoint(tmp_path):
    settings = TrainSettings(**{**vars(SHORT), "steps": 10**9, "actors": 1})
    returns = []

    def report(_):
        if has_checkpoint(tmp_path / "run"):
            returns.extend(evaluate(tmp_path / "run", episodes=2))
            raise Stopped

    with pytest.raises(Stopped):
        train(
            *("ddqn", "CartPole-v1", settings),
            learner="torch",
            out=tmp_path / "run",
            checkpoint_every_s=0.2,
            report=report,
        )
    assert len(returns) == 2


@pytest.mark.usefixtures("one_torch_thread")
def test_a_pytorch_training_is_not_evaluated_by_the_checkpoint_of_the_one_before(tmp_path):
    given = {"learner": "torch", "out": tmp_path / "run", "final_episodes": 1}
    train("ddqn", "CartPole-v1", SHORT, checkpoint_every_s=0.01, **given)
    assert has_checkpoint(tmp_path / "run")

    def report(_):
        with pytest.raises(
            NotFoundError, match=r"neither policy\.safetensors nor a checkpoint yet"
        ):
            evaluate(tmp_path / "run", episodes=2)
        raise Stopped

    settings = TrainSettings(**{**vars(SHORT), "seed": 4, "steps": 10**9, "actors": 1})
    with pytest.raises(Stopped):
        train("ddqn", "CartPole-v1", settings, report=report, checkpoint_every_s=1e6, **given)


@pytest.mark.usefixtures("one_torch_thread")
def test_a_training_killed_before_its_first_checkpoint_is_not_continued_from_the_one_before(
    tmp_path,
):
    given = {"learner": "torch", "out": tmp_path, "final_episodes": 1}
    train("ddqn", "CartPole-v1", SHORT, checkpoint_every_s=0.01, **given)
    again = TrainSettings(**{**vars(SHORT), "learning_rate": 0.01, "steps": 10**9})

    def kill(_):
        shutil.copytree(tmp_path, killed)
        raise Stopped

    killed = tmp_path / "killed"
    with pytest.raises(Stopped):
        train("ddqn", "CartPole-v1", again, checkpoint_every_s=1000.0, report=kill, **given)
    assert not has_checkpoint(killed)
    again = TrainSettings(**{**vars(again), "steps": SHORT.steps})
    result = train("ddqn", "CartPole-v1", again, resume=True, **{**given, "out": killed})
    assert result.progress.steps == SHORT.steps
    assert result.episodes[0].step < SHORT.steps // 2


@pytest.mark.usefixtures("one_torch_thread")
def test_an_interrupted_pytorch_training_resumes_from_its_folder(tmp_path):
    settings = TrainSettings(**{**vars(SHORT), "steps": 4_000, "actors": 1})
    given = {"learner": "torch", "out": tmp_path / "run", "final_episodes": 1}
    found = []

    def report(progress):
        found.append(progress.steps)
        raise Stopped

    with pytest.raises(Stopped):
        train("ddqn", "CartPole-v1", settings, report=report, **given)
    assert 0 < found[0] < 4_000
    with pytest.raises(FailedPreconditionError, match="resume"):
        train("ddqn", "CartPole-v1", settings, **given)
    assert len(evaluate(tmp_path / "run", episodes=2)) == 2
    result = train("ddqn", "CartPole-v1", settings, resume=True, **given)
    assert result.progress.end == "all steps"
    assert result.progress.steps == 4_000
    assert json.loads((tmp_path / "run/settings.json").read_text())["end"] == "all steps"


@pytest.mark.usefixtures("one_torch_thread")
def test_the_state_of_other_networks_is_refused():
    from reverie.agents.torch_agent import TorchAgent
    from reverie.envs.pool import EnvPool

    with EnvPool("CartPole-v1", 1, num_workers=0) as pool:
        spec = pool.spec
    small, large = (TorchAgent("ddqn", spec, TrainSettings(seed=1, hidden=(n,))) for n in (8, 9))
    with pytest.raises(InvalidArgumentError, match="these networks"):
        large.load_state_dict(small.state_dict())
    with pytest.raises(InvalidArgumentError, match="these networks"):
        small.load_state_dict({})


def test_a_folder_is_free_although_a_forked_child_has_its_file(tmp_path):
    """As between the fork and the exec of any program that another thread starts."""
    lock = FolderLock(tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    lock.close()
    FolderLock(tmp_path).close()
    os.close(writing)
    os.waitpid(child, 0)


def test_a_forked_child_that_closes_a_lock_leaves_it_to_its_parent(tmp_path):
    lock = FolderLock(tmp_path)
    child = os.fork()
    if child == 0:
        lock.close()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(FailedPreconditionError, match="another training"):
        FolderLock(tmp_path)
    lock.close()


def test_a_loop_that_is_dropped_releases_its_folder(tmp_path):
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):  # without a with block
        agent = Linear()
        loop = Loop(agent, agent, "CartPole-v1", SHORT)
        loop.start()
        loop.wait(60.0)
        loop.save(tmp_path)
        loop.stop()
        del loop
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files


def test_a_loop_that_has_a_part_of_a_state_cannot_be_started(tmp_path, monkeypatch):
    class Refuses(Linear):
        def load_state_dict(self, state):  # noqa: ARG002
            raise RuntimeError("another shape")

    def load(agent, error):
        with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
            with pytest.raises(error):
                loop.load(tmp_path)
            with pytest.raises(FailedPreconditionError, match="stopped before"):
                loop.start()

    agent = Linear()
    with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
        loop.start()
        loop.wait(60.0)
        loop.save(tmp_path)
    load(Refuses(), RuntimeError)
    whole = loop_checkpoint.unpack

    def damaged(attached):
        numbers, arrays = whole(attached)
        return {name: value for name, value in numbers.items() if name != "waited_s"}, arrays

    monkeypatch.setattr(loop_checkpoint, "unpack", damaged)
    load(Linear(), DataLossError)
    monkeypatch.undo()
    with Loop(agent, agent, "CartPole-v1", SHORT) as loop:
        loop.load(tmp_path)
        loop.start()
        assert loop.wait(60.0)
