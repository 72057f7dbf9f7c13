"""How subcommands of ``reverie`` read their arguments."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn


def path_argument(text: str) -> Path:
    """The type of arguments that name a file or a folder: not empty, as an unset variable is."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; '.' is the current folder")
    return Path(text)


class CommandParser(argparse.ArgumentParser):
    """Takes options by their whole names; a wrong one gives one line with the most similar."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As the base class does, but an option that there is not is an error at once."""
        parsed, rest = super().parse_known_args(args, namespace)
        for name in rest:
            if name.startswith("--"):
                wrong = name.partition("=")[0]
                near = difflib.get_close_matches(wrong, self._option_string_actions, n=3)
                nearest = f"; the nearest are: {', '.join(near)}" if near else ""
                self.error(f"there is no option {wrong}{nearest}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2 and two lines; the usage of some fills a screen."""
        self.exit(2, f"{self.prog}: {message}\n'{self.prog} --help' lists the options\n")
