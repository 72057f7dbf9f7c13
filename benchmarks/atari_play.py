"""Atari play for benchmarks: the 84 x 84 grey frames that agents are trained on.

Four frames per action, the maximum of the last two, scaled down by averaging the area that a pixel
covers; actions repeat with probability 0.25, as Machado et al. 2018 recommend. Policies:

    random    any of the game's actions, drawn for each step
    scripted  only Pong and Breakout: the paddle follows the ball, whose position is read from the
              console's memory; one action in twenty is random. Rallies are as long as those of a
              good player.
    an agent  trained by atari_agent.py for a minute; one action in twenty is random.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from atari_agent import Agent

GAMES = (
    "pong",
    "breakout",
    "space_invaders",
    "seaquest",
    "ms_pacman",
    "qbert",
    "beam_rider",
    "enduro",
)
SCRIPTED = ("pong", "breakout")
SIDE = 84

Frame = npt.NDArray[np.uint8]
# The frame, the action that led to it, its reward, and whether the game ended.
Step = tuple[Frame, int, float, bool]


def area_weights(size: int, to: int) -> npt.NDArray[np.float32]:
    """A matrix ``[to, size]`` whose rows average the part of ``size`` pixels that each covers."""
    edges = np.arange(to + 1) * (size / to)
    pixels = np.arange(size)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return (np.maximum(covered, 0) * (to / size)).astype(np.float32)


def play(game: str, policy: str | Agent, seed: int = 7) -> Iterator[Step]:
    """Plays for ever."""
    import ale_py
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.25)
    ale.loadROM(roms.get_rom_path(game))
    actions = ale.getMinimalActionSet()
    random = np.random.default_rng(seed)
    height, width = ale.getScreenDims()
    rows, columns = area_weights(height, SIDE), area_weights(width, SIDE).T
    last, one_before = np.empty((2, height, width), np.uint8)
    while True:
        index = int(random.integers(len(actions)))
        if policy != "random" and random.random() > 0.05:
            memory = ale.getRAM()
            index = _follow_the_ball(game, memory) if policy == "scripted" else policy.act(memory)
        reward = 0.0
        for frame in range(4):
            reward += ale.act(actions[index])
            if frame == 2:
                ale.getScreenGrayscale(one_before)
        ale.getScreenGrayscale(last)
        small = rows @ np.maximum(last, one_before).astype(np.float32) @ columns
        over = bool(ale.game_over())
        yield np.rint(small).astype(np.uint8), index, reward, over
        if over:
            ale.reset_game()


def _follow_the_ball(game: str, memory: npt.NDArray[np.uint8]) -> int:
    """The index of the action that moves the paddle towards the ball."""
    if game == "pong":
        ball, paddle = int(memory[54]), int(memory[51]) + 8
        return 0 if ball == 0 or abs(ball - paddle) < 4 else 2 if ball < paddle else 3
    ball, paddle, height = int(memory[99]), int(memory[72]), int(memory[101])
    if height == 0:
        return 1  # fires a new ball
    return 0 if abs(ball - paddle) < 3 else 2 if ball > paddle else 3
