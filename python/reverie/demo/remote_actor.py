"""The process of one actor: ``remote_actor ADDRESS SEED INDEX ACTORS STEPS BEGIN SETTINGS``.

Ends when its stdin is closed, as it is when the learner has gone, whichever way it went.
"""

from __future__ import annotations

import json
import os
import sys
import threading


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # it holds nothing that outlives it


def main(arguments: list[str]) -> int:
    """Acts; returns the exit status."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    from reverie.demo.learning import Settings
    from reverie.demo.served import act

    address, *numbers, words = arguments
    settings = json.loads(words)
    settings["hidden"] = tuple(settings["hidden"])
    seed, index, actors, steps, begin = (int(number) for number in numbers)
    act(address, seed, index, actors, steps, Settings(**settings), begin=begin)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
