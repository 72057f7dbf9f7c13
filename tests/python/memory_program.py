"""A process that holds a store and reports its memory; for memory_test.py.

Usage: memory_program.py OPTIONS, a JSON object. For each line of input, a request, it prints one
line. ``write`` writes to the store from within; other processes write to its address. The figures
are the kernel's, not those of the store.
"""

import json
import sys

import numpy as np

SIDE = 84
FRAME_BYTES = SIDE * SIDE
STACK = 4
# The most that a writer keeps open (client/chunk_tuner.h), and what it has queued for compression.
OPEN_BYTES = {"raw": 64 << 10, "lz4": 512 << 10, "zstd": 512 << 10}
KEY = {"Rss:", "Swap:"}


def resident_bytes(pid="self"):
    """The memory of a process, including swapped pages."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        fields = (line.split() for line in file)
        return sum(int(words[1]) << 10 for words in fields if words[0] in KEY)


def pong(count):
    """Frames of the real game, with random actions."""
    from reverie.envs import atari

    env = atari.make(game="pong")
    env.action_space.seed(1)
    env.reset(seed=1)
    for _ in range(count):
        frame, _, terminated, truncated, _ = env.step(env.action_space.sample())
        yield np.asarray(frame)[-1]  # the newest frame of the stack
        if terminated or truncated:
            env.reset()


def frames(count, noise=0):
    """Images like those of a game, in which some rows are noise."""
    rng = np.random.default_rng(7)
    still = np.repeat(np.arange(SIDE, dtype=np.uint8) // 8 * 16, SIDE).reshape(SIDE, SIDE)
    for at in range(count):
        frame = still.copy()
        for sprite in (1, 2, 3):
            x, y = at * sprite % (SIDE - 6), at // sprite % (SIDE - 6)
            frame[y : y + 6, x : x + 6] = 200 + sprite
        if noise:
            frame[:noise] = np.frombuffer(rng.bytes(noise * SIDE), np.uint8).reshape(noise, SIDE)
        yield frame


def write(client, codec, episode, writers, count, noise=0, *, is_pong=False):
    """Writes frames round robin, an item over each stack and the next; leaves the writers open."""
    opened = [client.trajectory_writer(STACK + 1, codec=codec) for _ in range(writers)]
    for at, frame in enumerate(pong(count) if is_pong else frames(count, noise)):
        writer = opened[at % writers]
        writer.append({"frame": frame, "action": np.int64(at), "reward": np.float32(at)})
        history = writer.history
        if writer.episode_steps > STACK:
            writer.create_item(
                "t",
                1.0,
                {
                    "obs": history["frame"][-STACK - 1 : -1],
                    "next_obs": history["frame"][-STACK:],
                    "action": history["action"][-1],
                    "reward": history["reward"][-1],
                },
            )
        if writer.episode_steps == episode:
            writer.end_episode(clear_buffers=True)
    for writer in opened:
        writer.flush()
    return opened


def fill(client, count, columns):
    """Inserts single steps."""
    step = {f"column{at}": np.zeros(3, np.float32) for at in range(columns)}
    for _ in range(count):
        client.insert(step, {"t": 1.0})


def add(buffer, count):
    """Adds transitions of LunarLander's size, 76 bytes each."""
    envs = 64
    obs = np.zeros((envs, 8), np.float32)
    no = np.zeros(envs, bool)
    for _ in range(count // envs):
        buffer.add(obs, np.zeros(envs, np.int64), np.zeros(envs, np.float32), obs, no, no)


class Home:
    """The store in this process, embedded or with a server."""

    def __init__(self, door="embedded", max_size=1 << 40, max_bytes=None):
        import reverie

        table = reverie.Table(
            "t",
            sampler=reverie.selectors.Uniform(),
            remover=reverie.selectors.Fifo(),
            max_size=max_size,
            rate_limiter=reverie.rate_limiters.MinSize(1),
            max_bytes=max_bytes or 1 << 40,
        )
        self.home = reverie.Store([table]) if door == "embedded" else reverie.Server([table])
        self.client = self.home.client()
        self.kept = []
        # Memory that Python and NumPy allocate on first use is not the store's.
        write(self.client, "raw", 10, 1, 20, noise=1)[0].close()
        fill(self.client, 1, columns=1)
        self.client.reset("t")
        self.empty = resident_bytes()

    def figures(self):
        info = self.client.server_info()["t"]
        return {
            "growth": resident_bytes() - self.empty,
            "size_bytes": info.size_bytes,
            "items": info.current_size,
        }

    def write(self, **options):
        self.kept = write(self.client, **options)

    def begin_pong(self):
        """Starts the emulator first, since its memory is not the store's."""
        for _ in pong(200):
            pass
        self.empty = resident_bytes()

    def fill(self, **options):
        fill(self.client, **options)

    def add(self, count):
        """Uses the store of a replay buffer instead."""
        import reverie

        buffer = reverie.ReplayBuffer(count, num_envs=64)
        self.kept = buffer
        add(buffer, count)


def main():
    home = Home(**json.loads(sys.argv[1]))
    print(getattr(home.home, "address", ""), flush=True)
    for line in sys.stdin:
        name, options = json.loads(line)
        done = getattr(home, name)(**options)
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
