"""Trajectories of three steps that overlap by two, with Reverb's first writer.

The calls are those of section 4.1 of Cassirer et al. 2021, "Reverb: A Framework For Experience
Replay".
"""

import numpy as np

import reverie as reverb

NUM_TIMESTEPS = 3
EPISODE = 10


def env_step(step: int) -> tuple[np.ndarray, int, bool]:
    """An observation, the action taken on it, and whether the episode is over."""
    return np.full(2, step, np.float32), step % 2, step == EPISODE


def run(client: reverb.Client) -> None:
    with client.writer(NUM_TIMESTEPS) as writer:
        step = 0
        observation, action, done = env_step(step)
        while not done:
            writer.append((observation, action))
            if step >= NUM_TIMESTEPS - 1:
                # An item over the last three steps.
                writer.create_item(table="my_table_a", num_timesteps=NUM_TIMESTEPS, priority=1.5)
            step += 1
            observation, action, done = env_step(step)

    firsts = []
    for steps in client.sample("my_table_a", num_samples=EPISODE - NUM_TIMESTEPS + 1):
        assert steps[0].info.priority == 1.5
        numbers = [int(step.data[0][0]) for step in steps]
        assert numbers == list(range(numbers[0], numbers[0] + NUM_TIMESTEPS))
        assert [int(step.data[1]) for step in steps] == [number % 2 for number in numbers]
        firsts.append(numbers[0])
    assert firsts == list(range(8))
    print(f"  {len(firsts)} items, the first over steps 0 to 2, the last over 7 to 9")


def main() -> None:
    print("embedded:")
    with reverb.Store([reverb.Table.queue("my_table_a", max_size=100)]) as store:
        run(store.client())
    print("served:")
    server = reverb.Server([reverb.Table.queue("my_table_a", max_size=100)])
    run(reverb.Client(f"localhost:{server.port}"))
    server.stop()


if __name__ == "__main__":
    main()
