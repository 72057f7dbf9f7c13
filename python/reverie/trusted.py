"""Objects of Python between a program and its own worker processes: the only file that pickles.

Unpickling runs code. So nothing here reads a file or a socket that others can reach: what is
written by ``dumps`` is read by ``loads`` in a child that this program started, or comes back from
it through memory that the two share and nobody else has. Pools use it where a program asks for
what names and plain values cannot say: a lambda as an environment, the info dicts and attributes of
Gymnasium's vector environments.
"""

from __future__ import annotations

import importlib
import pickle
from typing import Any

from reverie.errors import MissingPackageError, UnsupportedTypeError

__all__ = ["dumps", "dumps_code", "loads"]

loads = pickle.loads


def dumps_code(value: object, what: str) -> bytes:
    """A function, class or object as its definition, so that it need not be importable.

    Args:
        value: what is to travel.
        what: it is, for the error: ``"env"``.

    Raises:
        MissingPackageError: cloudpickle is not installed.
        UnsupportedTypeError: it holds something that cannot travel, such as a lock or a socket.
    """
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"{what} has no name that a worker could import, and travels by its definition with "
            "cloudpickle alone: pip install 'reverie[closures]', or use backend=\"thread\""
        ) from None
    try:
        data: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # each type raises what it likes
        raise UnsupportedTypeError(
            f"{what} cannot travel to a worker process: {error}; make what it holds inside of it, "
            'or use backend="thread"'
        ) from error
    return data


def dumps(value: object, what: str) -> bytes:
    """A value, by pickle; by its definition where pickle cannot name its class."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # each type raises what it likes
        return dumps_code(value, what)


def load_text(text: str) -> Any:  # noqa: ANN401
    """What ``text_of_code`` made."""
    import base64

    return loads(base64.b85decode(text))


def text_of_code(value: object, what: str) -> str:
    """``dumps_code`` as text, for a message."""
    import base64

    return base64.b85encode(dumps_code(value, what)).decode()
