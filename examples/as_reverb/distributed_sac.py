"""The two tables of a distributed SAC agent: the newest parameters, and paced experience.

The tables are those of appendix A.2 of Cassirer et al. 2021, "Reverb: A Framework For Experience
Replay", with the rate limiter that holds the ratio of samples to inserts.
"""

import threading

import numpy as np

import reverie as reverb

MIN_SIZE = 10
SAMPLES_PER_INSERT = 4.0
TOLERANCE_RATIO = 0.1
REPLAY_BUFFER_CAPACITY = 1000
STEPS = 500
SIGNATURE = {"observation": reverb.TensorSpec((None, 3), np.float32)}


def variable_container() -> reverb.Table:
    """One item: what the learner exported last. Actors wait for the first."""
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
        signature=SIGNATURE,
    )


def act(client: reverb.Client) -> None:
    """Steps, each with the newest parameters; waits where the learner lags behind."""
    for step in range(STEPS):
        (parameters,) = next(client.sample("VARIABLE_CONTAINER", emit_timesteps=False)).data
        assert parameters.shape == (1, 8)
        client.insert({"observation": np.full(3, step, np.float32)}, {"uniform_table": 1.0})


def learn(client: reverb.Client) -> None:
    """As many samples as the actor's steps allow; exports parameters on the way."""
    client.insert([np.zeros(8, np.float32)], {"VARIABLE_CONTAINER": 1.0})
    # What the limiter lets through once all steps are in.
    most = int(SAMPLES_PER_INSERT * (STEPS - MIN_SIZE))
    for number, sample in enumerate(
        client.sample("uniform_table", num_samples=most, emit_timesteps=False)
    ):
        assert sample.data[0].shape == (1, 3)
        if number % 50 == 0:
            client.insert([np.full(8, number, np.float32)], {"VARIABLE_CONTAINER": 1.0})


def run(actors_client: reverb.Client, learners_client: reverb.Client) -> None:
    actor = threading.Thread(target=act, args=(actors_client,), daemon=True)
    actor.start()
    learn(learners_client)
    actor.join()
    info = learners_client.server_info()
    assert info["VARIABLE_CONTAINER"].current_size == 1
    limiter = info["uniform_table"].rate_limiter_info
    ratio = limiter.sample_stats.completed / limiter.insert_stats.completed
    print(f"  {STEPS} steps, each sampled {ratio:.2f} times; asked for were {SAMPLES_PER_INSERT}")
    assert 0.9 * SAMPLES_PER_INSERT < ratio <= SAMPLES_PER_INSERT


def main() -> None:
    print("embedded:")
    with reverb.Store([variable_container(), experience()]) as store:
        run(store.client(), store.client())
    print("served:")
    server = reverb.Server([variable_container(), experience()])
    address = f"localhost:{server.port}"
    run(reverb.Client(address), reverb.Client(address))
    server.stop()


if __name__ == "__main__":
    main()
