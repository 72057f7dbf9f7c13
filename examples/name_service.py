r"""A user's name service: peers find each other over any number of hops.

    client -- peer0 -- peer1 -- peer2 -- peer3 -- peer4

Each peer is only connected to the next one, and a call finds its peer over one hop: ``client`` may
call ``peer0``, and ``peer1``, because ``peer0`` knows its address. Peers that are farther away are
found by asking: each peer lists its neighbours, so the client walks from peer to peer, and is
connected to each peer that it has asked.
"""

import subprocess
import sys
from pathlib import Path

import reverie

PEERS = 5

_PEER = """
import os, sys
import reverie

with reverie.Rpc(sys.argv[1]) as rpc:
    rpc.define("neighbours", rpc.peers)
    rpc.define("pid", os.getpid)
    if len(sys.argv) > 2:
        rpc.connect(sys.argv[2])
    print(rpc.listen(), flush=True)
    sys.stdin.read()
"""


def find(rpc: reverie.Rpc, wanted: str) -> list[str]:
    """The peers on the way to ``wanted``, all of which can be called afterwards.

    Raises:
        reverie.errors.NotFoundError: no reachable peer knows it.
    """
    ways = {name: [name] for name in rpc.peers()}
    to_ask = list(ways)
    while wanted not in ways:
        if not to_ask:
            raise reverie.errors.NotFoundError(f"none of {sorted(ways)} knows {wanted!r}")
        asked = to_ask.pop(0)
        for name in rpc.sync(asked, "neighbours", timeout_s=10.0):
            if name not in ways and name != rpc.name:
                ways[name] = [*ways[asked], name]
                to_ask.append(name)
    return ways[wanted]


def main() -> None:
    """Starts a chain of peers and calls the last one through the first."""
    environment = {"PYTHONPATH": str(Path(reverie.__file__).parents[1])}
    peers: list[subprocess.Popen[str]] = []
    address: list[str] = []  # of the peer that was started before
    for number in reversed(range(PEERS)):
        peer = subprocess.Popen(
            [sys.executable, "-c", _PEER, f"peer{number}", *address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        peers.append(peer)
        assert peer.stdout is not None
        address = [peer.stdout.readline().strip()]
    last = f"peer{PEERS - 1}"
    with reverie.Rpc("client", find_timeout_s=0.5) as rpc:
        rpc.connect(address[0])
        rpc.ping("peer0")
        try:
            rpc.sync(last, "pid")
        except reverie.errors.NotFoundError as error:
            print(f"before: {error}")
        way = find(rpc, last)
        assert rpc.sync(last, "pid") == peers[0].pid
        print(f"after: {last} is found by way of {', '.join(way[:-1])}")
        assert way == [f"peer{number}" for number in range(PEERS)]
        try:
            find(rpc, "nowhere")
        except reverie.errors.NotFoundError as error:
            print(error)
    for peer in peers:
        peer.communicate()


if __name__ == "__main__":
    main()
