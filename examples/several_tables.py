"""The same steps in three tables: any of them, the surprising ones, the best.

    steps --+--> "all"         uniform, the oldest go
            +--> "surprising"  by priority, the oldest go
            +--> "best"        uniform, the lowest return goes: a view of the best 20 episodes

The rows lie in memory once, whatever the number of tables. Each table has its own order, its own
size, and its own priorities.
"""

import numpy as np

import reverie

EPISODES = 200
BEST = 20


def tables() -> list[reverie.Table]:
    ready = reverie.rate_limiters.MinSize(1)
    selectors = reverie.selectors
    return [
        reverie.Table("all", selectors.Uniform(seed=1), selectors.Fifo(), 10_000, ready),
        reverie.Table(
            "surprising", selectors.Prioritized(0.8, seed=2), selectors.Fifo(), 10_000, ready
        ),
        reverie.Table("best", selectors.Uniform(seed=3), selectors.MinHeap(), BEST, ready),
    ]


def main() -> None:
    rng = np.random.default_rng(7)
    returns = []
    with reverie.Store(tables()) as store:
        client = store.client()
        writer = client.trajectory_writer(num_keep_alive_refs=10)
        for _ in range(EPISODES):
            rewards = rng.normal(size=10).astype(np.float32)
            for reward in rewards:
                writer.append({"obs": rng.random(8, np.float32), "reward": reward})
                step = {name: column[-1:] for name, column in writer.history.items()}
                writer.create_item("all", priority=1.0, trajectory=step)
                # Nothing is known of a new step: as surprising as the most surprising so far.
                writer.create_item("surprising", priority=None, trajectory=step)
            episode = {name: column[:] for name, column in writer.history.items()}
            returns.append(float(rewards.sum()))
            writer.create_item("best", priority=returns[-1], trajectory=episode)
            writer.end_episode()
        writer.close()

        best = client.sample_batch("best", BEST, distinct=True)
        found = np.sort(best.data["reward"].sum(axis=1))
        print(f"best of {EPISODES} episodes: returns from {found[0]:.2f} to {found[-1]:.2f}")
        print(f"all of them: a mean of {np.mean(returns):.2f}")
        np.testing.assert_allclose(found, np.sort(returns)[-BEST:], rtol=1e-5)

        # A learner that finds large rewards surprising looks at them more often.
        for _ in range(20):
            batch = client.sample_batch("surprising", 256)
            surprise = np.abs(batch.data["reward"][:, 0])
            client.update_priorities("surprising", batch.tickets, surprise)
        for name in ("all", "surprising"):
            batch = client.sample_batch(name, 2000)
            print(f"{name}: mean |reward| of a batch is {np.abs(batch.data['reward']).mean():.2f}")


if __name__ == "__main__":
    main()
