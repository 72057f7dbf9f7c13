"""RLlib's DQN on CartPole: a training step with its prioritised episode buffer, and with ours.

    python benchmarks/rllib_training.py [--steps 200] [--rounds 5]

Needs ``ray[rllib]`` and torch. One algorithm of each kind runs in this process (no remote runners),
with batches of 64 and one environment step per gradient step, as RLlib counts them. Both make
``training_step()`` calls by turns; printed are the median milliseconds per step over the rounds, by
the wall clock and by the processor time of the process, and the median ratio within a round.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from typing import Any

import numpy as np

KINDS = {
    "RLlib": "PrioritizedEpisodeReplayBuffer",
    "reverie": "reverie.contrib.rllib.PrioritizedEpisodeReplayBuffer",
}
BATCH = 64


def algorithm(kind: str) -> Any:  # noqa: ANN401
    """DQN with one of the buffers."""
    from ray.rllib.algorithms.dqn import DQNConfig

    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .learners(num_learners=0, num_gpus_per_learner=0)
        .training(
            train_batch_size_per_learner=BATCH,
            num_steps_sampled_before_learning_starts=1_000,
            replay_buffer_config={
                "type": KINDS[kind],
                "capacity": 50_000,
                "alpha": 0.6,
                "beta": 0.4,
            },
        )
        .debugging(seed=1, log_level="ERROR")
        .reporting(min_time_s_per_iteration=0)
    )
    return config.build_algo()


def steps_ms(algo: Any, count: int) -> tuple[float, float]:  # noqa: ANN401
    """Milliseconds per training step: by the wall clock, and of processor time."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        algo.training_step()
    spent, spent_cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    return spent / count * 1e3, spent_cpu / count * 1e3


def main() -> None:
    """Measures both by turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(1)
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    algos = {kind: algorithm(kind) for kind in KINDS}
    for algo in algos.values():
        while algo.local_replay_buffer.get_num_timesteps() < 2_000:
            algo.training_step()
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for round_index in range(arguments.rounds):
        order = list(KINDS) if round_index % 2 == 0 else list(KINDS)[::-1]
        for kind in order:
            found[kind].append(steps_ms(algos[kind], arguments.steps))
    for kind, times in found.items():
        clock, cpu = np.median(times, axis=0)
        print(f"{kind:8s} {clock:6.2f} ms a training step by the clock, {cpu:6.2f} of processor")
    ratios = np.array(found["RLlib"]) / np.array(found["reverie"])
    for name, column in zip(("the clock", "processor time"), ratios.T, strict=True):
        low, middle, high = column.min(), np.median(column), column.max()
        print(f"speed by {name}: {middle:.2f} x ({low:.2f} to {high:.2f})")
    ray.shutdown()


if __name__ == "__main__":
    main()
