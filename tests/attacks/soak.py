"""Runs a server and clients for long, with kills, freezes and slow readers; prints a line a minute.

Each line has the server's resident memory, threads and descriptors, and the batches that the
clients checked. The exit status is 0 if every checksum was right, every client was served in each
minute, and memory, threads and descriptors did not grow after the first minute.

Usage: soak.py [--minutes N] [--seed N]
"""

import argparse
import contextlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from attack_peer import Peer, grpc_message, resident_mib, sample_request

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REVERB = ROOT / ".venv-reverb" / "bin" / "python"
STEP_S = 3.0
GROWTH_MIB = 60.0
GROWTH_THREADS = 4
GROWTH_DESCRIPTORS = 40


class Program:
    """A process of this folder that is restarted after it was killed."""

    def __init__(self, python, name, *arguments):
        self._command = [str(python), str(HERE / name), *map(str, arguments)]
        self.lines = 0
        self.count = 0
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process):
        for line in process.stdout:
            self.lines += 1
            self.count += line.strip().isdigit()

    def kill(self):
        self.process.kill()
        self._end()

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self._end()

    def _end(self):
        self.process.wait()
        self._reader.join()  # returns at the end of the process's output
        self.process.stdin.close()
        self.process.stdout.close()


class Soak:
    def __init__(self, seed):
        self._rng = random.Random(seed)
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        self._address = f"localhost:{port}"
        self._server = Program(sys.executable, "soak_server.py", port)
        self._wait = threading.Event().wait
        while not self._server.lines:
            self._wait(0.05)
        self._clients = [
            Program(sys.executable, "soak_client.py", self._address, at) for at in range(2)
        ]
        if REVERB.exists():
            self._clients.append(Program(REVERB, "soak_client.py", self._address, 9, "--reverb"))

    def close(self):
        for program in [*self._clients, self._server]:
            program.close()

    # --- Faults

    def _kill_client(self):
        client = self._rng.choice(self._clients)
        client.kill()
        client.start()

    def _kill_server(self):
        self._server.kill()
        self._server.start()

    def _freeze_server(self):
        self._server.process.send_signal(signal.SIGSTOP)
        self._wait(self._rng.uniform(0.5, 3))
        self._server.process.send_signal(signal.SIGCONT)

    def _freeze_client(self):
        client = self._rng.choice(self._clients)
        client.process.send_signal(signal.SIGSTOP)
        self._wait(self._rng.uniform(0.5, 3))
        client.process.send_signal(signal.SIGCONT)

    def _read_slowly(self):
        request = grpc_message(sample_request("replay", 10**9, is_packed=True))
        with contextlib.suppress(OSError), Peer(self._address) as peer:
            peer.send(b"".join(peer.call("SampleStream", request) for _ in range(500)))
            self._wait(1)

    def step(self, *, kills_server):
        happenings = [
            self._kill_client,
            self._freeze_server,
            self._freeze_client,
            self._read_slowly,
        ]
        if kills_server:
            happenings.append(self._kill_server)
        self._rng.choice(happenings)()
        self._wait(STEP_S)

    # --- Checks

    def wrong(self):
        return [
            f"a client ended with status {client.process.returncode}"
            for client in self._clients
            if client.process.poll() is not None
        ] + (["the server ended"] if self._server.process.poll() is not None else [])

    def figures(self):
        pid = self._server.process.pid
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        threads = int(status.split("Threads:")[1].split()[0])
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return resident_mib(pid), threads, descriptors

    def counts(self):
        return [client.count for client in self._clients]


def run(minutes, seed):
    """Runs the soak; returns the faults found."""
    print(f"soak of {minutes} minutes, seed {seed}", flush=True)
    soak = Soak(seed)
    wrong = []
    first = None
    try:
        for minute in range(1, minutes + 1):
            before = soak.counts()
            until = time.monotonic() + 60
            # The server is only killed early in a minute, so that its figures are comparable.
            while time.monotonic() < until and not wrong:
                soak.step(kills_server=minute % 5 == 2 and until - time.monotonic() > 50)
                wrong += soak.wrong()
            if wrong:
                break
            memory, threads, descriptors = soak.figures()
            served = [after - then for after, then in zip(soak.counts(), before, strict=True)]
            print(
                f"minute {minute}: {memory:.1f} MiB, {threads} threads, {descriptors} descriptors, "
                f"seconds served {served}",
                flush=True,
            )
            wrong += [f"client {at} was not served" for at, one in enumerate(served) if one == 0]
            if first is None or minute % 5 == 3:  # the server has been restarted
                first = memory, threads, descriptors
        else:
            most = (first[0] + GROWTH_MIB, first[1] + GROWTH_THREADS, first[2] + GROWTH_DESCRIPTORS)
            last = soak.figures()
            if any(now > bound for now, bound in zip(last, most, strict=True)):
                wrong.append(f"memory, threads, descriptors are {last}; they may be {most}")
    finally:
        soak.close()
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    arguments = parser.parse_args()
    wrong = run(arguments.minutes, arguments.seed)
    print("\n".join(wrong) or "nothing went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
