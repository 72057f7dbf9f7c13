"""Tianshou's DQN with our environments and our prioritised replay buffer.

Needs Tianshou (``pip install tianshou``); tested with 2.0.1.
"""

import numpy as np
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

from reverie.contrib import tianshou

ENVS, STEPS, N_STEP, GAMMA = 4, 5_000, 3, 0.99


def main() -> None:
    torch.set_num_threads(1)  # networks as small as this are slower on more threads
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - Tianshou's exploration draws from it
    envs = tianshou.VectorEnv("CartPole-v1", ENVS)  # native environments, in this process
    envs.seed(1)
    space, actions = envs.observation_space[0], envs.action_space[0]
    network = Net(state_shape=space.shape, action_shape=actions.n, hidden_sizes=[64, 64])
    policy = DiscreteQLearningPolicy(model=network, action_space=actions, eps_training=0.2)
    algorithm = DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=GAMMA,
        n_step_return_horizon=N_STEP,
        target_update_freq=100,
    )
    # The buffer computes n-step returns, so it needs the algorithm's n and gamma.
    buffer = tianshou.PrioritizedVectorReplayBuffer(
        20_000, ENVS, alpha=0.6, beta=0.4, n_step=N_STEP, gamma=GAMMA
    )
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    first = collector.collect(n_step=512, random=True)
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=STEPS,
            collection_step_num_env_steps=2 * ENVS,
            update_step_num_gradient_steps_per_sample=0.25,
            batch_size=64,
            test_step_num_episodes=0,
            show_progress=False,
            verbose=False,
        )
    )
    policy.eps_inference = 0.05
    tester = Collector(algorithm, tianshou.VectorEnv("CartPole-v1", ENVS), exploration_noise=True)
    tester.reset()
    last = tester.collect(n_episode=8)
    print(f"{collector.collect_step} steps; {buffer.replay}")
    print(f"return by chance: {first.returns.mean():.0f}")
    print(f"of 8 episodes after the training: {last.returns.mean():.0f}")
    envs.close()


if __name__ == "__main__":
    main()
