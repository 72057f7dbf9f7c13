"""Programs end with their own status and without output while daemon threads call the package.

Every public method and attribute has a case in ``exits_program.py``: a call that waits or computes
while the interpreter finalizes. All cases run in one process per way to end; with ``--full`` also
in groups of five per process, for every way to end.
"""

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import reverie
import reverie.reverb
import reverie.rl
from public_modules import PUBLIC

PROGRAM = Path(__file__).with_name("exits_program.py")
_spec = importlib.util.spec_from_file_location("exits_program", PROGRAM)
exits_program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(exits_program)
EXIT_MAX_S = 1.0
# On a busy machine the limit is the time in which so many empty programs run.
EXIT_MAX_PROGRAMS = 20
STATUS = {"plain": 0, "exit": 3, "error": 1}
TRACEBACK = re.compile(
    r'Traceback \(most recent call last\):\n(  File ".*exits_program\.py", line .*\n(    .*\n)+)+'
    r"ValueError: the program's own\n"
)
# A warning about a long wait, which the log may have where the program is slow to start.
LONG_WAIT = re.compile(r"^waiting for \d+ s; .*\n", re.MULTILINE)
# The prefix of names in cases, for modules that use the names of others.
PREFIXES = {f"reverie.{name}": f"{name}." for name in ("moolib", "rate_limiters", "reverb")}
# Classes that are returned by methods of the above.
MORE_CLASSES = {kind.__name__: kind for kind in exits_program.MADE_BY_OTHERS}
# Classes of plain data, and functions that make it, without native code.
PLAIN = {
    *("ClientTls", "DeadlineExceededError", "ReplaySample", "ReverbError", "ReverieError"),
    *("SampleInfo", "PeerTls", "ServerLimits", "ServerTls", "Table", "TableInfo", "TensorSpec"),
    *("Condition", "ConditionBuilder", "ConditionProto", "Config", "PatternNode", "Priority"),
    *(
        "ReferenceNode",
        "ModuleType",
        "TrainSettings",
        "Hindsight",
        "External",
        "ExternalRows",
        "Acted",
    ),
    *("CoreTuning", "Episode", "Learner", "Policy", "TrainProgress", "RpcError"),
    *("WrongArgumentError", "WrongTypeError"),
    *("DefaultCheckpointer", "TempDirCheckpointer"),
    *("Selector", "Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Uniform", "Custom"),
    *("Extension", "PriorityDiffusion", "Statistics", "EnvBatch", "EnvSpec", "Version"),
    *(
        f"rate_limiters.{name}"
        for name in ("MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack")
    ),
    # Python code over NumPy, over an environment of another package, or without a body.
    *("JoinStack", "NormalizeObs", "RunningMoments", "ScaleReward"),
    *("AtariEnv", "DmEnv", "OldGym", "Backend", "EnvFuture"),
}
# Functions that neither wait nor release the interpreter's lock, with the reason.
BRIEF_FUNCTIONS = {
    "load_plugin": "loads once; a plugin that loads runs its own code",
    "algorithms": "gives a list of names",
    "create_uid": "makes a str",
    "configure": "Python code",
    "register_dataclass": "Python code over a class",
    "make_native": "GymVectorEnv's own",
    "register": "Python code",
    "set_log_level": "Python code",
    "set_logging": "Python code",
    "set_max_threads": "Python code",
    "unbatch": "Python code over views",
    "td_error": "Python code",
    "create_config": "makes plain data",
    "create_reference_step": "makes plain data",
    "pattern_from_transform": "makes plain data",
    "constant_priority_fn": "makes plain data",
    "unpack_pattern": "reads plain data",
    "infer_signature": "makes plain data",
    "AgentRows": "Python code",
    "make": "Python code",
    "ids": "gives a list of names",
    "spec": "makes plain data",
    **dict.fromkeys(reverie.rl.__all__, "keeps the interpreter's lock"),
}
# Members that every object has, or that only describe one.
ORDINARY = {
    *("__repr__", "__str__", "__reduce__", "__reduce_ex__", "__hash__", "__eq__", "__new__"),
    *("__getstate__", "__setstate__"),
    *("__getattr__", "__doc__", "__init_subclass__", "__class_getitem__"),
}
# Constructors that users do not call, and members from a Protocol or Generic.
SKIPPED = {
    "StructuredWriter.__init__": "Client.structured_writer makes it",
    "TrajectoryWriter.__init__": "Client.trajectory_writer makes it",
    "Dataset.__init__": "Client.dataset makes it",
    "Batch.__init__": "Client.sample_batch makes it",
    "Batch.to": "Batch.convert's, with torch or JAX",
    "BlockedReport.__init__": "Client.why_blocked makes it",
    "ColumnHistory.__init__": "TrajectoryWriter.history makes it",
    "TrajectoryColumn.__init__": "ColumnHistory.__getitem__ makes it",
    "TrajectoryDataset.as_tf": "tf.data's own threads; needs TensorFlow",
    "TimestepDataset.as_tf": "tf.data's own threads; needs TensorFlow",
    "moolib.Rpc.debug_info": "prints what Rpc.debug_info gives",
    "moolib.EnvRunner.__init__": "always raises",
    "moolib.EnvStepper.__init__": "always raises",
    "DeferredReturn.__init__": "Rpc.define_deferred makes it",
    "Queue.__init__": "Rpc.define_queue makes it",
    "Round.__init__": "the methods of a Group make it",
    "Stream.__init__": "Rpc.stream makes it",
    "GymVectorEnv.__enter__": "Gymnasium's",
    "GymVectorEnv.__exit__": "Gymnasium's",
    **{f"TrainResult.{name}": "plain data" for name in ("__init__", "__setattr__", "__delattr__")},
    **{
        f"moolib.Accumulator.{name}": "Accumulator's own"
        for name in vars(reverie.Accumulator) | {"__enter__": None, "__exit__": None}
        if name[0] != "_" or name in ("__enter__", "__exit__")
    },
    **{
        f"reverb.{name}": "needs TensorFlow"
        for name in (
            *(f"TFClient.{name}" for name in ("__init__", "server_address", "sample", "insert")),
            "TFClient.update_priorities",
            "TimestepDataset.from_table_signature",
            "TrajectoryDataset.from_table_signature",
        )
    },
    **{
        f"moolib.Batcher.{name}": "Batcher's own"
        for name in (
            *("__await__", "__enter__", "__exit__", "close", "empty", "filled", "flush", "size"),
        )
    },
}


