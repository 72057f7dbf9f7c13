"""Ctrl-C ends every public call, waiting or busy: one signal, within a second.

The main thread repeats one call for ever. The calls are those of ``exits_program.py``, of which
``exits_test.py`` finds by reflection that none is missing.
"""

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie._closing import close_in_del

PROGRAM = Path(__file__).with_name("exits_program.py")
_spec = importlib.util.spec_from_file_location("exits_program", PROGRAM)
exits_program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(exits_program)

INTERRUPTING = """
import contextlib, faulthandler, importlib.util, json, os, signal, sys, threading, time

spec = importlib.util.spec_from_file_location("exits_program", sys.argv[1])
exits_program = importlib.util.module_from_spec(spec)
sys.modules["exits_program"] = exits_program
spec.loader.exec_module(exits_program)
LIMIT_S, DELAY_S, MORE_S = 30.0, 0.02, 5.0
# A shell that starts programs in the background has them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted(call):
    begun, over = threading.Event(), threading.Event()
    strikes = []

    def strike():
        begun.wait()
        over.wait(DELAY_S)
        while not over.is_set():
            strikes.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(MORE_S)

    thread = threading.Thread(target=strike)
    thread.start()
    until = time.monotonic() + LIMIT_S
    is_ended = False
    try:
        begun.set()
        while time.monotonic() < until:
            with contextlib.suppress(*exits_program.ORDINARY):
                call()
    except KeyboardInterrupt:
        is_ended = True
    end = time.monotonic()
    while thread.is_alive():
        with contextlib.suppress(KeyboardInterrupt):
            over.set()
            thread.join()
    return (end - strikes[0] if strikes else 0.0) if is_ended else None


faulthandler.dump_traceback_later(float(sys.argv[3]), exit=True)
world = exits_program.World(sys.argv[2])
for name in json.load(sys.stdin):
    print(name, flush=True, file=sys.stderr)
    call = exits_program.CASES[name](world)
    print(json.dumps([name, interrupted(call)]), flush=True)
    if any(end in name for end in ("close", "stop", "__exit__", "leave", "__del__")):
        world = exits_program.World(sys.argv[2])
os._exit(0)
"""

# A lost signal costs five seconds, until the next one.
LATE_S = 1.0
# On a busy machine: as long as the same number of programs takes that do nothing.
LATE_PROGRAMS = 20
# It may be late with a case, and not with the same one each time.
TRIES = 3
PROGRAM_S = 250


