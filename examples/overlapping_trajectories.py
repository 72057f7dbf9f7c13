"""Items over overlapping windows of steps, whose rows are stored once.

    steps     0  1  2  3  4  5  6 ...
    item 0   [0  1  2]
    item 1      [1  2  3]
    item 2         [2  3  4]

An item takes any rows of any columns: here the observation of its first step, the rewards of all
three, and the observation that they lead to. It copies nothing, so three items over a step cost
hardly more than one.
"""

import numpy as np

import reverie

WINDOW = 3
STEPS = 1000


def main() -> None:
    table = reverie.Table(
        "windows",
        sampler=reverie.selectors.Uniform(seed=7),
        remover=reverie.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_bytes=100_000_000,  # bytes are only counted where they are bounded
    )
    rng = np.random.default_rng(7)
    with reverie.Store([table]) as store:
        client = store.client()
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
        print("shapes: ", {name: array.shape for name, array in batch.data.items()})
        print("rewards:", batch.data["rewards"].tolist())
        assert (np.diff(batch.data["rewards"]) == 1).all()  # neighbouring steps, in order

        info = table.info
        step_bytes = 96 * 4 + 4
        item_bytes = 2 * 96 * 4 + WINDOW * 4
        print(f"{info.current_size} items over {STEPS} steps take {info.size_bytes:,} bytes:")
        print(f"  the steps alone are {STEPS * step_bytes:,} bytes,")
        print(f"  the items with copies of their own {info.current_size * item_bytes:,}")
        assert info.size_bytes < 1.1 * STEPS * step_bytes


if __name__ == "__main__":
    main()