def public_members(kind):
    """Names of the public members of a class and of its bases in the package."""
    for base in inspect.getmro(kind):
        if not base.__module__.startswith("reverie"):
            continue
        for name, member in vars(base).items():
            if name in ORDINARY or (name.startswith("_") and not name.startswith("__")):
                continue
            is_callable = callable(member) or isinstance(member, classmethod | staticmethod)
            is_native = type(member).__name__ in ("nb_method", "nb_func", "wrapper_descriptor")
            if is_callable or is_native or isinstance(member, property):
                yield name


def is_of_reverb(kind, name):
    """Whether the class that imitates Reverb's has a method of its own."""
    homes = [base for base in inspect.getmro(kind) if name in vars(base)]
    return homes[0].__module__.startswith("reverie.reverb")


SKIPPED |= {
    f"reverb.{kind.__name__}.{name}": f"{kind.__name__}'s own"
    for kind in (
        *(reverie.reverb.Client, reverie.reverb.Server),
        *(reverie.reverb.TrajectoryWriter, reverie.reverb.Writer),
    )
    for name in public_members(kind)
    if not is_of_reverb(kind, name)
}


def public_names():
    """Names of all public functions, and of public members as ``Class.method``."""
    found = set()
    classes = dict(MORE_CLASSES)
    for module_name in PUBLIC:
        prefix = PREFIXES.get(module_name, "")
        module = importlib.import_module(module_name)
        names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        for name in names:
            member = getattr(module, name)
            if inspect.isclass(member):
                if prefix and not member.__module__.startswith(module_name):
                    continue  # belongs to another module
                classes[prefix + name] = member
            elif callable(member) and member.__module__.startswith("reverie"):
                found.add(name)
    for name, kind in classes.items():
        if name not in PLAIN and name.rpartition(".")[2] not in PLAIN:
            found |= {f"{name}.{member}" for member in public_members(kind)}
    return found


def test_every_public_method_has_a_case():
    cases = {name.split(" ")[0] for name in exits_program.CASES}
    named = cases | set(SKIPPED) | set(BRIEF_FUNCTIONS)
    assert public_names() - named == set(), "write a case in exits_program.py for each of these"
    assert named - public_names() == set(), "these are gone"


