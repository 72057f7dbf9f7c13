"""Clients of ``host:port`` use the server's Unix socket when it is on the same machine."""

from pathlib import Path

import numpy as np
import pytest

import reverie


def fifo():
    return reverie.Table(
        "t",
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


def sockets(address):
    """How many Unix sockets have the name: the listener, and the connections it accepted."""
    name = f"@reverie/{address}"
    return sum(line.split()[-1] == name for line in Path("/proc/net/unix").read_text().splitlines())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_on_the_same_machine_uses_the_unix_socket(host):
    with reverie.Server([fifo()]) as server:
        address = f"127.0.0.1:{server.port}"
        assert sockets(address) == 1
        client = reverie.Client(f"{host}:{server.port}")
        client.insert([np.arange(3)], {"t": 1.0})
        assert next(client.sample("t"))[0].data[0].tolist() == [0, 1, 2]
        assert sockets(address) == 2
    assert sockets(address) == 0


def test_the_unix_socket_needs_the_token_too():
    with reverie.Server([fifo()], token="open sesame") as server:
        address = f"127.0.0.1:{server.port}"
        client = reverie.Client(address, token="open sesame")
        client.insert([1], {"t": 1.0})
        assert sockets(address) == 2
        with pytest.raises(reverie.errors.UnauthenticatedError):
            reverie.Client(address).server_info(timeout=10)


def test_a_server_at_all_addresses_has_one_unix_socket():
    with reverie.Server([fifo()], host="0.0.0.0", insecure=True) as server:
        client = reverie.Client(f"127.0.0.1:{server.port}")
        client.insert([1], {"t": 1.0})
        assert sockets(f"0.0.0.0:{server.port}") == 2
        assert sockets(f"127.0.0.1:{server.port}") == 0


def test_a_client_reconnects_to_a_new_server_at_the_same_port():
    server = reverie.Server([fifo()])
    port = server.port
    client = reverie.Client(f"localhost:{port}")
    client.insert([1], {"t": 1.0})
    server.stop(grace_s=0)
    with reverie.Server([fifo()], port) as again:
        client.insert([2], {"t": 1.0})
        assert again.client().server_info()["t"].current_size == 1
        assert sockets(f"127.0.0.1:{port}") == 2
