"""Trainings whose processes are killed, frozen or too many, and what is saved of them."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from eventually import eventually
from reverie.agents import Loop, Trainer, TrainSettings
from reverie.errors import (
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
)

SHORT = TrainSettings(seed=3, steps=600, hidden=(16,), warmup_steps=100, batch_size=16)


def outcome(trainer):
    return trainer.episodes(), trainer.policy().parameters.tobytes()


def workers():
    """The living child processes of this process."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def test_a_training_can_be_dropped_while_an_exception_is_raised():
    pytest.importorskip("gymnasium")

    def trained():
        trainer = Trainer("dqn", "CliffWalking-v1", SHORT)  # whose environments are in Python
        trainer.start()
        assert trainer.wait(30.0)
        return trainer

    before = workers()
    with pytest.raises(KeyError, match="missing"):
        [trained(), {}["missing"]]
    eventually(lambda: workers() == before)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("actors", [0, 2])
def test_a_killed_or_frozen_worker_is_reported_and_the_training_is_kept(tmp_path, actors, how):
    pytest.importorskip("gymnasium")
    settings = TrainSettings(**{**vars(SHORT), "actors": actors})
    options = {"env_backend": "process", "env_timeout_s": 1.0 if how == signal.SIGSTOP else 60.0}
    if actors == 0:
        with Trainer("dqn", "CartPole-v1", settings, **options) as trainer:
            trainer.start()
            trainer.wait()
            expected = outcome(trainer)
    before = workers()
    expected_error = EnvError if how == signal.SIGKILL else DeadlineExceededError
    with Trainer("dqn", "CartPole-v1", settings, **options) as trainer:
        mine = workers() - before
        assert mine
        trainer.start()
        eventually(lambda: trainer.progress().batches > 0)
        os.kill(min(mine), how)
        with pytest.raises(expected_error, match="CartPole"):
            trainer.wait(60)
        failed = trainer.progress()
        assert failed.end == "failed"
        assert np.isfinite(trainer.policy().parameters).all()
        trainer.save(tmp_path / "it")
    eventually(lambda: not mine & workers())
    options["env_timeout_s"] = 60.0
    with Trainer("dqn", "CartPole-v1", settings, resume=tmp_path / "it", **options) as trainer:
        assert trainer.progress().batches == failed.batches
        trainer.start()
        assert trainer.wait(60)
        assert trainer.progress().end == "all steps"
        if actors == 0:
            assert outcome(trainer) == expected


HUGE = """
    import gymnasium
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv


    class Huge(CartPoleEnv):
        '''One reward in a run is more than float32 holds, once it is scaled.'''

        steps = 0

        def step(self, action):
            Huge.steps += 1
            observation, reward, *rest = super().step(action)
            return observation, 1e38 if Huge.steps == 150 else float(reward), *rest


    gymnasium.register("Huge-v0", Huge)
"""


@pytest.fixture
def huge(tmp_path, monkeypatch):
    gymnasium = pytest.importorskip("gymnasium")
    (tmp_path / "huge_envs.py").write_text(textwrap.dedent(HUGE))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "huge_envs:Huge-v0"
    sys.modules.pop("huge_envs", None)
    gymnasium.registry.pop("Huge-v0", None)


def test_a_training_resumes_from_the_weights_before_a_gradient_that_was_not_finite(huge, tmp_path):
    settings = TrainSettings(
        **{
            **vars(SHORT),
            "prioritized": False,
            "huber_delta": float("inf"),
            "reward_scale": 1000.0,
            "capacity": 100,
        }
    )
    resume, batches = None, [0]
    for _ in range(100):
        with Trainer("dqn", huge, settings, env_backend="thread", resume=resume) as trainer:
            before = trainer.policy().parameters
            trainer.start()
            with contextlib.suppress(InvalidArgumentError):
                if trainer.wait(60):
                    break
                raise AssertionError
            with pytest.raises(InvalidArgumentError, match=r"value network.*of layer \d"):
                trainer.wait(0)
            assert np.isfinite(trainer.policy().parameters).all()
            batches.append(trainer.progress().batches)
            if batches[-1] > batches[-2]:
                assert (trainer.policy().parameters != before).any()
            resume = trainer.save(tmp_path / "it")
    assert len(batches) > 1  # the fault occurred
    assert batches == sorted(batches)
    assert trainer.progress().end == "all steps"
    assert trainer.progress().batches == trainer.progress().batch_count


CROWD = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from reverie.__main__ import main
given = "--algorithm ddqn --env CartPole-v1 --hidden 16 --seed 1 --steps 3000 --final-episodes 1"
sys.exit(main(["train", *given.split(), *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    "flags",
    [
        ["--actors", "auto", "--learners", "auto"],
        ["--actors", "9", "--learners", "5"],
        ["--actors", "9", "--learners", "5", "--asynchronous"],
        ["--actors", "3", "--env-backend", "process"],
    ],
)
def test_many_actors_and_learners_can_train_on_one_core(flags):
    if "process" in flags:
        pytest.importorskip("gymnasium")
    done = subprocess.run(
        [sys.executable, "-c", CROWD, *flags], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all steps" in done.stdout


# --- A user's policy or learner that never returns.


class Stuck:
    def __init__(self, what):
        self.what = what
        self.entered, self.opened = threading.Event(), threading.Event()

    def _stand(self, what):
        if what == self.what and not self.opened.is_set():
            self.entered.set()
            assert self.opened.wait(60)

    def act(self, observation, *, step, explore):  # noqa: ARG002
        if step > 120:
            self._stand("act")
        return np.zeros(len(observation), int)

    def learn(self, batch, *, progress):  # noqa: ARG002
        self._stand("learn")
        return np.ones(len(batch["reward"]))

    def state_dict(self):
        return {"w": np.zeros(1)}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("actors", [0, 1])
@pytest.mark.parametrize("what", ["act", "learn"])
def test_an_agent_that_does_not_return_ends_the_training(tmp_path, actors, what):
    settings = TrainSettings(**{**vars(SHORT), "actors": actors})
    agent = Stuck(what)
    with Loop(agent, agent, "CartPole-v1", settings, agent_timeout_s=0.5) as loop:
        loop.start()
        with pytest.raises(DeadlineExceededError, match=rf"{what}\(\).*agent_timeout_s"):
            loop.wait(60)
        with pytest.raises(DeadlineExceededError):  # the error is raised again
            loop.wait(0)
        assert loop.progress().end == "failed"
        with pytest.raises(FailedPreconditionError, match="half of a step"):
            loop.save(tmp_path / "it")
        loop.stop()  # must return at once
        agent.opened.set()
        assert eventually(lambda: not any(thread.is_alive() for thread in loop._threads))


@pytest.mark.parametrize("actors", [0, 1])
def test_stop_gives_up_on_an_agent_that_does_not_return(actors):
    settings = TrainSettings(**{**vars(SHORT), "actors": actors})
    agent = Stuck("learn")
    loop = Loop(agent, agent, "CartPole-v1", settings, agent_timeout_s=0.5)
    loop.start()
    assert agent.entered.wait(60)
    with pytest.raises(DeadlineExceededError, match="learn"):
        loop.stop()
    loop.__exit__(None, None, None)
    assert loop.progress().end == "stopped"
    agent.opened.set()
    assert eventually(lambda: not any(thread.is_alive() for thread in loop._threads))
