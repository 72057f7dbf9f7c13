"""A briefly trained agent for Atari games, to get frames of play that is not random.

Double Q-learning on the 128 bytes of the console's memory, which takes a minute where images would
take hours: prioritised 3-step transitions in a ``reverie.ReplayBuffer``, and a gradient step every
other action. Its purpose is its frames, not its scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import reverie
from reverie.demo.double_dqn import DoubleDqn

Memory = npt.NDArray[np.uint8]

_BATCH = 64
_WARM_UP = 2_000
_EPSILON_LAST = 0.05


@dataclass(frozen=True)
class Agent:
    """The trained network, and the scores of its training."""

    learner: DoubleDqn
    first_return: float
    """Mean return of the first tenth of the episodes, which are nearly random."""
    last_return: float
    """Mean return of the last tenth."""

    def act(self, memory: Memory) -> int:
        """The index of the action with the highest value."""
        return self.learner.act(_observed(memory))


def _observed(memory: Memory) -> npt.NDArray[np.float32]:
    return memory.astype(np.float32) * np.float32(1 / 128) - np.float32(1)


def train(game: str, steps: int, seed: int = 7) -> Agent:
    """Plays ``steps`` actions of four frames each, and learns meanwhile."""
    import ale_py
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.25)
    ale.loadROM(roms.get_rom_path(game))
    actions = ale.getMinimalActionSet()
    rng = np.random.default_rng(seed)
    learner = DoubleDqn((128, 256, 128, len(actions)), seed)
    buffer = reverie.ReplayBuffer(steps, n_step=3, gamma=0.99, prioritized=True, seed=seed)
    returns = [0.0]
    obs = _observed(ale.getRAM())
    for step in range(steps):
        epsilon = max(_EPSILON_LAST, 1 - step / (0.3 * steps))
        index = int(rng.integers(len(actions))) if rng.random() < epsilon else learner.act(obs)
        lives = ale.lives()
        reward = sum(ale.act(actions[index]) for _ in range(4))
        over = bool(ale.game_over())
        next_obs = _observed(ale.getRAM())
        # For the learner an episode is one life.
        buffer.add(
            obs,
            np.int64(index),
            np.float32(np.sign(reward)),
            next_obs,
            terminated=over or ale.lives() < lives,
            truncated=False,
        )
        obs = next_obs
        returns[-1] += reward
        if over:
            ale.reset_game()
            obs = _observed(ale.getRAM())
            returns.append(0.0)
        if step >= _WARM_UP and step % 2 == 0:
            batch = buffer.sample(_BATCH)
            windows = {
                "obs": batch["obs"],
                "action": batch["action"],
                "reward": batch["reward"][:, None],
                "discount": batch["discount"][:, None],
                "last_obs": batch["next_obs"],
            }
            errors, _ = learner.learn(windows, batch["weights"], learning_rate=5e-4)
            buffer.update_priorities(batch["tickets"], np.abs(errors) + 0.01)
    whole = returns[:-1] or returns
    tenth = max(1, len(whole) // 10)
    return Agent(learner, float(np.mean(whole[:tenth])), float(np.mean(whole[-tenth:])))
