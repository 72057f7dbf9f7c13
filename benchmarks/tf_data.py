"""Items per second in a tf.data pipeline, compared with dm-reverb 0.14, in one run.

For each library a server in a separate process, and one in the pipeline's process, where dm-reverb
samples without a socket, as our embedded client does. A pipeline is the library's
TrajectoryDataset, in batches of 256 items of 400 B or 32 of 400 kB. The libraries take turns.

Needs both libraries: ``make .venv-reverb/made build``, then

    PYTHONPATH=python .venv-reverb/bin/python benchmarks/tf_data.py [SECONDS [ROUNDS]]
"""

import importlib
import os
import statistics
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

# Number of float32 elements, items per batch, items in flight.
SIZES = {"400 B": (100, 256, 2048), "400 kB": (100_000, 32, 128)}
TARGETS = {"400 B": "136,000 items/s", "400 kB": "2.7 GB/s"}
TABLE_BYTES = 40_000_000


def make_server(library: str) -> Any:  # noqa: ANN401
    """A server of ``library`` with a table for each size."""
    lib = importlib.import_module(library)
    return lib.Server(
        [
            lib.Table(
                size,
                sampler=lib.selectors.Uniform(),
                remover=lib.selectors.Fifo(),
                max_size=1000,
                rate_limiter=lib.rate_limiters.MinSize(1),
            )
            for size in SIZES
        ]
    )


def fill(lib: ModuleType, address: str) -> None:
    """Fills a table with random items, which do not compress."""
    rng = np.random.default_rng(7)
    client = lib.Client(address)
    for size, (elements, _, _) in SIZES.items():
        writer = client.trajectory_writer(num_keep_alive_refs=1)
        for _ in range(min(1000, TABLE_BYTES // (4 * elements))):
            writer.append({"x": rng.normal(size=elements).astype(np.float32)})
            writer.create_item(size, 1.0, {"x": writer.history["x"][-1:]})
            writer.flush(block_until_num_items=50)
        writer.flush()
        writer.close()


def dataset(lib: ModuleType, source: Any, size: str) -> Any:  # noqa: ANN401
    """The pipeline."""
    elements, batch, in_flight = SIZES[size]
    made = lib.TrajectoryDataset(
        source,
        size,
        dtypes={"x": tf.float32},
        shapes={"x": tf.TensorShape([1, elements])},
        max_in_flight_samples_per_worker=in_flight,
    )
    return made.batch(batch, drop_remainder=True)


def items_per_s(
    lib: ModuleType,
    source: Any,  # noqa: ANN401
    size: str,
    seconds: float,
) -> float:
    """One measurement, after a warm-up."""
    _, batch, _ = SIZES[size]
    batches = iter(dataset(lib, source, size))
    begin = time.perf_counter()
    while time.perf_counter() < begin + seconds / 4:
        next(batches)
    count = 0
    begin = time.perf_counter()
    while (now := time.perf_counter()) < begin + seconds:
        next(batches)
        count += batch
    return count / (now - begin)


def serve(library: str) -> None:
    """A server of ``library``; prints its port, and stops when standard input closes."""
    server = make_server(library)
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


def main() -> None:
    """Prints medians and targets."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    libraries = {"dm-reverb": "reverb", "reverie": "reverie"}
    faces = {
        "reverb": importlib.import_module("reverb"),
        "reverie": importlib.import_module("reverie.reverb"),
    }
    sources: dict[tuple[str, str], Any] = {}
    peers = []
    held = []
    for name, library in libraries.items():
        peer = subprocess.Popen(
            [sys.executable, __file__, "serve", library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        peers.append(peer)
        assert peer.stdout is not None
        address = f"localhost:{int(peer.stdout.readline())}"
        fill(faces[library], address)
        sources["other process", name] = address
        server = make_server(library)
        held.append(server)
        fill(faces[library], f"localhost:{server.port}")
        local = server.client() if library == "reverie" else f"localhost:{server.port}"
        sources["same process", name] = local
    for place in ("same process", "other process"):
        for size, (elements, _, _) in SIZES.items():
            rates: dict[str, list[float]] = {name: [] for name in libraries}
            for _ in range(rounds):
                for name, library in libraries.items():
                    source = sources[place, name]
                    rates[name].append(items_per_s(faces[library], source, size, seconds))
            for name in libraries:
                median = statistics.median(rates[name])
                print(
                    f"{place:14} {size:7} {name:10} {median:12,.0f} items/s "
                    f"{median * elements * 4 / 1e9:6.2f} GB/s   "
                    f"({min(rates[name]):,.0f} to {max(rates[name]):,.0f})"
                    f"   target {TARGETS[size]}",
                    flush=True,
                )
    for peer in peers:
        peer.communicate("")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        main()
