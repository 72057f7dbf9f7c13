"""A store's memory, as the kernel counts it: equal to ``size_bytes``, and within ``max_bytes``."""

import contextlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import reverie

PROGRAM = Path(__file__).with_name("memory_program.py")
_spec = importlib.util.spec_from_file_location("memory_program", PROGRAM)
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)

MIB = 1 << 20
SLACK_BYTES = 16 * MIB
LONG, SHORT = 1000, 12
QUICK_FRAMES, ALL_FRAMES = 3_000, 100_000


class Holder:
    """A process that holds a store."""

    def __init__(self, **options):
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._read()

    def _read(self):
        line = self._process.stdout.readline()
        assert line, f"the process ended with status {self._process.wait()}"
        return line.strip()

    def ask(self, name, **options):
        self._process.stdin.write(json.dumps([name, options]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._read())

    def close(self):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@contextlib.contextmanager
def holding(**options):
    with contextlib.closing(Holder(**options)) as holder:
        yield holder


def written(holder, **options):
    """The store's memory after writing that much; the writers are still open."""
    if not holder.address:
        holder.ask("write", **options)
        return holder.ask("figures")
    kept = program.write(reverie.Client(holder.address), **options)
    figures = holder.ask("figures")
    for writer in kept:
        writer.close()
    return figures


def check(door, codec, episode, writers, count):
    with holding(door=door) as holder:
        figures = written(holder, codec=codec, episode=episode, writers=writers, count=count)
    assert figures["items"] > count // 2
    open_bytes = writers * min(program.OPEN_BYTES[codec], episode * program.FRAME_BYTES)
    bound = 1.2 * figures["size_bytes"] + SLACK_BYTES + open_bytes
    print(
        f"\n{door} {codec} episodes of {episode}, {writers} writers, {count} frames: resident "
        f"{figures['growth'] / MIB:.1f} MiB, size_bytes {figures['size_bytes'] / MIB:.1f}, "
        f"bound {bound / MIB:.1f}",
        end="",
    )
    assert figures["growth"] <= bound


@pytest.mark.parametrize(
    ("door", "codec", "episode", "writers"),
    [
        ("embedded", "raw", LONG, 1),
        ("embedded", "lz4", LONG, 1),
        ("embedded", "zstd", SHORT, 8),
        ("served", "raw", SHORT, 8),
        ("served", "lz4", LONG, 8),
    ],
)
def test_resident_memory_matches_size_bytes(door, codec, episode, writers):
    check(door, codec, episode, writers, QUICK_FRAMES)


@pytest.mark.full(minutes=0.1)
@pytest.mark.parametrize("writers", [1, 8, 64])
@pytest.mark.parametrize("door", ["embedded", "served"])
@pytest.mark.parametrize("episode", [LONG, SHORT])
@pytest.mark.parametrize("codec", ["raw", "lz4", "zstd"])
def test_resident_memory_matches_size_bytes_for_many_frames(door, codec, episode, writers):
    check(door, codec, episode, writers, ALL_FRAMES)


def check_budget(codec, budget):
    """Writes ten times the budget, half of it noise."""
    count = 10 * budget // program.FRAME_BYTES
    with holding(max_bytes=budget) as holder:
        figures = written(
            holder, codec=codec, episode=200, writers=1, count=count, noise=program.SIDE // 2
        )
    print(f"\n{codec}: resident {figures['growth'] / MIB:.1f} MiB of {budget / MIB:.0f}", end="")
    assert figures["size_bytes"] <= budget
    assert figures["growth"] <= 1.15 * budget


def test_max_bytes_bounds_resident_memory():
    check_budget("raw", 16 * MIB)


@pytest.mark.full(minutes=0.1)
@pytest.mark.parametrize("codec", ["raw", "lz4", "zstd"])
def test_max_bytes_bounds_resident_memory_with_each_codec(codec):
    check_budget(codec, 96 * MIB)


@pytest.mark.full(minutes=0.1)
def test_an_atari_transition_takes_at_most_500_bytes():
    pytest.importorskip("ale_py")
    pytest.importorskip("gymnasium")
    count = 30_000
    with holding() as holder:
        holder.ask("begin_pong")
        options = {"codec": "lz4", "episode": 1 << 30, "writers": 1, "is_pong": True}
        figures = written(holder, count=count, **options)
    print(f"\n{figures['growth'] / count:.0f} bytes a transition", end="")
    assert figures["growth"] <= 500 * count


def test_resident_memory_of_single_steps_is_bounded_by_size_bytes():
    """Each step is in a separate chunk with several columns."""
    with holding() as holder:
        holder.ask("fill", count=20_000, columns=6)
        figures = holder.ask("figures")
    print(f"\n{figures['growth'] / figures['items']:.0f} bytes a step", end="")
    assert figures["growth"] <= 1.2 * figures["size_bytes"] + 4 * MIB


def test_a_lunar_lander_transition_takes_at_most_110_bytes():
    count = 1 << 19
    with holding() as holder:
        holder.ask("add", count=count)
        figures = holder.ask("figures")
    print(f"\n{figures['growth'] / count:.1f} bytes a transition", end="")
    assert figures["growth"] <= 110 * count
