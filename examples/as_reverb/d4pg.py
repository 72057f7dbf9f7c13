"""A D4PG agent, written as in Acme, that swings up a pendulum through Reverb's API.

The table is that of appendix A.1 of Cassirer et al. 2021, "Reverb: A Framework For Experience
Replay". An actor adds 5-step transitions with summed rewards, and a learner samples them: its
critic gives a distribution of returns, and its policy follows the gradient of the mean. Only the
networks are ours: with ``import reverb`` it is a program for dm-reverb.

    python d4pg.py                           with its own server
    python d4pg.py --server localhost:8000   with a server of Reverie or dm-reverb that has the
                                             table "priority_table"

Source: Barth-Maron et al. 2018, "Distributed Distributional Deterministic Policy Gradients".
Differs: one actor, uniform replay, small networks whose targets follow slowly, actions bounded by
"inverting gradients".
"""

import argparse

import gymnasium
import numpy as np

import reverie.reverb as reverb
from reverie import nn

TABLE_NAME = "priority_table"
MAX_REPLAY_SIZE = 50_000
N_STEP = 5
DISCOUNT = 0.97
REWARD_SCALE = 0.1
BATCH_SIZE = 64
RANDOM_STEPS = 600
NOISE = 0.2
TARGET_RATE = 0.02
ATOMS = np.linspace(-50.0, 0.0, 51, dtype=np.float32)  # possible returns; rewards are negative


def table() -> reverb.Table:
    return reverb.Table(
        name=TABLE_NAME,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=MAX_REPLAY_SIZE,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )


class NStepAdder:
    """Inserts ``(observation, action, n-step return, discount, observation after n steps)``."""

    def __init__(self, client: reverb.Client) -> None:
        self._client = client
        self._steps: list[tuple[np.ndarray, np.ndarray, float]] = []

    def add(self, obs: np.ndarray, action: np.ndarray, reward: float, next_obs: np.ndarray) -> None:
        """Adds a step; inserts the transition that ends with it."""
        self._steps.append((obs, action, reward))
        if len(self._steps) < N_STEP:
            return
        total = np.float32(sum(DISCOUNT**i * step[2] for i, step in enumerate(self._steps)))
        first_obs, first_action, _ = self._steps.pop(0)
        step = (first_obs, first_action, total, np.float32(DISCOUNT**N_STEP), next_obs)
        self._client.insert(step, priorities={TABLE_NAME: 1.0})

    def end_episode(self) -> None:
        """Drops the last steps: a time limit ends the episode, so what follows them is unknown."""
        self._steps.clear()


class Actor:
    """Plays one step at a time, with noise, and adds what it observes."""

    def __init__(self, client: reverb.Client, policy: nn.Mlp, seed: int) -> None:
        self._env = gymnasium.make("Pendulum-v1")
        self._torque = float(self._env.action_space.high[0])
        self._adder = NStepAdder(client)
        self._policy = policy
        self._rng = np.random.default_rng(seed)
        self._obs, _ = self._env.reset(seed=seed)
        self._score = 0.0
        self.scores: list[float] = []

    def step(self, is_random: bool) -> None:
        """Plays a step; actions are in [-1, 1]."""
        if is_random:
            action = self._rng.uniform(-1, 1, size=1)
        else:
            noise = self._rng.normal(scale=NOISE, size=1)
            action = (self._policy(self._obs[None])[0] + noise).clip(-1, 1)
        action = action.astype(np.float32)
        obs, reward, terminated, truncated, _ = self._env.step(action * self._torque)
        self._score += float(reward)
        self._adder.add(self._obs, action, REWARD_SCALE * float(reward), obs)
        self._obs = obs
        if terminated or truncated:
            self._adder.end_episode()
            self.scores.append(self._score)
            self._score = 0.0
            self._obs, _ = self._env.reset()


