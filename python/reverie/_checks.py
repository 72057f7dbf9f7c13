"""Arguments, checked where they come in, so that a message names them.

Each function gives the value in the type that was asked for. What it raises says which argument,
what it is and what it must be: ``UnsupportedTypeError`` for a wrong type, ``InvalidArgumentError``
for a wrong value.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from reverie.errors import InvalidArgumentError, UnsupportedTypeError

_Kind = TypeVar("_Kind")
_SHOWN_MAX = 120  # characters of a value
INT64_MAX = 2**63 - 1
ITEMS_MAX = 1 << 24  # of a list
MEMORY_BYTES_MIN = 16 << 20  # of what may be in memory, of a store or a table


def shown(value: object) -> str:
    """``repr(value)``, cut short; its type where it has none."""
    try:
        text = repr(value)
    except Exception:  # what a message shows must not raise
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def integer(name: str, value: object, least: int = 1, most: int = INT64_MAX) -> int:
    """An integer in [least, most]: a Python or NumPy one, but no bool."""
    bound = _bound(least, most)
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be an integer {bound}")
    try:
        given = operator.index(value)
    except Exception as error:  # an array of several elements, a masked one, what a class raises
        raise UnsupportedTypeError(
            f"{name} is {shown(value)}; it must be an integer {bound}"
        ) from error
    if not least <= given <= most:
        raise InvalidArgumentError(f"{name} is {shown(given)}; it must be an integer {bound}")
    return given


def number(
    name: str,
    value: object,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: float = -math.inf,
    finite: bool = True,
    remedy: str = "",
) -> float:
    """A number in [least, most] and greater than ``above``; finite unless ``finite`` is false."""
    parts = ["finite"] if finite and most == math.inf else []
    parts += [f">= {least:g}"] if least > -math.inf and least >= above else []
    parts += [f"> {above:g}"] if above > -math.inf and above >= least else []
    parts += [f"at most {most:g}"] if most < math.inf else []
    bound = " and ".join(parts) + remedy
    wrong_type = UnsupportedTypeError(
        f"{name} is {shown(value)}; it must be a number{f', {bound}' if bound else ''}"
    )
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise wrong_type
    try:
        given = float(value)  # type: ignore[arg-type]
    except OverflowError:
        given = math.inf
    except Exception as error:  # an array of several elements, a masked one, what a class raises
        raise wrong_type from error
    if math.isnan(given) or (finite and math.isinf(given)) or not least <= given <= most:
        raise InvalidArgumentError(f"{name} is {shown(value)}; it must be {bound or 'a number'}")
    if above > -math.inf and not given > above:
        raise InvalidArgumentError(f"{name} is {shown(value)}; it must be {bound}")
    return given


def timeout(name: str, value: object) -> float | None:
    """Seconds to wait: at least 0 (now or never), or None to wait without limit."""
    if value is None:
        return None
    remedy = " (now or never), or None to wait without limit"
    return number(name, value, 0.0, finite=False, remedy=remedy)


def flag(name: str, value: object) -> bool:
    """True or False, of Python or NumPy."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be True or False")


def text(name: str, value: object, example: str = "") -> str:
    """A str that UTF-8 can write."""
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InvalidArgumentError(
                    f"{name} is {shown(value)}; it must be text that UTF-8 can write"
                ) from None
        return value
    such = f" such as {example}" if example else ""
    raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be a str{such}")


def written(name: str, value: object, what: str) -> str:
    """``str(value)``, as of a device or a type; ``what`` it must be."""
    try:
        return str(value)
    except Exception as error:  # an integer longer than Python writes, what a class raises
        raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be {what}") from error


def payload(value: object) -> bytes:
    """The payload of a checkpoint.

    Raises:
        UnsupportedTypeError: it is not bytes.
    """
    if not isinstance(value, bytes):
        raise UnsupportedTypeError(f"payload is {shown(value)}; it must be bytes")
    return value


def path(name: str, value: object) -> str:
    """The name of a file: a str or an ``os.PathLike`` of one."""
    given = value
    if hasattr(value, "__fspath__"):
        given = os.fspath(value)
    if not isinstance(given, str):
        raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be the name of a file")
    if "\0" in given:
        raise InvalidArgumentError(
            f"{name} is {shown(value)}; a path must not contain a NUL; give one without"
        )
    if not given:
        raise InvalidArgumentError(f"{name} is ''; give a path, '.' for the current folder")
    return text(name, given)


def choice(name: str, value: object, choices: Iterable[str]) -> str:
    """One of some words."""
    allowed = tuple(choices)
    if isinstance(value, str) and value in allowed:
        return value
    words = ", ".join(repr(word) for word in allowed)
    error = InvalidArgumentError if isinstance(value, str) else UnsupportedTypeError
    raise error(f"{name} is {shown(value)}; it must be one of {words}")


def instance(
    name: str, value: object, kind: type[_Kind] | tuple[type[_Kind], ...], what: str = ""
) -> _Kind:
    """An object of a class, or of one of several; ``what`` it must be, for people."""
    if isinstance(value, kind):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = " or ".join(f"a {one.__module__}.{one.__name__}" for one in kinds)
    raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be {what or names}")


def function(name: str, value: object, what: str = "a function") -> Callable[..., Any]:
    """Something that can be called."""
    if callable(value):
        return value
    raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be {what}")


def items(name: str, value: object, what: str) -> list[Any]:
    """The elements of an iterable that is neither text nor a mapping; ``what`` it must hold.

    One that never ends is refused.
    """
    if not isinstance(value, (str, bytes, Mapping)) and hasattr(value, "__iter__"):
        try:
            found = list(itertools.islice(value, ITEMS_MAX + 1))
        except TypeError:  # an array without dimensions
            pass
        else:
            if len(found) > ITEMS_MAX:
                raise InvalidArgumentError(
                    f"{name} is {shown(value)}, which has more than {ITEMS_MAX} entries; give a "
                    f"list of {what}"
                )
            return found
    raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be a list of {what}")


def mapping(name: str, value: object, what: str) -> dict[Any, Any]:
    """A dict's entries; ``what`` it must hold."""
    if isinstance(value, Mapping):
        return dict(value)
    raise UnsupportedTypeError(f"{name} is {shown(value)}; it must be a dict of {what}")


def array(name: str, value: object, dtype: type[np.floating[Any]] = np.float32) -> Any:  # noqa: ANN401
    """A contiguous array of real numbers, of a tensor its values."""
    try:
        if not isinstance(value, np.ndarray) and hasattr(value, "detach"):
            value = value.detach().cpu()  # torch's, which may belong to a graph
        given = np.asarray(value)
        if np.iscomplexobj(given):
            raise TypeError("its numbers are complex")
        return np.ascontiguousarray(given, dtype=dtype).reshape(given.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"{name} is {shown(value)}; it must be an array of numbers: {error}"
        ) from None


def no_options(name: str, value: object, what: str) -> None:
    """Refuses any option; None and an empty dict are no options."""
    if value is not None and mapping(name, value, "options"):
        raise InvalidArgumentError(f"{name} is {shown(value)}; {what}")


def _bound(least: int, most: int) -> str:
    if most == INT64_MAX:
        return f">= {least}" if least > -INT64_MAX else "of 64 bits"
    return f"between {least} and {most}"
