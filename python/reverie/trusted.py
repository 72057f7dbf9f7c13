"""Objects of Python between processes that trust each other: the only file that pickles.

Unpickling runs code. So nothing here reads a file or a socket that others can reach: what is
written by ``dumps`` is read by ``loads`` in a child that this program started, or comes back from
it through memory that only the two share. Pools use it where a program asks for
what names and plain values cannot say: a lambda as an environment, the info dicts and attributes of
Gymnasium's vector environments. Peers use it where both say ``allow_pickle=True``, and only with
others that have proved that they have the same token.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from reverie.errors import MissingPackageError, UnsupportedTypeError

__all__ = ["dumps", "dumps_code", "dumps_sent", "loads"]

loads = pickle.loads

# Modules that are registered with cloudpickle by calls in progress, and by how many.
_registered: Counter[str] = Counter()
_registered_lock = threading.Lock()  # not held while an object is pickled, which runs its code


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
            f"{what} has no name that a worker could import, and its definition is sent "
            "only by cloudpickle: pip install 'reverie[closures]', or use "
            'backend="thread"'
        ) from None
    try:
        with _by_value(cloudpickle, value):
            data: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # each type raises what it likes
        raise UnsupportedTypeError(
            f"{what} cannot travel to a worker process: {error}; make what it holds inside of it, "
            'or use backend="thread"'
        ) from error
    return data


@contextlib.contextmanager
def _by_value(cloudpickle: Any, value: object) -> Iterator[None]:  # noqa: ANN401
    """Takes the definitions of a module along that a worker could not import by its name."""
    name = getattr(value, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    # cloudpickle itself takes the main program's along.
    if module is None or module.__name__ == "__main__" or _can_be_imported(module.__name__):
        yield
        return
    is_ours = _register(cloudpickle, module)
    try:
        yield
    finally:
        if is_ours:
            _unregister(cloudpickle, module)


def _register(cloudpickle: Any, module: ModuleType) -> bool:  # noqa: ANN401
    """False, with no effect, for a module that the program has registered itself."""
    name = module.__name__
    with _registered_lock:
        if not _registered[name]:
            if name in cloudpickle.list_registry_pickle_by_value():
                return False
            cloudpickle.register_pickle_by_value(module)
        _registered[name] += 1
    return True


def _unregister(cloudpickle: Any, module: ModuleType) -> None:  # noqa: ANN401
    """With the last call that registered it, unless the program has unregistered it meanwhile."""
    name = module.__name__
    with _registered_lock:
        _registered[name] -= 1
        if _registered[name]:
            return
        del _registered[name]
        if name in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(module)


def _can_be_imported(name: str) -> bool:
    """Whether a fresh interpreter with this one's ``sys.path`` finds the module's package."""
    top = name.partition(".")[0]
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    return any(finder.find_spec(top, None) is not None for finder in finders)


def dumps(value: object, what: str) -> bytes:
    """A value, by pickle; by its definition where pickle cannot name its class."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # each type raises what it likes
        return dumps_code(value, what)


def dumps_sent(value: object, what: str) -> bytes:
    """A value for another peer, which imports its class by name.

    Raises:
        UnsupportedTypeError: it cannot be pickled; the message names ``what`` holds it.
    """
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # each type raises what it likes
        raise UnsupportedTypeError(
            f"{what} holds a {type(value).__name__}, which cannot be pickled: {error}"
        ) from error


def load_text(text: str) -> Any:  # noqa: ANN401
    """What ``text_of_code`` made."""
    import base64

    return loads(base64.b64decode(text))


def text_of_code(value: object, what: str) -> str:
    """``dumps_code`` as text, for a message."""
    import base64

    return base64.b64encode(dumps_code(value, what)).decode()
