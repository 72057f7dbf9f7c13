"""Items over overlapping windows of steps, whose rows are stored once.

    steps     0  1  2  3  4  5  6 ...
    item 0   [0  1  2]
    item 1      [1  2  3]
    item 2         [2  3  4]

An item uses any rows of any columns: here the observation of its first step, the rewards of all
three, and the observation after them. It copies nothing, so three items over a step cost hardly
more than one. Over a socket each row is sent once, too.
"""

import numpy as np

import reverie

WINDOW = 3
STEPS = 1000


def table() -> reverie.Table:
    return reverie.Table(
        "windows",
        sampler=reverie.selectors.Uniform(seed=7),
        remover=reverie.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        # The columns of an item: clients of a server get the names from it.
        signature={
            "obs": reverie.TensorSpec((96,), np.float32),
            "rewards": reverie.TensorSpec((WINDOW,), np.float32),
            "next_obs": reverie.TensorSpec((96,), np.float32),
        },
        max_bytes=100_000_000,  # a table only counts its bytes if they are bounded
    )


def run(client: reverie.Client) -> None:
    rng = np.random.default_rng(7)
    with client.trajectory_writer(num_keep_alive_refs=WINDOW + 1) as writer:
        for t in range(STEPS):
            writer.append({"obs": rng.random(96, np.float32), "reward": np.float32(t)})
            if writer.episode_steps > WINDOW:
                steps = writer.history
                item = {
                    "obs": steps["obs"][-WINDOW - 1],  # one row: no time axis
                    "rewards": steps["reward"][-WINDOW - 1 : -1],
                    "next_obs": steps["obs"][-1],
                }
                writer.create_item("windows", priority=1.0, trajectory=item)
        writer.end_episode()

    batch = client.sample_batch("windows", 4)
    print("  shapes: ", {name: array.shape for name, array in batch.data.items()})
    print("  rewards:", batch.data["rewards"].tolist())
    assert (np.diff(batch.data["rewards"]) == 1).all()  # consecutive steps, in order


def show_size(table: reverie.Table) -> None:
    step_bytes = 96 * 4 + 4
    item_bytes = 2 * 96 * 4 + WINDOW * 4
    info = table.info
    print(f"  {info.current_size} items over {STEPS} steps take {info.size_bytes:,} bytes:")
    print(f"    the steps alone are {STEPS * step_bytes:,} bytes,")
    print(f"    the items with copies of their own {info.current_size * item_bytes:,}")
    assert info.size_bytes < info.current_size * item_bytes


def main() -> None:
    print("embedded:")
    with reverie.Store([table()]) as store:
        run(store.client())
        show_size(store.tables[0])
    print("served:")
    with reverie.Server([table()]) as server:
        run(server.localhost_client())
        show_size(server.tables[0])


if __name__ == "__main__":
    main()
