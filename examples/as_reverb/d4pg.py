"""The replay of a D4PG agent: n-step transitions, drawn uniformly, the oldest go.

The table is that of appendix A.1 of Cassirer et al. 2021, "Reverb: A Framework For Experience
Replay". An actor accumulates rewards and discounts over n steps, as Acme's adders do.
"""

import numpy as np

import reverie as reverb

TABLE_NAME = "priority_table"
MAX_REPLAY_SIZE = 50
N_STEP = 5
DISCOUNT = 0.99


def table() -> reverb.Table:
    return reverb.Table(
        name=TABLE_NAME,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=MAX_REPLAY_SIZE,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )


def run(client: reverb.Client) -> None:
    rewards = np.random.default_rng(3).normal(size=100)
    weights = DISCOUNT ** np.arange(N_STEP)
    for t in range(len(rewards) - N_STEP + 1):
        transition = (
            np.float32(t),  # observation
            np.float32(-t),  # action
            np.float32(weights @ rewards[t : t + N_STEP]),
            np.float32(DISCOUNT**N_STEP),
            np.float32(t + N_STEP),  # next observation
        )
        client.insert(transition, priorities={TABLE_NAME: 1.0})

    info = client.server_info()[TABLE_NAME]
    assert info.current_size == MAX_REPLAY_SIZE
    seen = []
    for (step,) in client.sample(TABLE_NAME, num_samples=200):
        observation, action, reward, discount, next_observation = step.data
        t = int(observation)
        assert (action, next_observation) == (-t, t + N_STEP)
        np.testing.assert_allclose(reward, weights @ rewards[t : t + N_STEP], rtol=1e-4)
        np.testing.assert_allclose(discount, DISCOUNT**N_STEP, rtol=1e-6)
        seen.append(t)
    newest = len(rewards) - N_STEP
    assert min(seen) > newest - MAX_REPLAY_SIZE
    print(f"  {len(seen)} draws from the last {MAX_REPLAY_SIZE} of {newest + 1} transitions")


def main() -> None:
    print("embedded:")
    with reverb.Store([table()]) as store:
        run(store.client())
    print("served:")
    server = reverb.Server([table()])
    run(reverb.Client(f"localhost:{server.port}"))
    server.stop()


if __name__ == "__main__":
    main()
