"""Trainings that are saved, interrupted and resumed."""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie.__main__ import main
from reverie.agents import Trainer, TrainSettings, evaluate, train
from reverie.agents.checkpoints import CHECKPOINTS, Checkpoints, described_in, has_checkpoint
from reverie.errors import (
    DataLossError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnimplementedError,
)

ROOT = Path(__file__).resolve().parents[3]
SHORT = TrainSettings(
    seed=3, steps=1_500, hidden=(16,), warmup_steps=100, batch_size=16, n_step=3, capacity=600
)
CONTINUOUS = TrainSettings(
    seed=3, steps=400, hidden=(16,), warmup_steps=100, batch_size=16, capacity=250
)


def outcome(trainer):
    return trainer.episodes(), trainer.evaluations(), trainer.policy().parameters.tobytes()


def run_through(algorithm, env, settings, **options):
    with Trainer(algorithm, env, settings, **options) as trainer:
        trainer.start()
        trainer.wait()
        return outcome(trainer)


def run_in_parts(algorithm, env, settings, path, stops, **options):
    """Interrupts a training after about so many steps, saves it, and resumes it in another."""
    resume = None
    for stop in [*stops, None]:
        with Trainer(algorithm, env, settings, resume=resume, **options) as trainer:
            trainer.start()
            if stop is None:
                trainer.wait()
                return outcome(trainer)
            eventually(lambda: trainer.progress().steps >= stop or trainer.wait(0))  # noqa: B023
            trainer.stop()
            trainer.save(path)
            resume = path
    raise AssertionError


@pytest.mark.parametrize(
    ("algorithm", "env", "settings", "options"),
    [
        ("ddqn", "CartPole-v1", {"evaluation_interval": 400, "envs_per_actor": 2}, {}),
        ("dqn", "CartPole-v1", {"prioritized": False, "tau": 0.01}, {}),
        (
            "dqn",
            "CartPole-v1",
            {"weights_over_buffer": True, "steps": 600},
            {"env_backend": "thread"},
        ),
    ],
)
def test_an_interrupted_training_ends_bit_for_bit_as_a_whole_one(
    tmp_path, algorithm, env, settings, options
):
    whole = TrainSettings(**{**vars(SHORT), **settings})
    stops = sorted(random.Random(7).sample(range(1, whole.steps), 5))
    expected = run_through(algorithm, env, whole, **options)
    assert run_in_parts(algorithm, env, whole, tmp_path / "it", stops, **options) == expected


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_continuous_algorithms_resume_bit_for_bit(tmp_path, algorithm):
    expected = run_through(algorithm, "Pendulum-v1", CONTINUOUS)
    parts = run_in_parts(algorithm, "Pendulum-v1", CONTINUOUS, tmp_path / "it", [50, 200, 390])
    assert parts == expected


@pytest.mark.full
def test_a_training_interrupted_twenty_times_ends_bit_for_bit_the_same(tmp_path):
    settings = TrainSettings(seed=5, steps=20_000, hidden=(32,), n_step=3, capacity=7_000)
    stops = sorted(random.Random(1).sample(range(1, settings.steps), 20))
    for env in ("CartPole-v1", "LunarLander-v3"):
        expected = run_through("ddqn", env, settings)
        assert run_in_parts("ddqn", env, settings, tmp_path / env, stops) == expected


def test_lunar_lander_resumes_bit_for_bit(tmp_path):
    settings = TrainSettings(**{**vars(SHORT), "steps": 900})
    try:
        expected = run_through("ddqn", "LunarLander-v3", settings)
    except NotFoundError:
        pytest.skip("this build has no LunarLander")
    parts = run_in_parts("ddqn", "LunarLander-v3", settings, tmp_path / "it", [150, 477, 700])
    assert parts == expected


GATED = """
    import threading

    import gymnasium
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv


    class Gated(CartPoleEnv):
        armed = False
        entered = threading.Event()
        opened = threading.Event()
        steps = 0

        def step(self, action):
            Gated.steps += 1
            if Gated.armed and Gated.steps == 150:
                Gated.entered.set()
                Gated.opened.wait(60)
            return super().step(action)


    gymnasium.register("Gated-v0", Gated)
"""


