"""The same steps in two tables, as trajectories of two lengths, with Reverb's first writer.

The calls are those of section 4.2 of Cassirer et al. 2021, "Reverb: A Framework For Experience
Replay".
"""

import numpy as np

import reverie as reverb

LENGTHS = {"my_table_a": 2, "my_table_b": 3}
EPISODE = 10


def env_step(step: int) -> tuple[np.ndarray, int, bool]:
    """An observation, the action taken on it, and whether the episode is over."""
    return np.full(2, step, np.float32), step % 2, step == EPISODE


def tables() -> list[reverb.Table]:
    return [reverb.Table.queue(name, max_size=100) for name in LENGTHS]


def run(client: reverb.Client) -> None:
    with client.writer(max_sequence_length=max(LENGTHS.values())) as writer:
        step = 0
        observation, action, done = env_step(step)
        while not done:
            writer.append((observation, action))
            for table, length in LENGTHS.items():
                if step >= length - 1:
                    writer.create_item(table=table, num_timesteps=length, priority=1.5)
            step += 1
            observation, action, done = env_step(step)

    for table, length in LENGTHS.items():
        count = EPISODE - length + 1
        items = list(client.sample(table, num_samples=count))
        for first, steps in enumerate(items):
            assert [int(step.data[0][0]) for step in steps] == list(range(first, first + length))
        print(f"  {table}: {len(items)} items of {length} steps")


def main() -> None:
    print("embedded:")
    with reverb.Store(tables()) as store:
        run(store.client())
    print("served:")
    server = reverb.Server(tables())
    run(reverb.Client(f"localhost:{server.port}"))
    server.stop()


if __name__ == "__main__":
    main()
