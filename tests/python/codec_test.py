"""Steps that are compressed when their chunk is full: the data is the same, in less memory."""

import numpy as np
import pytest

import reverie

FRAMES = 200
SIDE = 80


def frame(number):
    """Images with a constant background and one moving sprite."""
    pixels = np.repeat(np.arange(SIDE, dtype=np.uint8) // 8 * 16, SIDE).reshape(SIDE, SIDE)
    x, y = number % (SIDE - 6), number // 3 % (SIDE - 6)
    pixels[y : y + 6, x : x + 6] = 200
    return pixels


def table(max_size=1000):
    return reverie.Table(
        "replay",
        reverie.selectors.Uniform(),
        reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_bytes=1 << 40,  # makes the table count its bytes
    )


def write(client, *, frames=FRAMES, column=frame, **options):
    with client.trajectory_writer(num_keep_alive_refs=5, **options) as writer:
        for number in range(frames):
            writer.append({"frame": column(number), "number": np.int64(number)})
            if number >= 2:
                history = writer.history
                item = {"frames": history["frame"][-3:], "number": history["number"][-1]}
                writer.create_item("replay", 1.0, item)
        writer.end_episode()


def held_bytes(**options):
    with reverie.Store([table()]) as store:
        client = store.client()
        write(client, **options)
        return client.server_info()["replay"].size_bytes


@pytest.mark.parametrize("codec", ["auto", "raw", "lz4", "zstd"])
def test_frames_are_returned_unchanged_with_every_codec(codec):
    with reverie.Store([table()], codec=codec) as store:
        client = store.client()
        write(client)
        batch = client.sample_batch("replay", 64)
        for frames, last in zip(batch.data["frames"], batch.data["number"], strict=True):
            expected = [frame(int(last) - 2 + i) for i in range(3)]
            np.testing.assert_array_equal(frames, expected)


def test_frames_take_a_fraction_of_their_memory_unless_codec_is_raw():
    raw = held_bytes(codec="raw")
    assert raw >= FRAMES * SIDE * SIDE
    for codec in ("lz4", "zstd"):
        assert held_bytes(codec=codec, chunk_length=40) < raw / 10
    assert held_bytes(chunk_length=40) < raw / 10, "auto"
    assert held_bytes() < raw / 5, "auto, and chunks of their own length"


def test_auto_does_not_compress_floats_or_noise():
    def floats(number):
        return np.full((SIDE, SIDE), number, np.float32)

    noise = np.random.default_rng(7).integers(0, 256, (FRAMES, SIDE, SIDE), np.uint8)
    for column in (floats, lambda number: noise[number]):
        raw = held_bytes(codec="raw", column=column, chunk_length=10)
        auto = held_bytes(codec="auto", column=column, chunk_length=10)
        assert raw <= auto <= raw * 1.02
    assert held_bytes(codec="lz4", column=floats, chunk_length=10) < raw / 4


def test_a_column_may_have_its_own_codec():
    def held(codec):
        with reverie.Store([table()], codec="raw") as store:
            client = store.client()
            with client.trajectory_writer(num_keep_alive_refs=40, chunk_length=40) as writer:
                writer.configure("b", num_keep_alive_refs=40, max_chunk_length=40, codec=codec)
                for number in range(80):
                    writer.append({"a": frame(number), "b": frame(number)})
                    item = {name: writer.history[name][-1:] for name in "ab"}
                    writer.create_item("replay", 1.0, item)
                writer.end_episode()
            return client.server_info()["replay"].size_bytes

    one = 80 * SIDE * SIDE
    assert held(None) >= 2 * one, "the writer's, which is raw"
    assert one <= held("lz4") <= 1.2 * one


def test_history_can_be_read_after_its_chunk_was_compressed():
    with reverie.Store([table()]) as store:
        writer = store.client().trajectory_writer(num_keep_alive_refs=30, chunk_length=8)
        for number in range(40):
            writer.append({"frame": frame(number)})
        rows = writer.history["frame"][-30:].numpy()
        np.testing.assert_array_equal(rows, [frame(10 + i) for i in range(30)])
        writer.close()


def test_an_unknown_codec_is_refused_by_name():
    with pytest.raises(reverie.errors.InvalidArgumentError, match=r"'gzip'.*zstd"):
        reverie.Store([table()], codec="gzip")
    with reverie.Store([table()]) as store:
        client = store.client()
        with pytest.raises(reverie.errors.InvalidArgumentError, match=r"'gzip'.*zstd"):
            client.trajectory_writer(num_keep_alive_refs=1, codec="gzip")
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            with pytest.raises(reverie.errors.InvalidArgumentError, match="'brotli'"):
                writer.configure("x", num_keep_alive_refs=1, max_chunk_length=1, codec="brotli")
            with pytest.raises((TypeError, reverie.errors.UnsupportedTypeError)):
                writer.configure("x", num_keep_alive_refs=1, max_chunk_length=1, codec=3)
