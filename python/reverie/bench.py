"""``reverie bench``: what the store does on this machine, beside what its memory can do.

A minute's look, not a study: medians of a few short windows on whatever else runs. The programs
under ``benchmarks/`` say what each figure is made of.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reverie import _reverie, rate_limiters, selectors
from reverie._command_parser import path_argument
from reverie.client import Client
from reverie.replay_buffer import ReplayBuffer
from reverie.store import Store
from reverie.table import Table

_WINDOW_S = 0.1
_WINDOWS = 5
_BATCH = 256
_OBS = 8
_SIDE = 84
_STACK = 4
_PROGRAM = Path("build", "release", "benchmarks", "paper_bench")


class Figure(NamedTuple):
    """One row of the table."""

    what: str
    value: str
    limit: str = ""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``bench`` to the subcommands of ``reverie``."""
    bench = commands.add_parser(
        "bench",
        help="measure the store on this machine, and the machine's own limits",
        description=(
            "Measures writes, samples and updates of an embedded store and compares them "
            "with the machine's memory. Takes half a minute."
        ),
    )
    bench.add_argument(
        "--items", type=int, default=100_000, help="items in the table (default: 100000)"
    )
    bench.add_argument(
        "--fanout",
        action="store_true",
        help="profile the sum tree over its fanout instead; needs a checkout with `make figures` "
        "or `make bench` run before",
    )
    bench.add_argument(
        "--program", type=path_argument, help=f"for --fanout (default: {_PROGRAM} of the checkout)"
    )
    bench.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.fanout:
            return _fanout(arguments.program or Path(__file__).parents[2] / _PROGRAM)
        if arguments.items < _BATCH:
            print(
                f"reverie bench: --items is {arguments.items}; it must be at least {_BATCH}",
                file=sys.stderr,
            )
            return 2
        _print_figures(measure(arguments.items))
    except KeyboardInterrupt:
        return 130
    return 0


def measure(items: int) -> list[Figure]:
    """The table's rows, machine first. ``items`` is the size of the table, >= 256."""
    near_copy, near_load = _reverie.measure_memory(128 << 10)
    far_copy, far_load = _reverie.measure_memory(128 << 20)
    figures = [
        Figure("memcpy in cache", f"{near_copy / 1e9:.1f} GB/s"),
        Figure("memcpy from memory", f"{far_copy / 1e9:.1f} GB/s"),
        Figure("load in cache, dependent", f"{near_load:.1f} ns"),
        Figure("load from memory, dependent", f"{far_load:.0f} ns"),
    ]
    figures += _transitions(items, far_load)
    figures += _items(items, far_load)
    figures += _frames(far_copy)
    return figures


def _print_figures(figures: list[Figure]) -> None:
    print(f"{_cpu()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    width = max(len(figure.what) for figure in figures)
    for figure in figures:
        print(f"{figure.what:<{width}}  {figure.value:>14}  {figure.limit}".rstrip())


def _cpu() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else "unknown processor"


def _time_s(call: Callable[[], object]) -> float:
    """Seconds a call: the median of some windows."""
    call()
    times = []
    for _ in range(_WINDOWS):
        calls, begin, spent = 0, time.perf_counter(), 0.0
        while spent < _WINDOW_S:
            call()
            calls += 1
            spent = time.perf_counter() - begin
        times.append(spent / calls)
    return statistics.median(times)


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} us"


def _misses(count: int, load_ns: float) -> str:
    """How long a number of loads from memory takes with ten of them under way."""
    return f"{count} misses, 10 at once: {count * load_ns / 1e4:.1f} us"


def _transitions(items: int, load_ns: float) -> list[Figure]:
    """A prioritised ``ReplayBuffer`` of small transitions."""
    obs = np.arange(_OBS, dtype=np.float32)
    with ReplayBuffer(items, prioritized=True, seed=7) as buffer:

        def add() -> None:
            buffer.add(obs, np.int64(1), 1.0, obs, False, False)

        for _ in range(items):
            add()
        priorities = np.random.default_rng(7).random(_BATCH)
        batch = buffer.sample(_BATCH)
        lines = 3 * _BATCH
        return [
            Figure("ReplayBuffer.add, 8 float32", _us(_time_s(add))),
            Figure(
                f"ReplayBuffer.sample, {_BATCH}",
                _us(_time_s(lambda: buffer.sample(_BATCH))),
                _misses(lines, load_ns),
            ),
            Figure(
                f"ReplayBuffer.update_priorities, {_BATCH}",
                _us(_time_s(lambda: buffer.update_priorities(batch["tickets"], priorities))),
                _misses(2 * _BATCH, load_ns),
            ),
        ]


def _table(sampler: selectors.Selector, items: int) -> Table:
    return Table(
        "t",
        sampler,
        selectors.Fifo(),
        items,
        rate_limiters.MinSize(1),
        max_bytes=1 << 50,  # has the table count its bytes
    )


