"""Training from Python and from the command line."""

import csv
import dataclasses
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie import _reverie
from reverie.__main__ import main
from reverie.agents import Trainer, TrainSettings, algorithms, evaluate, train, tune_cores
from reverie.agents.training import make_trainer

ROOT = Path(__file__).resolve().parents[3]
SHORT = TrainSettings(seed=1, steps=2_000, hidden=(16,))
ENDLESS = TrainSettings(seed=1, steps=10**12, hidden=(16,), warmup_steps=100)


def test_an_agent_is_trained_and_evaluated():
    result = train("ddqn", "CartPole-v1", SHORT, final_episodes=5)
    assert result.progress.end == "all steps"
    assert result.progress.steps == 2_000
    assert result.progress.batches == 1_000
    assert result.progress.measured_interval == 1.0
    assert len(result.greedy_returns) == 5
    assert result.policy.widths == (4, 16, 2)
    assert [episode.step for episode in result.episodes] == sorted(
        episode.step for episode in result.episodes
    )
    assert sum(episode.length for episode in result.episodes) <= 2_000


def test_the_same_seed_gives_the_same_run():
    first, again = (train("dqn", "CartPole-v1", SHORT) for _ in range(2))
    assert first.episodes == again.episodes
    assert first.greedy_returns == again.greedy_returns
    np.testing.assert_array_equal(first.policy.parameters, again.policy.parameters)


def test_a_random_seed_is_chosen_and_reported_if_none_is_given():
    seeds = {Trainer("dqn", "CartPole-v1").settings.seed for _ in range(2)}
    assert None not in seeds
    assert len(seeds) == 2


def test_the_curve_policy_and_settings_of_a_run_can_be_read_back(tmp_path):
    result = train("ddqn", "CartPole-v1", SHORT, out=tmp_path / "run")
    with (tmp_path / "run" / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["return"]) for row in rows] == [e.episode_return for e in result.episodes]
    loaded = reverie.nn.Mlp.load(tmp_path / "run" / "policy.safetensors")
    np.testing.assert_array_equal(loaded.parameters, result.policy.parameters)
    described = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert TrainSettings.from_options(described["settings"]) == result.settings


@pytest.mark.parametrize("asynchronous", [False, True])
def test_actors_and_learners_run_on_threads(asynchronous):
    settings = TrainSettings(
        seed=1,
        steps=4_000,
        hidden=(16,),
        actors=2,
        learners=2,
        envs_per_actor=2,
        asynchronous=asynchronous,
    )
    reports = []
    result = train("ddqn", "CartPole-v1", settings, report=reports.append)
    progress = result.progress
    assert progress.batches == progress.batch_count
    assert progress.updates == progress.batches // (1 if asynchronous else 2)
    assert progress.measured_interval == pytest.approx(1.0, abs=0.02)
    assert progress.staleness_max <= 8


def test_a_policy_can_be_evaluated_while_it_is_trained():
    with Trainer("ddqn", "CartPole-v1", ENDLESS) as trainer:
        trainer.start()
        assert not trainer.wait(timeout_s=0.05)
        assert len(trainer.evaluate(episodes=3, seed=1)) == 3
        with pytest.raises(reverie.errors.InvalidArgumentError, match="widths"):
            trainer.evaluate(reverie.nn.Mlp((4, 3, 2)))
        own = trainer.policy().widths
        for options in ({"activation": "tanh"}, {"output_activation": "tanh"}):
            with pytest.raises(reverie.errors.InvalidArgumentError, match="tanh after"):
                trainer.evaluate(reverie.nn.Mlp(own, **options))
    assert trainer.progress().end == "stopped"


def test_one_thread_can_wait_while_another_stops_the_training():
    trainer = Trainer("ddqn", "CartPole-v1", ENDLESS)
    trainer.start()
    stopper = threading.Thread(target=trainer.stop)
    stopper.start()
    assert trainer.wait(timeout_s=30)
    stopper.join()


def test_wait_returns_at_once_if_the_training_was_not_started():
    with Trainer("ddqn", "CartPole-v1", ENDLESS) as trainer:
        assert not trainer.wait()
        trainer.stop()
        assert trainer.wait()


