"""The same steps in three tables: all of them, the surprising ones, the best.

    steps --+--> "all"         uniform sampling, FIFO removal
            +--> "surprising"  sampling by priority, FIFO removal
            +--> "best"        uniform sampling, removes the lowest return: keeps the best 20

Rows are in memory once, whatever the number of tables, and are sent over a socket once. Each table
has its own order, its own size, and its own priorities.
"""

import numpy as np

import reverie

EPISODES = 200
BEST = 20
STEP = {
    "obs": reverie.TensorSpec((None, 8), np.float32),
    "reward": reverie.TensorSpec((None,), np.float32),
}


def tables() -> list[reverie.Table]:
    ready = reverie.rate_limiters.MinSize(1)
    uniform, prioritized = reverie.selectors.Uniform, reverie.selectors.Prioritized
    oldest, lowest = reverie.selectors.Fifo(), reverie.selectors.MinHeap()
    return [
        reverie.Table("all", uniform(seed=1), oldest, 10_000, ready, signature=STEP),
        reverie.Table(
            "surprising", prioritized(0.8, seed=2), oldest, 10_000, ready, signature=STEP
        ),
        reverie.Table("best", uniform(seed=3), lowest, BEST, ready, signature=STEP),
    ]


def write(client: reverie.Client) -> list[float]:
    """Writes the episodes into all tables; returns their returns."""
    rng = np.random.default_rng(7)
    returns = []
    with client.trajectory_writer(num_keep_alive_refs=10) as writer:
        for _ in range(EPISODES):
            rewards = rng.normal(size=10).astype(np.float32)
            for reward in rewards:
                writer.append({"obs": rng.random(8, np.float32), "reward": reward})
                step = {name: column[-1:] for name, column in writer.history.items()}
                writer.create_item("all", priority=1.0, trajectory=step)
                # The priority of a new step is unknown, so it gets the largest one so far.
                writer.create_item("surprising", priority=None, trajectory=step)
            episode = {name: column[:] for name, column in writer.history.items()}
            returns.append(float(rewards.sum()))
            writer.create_item("best", priority=returns[-1], trajectory=episode)
            writer.end_episode()
    return returns


def run(client: reverie.Client) -> None:
    returns = write(client)
    best = client.sample_batch("best", 50 * BEST)
    found = np.unique(best.data["reward"].sum(axis=1))
    print(f"  best of {EPISODES} episodes: returns from {found[0]:.2f} to {found[-1]:.2f}")
    print(f"  all of them: a mean of {np.mean(returns):.2f}")
    np.testing.assert_allclose(found, np.sort(returns)[-BEST:], rtol=1e-4)

    # A learner for which large rewards are surprising draws them more often.
    for _ in range(20):
        batch = client.sample_batch("surprising", 256)
        surprise = np.abs(batch.data["reward"][:, 0])
        client.update_priorities("surprising", batch.tickets, surprise)
    means = {}
    for name in ("all", "surprising"):
        rewards = client.sample_batch(name, 2000).data["reward"]
        means[name] = float(np.abs(rewards).mean())
        print(f"  {name}: mean |reward| of a batch is {means[name]:.2f}")
    assert means["surprising"] > means["all"]


def main() -> None:
    print("embedded:")
    with reverie.Store(tables()) as store:
        run(store.client())
    print("served:")
    with reverie.Server(tables()) as server:
        run(server.localhost_client())


if __name__ == "__main__":
    main()
