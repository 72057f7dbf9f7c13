"""Items by pattern: declared once, made at every step.

    steps     0  1  2  3  4 | 0  1  2 ...
    n-step   [0  1  2]           from the third step on: observation, rewards, next observation
                [1  2  3]
    ends              [4]        the last step of each episode, in a separate table

The loop only appends. The items that it makes are declared before, and could come from a
configuration file.
"""

import numpy as np

import reverie
from reverie import structured
from reverie.structured import Condition

N = 3
EPISODES = 50


def tables() -> list[reverie.Table]:
    return [
        reverie.Table(
            name,
            sampler=reverie.selectors.Uniform(seed=7),
            remover=reverie.selectors.Fifo(),
            max_size=10_000,
            rate_limiter=reverie.rate_limiters.MinSize(1),
        )
        for name in ("n_step", "ends")
    ]


def configs() -> list[structured.Config]:
    step = structured.create_reference_step({"obs": None, "reward": None, "done": None})
    n_step = {
        "obs": step["obs"][-N - 1],  # one row: no time axis
        "rewards": step["reward"][-N - 1 : -1],
        "next_obs": step["obs"][-1],
        "done": step["done"][-1],
    }
    return [
        structured.create_config(n_step, table="n_step"),
        structured.create_config(
            {"obs": step["obs"][-1]}, table="ends", conditions=[Condition.is_end_episode()]
        ),
    ]


def main() -> None:
    rng = np.random.default_rng(7)
    with reverie.Store(tables()) as store:
        client = store.client()
        steps = 0
        with client.structured_writer(configs()) as writer:
            for _ in range(EPISODES):
                length = int(rng.integers(N, 20))
                for t in range(length):
                    writer.append(
                        {
                            "obs": np.full(4, t, np.float32),
                            "reward": np.float32(t),
                            "done": t == length - 1,
                        }
                    )
                writer.end_episode()
                steps += length

        sizes = {name: info.current_size for name, info in client.server_info().items()}
        print(f"{steps} steps of {EPISODES} episodes made {sizes}")
        assert sizes == {"n_step": steps - N * EPISODES, "ends": EPISODES}

        data = client.sample_batch("n_step", 64).data
        print("shapes:", {name: array.shape for name, array in data.items()})
        assert (data["next_obs"][:, 0] == data["obs"][:, 0] + N).all()
        assert (data["rewards"][:, 0] == data["obs"][:, 0]).all()


if __name__ == "__main__":
    main()
