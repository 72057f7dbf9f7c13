"""How a user's type checker sees the package: read by pyright (strict) and mypy, never run.

Each ``assert_type`` fails if a type is ``Any``. A line that ends with ``ignore`` is a mistake that
both checkers have to find, since they report an ``ignore`` that is not needed.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import reverie
from reverie.nests import ArrayNest


def write(client: reverie.Client) -> None:
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        assert_type(writer, reverie.TrajectoryWriter)
        writer.append({"obs": {"position": np.zeros(3)}, "action": 1})
        rows = writer.history["obs"]["position"][-2:]
        assert_type(rows, reverie.TrajectoryColumn)
        assert_type(rows.shape, tuple[int, ...])
        last = {name: column[-1:] for name, column in writer.history.items()}
        assert_type(last, dict[str, reverie.TrajectoryColumn])
        writer.create_item("t", priority=1.0, trajectory=last)
        print(rows.colour)  # type: ignore[attr-defined]  # pyright: ignore


def read(client: reverie.Client) -> float:
    assert_type(client.sample("t", 2), Iterator[list[reverie.ReplaySample]])
    for whole in client.sample("t", 2, emit_timesteps=False):
        assert_type(whole, reverie.ReplaySample)
        assert_type(whole.info.priority, float)
    batch = client.sample_batch("t", 8, beta=0.4)
    assert_type(batch, reverie.Batch)
    assert_type(batch.data["obs"]["position"], ArrayNest)
    assert_type(batch.data["obs"].ndim, int)
    errors = np.abs(batch.data["action"]).ravel()
    client.update_priorities("t", batch.tickets, errors)
    print(batch.key)  # type: ignore[attr-defined]  # pyright: ignore
    client.sample_batch("t", "8")  # type: ignore[arg-type]  # pyright: ignore
    with client.dataset("t", batch_size=4, timeout_s=1.0) as batches:
        assert_type(batches, reverie.Dataset[reverie.Batch])
        for one in batches:
            assert_type(one, reverie.Batch)
            learn(one.data["obs"])
    return client.server_info()["t"].current_size


def learn(observations: npt.NDArray[np.float32]) -> None:
    assert observations.size


def replay() -> None:
    with reverie.ReplayBuffer(1e5, prioritized=True, seed=1) as buffer:
        buffer.add(np.zeros(3), 1, 0.5, np.zeros(3), False)
        batch = buffer.sample(16)
        assert_type(batch, dict[str, ArrayNest])
        learn(batch["reward"])
        buffer.update_priorities(batch["tickets"], np.abs(batch["reward"]))
        assert_type(buffer[0], dict[str, ArrayNest])
        for one in buffer.dataset(16):
            assert_type(one, dict[str, ArrayNest])
        buffer.sample(16, distict=True)  # type: ignore[call-overload]  # pyright: ignore


def serve() -> None:
    table = reverie.Table.queue("q", max_size=10)
    with reverie.Server([table], port=0) as server, reverie.Store([table.replace()]) as store:
        assert_type(server.port, int)
        assert_type(store.client(), reverie.Client)
        write(server.client())
        print(read(server.client()) + 1)


def step() -> None:
    with reverie.EnvPool("CartPole-v1", num_envs=4) as pool:
        future = pool.reset(seed=1)
        batch = future.result(timeout_s=1.0)
        learn(batch.reward)
        learn(pool.step(np.zeros(4, np.int64)).result().reward)
    batcher = reverie.Batcher(4)
    batcher.stack({"x": np.zeros(2)})
    batcher.close()
    settings = reverie.TrainSettings(steps=1_000, hidden=(64, 64))
    assert_type(settings.steps, int | None)
    reverie.TrainSettings(stepz=1)  # type: ignore[call-arg]  # pyright: ignore


if __name__ == "__main__":
    replay()
    serve()
    step()
