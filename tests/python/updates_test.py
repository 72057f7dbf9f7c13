"""Updates of priorities that do not wait for the server."""

import gc
import threading
import time

import numpy as np
import pytest

import reverie
from reverie import errors, reverb


def prioritized(name="t", **options):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Prioritized(1.0),
        remover=reverie.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        **options,
    )


@pytest.fixture
def server():
    with reverie.Server([prioritized()]) as made:
        for i in range(64):
            made.client().insert([np.int64(i)], {"t": 1.0})
        yield made


def keys_of(client):
    return client.sample_batch("t", 64).keys


def test_updates_take_effect_in_order(server):
    client = server.localhost_client()
    keys = np.unique(keys_of(client))
    for priority in range(1, 200):
        assert client.update_priorities(
            "t", keys=keys, priorities=np.full(len(keys), float(priority)), wait=False
        ) == len(keys)
    client.flush(timeout_s=10)
    assert server.client().priorities("t", keys).tolist() == [199.0] * len(keys)


def test_a_waiting_update_takes_effect_after_earlier_ones(server):
    client = server.localhost_client()
    keys = np.unique(keys_of(client))
    client.update_priorities("t", keys=keys, priorities=np.full(len(keys), 5.0), wait=False)
    client.update_priorities("t", keys=keys[:1], priorities=[7.0], wait=True)
    assert server.client().priorities("t", keys).tolist() == [7.0] + [5.0] * (len(keys) - 1)


def test_the_error_of_an_update_is_raised_by_the_next_call_or_flush(server):
    client = server.localhost_client()
    client.update_priorities("u", keys=[1], priorities=[1.0], wait=False)
    with pytest.raises(errors.NotFoundError, match="earlier update of priorities of table 'u'"):
        client.flush(timeout_s=10)
    client.flush(timeout_s=10)  # an error is reported once
    key = keys_of(client)[0]
    client.update_priorities("t", keys=[key], priorities=[-1.0], wait=False)
    with pytest.raises(errors.InvalidArgumentError, match="earlier update"):
        update_for(10, client, key)
    client.update_priorities("t", keys=[key], priorities=[4.0], wait=False)
    client.flush(timeout_s=10)
    assert server.client().priorities("t", [key]).tolist() == [4.0]


def update_for(seconds, client, key):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client.update_priorities("t", keys=[key], priorities=[3.0], wait=False)


def test_wrong_arguments_are_refused_at_once(server):
    client = server.localhost_client()
    with pytest.raises(errors.InvalidArgumentError, match="give one for each"):
        client.update_priorities("t", keys=[1, 2], priorities=[1.0], wait=False)
    with pytest.raises(errors.UnsupportedTypeError, match="wait"):
        client.update_priorities("t", keys=[1], priorities=[1.0], wait="no")
    with pytest.raises(errors.InvalidArgumentError, match="timeout_s"):
        client.flush(timeout_s=-1)
    client.flush()


def test_priorities_may_be_tensors_that_require_grad(server):
    torch = pytest.importorskip("torch")
    losses = torch.arange(1.0, 4.0, requires_grad=True) * 2
    with reverie.Store([prioritized()]) as store:
        client = store.client()
        for i in range(3):
            client.insert([np.int64(i)], {"t": 1.0})
        batch = client.sample_batch("t", 3, distinct=True)
        assert client.update_priorities("t", batch.tickets, losses) == 3
        assert client.priorities("t", batch.keys).tolist() == [2.0, 4.0, 6.0]
        with pytest.raises(errors.UnsupportedTypeError, match="it must hold numbers"):
            client.update_priorities("t", batch.tickets, list(losses))
    remote = server.localhost_client()
    keys = server.client().sample_batch("t", 3, distinct=True).keys
    remote.update_priorities("t", keys=keys, priorities=losses, wait=True)
    assert server.client().priorities("t", keys).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("module", [reverie, reverb])
def test_keys_may_be_any_array_also_an_empty_one(module):
    torch = pytest.importorskip("torch")
    with module.Server([prioritized()]) as server:
        client = server.client()
        for i in range(16):
            client.insert([np.int64(i)], {"t": 1.0})
        keys = client.sample_batch("t", 16, distinct=True).keys
        assert keys.max() >= 2**63  # which a tensor's elements are not integers for
        nothing = np.array([])  # floats
        client.mutate_priorities("t", {}, nothing)
        client.mutate_priorities("t", (nothing, nothing), [])
        assert client.delete("t", nothing) == 0
        assert client.update_priorities("t", nothing, nothing) == 0
        client.mutate_priorities("t", (torch.from_numpy(keys), np.full(16, 2.0)))
        assert client.priorities("t", torch.from_numpy(keys)).tolist() == [2.0] * 16
        client.mutate_priorities("t", deletes=keys[:1])
        client.mutate_priorities("t", None, torch.from_numpy(keys[1:14]))
        client.mutate_priorities("t", deletes=keys[14:])
        assert client.server_info()["t"].current_size == 0


