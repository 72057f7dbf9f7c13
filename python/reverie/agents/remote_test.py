"""Trainings whose actors are separate processes."""

import os
import signal
import subprocess
import sys
import threading
from itertools import islice

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie.agents import Trainer, TrainSettings, act, evaluate
from reverie.agents.checkpoints import describe
from reverie.errors import InvalidArgumentError, UnavailableError

CARTPOLE = TrainSettings(
    seed=3,
    steps=20_000,
    hidden=(64, 64),
    learning_rate=1e-3,
    tau=0.01,
    n_step=3,
    warmup_steps=500,
    epsilon_share=0.3,
    actors=0,
)


def _start(address):
    return subprocess.Popen(
        [sys.executable, "-m", "reverie", "act", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def start():
    started = []

    def one(address):
        started.append(_start(address))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_cartpole_is_trained_although_one_actor_is_killed_and_one_joins_late(start):
    with Trainer("ddqn", "CartPole-v1", CARTPOLE, listen="127.0.0.1:0") as trainer:
        actors = [start(trainer.address) for _ in range(2)]
        trainer.start()
        eventually(lambda: trainer.actors_elsewhere() == 2, 60.0)
        eventually(lambda: trainer.progress().steps > 3_000, 60.0)
        actors[0].kill()
        actors[0].communicate()
        eventually(lambda: trainer.actors_elsewhere() == 1, 10.0)
        late = start(trainer.address)
        eventually(lambda: trainer.actors_elsewhere() == 2 or trainer.wait(0.0), 60.0)
        assert trainer.wait(120.0)
        progress = trainer.progress()
        assert progress.end == "all steps"
        assert progress.steps >= 20_000
        assert progress.batches == progress.batch_count
        for process in (actors[1], late):
            out, _ = process.communicate(timeout=30.0)
            assert process.returncode == 0, out
            assert "the training is over" in out
        # A random policy gets about 22.
        assert np.mean(trainer.evaluate(episodes=10)) > 100


def test_any_program_can_receive_the_policy(start):
    with Trainer("dqn", "CartPole-v1", CARTPOLE, listen="127.0.0.1:0") as trainer:
        start(trainer.address)
        trainer.start()
        with reverie.Rpc() as rpc:
            rpc.connect(trainer.address)
            weights = reverie.Weights(rpc, "policy", sources=["learner"])
            first = weights.wait(timeout_s=30.0)
            later = weights.wait(above=first.version, timeout_s=30.0)
            assert later.value["parameters"].dtype == np.float32
            assert (later.value["parameters"] != first.value["parameters"]).any()


def test_an_actor_waits_for_a_lost_learner_to_return(start, tmp_path):
    words = [
        *(sys.executable, "-m", "reverie", "train", "--algorithm", "dqn", "--env", "CartPole-v1"),
        *("--seed", "1", "--hidden", "16", "--steps", "1000000000", "--checkpoint-every", "0.2"),
        *("--out", str(tmp_path)),
    ]
    learner = subprocess.Popen(
        [*words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = next(line for line in learner.stdout if "join by" in line).split()[-1]
        actor = start(address)
        acting = (line for line in islice(learner.stdout, 60) if "1 actors elsewhere" in line)
        assert int(next(acting).split()[0].replace(",", "")) > 0
        saved = {*(tmp_path / "checkpoints").glob("checkpoint-*")}
        eventually(lambda: {*(tmp_path / "checkpoints").glob("checkpoint-*")} - saved, 60.0)
        learner.kill()
        learner.communicate()
        learner = subprocess.Popen(
            [*words[:4], "--resume", "--out", str(tmp_path), "--listen", address],
            stdout=subprocess.PIPE,
            text=True,
        )
        begun = next(line for line in islice(learner.stdout, 60) if "going on from" in line)
        before = int(begun.split()[-1].replace(",", ""))
        lines = (line for line in islice(learner.stdout, 60) if line.split()[1:2] == ["steps"])
        assert any(int(line.split()[0].replace(",", "")) > before for line in lines)
        assert actor.poll() is None
    finally:
        learner.kill()
        learner.communicate()


def test_a_training_with_actors_elsewhere_is_evaluated_by_its_newest_checkpoint(tmp_path):
    settings = TrainSettings(
        **{**vars(CARTPOLE), "steps": 10**9, "hidden": (8,), "evaluation_interval": 200},
    )
    with Trainer("dqn", "CartPole-v1", settings, listen="127.0.0.1:0") as trainer:
        describe(tmp_path, trainer)
        trainer.start()
        actor = threading.Thread(target=act, args=[trainer.address])
        actor.start()
        eventually(lambda: len(trainer.evaluations()) > 1, 60.0)
        trainer.save(tmp_path / "checkpoints")
        returns = evaluate(tmp_path, episodes=3)
        assert trainer.progress().end == "running"
        trainer.stop()
        actor.join(30.0)
        trainer.save(tmp_path / "checkpoints")
        best = trainer.evaluate(trainer.best_policy(), episodes=3, seed=5)
        assert evaluate(tmp_path, episodes=3, seed=5) == best
    assert len(returns) == 3


def test_two_learners_train_with_actors_elsewhere_alone(tmp_path):
    settings = TrainSettings(**{**vars(CARTPOLE), "steps": 1_500, "learners": 2, "hidden": (8,)})
    with Trainer("dqn", "CartPole-v1", settings, listen="127.0.0.1:0") as trainer:
        describe(tmp_path, trainer)
        actor = threading.Thread(target=act, args=[trainer.address])
        actor.start()
        trainer.start()
        assert trainer.wait(60.0)
        actor.join(30.0)
        assert trainer.progress().batches == trainer.progress().batch_count
        trainer.save(tmp_path / "checkpoints")
    assert len(evaluate(tmp_path, episodes=2)) == 2
    with pytest.raises(InvalidArgumentError, match="listen"):
        Trainer("dqn", "CartPole-v1", settings)


def test_a_training_is_resumed_with_and_without_actors_elsewhere(tmp_path):
    settings = TrainSettings(seed=1, steps=900, hidden=(8,), warmup_steps=500, actors=0)
    with Trainer("dqn", "CartPole-v1", settings, listen="127.0.0.1:0") as trainer:
        actor = threading.Thread(target=act, args=[trainer.address])
        actor.start()
        eventually(lambda: trainer.progress().steps > 100, 60.0)
        trainer.save(tmp_path / "served")
        saved = trainer.progress().steps
    actor.join(30.0)
    with Trainer("dqn", "CartPole-v1", settings, resume=tmp_path / "served") as trainer:
        assert 100 < trainer.progress().steps <= saved
        trainer.save(tmp_path / "alone")
        trainer.start()
        assert trainer.wait(60.0)
        assert trainer.progress().end == "all steps"
    again = {"resume": tmp_path / "alone", "listen": "127.0.0.1:0"}
    with Trainer("dqn", "CartPole-v1", settings, **again) as trainer:
        trainer.start()
        act(trainer.address)
        assert trainer.wait(60.0)
        assert trainer.progress().steps >= 900


def test_training_continues_without_a_frozen_actor_and_takes_it_back(start):
    endless = TrainSettings(**{**vars(CARTPOLE), "steps": 10**9})
    with Trainer("ddqn", "CartPole-v1", endless, listen="127.0.0.1:0") as trainer:
        actors = [start(trainer.address) for _ in range(2)]
        trainer.start()
        eventually(lambda: trainer.actors_elsewhere() == 2, 60.0)
        os.kill(actors[0].pid, signal.SIGSTOP)
        eventually(lambda: trainer.actors_elsewhere() == 1, 60.0)
        before = trainer.progress()
        eventually(lambda: trainer.progress().batches > before.batches, 60.0)
        os.kill(actors[0].pid, signal.SIGCONT)
        eventually(lambda: trainer.actors_elsewhere() == 2, 60.0)
        assert trainer.progress().end == "running"


def test_a_frozen_learner_only_delays_its_actors(start):
    words = "--algorithm dqn --env CartPole-v1 --seed 1 --hidden 16 --steps 1000000000"
    learner = subprocess.Popen(
        [sys.executable, "-m", "reverie", "train", *words.split(), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = next(line for line in learner.stdout if "join by" in line).split()[-1]
        actors = [start(address) for _ in range(2)]
        assert any("2 actors elsewhere" in line for line in islice(learner.stdout, 120))
        learner.send_signal(signal.SIGSTOP)
        # An actor that is interrupted meanwhile ends.
        actors[0].send_signal(signal.SIGINT)
        actors[0].communicate(timeout=30.0)
        assert actors[0].returncode == 130
        learner.send_signal(signal.SIGCONT)
        lines = (line for line in islice(learner.stdout, 120) if "1 actors elsewhere" in line)
        before, after = (int(next(lines).split()[0].replace(",", "")) for _ in range(2))
        assert after > before
        assert actors[1].poll() is None
    finally:
        learner.kill()
        learner.communicate()


def test_ctrl_c_ends_an_actor_at_once(start):
    slow = TrainSettings(seed=1, steps=10**6, warmup_steps=100, hidden=(16,), actors=0)
    with Trainer("dqn", "CartPole-v1", slow, listen="127.0.0.1:0") as trainer:
        actor = start(trainer.address)
        # The training was not started, so after lead_steps the actor waits for learners.
        eventually(lambda: trainer.progress().steps >= 100, 60.0)
        os.kill(actor.pid, signal.SIGINT)
        out, _ = actor.communicate(timeout=10.0)
        assert actor.returncode == 130
        assert "interrupted" in out


def test_remote_actors_run_in_threads_and_beside_the_learners_own_actors():
    settings = TrainSettings(seed=1, steps=5_000, warmup_steps=100, hidden=(16,), actors=1)
    with Trainer("sac", "Pendulum-v1", settings, listen="127.0.0.1:0") as trainer:
        trainer.start()
        done = []
        threads = [
            threading.Thread(target=lambda: done.append(act(trainer.address))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert trainer.wait(120.0)
        for thread in threads:
            thread.join(30.0)
        assert [one.trainings for one in done] == [1, 1]
        assert sum(one.steps for one in done) > 0


def test_actors_that_are_stepping_when_a_training_is_closed_are_told():
    settings = TrainSettings(seed=1, steps=10**7, hidden=(16,), warmup_steps=10**6, actors=0)
    done = []
    with Trainer("dqn", "CartPole-v1", settings, listen="127.0.0.1:0") as trainer:
        trainer.start()
        threads = [
            threading.Thread(target=lambda: done.append(act(trainer.address))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: trainer.actors_elsewhere() == 3, 60.0)
    for thread in threads:
        thread.join(30.0)
    assert [one.trainings for one in done] == [1, 1, 1]


def test_actors_are_told_though_two_threads_close_a_training():
    settings = TrainSettings(seed=1, steps=10**7, hidden=(16,), warmup_steps=10**6, actors=0)
    for _ in range(5):
        done = []
        trainer = Trainer("dqn", "CartPole-v1", settings, listen="127.0.0.1:0")
        trainer.start()
        address = trainer.address
        actor = threading.Thread(target=lambda to=address, done=done: done.append(act(to)))
        actor.start()
        eventually(lambda trainer=trainer: trainer.actors_elsewhere() == 1, 60.0)
        closers = [
            threading.Thread(target=trainer.__exit__, args=(None, None, None)) for _ in range(2)
        ]
        for thread in closers:
            thread.start()
        for thread in (*closers, actor):
            thread.join(30.0)
        assert [one.trainings for one in done] == [1]


def test_wrong_addresses_are_refused():
    with pytest.raises(InvalidArgumentError, match="here"):
        Trainer("dqn", "CartPole-v1", listen="here")
    with pytest.raises(InvalidArgumentError, match="insecure"):
        Trainer("dqn", "CartPole-v1", listen="0.0.0.0:0")
    with pytest.raises(UnavailableError, match="no training answers"):
        act("127.0.0.1:1", patience_s=0.0)