def test_a_step_interrupted_by_stop_is_taken_again_on_resume(tmp_path, monkeypatch):
    gymnasium = pytest.importorskip("gymnasium")
    (tmp_path / "gated_envs.py").write_text(textwrap.dedent(GATED))
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = TrainSettings(**{**vars(SHORT), "steps": 300})
    env, options = "gated_envs:Gated-v0", {"env_backend": "thread"}
    try:
        expected = run_through("dqn", env, settings, **options)
        gated = sys.modules["gated_envs"].Gated
        gated.steps, gated.armed = 0, True
        with Trainer("dqn", env, settings, **options) as trainer:
            trainer.start()
            assert gated.entered.wait(60)
            trainer.stop()
            gated.opened.set()
            assert trainer.progress().steps == 149
            trainer.save(tmp_path / "it")
        gated.armed = False
        with Trainer("dqn", env, settings, resume=tmp_path / "it", **options) as trainer:
            trainer.start()
            trainer.wait()
            assert outcome(trainer) == expected
    finally:
        sys.modules.pop("gated_envs", None)
        gymnasium.registry.pop("Gated-v0", None)


def test_saving_during_training_does_not_change_the_run(tmp_path):
    expected = run_through("ddqn", "CartPole-v1", SHORT)
    with Trainer("ddqn", "CartPole-v1", SHORT) as trainer:
        trainer.start()
        eventually(lambda: trainer.save(tmp_path / "it") and trainer.wait(0), 600)
        assert outcome(trainer) == expected
    with Trainer("ddqn", "CartPole-v1", SHORT, resume=tmp_path / "it") as trainer:
        trainer.start()
        trainer.wait()
        assert outcome(trainer) == expected


@pytest.mark.parametrize("asynchronous", [False, True])
def test_actors_and_learners_pause_while_a_checkpoint_is_saved(tmp_path, asynchronous):
    settings = TrainSettings(
        seed=1,
        steps=6_000,
        hidden=(16,),
        warmup_steps=200,
        actors=2,
        learners=2,
        envs_per_actor=2,
        asynchronous=asynchronous,
    )
    path = tmp_path / "it"
    with Trainer("ddqn", "CartPole-v1", settings) as trainer:
        trainer.start()
        eventually(lambda: trainer.progress().batches >= 200)
        for _ in range(20):
            trainer.save(path)
        before = trainer.progress()
        trainer.stop()
    with Trainer("ddqn", "CartPole-v1", settings, resume=path) as trainer:
        begin = trainer.progress()
        assert 200 <= begin.batches <= before.batches
        assert begin.updates > 0
        trainer.start()
        assert trainer.wait(60)
        end = trainer.progress()
    assert end.end == "all steps"
    assert end.batches == end.batch_count
    assert end.elapsed_s > begin.elapsed_s > 0


