"""``reverie completion``: a script for bash or zsh that completes subcommands and options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

Parser = argparse.ArgumentParser


def add_command(commands: argparse._SubParsersAction[Parser], top: Callable[[], Parser]) -> None:
    """Adds ``completion`` to the subcommands of ``reverie``, whose parser ``top`` makes."""
    completion = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Prints a script. For bash: reverie completion bash > "
        "~/.local/share/bash-completion/completions/reverie. For zsh: reverie completion zsh > "
        "DIR/_reverie, where DIR is in fpath.",
    )
    completion.add_argument("shell", choices=("bash", "zsh"))
    completion.set_defaults(run=lambda arguments: _run(arguments, top()))


def _run(arguments: argparse.Namespace, top: Parser) -> int:
    words = words_of(top)
    print(_bash(words) if arguments.shell == "bash" else _zsh(words), end="")
    return 0


def words_of(top: Parser) -> dict[str, list[str]]:
    """What can follow ``reverie`` ("") and each of its subcommands: options, choices, commands."""
    subcommands = _subcommands(top)
    words = {"": [*subcommands, *_options(top)]}
    for name, parser in subcommands.items():
        positional = [
            str(choice)
            for action in parser._actions
            if not action.option_strings and action.choices and not _is_subparsers(action)
            for choice in action.choices
        ]
        words[name] = [*_subcommands(parser), *positional, *_options(parser)]
    return words


def _is_subparsers(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def _subcommands(parser: Parser) -> Mapping[str, Parser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def _options(parser: Parser) -> Sequence[str]:
    return [name for action in parser._actions for name in action.option_strings]


def _bash(words: Mapping[str, Sequence[str]]) -> str:
    cases = "".join(
        f"    {name}) words='{' '.join(after)}' ;;\n" for name, after in words.items() if name
    )
    return f"""# Completion of the command reverie for bash.
_reverie() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words='{" ".join(words[""])}'
  if ((COMP_CWORD > 1)); then
    case ${{COMP_WORDS[1]}} in
{cases}    *) words='' ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  # A file name, where no word fits.
  ((${{#COMPREPLY[@]}})) || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -F _reverie reverie
"""


def _zsh(words: Mapping[str, Sequence[str]]) -> str:
    cases = "".join(
        f"    {name}) compadd -- {' '.join(after)} ;;\n" for name, after in words.items() if name
    )
    return f"""#compdef reverie
# Completion of the command reverie for zsh.
_reverie() {{
  if ((CURRENT == 2)); then
    compadd -- {" ".join(words[""])}
    return
  fi
  case ${{words[2]}} in
{cases}  esac
  _files
}}
compdef _reverie reverie
"""
