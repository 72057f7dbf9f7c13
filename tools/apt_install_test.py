"""apt_install says what it will do, does it, and does nothing where nothing is missing.

Stand-ins for dpkg-query, apt-get, id and sudo write down how they were called.
"""

import os
import subprocess
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).resolve().parent / "apt_install"


@pytest.fixture
def machine(tmp_path):
    """Makes a machine with ``installed`` packages and returns a way to run the script on it."""
    tools = tmp_path / "bin"
    tools.mkdir()
    calls = tmp_path / "calls"
    calls.touch()

    def tool(name, body):
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)

    def run(*packages, installed=(), root=True, sudo=True, apt_status=0):
        known = "|".join(installed) or "none"
        tool("dpkg-query", f'case "${{@: -1}}" in {known}) echo -n installed;; *) exit 1;; esac')
        tool("id", f"echo {0 if root else 1000}")
        tool("apt-get", f'echo "apt-get $*" >> {calls}; echo Setting up; exit {apt_status}')
        if sudo:
            tool("sudo", f'echo -n "sudo " >> {calls}; "$@"')
        for name in ("awk", "bash", "env"):
            if not (tools / name).exists():
                (tools / name).symlink_to(f"/usr/bin/{name}")
        done = subprocess.run(
            ["/bin/bash", str(_SCRIPT), *packages],
            env={**os.environ, "PATH": str(tools)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, calls.read_text().splitlines()

    return run


def test_nothing_is_printed_if_no_package_is_missing(machine):
    done, calls = machine("ccache", "ninja", installed=("ccache", "ninja"))
    assert (done.returncode, done.stdout, done.stderr, calls) == (0, "", "", [])


def test_only_missing_packages_are_installed_and_the_command_is_printed(machine):
    done, calls = machine("ccache", "ninja", installed=("ccache",))
    assert done.returncode == 0
    line = "apt-get install -y --no-install-recommends ninja"
    assert f"  {line}\n" in done.stdout
    assert calls == ["apt-get update -qq", f"{line} -q"]


def test_a_plain_user_installs_with_sudo(machine):
    done, calls = machine("ninja", root=False)
    assert "  sudo apt-get install" in done.stdout
    assert all(call.startswith("sudo apt-get ") for call in calls)


def test_without_root_and_sudo_the_command_is_only_printed(machine):
    done, calls = machine("ninja", root=False, sudo=False)
    assert done.returncode == 1
    assert "run that line as root" in done.stderr
    assert calls == []


def test_a_failure_of_apt_get_is_returned(machine):
    done, _ = machine("ninja", apt_status=100)
    assert done.returncode == 100
