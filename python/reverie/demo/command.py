"""``reverie demo``: the arguments, and the ways in which it ends.

Imports nothing that may be missing before it has looked for it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType
from typing import NoReturn

from reverie._command_parser import path_argument
from reverie.demo.options import (
    FULL_STEPS,
    QUICK_STEPS,
    SERVED_SEEDS,
    Options,
    missing_extras,
)

_INTERRUPTED = 130  # as shells number it: 128 + SIGINT


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``demo`` to the subcommands of ``reverie``."""
    defaults = Options()
    demo = commands.add_parser(
        "demo",
        help="train CartPole with prioritised replay and show how it went",
        description=(
            "Trains CartPole with the native learner, one thread per seed; then again over a "
            "server, with learner and actors in separate processes, all of which are killed "
            "in the middle; finally LunarLander on all cores, with native actors and "
            "learners. Writes learning curves and a landing."
        ),
    )
    demo.add_argument(
        "--seeds", type=int, help=f"trainings to run (default: {defaults.seeds}; 1 with --quick)"
    )
    demo.add_argument(
        "--steps",
        type=int,
        help=(
            f"environment steps of each training (default: {FULL_STEPS}; {QUICK_STEPS} with "
            "--quick)"
        ),
    )
    demo.add_argument(
        "--seed", type=int, default=defaults.first_seed, help="the first seed (default: 0)"
    )
    demo.add_argument(
        "--served",
        type=int,
        help=f"trainings over a server to run afterwards (default: {defaults.served_seeds}; 1 with "
        "--quick; 0 for none)",
    )
    demo.add_argument(
        "--actors", type=int, default=defaults.actors, help="actors of each of them (default: 2)"
    )
    demo.add_argument(
        "--out", type=path_argument, default=defaults.out, help=f"folder (default: {defaults.out})"
    )
    demo.add_argument(
        "--lander",
        action=argparse.BooleanOptionalAction,
        help="train LunarLander on all cores at the end (default: unless --quick or --steps)",
    )
    demo.add_argument("--quick", action="store_true", help="one short training, as a test")
    demo.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    missing = missing_extras()
    if missing:
        return _refuse(
            f"{', '.join(missing)} not installed; pip install 'reverie[demo]' brings what is needed"
        )
    seeds = 1 if arguments.quick else 5
    served_seeds = 1 if arguments.quick else SERVED_SEEDS
    steps = QUICK_STEPS if arguments.quick else FULL_STEPS
    try:
        options = Options(
            seeds=seeds if arguments.seeds is None else arguments.seeds,
            steps=steps if arguments.steps is None else arguments.steps,
            first_seed=arguments.seed,
            out=arguments.out,
            served_seeds=served_seeds if arguments.served is None else arguments.served,
            actors=arguments.actors,
            lander=arguments.lander
            if arguments.lander is not None
            else not arguments.quick and arguments.steps is None,
        )
    except (ValueError, NotADirectoryError) as error:
        return _refuse(str(error), status=2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        from reverie.demo.run import run

        return run(options)
    except KeyboardInterrupt:
        return _refuse("interrupted; every training was ended", status=_INTERRUPTED)
    except OSError as error:
        return _refuse(str(error))


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    # A second one would cut short what ends the trainings.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _refuse(text: str, *, status: int = 1) -> int:
    print(f"reverie demo: {text}", file=sys.stderr)
    return status
