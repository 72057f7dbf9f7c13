"""Reverb's server program: ``python -m reverie.reverb.server_executable.server_main --config=...``.

It is the command ``reverb_server``; see ``docs/serve.md``.
"""

import sys

from reverie.serve.command import reverb_server


def app_run_main() -> None:
    """Serves what ``--config`` describes until it is told to stop; ends the process."""
    sys.exit(reverb_server())


if __name__ == "__main__":
    app_run_main()
