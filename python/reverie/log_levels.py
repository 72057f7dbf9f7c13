"""What the library logs: by Python's ``logging``, under the name ``"reverie"``."""

from __future__ import annotations

import logging

from reverie import _checks, _reverie

__all__ = ["set_log_level"]

_LEVELS = {
    "none": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


def set_log_level(level: str) -> None:
    """What is logged under the name ``"reverie"``, and all that is worse.

        logging.basicConfig()
        reverie.set_log_level("info")

    Args:
        level: ``"none"``, ``"error"``, ``"warning"``; ``"info"``: connections between peers that
            are made and lost; ``"debug"``: those that cannot be made, too, with the reason.

    Raises:
        InvalidArgumentError: another word.
    """
    number = _LEVELS[_checks.choice("level", level, _LEVELS)]
    logging.getLogger("reverie").setLevel(number)
    _reverie.want_log_lines(number)
