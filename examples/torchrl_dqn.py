"""TorchRL's DQN loss with our replay buffer, with priorities by ticket.

Needs TorchRL (``pip install torchrl gymnasium``); tested with 0.14.1.
"""

import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.modules import MLP, EGreedyModule, QValueModule
from torchrl.objectives import DQNLoss, SoftUpdate

from reverie.contrib.torchrl import ReplayBuffer

ROLLOUTS = 60


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    env = TransformedEnv(GymEnv("CartPole-v1", categorical_action_encoding=True), StepCounter())
    env.set_seed(1)
    network = MLP(in_features=4, out_features=2, num_cells=[64, 64])
    values = TensorDictModule(network, in_keys=["observation"], out_keys=["action_value"])
    policy = TensorDictSequential(values, QValueModule(spec=env.action_spec))
    explore = EGreedyModule(env.action_spec, eps_init=1.0, eps_end=0.05, annealing_num_steps=1_000)
    actor = TensorDictSequential(policy, explore)
    loss_module = DQNLoss(policy, action_space=env.action_spec, delay_value=True)
    target = SoftUpdate(loss_module, eps=0.99)
    optimizer = torch.optim.Adam(loss_module.parameters(), 1e-3)

    buffer = ReplayBuffer(10_000, batch_size=64, prioritized=True, seed=1)
    returns = []
    for _ in range(ROLLOUTS):
        with torch.no_grad():
            episode = env.rollout(200, actor)
        explore.step(len(episode))
        returns.append(len(episode))
        buffer.extend(episode.select("observation", "action", "next"))
        for _ in range(len(episode) // 3):
            batch = buffer.sample()
            loss = loss_module(batch)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            target.step()
            buffer.update_tensordict_priority(batch)
    print(f"{sum(returns)} steps; {buffer.replay}")
    print(f"steps of the first ten episodes: {returns[:10]}, of the last ten: {returns[-10:]}")


if __name__ == "__main__":
    main()