def test_several_threads_may_save_at_once(tmp_path):
    settings = TrainSettings(**{**vars(SHORT), "steps": 10**9})
    with Trainer("dqn", "CartPole-v1", settings) as trainer:
        trainer.start()
        threads = [
            threading.Thread(target=trainer.save, args=(tmp_path / str(i),)) for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for i in range(3):
        Trainer("dqn", "CartPole-v1", settings, resume=tmp_path / str(i))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "it"
    settings = TrainSettings(seed=1, steps=300, hidden=(8,), warmup_steps=50, capacity=50)
    with Trainer("dqn", "CartPole-v1", settings) as trainer:
        trainer.start()
        trainer.wait()
        trainer.save(path)
    return settings, path


@pytest.mark.parametrize(
    ("algorithm", "env", "settings", "words"),
    [
        ("ddqn", "CartPole-v1", {}, "dqn in CartPole-v1"),
        ("dqn", "MountainCar-v0", {}, "MountainCar-v0"),
        ("dqn", "CartPole-v1", {"batch_size": 32}, "batch_size 64.*32"),
        ("dqn", "CartPole-v1", {"seed": 2}, "seed"),
        ("dqn", "CartPole-v1", {"tau": 0.01}, "tau 0, .*0.01.*may differ: steps, "),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(saved, algorithm, env, settings, words):
    given = TrainSettings(**{**vars(saved[0]), **settings})
    with pytest.raises(InvalidArgumentError, match=words):
        Trainer(algorithm, env, given, resume=saved[1])


def test_a_training_resumes_with_more_steps_and_another_learning_rate(saved, tmp_path):
    settings, path = saved
    changed = {"steps": 900, "learning_rate": 1e-5, "evaluation_interval": 100}
    policies = []
    for more in ({}, changed, {**changed, "learning_rate": 1e-3}):
        with Trainer(
            "dqn", "CartPole-v1", TrainSettings(**{**vars(settings), **more}), resume=path
        ) as trainer:
            before = trainer.policy().parameters.copy()
            trainer.start()
            trainer.wait()
            assert trainer.progress().steps == (900 if more else 300)
            assert trainer.evaluations() or not more
            policies.append((before, trainer.policy().parameters.copy()))
            trainer.save(tmp_path / str(len(policies)))
    (saved_before, unchanged), (_, slow), (_, fast) = policies
    assert (saved_before == unchanged).all()
    assert 0 < abs(slow - unchanged).max() < abs(fast - unchanged).max() / 5
    with Trainer(
        "dqn",
        "CartPole-v1",
        TrainSettings(**{**vars(settings), **changed}),
        resume=tmp_path / "2",
    ) as trainer:
        assert (trainer.policy().parameters == slow).all()


def test_a_damaged_checkpoint_is_refused(saved, tmp_path):
    settings, path = saved
    draw = random.Random(3)
    (newest,) = path.glob("checkpoint-*")
    copy = tmp_path / newest.name
    shutil.copytree(newest, copy)
    for file in sorted(copy.iterdir()):
        whole = file.read_bytes()
        for place in [0, 9, *draw.sample(range(16, len(whole)), 10)]:
            damaged = bytearray(whole)
            damaged[place] ^= 1 << draw.randrange(8)
            file.write_bytes(damaged)
            with pytest.raises((DataLossError, UnimplementedError)):
                Trainer("dqn", "CartPole-v1", settings, resume=copy)
        for size in [0, 17, *draw.sample(range(len(whole)), 5)]:
            file.write_bytes(whole[:size])
            with pytest.raises(DataLossError):
                Trainer("dqn", "CartPole-v1", settings, resume=copy)
        file.write_bytes(whole)
    Trainer("dqn", "CartPole-v1", settings, resume=copy)
    with pytest.raises(NotFoundError):
        Trainer("dqn", "CartPole-v1", settings, resume=tmp_path / "none")
    with pytest.raises(InvalidArgumentError, match="file"):
        Trainer("dqn", "CartPole-v1", settings, resume=copy / "manifest")


def test_checkpoints_of_trainings_and_buffers_are_not_interchangeable(saved, tmp_path):
    buffer = reverie.ReplayBuffer(5)
    buffer.add(obs=0.0, action=1, reward=1.0, next_obs=1.0, terminated=False)
    buffer.save(tmp_path / "it")
    with pytest.raises(InvalidArgumentError, match="no checkpoint of a training"):
        Trainer("dqn", "CartPole-v1", saved[0], resume=tmp_path / "it")
    with pytest.raises(InvalidArgumentError, match="no checkpoint of a ReplayBuffer"):
        reverie.ReplayBuffer.load(saved[1])


def test_a_full_disk_keeps_the_old_checkpoint(saved, tmp_path):
    settings, path = saved
    kept = tmp_path / "it"
    shutil.copytree(path, kept)
    before = sorted(os.listdir(kept))
    with Trainer("dqn", "CartPole-v1", settings, resume=kept) as trainer:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(ResourceExhaustedError):
                trainer.save(kept)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        with pytest.raises(InvalidArgumentError, match="file"):
            trainer.save(__file__)
    assert sorted(os.listdir(kept)) == before
    Trainer("dqn", "CartPole-v1", settings, resume=kept)


def test_only_one_training_at_a_time_can_save_into_a_folder(saved, tmp_path):
    settings, path = saved
    with Trainer("dqn", "CartPole-v1", settings, resume=path) as first:
        folder = first.save(tmp_path / "it")
        assert folder == str(tmp_path / "it" / "checkpoint-0000000001")
        second = Trainer("dqn", "CartPole-v1", settings, resume=folder)
        with pytest.raises(FailedPreconditionError, match="it"):
            second.save(tmp_path / "it")
        first.save(tmp_path / "other")
        assert second.save(tmp_path / "it").endswith("-0000000002")
    assert [name for name in os.listdir(tmp_path / "it") if name.startswith("checkpoint")] == [
        "checkpoint-0000000002"
    ]


def save_of_threads(settings, path):
    """Saves a whole training in environments that are stepped in Python."""
    with Trainer("dqn", "CartPole-v1", settings, env_backend="thread") as trainer:
        trainer.start()
        trainer.wait()
        trainer.save(path)


def test_resuming_refuses_an_environment_that_does_not_repeat_itself(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    settings = TrainSettings(**{**vars(SHORT), "steps": 300})
    save_of_threads(settings, tmp_path / "it")
    monkeypatch.setattr("reverie.agents.episodes.episode_seed", lambda *_: 12345)
    with pytest.raises((FailedPreconditionError, EnvError), match="does not repeat"):
        Trainer("dqn", "CartPole-v1", settings, env_backend="thread", resume=tmp_path / "it")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_an_environment_raises_while_it_is_resumed_is_raised(tmp_path, monkeypatch, error):
    pytest.importorskip("gymnasium")
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv

    settings = TrainSettings(**{**vars(SHORT), "steps": 150})
    save_of_threads(settings, tmp_path / "it")

    def fail(*_):
        if error is KeyboardInterrupt:  # of the main thread, which waits for the step
            signal.raise_signal(signal.SIGINT)
        raise ValueError("the sensor is gone")

    monkeypatch.setattr(CartPoleEnv, "step", fail)
    expected = EnvError if error is ValueError else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        Trainer("dqn", "CartPole-v1", settings, env_backend="thread", resume=tmp_path / "it")
    assert error is KeyboardInterrupt or "sensor" in str(caught.value)


def test_train_resumes_from_its_folder(tmp_path):
    with pytest.raises(InvalidArgumentError, match="out"):
        train("dqn", "CartPole-v1", SHORT, resume=True)
    whole = train("ddqn", "CartPole-v1", SHORT, final_episodes=2)

    class EnoughError(Exception):
        pass

    def give_up(_progress):
        raise EnoughError

    endless = TrainSettings(**{**vars(SHORT), "steps": 30_000_000})
    with pytest.raises(EnoughError):
        train("ddqn", "CartPole-v1", endless, out=tmp_path / "long", report=give_up)
    assert has_checkpoint(tmp_path / "long")
    for another in (SHORT, endless):
        with pytest.raises(FailedPreconditionError, match="is not finished"):
            train("ddqn", "CartPole-v1", another, out=tmp_path / "long")
    first = train("ddqn", "CartPole-v1", SHORT, out=tmp_path / "run", final_episodes=2)
    again = train(
        "ddqn",
        "CartPole-v1",
        TrainSettings(**{**vars(SHORT), "seed": None}),
        out=tmp_path / "run",
        resume=True,
        final_episodes=2,
    )
    assert first.episodes == again.episodes == whole.episodes
    np.testing.assert_array_equal(again.policy.parameters, whole.policy.parameters)


def test_a_checkpoint_that_cannot_be_written_during_training_warns(tmp_path):
    with Trainer("dqn", "CartPole-v1", SHORT) as trainer:
        trainer.start()
        (tmp_path / CHECKPOINTS).write_text("in the way")
        checkpoints = Checkpoints(trainer, tmp_path, 1e-9)
        with pytest.warns(RuntimeWarning, match="no checkpoint was written"):
            checkpoints.save_when_due()
        trainer.wait()
        with pytest.raises(InvalidArgumentError), checkpoints:
            raise AssertionError
        (tmp_path / CHECKPOINTS).unlink()


def test_a_temporarily_full_disk_loses_no_step(tmp_path):
    expected = run_through("dqn", "CartPole-v1", SHORT)
    with (
        Trainer("dqn", "CartPole-v1", SHORT) as trainer,
        Checkpoints(trainer, tmp_path, 1e-9) as it,
    ):
        trainer.start()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            with pytest.warns(RuntimeWarning, match="no checkpoint was written"):
                it.save_when_due()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        it.save_when_due()
        trainer.wait()
        assert outcome(trainer) == expected
    with Trainer("dqn", "CartPole-v1", SHORT, resume=tmp_path / CHECKPOINTS) as trainer:
        assert outcome(trainer) == expected


def test_evaluate_uses_the_checkpoint_if_there_is_no_policy_file(tmp_path):
    train("ddqn", "CartPole-v1", SHORT, out=tmp_path, final_episodes=1)
    expected = evaluate(tmp_path, episodes=3)
    (tmp_path / "policy.safetensors").unlink()
    assert evaluate(tmp_path, episodes=3) == expected
    shutil.rmtree(tmp_path / CHECKPOINTS)
    with pytest.raises(NotFoundError, match="policy"):
        evaluate(tmp_path)


def test_a_training_that_is_over_leaves_its_folder_to_others(tmp_path):
    with Trainer("ddqn", "CartPole-v1", SHORT) as first:
        first.start()
        first.wait()
        first.save(tmp_path)
    with Trainer("ddqn", "CartPole-v1", SHORT, resume=tmp_path) as second:
        second.save(tmp_path)
    assert first.progress().steps == second.progress().steps


def test_a_folder_is_locked_while_a_training_uses_it(tmp_path):
    locked = pytest.raises(FailedPreconditionError, match="locked")
    with Trainer("ddqn", "CartPole-v1", SHORT) as first, Checkpoints(first, tmp_path, 60.0), locked:
        train("ddqn", "CartPole-v1", SHORT, out=tmp_path, final_episodes=1)
    # A finished training is replaced.
    for _ in range(2):
        train("ddqn", "CartPole-v1", SHORT, out=tmp_path / "twice", final_episodes=1)


def test_a_failed_final_checkpoint_does_not_hide_an_error(tmp_path):
    def fail():
        shutil.rmtree(tmp_path / CHECKPOINTS)
        (tmp_path / CHECKPOINTS).write_text("in the way")
        raise ZeroDivisionError

    with Trainer("dqn", "CartPole-v1", SHORT) as trainer:
        told = pytest.warns(RuntimeWarning, match=CHECKPOINTS)
        with told, pytest.raises(ZeroDivisionError), Checkpoints(trainer, tmp_path, 60.0):
            fail()


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "reverie", "train", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def test_ctrl_c_leaves_a_checkpoint_and_nothing_else(tmp_path):
    pytest.importorskip("gymnasium")
    out = tmp_path / "run"
    arguments = "--algorithm dqn --env CartPole-v1 --hidden 16 --seed 1 --steps 1000000000"
    shared = set(os.listdir("/dev/shm"))
    process = command(*arguments.split(), "--env-backend", "process", "--out", str(out))
    for line in process.stdout:
        if "gradient steps/s" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[0]
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert set(os.listdir("/dev/shm")) <= shared
    assert {"checkpoints", "curve.csv", "policy.safetensors"} <= set(os.listdir(out))
    assert len(list((out / CHECKPOINTS).glob("checkpoint-*"))) == 1
    assert not list((out / CHECKPOINTS).glob("tmp-*"))
    assert len(evaluate(out, episodes=1)) == 1


def in_group(group):
    """The living processes of a group, by their command lines."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().rpartition(")")
            if int(rest.split()[2]) == group and rest.split()[0] != "Z":
                found.append(name)
    return found


@pytest.mark.parametrize(
    ("kind", "times"),
    [
        ("native", 3),
        ("process", 2),
        pytest.param("native", 50, marks=pytest.mark.full(minutes=2)),
        pytest.param("process", 50, marks=pytest.mark.full(minutes=2)),
    ],
)
def test_ctrl_c_at_any_moment_leaves_a_checkpoint_to_resume_from(tmp_path, kind, times):
    if kind == "process":
        pytest.importorskip("gymnasium")
    draw = random.Random(11)
    arguments = "--algorithm dqn --env CartPole-v1 --hidden 16 --seed 1 --steps 1000000000"
    out = tmp_path / "run"
    given = [*arguments.split(), "--env-backend", kind, "--actors", str(int(kind == "process"))]
    shared = set(os.listdir("/dev/shm"))
    steps = 0
    for _ in range(times):
        with command(
            *given, "--out", str(out), "--checkpoint-every", "0.001", start_new_session=True
        ) as process:
            assert "CartPole" in process.stdout.readline()  # from here on signals are handled
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.0, 1.5))
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=60)[0]
        assert process.returncode == 130, told
        assert "Traceback" not in told
        eventually(lambda: not in_group(process.pid))
        assert set(os.listdir("/dev/shm")) <= shared
        assert not list((out / CHECKPOINTS).glob("tmp-*"))
        described = described_in(out)
        settings = TrainSettings.from_options(described.pop("settings"))
        described.pop("learner")
        with Trainer(settings=settings, resume=out / CHECKPOINTS, **described) as trainer:
            assert trainer.progress().steps >= steps  # earlier steps are not lost
            steps = trainer.progress().steps
        given = ["--resume"]


def newest(folder):
    return max(
        (int(path.name[-10:]) for path in folder.glob("checkpoints/checkpoint-*")), default=0
    )


def test_a_killed_training_resumes_bit_for_bit(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = "--algorithm ddqn --env CartPole-v1 --hidden 16 --seed 4 --steps 40000"
    arguments += " --capacity 5000 --batch-size 16 --final-episodes 1"
    assert main(["train", *arguments.split(), "--out", str(whole)]) == 0
    given, kills = [*arguments.split(), "--checkpoint-every", "0.05"], 0
    for _ in range(2):
        with command(*given, "--out", str(killed)) as process:
            begin = newest(killed)
            eventually(lambda: newest(killed) >= begin + 2 or process.poll() is not None)  # noqa: B023
            kills += process.poll() is None
            process.kill()
            process.communicate()
        given = ["--resume", "--checkpoint-every", "0.05"]
    assert kills > 0
    assert main(["train", *given, "--out", str(killed)]) == 0
    for name in ("policy.safetensors", "curve.csv"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("resumes", [True, False])
def test_a_second_command_leaves_the_files_of_a_running_training_alone(tmp_path, capsys, resumes):
    out = tmp_path / "run"
    endless = TrainSettings(seed=1, steps=10**9, hidden=(16,))
    may_end = threading.Event()

    def report(_progress):
        if may_end.is_set():
            raise KeyboardInterrupt

    def first():
        with contextlib.suppress(KeyboardInterrupt):
            train("dqn", "CartPole-v1", endless, out=out, report=report)

    thread = threading.Thread(target=first)
    thread.start()
    try:
        eventually(lambda: has_checkpoint(out))
        before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
        arguments = ["--resume"] if resumes else ["--algorithm", "dqn", "--env", "CartPole-v1"]
        assert main(["train", *arguments, "--out", str(out)]) == 2
        assert "another training" in capsys.readouterr().err
        with pytest.raises(FailedPreconditionError, match="another training"):
            train("dqn", "CartPole-v1", endless, out=out, resume=resumes)
        after = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
        # TensorBoard's, where it is installed, grow.
        for name in [name for name in before if not name.startswith("events.")]:
            assert after[name] == before[name]
        assert "policy.safetensors" not in after
    finally:
        may_end.set()
        thread.join()


def test_a_resumed_training_keeps_its_timeout_and_its_learner(tmp_path, capsys):
    arguments = "--algorithm dqn --env CartPole-v1 --steps 50 --hidden 8 --final-episodes 1"
    out = ["--out", str(tmp_path)]
    assert main(["train", *arguments.split(), "--env-timeout-s", "123", *out]) == 0
    assert described_in(tmp_path)["env_timeout_s"] == 123.0
    capsys.readouterr()
    assert main(["train", "--resume", "--learner", "torch", *out]) == 2
    assert "keeps its learner" in capsys.readouterr().err
    assert main(["train", "--resume", "--steps", "60", "--final-episodes", "1", *out]) == 0
    assert described_in(tmp_path)["env_timeout_s"] == 123.0
