"""Stacks of four frames and their successors, each frame stored once.

    frames      0  1  2  3  4  5  6 ...
    stack      [0  1  2  3]
    next_stack    [1  2  3  4]

A transition shows eight frames, of which five differ, and its neighbours show four of these again.
The item refers to rows, so a frame is stored once however often it is shown; full chunks of frames
are compressed too. An episode begins with its first frame four times, so that no stack contains a
frame of another game.
"""

import numpy as np

import reverie

STACK = 4
SIDE = 84
EPISODES = 10
STEPS = 60
FRAMES = reverie.TensorSpec((STACK, SIDE, SIDE), np.uint8)


def frame_of(episode: int, step: int) -> np.ndarray:
    """A ball that crosses the screen; the frame encodes the episode and the step."""
    frame = np.zeros((SIDE, SIDE), np.uint8)
    frame[4 * episode : 4 * episode + 4, step : step + 4] = 255
    return frame


def write(client: reverie.Client) -> None:
    with client.trajectory_writer(num_keep_alive_refs=STACK + 1) as writer:
        for episode in range(EPISODES):
            for _ in range(STACK - 1):
                writer.append({"frame": frame_of(episode, 0), "action": np.int64(0)})
            for step in range(STEPS):
                writer.append({"frame": frame_of(episode, step), "action": np.int64(step)})
                if writer.episode_steps <= STACK:
                    continue
                rows = writer.history
                transition = {
                    "stack": rows["frame"][-STACK - 1 : -1],
                    "action": rows["action"][-2],
                    "next_stack": rows["frame"][-STACK:],
                }
                writer.create_item("replay", priority=1.0, trajectory=transition)
            writer.end_episode()


def check(client: reverie.Client) -> None:
    batch = client.sample_batch("replay", 32)
    stack, next_stack = batch.data["stack"], batch.data["next_stack"]
    print(f"  a batch: {stack.shape} {stack.dtype}, and its successors")
    np.testing.assert_array_equal(stack[:, 1:], next_stack[:, :-1])
    for b in range(32):
        step = int(batch.data["action"][b])
        episode = int(stack[b, -1].any(axis=1).argmax()) // 4
        for back in range(STACK):
            expected = frame_of(episode, max(step - back, 0))
            np.testing.assert_array_equal(stack[b, STACK - 1 - back], expected)


def show_size(table: reverie.Table) -> None:
    info = table.info
    copies = info.current_size * 2 * STACK * SIDE * SIDE
    frames = EPISODES * (STEPS + STACK - 1) * SIDE * SIDE
    print(f"  {info.current_size} transitions: {copies:,} bytes as copies, {frames:,} as frames,")
    print(f"    {info.size_bytes:,} in the table")
    assert info.size_bytes < 1.1 * frames


def table() -> reverie.Table:
    return reverie.Table(
        "replay",
        sampler=reverie.selectors.Uniform(seed=5),
        remover=reverie.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature={
            "stack": FRAMES,
            "action": reverie.TensorSpec((), np.int64),
            "next_stack": FRAMES,
        },
        max_bytes=1_000_000_000,  # a table only counts its bytes if they are bounded
    )


def main() -> None:
    print("embedded:")
    with reverie.Store([table()]) as store:
        write(store.client())
        check(store.client())
        show_size(store.tables[0])
    print("served:")
    with reverie.Server([table()]) as server:
        client = server.localhost_client()
        write(client)
        check(client)
        show_size(server.tables[0])


if __name__ == "__main__":
    main()
