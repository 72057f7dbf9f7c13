"""Reverb's server program: ``python -m reverie.reverb.server_executable.server_main --config=...``.

It is the command ``reverb_server``; see ``docs/serve.md``.
"""

import sys

from reverie.serve.command import reverb_server


def main(unused_argv: object = None) -> None:
    """Serves what ``--config`` of the command line describes until a signal stops it.

    Args:
        unused_argv: as the library absl hands it to a program; ``sys.argv`` is read.
    """
    del unused_argv
    status = reverb_server()
    if status != 0:
        sys.exit(status)


def app_run_main() -> None:
    """The same, and ends the process."""
    sys.exit(reverb_server())


if __name__ == "__main__":
    app_run_main()
