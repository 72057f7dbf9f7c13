"""The process of one training: ``python -m reverie.demo.worker SEED STEPS ACTORS [FOLDER]``.

With 0 actors it is the whole training, in one thread over an embedded store; else the learner of
one over sockets, which starts a server and the actors. With a folder it keeps there what it needs
to go on, if it is killed, from about where it was.

Writes messages to stdout, one on each line. Ends when that is closed, as it is when the parent has
gone, whichever way it went.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from reverie.demo.messages import Failure, Message, to_line


def _tell(message: Message) -> None:
    sys.stdout.write(to_line(message) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Trains one seed; returns the exit status."""
    seed, steps, actors = (int(argument) for argument in arguments[:3])
    folder = Path(arguments[3]) if len(arguments) > 3 else None
    try:
        try:
            # Imported here, so that a failure of the import is told as well.
            from reverie.demo import served, training

            if actors == 0:
                _tell(training.train(seed, steps, _tell))
            else:
                _tell(served.train(seed, steps, _tell, actors=actors, folder=folder))
        except BrokenPipeError:
            raise
        except Exception:  # Whatever it was, the parent shows it.
            _tell(Failure(seed, traceback.format_exc()))
            return 1
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
