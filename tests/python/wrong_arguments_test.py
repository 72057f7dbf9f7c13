"""One wrong argument at a time, to every public function, method and constructor of the package.

For each argument of each call of ``public_calls``, tries each value of ``WRONG``. The call may
accept it; otherwise it raises an error of the library, or a TypeError or ValueError, whose message
names the argument. Errors of NumPy, nanobind or Python's operators must not come through.
"""

import contextlib
import copy
import pickle
import pkgutil

import numpy as np
import pytest

import reverie
from public_calls import (
    CALLS,
    ENDS,
    INTERNAL,
    PUBLIC,
    SUBJECTS,
    Worlds,
    make_call,
    parameters,
    run,
    valid,
)
from reverie import errors, reverb

WRONG = {
    "None": None,
    "object": object(),
    "text": "wrong",
    "empty text": "",
    "text that is no UTF-8": "\ud800",
    "bytes": b"wrong",
    "fraction": 1.5,
    "negative": -1,
    "huge": 2**70,
    "longer than Python writes": 10**5000,
    "infinite": float("inf"),
    "NaN": float("nan"),
    "complex": 1j,
    "list": [],
    "list of text": ["wrong"],
    "dict": {},
    "dict of text": {"wrong": 1},
    "pair": (1, 2),
    "matrix": np.zeros((2, 2)),
    "array without dimensions": np.array(None),
    "masked number": np.ma.masked_array(3, mask=True),
    "text array": np.array(["wrong"]),
    "objects": np.array([object()]),
    "function": lambda *_: 0,
    "class": type,
}

# What a message may name instead of the argument: something that the argument contains.
ALIASES = {
    "data": ("column", "step", "array"),
    "data_references": ("column", "trajectory"),
    "dtypes": ("dtype", "column", "shape"),
    "env": ("environment", "vector environments", "id is"),
    "env_backend": ("backend",),
    "env_id": ("environment", "id"),
    "env_kwargs": ("option",),
    "game": ("Atari game",),
    "input_dataset": ("column", "the step"),
    "nest": ("column", "array", "item"),
    "batch": ("column",),
    "betas": ("mean_decay", "square_decay"),
    "obs": ("column",),
    "next_obs": ("column",),
    "action": ("column",),
    "path": ("plugin", "library"),
    "rewards": ("B=0",),  # the batch size that the other arguments must have
    "pattern": ("column",),
    "sequence": ("column", "the array", "the step"),
    "priorities": ("priority",),
    "unix_path": ("path",),
    "server_address": ("address", "server", "target", "host"),
    "shapes": ("shape", "column"),
    "signature": ("column",),
    "step_spec": ("column", "the signature"),
    "table": ("table", "a table"),
    "trajectory": ("column",),
    "key": ("slice", "index", "row"),
    "actions": ("action",),
    "tables": ("table",),
    "transforms": ("transform",),
    "step_structure": ("column", "get_field_from_step_fn", "structure"),
    "create_env": ("env",),
    "num_processes": ("num_workers",),
}


# Arguments that are not tested here.
LEFT_OUT = {
    ("train", "out"),  # any text is a valid folder, which would be written
    ("train", "settings"),  # None is valid and trains for minutes; see agents_test.py
    ("evaluate", "folder"),  # raises FileNotFoundError, as documented
    # Any text is a valid folder or file, which would be written.
    ("TrainResult.save", "folder"),
    ("ReplayBuffer.save", "path"),
    ("Trainer.save", "path"),
    ("Loop.save", "path"),
    ("Mlp.save", "path"),
    ("act", "patience_s"),  # a large value is valid and would wait
    ("Trainer.wait", "timeout_s"),  # None is valid: another thread may start the training
}
FOR_EVER = {"huge", "infinite", "longer than Python writes"}


_SIMPLE = {"int", "float", "str", "bool", "None", "<class 'int'>", "<class 'float'>"}
_SIMPLE |= {"<class 'str'>", "<class 'bool'>"}


def must_refuse(parameter):
    """Whether the annotation excludes an arbitrary object."""
    return all(part.strip() in _SIMPLE for part in parameter.annotation.split("|"))


def describe(error):
    return f"{type(error).__name__}: {error}"


def is_named(error, parameter):
    words = (parameter.name, *ALIASES.get(parameter.name, ()))
    return any(word in str(error) for word in words)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind", "member"), CALLS, ids=[name for name, _, _ in CALLS])