def test_every_setting_is_documented_with_its_default():
    page = (ROOT / "docs" / "concepts" / "learn.md").read_text()
    rows = {}
    for names, default in re.findall(r"^\| (`[a-z_`, ]+`) \| ([^|]*) \|", page, re.MULTILINE):
        defaults = default.split(", ") if ", " in names else [default]
        rows.update(zip(re.findall(r"[a-z_]+", names), defaults, strict=False))
    native = TrainSettings.of("dqn")
    for name in TrainSettings.__dataclass_fields__:
        assert name in rows, name
        value, shown = getattr(native, name), rows[name].strip()
        if isinstance(value, bool):
            assert shown == str(value).lower(), name
        elif isinstance(value, (int, float)):
            assert float(shown.replace(",", "")) == value, name
        elif isinstance(value, tuple):
            assert tuple(int(width) for width in shown.split(",")) == value


def test_train_settings_has_every_native_setting():
    assert set(_reverie.default_settings("dqn")) <= set(TrainSettings.__dataclass_fields__)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("dqm", "CartPole-v1", SHORT), reverie.errors.NotFoundError, ["dqm", "dqn"]),
        (("dqn", "CartPol-v1", SHORT), reverie.errors.NotFoundError, ["CartPole-v1"]),
        (("dqn", "Pendulum-v1", SHORT), reverie.errors.InvalidArgumentError, ["dqn", "sac"]),
        (
            ("dqn", "CartPole-v1", TrainSettings(warmup_steps=1, n_step=3)),
            reverie.errors.InvalidArgumentError,
            ["warmup_steps", "n_step"],
        ),
        (("dqn", "CartPole-v1", {"seed": 1}), reverie.errors.UnsupportedTypeError, ["settings"]),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused_by_name(arguments, error, words):
    with pytest.raises(error) as raised:
        Trainer(*arguments)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"gamma": 2.0}, reverie.errors.InvalidArgumentError, ["gamma", "2", "from 0 to 1"]),
        ({"batch_size": -1}, reverie.errors.InvalidArgumentError, ["batch_size", "-1"]),
        ({"batch_size": 0}, reverie.errors.InvalidArgumentError, ["batch_size", "0", "from 1"]),
        ({"stepz": 3}, reverie.errors.InvalidArgumentError, ["stepz", "steps", "nearest"]),
        ({"steps": "many"}, reverie.errors.UnsupportedTypeError, ["steps", "many", "integer"]),
        ({"hidden": 64}, reverie.errors.UnsupportedTypeError, ["hidden", "64"]),
        ({"prioritized": 1}, reverie.errors.UnsupportedTypeError, ["prioritized"]),
    ],
)
def test_an_invalid_setting_is_refused_when_settings_are_created(given, error, words):
    with pytest.raises(error) as raised:
        TrainSettings(**given)
    for word in words:
        assert word in str(raised.value)
    with pytest.raises(error):
        dataclasses.replace(SHORT, **given)


def test_the_signature_of_train_settings_lists_its_fields():
    parameters = inspect.signature(TrainSettings).parameters
    assert list(parameters) == [field.name for field in dataclasses.fields(TrainSettings)]


def test_the_error_for_a_gradient_that_is_not_finite_names_the_layer():
    settings = TrainSettings(
        seed=1, hidden=(16,), learning_rate=1e20, gradient_norm_max=0, huber_delta=float("inf")
    )
    with pytest.raises(reverie.errors.InvalidArgumentError, match=r"value network.*layer"):
        train("ddqn", "CartPole-v1", settings)


def test_a_forked_child_gets_an_error_and_can_exit():
    code = """
import os, sys, reverie
from reverie.agents import Trainer, TrainSettings
trainer = Trainer("ddqn", "CartPole-v1", TrainSettings(steps=10**12, actors=1))
trainer.start()
child = os.fork()
if child == 0:
    try:
        trainer.progress()
    except reverie.errors.FailedPreconditionError:
        sys.exit(7)
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
trainer.stop()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("actors", [0, 2])
def test_a_program_exits_at_once_while_a_training_runs(actors):
    code = f"""
import threading, time
from reverie.agents import TrainSettings, train
settings = TrainSettings(steps=10**12, actors={actors}, hidden=(16,))
threading.Thread(target=train, args=("ddqn", "CartPole-v1", settings), daemon=True).start()
time.sleep(0.2)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- The command.