def run(door, names):
    """The seconds until each call ended, by its name; None for one that went on."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PYTHONPATH": str(Path(reverie.__file__).parents[1]), "TMPDIR": folder}
        program = [sys.executable, "-W", "ignore", "-c", INTERRUPTING, str(PROGRAM)]
        done = subprocess.run(
            [*program, door, str(PROGRAM_S)],
            input=json.dumps(names),
            capture_output=True,
            text=True,
            timeout=PROGRAM_S + 30,
            env=os.environ | environment,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


def buffer():
    made = reverie.ReplayBuffer(10, prioritized=True)
    made.add(0.0, 0, 1.0, 0.0, False)
    return made


def history(client):
    writer = client.trajectory_writer(2)
    writer.append({"x": 1})
    return writer.history["x"]


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("__array__", lambda client, value: client.insert({"x": value}, {"t": 1.0})),
        ("__array__", lambda client, value: client.update_priorities("t", [1], value)),
        ("__array__", lambda _, value: buffer().update_priorities(value, [1.0])),
        ("__float__", lambda client, value: client.insert({"x": 1.0}, {"t": value})),
        ("__index__", lambda client, value: client.sample_batch("t", value)),
        ("__iter__", lambda _, value: reverie.TrajectoryColumn(value)),
        ("__repr__", lambda client, value: client.sample_batch("t", value)),
        ("__dlpack__", lambda client, value: client.insert({"x": value}, {"t": 1.0})),
        ("__index__", lambda client, value: history(client)[value]),
        ("__index__", lambda client, value: history(client)[[value]]),
        (
            "__iter__",
            lambda client, value: client.trajectory_writer(2).configure(
                value, num_keep_alive_refs=1, max_chunk_length=1
            ),
        ),
    ],
)
def test_ctrl_c_in_the_code_of_an_argument_raises_keyboard_interrupt(method, call):
    members = {"__dlpack_device__": lambda _: (1, 0), "__array__": lambda _: 1}  # a CPU's
    value = type("Value", (), (members if method == "__dlpack__" else {}) | {method: interrupt})()
    with reverie.Store([reverie.Table.queue("t", 1)]) as store, pytest.raises(KeyboardInterrupt):
        call(store.client(), value)


@reverie.register_dataclass(name="interrupts_test.Interrupting")
@dataclasses.dataclass
class Interrupting:
    """Raises KeyboardInterrupt in the process that receives it, as Ctrl-C in its code would."""

    at: str = "arrival"

    def __post_init__(self):
        if self.at == "arrival" and _HAS_BEGUN:
            raise KeyboardInterrupt

    @property
    def shape(self):
        return (1,)

    @property
    def dtype(self):
        return np.dtype(np.int64)

    __array__ = interrupt
    __getitem__ = interrupt


_HAS_BEGUN = []


@pytest.fixture
def peers():
    options = {"token": "secret", "allow_pickle": True, "timeout_s": 30.0}
    with reverie.Rpc("server", **options) as server, reverie.Rpc("client", **options) as client:
        client.connect(server.listen())
        yield server, client
    _HAS_BEGUN.clear()


class Unpickled:
    def __reduce__(self):
        return interrupt, ()


@pytest.mark.parametrize("make", [Interrupting, Unpickled])
def test_ctrl_c_while_a_received_value_is_made_raises_keyboard_interrupt(peers, make):
    server, client = peers
    value = make()
    _HAS_BEGUN.append(True)
    server.define("give", lambda: value)
    with pytest.raises(KeyboardInterrupt):
        client.sync("server", "give")
    # The arguments of a call, on the thread that takes it: its caller learns of it too.
    for options in ({}, {"batch_size": 2, "max_wait_s": None}):
        queue = server.define_queue("take", **options)
        futures = [client.async_("server", "take", one) for one in (value, 1)]
        with pytest.raises(KeyboardInterrupt):
            queue.get(30.0)
        assert "KeyboardInterrupt" in str(futures[0].exception(30.0))
        if options:
            assert "KeyboardInterrupt" in str(futures[1].exception(30.0))
        else:  # were it still on its way, the next queue would take it
            answer, args, _ = queue.get(30.0)
            assert args == (1,)
            answer(args[0])
            assert futures[1].result(30.0) == 1
        server.undefine("take")
    # A thread that serves goes on.
    for options in ({}, {"batch_size": 1}):
        server.define("plain", lambda x: x, **options)
        assert "KeyboardInterrupt" in str(client.async_("server", "plain", value).exception(30.0))
        assert client.sync("server", "plain", np.arange(1)) == [0]
        server.undefine("plain")


def test_ctrl_c_while_a_batch_is_joined_or_answered_raises_keyboard_interrupt(peers):
    server, client = peers
    queue = server.define_queue("ask", batch_size=1)
    future = client.async_("server", "ask", Interrupting("joining"))
    with pytest.raises(KeyboardInterrupt):
        queue.get(30.0)
    assert "KeyboardInterrupt" in str(future.exception(30.0))
    future = client.async_("server", "ask", 1)
    answer, _, _ = queue.get(30.0)
    with pytest.raises(KeyboardInterrupt):
        answer(Interrupting("answering"))
    assert "KeyboardInterrupt" in str(future.exception(30.0))


class Dropped:
    def __del__(self):
        close_in_del(interrupt)


def drop_one_and_wait(client):
    Dropped()
    client.sample_batch("t", 1, timeout_s=60.0)


def test_ctrl_c_during_a_del_method_is_raised_again():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with reverie.Store([reverie.Table.queue("t", 1)]) as store:
            client = store.client()
            with pytest.raises(KeyboardInterrupt):
                drop_one_and_wait(client)
    finally:
        signal.signal(signal.SIGINT, before)


def program_s():
    """Seconds of a program that does nothing."""
    start = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", "pass"], timeout=120, check=True)
    return time.monotonic() - start


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("part", "door"),
    [
        ("stores", "embedded"),
        ("stores", "served"),
        ("trainings", "embedded"),
        ("peers", "embedded"),
    ],
)
def test_ctrl_c_ends_every_public_call(part, door):
    left = [name for name in exits_program.CASES if exits_program.part_of(name) == part]
    assert len(left) > 10
    for _ in range(TRIES):
        took = run(door, left)
        assert list(took) == left
        late = max(LATE_S, LATE_PROGRAMS * program_s())
        left = [name for name, seconds in took.items() if seconds is None or seconds > late]
        if not left:
            return
    raise AssertionError({name: took[name] for name in left})
