"""Checkpoints of Reverie and of dm-reverb, converted into each other."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import __main__ as command
from reverie import errors

DTYPES = [
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


def tables():
    pick = reverie.selectors
    options = {"max_size": 50, "rate_limiter": reverie.rate_limiters.MinSize(2)}
    signature = {"image": reverie.TensorSpec((1, 4, 2), np.uint8, "image")}
    return [
        reverie.Table("best", sampler=pick.Prioritized(0.7), remover=pick.MinHeap(), **options),
        reverie.Table("last", sampler=pick.Lifo(), remover=pick.Fifo(), **options),
        reverie.Table(
            "signed", sampler=pick.Uniform(), remover=pick.Fifo(), signature=signature, **options
        ),
    ]


def step(i):
    draws = np.random.default_rng(i)
    return {
        "image": draws.integers(0, 255, (4, 2), np.uint8),
        "text": f"step {i}",
        "raw": bytes([i % 256, 0]),
        "nest": tuple(np.array([i % 2, i // 2]).astype(dtype) for dtype in DTYPES),
    }


@pytest.fixture
def saved(tmp_path):
    """A folder with one checkpoint of Reverie."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path / "ours")
    with reverie.Store(tables(), checkpointer=checkpointer) as store:
        with store.client().trajectory_writer(4) as writer:
            for i in range(60):
                writer.append(step(i))
                if i % 20 == 0:  # the first step of an episode has no step before it
                    continue
                past = writer.history
                writer.create_item("best", 1.0 + i % 9, {"x": past["nest"][3][-2:]})
                writer.create_item("last", 1.0, {"t": past["text"][-1], "r": past["raw"][-1:]})
                writer.create_item("signed", 1.0, {"image": past["image"][-1:]})
                if i % 20 == 19:
                    writer.end_episode()
        store.checkpoint(b"payload")
    return tmp_path / "ours"


def plain(column):
    """Converts text to bytes, which it becomes in dm-reverb's form without a signature."""
    value = np.asarray(column).tolist()
    return value.encode() if isinstance(value, str) else value


def items_of(folder, name, **options):
    """Keys, priorities and values of a table in the store that starts from ``folder``."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(folder, **options)
    with reverie.Store(tables(), checkpointer=checkpointer) as store:
        assert store.client().server_info()[name].current_size == 50
        samples = {}
        for sample in store.client().sample(name, 400, emit_timesteps=False):
            values = [plain(column) for column in sample.data]
            samples[int(sample.info.key)] = (float(sample.info.priority), values)
    return samples


def test_a_checkpoint_converted_to_dm_reverb_and_back_is_equal(saved, tmp_path):
    theirs = reverie.checkpointers.convert(saved, tmp_path / "theirs")
    assert os.path.dirname(theirs) == str(tmp_path / "theirs")
    assert sorted(os.listdir(theirs)) == [
        "DONE",
        "chunks.tfrecord",
        "items.tfrecord",
        "tables.tfrecord",
    ]
    back = reverie.checkpointers.convert(theirs, tmp_path / "back")
    assert back == str(tmp_path / "back" / "checkpoint-0000000001")
    for name in ("best", "last", "signed"):
        first = items_of(saved, name)
        again = items_of(tmp_path / "back", name)
        common = first.keys() & again.keys()
        assert common or name == "last"
        for key in common:
            assert first[key] == again[key]
    (key,) = items_of(saved, "last")
    assert items_of(tmp_path / "back", "last").keys() == {key}


def test_a_store_loads_a_dm_reverb_checkpoint_if_it_has_none_of_its_own(saved, tmp_path):
    theirs = reverie.checkpointers.convert(saved, tmp_path / "theirs")
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path / "theirs")
    with reverie.Store(tables(), checkpointer=checkpointer, durability="sync") as store:
        assert store.loaded_checkpoint == theirs
        assert store.client().server_info()["best"].current_size == 50
        store.client().insert(np.float32(1), {"last": 1.0})
    with reverie.Store(tables(), checkpointer=checkpointer, durability="sync") as store:
        assert store.loaded_checkpoint.endswith("checkpoint-0000000001")
        assert store.client().server_info()["last"].num_unique_samples == 0
        (sample,) = store.client().sample("last", 1, emit_timesteps=False)
        assert sample.data[0].tolist() == [1.0]
    items_of(tmp_path / "new", "best", fallback_checkpoint_path=theirs)


def test_the_command_reports_what_it_wrote(saved, tmp_path, capsys):
    target = tmp_path / "theirs"
    assert command.main(["checkpoint", "convert", str(saved), str(target)]) == 0
    said = capsys.readouterr().out
    assert f"{saved}/checkpoint-0000000001 is written as dm-reverb's: {target}/2" in said
    assert said.endswith("3 tables, 150 items\n")
    assert command.main(["checkpoint", "inspect", str(target)]) == 1
    assert "reverie checkpoint convert" in capsys.readouterr().out
    assert command.main(["checkpoint", "convert", str(saved), str(target)]) == 1
    assert "holds checkpoints already" in capsys.readouterr().err


def test_a_missing_or_damaged_checkpoint_cannot_be_converted(saved, tmp_path):
    with pytest.raises(errors.NotFoundError, match="holds no checkpoint"):
        reverie.checkpointers.convert(tmp_path / "nothing", tmp_path / "x")
    theirs = reverie.checkpointers.convert(saved, tmp_path / "theirs")
    path = os.path.join(theirs, "items.tfrecord")
    with open(path, "r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 8]))
    with pytest.raises(errors.DataLossError, match=r"items\.tfrecord"):
        reverie.checkpointers.convert(theirs, tmp_path / "x")
    with pytest.raises(errors.DataLossError, match=r"items\.tfrecord"):
        items_of(tmp_path / "theirs", "best")
    with pytest.raises(errors.UnsupportedTypeError, match="source"):
        reverie.checkpointers.convert(3, tmp_path)


def test_ctrl_c_ends_a_conversion_and_leaves_no_files(tmp_path):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path / "ours")
    table = reverie.Table.queue("t", 3_000)
    with reverie.Store([table], checkpointer=checkpointer) as store:
        for seed in range(1_500):  # incompressible, so that the conversion takes seconds
            noise = np.random.default_rng(seed).random(20_000)
            store.client().insert(noise, {"t": 1.0})
        store.checkpoint()
    command = [sys.executable, "-m", "reverie", "checkpoint", "convert"]
    child = subprocess.Popen(
        [*command, tmp_path / "ours", tmp_path / "theirs"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(reverie.__file__))},
    )
    eventually(lambda: list(tmp_path.glob("theirs/tmp-*/chunks.tfrecord")))
    child.send_signal(signal.SIGINT)
    _, words = child.communicate(timeout=60)
    assert child.returncode == 130
    assert words == "reverie checkpoint: interrupted\n"
    assert os.listdir(tmp_path / "theirs") == []


def test_the_checkpoint_of_a_replay_buffer_cannot_be_converted(tmp_path):
    buffer = reverie.ReplayBuffer(100)
    buffer.add(np.float32(1), 0, 1.0, np.float32(2), False, False)
    buffer.save(tmp_path / "buffer")
    with pytest.raises(errors.UnimplementedError, match="keys"):
        reverie.checkpointers.convert(tmp_path / "buffer", tmp_path / "theirs")
    assert os.listdir(tmp_path / "theirs") == []