def test_the_command_trains_and_writes_its_files(tmp_path, capsys):
    arguments = ["--algorithm", "ddqn", "--env", "CartPole-v1", "--out", str(tmp_path / "run")]
    flags = ["--steps", "2000", "--seed", "3", "--hidden", "16", "--no-prioritized"]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert main(["train", *arguments, *flags, "--n-step", "3"]) == 0
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    said = capsys.readouterr().out
    assert "seed=3" in said
    assert "prioritized=False" in said
    assert re.search(r"all steps after .* mean return of \d", said)
    assert "64.0 samples per insert (wanted 64.0)" in said
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"curve.csv", "evaluations.csv", "policy.safetensors", "settings.json"} <= written
    # The pictures with matplotlib and Pillow.
    optional = {"checkpoints", "curve.png", "episode.gif", "training.lock"}
    assert all(
        name in optional or name.startswith("events.")
        for name in written
        - {"curve.csv", "evaluations.csv", "policy.safetensors", "settings.json"}
    )


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--algorithm", "sax", "--env", "CartPole-v1"], "sax"),
        (["--algorithm", "dqn", "--env", "CartPole-v2"], "CartPole-v1"),
        (["--algorithm", "dqn", "--env", "CartPole-v1", "--gamma", "7"], "gamma"),
    ],
)
def test_the_command_refuses_wrong_flags_with_status_2(flags, word, capsys):
    assert main(["train", *flags]) == 2
    assert word in capsys.readouterr().err


