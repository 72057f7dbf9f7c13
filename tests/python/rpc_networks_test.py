"""Peers in two network namespaces, whose link goes down and up again. Needs root and ``ip``."""

import json
import os
import shutil
import subprocess
import sys

import pytest

DEADLINE_S = 60.0

_SERVER = """
import sys
import reverie
rpc = reverie.Rpc("server", token="secret", dead_after_s=3.0)
runs = []
rpc.define("add", lambda x: (runs.append(x), x + 1)[1])
rpc.define("runs", lambda: runs)
print(rpc.listen("10.213.7.1:7213"), flush=True)
sys.stdin.read()
"""

# Prints a line for each event that the test waits for, and continues after each line that it reads.
_CLIENT = """
import sys, time
import reverie
from reverie import errors
rpc = reverie.Rpc("client", token="secret", dead_after_s=3.0)
rpc.connect("10.213.7.1:7213")
print(rpc.sync("server", "add", 1), rpc.debug_info()["peers"][0]["transport"], flush=True)

# Down for less than a peer may be silent: the call goes on.
sys.stdin.readline()
future = rpc.async_("server", "add", 2)
print("begun", flush=True)
print(future.result(), flush=True)

# Down for longer: pending calls fail, and say why.
sys.stdin.readline()
begin = time.monotonic()
try:
    rpc.sync("server", "add", 3)
    print("answered", flush=True)
except errors.UnavailableError as error:
    print("unavailable", time.monotonic() - begin, flush=True)

sys.stdin.readline()
while True:
    try:
        print(rpc.sync("server", "add", 4), rpc.sync("server", "runs"), flush=True)
        break
    except (errors.UnavailableError, errors.NotFoundError):
        pass
"""


def _ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def networks():
    """Two network namespaces, joined by a cable; gives their names and that of the cable's end."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip")
    mine, other = f"reverie-{os.getpid()}-a", f"reverie-{os.getpid()}-b"
    end, far = f"rva{os.getpid() % 100000}", f"rvb{os.getpid() % 100000}"
    steps = [
        ("netns", "add", mine),
        ("netns", "add", other),
        ("link", "add", end, "netns", mine, "type", "veth", "peer", "name", far, "netns", other),
        ("-n", mine, "address", "add", "10.213.7.1/24", "dev", end),
        ("-n", other, "address", "add", "10.213.7.2/24", "dev", far),
        ("-n", mine, "link", "set", end, "up"),
        ("-n", other, "link", "set", far, "up"),
    ]
    try:
        for step in steps:
            done = _ip(*step)
            if done.returncode != 0:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
        yield mine, other, end
    finally:
        for name in (mine, other):
            _ip("netns", "delete", name)


def _started(namespace, program):
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def test_calls_survive_a_link_that_was_down_and_fail_if_it_stays_down(networks):
    mine, other, end = networks
    server = _started(mine, _SERVER)
    client = None
    try:
        assert server.stdout.readline().strip() == "10.213.7.1:7213"
        client = _started(other, _CLIENT)
        assert client.stdout.readline().split() == ["2", "TCP"]  # same machine, other networks

        _ip("-n", mine, "link", "set", end, "down")
        _go_on(client)
        assert client.stdout.readline().strip() == "begun"
        _ip("-n", mine, "link", "set", end, "up")
        # TCP decides when to resend; the connection may be declared dead before.
        answered = client.stdout.readline().strip()
        assert answered == "3"

        _ip("-n", mine, "link", "set", end, "down")
        _go_on(client)
        word, seconds = client.stdout.readline().split()
        assert word == "unavailable"
        assert float(seconds) < 10.0  # 3 s without a sign of life, on a quiet machine

        _ip("-n", mine, "link", "set", end, "up")
        _go_on(client)
        value, runs = client.stdout.readline().strip().split(" ", 1)
        assert value == "5"
        ran = json.loads(runs)
        assert len(ran) == len(set(ran)), "none ran twice"
        assert ran[0] == 1
        assert ran[-1] == 4
    finally:
        for process in (client, server):
            if process is not None:
                process.kill()
                process.wait(DEADLINE_S)
                process.stdin.close()
                process.stdout.close()
