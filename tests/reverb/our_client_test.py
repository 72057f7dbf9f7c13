"""Our client with a server of dm-reverb."""

import numpy as np
import pytest
import reverb
import tensorflow as tf

import reverie


def fifo(name="t", **options):
    return reverb.Table(
        name,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        **options,
    )


def clients(server):
    address = f"localhost:{server.port}"
    return reverie.Client(address), reverb.Client(address)


def step_of(i):
    return {
        "f": np.full((2, 3), i, np.float32),
        "i": np.arange(4, dtype=np.int64) + i,
        "u": np.full((5,), i, np.uint8),
        "b": np.bool_(i % 2),
        "s": np.array([b"x", str(i).encode()], dtype=object),
        "c": np.complex64(i + 1j),
        "h": np.float16(i),
    }


def test_dm_reverbs_client_reads_items_of_reveries_writer(dm_serve):
    ours, theirs = clients(dm_serve(fifo()))
    with ours.trajectory_writer(4, chunk_length=3) as writer:
        for i in range(10):
            writer.append(step_of(i))
            if i >= 3:
                trajectory = {name: column[-4:] for name, column in writer.history.items()}
                trajectory["last"] = writer.history["i"][-1]
                writer.create_item("t", float(i), trajectory)
        writer.flush()
    assert theirs.server_info()["t"].current_size == 7
    sample = next(theirs.sample("t", 1, emit_timesteps=False))
    names = sorted([*step_of(0), "last"])
    assert sample.info.priority == 3.0
    for name, column in zip(names, sample.data, strict=True):
        want = step_of(3)["i"] if name == "last" else np.stack([step_of(i)[name] for i in range(4)])
        assert column.tolist() == want.tolist(), name


def test_non_contiguous_rows_are_sent_as_selected(dm_serve):
    ours, theirs = clients(dm_serve(fifo()))
    with ours.trajectory_writer(6, chunk_length=6) as writer:
        for i in range(6):
            writer.append({"i": np.int64(i)})
        column = writer.history["i"]
        writer.create_item("t", 1.0, {"apart": column[[-1, -3]], "even": column[::2]})
        writer.flush()
    sample = next(theirs.sample("t", 1, emit_timesteps=False))
    assert [column.tolist() for column in sample.data] == [[5, 3], [0, 2, 4]]


@pytest.mark.parametrize("delta", [False, True])
def test_reveries_client_reads_items_of_dm_reverbs_writer(dm_serve, delta):
    ours, theirs = clients(dm_serve(fifo()))
    with theirs.writer(max_sequence_length=4, delta_encoded=delta, chunk_length=2) as writer:
        for i in range(6):
            writer.append(step_of(i))
        writer.create_item("t", 4, 2.5)
    batch = ours.sample_batch("t", 3)
    assert batch.priorities.tolist() == [2.5] * 3
    for column, name in zip(batch.data, sorted(step_of(0)), strict=True):
        want = np.stack([step_of(i)[name] for i in range(2, 6)])
        assert column[0].tolist() == want.tolist(), name
    (steps,) = list(ours.sample("t", 1))
    assert len(steps) == 4
    assert steps[3].data[2].tolist() == step_of(5)[sorted(step_of(0))[2]].tolist()


def test_column_names_and_nests_follow_the_servers_signature(dm_serve):
    signature = {
        "obs": (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None,), tf.int32)),
        "reward": tf.TensorSpec((None,), tf.float64),
    }
    ours, theirs = clients(dm_serve(fifo(signature=signature)))
    with theirs.trajectory_writer(2) as writer:
        for i in range(2):
            writer.append({"obs": (np.full(2, i, np.float32), np.int32(i)), "reward": float(i)})
        history = writer.history
        writer.create_item(
            "t",
            1.0,
            {
                "obs": (history["obs"][0][-2:], history["obs"][1][-2:]),
                "reward": history["reward"][-2:],
            },
        )
        writer.flush()
    batch = ours.sample_batch("t", 2)
    assert batch.data["obs"][0].shape == (2, 2, 2)
    assert batch.data["reward"][0].tolist() == [0.0, 1.0]
    table = ours.server_info()["t"]
    assert table.signature["reward"] == reverie.TensorSpec((None,), np.float64)
    writer = ours.trajectory_writer(1)
    writer.append({"obs": np.float32(1)})
    with pytest.raises(reverie.errors.InvalidArgumentError, match="signature"):
        writer.create_item("t", 1.0, {"obs": writer.history["obs"][-1:]})


