"""The ``reverie`` command; ``python -m reverie`` is the same."""

import argparse
import contextlib
import os
import select
import sys
from collections.abc import Iterator, Sequence

import reverie
from reverie._command_parser import CommandParser
from reverie.agents.act_command import add_command as add_act
from reverie.agents.command import add_command as add_train
from reverie.bench import add_command as add_bench
from reverie.broker_command import add_command as add_broker
from reverie.checkpoint_command import add_command as add_checkpoint
from reverie.completion import add_command as add_completion
from reverie.demo.command import add_command as add_demo
from reverie.doctor import add_command as add_doctor
from reverie.journal_command import add_command as add_journal
from reverie.serve.command import add_command as add_serve


def _version(_: argparse.Namespace) -> int:
    print(f"reverie {reverie.__version__}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command's arguments; each subcommand sets ``run``, called with what was parsed."""
    top = argparse.ArgumentParser(prog="reverie", description=reverie.__doc__)
    top.add_argument("--version", action="version", version=f"reverie {reverie.__version__}")
    kind: type[argparse.ArgumentParser] = CommandParser
    commands = top.add_subparsers(metavar="command", parser_class=kind)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    add_bench(commands)
    add_broker(commands)
    add_checkpoint(commands)
    add_completion(commands, parser)
    add_demo(commands)
    add_doctor(commands)
    add_journal(commands)
    add_serve(commands)
    add_train(commands)
    add_act(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line ``argv`` (the process's own by default); returns the exit status."""
    top = parser()
    with _output_may_end():
        arguments = top.parse_args(argv)
        if not hasattr(arguments, "run"):
            top.print_help()
            return 0
        status: int = arguments.run(arguments)
        return status


# What a shell reports of a program that the signal for this has ended.
_OUTPUT_ENDED = 128 + 13


@contextlib.contextmanager
def _output_may_end() -> Iterator[None]:
    """Ends the program quietly where the reader of its output has left: ``reverie doctor | head``.

    What was printed last is written here, while the error can still be told from another one.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_output_ended():
            raise
        # What is left in the buffers would be written at the end of the program, and fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise SystemExit(_OUTPUT_ENDED) from None


def _is_output_ended() -> bool:
    """Whether it is the output that is broken, and not some connection."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return len(output.poll(0)) > 0


if __name__ == "__main__":
    raise SystemExit(main())
