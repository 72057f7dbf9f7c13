r"""Actors that query a central model: one process serves it, and answers queries in batches.

    actor process 0 --observation--> \\
    actor process 1 --observation-->  > model: [batch, 4] -> [batch] actions
    actor process 2 --observation--> /

A batch has the observations that arrived while the batch before was computed, up to 16.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

import reverie

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

ACTORS = 3
QUESTIONS = 200

_ACTOR = """
import sys
import numpy as np
import reverie

rng = np.random.default_rng(int(sys.argv[2]))
with reverie.Rpc() as rpc:
    rpc.connect(sys.argv[1])
    for _ in range(int(sys.argv[3])):
        observation = rng.normal(size=4).astype(np.float32)
        action = rpc.sync("model", "policy", observation)
        assert action == int(observation.sum() > 0), (observation, action)
"""


def main() -> None:
    """Serves until all actors are done, and prints the sizes of the batches."""
    sizes = []

    def policy(observations: FloatArray) -> IntArray:
        sizes.append(len(observations))
        wanted: IntArray = (observations.sum(axis=1) > 0).astype(np.int64)
        return wanted

    with reverie.Rpc("model") as rpc:
        rpc.define("policy", policy, batch_size=16, dynamic_batching=True)
        address = rpc.listen()
        environment = {"PYTHONPATH": str(Path(reverie.__file__).parents[1])}
        actors = [
            subprocess.Popen(
                [sys.executable, "-c", _ACTOR, address, str(seed), str(QUESTIONS)], env=environment
            )
            for seed in range(ACTORS)
        ]
        for actor in actors:
            if actor.wait() != 0:
                raise SystemExit("an actor failed")
    assert sum(sizes) == ACTORS * QUESTIONS
    print(f"{sum(sizes)} questions in {len(sizes)} batches, the largest of {max(sizes)}")


if __name__ == "__main__":
    main()
