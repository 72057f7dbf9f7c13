"""Native environments: 64 landers at once, each flown with its own parameters.

A pilot leans towards the landing pad and slows its fall; six numbers say how much. Each of the 64
landers tries its own numbers, and the next guesses are centred on the mean of the best ones.

Source: the cross-entropy method, Rubinstein 1999. Differs: the spread shrinks by a fixed factor.
"""

import time

import numpy as np
import numpy.typing as npt

from reverie.envs import native

LANDERS = 64
BEST = 8
ROUNDS = 6


def fly(
    guesses: npt.NDArray[np.float64], observation: npt.NDArray[np.float32]
) -> npt.NDArray[np.int64]:
    """The actions of 64 pilots: 0 nothing, 1 left engine, 2 main engine, 3 right engine."""
    x, y, vx, vy, angle, spin, left, right = observation.T
    lean = np.clip(guesses[:, 0] * x + guesses[:, 1] * vx, -0.4, 0.4)
    stands = left + right > 0
    turn = np.where(stands, 0, guesses[:, 2] * (lean - angle) - guesses[:, 3] * spin)
    lift = np.where(stands, 0, -guesses[:, 4] * y) - guesses[:, 5] * vy
    main = (lift > np.abs(turn)) & (lift > 0.05)
    side = np.where(turn < -0.05, 3, np.where(turn > 0.05, 1, 0))
    return np.where(main, 2, side)


def scores(pool: native.NativePool, guesses: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The return of each pilot's first episode."""
    batch = pool.reset().result()
    total = np.zeros(LANDERS)
    flies = np.ones(LANDERS, dtype=bool)
    while flies.any():
        batch = pool.step(fly(guesses, batch.observation)).result()
        total[flies] += batch.reward[flies]
        flies &= ~(batch.terminated | batch.truncated)
    return total


def main() -> None:
    rng = np.random.default_rng(1)
    centre = np.full(6, 0.5)
    spread = 0.5
    begin = time.perf_counter()
    with native.NativePool("LunarLander-v3", LANDERS, seed=1) as pool:
        for search in range(1, ROUNDS + 1):
            guesses = centre + spread * rng.standard_normal((LANDERS, 6))
            total = scores(pool, guesses)
            centre = guesses[np.argsort(total)[-BEST:]].mean(axis=0)
            spread *= 0.8
            print(f"round {search:2}: {np.median(total):7.1f} in the median")
        landed = scores(pool, np.tile(centre, (LANDERS, 1)))
        picture = pool.render(0)
    took_s = time.perf_counter() - begin
    print(f"the pilot found scores {np.median(landed):.0f} in the median, after {took_s:.0f} s")
    print(f"pictures are {picture.shape} {picture.dtype}")
    assert np.median(landed) > 200, "200 is a landing"


if __name__ == "__main__":
    main()
