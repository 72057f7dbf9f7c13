"""A refused item: its writer reports it once, and no other item is lost with it."""

import re
import threading

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors, structured

PROTOCOLS = ("grpc", "peer")


def refusing(name="p", limiter=None):
    """A queue that refuses negative priorities; samples come in the order of insertion."""
    return reverie.Table(
        name,
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Prioritized(1.0),
        max_size=10_000,
        max_times_sampled=1,
        rate_limiter=limiter or reverie.rate_limiters.MinSize(1),
    )


def connected(server, protocol):
    return reverie.Client(f"localhost:{server.port}", protocol=protocol)


def put(writer, value, priorities):
    writer.append({"x": np.float32(value)})
    for table, priority in priorities.items():
        writer.create_item(table, priority, {"x": writer.history["x"][-1:]})


def drained(client, table, count):
    # Without a signature the columns of a remote writer's items have no names here.
    taken = [client.sample_batch(table, 1, timeout_s=30).data[0].item() for _ in range(count)]
    assert client.server_info()[table].current_size == 0
    return taken


def error_of(call):
    try:
        call()
    except errors.InvalidArgumentError as error:
        return str(error)
    return None


def until_ok(call):
    """Calls again after each report of a loss. Returns how many items were lost."""
    lost = 0
    while (error := error_of(call)) is not None:
        report = re.search(r"(\d+) queued items? ", error)
        if report is None:
            return lost + 1  # this call's item, which was refused at once
        lost += int(report[1])
    return lost


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_item_costs_no_other_item_of_its_client(protocol):
    with reverie.Server([refusing(limiter=reverie.rate_limiters.Queue(5))]) as server:
        client = connected(server, protocol)
        inside = server.client()
        good, bad = (client.trajectory_writer(1) for _ in range(2))
        for value in range(8):
            put(good, value, {"p": 1.0})
        eventually(lambda: inside.why_blocked("p").inserts.waiting == 3)
        inserting = threading.Thread(
            target=client.insert, args=({"x": np.float32(8)}, {"p": 1.0}), daemon=True
        )
        inserting.start()
        eventually(lambda: inside.why_blocked("p").inserts.waiting == 4)
        lost = until_ok(lambda: put(bad, -1, {"p": -1.0}))
        assert lost + until_ok(lambda: bad.flush(timeout_s=30)) == 1
        assert drained(inside, "p", 9) == list(range(9))
        inserting.join(30)
        assert not inserting.is_alive()
        good.flush(timeout_s=30)
        put(bad, 9, {"p": 1.0})
        bad.flush(timeout_s=30)
        assert drained(inside, "p", 1) == [9]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("is_refused", [lambda value: value == 20, lambda value: value % 2 == 1])
def test_items_around_refused_ones_arrive_once_and_in_order(protocol, is_refused):
    with reverie.Server([refusing()]) as server:
        writer = connected(server, protocol).trajectory_writer(1)
        lost = 0
        for value in range(400):
            lost += until_ok(lambda value=value: writer.append({"x": np.float32(value)}))
            item = {"x": writer.history["x"][-1:]}
            priority = -1.0 if is_refused(value) else 1.0
            lost += until_ok(
                lambda item=item, priority=priority: writer.create_item("p", priority, item)
            )
        lost += until_ok(lambda: writer.flush(timeout_s=60))
        good = [value for value in range(400) if not is_refused(value)]
        assert lost == 400 - len(good)
        assert drained(server.client(), "p", len(good)) == good


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refusal_by_one_table_costs_no_item_of_another(protocol):
    with reverie.Server([refusing(), refusing("q")]) as server:
        writer = connected(server, protocol).trajectory_writer(1)
        put(writer, 0, {"p": 1.0, "q": 1.0})
        writer.flush(timeout_s=30)  # from now on the items of both tables share a stream
        writer.append({"x": np.float32(1)})
        item = {"x": writer.history["x"][-1:]}
        lost = until_ok(lambda: writer.create_item("p", -1.0, item))
        for _ in range(30):
            lost += until_ok(lambda: writer.create_item("q", 1.0, item))
        lost += until_ok(lambda: writer.flush(timeout_s=30))
        assert lost == 1
        assert drained(server.client(), "q", 31) == [0] + 30 * [1]
        assert drained(server.client(), "p", 1) == [0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_last_item_of_an_episode_is_made_although_an_earlier_one_was_lost(protocol):
    with reverie.Server([refusing(), refusing("q")]) as server:
        step = structured.create_reference_step({"x": None})
        configs = [
            structured.create_config(
                step["x"][-1], table="p", priority=structured.constant_priority_fn(-1.0)
            ),
            structured.create_config(
                step["x"][-1], table="q", conditions=[structured.Condition.is_end_episode()]
            ),
        ]
        writer = connected(server, protocol).structured_writer(configs)
        lost = until_ok(lambda: writer.append({"x": np.float32(1)}))
        eventually(lambda: writer.pending_items == 0)
        lost += until_ok(writer.end_episode)
        assert lost == 1
        assert server.client().server_info()["q"].current_size == 1


def test_a_dropped_writer_flushes_although_an_item_was_refused():
    # Over gRPC a writer's items of two tables share a stream, so that none is refused meanwhile.
    with reverie.Server([refusing(), reverie.Table.queue("q", 2)]) as server:
        client = connected(server, "peer")
        inside = server.client()
        held = [client.trajectory_writer(1)]
        held[0].append({"x": np.float32(1)})
        item = {"x": held[0].history["x"][-1:]}
        for _ in range(4):
            held[0].create_item("q", 1.0, item)
        eventually(lambda: inside.why_blocked("q").inserts.waiting == 2)
        held[0].create_item("p", -1.0, item)
        eventually(lambda: held[0].pending_items == 2)  # the refusal is not reported yet
        taking = threading.Timer(0.1, lambda: inside.sample_batch("q", 2))
        taking.start()
        with pytest.warns(ResourceWarning, match=r"1 queued item for table 'p' was lost.*priority"):
            held.clear()
        taking.join(30)
        assert inside.server_info()["q"].current_size == 2
