"""How well a PyTorch learner is fed: gradient steps per second, and the share of time it waits.

    PYTHONPATH=python PYTHON benchmarks/torch_learner.py [--device cuda:0] [--seconds 10]
        [--batch 256] [--envs 16] [--algorithm ddqn] [--env LunarLander-v3] [--hidden 256]

One thread acts, one draws batches and sends them to the device, one learns.
"""

from __future__ import annotations

import argparse

from reverie.agents import TrainSettings
from reverie.agents.torch_training import TorchTrainer

WARMUP = 2_000


def main() -> None:
    """Prints one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--algorithm", default="ddqn")
    parser.add_argument("--env", default="LunarLander-v3")
    parser.add_argument("--hidden", type=int, default=256)
    given = parser.parse_args()
    settings = TrainSettings(
        seed=1,
        steps=10**9,
        warmup_steps=WARMUP,
        batch_size=given.batch,
        actors=1,
        envs_per_actor=given.envs,
        hidden=(given.hidden, given.hidden),
    )
    with TorchTrainer(given.algorithm, given.env, settings, device=given.device) as trainer:
        trainer.start()
        while trainer.progress().batches < 100:
            trainer.wait(0.01)
        begin = trainer.progress()
        trainer.wait(given.seconds)
        end = trainer.progress()
    elapsed_s = end.elapsed_s - begin.elapsed_s
    idle = (end.learners_waited_s - begin.learners_waited_s) / elapsed_s
    actor_waits = (end.actors_waited_s - begin.actors_waited_s) / elapsed_s
    print(
        f"{given.algorithm}, {given.env}, batch {given.batch}, {given.envs} environments, "
        f"{given.device}: {(end.batches - begin.batches) / elapsed_s:,.0f} gradient steps/s, "
        f"{(end.steps - begin.steps) / elapsed_s:,.0f} environment steps/s, learner idle "
        f"{idle:.1%}, actor waits {actor_waits:.1%}"
    )


if __name__ == "__main__":
    main()
