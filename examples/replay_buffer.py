"""A deep Q-network with a prioritised replay buffer, in one file.

Eight CartPoles are stepped at once. Each call of ``add`` stores a step of all of them, each call of
``sample`` draws a batch of 3-step transitions with importance weights, and the TD errors become
priorities. Gymnasium resets an environment in the step after its episode ended: that step belongs
to no episode, so ``mask`` excludes it.

Source: Schaul et al. 2016, "Prioritized Experience Replay"; van Hasselt et al. 2016 for the double
estimate.
"""

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import reverie

ENVS = 8
STEPS = 2_000  # of all environments together
BATCH = 128
GAMMA = 0.99


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
    )


def td_error(online: nn.Module, target: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The differences of the online network's values from their targets, ``[B]``."""
    with torch.no_grad():
        best = online(batch["next_obs"]).argmax(1, keepdim=True)
        value = target(batch["next_obs"]).gather(1, best).squeeze(1)
        wanted = batch["reward"] + batch["discount"] * value
    return wanted - online(batch["obs"]).gather(1, batch["action"].unsqueeze(1)).squeeze(1)


def act(
    online: nn.Module, obs: npt.NDArray[np.float32], chance: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    with torch.no_grad():
        best = online(torch.from_numpy(obs)).argmax(1).numpy()
    return np.where(rng.random(ENVS) < chance, rng.integers(0, 2, ENVS), best)


def train(seed: int) -> list[float]:
    """Trains; returns the return of each episode, in the order in which they ended."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    torch.set_num_threads(1)
    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)

    envs = gymnasium.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync")
    buffer = reverie.ReplayBuffer(
        20_000,
        num_envs=ENVS,
        n_step=3,
        gamma=GAMMA,
        prioritized=True,
        beta=lambda updates: min(1.0, 0.4 + updates / 10_000),
        seed=seed,
    )
    returns: list[float] = []
    so_far = np.zeros(ENVS)
    obs, _ = envs.reset(seed=seed)
    is_reset = np.zeros(ENVS, bool)
    for step in range(STEPS):
        action = act(online, obs, max(0.02, 1 - step / 500), rng)
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        buffer.add(obs, action, reward, next_obs, terminated, truncated, mask=~is_reset)
        over = (terminated | truncated) & ~is_reset
        so_far = np.where(is_reset, 0, so_far + reward)
        returns += so_far[over].tolist()
        obs, is_reset = next_obs, over

        if len(buffer) < 1_000:
            continue
        for _ in range(2):
            batch = buffer.sample(BATCH)
            tensors = {name: torch.from_numpy(column) for name, column in batch.items()}
            error = td_error(online, target, tensors)
            loss = (
                tensors["weights"]
                * nn.functional.huber_loss(error, torch.zeros(BATCH), reduction="none")
            ).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            buffer.update_priorities(batch["tickets"], error.abs().detach().numpy() + 1e-3)
        if step % 50 == 0:
            target.load_state_dict(online.state_dict())
    envs.close()
    return returns


def main() -> None:
    returns = train(seed=1)
    first, last = np.mean(returns[:20]), np.mean(returns[-20:])
    print(f"{len(returns)} episodes; mean return of the first 20: {first:.0f}, last 20: {last:.0f}")
    assert last > 2 * first


if __name__ == "__main__":
    main()
