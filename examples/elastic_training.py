r"""Training with torch on peers that come and go; the loop is Algorithm 1 of the moolib paper.

    python examples/elastic_training.py                     # four processes; one is restarted
    torchrun --nproc-per-node 4 examples/elastic_training.py
    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \
        examples/elastic_training.py                        # on each host; see below
    srun --ntasks 8 python examples/elastic_training.py     # tasks of a Slurm job

Each peer computes gradients of its own batches. ``reverie.Accumulator`` sums them until there are
256 samples, whichever peers they come from, and all peers take the same step. A peer that dies only
loses its last batch; a new one gets the model and the optimizer's state from another.

Under torchrun the first process runs the broker, at the port after torchrun's own. torchrun
restarts all processes of a host when one dies (``--max-restarts``), unless a process is restarted
by other means. Under srun task 0 runs it, on the first host of the step, at a port that is computed
from the job's number; ``--no-kill`` and ``--kill-on-bad-exit=0`` keep the other tasks running when
one dies. Between hosts peers need a token: REVERIE_TOKEN, the same on all.
"""

import argparse
import multiprocessing
import os
import re
import time

import torch

import reverie

PEERS = 4
STEPS = 400
BATCH = 32


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random points of a plane, and whether they are in a ring."""
    x = 4 * torch.rand(BATCH, 2, generator=generator) - 2
    radius = x.norm(dim=1)
    return x, ((radius > 0.7) & (radius < 1.5)).float()


def train(address: str, name: str, token: str | None) -> None:
    """Runs one peer until the model has taken its steps."""
    generator = torch.Generator().manual_seed(int(name.rpartition("-")[2]))
    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    brought, loss = 0, torch.zeros(())
    with reverie.Rpc(name, token=token) as rpc:
        rpc.connect(address)
        with reverie.Group(rpc, "training") as group:
            accumulator = reverie.Accumulator("model", model.parameters(), model.buffers(), group)
            accumulator.set_virtual_batch_size(8 * BATCH)
            while accumulator.model_version() < STEPS or accumulator.has_gradients():
                accumulator.update()
                if accumulator.wants_state():  # another peer has joined, and needs our model
                    accumulator.set_state({"optimizer": optimizer.state_dict()})
                if accumulator.has_new_state():  # our model was overwritten by another peer's
                    optimizer.load_state_dict(accumulator.state()["optimizer"])
                if accumulator.has_gradients():
                    optimizer.step()
                    accumulator.zero_gradients()
                elif accumulator.wants_gradients():
                    x, y = batch(generator)
                    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
                    loss.backward()
                    accumulator.reduce_gradients(BATCH)
                    brought += 1
                else:
                    time.sleep(0.001)  # a program could act, or load the next batch
            accumulator.close()
    print(f"{name}: brought {brought} batches, last loss {float(loss.detach()):.3f}", flush=True)
    if float(loss.detach()) > 0.68:  # a random guess has 0.69
        raise SystemExit(f"{name} has learned nothing")


def first_host(hosts: str) -> str:
    """The first host of Slurm's list: "a7" for "a7,b2", and for "a[7-9,12],b2"."""
    name, bracket, numbers = hosts.split(",")[0].partition("[")
    return name + re.split("[-,\\]]", numbers)[0] if bracket else name


def under_a_launcher() -> None:
    """Runs one of the processes that torchrun or srun has started."""
    given, token = os.environ, os.environ.get("REVERIE_TOKEN")
    if "TORCHELASTIC_RUN_ID" in given:
        rank, host, port = int(given["RANK"]), given["MASTER_ADDR"], int(given["MASTER_PORT"]) + 1
    else:
        rank, port = int(given["SLURM_PROCID"]), 20_000 + int(given["SLURM_JOB_ID"]) % 10_000
        host = first_host(given["SLURM_STEP_NODELIST"]) if token else "127.0.0.1"
    if rank > 0:
        train(f"{host}:{port}", f"peer-{rank}", token)
        return
    with reverie.Broker(token=token) as broker:
        address = broker.listen(f"0.0.0.0:{port}" if token else f"127.0.0.1:{port}")
        train(address, "peer-0", token)
        while any(group["members"] for group in broker.groups()):
            time.sleep(0.05)  # waits until the others have left


def on_this_host() -> None:
    """Starts the peers, kills one, and restarts it."""
    context = multiprocessing.get_context("spawn")
    with reverie.Broker() as broker:
        address = broker.listen()

        def start(name: str) -> multiprocessing.process.BaseProcess:
            peer = context.Process(target=train, args=(address, name, None), daemon=True)
            peer.start()
            return peer

        def members() -> list[str]:
            return [name for group in broker.groups() for name in group["members"]]

        peers = {name: start(name) for name in (f"peer-{i}" for i in range(PEERS))}
        killed, deadline = peers["peer-3"], time.monotonic() + 60
        while killed.is_alive() and "peer-3" not in members() and time.monotonic() < deadline:
            time.sleep(0.02)
        killed.kill()
        while "peer-3" in members() and time.monotonic() < deadline:
            time.sleep(0.02)
        peers["peer-3"] = start("peer-3")
        for name, peer in peers.items():
            peer.join(timeout=240)
            if peer.exitcode != 0:
                raise SystemExit(f"{name} failed: its status is {peer.exitcode}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    if "TORCHELASTIC_RUN_ID" in os.environ or "SLURM_PROCID" in os.environ:
        under_a_launcher()
    else:
        on_this_host()
