"""A distributed SAC agent that swings up a pendulum through Reverb's API.

Its two tables are those of appendix A.2 of Cassirer et al. 2021, "Reverb: A Framework For
Experience Replay": the newest parameters, which actors fetch, and experience, whose rate limiter
keeps the ratio of samples to inserts, however fast either side is. Only the networks are ours: with
``import reverb`` it is a program for dm-reverb.

    python distributed_sac.py                           with its own server
    python distributed_sac.py --server localhost:8000   with a server of Reverie or dm-reverb that
                                                        has both tables

Source: Haarnoja et al. 2018, "Soft Actor-Critic". Differs: the actors are threads of this program,
the weight of the entropy is fixed, the networks are small.
"""

import argparse
import threading

import gymnasium
import numpy as np

import reverie.reverb as reverb
from reverie import nn

ACTORS = 2
MIN_SIZE = 500
SAMPLES_PER_INSERT = 32.0
TOLERANCE_RATIO = 0.1
REPLAY_BUFFER_CAPACITY = 50_000
BATCH_SIZE = 64
DISCOUNT = 0.97
REWARD_SCALE = 0.1
ENTROPY_WEIGHT = 0.05
TARGET_RATE = 0.02
STEPS_PER_FETCH = 10  # steps that an actor makes with the same parameters


def variable_container() -> reverb.Table:
    """Holds one item, the learner's newest parameters. Actors wait for the first."""
    return reverb.Table(
        name="VARIABLE_CONTAINER",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.MinSize(1),
        max_size=1,
        max_times_sampled=0,
    )


def experience() -> reverb.Table:
    samples_per_insert_tolerance = TOLERANCE_RATIO * SAMPLES_PER_INSERT
    error_buffer = max(MIN_SIZE * samples_per_insert_tolerance, 2 * SAMPLES_PER_INSERT)
    return reverb.Table(
        name="uniform_table",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
            min_size_to_sample=MIN_SIZE,
            samples_per_insert=SAMPLES_PER_INSERT,
            error_buffer=error_buffer,
        ),
        max_size=REPLAY_BUFFER_CAPACITY,
        max_times_sampled=0,
    )


