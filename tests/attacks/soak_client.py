"""A client of the soak: inserts rows that carry their checksum, samples, and checks.

Runs in an environment with Reverie, or with dm-reverb (``--reverb``). Prints each second how many
batches it checked; a wrong batch ends it with status 3.
"""

import sys
import time
import zlib

import numpy as np

BATCH = 16
BYTES = 4000
WRONG = 3


def row(rng: np.random.Generator) -> list[np.ndarray]:
    """Bytes, half of them equal, and their checksum."""
    data = rng.integers(0, 256, BYTES, np.uint8)
    data[: BYTES // 2] = data[0]
    return [data, np.array(zlib.crc32(data.tobytes()), np.int64)]


def is_right(data: np.ndarray, checksum: np.ndarray) -> bool:
    """Whether each row has the checksum that it came with."""
    rows = data.reshape(-1, BYTES)
    return all(
        zlib.crc32(one.tobytes()) == int(wanted)
        for one, wanted in zip(rows, checksum.reshape(-1), strict=True)
    )


def run_reverie(address: str, seed: int) -> None:
    import reverie

    rng = np.random.default_rng(seed)
    client = reverie.Client(address, retry_timeout_s=60.0)
    count = 0
    said = time.monotonic()
    while True:
        try:
            client.insert(row(rng), {"replay": float(rng.integers(1, 5))}, timeout_s=30.0)
            batch = client.sample_batch("replay", BATCH, timeout_s=30.0)
            client.update_priorities(
                "replay", batch.keys, rng.uniform(0.1, 2, BATCH), timeout_s=30.0
            )
        except (reverie.errors.UnavailableError, reverie.DeadlineExceededError):
            continue
        if not is_right(*batch.data):
            raise SystemExit(WRONG)
        count += 1
        if time.monotonic() - said > 1:
            said = time.monotonic()
            print(count, flush=True)


def run_reverb(address: str, seed: int) -> None:
    import reverb

    rng = np.random.default_rng(seed)
    count = 0
    said = time.monotonic()
    while True:
        try:
            client = reverb.Client(address)
            while True:
                client.insert(row(rng), {"replay": 1.0})
                for sample in client.sample("replay", BATCH):
                    data, checksum = sample[0].data
                    if not is_right(np.asarray(data), np.asarray(checksum)):
                        raise SystemExit(WRONG)
                count += 1
                if time.monotonic() - said > 1:
                    said = time.monotonic()
                    print(count, flush=True)
        except (RuntimeError, reverb.errors.ReverbError):  # noqa: PERF203 - the server was killed
            continue


if __name__ == "__main__":
    program = run_reverb if "--reverb" in sys.argv else run_reverie
    program(sys.argv[1], int(sys.argv[2]))
