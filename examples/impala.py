r"""Actors that query a central model, and a learner that corrects for delay, as in IMPALA.

    actor process --observation--> policy: batches of what has arrived \\
                  <--action, probability, version--                     > learner process
                  --unroll of 20 steps--> queue of unrolls              //

The model changes while an unroll is in transit: V-trace weights each step by how likely the current
policy takes the action, compared with the policy that took it. The environment is a corridor with
its goal at the right.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

import reverie

FloatArray = npt.NDArray[np.float32]

ACTORS = 2
UNROLL = 20
LENGTH = 5  # places in the corridor
BATCH = 4
UPDATES = 120
DISCOUNT = 0.95

_ACTOR = """
import sys
import numpy as np
import reverie

address, seed, unroll, length = sys.argv[1], *map(int, sys.argv[2:5])
rng = np.random.default_rng(seed)
place = 0
with reverie.Rpc(timeout_s=30.0) as rpc:
    rpc.connect(address)
    while True:
        try:
            steps = []
            for _ in range(unroll):
                state = np.eye(length, dtype=np.float32)[place]
                p_right = float(rpc.sync("learner", "policy", state))
                action = int(rng.random() < p_right)
                place = max(place - 1, 0) if action == 0 else place + 1
                over = place == length - 1
                chosen = p_right if action else 1 - p_right
                steps.append((state, action, chosen, float(over), float(not over)))
                place = 0 if over else place
            columns = [np.array(column, np.float32) for column in zip(*steps)]
            rpc.sync("learner", "unroll", *columns, np.eye(length, dtype=np.float32)[place])
        except reverie.errors.UnavailableError:
            continue  # a connection was lost: this unroll is, too
        except reverie.errors.DeadlineExceededError:
            break  # the learner is gone
"""


class Model:
    """A table with a logit and a value for each place."""

    def __init__(self) -> None:
        self.logits = np.zeros(LENGTH, np.float32)
        self.values = np.zeros(LENGTH, np.float32)

    def policy(self, states: FloatArray) -> FloatArray:
        """Probabilities of going right: ``[batch, LENGTH]`` to ``[batch]``."""
        p_right: FloatArray = 1 / (1 + np.exp(-states @ self.logits))
        return p_right

    def learn(self, unrolls: list[tuple[FloatArray, ...]]) -> float:
        """Makes one step of V-trace over a batch of unrolls; returns the mean reward per step."""
        states, actions, acted, rewards, goes_on, last = (
            np.stack(column) for column in zip(*unrolls, strict=True)
        )
        values = states @ self.values
        next_values = np.concatenate([values[:, 1:], (last @ self.values)[:, None]], axis=1)
        p_right = self.policy(states)
        chosen = np.where(actions == 1, p_right, 1 - p_right)
        targets, advantages = reverie.rl.v_trace(
            rewards, DISCOUNT * goes_on, values, next_values, chosen / acted, ends=goes_on == 0
        )
        # The gradient of log p(action) with respect to the logit of going right.
        slope = np.where(actions == 1, 1 - p_right, -p_right)
        entropy = -p_right * (1 - p_right) * (states @ self.logits)
        pushes = slope * advantages + 0.01 * entropy
        self.logits += 8.0 * (pushes[..., None] * states).mean((0, 1))
        self.values += 2.0 * ((targets - values)[..., None] * states).mean((0, 1))
        return float(rewards.mean())


def main() -> None:
    """Learns, together with the actors, until they walk straight to the goal."""
    model = Model()
    with reverie.Rpc("learner") as rpc:
        rpc.define("policy", model.policy, batch_size=16, dynamic_batching=True)
        unrolls = rpc.define_queue("unroll")
        address = rpc.listen()
        environment = {"PYTHONPATH": str(Path(reverie.__file__).parents[1])}
        actors = [
            subprocess.Popen(
                [sys.executable, "-c", _ACTOR, address, *map(str, (seed, UNROLL, LENGTH))],
                env=environment,
            )
            for seed in range(ACTORS)
        ]
        rewards = []
        for _ in range(UPDATES):
            batch = []
            for _ in range(BATCH):
                answer, columns, _ = unrolls.get(timeout_s=30.0)
                answer(None)
                batch.append(columns)
            rewards.append(model.learn(batch))
    for actor in actors:
        actor.terminate()
        actor.wait()
    first, last = np.mean(rewards[:10]), np.mean(rewards[-10:])
    best = 1 / (LENGTH - 1)
    print(f"reward a step: {first:.3f} at first, {last:.3f} at last; {best:.3f} is best")
    assert last > 0.7 * best


if __name__ == "__main__":
    main()
