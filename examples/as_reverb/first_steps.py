"""First steps with Reverb, on Reverie: a server, a client, items of one step and of three.

The calls are those of the first examples in Reverb's documentation. Only the import differs.
"""

from typing import Any

import reverie as reverb


def tables() -> list[reverb.Table]:
    return [
        reverb.Table(
            name="my_table",
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=100,
            rate_limiter=reverb.rate_limiters.MinSize(1),
        )
    ]


def run(client: reverb.Client) -> None:
    info = client.server_info()["my_table"]
    assert (info.max_size, info.current_size) == (100, 0)
    print("  the table:", info.sampler_options, info.remover_options)

    # One item over one step, whose data is two numbers.
    client.insert([0, 1], priorities={"my_table": 1.0})

    # One item over three steps.
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in range(2, 5):
            writer.append({"a": step, "b": 10 + step})
        writer.create_item(
            table="my_table",
            priority=1.0,
            trajectory={"a": writer.history["a"][:], "b": writer.history["b"][:]},
        )
        writer.flush()  # waits until the server has the item

    assert client.server_info()["my_table"].current_size == 2
    for _ in range(20):  # draws one of the two items at random
        for steps in client.sample("my_table", num_samples=2):
            values = [[int(column) for column in step.data] for step in steps]
            assert values in ([[0, 1]], [[2, 12], [3, 13], [4, 14]])
    item: Any = next(client.sample("my_table", emit_timesteps=False))
    print("  an item as a whole:", item)


def main() -> None:
    print("embedded:")
    with reverb.Store(tables()) as store:
        run(store.client())
    print("served:")
    server = reverb.Server(tables=tables())
    run(reverb.Client(f"localhost:{server.port}"))
    server.stop()


if __name__ == "__main__":
    main()
