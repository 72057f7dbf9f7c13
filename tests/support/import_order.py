"""Imports the given modules in order, and then uses what foreign symbols could break in reverie.

These are every codec, in both directions, and TLS on a socket: other packages contain the same
libraries in other versions. Prints "done" at the end.
"""

import importlib
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
for name in sys.argv[1:]:
    importlib.import_module(name)

import numpy as np  # noqa: E402

import reverie  # noqa: E402

TLS = Path(__file__).parent.parent / "data" / "tls"
ROWS = 12


def step(i: int) -> dict[str, np.ndarray]:
    """A step with data of each kind that the codecs treat differently."""
    picture = np.zeros((84, 84), np.uint8)
    picture[i : i + 20] = i
    return {
        "picture": picture,
        "number": np.float32(i),
        "noise": np.random.default_rng(i).normal(size=50),
        "word": np.array(f"step {i}"),
    }


def write(client: reverie.Client, **options: str) -> None:
    """Inserts items of three steps each, in full chunks, which are therefore encoded."""
    with client.trajectory_writer(3, chunk_length=3, **options) as writer:
        for i in range(ROWS):
            writer.append(step(i))
            if i % 3 == 2:
                columns = writer.history.items()
                writer.create_item("t", 1.0, {name: column[-3:] for name, column in columns})


def check(client: reverie.Client) -> None:
    """Checks that all items are what was written, in order."""
    batch = client.sample_batch("t", ROWS // 3, timeout_s=30)
    expected = [step(i) for i in range(ROWS)]
    # Over a socket, columns of a table without a signature have no names and are sorted by name.
    columns = batch.data
    if not isinstance(columns, dict):
        columns = dict(zip(sorted(expected[0]), columns, strict=True))
    for name, column in columns.items():
        rows = column.reshape(ROWS, *column.shape[2:])
        for i in range(ROWS):
            wanted = expected[i][name]
            got = rows[i]
            if name == "word":
                got = np.array(got.decode() if isinstance(got, bytes) else got)
            assert np.array_equal(got, wanted), (name, i, got, wanted)


def main() -> None:
    """Uses every codec in a store in this process, and every way to reach a server."""
    for codec in ("raw", "lz4", "zstd", "auto"):
        with reverie.Store([reverie.Table.queue("t", 100)]) as store:
            write(store.client(), codec=codec)
            check(store.client())
    server_tls = reverie.ServerTls(
        TLS / "server.pem", TLS / "server_key.pem", client_authorities=TLS / "authority.pem"
    )
    client_tls = reverie.ClientTls(
        TLS / "authority.pem", TLS / "client.pem", TLS / "client_key.pem", "localhost"
    )
    for tls in ((None, None), (server_tls, client_tls)):
        with reverie.Server([reverie.Table.queue("t", 100)], tls=tls[0]) as server:
            client = reverie.Client(f"localhost:{server.port}", tls=tls[1])
            write(client)
            check(client)
            write(server.client(), codec="zstd")
            check(client)
    print("done")


if __name__ == "__main__":
    main()
