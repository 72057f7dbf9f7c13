"""Checkpoints of the real dm-reverb in our stores, and ours in its servers."""

import os

import numpy as np
import pytest
import reverb
import tensorflow as tf

import reverie

NAMES = ["Fifo", "Lifo", "Uniform", "MinHeap", "MaxHeap", "Prioritized"]
TYPES = (
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["float16", "float32", "float64"]
    + ["complex64", "complex128"]
)
ITEMS = 60
SIZE = 40


def value(i):
    """The value of item ``i``: a column of every type that dm-reverb accepts."""
    data = {t: np.arange(6).reshape(2, 3).astype(t) + np.array(i).astype(t) for t in TYPES}
    data["bool"] = np.array([i % 2 == 0, True])
    data["text"] = np.array([b"step", str(i).encode(), b""], dtype=object)
    return data


def selector(library, name):
    """A new selector, since two tables of dm-reverb must not share one."""
    kind = getattr(library.selectors, name)
    return kind(0.5) if name == "Prioritized" else kind()


def limiters(library):
    return {
        "Fifo": library.rate_limiters.MinSize(1),
        "Lifo": library.rate_limiters.SampleToInsertRatio(2.0, 3, 1000.0),
        "Uniform": library.rate_limiters.MinSize(7),
        "MinHeap": library.rate_limiters.RateLimiter(0.5, 2, -100.0, 300.0),
        "MaxHeap": library.rate_limiters.MinSize(1),
        "Prioritized": library.rate_limiters.MinSize(1),
    }


def tables(library):
    """A table for each selector, which is its sampler and its remover, with different limiters."""
    signature = (
        {"a": tf.TensorSpec((1, 3), tf.float32), "b": tf.TensorSpec((1,), tf.int64)}
        if library is reverb
        else {
            "a": reverie.TensorSpec((1, 3), np.float32),
            "b": reverie.TensorSpec((1,), np.int64),
        }
    )
    made = [
        library.Table(
            name=name,
            sampler=selector(library, name),
            remover=selector(library, NAMES[place - 1]),
            max_size=SIZE,
            max_times_sampled=100 if name == "Lifo" else 0,
            rate_limiter=limiters(library)[name],
        )
        for place, name in enumerate(NAMES)
    ]
    made.append(
        library.Table(
            name="signed",
            sampler=selector(library, "Fifo"),
            remover=selector(library, "Fifo"),
            max_size=SIZE,
            rate_limiter=library.rate_limiters.MinSize(1),
            signature=signature,
        )
    )
    return made


def fill(client):
    """Inserts the same items into each table, with any client."""
    with client.trajectory_writer(5) as writer:
        for i in range(ITEMS):
            writer.append(value(i))
            for name in NAMES:
                columns = {key: writer.history[key][-1:] for key in value(0)}
                writer.create_item(name, 1.0 + i * 7 % 11, columns)
    with client.trajectory_writer(3) as writer:
        for i in range(ITEMS):
            writer.append({"a": np.full(3, i, np.float32), "b": np.int64(i)})
            past = writer.history
            writer.create_item("signed", 1.0, {"a": past["a"][-1:], "b": past["b"][-1:]})


def drawn(client, name, count):
    """Priority and values by key, from ``count`` draws."""
    found = {}
    for sample in client.sample(name, count, emit_timesteps=False):
        info = sample.info
        found[int(info.key)] = (float(info.priority), [np.asarray(c) for c in sample.data])
    return found


def assert_alike(one, other):
    assert one[0] == other[0]
    assert len(one[1]) == len(other[1])
    for mine, theirs in zip(one[1], other[1], strict=True):
        if mine.dtype == object or mine.dtype.kind in "SU":
            as_bytes = [np.array(c, dtype=object).ravel().tolist() for c in (mine, theirs)]
            assert as_bytes[0] == as_bytes[1]
        else:
            np.testing.assert_array_equal(mine, theirs)


