"""A DQN agent, written as in Acme, that learns CartPole through Reverb's API.

An actor adds 3-step transitions to a prioritised table; a learner samples them, updates a network
and sends the new priorities back. Only the network is ours: with ``import reverb`` it is a program
for dm-reverb.

    python dqn.py                           with its own server
    python dqn.py --server localhost:8000   with a server of Reverie or dm-reverb that has the
                                            table "priority_table"

Source: Hessel et al. 2018, "Rainbow", without distributions, noise and dueling heads. Differs: the
target network is copied every 200 steps of a small network; windows that are cut by the end of an
episode are filled with steps whose reward and discount are 0.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np

import reverie.reverb as reverb
from reverie import nn

TABLE = "priority_table"
N_STEP = 3
DISCOUNT = 0.99
BATCH_SIZE = 64
TARGET_PERIOD = 200
EXPLORATION_STEPS = 3000


def table() -> reverb.Table:
    return reverb.Table(
        name=TABLE,
        sampler=reverb.selectors.Prioritized(0.6),
        remover=reverb.selectors.Fifo(),
        max_size=20_000,
        rate_limiter=reverb.rate_limiters.MinSize(500),
    )


class Actor:
    """Plays one step at a time, and adds what it observes."""

    def __init__(self, client: reverb.Client, network: nn.Mlp, seed: int) -> None:
        self._env = gymnasium.make("CartPole-v1")
        self._writer = client.trajectory_writer(num_keep_alive_refs=N_STEP + 1)
        self._network = network
        self._rng = np.random.default_rng(seed)
        self._obs, _ = self._env.reset(seed=seed)
        self._score = 0.0
        self.scores: list[float] = []

    def step(self, epsilon: float) -> None:
        """Plays a step, at random with probability ``epsilon``."""
        if self._rng.random() < epsilon:
            action = int(self._rng.integers(2))
        else:
            action = int(self._network(self._obs[None])[0].argmax())
        obs, reward, terminated, truncated, _ = self._env.step(action)
        self._score += float(reward)
        self._add(self._obs, action, float(reward), 0.0 if terminated else DISCOUNT)
        self._obs = obs
        if not (terminated or truncated):
            return
        for _ in range(N_STEP if terminated else 1):  # what follows a time limit is unknown
            self._add(obs, 0, 0.0, 0.0)
        self._writer.end_episode()
        self.scores.append(self._score)
        self._score = 0.0
        self._obs, _ = self._env.reset()

    def _add(self, obs: np.ndarray, action: int, reward: float, discount: float) -> None:
        step = (np.float32(obs), np.int32(action), np.float32(reward), np.float32(discount))
        self._writer.append(step)
        if self._writer.episode_steps <= N_STEP:
            return
        history: Any = self._writer.history
        observations, actions, rewards, discounts = history
        window = slice(-N_STEP - 1, -1)
        self._writer.create_item(
            TABLE,
            priority=1.0,
            trajectory=(
                observations[-N_STEP - 1],
                actions[-N_STEP - 1],
                rewards[window],
                discounts[window],
                observations[-1],
            ),
        )
        self._writer.flush(block_until_num_items=50)


class Learner:
    """Moves the network towards targets from the samples that it draws."""

    def __init__(self, client: reverb.Client, network: nn.Mlp) -> None:
        self._client = client
        self._network = network
        self._target = network.copy()
        self._adam = nn.Adam(network, learning_rate=1e-3)

    def step(self) -> None:
        """Samples a batch and learns from it."""
        samples = list(self._client.sample(TABLE, BATCH_SIZE, emit_timesteps=False))
        columns = zip(*(sample.data for sample in samples), strict=True)
        obs, action, reward, discount, last_obs = (np.stack(column) for column in columns)
        rows = np.arange(BATCH_SIZE)
        best = self._network(last_obs).argmax(axis=1)
        target = self._target(last_obs)[rows, best]
        for i in reversed(range(N_STEP)):
            target = reward[:, i] + discount[:, i] * target
        values = self._network.forward(obs)
        error = values[rows, action] - target
        # Importance sampling: items that are drawn more often count less.
        weight = np.array([sample.info.probability for sample in samples]) ** -0.4
        gradient = np.zeros_like(values)
        gradient[rows, action] = np.clip(error, -1, 1) * weight / weight.max() / BATCH_SIZE
        self._adam.step(self._network, self._network.backward(gradient), norm_max=10.0)
        if self._adam.step_count % TARGET_PERIOD == 0:
            self._target = self._network.copy()
        keys = [sample.info.key for sample in samples]
        priorities = dict(zip(keys, (np.abs(error) + 1e-3).tolist(), strict=True))
        self._client.mutate_priorities(TABLE, updates=priorities)


def learn(client: reverb.Client, steps: int, seed: int) -> list[float]:
    """Plays and learns; returns the scores of the episodes."""
    network = nn.Mlp((4, 64, 64, 2), seed=seed)
    actor, learner = Actor(client, network, seed), Learner(client, network)
    for step in range(steps):
        actor.step(epsilon=max(0.02, 1.0 - step / EXPLORATION_STEPS))
        if step >= 1000 and step % 2 == 0:
            learner.step()
        if step % 2000 == 1999:
            print(f"  {step + 1} steps: {np.mean(actor.scores[-10:]):.0f} a game")
    return actor.scores


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="address of a server; omitted: one of its own")
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    address, server = options.server, None
    if not address:
        server = reverb.Server([table()])
        address = f"localhost:{server.port}"
    scores = learn(reverb.Client(address), options.steps, options.seed)
    first, last = np.mean(scores[:20]), np.mean(scores[-10:])
    print(f"from {first:.0f} to {last:.0f} a game, {len(scores)} games")
    assert last > 3 * first
    if server is not None:
        server.stop()


if __name__ == "__main__":
    main()