class Learner:
    """Moves the networks towards targets from the samples that it draws."""

    def __init__(self, client: reverb.Client, policy: nn.Mlp, seed: int) -> None:
        self._client = client
        self._policy = policy
        self._critic = nn.Mlp((4, 64, 64, len(ATOMS)), seed=seed + 1)
        self._target_policy, self._target_critic = policy.copy(), self._critic.copy()
        self._policy_adam = nn.Adam(policy, learning_rate=1e-3)
        self._critic_adam = nn.Adam(self._critic, learning_rate=1e-3)

    def step(self) -> None:
        """Samples a batch and learns from it."""
        samples = self._client.sample(TABLE_NAME, BATCH_SIZE)
        columns = zip(*(step.data for (step,) in samples), strict=True)
        obs, action, reward, discount, next_obs = (np.stack(column) for column in columns)

        # The critic: cross-entropy with the target's distribution, shifted and projected.
        next_pair = np.hstack([next_obs, self._target_policy(next_obs).clip(-1, 1)])
        target = project(
            softmax(self._target_critic(next_pair)), reward[:, None] + discount[:, None] * ATOMS
        )
        logits = self._critic.forward(np.hstack([obs, action]))
        gradient = self._critic.backward((softmax(logits) - target) / BATCH_SIZE)
        self._critic_adam.step(self._critic, gradient, norm_max=10.0)

        # The policy: along the gradient of the mean return with respect to the action. The gradient
        # shrinks towards the bound that it points to and turns round beyond it, so that no action
        # stays at a bound, as those of a saturated tanh do (Hausknecht & Stone 2016).
        action = self._policy.forward(obs)
        probability = softmax(self._critic.forward(np.hstack([obs, action])))
        mean = probability @ ATOMS
        up = probability * (ATOMS - mean[:, None]) / BATCH_SIZE  # d mean / d logits
        in_action = self._critic.input_gradient(up)[:, obs.shape[1] :]
        room = np.where(in_action > 0, 1 - action, 1 + action) / 2
        policy_gradient = self._policy.backward(-in_action * room)
        self._policy_adam.step(self._policy, policy_gradient, norm_max=1.0)

        self._target_critic.approach(self._critic, TARGET_RATE)
        self._target_policy.approach(self._policy, TARGET_RATE)


def softmax(logits: np.ndarray) -> np.ndarray:
    grown: np.ndarray = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(grown / grown.sum(axis=1, keepdims=True))


def project(probability: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Projects distributions over ``values`` ``[B, A]`` onto the atoms.

    Each value splits its probability between its two neighbours (Bellemare et al. 2017).
    """
    spacing = ATOMS[1] - ATOMS[0]
    place = (values.clip(ATOMS[0], ATOMS[-1]) - ATOMS[0]) / spacing
    below = np.minimum(place.astype(np.int64), len(ATOMS) - 2)
    above_part = probability * (place - below)
    projected = np.zeros_like(probability)
    rows = np.arange(len(probability))[:, None]
    np.add.at(projected, (rows, below), probability - above_part)
    np.add.at(projected, (rows, below + 1), above_part)
    return projected


def learn(client: reverb.Client, steps: int, seed: int) -> list[float]:
    """Plays and learns; returns the scores of the episodes."""
    policy = nn.Mlp((3, 64, 64, 1), seed=seed)
    actor, learner = Actor(client, policy, seed), Learner(client, policy, seed)
    for step in range(steps):
        actor.step(is_random=step < RANDOM_STEPS)
        if step >= RANDOM_STEPS:
            learner.step()
        if step % 1000 == 999:
            print(f"  {step + 1} steps: {np.mean(actor.scores[-5:]):.0f} a swing")
    return actor.scores


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="address of a server; omitted: one of its own")
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    address, server = options.server, None
    if not address:
        server = reverb.Server([table()])
        address = f"localhost:{server.port}"
    scores = learn(reverb.Client(address), options.steps, options.seed)
    first, last = np.mean(scores[:3]), np.mean(scores[-5:])
    print(f"from {first:.0f} to {last:.0f} a swing, {len(scores)} swings")
    assert last > 0.5 * first, "upright all the time is 0"
    if server is not None:
        server.stop()


if __name__ == "__main__":
    main()