def facts(info):
    return (
        info.max_size,
        info.max_times_sampled,
        info.current_size,
        info.num_deleted_episodes,
        info.rate_limiter_info.samples_per_insert,
        info.rate_limiter_info.min_size_to_sample,
        info.rate_limiter_info.min_diff,
        info.rate_limiter_info.max_diff,
        info.rate_limiter_info.insert_stats.completed,
        info.rate_limiter_info.sample_stats.completed,
        info.sampler_options.SerializeToString(deterministic=True),
        info.remover_options.SerializeToString(deterministic=True),
    )


def in_our_server(folder):
    """A server of ours that starts from the folder."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(folder, on_mismatch="theirs")
    return reverie.Server(tables(reverie)[:1], checkpointer=checkpointer)


def test_a_reverie_server_loads_a_dm_reverb_checkpoint(tmp_path):
    root = str(tmp_path / "theirs")
    server = reverb.Server(
        tables(reverb), checkpointer=reverb.checkpointers.DefaultCheckpointer(root)
    )
    client = reverb.Client(f"localhost:{server.port}")
    fill(client)
    client.mutate_priorities("MaxHeap", updates={next(iter(drawn(client, "MaxHeap", 1))): 50.0})
    drawn(client, "Lifo", 5)
    client.checkpoint()
    before = {name: facts(info) for name, info in client.server_info().items()}
    samples = {name: drawn(client, name, 60) for name in [*NAMES, "signed"]}
    server.stop()

    ours = in_our_server(root)
    client = reverb.Client(f"localhost:{ours.port}")
    assert {name: facts(info) for name, info in client.server_info().items()} == before
    assert client.server_info()["signed"].signature == {
        "a": tf.TensorSpec((1, 3), tf.float32),
        "b": tf.TensorSpec((1,), tf.int64),
    }
    for name in [*NAMES, "signed"]:
        again = drawn(client, name, 60)
        common = again.keys() & samples[name].keys()
        assert common == again.keys() or name in ("Uniform", "Prioritized"), name
        assert common
        for key in common:
            assert_alike(again[key], samples[name][key])
    # The server works: it inserts, and the remover evicts what dm-reverb's would have evicted.
    client.insert([np.float32(1)], {"Fifo": 1.0})
    assert client.server_info()["Fifo"].current_size == SIZE
    ours.stop(grace_s=0)


@pytest.mark.parametrize("fills", ["ours", "theirs"])
def test_dm_reverb_loads_a_converted_reverie_checkpoint(tmp_path, fills):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path / "ours")
    ours = reverie.Server(tables(reverie), checkpointer=checkpointer)
    client = reverb.Client(f"localhost:{ours.port}")
    fill(client if fills == "theirs" else ours.client())
    drawn(client, "Lifo", 5)
    client.checkpoint()
    before = {name: facts(info) for name, info in client.server_info().items()}
    samples = {name: drawn(client, name, 60) for name in [*NAMES, "signed"]}
    ours.stop(grace_s=0)
    written = reverie.checkpointers.convert(tmp_path / "ours", tmp_path / "theirs")
    assert os.path.exists(os.path.join(written, "DONE"))

    root = str(tmp_path / "theirs")
    server = reverb.Server(
        tables(reverb), checkpointer=reverb.checkpointers.DefaultCheckpointer(root)
    )
    client = reverb.Client(f"localhost:{server.port}")
    assert {name: facts(info) for name, info in client.server_info().items()} == before
    for name in [*NAMES, "signed"]:
        again = drawn(client, name, 60)
        common = again.keys() & samples[name].keys()
        assert common == again.keys() or name in ("Uniform", "Prioritized"), name
        for key in common:
            assert_alike(again[key], samples[name][key])
    # Converted back, a checkpoint that dm-reverb writes holds the same.
    client.checkpoint()
    server.stop()
    ours = in_our_server(root)
    client = reverb.Client(f"localhost:{ours.port}")
    assert client.server_info()["MinHeap"].current_size == SIZE
    ours.stop(grace_s=0)