def test_all_calls_of_a_client_work(dm_serve):
    server = dm_serve(fifo(), fifo("u"))
    ours, theirs = clients(server)
    ours.insert({"x": np.float32(1)}, {"t": 1.0, "u": 2.0})
    assert {name: info.current_size for name, info in ours.server_info(5).items()} == {
        "t": 1,
        "u": 1,
    }
    batch = ours.sample_batch("u", 2)
    assert batch.keys[0] == batch.tickets[0]
    assert ours.update_priorities("u", batch.tickets[:1], [7.0]) == 1
    assert next(theirs.sample("u", 1))[0].info.priority == 7.0
    ours.mutate_priorities("u", deletes=[int(batch.keys[0])])
    assert ours.server_info()["u"].current_size == 0
    ours.reset("t")
    assert ours.server_info()["t"].current_size == 0
    assert ours.checkpoint().startswith("/")
    with ours.writer(2) as writer:
        writer.append(np.int64(1))
        writer.append(np.int64(2))
        writer.create_item("t", 2, 1.0)
    assert [int(step.data) for step in next(theirs.sample("t", 1))[:0]] == []
    assert next(theirs.sample("t", 1, emit_timesteps=False)).data[0].tolist() == [1, 2]


def test_refusals_of_dm_reverbs_server_raise_typed_errors(dm_serve):
    ours, _ = clients(dm_serve(fifo()))
    with pytest.raises(reverie.errors.NotFoundError):
        ours.sample_batch("none", 1)
    with pytest.raises(reverie.errors.DeadlineExceededError, match="0 of 3 samples"):
        ours.sample_batch("t", 3, timeout_s=0.2)
    with pytest.raises(reverie.errors.NotFoundError):
        ours.reset("none")
    with pytest.raises(reverie.errors.UnimplementedError):
        ours.sample_batch("t", 1, distinct=True)
    with pytest.raises(reverie.errors.UnimplementedError):
        ours.why_blocked("t")


def test_a_waiting_insert_ends_at_its_timeout(dm_serve):
    ours, theirs = clients(dm_serve(reverb.Table.queue("t", 1)))
    ours.insert(np.int64(1), {"t": 1.0})
    with pytest.raises(reverie.errors.DeadlineExceededError):
        ours.insert(np.int64(2), {"t": 1.0}, timeout_s=0.3)
    assert int(next(theirs.sample("t", 1))[0].data[0]) == 1


def test_samples_drawn_before_the_timeout_are_in_the_error(dm_serve):
    ours, _ = clients(dm_serve(reverb.Table.queue("t", 5)))
    for i in range(2):
        ours.insert(np.int64(i), {"t": 1.0})
    with pytest.raises(reverie.errors.DeadlineExceededError) as caught:
        ours.sample_batch("t", 3, timeout_s=0.3)
    assert caught.value.batch.data[0][:, 0].tolist() == [0, 1]


def test_batches_are_read_in_order_from_a_dm_reverb_queue(dm_serve):
    ours, _ = clients(dm_serve(reverb.Table.queue("t", 64)))
    with ours.trajectory_writer(1) as writer:
        for i in range(64):
            writer.append({"i": np.int64(i)})
            writer.create_item("t", 1.0, {"i": writer.history["i"][-1:]})
        writer.flush()
    seen = []
    for _ in range(4):
        seen += ours.sample_batch("t", 16).data[0][:, 0].tolist()
    assert seen == list(range(64))
