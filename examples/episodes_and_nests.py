"""Whole episodes of unequal length, as nests of a program's own types.

A step may be a dict, a tuple, a list, a named tuple, a dataclass, or any nesting of these, with
arrays, numbers, booleans or text as leaves. It is returned in the same structure, each leaf as an
array ``[B, T, ...]``. Episodes of unequal length are padded with zeros at the end on request;
``lengths`` says where each one ends.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import reverie

EPISODES = 50


@dataclass
class Observation:
    """What a robot observes."""

    position: npt.NDArray[np.float32]
    touches: bool


class Action(NamedTuple):
    """What a robot does."""

    name: str
    force: float


def main() -> None:
    rng = np.random.default_rng(7)
    table = reverie.Table(
        "episodes",
        sampler=reverie.selectors.Uniform(seed=7),
        remover=reverie.selectors.Fifo(),
        max_size=EPISODES,
        rate_limiter=reverie.rate_limiters.MinSize(EPISODES),
    )
    returns = {}
    with reverie.Store([table]) as store:
        client = store.client()
        writer = client.trajectory_writer(num_keep_alive_refs=20)
        for episode in range(EPISODES):
            rewards = rng.normal(size=rng.integers(5, 20)).astype(np.float32)
            returns[episode] = float(rewards.sum())
            for reward in rewards:
                # A step has what is known before the action, and what the action leads to.
                obs = Observation(rng.random(3, np.float32), touches=bool(rng.integers(2)))
                act = Action(("push", "pull")[rng.integers(2)], force=rng.random())
                writer.append({"obs": obs, "act": act}, partial_step=True)
                writer.append({"reward": reward, "episode": episode})
            history = writer.history
            item = {
                "obs": Observation(history["obs"].position[:], history["obs"].touches[:]),
                "act": Action(history["act"].name[:], history["act"].force[:]),
                "reward": history["reward"][:],
                "episode": history["episode"][-1],  # one row: no time axis
            }
            writer.create_item("episodes", priority=1.0, trajectory=item)
            writer.end_episode()
        writer.close()

        batch = client.sample_batch("episodes", 4, distinct=True, pad=True)
        data, lengths = batch.data, batch.lengths
        assert lengths is not None
        print("episodes", data["episode"].tolist(), "of", lengths.tolist(), "steps")
        print("obs:   ", type(data["obs"]).__name__, data["obs"].position.shape)
        print("act:   ", type(data["act"]).__name__, data["act"].name[0, :3], "...")

        inside = np.arange(lengths.max()) < lengths[:, None]  # [B, T]
        assert (data["reward"][~inside] == 0).all()
        sums = (data["reward"] * inside).sum(axis=1)
        expected = [returns[episode] for episode in data["episode"].tolist()]
        np.testing.assert_allclose(sums, expected, rtol=1e-5)
        print("returns", np.round(sums, 2))


if __name__ == "__main__":
    main()
