"""The command ``reverie``, from its arguments to its exit status."""

import os
import subprocess
import sys

import numpy as np
import pytest

import reverie
from reverie import __main__ as command
from reverie import doctor


def test_version_prints_the_version(capsys):
    assert command.main(["version"]) == 0
    assert capsys.readouterr().out == f"reverie {reverie.__version__}\n"


def test_the_option_version_prints_the_version(capsys):
    with pytest.raises(SystemExit) as raised:
        command.main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"reverie {reverie.__version__}\n"


def test_the_command_without_arguments_prints_help(capsys):
    assert command.main([]) == 0
    out = capsys.readouterr().out
    for word in ("usage: reverie", "bench", "completion", "demo", "doctor", "serve"):
        assert word in out


def test_the_doctor_names_missing_packages_and_how_to_install_them(capsys, monkeypatch):
    missing = doctor.Use("flying", ("wings_of_wax",), "", "pip install wax")
    old = doctor.Use("counting", ("numpy",), "99.1", "pip install 'numpy>=99.1'")
    there = doctor.Use("arrays", ("numpy",), "1.24", "pip install numpy")
    monkeypatch.setattr(doctor, "USES", (missing, old, there))
    assert command.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"reverie    {reverie.__version__} in ")
    assert any(line.startswith("store      works: a step was stored") for line in lines)
    assert "--  flying    wings_of_wax is not installed: pip install wax" in lines
    assert f"--  counting  numpy {np.__version__} is older than 99.1: {old.install}" in lines
    assert f"ok  arrays    numpy {np.__version__}" in lines


def test_the_doctor_reports_a_store_that_does_not_work(capsys, monkeypatch):
    def broken(*_arguments, **_options):
        raise RuntimeError("no memory")

    monkeypatch.setattr(reverie, "ReplayBuffer", broken)
    assert command.main(["doctor"]) == 1
    assert "store      FAILS: RuntimeError('no memory')" in capsys.readouterr().out


def complete(script, *words):
    """What bash offers to complete the last of the words."""
    asked = " ".join(f"'{word}'" for word in words)
    program = f"{script}\nCOMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; _reverie\n"
    program += "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    return done.stdout.split()


def test_bash_completes_subcommands_and_their_options(capsys):
    assert command.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert complete(script, "reverie", "de") == ["demo"]
    assert complete(script, "reverie", "do") == ["doctor"]
    assert complete(script, "reverie", "demo", "--qu") == ["--quick"]
    assert complete(script, "reverie", "completion", "") == ["bash", "zsh", "-h", "--help"]
    assert "--version" in complete(script, "reverie", "--")


def test_zsh_completion_offers_the_same_words(capsys):
    assert command.main(["completion", "zsh"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#compdef reverie\n")
    assert "demo) compadd -- " in script
    assert "--quick" in script


def test_an_unknown_subcommand_is_refused_and_named(capsys):
    with pytest.raises(SystemExit) as raised:
        command.main(["sing"])
    assert raised.value.code == 2
    assert "'sing'" in capsys.readouterr().err


def test_python_m_reverie_runs_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "reverie", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"reverie {reverie.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["doctor"], "1"), (["version"], ""), (["completion", "bash"], ""), (["--help"], "")],
)
def test_a_closed_output_pipe_ends_the_command_quietly(arguments, unbuffered):
    output, given = os.pipe()
    os.close(output)
    done = subprocess.run(
        [sys.executable, "-m", "reverie", *arguments],
        stdout=given,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(given)
    assert done.stderr == ""
    assert done.returncode == 141


def test_another_broken_pipe_is_reported(monkeypatch):
    def broken(_):
        raise BrokenPipeError("a connection")

    monkeypatch.setattr(command, "_version", broken)
    read, written = os.pipe()
    with os.fdopen(written, "w") as output, os.fdopen(read):
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(BrokenPipeError, match="a connection"):
            command.main(["version"])
