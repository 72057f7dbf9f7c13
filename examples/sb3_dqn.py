"""Stable-Baselines3's DQN with our environments and our replay buffer: two arguments change.

Needs Stable-Baselines3 (``pip install stable-baselines3``); tested with 2.9.2.
"""

import numpy as np
import torch
from stable_baselines3 import DQN

from reverie.contrib import sb3

STEPS = 3_000


def train() -> DQN:
    torch.set_num_threads(1)  # networks as small as this are slower on more threads
    model = DQN(
        "MlpPolicy",
        sb3.VecEnv("CartPole-v1", 4),  # 4 native environments, stepped in this process
        replay_buffer_class=sb3.ReplayBuffer,  # each observation is stored once
        replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99},  # must be the algorithm's gamma
        buffer_size=10_000,
        learning_rate=1e-3,
        learning_starts=500,
        train_freq=4,
        exploration_fraction=0.3,
        seed=1,
    )
    return model.learn(STEPS)


def main() -> None:
    model = train()
    returns = [episode["r"] for episode in model.ep_info_buffer]
    print(f"{len(returns)} episodes; return of the first ten: {np.mean(returns[:10]):.0f},")
    print(f"of the last ten: {np.mean(returns[-10:]):.0f}")
    print(f"{model.replay_buffer.replay}, {model.replay_buffer.replay.memory_bytes:,} bytes")
    model.get_env().close()


if __name__ == "__main__":
    main()