def test_updates_of_a_local_store_raise_their_errors_at_once():
    with reverie.Store([prioritized()]) as store:
        client = store.client()
        client.insert([1], {"t": 1.0})
        key = client.sample_batch("t", 1).keys
        assert client.update_priorities("t", keys=key, priorities=[2.0], wait=False) == 1
        assert client.priorities("t", key).tolist() == [2.0]
        with pytest.raises(errors.NotFoundError) as raised:
            client.update_priorities("u", keys=key, priorities=[2.0], wait=False)
        assert "earlier" not in str(raised.value)
        client.flush()


def test_updates_in_a_loop_over_a_dataset_do_not_wait(server):
    client = server.localhost_client()
    sent = []
    native = client._native
    with client.dataset("t", 16, timeout_s=5) as batches:
        for i, batch in enumerate(batches):
            sent.append(
                client.update_priorities("t", batch.tickets, np.full(16, 2.0 + i, np.float32))
            )
            if i == 20:
                break
        assert client._has_open_dataset("t")
    assert sent == [16] * 21
    assert not client._has_open_dataset("t")
    keys = batch.keys
    assert (server.client().priorities("t", keys) == 22.0).all()  # closing waits for all updates
    assert native is client._native


def test_a_dataset_may_be_opened_in_the_middle_of_an_update(server, monkeypatch):
    client = server.localhost_client()
    opened = [client.dataset("t", 4)]

    def is_open(_):
        if len(opened) < 3:  # as another thread may at this moment
            opened.append(client.dataset("t", 4))
        return False

    ignored = property(is_open, lambda *_: None)
    monkeypatch.setattr(reverie.Dataset, "_is_open", ignored, raising=False)
    assert client.update_priorities("t", keys=[1], priorities=[1.0]) == 1
    assert len(opened) == 3
    for dataset in opened:
        dataset.close()
    opened.clear()
    del dataset
    gc.collect()
    assert client._datasets == {"t": []}


def test_an_update_of_a_table_that_is_no_text_is_refused_while_a_dataset_is_open(server):
    client = server.localhost_client()
    with client.dataset("t", 4), pytest.raises(TypeError, match=r"table is \['t'\]"):
        client.update_priorities(["t"], keys=[1], priorities=[1.0])


def spoil(client, error=None):
    with client.dataset("t", 4) as batches:
        batch = next(batches)
        client.update_priorities("t", keys=batch.keys, priorities=[-1.0] * 4)
        if error is not None:
            raise error


def test_errors_of_updates_in_the_loop_are_raised_at_its_end(server):
    client = server.localhost_client()
    with pytest.raises(errors.InvalidArgumentError, match="earlier update"):
        spoil(client)
    with pytest.raises(RuntimeError, match="the loop's own"):
        spoil(client, RuntimeError("the loop's own"))
    with pytest.raises(errors.InvalidArgumentError, match="earlier update"):
        client.flush()  # still to be reported, because the loop's own error went first
    client.dataset("t", 4).close()


def test_flush_raises_if_the_server_is_gone():
    server = reverie.Server([prioritized()])
    client = reverie.Client(f"localhost:{server.port}", retry_timeout_s=0.3)
    client.insert([1], {"t": 1.0})
    key = client.sample_batch("t", 1).keys
    server.stop(grace_s=0)
    client.update_priorities("t", keys=key, priorities=[1.0], wait=False)
    with pytest.raises(errors.UnavailableError):
        client.flush(timeout_s=20)


def test_several_threads_can_send_updates_of_one_client(server):
    client = server.localhost_client()
    keys = np.unique(keys_of(client))
    failed = []

    def update():
        try:
            for i in range(200):
                client.update_priorities(
                    "t", keys=keys, priorities=np.full(len(keys), 1.0 + i), wait=False
                )
        except errors.ReverieError as error:
            failed.append(error)

    threads = [threading.Thread(target=update) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.flush(timeout_s=10)
    assert not failed
    assert (server.client().priorities("t", keys) == 200.0).all()
