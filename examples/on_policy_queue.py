"""An actor and a learner in step: a queue hands each unroll over once, in order.

    actor    acts with weights of version v --> [ queue of 2 unrolls ] --> learner makes v + 1

The queue is what keeps learning on-policy. An actor that is ahead waits in ``flush``, a learner
that is ahead in ``sample_batch``; nobody polls. With room for two unrolls none is more than three
versions old when it is learnt from: one is being learnt from and two lie before it when its acting
begins.
"""

import threading

import reverie

UNROLL = 5
UPDATES = 200


class Weights:
    """The learner's newest weights; here only their version."""

    version = 0


def act(client: reverie.Client, weights: Weights) -> None:
    """Acts until the store closes."""
    unroll = 0
    writer = client.trajectory_writer(num_keep_alive_refs=UNROLL)
    try:
        while True:
            version = weights.version
            for t in range(UNROLL):
                writer.append({"version": version, "unroll": unroll, "step": t})
            steps = {name: column[-UNROLL:] for name, column in writer.history.items()}
            writer.create_item("unrolls", priority=1.0, trajectory=steps)
            writer.flush()  # waits until the queue has taken it
            unroll += 1
    except reverie.errors.CancelledError:
        return  # the learner has closed the store
    finally:
        writer.close()


def main() -> None:
    weights = Weights()
    with reverie.Store([reverie.Table.queue("unrolls", max_size=2)]) as store:
        client = store.client()
        actor = threading.Thread(target=act, args=(client, weights))
        actor.start()
        ages = []
        for update in range(UPDATES):
            batch = client.sample_batch("unrolls", 1, timeout_s=30)
            assert batch.data["unroll"][0, 0] == update  # each once, in order
            assert batch.data["step"][0].tolist() == list(range(UNROLL))
            ages.append(weights.version - int(batch.data["version"][0, 0]))
            weights.version += 1  # the learner's step
        print(f"{UPDATES} unrolls, each learnt from once and in order")
        for age in range(max(ages) + 1):
            print(f"  {ages.count(age):4d} acted with weights {age} versions old")
        assert max(ages) <= 3
        print("now:", client.why_blocked("unrolls"))
    actor.join()


if __name__ == "__main__":
    main()
