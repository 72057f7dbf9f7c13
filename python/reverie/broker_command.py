"""``reverie broker``: the process that members of groups connect to."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from reverie._stop_signals import signals_held
from reverie.errors import ReverieError
from reverie.tls import TLS_FILES, TOKEN


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``broker`` to the subcommands of ``reverie``."""
    broker = commands.add_parser(
        "broker",
        help="tell the members of groups who is there",
        description="Serves any number of groups until Ctrl-C or SIGTERM. Other machines may "
        f"connect with a token, from the variable {TOKEN}, with certificates (--tls-...), or with "
        "--insecure.",
    )
    broker.add_argument(
        "--listen", default="127.0.0.1:4431", metavar="HOST:PORT", help="default: %(default)s"
    )
    broker.add_argument("--name", default="broker", help="name of its peer; default: %(default)s")
    broker.add_argument(
        "--insecure", action="store_true", help="accept other machines without a token or TLS"
    )
    for option, what in TLS_FILES.items():
        broker.add_argument(f"--tls-{option}", metavar="FILE", help=f"{what}, PEM")
    broker.set_defaults(
        run=lambda given: run(
            given.listen,
            given.name,
            insecure=given.insecure,
            tls=tuple(getattr(given, f"tls_{option}") for option in TLS_FILES),
        )
    )


def run(
    address: str,
    name: str = "broker",
    *,
    insecure: bool = False,
    tls: tuple[str | None, ...] = (),
) -> int:
    """Serves until a signal; 1 where it cannot listen."""
    from reverie.groups import Broker
    from reverie.rpc import Rpc
    from reverie.tls import PeerTls

    files = [one for one in tls if one is not None]
    if 0 < len(files) < len(TLS_FILES):
        missing = [
            f"--tls-{option}" for option, one in zip(TLS_FILES, tls, strict=True) if one is None
        ]
        print(
            f"reverie broker: {' and '.join(missing)} must be given too: a peer presents "
            "its certificate and checks others'",
            file=sys.stderr,
        )
        return 2

    try:
        token = os.environ.get(TOKEN) or None
        encrypted = PeerTls(*files) if files else None
        with (
            signals_held((signal.SIGINT, signal.SIGTERM)) as signals,
            Rpc(name, token=token, tls=encrypted, insecure=insecure) as rpc,
            Broker(rpc) as broker,
        ):
            print(f"Broker listening at {broker.listen(address)}", flush=True)
            signals.recv(1)
    except (ReverieError, OSError) as error:
        print(f"reverie broker: {error}", file=sys.stderr)
        return 1
    return 0
