"""``reverie act``, and the options of ``reverie train`` that let actors join."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

from reverie.agents.envs import BACKENDS
from reverie.agents.remote import act
from reverie.errors import InvalidArgumentError, ReverieError
from reverie.tls import TLS_FILES, TOKEN, PeerTls

_INTERRUPTED = 130  # as shells number it: 128 + SIGINT


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``act`` to the subcommands of ``reverie``."""
    acting = commands.add_parser(
        "act",
        help="act for a training in another process",
        description=(
            "Joins a training that 'reverie train --listen' has started: takes its weights, "
            "steps its environments and reports the steps for its replay, until the training "
            "ends. Any number of actors may join, leave or die at any time. A token is read "
            f"from {TOKEN}."
        ),
    )
    acting.add_argument(
        "address", metavar="HOST:PORT", help="the address at which the training listens"
    )
    acting.add_argument(
        "--patience-s",
        type=float,
        default=60.0,
        metavar="N",
        help="how long to wait for a training that has not started yet, or was lost (default: 60)",
    )
    acting.add_argument(
        "--env-backend", choices=BACKENDS, help="the backend that steps the environments"
    )
    _add_tls(acting)
    acting.set_defaults(run=_run)


def add_serving(command: argparse.ArgumentParser) -> None:
    """Adds what ``serving`` reads."""
    command.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=(
            "let actors in other processes join here, by 'reverie act HOST:PORT'; --actors "
            "are additional threads of this process, and may be 0. Other machines need a "
            "token, from "
            f"{TOKEN}, certificates (--tls-...) or --insecure"
        ),
    )
    command.add_argument(
        "--insecure", action="store_true", help="let other machines join without a token or TLS"
    )
    _add_tls(command)


def _add_tls(command: argparse.ArgumentParser) -> None:
    for option, what in TLS_FILES.items():
        command.add_argument(f"--tls-{option}", metavar="FILE", help=f"{what}, PEM")


def _tls(arguments: argparse.Namespace) -> PeerTls | None:
    files = {option: getattr(arguments, f"tls_{option}") for option in TLS_FILES}
    missing = [f"--tls-{option}" for option, file in files.items() if file is None]
    if len(missing) == len(files):
        return None
    if missing:
        raise InvalidArgumentError(
            f"{' and '.join(missing)} must be given too: each side presents its "
            "certificate and checks the other's"
        )
    return PeerTls(**files)


def serving(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``add_serving``, as ``make_trainer`` takes them."""
    tls = _tls(arguments)
    if arguments.listen is None:
        if tls is not None or arguments.insecure:
            raise InvalidArgumentError("--tls-... and --insecure are for --listen; give it too")
        return {}
    return {
        "listen": arguments.listen,
        "token": os.environ.get(TOKEN) or None,
        "tls": tls,
        "insecure": arguments.insecure,
    }


def _run(arguments: argparse.Namespace) -> int:
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        acted = act(
            arguments.address,
            token=os.environ.get(TOKEN) or None,
            tls=_tls(arguments),
            env_backend=arguments.env_backend,
            patience_s=arguments.patience_s,
        )
    except (ReverieError, OSError) as error:
        return _print_error(error, 1)
    except KeyboardInterrupt:
        return _print_error("interrupted", _INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
    print(
        f"the training is over: {acted.steps:,} steps and {acted.episodes:,} episodes here, with "
        f"{acted.policies:,} versions of the policy"
    )
    return 0


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _print_error(error: BaseException | str, status: int) -> int:
    print(f"reverie act: {error}", file=sys.stderr)
    return status
