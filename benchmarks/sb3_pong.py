"""Pong in Stable-Baselines3's replay buffer and in ours: resident bytes, and the cost of calls.

    python benchmarks/sb3_pong.py [--transitions 100000] [--train 6000]

Needs ``stable-baselines3`` and ``reverie[atari]``. Random play of 8 games is recorded once (500
steps of each) and stored repeatedly, as SB3's DQN does it: stacks of four frames, theirs with
``optimize_memory_usage``, ours with ``frame_stack=4``, raw and with ``codec="auto"``. Each buffer
is filled in a separate process, whose resident memory is read before and after. Times are means of
thread time, because chunks are only compressed now and then: ``add`` of a step of 8 games, and
``sample(32)``.

With ``--train`` SB3's DQN (``CnnPolicy``, a gradient step every 4 steps of 8 games) then makes that
many steps with each buffer, by turns, and steps/s are printed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ENVS, STEPS, BATCH = 8, 500, 32
OURS = {"reverie, auto": "auto", "reverie, raw": "raw"}
KINDS = (*OURS, "stable-baselines3")


def record(path: Path) -> None:
    """Newest frames ``[STEPS + 1, ENVS, 84, 84]``, and the other columns."""
    import reverie
    from reverie.envs import atari

    rng = np.random.default_rng(1)
    frames, actions, rewards, ends = [], [], [], []
    options = {"game": "pong", "preset": "dqn"}
    with reverie.EnvPool(atari.make, ENVS, env_kwargs=options, num_workers=2) as pool:
        batch = pool.reset(1).result()
        frames.append(batch.observation[:, -1])
        for _ in range(STEPS):
            action = rng.integers(6, size=ENVS)
            batch = pool.step(action).result()
            frames.append(batch.observation[:, -1])
            actions.append(action)
            rewards.append(batch.reward)
            ends.append(batch.terminated)
    np.savez(path, frames=frames, actions=actions, rewards=rewards, ends=ends)


def resident_bytes() -> int:
    """The resident memory of this process."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
    )
    return int(line.split()[1]) * 1024


def made(kind: str, transitions: int) -> Any:  # noqa: ANN401
    """An empty buffer."""
    import gymnasium as gym
    from stable_baselines3.common.buffers import ReplayBuffer

    from reverie.contrib import sb3

    space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    both: dict[str, Any] = {"device": "cpu", "n_envs": ENVS, "handle_timeout_termination": False}
    if kind in OURS:
        both |= {"frame_stack": 4, "codec": OURS[kind]}
        return sb3.ReplayBuffer(transitions, space, gym.spaces.Discrete(6), **both)
    return ReplayBuffer(
        transitions, space, gym.spaces.Discrete(6), optimize_memory_usage=True, **both
    )


def fill(kind: str, path: Path, transitions: int) -> None:
    """Fills a buffer; prints its cost."""
    import torch

    torch.set_num_threads(1)
    played = {name: np.ascontiguousarray(array) for name, array in np.load(path).items()}
    frames = played["frames"]
    stack = np.repeat(frames[0][:, None], 4, axis=1)
    buffer = made(kind, transitions)
    buffer.add(stack, stack, np.zeros(ENVS, int), np.zeros(ENVS), np.zeros(ENVS, bool), [{}] * ENVS)
    before = resident_bytes()
    spent: list[list[float]] = [[], []]
    for index in range(transitions // ENVS - 1):
        step = index % STEPS
        then = np.concatenate([stack[:, 1:], frames[step + 1][:, None]], axis=1)
        done = played["ends"][step] | (step == STEPS - 1)
        arguments = (stack, then, played["actions"][step], played["rewards"][step], done)
        begin = time.thread_time()
        buffer.add(*arguments, [{}] * ENVS)
        spent[0].append(time.thread_time() - begin)
        stack = then
        for game in np.flatnonzero(done):
            first = frames[0, game] if step == STEPS - 1 else then[game, -1]
            stack[game] = first
        if index % 20 == 0:
            begin = time.thread_time()
            buffer.sample(BATCH)
            spent[1].append(time.thread_time() - begin)
    grown = resident_bytes() - before
    add_us, sample_us = (float(np.mean(times)) * 1e6 for times in spent)
    print(
        f"{kind:18} {transitions:7} steps  {grown / 1e6:8.1f} MB resident more   "
        f"add {add_us:6.0f} us   sample {BATCH} {sample_us:6.0f} us",
        flush=True,
    )


def train(steps: int, rounds: int = 3) -> None:
    """Trains SB3's DQN with each buffer by turns; prints steps/s."""
    import torch
    from stable_baselines3 import DQN

    from reverie.contrib import sb3

    torch.set_num_threads(1)
    options = {"env_kwargs": {"game": "pong", "preset": "dqn"}, "num_workers": 2}
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            from reverie.envs import atari

            envs = sb3.VecEnv(atari.make, ENVS, **options)
            given: dict[str, Any] = {"optimize_memory_usage": True}
            given["replay_buffer_kwargs"] = {"handle_timeout_termination": False}
            if kind in OURS:
                kwargs = {"frame_stack": 4, "codec": OURS[kind]}
                given = {"replay_buffer_class": sb3.ReplayBuffer, "replay_buffer_kwargs": kwargs}
            model = DQN(
                "CnnPolicy", envs, buffer_size=20_000, learning_starts=1_000, device="cpu", **given
            )
            model.learn(1_000)
            begin = time.perf_counter()
            model.learn(steps, reset_num_timesteps=False)
            rates[kind].append(steps / (time.perf_counter() - begin))
            envs.close()
    for kind, found in rates.items():
        low, middle, high = min(found), float(np.median(found)), max(found)
        print(f"{kind:18} DQN {middle:6.0f} steps/s ({low:.0f} to {high:.0f})", flush=True)


def main() -> None:
    """Records the play, and fills each buffer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transitions", type=int, default=100_000)
    parser.add_argument("--train", type=int, default=0)
    parser.add_argument("--fill", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        return fill(arguments.fill[0], Path(arguments.fill[1]), arguments.transitions)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pong.npz"
        record(path)
        for kind in KINDS:
            command = [sys.executable, __file__, "--fill", kind, str(path)]
            subprocess.run([*command, "--transitions", str(arguments.transitions)], check=True)
    if arguments.train:
        train(arguments.train)
    return None


if __name__ == "__main__":
    main()
