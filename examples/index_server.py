r"""A nearest-neighbour index in two processes, and a query that is trained through it.

    client: query --top_k--> shard 0: rows 0, 2, 4, ...   \\  the best rows of each, as tensors
                  --top_k--> shard 1: rows 1, 3, 5, ...   //

Queries of several clients are answered with one matrix product per shard. The answers are rows, not
scores: the client computes the scores again, so that gradients of its loss reach the query.
"""

import subprocess
import sys
from pathlib import Path

import torch

import reverie

SHARDS = 2
ROWS, SIZE = 2_000, 16
BEST = 8
STEPS = 60

_SHARD = """
import sys
import torch
import reverie

shard, shards, rows, size = map(int, sys.argv[1:5])
table = torch.nn.functional.normalize(
    torch.randn(rows, size, generator=torch.Generator().manual_seed(7)), dim=1
)[shard::shards].contiguous()

def top_k(queries, counts):
    # [batch, size] -> [batch, count, size]: of each query, its best rows
    best = (queries @ table.T).topk(int(counts.max()), dim=1).indices
    return table[best]

with reverie.Rpc(f"shard{shard}") as rpc:
    rpc.define("top_k", top_k, batch_size=32, dynamic_batching=True)
    print(rpc.listen(), flush=True)
    sys.stdin.read()
"""


def nearest(rpc: reverie.Rpc, query: torch.Tensor) -> torch.Tensor:
    """The ``BEST`` rows of the index with the largest products with the query, best first."""
    asked = [rpc.async_(f"shard{shard}", "top_k", query.detach(), BEST) for shard in range(SHARDS)]
    rows = torch.cat([answer.result() for answer in asked])
    best = (rows @ query.detach()).topk(BEST).indices
    return rows[best]


def main() -> None:
    """Turns a random query towards a row of the index, which it never sees directly."""
    generator = torch.Generator().manual_seed(7)
    table = torch.nn.functional.normalize(torch.randn(ROWS, SIZE, generator=generator), dim=1)
    wanted = table[1234]
    environment = {"PYTHONPATH": str(Path(reverie.__file__).parents[1])}
    shards = [
        subprocess.Popen(
            [sys.executable, "-c", _SHARD, *map(str, (shard, SHARDS, ROWS, SIZE))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for shard in range(SHARDS)
    ]
    try:
        with reverie.Rpc() as rpc:
            for process in shards:
                assert process.stdout is not None
                rpc.connect(process.stdout.readline().strip())
            query = torch.nn.Parameter(torch.randn(SIZE, generator=generator))
            optimizer = torch.optim.Adam([query], lr=0.1)
            for _ in range(STEPS):
                rows = nearest(rpc, query)
                read = torch.softmax(4 * rows @ query, dim=0) @ rows  # soft attention over the rows
                loss = (read - wanted).square().sum() + (query - wanted).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            found = nearest(rpc, query.detach())[0]
        print(f"the query's nearest row is {float(found @ wanted):.3f} of the one that was wanted")
        assert torch.allclose(found, wanted, atol=1e-6)
    finally:
        for process in shards:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
