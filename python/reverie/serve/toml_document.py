"""TOML, taken field by field: what is unknown, or of another type or range, is refused by line."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from reverie.errors import InvalidArgumentError, MissingPackageError

Place: TypeAlias = tuple[str | int, ...]
"""Where a value is: names of fields, and numbers of elements."""

NEEDED: Any = object()
"""In the place of a default: the field must be given."""
_PARSES_MAX = 300  # to find a line for a message
_SHOWN_MAX = 40
_WORDS = {
    bool: "true or false",
    dict: "a table",
    float: "a number",
    int: "an integer",
    list: "an array",
    str: "a string",
}


class RefusedError(InvalidArgumentError):
    """Says already where it is."""


class Document:
    """A text, its values, and where they stand.

    Args:
        text: TOML.
        source: the file's name, for messages.

    Raises:
        InvalidArgumentError: it is not TOML.
        MissingPackageError: a Python older than 3.11, without the package tomli.
    """

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._folder = Path(source).parent if Path(source).is_file() else Path()
        self._loads = toml_reader()
        try:
            self._values = self._loads(text)
        except RecursionError:
            raise InvalidArgumentError(
                f"{source}: nested too deeply; two levels are enough"
            ) from None
        except ValueError as error:
            at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
            what = str(error)[: at.start()] if at else str(error)
            where = f":{at[1] or text.count(chr(10)) + 1}" if at else ""
            raise InvalidArgumentError(f"{source}{where}: no TOML: {what}") from None

    @property
    def top(self) -> Section:
        """The table that holds all."""
        return Section(self, self._values, ())

    def path(self, name: str) -> Path:
        """A file whose name is relative to this one."""
        return self._folder / name

    def fail(self, path: Place, what: str) -> NoReturn:
        """Refuses what is at ``path``."""
        line = self._line_of(path)
        where = f"{self._source}:{line}" if line else self._source
        named = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        raise RefusedError(f"{where}: {named.lstrip('.')}{': ' if named else ''}{what}")

    def _line_of(self, path: Place) -> int | None:
        """The line on which the value of ``path``, or else what holds it, begins.

        The reader of TOML tells no lines. But a document that is cut off behind a line is one
        again, unless the line lies within a value: the first line that names the key, and has the
        path in the document up to there, is the one.
        """
        lines = self._text.split("\n")
        tries_left = _PARSES_MAX
        while path:
            key = next(part for part in reversed(path) if isinstance(part, str))
            for index, line in enumerate(lines):
                if key not in line:
                    continue
                for end in range(index + 1, len(lines) + 1):
                    if tries_left == 0:
                        return None
                    tries_left -= 1
                    document = self._parsed("\n".join(lines[:end]))
                    if document is not None:
                        if _has(document, path):
                            return index + 1
                        break
            path = path[:-1]
        return None

    def _parsed(self, text: str) -> dict[str, Any] | None:
        try:
            return self._loads(text)
        except ValueError:
            return None


class Section:
    """A table of the document, whose fields are taken one by one."""

    def __init__(self, document: Document, values: dict[str, Any], path: Place) -> None:
        self.path = path
        self._document = document
        self._values = values
        self._known: list[str] = []

    def take(
        self,
        name: str,
        types: type | tuple[type, ...],
        default: Any = NEEDED,  # noqa: ANN401
        *,
        least: int | None = None,
        most: int | None = None,
    ) -> Any:  # noqa: ANN401
        """The value of a field, or ``default`` without one."""
        self._known.append(name)
        if name not in self._values:
            if default is NEEDED:
                self._document.fail(self.path, f"there is no '{name}'; it must be given")
            return default
        value = self._values[name]
        path = (*self.path, name)
        allowed = types if isinstance(types, tuple) else (types,)
        if type(value) not in allowed:
            words = " or ".join(_WORDS[kind] for kind in allowed)
            self._document.fail(path, f"{name} is {shown(value)}; it must be {words}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            self._document.fail(path, f"{name} is {shown(value)}; the bound is 64 bits")
        if least is not None and value < least:
            self._document.fail(path, f"{name} is {value}; it must be at least {least}")
        if most is not None and value > most:
            self._document.fail(path, f"{name} is {value}; it must be at most {most}")
        return value

    def take_list(self, name: str, *types: type) -> list[Any]:
        """The elements of an array, all of ``types``; none where it is not given."""
        values: list[Any] = self.take(name, list, [])
        for index, value in enumerate(values):
            if type(value) not in types:
                words = " or ".join(_WORDS[kind] for kind in types)
                self._document.fail(
                    (*self.path, name, index), f"it is {shown(value)}; it must be {words}"
                )
        return values

    def section(self, name: str) -> Section | None:
        """The table of that name, if there is one."""
        values = self.take(name, dict, None)
        return None if values is None else Section(self._document, values, (*self.path, name))

    def end(self) -> None:
        """Refuses the fields that were not read."""
        for name in self._values:
            if name not in self._known:
                self._document.fail(
                    (*self.path, name), f"there is no field '{name}'; {hint(name, self._known)}"
                )


def _has(document: Any, path: Place) -> bool:  # noqa: ANN401
    for part in path:
        if isinstance(document, dict):
            if part not in document:
                return False
        elif not isinstance(document, list) or not isinstance(part, int) or part >= len(document):
            return False
        document = document[part]
    return True


def hint(name: str, known: Sequence[str]) -> str:
    """What ``name`` may have meant."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"


def shown(value: object) -> str:
    """A value as a message quotes it."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def toml_reader() -> Callable[[str], dict[str, Any]]:
    """From Python 3.11 on the standard library's, else that of which it was made."""
    for name in ("tomllib", "tomli"):
        if importlib.util.find_spec(name) is not None:
            loads: Callable[[str], dict[str, Any]] = importlib.import_module(name).loads
            return loads
    raise MissingPackageError(
        "this Python reads no TOML; use 3.11 or newer, pip install tomli, or write the "
        "configuration as a text proto"
    )
