"""The command ``reverie``, from its arguments to its exit status."""

import subprocess
import sys

import pytest

import reverie
from reverie import __main__ as command


def test_version_prints_the_version(capsys):
    assert command.main(["version"]) == 0
    assert capsys.readouterr().out == f"reverie {reverie.__version__}\n"


def test_no_subcommand_is_refused_with_the_list_of_them(capsys):
    with pytest.raises(SystemExit) as raised:
        command.main([])
    assert raised.value.code == 2
    assert "command" in capsys.readouterr().err


def test_an_unknown_subcommand_is_refused_and_named(capsys):
    with pytest.raises(SystemExit) as raised:
        command.main(["sing"])
    assert raised.value.code == 2
    assert "'sing'" in capsys.readouterr().err


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "reverie", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"reverie {reverie.__version__}\n"
