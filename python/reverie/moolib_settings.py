"""What holds for all of `reverie.moolib`: its errors, its settings, where its messages go."""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from reverie import _checks, _reverie, log_levels
from reverie.errors import InvalidArgumentError, ReverieError, UnsupportedTypeError
from reverie.rpc import Rpc, checked_pickle

__all__ = [
    "DEFAULTS",
    "RpcError",
    "WrongArgumentError",
    "WrongTypeError",
    "called",
    "configure",
    "create_uid",
    "set_log_level",
    "set_logging",
    "set_max_threads",
]

_LEVELS = ("none", "error", "info", "verbose", "debug")
_Given = TypeVar("_Given")


class RpcError(ReverieError, RuntimeError):
    """What a call ended with."""


class WrongArgumentError(InvalidArgumentError, RuntimeError):
    """An argument that moolib refuses with ``RuntimeError``."""


class WrongTypeError(UnsupportedTypeError, RuntimeError):
    """An argument of a type that moolib refuses with ``RuntimeError``."""


def called(function: Callable[..., _Given], /, *args: Any, **kwargs: Any) -> _Given:  # noqa: ANN401
    """The call, with errors that are ``RuntimeError`` too."""
    try:
        return function(*args, **kwargs)
    except RuntimeError:
        raise
    except UnsupportedTypeError as error:
        raise WrongTypeError(str(error)) from None
    except InvalidArgumentError as error:
        raise WrongArgumentError(str(error)) from None
    except ReverieError as error:
        raise RpcError(str(error)) from error


class _Defaults:
    """What an ``Rpc`` has where it does not say so itself."""

    token: str | None = None
    insecure = False
    allow_pickle = False
    max_threads = 32
    handler: logging.Handler | None = None  # of set_logging


DEFAULTS = _Defaults()


rpcs: weakref.WeakSet[Rpc] = weakref.WeakSet()  # whose threads set_max_threads limits


def configure(
    *, token: str | None = None, insecure: bool = False, allow_pickle: bool = False
) -> None:
    """What each ``Rpc`` made from now on has, unless it says so itself.

        reverie.moolib.configure(token=os.environ["TOKEN"], allow_pickle=True)

    One such line lets a program written for moolib run on several machines, and send what moolib
    pickles.

    Args:
        token: a secret that all peers share; with it an ``Rpc`` may listen anywhere.
        insecure: let an ``Rpc`` without a token listen where other machines reach it.
        allow_pickle: send objects by pickle, and read those that come, which runs code that their
            sender chose. All peers must say so.

    Raises:
        InvalidArgumentError: ``allow_pickle`` without a token.
    """
    given = None if token is None else _checks.text("token", token)
    DEFAULTS.allow_pickle = checked_pickle(allow_pickle, given)
    DEFAULTS.insecure = _checks.flag("insecure", insecure)
    DEFAULTS.token = given


def create_uid() -> str:
    """16 hexadecimal digits, different at each call."""
    return f"{_reverie.random_seed():016x}"


def set_log_level(level: str | int) -> None:
    """What is logged: ``"none"``, ``"error"``, ``"info"``, ``"verbose"``, ``"debug"``; 0 to 4."""
    if not isinstance(level, str):
        level = _LEVELS[_checks.integer("level", level, 0, len(_LEVELS) - 1)]
    chosen = _checks.choice("level", level, _LEVELS)
    if not logging.getLogger("reverie").hasHandlers():
        set_logging(None)
    log_levels.set_log_level("info" if chosen == "verbose" else chosen)


class _Stdout(logging.Handler):
    """Prints each message on a line."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stdout.write(f"{self.format(record)}{os.linesep}")


class _Passing(logging.Handler):
    """Passes messages on: errors to ``.error``, all else to ``.info``."""

    def __init__(self, target: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.target = target

    def emit(self, record: logging.LogRecord) -> None:
        tell = self.target.error if record.levelno >= logging.ERROR else self.target.info
        tell(self.format(record))


def set_logging(logging_module: object = None) -> None:
    """Where messages go: to the module ``logging``, where the library's logger is ``"reverie"``.

    Or to the functions ``error`` and ``info`` of another object. None: to stdout.
    """
    if logging_module is None:
        handler: logging.Handler | None = _Stdout()
    elif logging_module is logging:
        handler = None
    elif hasattr(logging_module, "error") and hasattr(logging_module, "info"):
        handler = _Passing(logging_module)
    else:
        raise UnsupportedTypeError(
            f"logging_module is {_checks.shown(logging_module)}; it must be the module logging, or "
            "have functions error and info"
        )
    logger = logging.getLogger("reverie")
    if DEFAULTS.handler is not None:
        logger.removeHandler(DEFAULTS.handler)
    DEFAULTS.handler = handler
    if handler is not None:
        logger.addHandler(handler)


def set_max_threads(count: int) -> None:
    """How many handlers and callbacks of an Rpc run at the same time: of those there are, too."""
    DEFAULTS.max_threads = _checks.integer("count", count, 1, 1024)
    for made in list(rpcs):
        made._pool.set_threads_max(DEFAULTS.max_threads)  # it may be closed
