"""A table as a variable: the learner's newest weights, for actors to fetch when they like.

    learner --insert--> [ one item ] --sample--> actors

The table holds one item, and the oldest goes: an insert replaces what was there. Sampling does not
take the item out, so any number of actors reads it, as often as they like. Before the first insert
they wait (``MinSize(1)``); no actor starts with weights of its own. Another table of the same
server carries what the actors find back to the learner.
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
        sampler=reverie.selectors.Uniform(),  # of one item it is always that one
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
    """Fetches weights until those of the last version come; tells of the first, then of all."""
    versions = [fetch(client)]
    tell(client, actor, versions)
    while VERSIONS not in versions:
        versions.append(fetch(client))
    tell(client, actor, versions)


def fetch(client: reverie.Client) -> int:
    batch = client.sample_batch("weights", 1, timeout_s=30)
    version = int(batch.data["version"][0, 0])
    # All of one version: an item is replaced as a whole.
    assert (batch.data["kernel"] == version).all()
    return version


def tell(client: reverie.Client, actor: int, versions: list[int]) -> None:
    client.insert({"actor": actor, "versions": np.array(versions)}, {"found": 1.0})


def publish(client: reverie.Client, version: int) -> None:
    kernel = np.full(SIZE, version, np.float32)  # what a gradient step would make
    client.insert({"version": version, "kernel": kernel}, {"weights": 1.0})


def told(client: reverie.Client) -> tuple[int, np.ndarray]:
    batch = client.sample_batch("found", 1, timeout_s=60)
    return int(batch.data["actor"][0, 0]), batch.data["versions"][0, 0]


def learn(client: reverie.Client) -> None:
    publish(client, 1)
    for _ in range(ACTORS):  # an actor without weights waits for them
        _, versions = told(client)
        assert versions.tolist() == [1]
    for version in range(2, VERSIONS + 1):
        publish(client, version)
    for _ in range(ACTORS):
        actor, seen = told(client)
        assert (np.diff(seen) >= 0).all()  # never an older one after a newer
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
    spawn = multiprocessing.get_context("spawn")  # a fork would not take the connections along
    with reverie.Server(tables()) as server:
        client = server.localhost_client()  # crosses to another process by its address
        processes = [spawn.Process(target=act, args=(client, i)) for i in range(ACTORS)]
        for process in processes:
            process.start()
        learn(client)
        for process in processes:
            process.join()
            assert process.exitcode == 0


if __name__ == "__main__":
    main()
