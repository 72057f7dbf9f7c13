"""Bytes an item keeps alive, over its length N and the chunk length K.

An item of N steps refers to whole chunks of K steps: rows are never copied, but a chunk is kept as
long as any item refers to it. Each cell is what a FIFO table of 200 items holds, divided by the
number of items, for steps of 100 bytes: on the left with an item at every step, in the middle with
one every N steps, on the right with one every 4 N steps, where three quarters of the steps are in
no item.

Usage: python benchmarks/chunk_bytes.py [--out chunk_bytes.png]
"""

import argparse

import numpy as np

import reverie

LENGTHS = range(1, 17)
STEP = {"obs": np.zeros(23, np.float32), "reward": np.float64(0)}  # 100 bytes
SHOWN = (1, 4, 8, 12, 16)
ITEMS = 200
LAYOUTS = {
    "an item at every step": lambda _: 1,
    "an item every N steps": lambda n: n,
    "an item every 4 N steps": lambda n: 4 * n,
}


def bytes_an_item(n: int, k: int, every: int) -> float:
    """The bytes that one of the table's items keeps alive, including headers of chunks."""
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        max_size=ITEMS,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_bytes=1 << 40,  # makes the table count its bytes
    )
    with reverie.Store([table]) as store:
        client = store.client()
        with client.trajectory_writer(num_keep_alive_refs=n, chunk_length=k) as writer:
            for step in range(n + every * (2 * ITEMS)):
                writer.append(STEP)
                if step >= n - 1 and (step - n + 1) % every == 0:
                    rows = {name: column[-n:] for name, column in writer.history.items()}
                    writer.create_item("t", 1.0, rows)
            info = client.server_info()["t"]
            return info.size_bytes / info.current_size


def main() -> None:
    """Prints a table for each layout, and draws them in one picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="chunk_bytes.png", help="the picture (a PNG)")
    out = parser.parse_args().out
    grids = {}
    for name, every in LAYOUTS.items():
        grids[name] = np.array([[bytes_an_item(n, k, every(n)) for k in LENGTHS] for n in LENGTHS])
        print(f"bytes an item, {name}: a row a length N, a column a chunk length K")
        print("  N\\K" + "".join(f"{k:7d}" for k in LENGTHS))
        for n, row in zip(LENGTHS, grids[name], strict=True):
            print(f"{n:5d}" + "".join(f"{value:7.0f}" for value in row))

    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(grids), figsize=(13, 4.2), layout="constrained")
    for axis, (name, grid) in zip(axes, grids.items(), strict=True):
        extent = (0.5, 16.5, 16.5, 0.5)
        image = axis.imshow(np.log2(grid), extent=extent, cmap="viridis", vmin=6.5, vmax=12)
        for n in SHOWN:
            for k in SHOWN:
                value = grid[n - 1, k - 1]
                axis.text(k, n, f"{value:.0f}", ha="center", va="center", fontsize=7, color="white")
        axis.set(
            xticks=SHOWN,
            yticks=SHOWN,
            title=name,
            xlabel="chunk length K (steps)",
            ylabel="item length N (steps)",
        )
    bar = figure.colorbar(image, ax=axes, label="bytes an item")
    bar.set_ticks(range(7, 13), labels=[str(2**i) for i in range(7, 13)])
    figure.savefig(out, dpi=110)
    print(f"drawn: {out}")


if __name__ == "__main__":
    main()
