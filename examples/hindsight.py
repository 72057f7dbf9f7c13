"""Hindsight replay: flipping bits until they equal a goal, without rewards that lead there.

The game of Andrychowicz et al. 2017, section 3.1: n bits, of which an action flips one, and every
step costs 1 until the bits equal the goal. With 12 bits, random play reaches a goal in one game of
hundreds. But what a game reached would have been a success with another goal: the buffer draws
transitions with such goals, and a network learns from these.
"""

import argparse
from typing import Any

import numpy as np

import reverie

BITS, GAMES, STEPS = 12, 16, 12
GAMMA = 0.95


def reward(achieved: np.ndarray, desired: np.ndarray, info: dict[str, Any]) -> np.ndarray:  # noqa: ARG001
    """0 where the goal is reached, otherwise -1; ``[K, BITS]`` to ``[K]``."""
    return np.where((achieved == desired).all(axis=-1), 0.0, -1.0)


def observed(bits: np.ndarray, goal: np.ndarray) -> dict[str, Any]:
    return {"achieved_goal": bits.copy(), "desired_goal": goal}


def inputs(obs: dict[str, Any]) -> np.ndarray:
    """The network's inputs, ``[B, 2 * BITS]``."""
    return np.hstack([obs["achieved_goal"], obs["desired_goal"]]) * 2 - 1


class Learner:
    """Double Q-learning with a target network."""

    def __init__(self, seed: int) -> None:
        widths = (2 * BITS, 128, BITS)
        self.net = reverie.nn.Mlp(widths, seed=seed)
        self.target = reverie.nn.Mlp(widths, seed=seed)
        self.adam = reverie.nn.Adam(self.net, learning_rate=1e-3)

    def update(self, batch: dict[str, Any]) -> None:
        """One step of Adam on a batch of the buffer."""
        rows = np.arange(len(batch["reward"]))
        then = inputs(batch["next_obs"])
        best = self.net.forward(then).argmax(axis=1)
        # A game does not end at its goal, but no further reward can be gained there.
        going_on = batch["discount"] * (batch["reward"] < 0)
        wanted = batch["reward"] + going_on * self.target.forward(then)[rows, best]
        values = self.net.forward(inputs(batch["obs"]))
        gradient = np.zeros_like(values)
        taken = batch["action"]
        gradient[rows, taken] = np.clip(values[rows, taken] - wanted, -1, 1) / len(rows)
        self.adam.step(self.net, self.net.backward(gradient))

    def refresh_target(self) -> None:
        """Copies the online network to the target network."""
        self.target.parameters[:] = self.net.parameters


def play(
    learner: Learner, rng: np.random.Generator, epsilon: float, buffer: reverie.ReplayBuffer | None
) -> float:
    """Plays GAMES games in parallel; returns the share of goals that were reached."""
    bits = rng.integers(0, 2, (GAMES, BITS)).astype(np.float32)
    goal = rng.integers(0, 2, (GAMES, BITS)).astype(np.float32)
    for step in range(STEPS):
        obs = observed(bits, goal)
        action = learner.net.forward(inputs(obs)).argmax(axis=1)
        is_random = rng.random(GAMES) < epsilon
        action[is_random] = rng.integers(0, BITS, is_random.sum())
        if buffer is None:  # in an evaluation a game ends at its goal
            action_rows = np.flatnonzero(reward(bits, goal, {}) < 0)
        else:
            action_rows = np.arange(GAMES)
        bits[action_rows, action[action_rows]] = 1 - bits[action_rows, action[action_rows]]
        if buffer is not None:
            over = np.full(GAMES, step == STEPS - 1)
            none = np.zeros(GAMES, bool)
            buffer.add(obs, action, reward(bits, goal, {}), observed(bits, goal), none, over)
    return float((reward(bits, goal, {}) == 0).mean())


def train(hindsight: reverie.Hindsight | None, rounds: int, seed: int = 1) -> float:
    """Trains; returns the share of goals that are reached at the end."""
    rng = np.random.default_rng(seed)
    learner = Learner(seed)
    buffer = reverie.ReplayBuffer(50_000, GAMES, gamma=GAMMA, hindsight=hindsight, seed=seed)
    for index in range(rounds):
        play(learner, rng, epsilon=0.2, buffer=buffer)
        for _ in range(20):
            learner.update(buffer.sample(128))
        if index % 5 == 0:
            learner.refresh_target()
    return float(np.mean([play(learner, rng, epsilon=0.0, buffer=None) for _ in range(20)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=250)
    rounds = parser.parse_args().rounds
    for name, hindsight in (
        ("goals as they were given", None),
        ("with hindsight", reverie.Hindsight(reward, strategy="future", goals=4)),
    ):
        print(f"{name}: {train(hindsight, rounds):.0%} of the goals are reached")


if __name__ == "__main__":
    main()
