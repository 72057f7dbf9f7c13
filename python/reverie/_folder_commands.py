"""What the commands that look at folders have in common: their actions, and how they end."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reverie import _reverie
from reverie._stop_signals import signals_end_at_once
from reverie.errors import NotFoundError, ReverieError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


# How often a folder is listed again, where a running store removes what it listed.
LISTINGS_MAX = 16


class FolderCommand:
    """A command of ``reverie`` whose actions take the paths of folders.

    Args:
        commands: the subcommands of ``reverie``, which it is added to.
        name: of the command.
        summary: the line that ``reverie --help`` has of it.
        description: what its own ``--help`` begins with.
    """

    def __init__(self, commands: Commands, name: str, *, summary: str, description: str) -> None:
        parser = commands.add_parser(name, help=summary, description=description)
        self._name = name
        self._actions = parser.add_subparsers(metavar="action", required=True)

    def add(
        self,
        name: str,
        run: Callable[..., int],
        *,
        summary: str,
        description: str | None = None,
        paths: dict[str, str],
        status_of_error: int = 1,
        writes: bool = False,
    ) -> None:
        """Adds an action: ``run(*paths)`` gives the status that the program ends with.

        Args:
            name: of the action.
            run: does it. An error of the library, or of the operating system, is printed.
            summary: the line that the command's ``--help`` has of it.
            description: what its own ``--help`` begins with; None for nothing.
            paths: its arguments, with a line of help for each.
            status_of_error: what the program ends with after an error.
            writes: it changes files. Ctrl-C ends one that does not at once.
        """
        parser = self._actions.add_parser(name, help=summary, description=description)
        for path, text in paths.items():
            parser.add_argument(path, help=text)

        def run_and_report(given: argparse.Namespace) -> int:
            # A program's own handler stays, and so does a Ctrl-C that is ignored.
            is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            is_main = threading.current_thread() is threading.main_thread()
            ends_at_once = is_default and is_main and not writes
            try:
                with signals_end_at_once((signal.SIGINT,) if ends_at_once else ()):
                    return run(*(getattr(given, path) for path in paths))
            except (ReverieError, OSError) as error:
                print(f"reverie {self._name}: {error}", file=sys.stderr)
                return status_of_error
            except KeyboardInterrupt:
                print(f"reverie {self._name}: interrupted", file=sys.stderr)
                return 130

        parser.set_defaults(run=run_and_report)


def inspected_journal(path: str) -> dict[str, Any]:
    """What the journal in a folder holds, although a running store may remove its old files.

    Raises:
        ReverieError: it is damaged, or cannot be read.
    """
    for _ in range(LISTINGS_MAX - 1):
        try:
            return _reverie.inspect_journal(path)
        except NotFoundError:  # noqa: PERF203 - each listing is tried
            if not os.path.isdir(path):
                raise
    return _reverie.inspect_journal(path)


def size_text(size: int) -> str:
    """Bytes for people: ``"1.5 kB"``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
