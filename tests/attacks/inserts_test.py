"""Inserts that no client of ours sends: nested without end, changed at random, or not decodable."""

import random

import numpy as np
from attack_peer import (
    PING,
    STORED,
    block,
    chunk,
    frame,
    grpc_message,
    insert_request,
    item,
    literal,
    rubbish_chunk,
    tensor,
    varint,
)

import reverie
from eventually import eventually

FLOAT = 1
ROWS = 4
GROUP_BEGINS, GROUP_ENDS = 3, 4  # protobuf's wire types
SEED = 12


def row_chunk(key):
    """A chunk of ``ROWS`` float32 rows."""
    return chunk(key, [tensor(literal(bytes(range(ROWS * 4))), (ROWS, 1), FLOAT)])


def insert(target, *messages):
    """Sends a call for each message on a new connection; returns once the server has read all."""
    with target.peer() as peer:
        sent = b"".join(peer.call("InsertStream", grpc_message(message)) for message in messages)
        if not peer.try_send(sent + frame(PING, payload=b"all read")):
            return
        for kind, *_ in iter(peer.read_frame, None):
            if kind == PING:
                return


def groups(field, depth, *, is_closed):
    """Groups within groups: a deprecated form of protobuf that a recursive reader follows."""
    begin, end = varint(field << 3 | GROUP_BEGINS), varint(field << 3 | GROUP_ENDS)
    return begin * depth + (end * depth if is_closed else b"")


def test_nested_groups_are_refused_or_skipped(target):
    """In the request, in its chunks, its items and their tensors, as known and unknown fields."""
    depth = 60_000  # as many as a call's first window takes
    with target.attacked("nested groups", growth_mib=20):
        for is_closed in (True, False):
            for field in (1, 5, 1000):
                deep = groups(field, depth, is_closed=is_closed)
                for message in (
                    deep,
                    block(1, deep),
                    block(2, deep),
                    insert_request([row_chunk(1) + block(5, block(1, deep))]),
                ):
                    insert(target, message)


def test_mutated_inserts_harm_no_other_client(target, is_full):
    draws = random.Random(SEED)
    valid = insert_request(
        [row_chunk(1), row_chunk(2)],
        [item(1, 1, "attacked", length=ROWS), item(2, 2, "attacked", length=ROWS)],
        [1, 2],
    )

    def mutated():
        bytes_ = bytearray(valid)
        for _ in range(draws.randint(1, 4)):
            at = draws.randrange(len(bytes_))
            kind = draws.randrange(4)
            if kind == 0:
                bytes_[at] = draws.randrange(256)
            elif kind == 1:
                bytes_[at] ^= 1 << draws.randrange(8)
            elif kind == 2:
                del bytes_[at : at + draws.randint(1, 8)]
            else:
                bytes_[at:at] = bytes_[at : at + draws.randint(1, 8)]
        return bytes(bytes_)

    with target.attacked(f"mutated inserts, seed {SEED}", growth_mib=20):
        for _ in range(200 if is_full else 20):
            insert(target, *(mutated() for _ in range(50)))
        # What was mutated into another valid insert is stored; the table can still be read.
        sizes = target.ask("tables")
        assert set(sizes) >= {"replay", "honest", "attacked"}


def test_a_rubbish_chunk_costs_its_own_item_alone(target):
    """It is found when it is drawn: the item is removed and counted, and the others are served."""
    good = 20
    with (
        target.attacked("a rubbish chunk", growth_mib=10),
        reverie.Client(target.address) as client,
    ):
        with client.trajectory_writer(ROWS, codec="raw") as writer:
            for row in range(good * ROWS):
                writer.append([np.float32(row)])
                if row % ROWS == ROWS - 1:
                    writer.create_item("rubbish", 1.0, [writer.history[0][-ROWS:]])
        stored = block(STORED, rubbish_chunk(7007, ROWS))
        insert(target, stored + block(2, item(77, 7007, "rubbish", length=ROWS)))
        eventually(lambda: client.server_info()["rubbish"].current_size == good + 1)
        for _ in range(50):
            batch = client.sample_batch("rubbish", 8, timeout_s=30.0)
            first = batch.data[0][:, :1]
            assert (batch.data[0] == first + np.arange(ROWS)).all()
        info = client.server_info()["rubbish"]
        assert (info.current_size, info.corrupt_items) == (good, 1)
