"""The tables in Reverb's documentation, with checks that each behaves as described there."""

import reverie as reverb


def uniform() -> reverb.Table:
    """Holds the last 1000 items, drawn uniformly, once there are 100."""
    return reverb.Table(
        name="my_uniform_experience_replay_buffer",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverb.rate_limiters.MinSize(100),
    )


def prioritized() -> reverb.Table:
    """The same, drawn by priority."""
    return reverb.Table(
        name="my_prioritized_experience_replay_buffer",
        sampler=reverb.selectors.Prioritized(0.8),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverb.rate_limiters.MinSize(100),
    )


def queue(name: str) -> reverb.Table:
    """Up to 1000 items, each sampled once, oldest first; inserts and samples wait if needed."""
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1000,
        max_times_sampled=1,
        rate_limiter=reverb.rate_limiters.Queue(size=1000),
    )


def tables() -> list[reverb.Table]:
    return [
        uniform(),
        prioritized(),
        queue("my_queue"),
        reverb.Table.queue(name="my_other_queue", max_size=1000),
    ]


def must_wait(client: reverb.Client, table: str) -> bool:
    try:
        client.sample_batch(table, 1, timeout_s=0.05)
    except reverb.DeadlineExceededError:
        return True
    return False


def run(client: reverb.Client) -> None:
    names = list(client.server_info())
    assert all(must_wait(client, name) for name in names)
    for i in range(1100):  # 100 more than there is room for
        replay = {uniform().name: 1.0, prioritized().name: float(i % 2)}
        client.insert([i], replay)
        if i == 98:
            assert must_wait(client, uniform().name)  # 99 items
        if i < 3:
            client.insert([i], {"my_queue": 1.0, "my_other_queue": 1.0})

    info = client.server_info()
    assert info[uniform().name].current_size == 1000
    steps = client.sample_batch(uniform().name, 2000).data[0]
    assert steps.min() >= 100  # the oldest were evicted
    assert 0.4 < (steps % 2).mean() < 0.6
    steps = client.sample_batch(prioritized().name, 2000).data[0]
    assert (steps % 2 == 1).all()  # an item of priority 0 is never drawn while there are others
    for name in ("my_queue", "my_other_queue"):
        drawn = [int(sample[0].data[0]) for sample in client.sample(name, num_samples=3)]
        assert drawn == [0, 1, 2]
        assert must_wait(client, name)  # all items were sampled and removed
    print("  uniform, prioritised and queues do what they say")


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
