"""Chunks that arrive raw and are compressed by the server."""

import numpy as np
import pytest

import reverie
from reverie import errors

ROWS = 50


def fifo():
    return reverie.Table(
        "t",
        sampler=reverie.selectors.Fifo(),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_bytes=1 << 30,  # makes the table count its bytes
    )


def smooth(i):
    """A step with floats that a codec can compress."""
    return {"x": np.full(1000, i // 10, np.float32), "n": np.int64(i)}


def write(client, step, **options):
    with client.trajectory_writer(ROWS, chunk_length=10, **options) as writer:
        # Before the server's first answer a client sends chunks as dm-reverb does, with Snappy.
        writer.append(step(0))
        writer.create_item("t", 1.0, {name: writer.history[name][-1:] for name in writer.history})
        writer.end_episode()
        client.reset("t")
        for i in range(ROWS):
            writer.append(step(i))
        history = writer.history
        writer.create_item("t", 1.0, {name: history[name][:] for name in history})


def bytes_of(server):
    return server.client().server_info()["t"].size_bytes


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_raw_floats_are_compressed_by_the_server(codec):
    with reverie.Server([fifo()]) as plain, reverie.Server([fifo()], codec=codec) as packing:
        for server in (plain, packing):
            write(server.localhost_client(), smooth)
            data = server.localhost_client().sample_batch("t", 1).data
            numbers, rows = data  # columns are sorted by name
            np.testing.assert_array_equal(rows[0], [smooth(i)["x"] for i in range(ROWS)])
            assert numbers[0].tolist() == list(range(ROWS))
        assert bytes_of(plain) > ROWS * 4000
        assert bytes_of(packing) < bytes_of(plain) / 10


def test_a_writer_in_the_servers_process_uses_the_servers_codec():
    with reverie.Server([fifo()], codec="lz4") as server:
        write(server.client(), smooth)
        assert bytes_of(server) < ROWS * 400


def test_noise_is_not_compressed():
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (ROWS, 4000), np.uint8)
    with reverie.Server([fifo()], codec="lz4") as server:
        write(server.localhost_client(), lambda i: {"x": rows[i]})
        np.testing.assert_array_equal(server.client().sample_batch("t", 1).data[0][0], rows)
        assert ROWS * 4000 <= bytes_of(server) < ROWS * 4200


def test_an_unknown_codec_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="codec"):
        reverie.Server([fifo()], codec="gif")
