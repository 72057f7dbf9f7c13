"""Where ``reverie.reverb`` differs on purpose; see ``docs/reverb_compatibility.md``."""

import importlib
import os
import socket

import numpy as np
import pytest

import reverie


@pytest.fixture
def is_ours(reverb):
    return reverb.__name__ == "reverie.reverb"


@pytest.fixture(autouse=True)
def only_ours(is_ours):
    if not is_ours:
        pytest.skip("a difference: dm-reverb does otherwise, or aborts")


def test_numbers_that_end_dm_reverbs_process_are_refused(reverb, table):
    made = table()
    for call in (made.can_sample, made.can_insert):
        with pytest.raises(ValueError, match="1"):
            call(0)
    for numbers in ((0.0, 1, -1.0, 1.0), (1.0, 0, -1.0, 1.0)):
        with pytest.raises(ValueError, match="must be"):
            reverb.rate_limiters.RateLimiter(*numbers)


def test_a_limiter_may_serve_two_tables(reverb, table, serve):
    limiter = reverb.rate_limiters.MinSize(1)
    client = serve(table("t", rate_limiter=limiter), table("u", rate_limiter=limiter))
    client.insert([1], {"t": 1.0, "u": 1.0})
    assert next(client.sample("u"))[0].info.table_size == 1


def test_a_table_that_could_never_be_sampled_is_refused(reverb, table):
    with pytest.raises(ValueError, match="nothing could ever be sampled"):
        table(max_size=3, rate_limiter=reverb.rate_limiters.MinSize(4))


def test_a_history_follows_the_rules_of_a_list(table, serve):
    writer = serve(table()).trajectory_writer(5)
    for i in range(5):
        writer.append([i])
    history = writer.history[0]
    with pytest.raises(IndexError):
        history[5]
    assert history[3:5].numpy().tolist() == [3, 4]
    assert len(history[5:]) == 0
    assert history[np.int64(1)].numpy() == 1
    writer.close()


def test_the_length_of_a_pattern_with_steps_is_that_of_its_items(reverb, spec):
    step_spec = {"a": spec((), "int64")}
    step = reverb.structured.create_reference_step(step_spec)
    config = reverb.structured.create_config([step["a"][-5::2]], "t")
    assert reverb.structured.infer_signature([config], step_spec)[0].shape.as_list() == [3]


def test_the_steps_of_a_writer_have_one_structure(table, serve):
    writer = serve(table()).writer(3)
    writer.append({"a": 1})
    with pytest.raises(ValueError, match="structure"):
        writer.append([1])
    writer.close()


def test_a_longer_buffer_than_the_pattern_needs_cannot_be_asked_for(reverb, table, serve):
    patterns = importlib.import_module("reverie.reverb.cc.patterns_pb2")
    config = reverb.structured.create_config(
        [reverb.structured.create_reference_step([None])[0][-2:]],
        "t",
        conditions=[patterns.Condition(buffer_length=True, ge=3)],
    )
    with pytest.raises(ValueError, match="buffer_length"):
        serve(table()).structured_writer([config])


def test_a_checkpoint_of_dm_reverb_is_begun_with(reverb, table, tmp_path):
    server = reverb.Server([table()])
    client = server.localhost_client()
    for value in range(3):
        client.insert([np.int64(value)], {"t": 1.0})
    theirs = reverie.checkpointers.convert(client.checkpoint(), tmp_path)
    server.stop()
    assert sorted(os.listdir(theirs)) == [
        "DONE",
        "chunks.tfrecord",
        "items.tfrecord",
        "tables.tfrecord",
    ]
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    server = reverb.Server([table()], checkpointer=checkpointer)
    client = server.localhost_client()
    assert client.server_info()["t"].current_size == 3
    assert client.checkpoint() == str(tmp_path / "checkpoint-0000000001")
    server.stop()
    with pytest.raises(TypeError):
        reverb.Server([table()], checkpointer=str(tmp_path))


def test_a_table_that_is_not_there_is_both_errors(table, serve):
    client = serve(table())
    with pytest.raises(reverie.errors.NotFoundError) as raised:
        client.insert([1], {"u": 1.0})
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, RuntimeError)


def test_a_field_that_earlier_releases_lacked_may_be_left_out(reverb):
    assert reverb.SampleInfo((), (), (), ()).times_sampled == 0


def test_an_argument_of_earlier_releases_is_taken(table, serve):
    writer = serve(table()).trajectory_writer(3, get_signature_timeout_ms=300_000)
    writer.append([1])
    writer.close()


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_server_answers_at_both_loopbacks(reverb, table):
    server = reverb.Server([table()])
    for host in ("127.0.0.1", "[::1]", "ipv6:[::1]"):
        if "::1" in host and not has_ipv6():
            continue
        assert list(reverb.Client(f"{host}:{server.port}").server_info(timeout=10)) == ["t"]
    server.stop()
