"""A call that fails after it drew from a queue returns the items to the queue."""

import dataclasses
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors


@pytest.fixture(params=["embedded", "served"])
def open_client(request):
    tables = [reverie.Table.queue("q", 100)]
    if request.param == "embedded":
        with reverie.Store(tables) as store:
            yield store.client
    else:
        with reverie.Server(tables) as server:
            yield lambda: reverie.Client(server.address)


def fill(client, lengths):
    for i, length in enumerate(lengths):
        client.insert({"x": np.full(length, i, np.float32)}, {"q": 1.0})


def values(batch):
    """The first value of each item; without a signature a server's columns have no names."""
    column = batch.data["x"] if isinstance(batch.data, dict) else batch.data[0]
    return column.reshape(len(column), -1)[:, 0].tolist()


def size(client):
    return client.server_info()["q"].current_size


def test_items_that_do_not_form_a_batch_return_to_their_queue(open_client):
    client = open_client()
    fill(client, [1, 2, 3])
    with pytest.raises(errors.InvalidArgumentError, match="items that are alike"):
        client.sample_batch("q", 3, timeout_s=10)
    assert size(client) == 3
    singly = [client.sample_batch("q", 1, timeout_s=10) for _ in range(3)]
    assert [values(batch) for batch in singly] == [[0], [1], [2]], "in their order"


@pytest.mark.parametrize("way", ["call", "dataset"])
def test_items_whose_nest_cannot_be_built_return_to_their_queue(way):
    errors_left = []

    @dataclasses.dataclass
    class Refusing:
        x: Any = None

    def set_x(self, value):
        if errors_left:
            raise errors_left.pop()
        vars(self)["kept"] = value

    Refusing.x = property(lambda self: vars(self)["kept"], set_x)
    with reverie.Store([reverie.Table.queue("q", 100)]) as store:
        client = store.client()
        for i in range(3):
            client.insert(Refusing(np.full(1, i, np.float32)), {"q": 1.0})
        errors_left.append(ValueError("not now"))
        if way == "call":
            with pytest.raises(ValueError, match="not now"):
                client.sample_batch("q", 3, timeout_s=10)
        else:
            batches = client.dataset("q", batch_size=3, timeout_s=10)
            with batches, pytest.raises(ValueError, match="not now"):
                next(iter(batches))
        assert not errors_left
        assert size(client) == 3
        assert client.sample_batch("q", 3, timeout_s=10).data.x.reshape(3).tolist() == [0, 1, 2]


def test_an_interrupted_call_returns_its_items_to_the_queue(open_client):
    client, other = open_client(), open_client()
    fill(client, [1, 1, 1])

    def interrupt_once_drawn():
        eventually(lambda: size(other) == 0, 30)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_once_drawn)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        client.sample_batch("q", 5, timeout_s=60)
    thread.join()
    fill(client, [1])
    batch = client.sample_batch("q", 4, timeout_s=10)
    assert sorted(values(batch)) == [0, 0, 1, 2]


def test_items_drawn_by_the_deadline_are_in_the_error(open_client):
    client = open_client()
    fill(client, [1, 1, 1])
    with pytest.raises(errors.DeadlineExceededError) as raised:
        client.sample_batch("q", 5, timeout_s=0.2)
    assert values(raised.value.batch) == [0, 1, 2]
    assert size(client) == 0
