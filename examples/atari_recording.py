"""Games of Breakout, recorded into a store, and one of them played back from it.

    console --> writer: screen, action, reward --> chunks of 40 steps --lz4--> 0.1 % of their bytes
                        one item a game        <-- sample_batch <--

A step holds the whole colour screen, 100 KB. A chunk is compressed as soon as it is full, after a
filter that only keeps changes from the step before; readers of an item do not notice this. The
paddle follows the ball, whose position is read from the console's memory, with random exceptions.

Needs ``pip install reverie[atari]``. Writes ``breakout.gif``.
"""

import argparse
import time

import ale_py
import numpy as np
import numpy.typing as npt
from ale_py import roms
from PIL import Image

import reverie

FRAMES_PER_STEP = 4
STEPS_MAX = 400  # per game
BALL_X, BALL_Y, PADDLE_X = 99, 101, 72  # addresses in the console's memory
STAY, FIRE, RIGHT, LEFT = range(4)  # indices of Breakout's actions


def choose(memory: npt.NDArray[np.uint8], rng: np.random.Generator) -> int:
    if memory[BALL_Y] == 0 or rng.random() < 0.05:
        return FIRE if memory[BALL_Y] == 0 else int(rng.integers(4))
    distance = int(memory[BALL_X]) - int(memory[PADDLE_X])
    return STAY if abs(distance) < 4 else RIGHT if distance > 0 else LEFT


def record(client: reverie.Client, games: int) -> tuple[int, float]:
    """Plays and writes; returns the number of steps, and the seconds spent writing them."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 7)
    ale.loadROM(roms.get_rom_path("breakout"))
    actions = ale.getMinimalActionSet()
    rng = np.random.default_rng(7)
    steps, writing_s = 0, 0.0
    with client.trajectory_writer(num_keep_alive_refs=STEPS_MAX, chunk_length=40) as writer:
        for _ in range(games):
            ale.reset_game()
            over = False
            while not over:
                screen = ale.getScreenRGB()
                action = choose(ale.getRAM(), rng)
                reward = sum(ale.act(actions[action]) for _ in range(FRAMES_PER_STEP))
                begin = time.perf_counter()
                step = {
                    "screen": screen,
                    "action": np.int64(action),
                    "reward": np.float32(reward),
                }
                writer.append(step)
                writing_s += time.perf_counter() - begin
                steps += 1
                over = ale.game_over() or writer.episode_steps == STEPS_MAX
            length = writer.episode_steps
            game = {name: column[-length:] for name, column in writer.history.items()}
            writer.create_item("games", priority=1.0, trajectory=game)
            writer.end_episode()
    return steps, writing_s


def show(screens: npt.NDArray[np.uint8], path: str) -> None:
    """Writes ``[T, height, width, 3]`` as an animation."""
    images = [Image.fromarray(screen).quantize(64) for screen in screens]
    # At the speed of the console, which shows 60 frames per second.
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=1000 * FRAMES_PER_STEP // 60, loop=0
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Records games of Breakout, and shows one again.")
    parser.add_argument("--games", type=int, default=3)
    parser.add_argument("--gif", default="breakout.gif", help="where the film goes")
    arguments = parser.parse_args()
    table = reverie.Table(
        "games",
        sampler=reverie.selectors.Uniform(seed=7),
        remover=reverie.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_bytes=1 << 30,  # a table only counts its bytes if they are bounded
    )
    with reverie.Store([table]) as store:
        client = store.client()
        steps, writing_s = record(client, arguments.games)

        raw = steps * (210 * 160 * 3 + 8 + 4)
        held = table.info.size_bytes
        print(f"{table.info.current_size} games, {steps} steps of 210 x 160 in colour")
        print(f"  raw    {raw:13,} bytes")
        print(f"  stored {held:13,} bytes: {held / raw:.2%}")
        print(f"  written in {1e6 * writing_s / steps:.0f} us a step")
        assert held < 0.05 * raw

        begin = time.perf_counter()
        game = client.sample_batch("games", 1)
        reading_s = time.perf_counter() - begin
    screens = game.data["screen"][0]
    score = int(game.data["reward"][0].sum())
    print(f"one game from the store: {len(screens)} steps, score {score}")
    print(f"  read at {screens.nbytes / reading_s / 1e9:.1f} GB/s")
    show(screens, arguments.gif)
    print(f"shown in {arguments.gif}")


if __name__ == "__main__":
    main()
