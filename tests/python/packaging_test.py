"""The files that start a server elsewhere: packaging/ is consistent with the tree."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import reverie
from reverie.__main__ import parser
from reverie.serve import toml_config


@pytest.fixture(scope="module")
def instructions(root):
    """The Dockerfile's instructions, as (name, rest), with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (root / "packaging" / "Dockerfile").read_text(), flags=re.M)
    joined = text.replace("\\\n", " ")
    return [
        tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line and line[0] != " "
    ]


def of(instructions, name):
    return [rest for found, rest in instructions if found == name]


def test_the_configuration_is_valid(root):
    path = root / "packaging" / "serve.toml"
    config = toml_config.read(path.read_text(), str(path))
    assert (config.host, config.port) == ("localhost", 8000)
    with reverie.Server(config.tables, max_bytes=config.max_bytes, limits=config.limits) as server:
        assert set(server.localhost_client().server_info()) == {"replay", "weights"}


def test_the_commented_out_fields_of_the_configuration_are_valid(root):
    text = (root / "packaging" / "serve.toml").read_text()
    shown = re.sub(
        r"^# (?=(host|token_file|\[tls\]|certificate|key|client_auth))", "", text, flags=re.M
    )
    assert shown != text
    config = toml_config.read(shown.replace('host = "localhost"\n', ""), "serve.toml")
    assert config.host == "0.0.0.0"
    assert config.tls is not None
    assert config.token_file is not None


def test_the_image_copies_existing_files(instructions, root):
    copied = [
        name
        for rest in of(instructions, "COPY")
        if not rest.startswith("--from")
        for name in rest.split()[:-1]
    ]
    assert {"CMakeLists.txt", "pyproject.toml", "cmake", "python", "src"} <= set(copied)
    assert [name for name in copied if not (root / name).exists()] == []


# Packages of the Makefile that no build of the wheel needs: ccache only saves time, tests and
# benchmarks need the others, and without Box2D an environment is missing.
NOT_NEEDED = {
    "ccache",
    "libbenchmark-dev",
    "libbox2d-dev",
    "libgtest-dev",
    "libprotobuf-dev",
    "protobuf-compiler",
}


@pytest.fixture(scope="module")
def needed(root):
    """The packages that a build of the wheel needs."""
    makefile = (root / "Makefile").read_text().replace("\\\n", " ")
    installed = set(re.search(r"^APT_BUILD := (.*)$", makefile, re.M)[1].split())
    assert installed > NOT_NEEDED
    return installed - NOT_NEEDED


@pytest.fixture(scope="module")
def libraries(needed):
    return {name for name in needed if re.fullmatch(r"(lib|zlib)\S+-dev", name)}


def test_the_image_is_built_with_what_a_build_of_the_makefile_needs(instructions, needed):
    build, run = (
        set(re.search(r"--no-install-recommends\s+(.*?)\s*&&", rest)[1].split())
        for rest in of(instructions, "RUN")
        if "apt-get install" in rest
    )
    assert build == needed
    assert run == {"libstdc++6", "python3"}  # the extension contains the rest (wheel_test.py)


def test_the_readme_names_the_libraries_of_a_build(libraries, root):
    readme = (root / "README.md").read_text()
    assert set(re.findall(r"`((?:lib|zlib)[^`\s]+-dev)`", readme)) == {*libraries, "libbox2d-dev"}


def test_wheels_are_built_with_the_same_libraries(libraries, root):
    project = (root / "pyproject.toml").read_text()
    given = set(re.search(r'"dnf install -y (.*-devel.*)"', project)[1].split())
    # Fedora has asio-devel for libasio-dev, and libzstd-devel for libzstd-dev.
    renamed = {"libssl-dev": "openssl-devel", "zlib1g-dev": "zlib-devel"}
    same = {renamed.get(name, f"{name}el") for name in libraries}
    assert {name.removeprefix("lib") for name in given} == {
        name.removeprefix("lib") for name in same
    }


def test_every_command_of_the_image_is_valid_shell(instructions):
    commands = of(instructions, "RUN")
    assert len(commands) == 3
    for command in commands:
        subprocess.run(["sh", "-n", "-c", command], check=True)


def test_the_command_accepts_the_arguments_of_the_image(instructions):
    (entry,) = (json.loads(rest) for rest in of(instructions, "ENTRYPOINT"))
    (default,) = (json.loads(rest) for rest in of(instructions, "CMD"))
    assert entry[0].endswith("/reverie")
    arguments = parser().parse_args([*entry[1:], *default])
    copied = [rest.split()[-1] for rest in of(instructions, "COPY")]
    assert arguments.config in copied
    assert (arguments.host, arguments.insecure) == ("0.0.0.0", True)
    # The image exposes the port of the configuration.
    assert of(instructions, "EXPOSE") == ["8000"]
    assert of(instructions, "USER") == ["reverie"]


@pytest.fixture(scope="module")
def unit(root):
    return (root / "packaging" / "reverie.service").read_text()


def test_the_command_accepts_the_arguments_of_the_unit(unit):
    program, *words = shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.M)[1])
    assert program.endswith("/reverie")
    arguments = parser().parse_args(words)
    # systemd must wait longer for the server than the server waits for its clients.
    assert arguments.grace < int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)[1])
    # A large checkpoint takes longer to load than the 90 s that systemd waits by default.
    assert re.search(r"^TimeoutStartSec=infinity$", unit, re.M)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_analyze_accepts_the_unit(unit, tmp_path):
    path = tmp_path / "reverie.service"
    path.write_text(unit.replace("/opt/reverie/bin/reverie", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    path.write_text(unit.replace("Type=notify", "Type=notfy"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
    )
    assert "notfy" in done.stderr
