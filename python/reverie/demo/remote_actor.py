"""The process of one actor: ``remote_actor ADDRESS SEED INDEX ACTORS STEPS SETTINGS``.

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

    address, seed, index, actors, steps, words = arguments
    settings = json.loads(words)
    settings["hidden"] = tuple(settings["hidden"])
    act(address, int(seed), int(index), int(actors), int(steps), Settings(**settings))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
