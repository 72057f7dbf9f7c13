"""A server to attack, in its own process: prints its address, then answers questions.

Usage: target.py LIMITS [CERTIFICATE KEY]
"""

import json
import sys

import numpy as np

import reverie

ITEMS = 200
ITEM_BYTES = 20_000


def main() -> None:
    limits = reverie.ServerLimits(**json.loads(sys.argv[1]))
    tls = reverie.ServerTls(*sys.argv[2:]) if sys.argv[2:] else None
    unlimited = reverie.rate_limiters.MinSize(1)
    tables = [
        reverie.Table(
            name,
            sampler=reverie.selectors.Uniform(seed=1),
            remover=reverie.selectors.Fifo(),
            max_size=2 * ITEMS,
            rate_limiter=unlimited,
        )
        for name in ("replay", "honest", "attacked", "bombs", "rubbish")
    ]
    with reverie.Server(
        [*tables, reverie.Table.queue("full", max_size=1)], limits=limits, tls=tls
    ) as server:
        rng = np.random.default_rng(7)
        client = server.client()
        for _ in range(ITEMS):
            client.insert([np.frombuffer(rng.bytes(ITEM_BYTES), np.uint8)], {"replay": 1.0})
        print(server.address, flush=True)
        for line in sys.stdin:
            if line.strip() == "figures":
                print(json.dumps(server.figures), flush=True)
            if line.strip() == "tables":
                infos = client.server_info()
                sizes = {
                    name: [info.current_size, getattr(info, "corrupt_items", 0)]
                    for name, info in infos.items()
                }
                print(json.dumps(sizes), flush=True)


if __name__ == "__main__":
    main()