def run(door, how, names=()):
    """Runs the program; returns its status, its stderr, and the seconds of its finalization."""
    command = [sys.executable, str(PROGRAM), door, how, *names]
    # A checkpoint may be unfinished when the program ends, so its folder is removed afterwards.
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PYTHONPATH": str(Path(reverie.__file__).parents[1]), "TMPDIR": folder}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | environment,
            check=False,
        )
        end = time.monotonic()
    assert done.stdout, done.stderr
    return done.returncode, done.stderr, end - float(done.stdout)


def program_s():
    """The seconds that an empty program takes."""
    start = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", "pass"], timeout=120, check=True)
    return time.monotonic() - start


def is_quick(door, how, names):
    """Runs the program, checks its output, and returns whether it ended in time."""
    status, words, exit_s = run(door, how, names)
    words = LONG_WAIT.sub("", words)
    assert status == STATUS[how], words
    if how == "error":
        assert TRACEBACK.fullmatch(words), words
    else:
        assert words == ""
    return exit_s <= EXIT_MAX_S or exit_s <= EXIT_MAX_PROGRAMS * program_s()


def check(door, how, names=()):
    # On a machine with other work a program may be late, but not three times.
    assert any(is_quick(door, how, names) for _ in range(3))


# Every way to end and both doors; with --full all pairs of them, a few calls at a time.
@pytest.mark.parametrize(
    ("part", "door", "how"),
    [
        ("stores", "embedded", "exit"),
        ("stores", "embedded", "error"),
        ("stores", "served", "plain"),
        ("trainings", "embedded", "exit"),
        ("peers", "embedded", "exit"),
        ("peers", "embedded", "error"),
    ],
)
def test_a_program_ends_while_threads_are_inside_every_call(part, door, how):
    check(door, how, [name for name in exits_program.CASES if exits_program.part_of(name) == part])


def groups_of(count):
    """All cases, those of one part together."""
    for part in ("stores", *exits_program.PARTS):
        names = [name for name in exits_program.CASES if exits_program.part_of(name) == part]
        for i in range(0, len(names), count):
            yield names[i : i + count]


@pytest.mark.full(minutes=0.05)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("door", ["embedded", "served"])
@pytest.mark.parametrize("names", list(groups_of(5)), ids=lambda names: names[0])
def test_a_program_ends_while_threads_are_inside_a_few_calls(names, door):
    for how in STATUS:
        check(door, how, names)


STEPPING = """
import sys, threading
import numpy as np
import reverie.gym

env = reverie.gym.GymVectorEnv("CartPole-v1", 2, backend=sys.argv[1])
env.reset()
stepped = threading.Event()

def step():
    while True:
        env.step(np.zeros(2, int))
        stepped.set()

threading.Thread(target=step, daemon=True).start()
stepped.wait()
sys.exit(3)
"""


@pytest.mark.parametrize("backend", ["native", "process", "thread"])
def test_a_daemon_thread_that_steps_environments_prints_nothing_at_exit(backend):
    done = subprocess.run(
        [sys.executable, "-c", STEPPING, backend], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_the_bindings_acquire_and_release_the_gil_in_one_file(root):
    # nanobind's guards end the process when CPython unwinds a thread.
    names = re.compile(r"gil_scoped|PyGILState|PyEval_(Save|Restore)Thread|Py_(BEGIN|END)_ALLOW")
    for source in sorted((root / "python" / "bindings").glob("*")):
        if source.stem != "gil":
            assert not names.search(source.read_text()), source


DRAWING = """
import atexit, sys, tempfile, threading
import reverie

SHORT = reverie.TrainSettings(seed=1, steps=60, warmup_steps=50, hidden=(4,), batch_size=4)
result = reverie.train("dqn", "CartPole-v1", SHORT, final_episodes=1)
folder = tempfile.mkdtemp()
result.save(folder)
drawn = threading.Event()

def draw():
    while True:
        result.save(folder)
        drawn.set()

threading.Thread(target=draw, daemon=True).start()
drawn.wait()
atexit.register(lambda: (result.save(folder), print("drawn at the end", flush=True)))
sys.exit(3)
"""


@pytest.mark.parametrize("_", range(3))
def test_a_program_ends_while_a_thread_plots(_):
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, "-c", DRAWING], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "drawn at the end\n", "")