def test_ctrl_c_ends_the_command_at_once_and_keeps_the_results_so_far(tmp_path):
    arguments = ["--algorithm", "ddqn", "--env", "CartPole-v1", "--out", str(tmp_path)]
    flags = ["--steps", str(10**11), "--actors", "2", "--hidden", "16"]
    command = subprocess.Popen(
        [sys.executable, "-m", "reverie", "train", *arguments, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    for line in command.stdout:
        if "gradient steps/s" in line:
            break
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=60)
    assert command.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert reverie.nn.Mlp.load(tmp_path / "policy.safetensors").widths == (4, 16, 2)
    assert (tmp_path / "curve.csv").stat().st_size > 30


def test_ctrl_c_ends_the_command_in_two_lines_if_nothing_can_be_saved(tmp_path):
    out = tmp_path / "run"
    arguments = ["--algorithm", "ddqn", "--env", "CartPole-v1", "--out", str(out)]
    flags = ["--steps", str(10**11), "--actors", "2", "--hidden", "16"]
    with subprocess.Popen(
        [sys.executable, "-m", "reverie", "train", *arguments, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as command:
        for line in command.stdout:
            if "gradient steps/s" in line:
                break
        subprocess.run(["mv", out, tmp_path / "elsewhere"], check=True)
        out.write_text("no folder")
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
    assert command.returncode == 130
    assert str(out) in errors
    assert "interrupted" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("actors", [0, 2])
def test_evaluations_during_training_keep_the_best_policy(actors):
    settings = TrainSettings(
        seed=1,
        steps=3_000,
        hidden=(16,),
        actors=actors,
        evaluation_interval=500,
        evaluation_episodes=4,
    )
    result = train("ddqn", "CartPole-v1", settings)
    assert [step for step, _ in result.evaluations] == [500 * i for i in range(1, 7)]
    with Trainer("ddqn", "CartPole-v1", settings) as trainer:
        trainer.start()
        trainer.wait()
        if actors == 0:
            assert trainer.evaluations() == result.evaluations
            best = trainer.best_policy().parameters
            np.testing.assert_array_equal(best, result.policy.parameters)


def test_evaluations_do_not_change_the_training():
    plain = train("ddqn", "CartPole-v1", SHORT)
    judged = train("ddqn", "CartPole-v1", dataclasses.replace(SHORT, evaluation_interval=300))
    assert plain.episodes == judged.episodes


def test_a_saved_policy_is_evaluated_from_its_folder(tmp_path, capsys):
    settings = TrainSettings(seed=1, steps=1_200, hidden=(16,), actors=2)
    result = train("ddqn", "CartPole-v1", settings, out=tmp_path)
    again = evaluate(tmp_path, episodes=20)
    assert again == result.greedy_returns
    assert main(["evaluate", str(tmp_path), "--episodes", "3"]) == 0
    assert "over 3 episodes" in capsys.readouterr().out
    for damaged in ("{}", "[" * 100_000):
        (tmp_path / "settings.json").write_text(damaged)
        with pytest.raises(reverie.errors.DataLossError, match="settings"):
            evaluate(tmp_path)
    assert main(["evaluate", str(tmp_path / "nowhere")]) == 2


def test_tune_cores_measures_and_splits_the_cores():
    settings = TrainSettings(seed=1, hidden=(16,), batch_size=16)
    tuning = tune_cores("ddqn", "CartPole-v1", settings, cores=3, measure_s=0.02)
    assert len(tuning.actor_curve) == len(tuning.learner_curve) == 3
    assert 2 <= tuning.actor_cores + tuning.learner_cores <= 3
    assert tuning.settings.actors == tuning.actor_cores
    assert tuning.settings.hidden == (16,)
    assert tuning.steps_per_s > 0
    one = tune_cores("ddqn", "CartPole-v1", settings, cores=1, measure_s=0.02)
    assert (one.settings.actors, one.settings.learners) == (0, 1)


@pytest.mark.parametrize(("argument", "word"), [({"cores": 0}, "cores"), ({"measure_s": 0}, "mea")])
def test_tune_cores_refuses_invalid_arguments(argument, word):
    with pytest.raises(reverie.errors.InvalidArgumentError, match=word):
        tune_cores("ddqn", "CartPole-v1", **argument)


def test_ctrl_c_ends_tune_cores():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    begin = time.monotonic()
    try:
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            tune_cores("ddqn", "CartPole-v1", cores=2, measure_s=60.0)
    finally:
        presser.join()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 30


def test_tune_cores_prints_the_split_and_the_error_of_its_prediction(capsys):
    arguments = ["--algorithm", "ddqn", "--env", "CartPole-v1", "--hidden", "16", "--cores", "2"]
    assert main(["tune-cores", *arguments, "--check-s", "0.5"]) == 0
    said = capsys.readouterr().out
    assert "1 to act and 1 to learn" in said
    assert re.search(r"measured: [\d,]+ steps/s; the prediction is off by [+-]\d+%", said)


def test_the_check_of_a_prediction_trains_as_the_tuning_measures(capsys, monkeypatch):
    made = []

    def recorded(algorithm, env, settings, **options):
        made.append(settings)
        return make_trainer(algorithm, env, settings, **options)

    monkeypatch.setattr("reverie.agents.command.make_trainer", recorded)
    arguments = [
        *("tune-cores", "--algorithm", "dqn", "--env", "CartPole-v1", "--hidden", "8"),
        *("--envs-per-actor", "256", "--n-step", "7", "--warmup-steps", "4000", "--cores", "1"),
        *("--evaluation-interval", "500", "--stop-at-return", "9", "--check-s", "0.1"),
    ]
    assert main(arguments) == 0
    assert "the prediction is off by" in capsys.readouterr().out
    (settings,) = made
    assert (settings.actors, settings.envs_per_actor, settings.n_step) == (0, 256, 7)
    assert settings.warmup_steps == 2048  # so that an environment has a transition
    assert settings.epsilon_share == 0.0  # most actions are the network's
    assert (settings.evaluation_interval, settings.stop_at_return) == (0, None)


def test_actors_auto_splits_the_cores(capsys):
    arguments = ["--algorithm", "ddqn", "--env", "CartPole-v1", "--hidden", "16"]
    assert main(["train", *arguments, "--steps", "1500", "--actors", "auto"]) == 0
    assert "predicted" in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_algorithms_for_continuous_actions_train(algorithm):
    settings = TrainSettings(seed=1, steps=600, warmup_steps=200, hidden=(16,), batch_size=16)
    result = train(algorithm, "Pendulum-v1", settings, final_episodes=2)
    assert result.progress.batches == 400
    assert all(-2000 < value < 0 for value in result.greedy_returns)
    with pytest.raises(reverie.errors.InvalidArgumentError, match="dqn"):
        Trainer(algorithm, "CartPole-v1")


@pytest.mark.parametrize("algorithm", ["td3", "sac"])
def test_the_lander_with_continuous_engines_is_trained(algorithm):
    if "LunarLanderContinuous-v3" not in reverie.envs.native.ids():
        pytest.skip("this build has no LunarLander")
    settings = TrainSettings(
        seed=1, steps=700, warmup_steps=300, hidden=(16,), batch_size=16, actors=1
    )
    result = train(algorithm, "LunarLanderContinuous-v3", settings, final_episodes=2)
    assert (result.progress.end, result.progress.batches) == ("all steps", 400)
    assert result.policy.widths == (8, 16, 4 if algorithm == "sac" else 2)
    assert all(-5000 < value < 400 for value in result.greedy_returns)


def test_the_algorithms_are_listed():
    assert {"dqn", "ddqn"} <= set(algorithms())
