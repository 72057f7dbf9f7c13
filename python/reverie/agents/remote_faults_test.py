"""Actors in other processes whose training ends, restarts or stands still at a bad moment."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest

from eventually import eventually
from reverie.agents import Trainer, TrainSettings, act, remote
from reverie.errors import InvalidArgumentError, ResourceExhaustedError

gymnasium = pytest.importorskip("gymnasium")

ENDLESS = TrainSettings(seed=1, steps=10**7, hidden=(8,), warmup_steps=10**6, actors=0)

# Environments that can be held within a step, or while they are made.
MODULE = """
    import threading
    import time

    import gymnasium
    import numpy as np

    begun = []  # an entry for each that came here
    free = threading.Event()
    free.set()


    def pass_when_free():
        begun.append(True)
        assert free.wait(60.0)


    class Held(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, within="step", step_s=0.0):
            self.within, self.step_s = within, step_s
            if within == "init":
                pass_when_free()

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            time.sleep(self.step_s)
            if self.within == "step":
                pass_when_free()
            return np.zeros(2, np.float32), 0.0, False, False, {}


    gymnasium.register("Held-v0", Held, disable_env_checker=True)
"""
ENV = "held_envs:Held-v0"

# A learner that says how many actors it has for each line that it is given; it does not close its
# training before it ends.
LEARNER = """
import sys

from reverie.agents import Trainer, TrainSettings

address, steps, envs, step_s = sys.argv[1], *map(float, sys.argv[2:])
settings = TrainSettings(
    seed=1, steps=int(steps), hidden=(8,), warmup_steps=100, actors=0, envs_per_actor=int(envs)
)
trainer = Trainer(
    "dqn",
    "held_envs:Held-v0",
    settings,
    env_options={"step_s": step_s},
    env_backend="thread",
    listen=address,
)
trainer.start()
print(trainer.address, flush=True)
for _ in sys.stdin:
    print(trainer.actors_elsewhere(), flush=True)
"""


@pytest.fixture
def held(tmp_path, monkeypatch):
    (tmp_path / "held_envs.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    paths = (str(tmp_path), os.environ.get("PYTHONPATH"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    import held_envs

    yield held_envs
    held_envs.free.set()
    sys.modules.pop("held_envs", None)
    gymnasium.registry.pop("Held-v0", None)


@pytest.fixture
def start():
    started = []

    def one(address="127.0.0.1:0", *, steps=10**7, envs=1, step_s=0.0):
        words = [sys.executable, "-c", LEARNER, address, *map(str, (steps, envs, step_s))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(words, **pipes, text=True, bufsize=1))
        return started[-1], started[-1].stdout.readline().strip()

    yield one
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _acting(address, patience_s=0.5):
    """An actor on a thread of its own; ``end`` gives what it has done, or raised."""
    ended = []

    def run():
        try:
            ended.append(act(address, patience_s=patience_s))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end():
        thread.join(60.0)
        return ended[0]

    return SimpleNamespace(end=end, ended=ended)


def _trainer(within):
    return Trainer(
        "dqn",
        ENV,
        ENDLESS,
        env_options={"within": within},
        env_backend="thread",
        listen="127.0.0.1:0",
    )


@pytest.mark.parametrize("within", ["step", "init"])
def test_an_actor_within_a_long_step_is_told_that_its_training_is_closed(held, within):
    with _trainer(within) as trainer:
        trainer.start()
        held.free.clear()
        held.begun.clear()
        actor = _acting(trainer.address)
        eventually(lambda: held.begun)
    held.free.set()
    done = actor.end()
    assert isinstance(done, remote.Acted), done
    assert done.trainings == 1


def test_actors_of_a_training_that_is_dropped_are_told(held):
    trainer = _trainer("step")
    trainer.start()
    held.free.clear()
    actor = _acting(trainer.address)
    eventually(lambda: held.begun)
    del trainer
    gc.collect()
    held.free.set()
    done = actor.end()
    assert isinstance(done, remote.Acted), done


def test_actors_of_a_training_that_is_not_closed_end_with_its_program(held, start):
    learner, address = start()
    held.free.clear()
    actors = [_acting(address) for _ in range(3)]
    eventually(lambda: len(held.begun) == 3)
    learner.stdin.close()
    assert learner.wait(60.0) == 0
    held.free.set()
    for actor in actors:
        done = actor.end()
        assert isinstance(done, remote.Acted), done


def test_an_actor_joins_again_when_its_learner_was_restarted_within_a_step(held, start):
    first, address = start()
    held.free.clear()
    actor = _acting(address, patience_s=60.0)
    eventually(lambda: held.begun)
    first.kill()
    first.wait()
    start(address, steps=400, envs=2)
    held.free.set()
    done = actor.end()
    assert isinstance(done, remote.Acted), done
    assert done.trainings == 2
    assert done.steps > 300


def test_actors_rejoin_though_their_old_places_are_not_free_yet(held, start):  # noqa: ARG001
    learner, address = start(step_s=0.05)
    actors = [_acting(address, patience_s=20.0) for _ in range(40)]

    def actors_elsewhere():
        learner.stdin.write("\n")
        return int(learner.stdout.readline())

    eventually(lambda: actors_elsewhere() == 40)
    learner.send_signal(signal.SIGSTOP)
    until = time.monotonic() + 2.5  # a peer that is silent for 1.5 s is dead
    eventually(lambda: time.monotonic() > until)
    learner.send_signal(signal.SIGCONT)
    eventually(lambda: actors_elsewhere() == 40)
    assert [actor.ended for actor in actors] == [[]] * 40
    learner.stdin.close()
    assert learner.wait(60.0) == 0
    done = [actor.end() for actor in actors]
    assert all(isinstance(one, remote.Acted) for one in done), done
    assert sum(one.trainings for one in done) > 40


def test_an_actor_without_a_place_tries_again_until_its_patience_is_over(monkeypatch):
    tries = []

    def refuse(actor):
        tries.append(actor)
        raise ResourceExhaustedError("the training has 64 remote actors, which is its maximum")

    monkeypatch.setattr(remote._Actor, "run", refuse)
    with (
        Trainer("dqn", "CartPole-v1", ENDLESS, listen="127.0.0.1:0") as trainer,
        pytest.raises(ResourceExhaustedError, match="64 remote actors"),
    ):
        act(trainer.address, patience_s=1.0)
    assert len(tries) > 1


def test_a_secret_without_an_address_is_not_printed():
    with pytest.raises(InvalidArgumentError, match="token is given without listen") as caught:
        Trainer("dqn", "CartPole-v1", token="a secret of 32 characters, or more")
    assert "secret" not in str(caught.value)
