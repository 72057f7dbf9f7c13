"""What priorities gain, in a task with a single reward among hundreds of steps.

The blind cliff walk: in each of 8 states one of two actions is right. Only eight right actions in
a row are rewarded; a wrong one ends the episode. A memory of every sequence of actions has 510
steps, and one of them has the reward. Uniform sampling draws it once in 510 draws. Sampling by the
size of the last error finds it sooner, and then the steps that lead to it.

Source: Schaul et al. 2016, "Prioritized Experience Replay", section 3.1. Differs: 16 draws per
update instead of one, and a fixed step size.
"""

import itertools

import numpy as np
import numpy.typing as npt

import reverie

STATES = 8
GAMMA = 1 - 1 / STATES
STEP_SIZE = 0.25
BATCH = 16
RIGHT = 1


def fill(client: reverie.Client) -> int:
    """Inserts the steps of every sequence of actions; returns the number of steps."""
    count = 0
    for actions in itertools.product((0, RIGHT), repeat=STATES):
        for state, action in enumerate(actions):
            over = action != RIGHT or state == STATES - 1
            step = {
                "state": state,
                "action": action,
                "reward": float(over and action == RIGHT),
                "discount": 0.0 if over else GAMMA,
            }
            client.insert(step, {"memory": 1.0})
            count += 1
            if over:
                break
    return count


def learn(sampler: reverie.selectors.Selector) -> tuple[int, int]:
    """The steps in the memory, and the updates until right actions' values are within 0.01."""
    table = reverie.Table(
        "memory", sampler, reverie.selectors.Fifo(), 100_000, reverie.rate_limiters.MinSize(1)
    )
    right_values = GAMMA ** np.arange(STATES - 1, -1, -1)
    values: npt.NDArray[np.float64] = np.zeros((STATES + 1, 2))
    with reverie.Store([table]) as store:
        client = store.client()
        step_count = fill(client)
        batch = None
        for update in range(1, 10_000):
            batch = client.sample_batch("memory", BATCH, out=batch)  # reuses the arrays
            step = {name: column[:, 0] for name, column in batch.data.items()}
            state, action = step["state"], step["action"]
            target = step["reward"] + step["discount"] * values[state + 1].max(axis=1)
            error = target - values[state, action]
            for i in range(BATCH):  # one by one, since a batch may have a step twice
                left = target[i] - values[state[i], action[i]]
                values[state[i], action[i]] += STEP_SIZE * left
            client.update_priorities("memory", batch.tickets, np.abs(error) + 1e-4)
            if np.abs(values[:STATES, RIGHT] - right_values).max() < 0.01:
                return step_count, update
    raise RuntimeError("the values were not found")


def main() -> None:
    uniform = []
    prioritized = []
    for seed in range(5):
        steps, updates = learn(reverie.selectors.Uniform(seed=seed))
        uniform.append(updates)
        _, updates = learn(reverie.selectors.Prioritized(1.0, seed=seed))
        prioritized.append(updates)
    print(f"updates of {BATCH} draws from {steps} steps until the values are right:")
    print(f"  uniform      {sorted(uniform)}")
    print(f"  prioritized  {sorted(prioritized)}")
    assert np.median(prioritized) < np.median(uniform)


if __name__ == "__main__":
    main()
