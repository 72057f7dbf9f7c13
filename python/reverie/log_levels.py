"""What the library logs: by Python's ``logging``, under the name ``"reverie"``."""

from __future__ import annotations

import logging
import threading

from reverie import _checks, _reverie

__all__ = ["set_log_level"]

_LEVELS = {
    "none": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


class _Passing:
    """The thread that passes lines of native threads to ``logging``: they do not wait for it."""

    lock = threading.Lock()
    thread: threading.Thread | None = None

    @classmethod
    def start(cls) -> None:
        with cls.lock:
            if cls.thread is None or not cls.thread.is_alive():  # or this is a forked child
                cls.thread = threading.Thread(target=cls.run, name="reverie-log", daemon=True)
                cls.thread.start()

    @staticmethod
    def run() -> None:
        logger = logging.getLogger("reverie")
        while True:
            for level, text in _reverie.take_log_lines():
                logger.log(level, "%s", text)


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
    if number <= logging.INFO:
        _Passing.start()