def _items(items: int, load_ns: float) -> list[Figure]:
    """A store's items of 400 bytes, one step each."""
    step = {"obs": np.zeros(97, np.float32), "action": np.int64(1), "reward": np.float32(0)}
    with Store([_table(selectors.Prioritized(0.6, seed=7), items)]) as store:
        client = store.client()
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:

            def write() -> None:
                writer.append(step)
                history = writer.history
                item = {name: column[-1:] for name, column in history.items()}
                writer.create_item("t", 1.0, item)

            for _ in range(items):
                write()
            written = _time_s(write)
        batch = client.sample_batch("t", _BATCH)
        priorities = np.random.default_rng(7).random(_BATCH)
        lines = 10 * _BATCH
        return [
            Figure("append + create_item, 400 B", _us(written)),
            Figure(
                f"sample_batch, {_BATCH} of 400 B",
                _us(_time_s(lambda: client.sample_batch("t", _BATCH, out=batch))),
                _misses(lines, load_ns),
            ),
            Figure(
                f"update_priorities, {_BATCH} tickets",
                _us(_time_s(lambda: client.update_priorities("t", batch.tickets, priorities))),
                _misses(2 * _BATCH, load_ns),
            ),
        ]


def _frames(copy_bytes_s: float) -> list[Figure]:
    """Stacks of pictures, raw and compressed."""
    figures = []
    for codec in ("raw", "auto"):
        with Store([_table(selectors.Uniform(seed=7), 4_000)], codec=codec) as store:
            client = store.client()
            _write_frames(client, 4_000)
            info = client.server_info()["t"]
            batch = client.sample_batch("t", _BATCH)
            size = sum(array.nbytes for array in batch.data.values())
            took = _time_s(lambda c=client, b=batch: c.sample_batch("t", _BATCH, out=b))  # type: ignore[misc]
            name = "raw" if codec == "raw" else "lz4"
            figures += [
                Figure(
                    f"sample_batch, {_BATCH} of 2 stacks of 4 frames, {name}",
                    f"{1e3 * took:.2f} ms",
                    f"copying {size / 1e6:.0f} MB: {1e3 * size / copy_bytes_s:.2f} ms",
                ),
                Figure(
                    f"bytes a frame of {_SIDE} x {_SIDE}, {name}",
                    f"{info.size_bytes / info.current_size:,.0f}",
                ),
            ]
    return figures


def _write_frames(client: Client, count: int) -> None:
    """A still background with two sprites that move, as a simple game has it."""
    background = np.repeat(np.arange(_SIDE, dtype=np.uint8) // 8 * 16, _SIDE)
    with client.trajectory_writer(num_keep_alive_refs=_STACK + 1, chunk_length=40) as writer:
        for number in range(count + _STACK):
            frame = background.reshape(_SIDE, _SIDE).copy()
            for sprite in (1, 2):
                x, y = number * sprite % (_SIDE - 8), number // sprite % (_SIDE - 8)
                frame[y : y + 8, x : x + 8] = 100 * sprite
            writer.append({"frame": frame})
            if number >= _STACK:
                rows = writer.history["frame"]
                item = {"obs": rows[-_STACK - 1 : -1], "next_obs": rows[-_STACK:]}
                writer.create_item("t", 1.0, item)
        writer.end_episode()


def _fanout(program: Path) -> int:
    """Runs the tree's benchmark and prints nanoseconds over the fanout."""
    if not program.is_file():
        print(
            f"reverie bench: there is no {program}; in a checkout `make figures` builds it, or "
            "name it with --program",
            file=sys.stderr,
        )
        return 2
    done = subprocess.run(
        [str(program), "--benchmark_filter=BM_Sample|BM_Insert", "--benchmark_format=json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(f"reverie bench: {program} failed: {done.stderr.strip()}", file=sys.stderr)
        return 1
    print(fanout_table(json.loads(done.stdout)))
    return 0


def fanout_table(measured: dict[str, list[dict[str, object]]]) -> str:
    """The program's answer as text: a row a tree and operation, a column a capacity."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for entry in measured["benchmarks"]:
        match = re.match(r"BM_(\w+)<(?:Paper<(\d+)>|(\w+))>/(\d+)", str(entry["name"]))
        if match is None:
            continue
        tree = f"K = {match[2]}" if match[2] else {"Ours": "Reverie"}.get(match[3], match[3])
        row = times.setdefault((match[1].lower(), tree), {})
        row[int(match[4])] = 1e9 / float(str(entry["items_per_second"]))
    capacities = sorted({capacity for row in times.values() for capacity in row})
    lines = ["ns an item of a batch of 64, over the fanout K and the capacity", ""]
    lines.append(f"{'':20}" + "".join(f"{capacity:>12,}" for capacity in capacities))
    for (what, tree), row in times.items():
        cells = "".join(f"{row[capacity]:12.1f}" for capacity in capacities)
        lines.append(f"{what:<8}{tree:<12}{cells}")
    return "\n".join(lines)
