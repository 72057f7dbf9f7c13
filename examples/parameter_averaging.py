r"""A regression in four processes that average their parameters; one is killed and restarted.

    worker 0: 8 steps on its own data --\\
    worker 1: 8 steps on its own data ---> mean of all parameters --> 8 steps ...
    worker 2: 8 steps on its own data --/
    worker 3: killed after a while, and restarted with the parameters of the others

No worker knows the others: a round covers the current members of the group, and if one is lost
during a round, the others start the round again.
"""

import multiprocessing
import sys
import time

import numpy as np
import numpy.typing as npt

import reverie

WORKERS = 4
ROUNDS = 60
TRUE = np.linspace(-1.0, 1.0, 8)

Array = npt.NDArray[np.float64]


def descend(weights: Array, rng: np.random.Generator) -> Array:
    """Eight steps of gradient descent on noisy samples of the true line."""
    for _ in range(8):
        x = rng.normal(size=(16, TRUE.size))
        error = x @ weights - (x @ TRUE + 0.1 * rng.normal(size=16))
        weights = weights - 0.02 * x.T @ error / 16
    return weights


def work(address: str, index: int, life: int, pause_s: float) -> None:
    """Runs one worker until the group has made its rounds; their number is averaged as well."""
    rng = np.random.default_rng([index, life])
    with reverie.Rpc(f"worker-{index}") as rpc:
        rpc.connect(address)
        with reverie.Group(rpc, "regression") as group:
            group.wait(2)
            weights, turns, done = np.zeros_like(TRUE), 0, 0
            while done < ROUNDS:
                # A new member contributes nothing yet, and takes the others' parameters.
                share = 1.0 if turns > 0 else 0.0
                if turns > 0:
                    weights = descend(weights, rng)
                mine = {"weights": share * weights, "count": share, "round": share * done}
                try:
                    total = group.all_reduce("average", mine).result()
                except (reverie.errors.GroupChangedError, reverie.errors.FailedPreconditionError):
                    group.wait(1)  # continues with the members that are left
                    continue
                if total["count"] > 0:
                    weights = total["weights"] / total["count"]
                    done = round(total["round"] / total["count"]) + 1
                turns += 1
                time.sleep(pause_s)
            error = float(np.abs(weights - TRUE).max())
            print(f"worker {index}, life {life}: {turns} rounds, largest error {error:.3f}")
            if error > 0.1:
                sys.exit(1)


def main() -> None:
    """Starts the workers, kills one, and restarts it."""
    context = multiprocessing.get_context("spawn")
    with reverie.Broker() as broker:
        address = broker.listen()

        def start(index: int, life: int = 0) -> multiprocessing.process.BaseProcess:
            worker = context.Process(target=work, args=(address, index, life, 0.05))
            worker.start()
            return worker

        def members() -> int:
            return sum(len(group["members"]) for group in broker.groups())

        workers = [start(index) for index in range(WORKERS)]
        while members() < WORKERS:
            time.sleep(0.05)
        time.sleep(0.5)
        workers[3].kill()
        while members() == WORKERS:
            time.sleep(0.05)
        workers[3] = start(3, life=1)
        for worker in workers:
            worker.join()
        if any(worker.exitcode != 0 for worker in workers):
            raise SystemExit("a worker failed")


if __name__ == "__main__":
    main()
