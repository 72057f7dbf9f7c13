"""The server of the soak; it listens at the same port after each restart."""

import sys

import reverie


def main() -> None:
    table = reverie.Table(
        "replay",
        sampler=reverie.selectors.Prioritized(0.6, seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=5_000,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    with reverie.Server([table], port=int(sys.argv[1])) as server:
        print(server.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
