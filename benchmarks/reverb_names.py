"""Calls by Reverb's names compared with the same calls by our own: the cost of ``reverie.reverb``.

One server in a separate process, and one client of each module in this one; the two take turns,
hundreds of times. Printed are the time of one call and this process's CPU time for it, each as the
tenth percentile of the turns, which other load affects least, and the ratios. Then what the names
add by themselves: the CPU time of a call whose native client does nothing, as the least of hundreds
of turns. The steps and items of writers are the same methods by both names; samples pass a
generator, as Reverb's do.

    PYTHONPATH=python .venv/bin/python benchmarks/reverb_names.py [TURNS]
"""

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from processes import start

MODULES = ("reverie", "reverie.reverb")
RATIO_MAX = 1.02
ITEMS = 2000


def serve() -> None:
    """A server; prints its port, and stops when standard input closes."""
    import reverie

    table = reverie.Table(
        "t",
        sampler=reverie.selectors.Prioritized(0.6),
        remover=reverie.selectors.Fifo(),
        max_size=ITEMS,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    with reverie.Server([table]) as server:
        print(server.port, flush=True)
        sys.stdin.read()


def calls(module: str, port: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """The calls to time, and how many of each make a turn."""
    lib = importlib.import_module(module)
    client = lib.Client(f"localhost:{port}")
    row = [np.zeros(100, np.float32)]
    client.insert(row, {"t": 1.0})
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    items = client.sample("t", num_samples=1 << 40)
    keys = [next(items)[0].info.key for _ in range(32)]
    step = lib.structured.create_reference_step([None])
    config = lib.structured.create_config([step[0][-1:]], "t")
    structured = client.structured_writer([config])

    def write() -> None:
        for _ in range(50):
            writer.append(row)
            writer.create_item("t", 1.0, [writer.history[0][-1:]])
        writer.flush()

    def write_by_pattern() -> None:
        for _ in range(50):
            structured.append(row)
        structured.flush()

    def draw() -> None:
        for _ in range(200):
            next(items)

    return {
        "insert": (lambda: client.insert(row, {"t": 1.0}), 20),
        "50 items of a TrajectoryWriter": (write, 2),
        "50 items of a StructuredWriter": (write_by_pattern, 2),
        "200 samples of an iterator": (draw, 5),
        "sample one": (lambda: next(client.sample("t", 1)), 10),
        "mutate_priorities of 32": (
            lambda: client.mutate_priorities("t", updates=dict.fromkeys(keys, 1.0)),
            20,
        ),
    }


class NoWire:
    """A native client whose calls return at once."""

    def insert(self, *_: Any) -> None:  # noqa: ANN401
        """Does nothing."""

    def mutate(self, *_: Any) -> tuple[int, int, int]:  # noqa: ANN401
        """Does nothing."""
        return 0, 0, 0


def added_us(port: int, turns: int) -> dict[str, float]:
    """The cost that Reverb's names add to a call."""
    row = [np.zeros(100, np.float32)]
    updates = dict.fromkeys(range(32), 1.0)
    least: dict[str, dict[str, float]] = {}
    timed: dict[str, dict[str, Callable[[], Any]]] = {}
    for module in MODULES:
        lib = importlib.import_module(module)
        client, sampled = (lib.Client(f"localhost:{port}") for _ in range(2))
        client.insert(row, {"t": 1.0})
        client._native = NoWire()
        for name, call in {
            "insert": lambda client=client: client.insert(row, {"t": 1.0}),
            "sample one": lambda sampled=sampled: sampled.sample("t", 1),
            "mutate_priorities of 32": lambda client=client: client.mutate_priorities("t", updates),
        }.items():
            timed.setdefault(name, {})[module] = call
    for _ in range(turns):
        for name, both in timed.items():
            for module, call in both.items():
                begin = time.thread_time_ns()
                for _ in range(100):
                    call()
                took = (time.thread_time_ns() - begin) / 100 / 1e3
                found = least.setdefault(name, {})
                found[module] = min(took, found.get(module, took))
    return {name: found[MODULES[1]] - found[MODULES[0]] for name, found in least.items()}


def main(turns: int) -> None:
    """Prints a table."""
    server = start(__file__, "serve")
    port = int(server.stdout.readline())
    timed = {module: calls(module, port) for module in MODULES}
    print(f"{turns} turns; us a call, their first decile: wall clock (CPU)")
    whole: dict[str, float] = {}
    for name in timed[MODULES[0]]:
        walls: dict[str, list[float]] = {module: [] for module in MODULES}
        cpus: dict[str, list[float]] = {module: [] for module in MODULES}
        for turn in range(turns + 2):
            for module in MODULES if turn % 2 else MODULES[::-1]:
                call, count = timed[module][name]
                cpu, begin = time.process_time(), time.perf_counter()
                for _ in range(count):
                    call()
                if turn >= 2:  # after a warm-up
                    walls[module].append((time.perf_counter() - begin) / count * 1e6)
                    cpus[module].append((time.process_time() - cpu) / count * 1e6)
        wall = [statistics.quantiles(walls[module], n=10)[0] for module in MODULES]
        cpu_us = [statistics.quantiles(cpus[module], n=10)[0] for module in MODULES]
        whole[name] = min(walls[MODULES[0]])
        ratios = wall[1] / wall[0], cpu_us[1] / cpu_us[0]
        print(
            f"{name:32}{MODULES[0]} {wall[0]:8.1f} ({cpu_us[0]:.1f})   "
            f"{MODULES[1]} {wall[1]:8.1f} ({cpu_us[1]:.1f})   "
            f"{ratios[0]:.3f} x ({ratios[1]:.3f} x)   "
            f"{'ok' if min(ratios) <= RATIO_MAX else 'MISSED'}"
        )
    for name, added in added_us(port, 2 * turns).items():
        share = added / whole[name]
        print(
            f"{name:32}the names alone add {added:.2f} us to {whole[name]:.1f} us, the quickest "
            f"turn: {1 + share:.3f} x   {'ok' if 1 + share <= RATIO_MAX else 'MISSED'}"
        )
    server.stdin.close()
    server.wait(timeout=60)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
