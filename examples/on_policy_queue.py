"""An actor and a learner in lockstep: a queue passes each unroll on once, in order.

    actor    acts with weights of version v --> [ queue of 2 unrolls ] --> learner makes v + 1

The queue keeps learning on-policy. An actor that is ahead waits in ``flush``, a learner that is
ahead waits in ``sample_batch``; nothing polls. With room for two unrolls, no unroll is more than
three versions old when it is used: when its acting begins, one is being learned from and two are in
the queue.
"""

import threading

import numpy as np

import reverie

UNROLL = 5
UPDATES = 200
COLUMN = reverie.TensorSpec((UNROLL,), np.int64)


class Weights:
    """The learner's newest weights; in this example only their version."""

    version = 0


def act(client: reverie.Client, weights: Weights) -> None:
    with client.trajectory_writer(num_keep_alive_refs=UNROLL) as writer:
        for unroll in range(UPDATES):
            version = weights.version
            for t in range(UNROLL):
                writer.append({"version": version, "unroll": unroll, "step": t})
            steps = {name: column[-UNROLL:] for name, column in writer.history.items()}
            writer.create_item("unrolls", priority=1.0, trajectory=steps)
            writer.flush()  # waits until the unroll is in the queue


def learn(client: reverie.Client, weights: Weights) -> None:
    ages = []
    for update in range(UPDATES):
        batch = client.sample_batch("unrolls", 1, timeout_s=30)
        assert batch.data["unroll"][0, 0] == update  # each unroll once, in order
        assert batch.data["step"][0].tolist() == list(range(UNROLL))
        ages.append(weights.version - int(batch.data["version"][0, 0]))
        weights.version += 1  # in place of a gradient step
    print(f"  {UPDATES} unrolls, each learnt from once and in order")
    for age in range(max(ages) + 1):
        print(f"    {ages.count(age):4d} acted with weights {age} versions old")
    assert max(ages) <= 3


def run(actors_client: reverie.Client, learners_client: reverie.Client) -> None:
    weights = Weights()
    actor = threading.Thread(target=act, args=(actors_client, weights), daemon=True)
    actor.start()
    learn(learners_client, weights)
    actor.join()


def table() -> reverie.Table:
    signature = {"version": COLUMN, "unroll": COLUMN, "step": COLUMN}
    return reverie.Table.queue("unrolls", max_size=2, signature=signature)


def main() -> None:
    print("embedded:")
    with reverie.Store([table()]) as store:
        run(store.client(), store.client())
        print("  now:", store.client().why_blocked("unrolls"))
    print("served:")
    with reverie.Server([table()]) as server:
        run(server.localhost_client(), server.localhost_client())


if __name__ == "__main__":
    main()