class Policy:
    """Actions in [-1, 1]: draws from a normal distribution, squashed by tanh."""

    def __init__(self, seed: int) -> None:
        self.network = nn.Mlp((3, 64, 64, 2), seed=seed)
        self._rng = np.random.default_rng(seed)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Actions ``[B, 1]``."""
        return self._draw(self.network(obs))[0]

    def draw(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Actions ``[B, 1]`` and the logarithms of their densities ``[B]``."""
        action, noise, log_scale = self._draw(self.network(obs))
        return action, self._log_density(action, noise, log_scale)

    def gradient(self, obs: np.ndarray, in_action_of: "Critics") -> np.ndarray:
        """The gradient of the mean of ``ENTROPY_WEIGHT * log density - value`` over ``obs``."""
        outputs = self.network.forward(obs)
        action, noise, log_scale = self._draw(outputs)
        value_in_action = in_action_of.gradient(obs, action)
        # The log density of a squashed draw has the derivative 2 a with respect to the draw.
        in_draw = ENTROPY_WEIGHT * 2 * action - value_in_action * (1 - action**2)
        in_log_scale = in_draw * np.exp(log_scale) * noise - ENTROPY_WEIGHT
        in_raw = in_log_scale * 2 * (1 - np.tanh(outputs[:, 1:]) ** 2)
        return self.network.backward(np.hstack([in_draw, in_raw]) / len(obs))

    def _draw(self, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean, raw = outputs[:, :1], outputs[:, 1:]
        log_scale = 2 * np.tanh(raw) - 2
        noise = self._rng.normal(size=mean.shape).astype(np.float32)
        return np.tanh(mean + np.exp(log_scale) * noise), noise, log_scale

    @staticmethod
    def _log_density(action: np.ndarray, noise: np.ndarray, log_scale: np.ndarray) -> np.ndarray:
        normal = -0.5 * noise**2 - log_scale - 0.5 * np.log(2 * np.pi)
        return np.asarray((normal - np.log(1 - action**2 + 1e-6)).sum(axis=1))


class Critics:
    """Two value networks, of which the lower value counts, and their target networks."""

    def __init__(self, seed: int) -> None:
        self._networks = [nn.Mlp((4, 64, 64, 1), seed=seed + i) for i in range(2)]
        self._targets = [network.copy() for network in self._networks]
        self._adams = [nn.Adam(network, learning_rate=1e-3) for network in self._networks]

    def target(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The lower value of the two target networks ``[B]``."""
        pair = np.hstack([obs, action])
        return np.minimum(*(network(pair)[:, 0] for network in self._targets))

    def gradient(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The gradient of the lower value with respect to the action."""
        pair = np.hstack([obs, action])
        values = np.hstack([network.forward(pair) for network in self._networks])
        is_lower = np.eye(2, dtype=np.float32)[values.argmin(axis=1)]
        first, second = (
            network.input_gradient(is_lower[:, i : i + 1])
            for i, network in enumerate(self._networks)
        )
        return (first + second)[:, obs.shape[1] :]

    def step(self, obs: np.ndarray, action: np.ndarray, target: np.ndarray) -> None:
        """Moves both towards the targets ``[B]``, and their target networks towards them."""
        pair = np.hstack([obs, action])
        for network, adam, slow in zip(self._networks, self._adams, self._targets, strict=True):
            error = network.forward(pair)[:, 0] - target
            adam.step(network, network.backward(error[:, None] / len(error)), norm_max=10.0)
            slow.approach(network, TARGET_RATE)


def act(address: str, steps: int, seed: int, scores: list[float]) -> None:
    """Plays with the newest parameters; waits if the learner lags behind."""
    client = reverb.Client(address)
    policy = Policy(seed)
    env = gymnasium.make("Pendulum-v1")
    torque = float(env.action_space.high[0])
    obs, _ = env.reset(seed=seed)
    score = 0.0
    for step in range(steps):
        if step % STEPS_PER_FETCH == 0:
            newest = next(client.sample("VARIABLE_CONTAINER", emit_timesteps=False))
            policy.network.parameters[:] = newest.data[0][0]
        action = policy.act(obs[None])[0]
        next_obs, reward, terminated, truncated, _ = env.step(action * torque)
        transition = (obs, action, np.float32(REWARD_SCALE * float(reward)), next_obs)
        client.insert(transition, {"uniform_table": 1.0})
        obs = next_obs
        score += float(reward)
        if terminated or truncated:  # a pendulum only ends by its time limit
            scores.append(score)
            score = 0.0
            obs, _ = env.reset()


def learn(address: str, steps: int, seed: int) -> None:
    """Draws as many samples as the actors' steps allow, learns, and exports the policy."""
    client = reverb.Client(address)
    policy, critics = Policy(seed), Critics(seed)
    adam = nn.Adam(policy.network, learning_rate=1e-3)
    client.insert([policy.network.parameters], {"VARIABLE_CONTAINER": 1.0})
    # The number of batches that the limiter allows once all steps are inserted.
    for number in range(int(SAMPLES_PER_INSERT * (steps - MIN_SIZE)) // BATCH_SIZE):
        samples = client.sample("uniform_table", BATCH_SIZE)
        columns = zip(*(step.data for (step,) in samples), strict=True)
        obs, action, reward, next_obs = (np.stack(column) for column in columns)
        next_action, log_density = policy.draw(next_obs)
        next_value = critics.target(next_obs, next_action) - ENTROPY_WEIGHT * log_density
        critics.step(obs, action, reward + DISCOUNT * next_value)
        adam.step(policy.network, policy.gradient(obs, critics), norm_max=1.0)
        if number % 10 == 0:
            client.insert([policy.network.parameters], {"VARIABLE_CONTAINER": 1.0})


def run(address: str, steps: int, seed: int) -> None:
    scores: list[float] = []
    actors = [
        threading.Thread(target=act, args=(address, steps // ACTORS, seed + i, scores), daemon=True)
        for i in range(ACTORS)
    ]
    for actor in actors:
        actor.start()
    learn(address, steps // ACTORS * ACTORS, seed)
    for actor in actors:
        actor.join()

    info = reverb.Client(address).server_info()
    assert info["VARIABLE_CONTAINER"].current_size == 1
    limiter = info["uniform_table"].rate_limiter_info
    ratio = limiter.sample_stats.completed / limiter.insert_stats.completed
    print(f"{steps} steps, each sampled {ratio:.1f} times; asked for were {SAMPLES_PER_INSERT}")
    assert 0.8 * SAMPLES_PER_INSERT < ratio <= SAMPLES_PER_INSERT
    first, last = np.mean(scores[:4]), np.mean(scores[-5:])
    print(f"from {first:.0f} to {last:.0f} a swing, {len(scores)} swings")
    assert last > 0.5 * first, "upright all the time is 0"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="address of a server; omitted: one of its own")
    parser.add_argument("--steps", type=int, default=9_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    address, server = options.server, None
    if not address:
        server = reverb.Server([variable_container(), experience()])
        address = f"localhost:{server.port}"
    run(address, options.steps, options.seed)
    if server is not None:
        server.stop()


if __name__ == "__main__":
    main()
