"""Peers in several network namespaces, as on several hosts. Needs root and ``ip``."""

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
print(rpc.listen("10.213.1.1:7213"), flush=True)
sys.stdin.read()
"""

# Prints a line for each event that the test waits for, and continues after each line that it reads.
_CLIENT = """
import sys, time
import reverie
from reverie import errors
rpc = reverie.Rpc("client", token="secret", dead_after_s=3.0)
rpc.connect("10.213.1.1:7213")
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

_BROKER = """
import sys
import reverie
broker = reverie.Broker(token="secret")
print(broker.listen("0.0.0.0:7214"), flush=True)
sys.stdin.read()
"""

# Is connected to the broker of its own host, finally over the best of its transports.
_LEARNER = """
import sys
import reverie
rpc = reverie.Rpc("learner", token="secret", transports={transports!r})
rpc.define("add", lambda x: x + 1)
rpc.listen("0.0.0.0:0")
rpc.connect({broker!r})
while {transport!r} not in [peer["transport"] for peer in rpc.debug_info()["peers"]]:
    pass
print("ready", flush=True)
sys.stdin.read()
"""

_ACTOR = """
import reverie
rpc = reverie.Rpc("actor", token="secret")
rpc.connect("10.213.1.1:7214")
print(rpc.sync("learner", "add", 1), flush=True)
"""

_PUBLISHER = """
import sys
import reverie
rpc = reverie.Rpc("learner", token="secret")
weights = reverie.Weights(rpc, "policy")
weights.publish(2, [1.0])
print(rpc.listen("0.0.0.0:7215"), flush=True)
sys.stdin.read()
"""

# Tries often, since the first pull also has to connect.
_PULLER = """
import sys
import reverie
from reverie import errors
rpc = reverie.Rpc("actor-{number}", token="secret")
rpc.connect("10.213.{number}.1:7215")
weights = reverie.Weights(rpc, "policy", sources=["learner"])
version = 0
for _ in range(10):
    try:
        version = weights.pull(timeout_s=1.0).version
        break
    except errors.DeadlineExceededError as error:
        print(error, file=sys.stderr)
print(version, flush=True)
sys.stdin.read()
"""


def _ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def hosts():
    """Gives a function that makes network namespaces, and returns their names.

    Cable ``i`` joins the first, where its end is ``cable(i)`` at 10.213.I.1, to number ``i``, where
    it is at 10.213.I.2.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip")
    names = []

    def make(count):
        names.extend(f"reverie-{os.getpid()}-{i}" for i in range(count))
        steps = [("netns", "add", name) for name in names]
        steps += [("-n", name, "link", "set", "lo", "up") for name in names]
        for i, far in enumerate(names[1:], start=1):
            far_end = ("type", "veth", "peer", "name", "far", "netns", far)
            steps += [
                ("link", "add", cable(i), "netns", names[0], *far_end),
                ("-n", names[0], "address", "add", f"10.213.{i}.1/24", "dev", cable(i)),
                ("-n", far, "address", "add", f"10.213.{i}.2/24", "dev", "far"),
                ("-n", names[0], "link", "set", cable(i), "up"),
                ("-n", far, "link", "set", "far", "up"),
            ]
        for step in steps:
            done = _ip(*step)
            if done.returncode != 0:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
        return names

    yield make
    for name in names:
        _ip("netns", "delete", name)


def cable(i):
    return f"rv{os.getpid() % 1000000}-{i}"


@pytest.fixture
def start():
    """Gives a function that starts a program in a namespace."""
    processes = []

    def begin(namespace, program):
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait(DEADLINE_S)
        process.stdin.close()
        process.stdout.close()


def _go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def test_calls_survive_a_link_that_was_down_and_fail_if_it_stays_down(hosts, start):
    mine, other = hosts(2)
    server = start(mine, _SERVER)
    assert server.stdout.readline().strip() == "10.213.1.1:7213"
    client = start(other, _CLIENT)
    assert client.stdout.readline().split() == ["2", "TCP"]  # same machine, other networks

    _ip("-n", mine, "link", "set", cable(1), "down")
    _go_on(client)
    assert client.stdout.readline().strip() == "begun"
    _ip("-n", mine, "link", "set", cable(1), "up")
    # TCP decides when to resend; the connection may be declared dead before.
    answered = client.stdout.readline().strip()
    assert answered == "3"

    _ip("-n", mine, "link", "set", cable(1), "down")
    _go_on(client)
    word, seconds = client.stdout.readline().split()
    assert word == "unavailable"
    assert float(seconds) < 10.0  # 3 s without a sign of life, on a quiet machine

    _ip("-n", mine, "link", "set", cable(1), "up")
    _go_on(client)
    value, runs = client.stdout.readline().strip().split(" ", 1)
    assert value == "5"
    ran = json.loads(runs)
    assert len(ran) == len(set(ran)), "none ran twice"
    assert ran[0] == 1
    assert ran[-1] == 4


@pytest.mark.parametrize(
    ("transports", "broker", "transport"),
    [
        (("shm", "unix", "tcp"), "10.213.1.1:7214", "shared memory"),
        (("unix", "tcp"), "10.213.1.1:7214", "Unix socket"),
        (("tcp",), "127.0.0.1:7214", "TCP"),
    ],
)
def test_a_peer_on_the_brokers_host_is_found_from_another_host(
    hosts, start, transports, broker, transport
):
    mine, other = hosts(2)
    learner = _LEARNER.format(transports=transports, broker=broker, transport=transport)
    assert start(mine, _BROKER).stdout.readline().strip() == "0.0.0.0:7214"
    assert start(mine, learner).stdout.readline().strip() == "ready"
    assert start(other, _ACTOR).stdout.readline().strip() == "2"


def test_actors_that_do_not_listen_get_weights_on_any_number_of_hosts(hosts, start):
    mine, *others = hosts(6)
    assert start(mine, _PUBLISHER).stdout.readline().strip() == "0.0.0.0:7215"
    actors = [start(host, _PULLER.format(number=i)) for i, host in enumerate(others, start=1)]
    assert [actor.stdout.readline().strip() for actor in actors] == ["2"] * 5
