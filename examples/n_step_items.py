"""Transitions over n steps, as D4PG learns from: the actor sums their rewards.

    row               t - 3     t - 2     t - 1       t
    obs               [obs]                        [next_obs]
    action           [action]
    n_step_reward                                  [r + d r' + d d' r'']
    n_step_discount                                [d d' d'']

Row t holds the sum over the n steps that end there, so an item is five rows of four columns, and
each observation is stored once, although it begins one transition and ends another. The last
transitions of an episode are shorter, which is no special case for the learner:

    target = n_step_reward + n_step_discount * value(next_obs)

Source: Barth-Maron et al. 2018, "Distributed Distributional Deterministic Policy Gradients".
"""

from collections import deque

import numpy as np

import reverie

N = 3
GAMMA = 0.9
EPISODES = 20
SCALAR = reverie.TensorSpec((), np.float32)
OBS = reverie.TensorSpec((2,), np.float32)
SIGNATURE = {
    "obs": OBS,
    "action": SCALAR,
    "n_step_reward": SCALAR,
    "n_step_discount": SCALAR,
    "next_obs": OBS,
}


class NStepActor:
    """Writes transitions over up to ``N`` steps."""

    def __init__(self, writer: reverie.TrajectoryWriter) -> None:
        self._writer = writer
        self._window: deque[tuple[float, float]] = deque(maxlen=N)  # rewards and discounts

    def begin(self, obs: np.ndarray) -> None:
        """Starts an episode with its first observation."""
        self._window.clear()
        self._obs = obs

    def step(self, action: float, reward: float, discount: float, next_obs: np.ndarray) -> None:
        """Writes one step; ``discount`` is 0 if the episode terminated, otherwise gamma."""
        self._write(action)
        self._window.append((reward, discount))
        self._obs = next_obs

    def end(self) -> None:
        """Ends the episode; its last observation also ends the transitions of the last steps."""
        self._write(action=0.0)
        while len(self._window) > 1:
            self._window.popleft()
            self._write(action=0.0)
        self._writer.end_episode()

    def _write(self, action: float) -> None:
        n_step_reward, n_step_discount = 0.0, 1.0
        for reward, discount in self._window:
            n_step_reward += n_step_discount * reward
            n_step_discount *= discount
        self._writer.append(
            {
                "obs": self._obs,
                "action": np.float32(action),
                "n_step_reward": np.float32(n_step_reward),
                "n_step_discount": np.float32(n_step_discount),
            }
        )
        if len(self._window) < N and self._writer.episode_steps <= N:
            return
        row = self._writer.history
        self._writer.create_item(
            "replay",
            priority=1.0,
            trajectory={
                "obs": row["obs"][-N - 1],
                "action": row["action"][-N - 1],
                "n_step_reward": row["n_step_reward"][-1],
                "n_step_discount": row["n_step_discount"][-1],
                "next_obs": row["obs"][-1],
            },
        )


def run(client: reverie.Client) -> None:
    """Writes episodes of 10 steps; step t has reward t; every other episode is truncated."""
    with client.trajectory_writer(num_keep_alive_refs=N + 1) as writer:
        actor = NStepActor(writer)
        for episode in range(EPISODES):
            actor.begin(np.array([episode, 0], np.float32))
            for t in range(10):
                terminated = t == 9 and episode % 2 == 0
                next_obs = np.array([episode, t + 1], np.float32)
                actor.step(float(t), float(t), 0.0 if terminated else GAMMA, next_obs)
            actor.end()

    batch = client.sample_batch("replay", 512)
    data = batch.data
    start, end = data["obs"][:, 1], data["next_obs"][:, 1]
    assert (data["action"] == start).all()
    # The expected values: from each start 3 steps on, or to the end of the episode.
    np.testing.assert_array_equal(end, np.minimum(start + N, 10))
    for b in range(len(start)):
        rewards = np.arange(start[b], end[b])
        expected = (GAMMA ** np.arange(len(rewards)) * rewards).sum()
        np.testing.assert_allclose(data["n_step_reward"][b], expected, rtol=1e-5)
        over = end[b] == 10 and data["obs"][b, 0] % 2 == 0
        discount = 0.0 if over else GAMMA ** len(rewards)
        np.testing.assert_allclose(data["n_step_discount"][b], discount, rtol=1e-5)
    values = 100.0  # a critic's value of next_obs
    targets = data["n_step_reward"] + data["n_step_discount"] * values
    size = client.server_info()["replay"].current_size
    print(f"  {size} transitions, one for each step; some targets: {targets[:4].round(1)}")
    assert size == 10 * EPISODES


def table() -> reverie.Table:
    return reverie.Table(
        "replay",
        sampler=reverie.selectors.Uniform(seed=3),
        remover=reverie.selectors.Fifo(),
        max_size=1_000_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature=SIGNATURE,
    )


def main() -> None:
    print("embedded:")
    with reverie.Store([table()]) as store:
        run(store.client())
    print("served:")
    with reverie.Server([table()]) as server:
        run(server.localhost_client())


if __name__ == "__main__":
    main()
