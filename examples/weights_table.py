"""A table as a variable: the learner's newest weights, which actors fetch when they like.

    learner --insert--> [ one item ] --sample--> actors

The table holds one item, and removes the oldest: an insert replaces the item. Sampling does not
remove the item, so any number of actors reads it, as often as they like. Before the first insert
actors wait (``MinSize(1)``); none starts with weights of its own. Another table of the same server
brings the actors' results back to the learner.
"""

import multiprocessing
import threading

import numpy as np

import reverie

SIZE = 10_000
VERSIONS = 50
ACTORS = 3


def tables() -> list[reverie.Table]:
    weights = reverie.Table(
        "weights",
        sampler=reverie.selectors.Uniform(),  # there is only one item to draw
        remover=reverie.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature={
            "version": reverie.TensorSpec((1,), np.int64),
            "kernel": reverie.TensorSpec((1, SIZE), np.float32),
        },
    )
    found = {
        "actor": reverie.TensorSpec((1,), np.int64),
        "versions": reverie.TensorSpec((1, None), np.int64),
    }
    return [weights, reverie.Table.queue("found", max_size=ACTORS, signature=found)]


def act(client: reverie.Client, actor: int) -> None:
    """Fetches weights until the last version; reports the first version, and then all."""
    versions = [fetch(client)]
    tell(client, actor, versions)
    while VERSIONS not in versions:
        versions.append(fetch(client))
    tell(client, actor, versions)


def fetch(client: reverie.Client) -> int:
    batch = client.sample_batch("weights", 1, timeout_s=30)
    version = int(batch.data["version"][0, 0])
    # All values are of one version: an item is replaced as a whole.
    assert (batch.data["kernel"] == version).all()
    return version


def tell(client: reverie.Client, actor: int, versions: list[int]) -> None:
    client.insert({"actor": actor, "versions": np.array(versions)}, {"found": 1.0})


def publish(client: reverie.Client, version: int) -> None:
    kernel = np.full(SIZE, version, np.float32)  # in place of a gradient step's result
    client.insert({"version": version, "kernel": kernel}, {"weights": 1.0})


def told(client: reverie.Client) -> tuple[int, np.ndarray]:
    batch = client.sample_batch("found", 1, timeout_s=60)
    return int(batch.data["actor"][0, 0]), batch.data["versions"][0, 0]


def learn(client: reverie.Client) -> None:
    publish(client, 1)
    for _ in range(ACTORS):  # an actor waits until there are weights
        _, versions = told(client)
        assert versions.tolist() == [1]
    for version in range(2, VERSIONS + 1):
        publish(client, version)
    for _ in range(ACTORS):
        actor, seen = told(client)
        assert (np.diff(seen) >= 0).all()  # no actor gets an older version later
        print(f"  actor {actor} fetched {len(seen)} times, from version {seen[0]} to {seen[-1]}")


def main() -> None:
    print("embedded, actors are threads:")
    with reverie.Store(tables()) as store:
        client = store.client()
        threads = [threading.Thread(target=act, args=(client, i)) for i in range(ACTORS)]
        for thread in threads:
            thread.start()
        learn(client)
        for thread in threads:
            thread.join()

    print("served, actors are processes:")
    spawn = multiprocessing.get_context("spawn")  # connections do not survive a fork
    with reverie.Server(tables()) as server:
        client = server.localhost_client()  # another process gets it by its address
        processes = [spawn.Process(target=act, args=(client, i)) for i in range(ACTORS)]
        for process in processes:
            process.start()
        learn(client)
        for process in processes:
            process.join()
            assert process.exitcode == 0


if __name__ == "__main__":
    main()
