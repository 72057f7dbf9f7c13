"""What Atari frames cost in a store, and how fast they are sampled, compressed and raw.

1. Stored bytes per raw byte, for chunks of 40 frames with all headers: one row per game and policy
   (benchmarks/atari_play.py describes these), one column per codec.
2. Bytes per transition of a uniform table, and milliseconds for a batch of 256 stacked observations
   and next observations, 84 x 84 x 4 both: 14 MB, from 5 frames per item.

Usage: python benchmarks/atari_replay.py [--frames 4000] [--train 40000] [--transitions 50000]
           [--out FOLDER]

With --out, the frames of each game are written there for benchmarks/cc/codec_bench.cc.
"""

import argparse
import itertools
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # set before NumPy: frames are small matrices

import numpy as np
from atari_agent import Agent, train
from atari_play import GAMES, SCRIPTED, Frame, Step, play

import reverie

CODECS = ("auto", "lz4", "zstd")
STACK = 4
BATCH = 256


def table(size: int) -> reverie.Table:
    """A table with uniform sampling that counts its bytes."""
    return reverie.Table(
        "replay",
        reverie.selectors.Uniform(seed=7),
        reverie.selectors.Fifo(),
        max_size=size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_bytes=1 << 50,
    )


def stored_share(frames: Frame, codec: str) -> float:
    """The bytes of chunks of 40 frames, divided by those of the frames."""
    with reverie.Store([table(len(frames))], codec=codec) as store:
        client = store.client()
        with client.trajectory_writer(num_keep_alive_refs=1, chunk_length=40) as writer:
            for frame in frames:
                writer.append({"frame": frame})
                writer.create_item("replay", 1.0, {"frame": writer.history["frame"][-1:]})
            writer.end_episode()
        return float(client.server_info()["replay"].size_bytes / frames.nbytes)


def fill(client: reverie.Client, steps: list[Step]) -> float:
    """Writes the steps, with a transition at each; returns the seconds that took."""
    begin = time.perf_counter()
    with client.trajectory_writer(num_keep_alive_refs=STACK + 1, chunk_length=40) as writer:
        for frame, action, reward, over in steps:
            step = {
                "frame": frame,
                "action": np.int32(action),
                "reward": np.float32(reward),
                "done": np.bool_(over),
            }
            writer.append(step)
            if writer.episode_steps > STACK:
                history = writer.history
                item = {
                    "obs": history["frame"][-STACK - 1 : -1],
                    "next_obs": history["frame"][-STACK:],
                    "action": history["action"][-1],
                    "reward": history["reward"][-1],
                    "done": history["done"][-1],
                }
                writer.create_item("replay", 1.0, item)
            if over:
                writer.end_episode()
        writer.end_episode()
    return time.perf_counter() - begin


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--frames", type=int, default=4000, help="frames a game for the first table"
    )
    parser.add_argument(
        "--train", type=int, default=40_000, help="actions an agent learns from; 0: no agents"
    )
    parser.add_argument("--transitions", type=int, default=50_000, help="steps of the second table")
    parser.add_argument("--out", type=Path, help="a folder to write the frames to")
    args = parser.parse_args()

    print(f"stored / raw bytes, {args.frames} frames a game\n")
    print(f"{'game':<16}{'policy':<10}" + "".join(f"{codec:>9}" for codec in CODECS))
    means = np.zeros(len(CODECS))
    played: list[tuple[str, str, str | Agent]] = [(game, "random", "random") for game in GAMES]
    played += [(game, "scripted", "scripted") for game in SCRIPTED]
    if args.train > 0:
        played += [(game, "trained", train(game, args.train)) for game in GAMES]
    for game, name, policy in played:
        frames = np.stack([step[0] for step in itertools.islice(play(game, policy), args.frames)])
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            frames.tofile(args.out / f"{game}-{name}.bin")
        shares = [stored_share(frames, codec) for codec in CODECS]
        means += np.array(shares) / len(played)
        line = f"{game:<16}{name:<10}" + "".join(f"{share:9.4f}" for share in shares)
        if isinstance(policy, Agent):
            line += f"   return {policy.first_return:.1f} -> {policy.last_return:.1f}"
        print(line)
    print(f"{'mean':<26}" + "".join(f"{share:9.4f}" for share in means))

    steps = list(itertools.islice(play("pong", "random"), args.transitions))
    print(f"\n{args.transitions} steps of pong (random), batches of {BATCH}\n")
    print(f"{'codec':<8}{'bytes/transition':>18}{'write us/step':>15}{'batch ms':>10}{'(best)':>8}")
    for codec in ("raw", *CODECS):
        with reverie.Store([table(args.transitions)], codec=codec) as store:
            client = store.client()
            spent = fill(client, steps)
            info = client.server_info()["replay"]
            held = info.size_bytes / info.current_size
            batch = client.sample_batch("replay", BATCH)
            took = []
            for _ in range(100):
                begin = time.perf_counter()
                batch = client.sample_batch("replay", BATCH, out=batch)
                took.append(1e3 * (time.perf_counter() - begin))
            print(
                f"{codec:<8}{held:18.0f}{1e6 * spent / args.transitions:15.1f}"
                f"{statistics.median(took):10.2f}{min(took):8.2f}"
            )


if __name__ == "__main__":
    main()
