"""How ``reverie train`` and ``evaluate`` handle wrong arguments, a signal, and a second one."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from reverie.__main__ import main
from reverie.agents.checkpoints import CHECKPOINTS

CART_POLE = ["--algorithm", "dqn", "--env", "CartPole-v1"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--stepz", "5"], ["--stepz", "--steps"]),
        (["--batch-sise=5"], ["--batch-sise", "--batch-size"]),
        (["--hid", "5"], ["there is no option --hid"]),  # abbreviations are refused
        (["--hidden", "64,x"], ["--hidden", "64,x", "as 64,64"]),
        (["--actors", "many"], ["--actors", "many", "auto"]),
        (["--steps", "many"], ["--steps", "many"]),
        (["--learner", "jax"], ["--learner", "jax", "torch"]),
        (["--env-option", "wind"], ["wind", "NAME=VALUE"]),
        (["--out", ""], ["--out", "the path is empty"]),
    ],
)
def test_an_argument_that_cannot_be_parsed_is_reported_in_two_lines(flags, words, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["train", *CART_POLE, *flags])
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 2
    assert "reverie train --help" in told
    for word in words:
        assert word in told


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--final-episodes", "0"], ["--final-episodes is 0", "between 1 and"]),
        (["--checkpoint-every", "0"], ["--checkpoint-every is 0"]),
        (["--checkpoint-every", "nan"], ["--checkpoint-every is nan"]),
        (["--agent-timeout-s", "5"], ["agent_timeout_s is 5", "learner='torch'"]),
        (["--learner", "torch", "--agent-timeout-s", "0"], ["agent_timeout_s", "0"]),
        (["--resume"], ["--resume", "--out"]),
        (["--out", "{file}"], ["{file}", "exists"]),
        (["--resume", "--out", "{nowhere}"], ["{nowhere}", "settings.json", "--out"]),
        (["--config", "{nowhere}"], ["{nowhere}", "No such file"]),
    ],
)
def test_an_argument_out_of_range_is_reported_before_training_starts(
    flags, words, tmp_path, capsys
):
    file = tmp_path / "file"
    file.write_text("")
    places = {"file": str(file), "nowhere": str(tmp_path / "nowhere")}
    assert main(["train", *CART_POLE, *(flag.format(**places) for flag in flags)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    for word in words:
        assert word.format(**places) in told.err


def test_a_configuration_that_is_nested_too_deeply_is_refused(tmp_path, capsys):
    (tmp_path / "deep.toml").write_text(f"env_options = {'[' * 5000}{']' * 5000}")
    assert main(["train", "--config", str(tmp_path / "deep.toml")]) == 2
    assert "deep.toml: nested too deeply" in capsys.readouterr().err


def test_a_folder_without_a_training_cannot_be_evaluated(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "Errno" not in told
    assert "there is no training" in told


def test_the_command_warns_if_training_ends_before_learning_begins(capsys):
    assert main(["train", *CART_POLE, "--steps", "50", "--hidden", "8", "--quiet"]) == 0
    assert "nothing will be learned" in capsys.readouterr().err


def test_a_second_ctrl_c_ends_the_command_at_once(tmp_path):
    arguments = [*CART_POLE, "--hidden", "16", "--steps", str(10**10), "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "reverie", "train", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    for line in process.stdout:
        if "gradient steps/s" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "\n"
    assert "a second Ctrl-C" in process.stderr.readline()
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in told
    # Whether the last checkpoint was in time or not, there is one to resume from.
    assert len(list((tmp_path / CHECKPOINTS).glob("checkpoint-*"))) >= 1
    assert main(["train", "--resume", "--out", str(tmp_path), "--final-episodes", "0"]) == 2