def test_the_error_for_a_wrong_argument_is_one_sentence_that_names_it(name, kind, member):
    method = member if isinstance(member, str) else None
    function = None if kind is not None else member
    if kind is not None and kind.__name__ == "TFClient":
        pytest.importorskip("tensorflow")
    if "Atari" in name or name == "make":
        pytest.importorskip("ale_py")
    takes = parameters(kind, method, function)
    if not takes:
        return
    faults = []
    with Worlds() as world:
        call = make_call(world, name, kind, method, function)
        good = {one.name: valid(world, name, one.name) for one in takes}
        try:
            run(call, takes, good)
        except errors.ReverieError as error:
            if isinstance(error, (errors.InvalidArgumentError, errors.UnsupportedTypeError)):
                pytest.fail(f"{name}({good}) is to be valid: {describe(error)}")
        for one in takes:
            if (name, one.name) in LEFT_OUT:
                continue
            for what, wrong in WRONG.items():
                if what in FOR_EVER and "timeout" in one.name and method is not None:
                    continue  # valid, and the call would wait that long
                if method in ENDS:
                    world = Worlds()
                    call = make_call(world, name, kind, method, function)
                good = {each.name: valid(world, name, each.name) for each in takes}
                try:
                    run(call, takes, {**good, one.name: wrong})
                except errors.ReverieError as error:
                    is_argument = isinstance(
                        error, (errors.InvalidArgumentError, errors.UnsupportedTypeError)
                    )
                    if is_argument and not is_named(error, one):
                        faults.append(f"{one.name}={what}: unnamed in {describe(error)}")
                except Exception as error:  # the kind of error that must not come through
                    faults.append(f"{one.name}={what}: {describe(error)[:300]}")
                else:
                    if what == "object" and must_refuse(one):
                        faults.append(f"{one.name}={what}: was taken for {one.annotation}")
                if method in ENDS:
                    world.close()
    assert not faults, f"{name}:\n" + "\n".join(faults)


def test_every_module_is_public_or_internal():
    found = [one.name for one in pkgutil.walk_packages(reverie.__path__, "reverie.")]
    unknown = [
        name
        for name in found
        if not name.endswith("_test") and name not in PUBLIC and not INTERNAL.match(name)
    ]
    assert not unknown, "name them in PUBLIC, or in INTERNAL"


ALONE = sorted(
    set(SUBJECTS)
    - {"AtariEnv", "BlockedReport", "ColumnHistory", "EnvStepperFuture", "TrajectoryColumn"}
    - {"PatternDataset", "TrajectoryWriter.create_whole_item"}
)


@pytest.mark.parametrize("name", ALONE)
def test_pickling_and_copying_raise_no_other_error_than_unsupported_type(name):
    with Worlds() as world:
        value = SUBJECTS[name](world)
        for how in (pickle.dumps, copy.copy, copy.deepcopy):
            # Any other error fails the test.
            with contextlib.suppress(errors.UnsupportedTypeError):
                how(value)


@pytest.mark.parametrize("count", [None, "2", 2.0])
def test_reverbs_client_refuses_a_wrong_number_of_samples_by_name(count):
    with reverb.Server([reverie.Table.queue("t", 5)]) as server:
        samples = server.client().sample("t", count)
        with pytest.raises(errors.UnsupportedTypeError, match="num_samples is"):
            next(samples)


class Index:
    """An integer for Python, though of no class of Python's or NumPy's."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


@pytest.mark.parametrize("kind", [Index, np.int8, np.uint64, np.array])
def test_values_with_an_index_method_are_accepted_as_integers(kind):
    table = reverie.Table.queue("t", kind(5))
    assert table.info.max_size == 5
    with reverie.Store([table.replace(max_size=kind(7))]) as store:
        client = store.client()
        client.insert({"x": 1.0}, {"t": 1.0})
        with client.trajectory_writer(kind(2), chunk_length=kind(1)) as writer:
            writer.append({"x": 1.0})
        assert client.sample_batch("t", kind(1)).data["x"].shape == (1, 1)
        if kind is not np.array:
            client.mutate_priorities("t", {kind(5): 1.0}, deletes=[kind(3)])
    counts = {"num_envs": kind(1), "frame_stack": kind(1), "n_step": kind(3)}
    buffer = reverie.ReplayBuffer(kind(50), gamma=1.0, **counts)
    for step in range(5):
        buffer.add(np.float32(step), 0, 1.0, np.float32(step + 1), False)
    assert buffer.sample(kind(4))["reward"].tolist() == [3.0] * 4
    batcher = reverie.Batcher(kind(1), dim=kind(0))
    batcher.stack(1.0)
    assert batcher.get().tolist() == [1.0]
    with reverie.EnvPool("CartPole-v1", kind(2), backend="native") as pool:
        assert pool.reset(kind(1)).result().reward.shape == (2,)
