"""What native code logs reaches ``logging``, and no thread with a lock waits for Python."""

import logging
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import reverie
from eventually import eventually

LOGGER = logging.getLogger("reverie")


class Lines(logging.Handler):
    """Keeps the lines, and does for each what a test asks for."""

    def __init__(self, react=lambda _text: None):
        super().__init__()
        self.texts = []
        self.react = react

    def emit(self, record):
        self.texts.append(record.getMessage())
        self.react(self.texts[-1])


@pytest.fixture
def lines():
    level = LOGGER.level
    handler = Lines()
    LOGGER.addHandler(handler)
    reverie.set_log_level("info")
    yield handler
    LOGGER.removeHandler(handler)
    reverie.set_log_level("warning")
    LOGGER.setLevel(level)


def uniform_table():
    return reverie.Table(
        name="t",
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


def listen(name):
    """A line of native code: '...' listens at ..."""
    with reverie.Rpc(name, transports=["tcp"]) as peer:
        peer.listen()


def test_lines_are_logged_in_order_and_once(lines):
    for i in range(50):
        listen(f"peer-{i}")
    eventually(lambda: sum(" listens " in text for text in lines.texts) >= 50)
    names = [text.split("'")[1] for text in lines.texts if " listens " in text]
    assert names == [f"peer-{i}" for i in range(50)]


def test_a_handler_may_call_the_library(lines):
    store = reverie.Store([reverie.Table.queue("t", 1000)])

    def keep(text):
        store.client().insert({"length": len(text)}, {"t": 1.0})

    lines.react = keep
    listen("a")
    eventually(lambda: any("'a' listens" in text for text in lines.texts))
    eventually(lambda: store.client().server_info()["t"].current_size == len(lines.texts))


def test_a_blocked_handler_delays_no_call(lines):
    """The handler waits as if it wrote to a full pipe; no line is lost meanwhile."""
    release = threading.Event()
    lines.react = lambda text: release.wait(60) if "'first' listens" in text else None
    listen("first")
    try:
        eventually(lambda: any("'first' listens" in text for text in lines.texts))
        seen = len(lines.texts)
        with reverie.Rpc("server") as server, reverie.Rpc("client") as client:
            server.define("double", lambda x: 2 * x)
            client.connect(server.listen())
            assert client.sync("server", "double", 3) == 6
        assert len(lines.texts) == seen
    finally:
        release.set()
    eventually(lambda: any("'server' listens" in text for text in lines.texts))


def test_a_blocked_handler_of_a_warning_stalls_no_client(lines):
    """A thread of the network logs that a server is lost, and other servers' answers come on it."""
    release = threading.Event()
    lines.react = lambda text: release.wait(60) if "is left out" in text else None
    servers = [reverie.Server([uniform_table()], port=0) for _ in range(2)]
    addresses = [f"127.0.0.1:{server.port}" for server in servers]

    def use(client):
        client.insert({"x": np.float32(1)}, {"t": 1.0}, timeout_s=30)
        client.sample_batch("t", 1, timeout_s=30)

    with reverie.Client(addresses, retry_timeout_s=30) as client:
        use(client)
        servers.pop().stop()
        try:
            eventually(lambda: use(client) or any("is left out" in text for text in lines.texts))
            for _ in range(20):
                use(client)
        finally:
            release.set()
    servers.pop().stop()


def test_dropped_lines_are_counted(lines):
    release = threading.Event()
    lines.react = lambda text: release.wait(60) if "'first' listens" in text else None
    listen("first")
    try:
        eventually(lambda: any("'first' listens" in text for text in lines.texts))
        for _ in range(1100):
            listen("peer")
    finally:
        release.set()
    eventually(lambda: any("lines were dropped" in text for text in lines.texts))
    dropped = next(text for text in lines.texts if "lines were dropped" in text)
    assert int(dropped.split()[0]) >= 100


ENDS = """
import logging, sys
import reverie
logging.basicConfig(stream=sys.stdout, format="%(message)s")
reverie.set_log_level("info")
peer = reverie.Rpc("last")
peer.listen()
"""


def test_the_last_lines_of_a_program_are_logged():
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "'last' listens at" in done.stdout
    assert done.stderr == ""


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_child_logs_its_own_lines(lines):
    listen("parent")
    eventually(lambda: any("'parent' listens" in text for text in lines.texts))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        lines.texts.clear()
        listen("child")
        eventually(lambda: any("'child' listens" in text for text in lines.texts))
        os.write(write, ",".join(lines.texts).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        told = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    assert "'child' listens" in told
    assert "parent" not in told
