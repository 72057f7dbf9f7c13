"""The broker as a program: ``python -m reverie.moolib.broker [ADDRESS]``."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Sequence

from reverie import moolib
from reverie.tls import TOKEN

_PAUSE_S = 0.25


def main(argv: Sequence[str] | None = None) -> None:
    """Serves until Ctrl-C. Makes ``moolib.Rpc`` and ``moolib.Broker``, as they are when it runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "address", nargs="?", help="default: 0.0.0.0:4431 with a token, else 127.0.0.1:4431"
    )
    parser.add_argument(
        "--token", default=os.environ.get(TOKEN), help=f"a secret that all peers share; or {TOKEN}"
    )
    parser.add_argument("--insecure", action="store_true", help="accept others without a token")
    given = parser.parse_args(argv)
    token = given.token or None  # empty: a variable that is not set
    is_open = given.insecure or token is not None
    address = given.address or ("0.0.0.0:4431" if is_open else "127.0.0.1:4431")
    rpc = moolib.Rpc(token=token, insecure=given.insecure or None)
    rpc.set_name("broker")
    broker = moolib.Broker(rpc)
    broker.listen(address)
    print(f"Broker listening at {address}", flush=True)
    over = threading.Event()
    try:
        while not over.wait(_PAUSE_S):
            broker.update()
    except KeyboardInterrupt:
        broker.close()


if __name__ == "__main__":
    main()
