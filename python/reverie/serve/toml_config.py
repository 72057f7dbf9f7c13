"""A server in TOML: every argument of ``reverie.Server`` and ``reverie.Table``.

See docs/serve.md for the fields. What is not known, or has another type or range than it must, is
refused with the line that it stands on.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import reverie
from reverie import extensions, rate_limiters, selectors
from reverie.errors import InvalidArgumentError, MissingPackageError, ReverieError
from reverie.serve.config import ServerConfig
from reverie.server import ServerLimits
from reverie.specs import TensorSpec
from reverie.table import Table
from reverie.tls import ServerTls

_Path: TypeAlias = tuple[str | int, ...]
_NEEDED: Any = object()
_PARSES_MAX = 300  # to find a line for a message
_SHOWN_MAX = 40


class _RefusedError(InvalidArgumentError):
    """Says already where it is."""


class _Kind(NamedTuple):
    """A selector, limiter or extension: what makes it, and of which fields."""

    make: Callable[..., Any]
    fields: Mapping[str, tuple[type, ...]] = {}
    needed: tuple[str, ...] = ()


_INTEGER = (int,)
_NUMBER = (int, float)
_SEED = {"seed": _INTEGER}
_SELECTORS = {
    "fifo": _Kind(selectors.Fifo),
    "lifo": _Kind(selectors.Lifo),
    "uniform": _Kind(selectors.Uniform, _SEED),
    "prioritized": _Kind(
        selectors.Prioritized, {"priority_exponent": _NUMBER, **_SEED}, ("priority_exponent",)
    ),
    "min_heap": _Kind(selectors.MinHeap),
    "max_heap": _Kind(selectors.MaxHeap),
}
_LIMITERS = {
    "min_size": _Kind(
        rate_limiters.MinSize, {"min_size_to_sample": _INTEGER}, ("min_size_to_sample",)
    ),
    "sample_to_insert_ratio": _Kind(
        rate_limiters.SampleToInsertRatio,
        {
            "samples_per_insert": _NUMBER,
            "min_size_to_sample": _INTEGER,
            "error_buffer": (int, float, list),
        },
        ("samples_per_insert", "min_size_to_sample", "error_buffer"),
    ),
    "queue": _Kind(rate_limiters.Queue, {"size": _INTEGER}, ("size",)),
    "stack": _Kind(rate_limiters.Stack, {"size": _INTEGER}, ("size",)),
    "bounds": _Kind(
        rate_limiters.RateLimiter,
        {
            "samples_per_insert": _NUMBER,
            "min_size_to_sample": _INTEGER,
            "min_diff": _NUMBER,
            "max_diff": _NUMBER,
        },
        ("samples_per_insert", "min_size_to_sample", "min_diff", "max_diff"),
    ),
}
_EXTENSIONS = {
    "statistics": _Kind(extensions.Statistics),
    "priority_diffusion": _Kind(
        extensions.PriorityDiffusion, {"radius": _INTEGER, "decay": _NUMBER}
    ),
}
_WORDS = {
    bool: "true or false",
    dict: "a table",
    float: "a number",
    int: "an integer",
    list: "an array",
    str: "a string",
}


def read(text: str, source: str) -> ServerConfig:
    """The server that ``text`` describes.

    Args:
        text: TOML.
        source: the file's name, for messages; relative names in ``text`` are those of its folder
            where it is a file.

    Raises:
        InvalidArgumentError: it describes none; the message says where, and what would.
        MissingPackageError: a Python older than 3.11, without the package tomli.
    """
    return _Document(text, source).server()


class _Document:
    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._folder = Path(source).parent if Path(source).is_file() else Path()
        self._loads = _toml_reader()
        try:
            self._values = self._loads(text)
        except RecursionError:
            raise InvalidArgumentError(f"{source}: nested too deeply; two levels do") from None
        except ValueError as error:
            at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
            what = str(error)[: at.start()] if at else str(error)
            where = f":{at[1] or text.count(chr(10)) + 1}" if at else ""
            raise InvalidArgumentError(f"{source}{where}: no TOML: {what}") from None

    def server(self) -> ServerConfig:
        top = _Section(self, self._values, ())
        for name in top.take_list("plugins", str):
            self._load_plugin(name)
        tables = []
        names: set[str] = set()
        for index, _ in enumerate(top.take_list("tables", dict)):
            path: _Path = ("tables", index)
            table = self._table(_Section(self, self._values["tables"][index], path))
            if table.name in names:
                self.fail((*path, "name"), f"there is a table '{table.name}' already")
            names.add(table.name)
            tables.append(table)
        if not tables:
            self.fail((), "no [[tables]]; a server needs at least one")
        config = ServerConfig(
            tuple(tables),
            host=top.take("host", str, "localhost"),
            port=top.take("port", int, None, least=0, most=2**16 - 1),
            token_file=self.path(top.take("token_file", str, None)),
            tls=self._tls(top.section("tls")),
            insecure=top.take("insecure", bool, False),
            max_bytes=top.take("max_bytes", int, None, least=1),
            limits=self._limits(top.section("limits")),
        )
        top.end()
        return config

    def path(self, name: str | None) -> Path | None:
        """A file beside this one."""
        return None if name is None else self._folder / name

    def _load_plugin(self, name: str) -> None:
        try:
            reverie.load_plugin(str(self._folder / name))
        except ReverieError as error:
            self.fail(("plugins",), str(error))

    def _tls(self, section: _Section | None) -> ServerTls | None:
        if section is None:
            return None
        certificate = self.path(section.take("certificate", str))
        key = self.path(section.take("key", str))
        authorities = self.path(section.take("client_authorities", str, None))
        section.end()
        assert certificate is not None
        assert key is not None
        return ServerTls(certificate, key, authorities)

    def _limits(self, section: _Section | None) -> ServerLimits:
        if section is None:
            return ServerLimits()
        given = {
            name: section.take(name, int, default, least=1)
            for name, default in ServerLimits()._asdict().items()
        }
        section.end()
        try:
            return ServerLimits(**given).checked()
        except ReverieError as error:
            self.fail(("limits",), str(error))

    def _table(self, section: _Section) -> Table:
        name = section.take("name", str)
        kind = section.take("kind", str, "table")
        most = section.take("max_size", int, least=1)
        extras = [
            self._component(section, ("extensions", index), value, _EXTENSIONS, extensions.Custom)
            for index, value in enumerate(section.take_list("extensions", str, dict))
        ]
        signature = section.take("signature", dict, None)
        nest = None if signature is None else self._nest(signature, (*section.path, "signature"))
        try:
            if kind in ("queue", "stack"):
                section.end()
                make = Table.queue if kind == "queue" else Table.stack
                return make(name, most, extras, nest)
            if kind != "table":
                self.fail(
                    (*section.path, "kind"),
                    f"kind is {kind!r}; it must be 'table', 'queue' or 'stack'",
                )
            table = Table(
                name,
                self._one(section, "sampler", _SELECTORS, selectors.Custom),
                self._one(section, "remover", _SELECTORS, selectors.Custom),
                most,
                self._one(section, "rate_limiter", _LIMITERS, None),
                section.take("max_times_sampled", int, 0),
                extras,
                nest,
                max_bytes=section.take("max_bytes", int, None, least=1),
            )
        except _RefusedError:
            raise
        except ReverieError as error:
            self.fail(section.path, str(error))
        section.end()
        return table

    def _one(
        self,
        section: _Section,
        name: str,
        kinds: Mapping[str, _Kind],
        custom: Callable[..., Any] | None,
    ) -> Any:  # noqa: ANN401
        return self._component(section, (name,), section.take(name, (str, dict)), kinds, custom)

    def _component(
        self,
        section: _Section,
        place: _Path,
        value: str | dict[str, Any],
        kinds: Mapping[str, _Kind],
        custom: Callable[..., Any] | None,
    ) -> Any:  # noqa: ANN401
        path = (*section.path, *place)
        fields = _Section(self, {"kind": value} if isinstance(value, str) else value, path)
        kind = fields.take("kind", str)
        if kind == "custom" and custom is not None:
            name = fields.take("name", str)
            options = fields.take("options", dict, {})
            fields.end()
            return self._made(path, custom, {"name": name, **options})
        if kind not in kinds:
            known = [*kinds, *(["custom"] if custom is not None else [])]
            self.fail(path, f"kind is {kind!r}; {_hint(kind, known)}")
        given = {
            name: fields.take(name, types, None if name not in kinds[kind].needed else _NEEDED)
            for name, types in kinds[kind].fields.items()
        }
        fields.end()
        options = {name: option for name, option in given.items() if option is not None}
        if isinstance(options.get("error_buffer"), list):
            options["error_buffer"] = self._pair(path, options["error_buffer"])
        return self._made(path, kinds[kind].make, options)

    def _pair(self, path: _Path, values: list[Any]) -> tuple[float, float]:
        if len(values) != 2 or any(type(value) not in _NUMBER for value in values):
            self.fail(
                (*path, "error_buffer"),
                f"error_buffer is {_shown(values)}; it must be a number or two",
            )
        return float(values[0]), float(values[1])

    def _made(self, path: _Path, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:  # noqa: ANN401
        try:
            return make(**options)
        except ReverieError as error:
            self.fail(path, str(error))

    def _nest(self, value: Any, path: _Path) -> Any:  # noqa: ANN401
        if isinstance(value, list):
            return [self._nest(each, (*path, index)) for index, each in enumerate(value)]
        if not isinstance(value, dict):
            self.fail(
                path,
                f"{_shown(value)} is no part of a signature; its leaves are "
                '{ shape = [3], dtype = "float32" }',
            )
        if set(value) != {"shape", "dtype"}:
            return {key: self._nest(each, (*path, key)) for key, each in value.items()}
        leaf = _Section(self, value, path)
        shape = leaf.take_list("shape", int)
        return self._made(path, TensorSpec, {"shape": shape, "dtype": leaf.take("dtype", str)})

    def fail(self, path: _Path, what: str) -> NoReturn:
        line = self._line_of(path)
        where = f"{self._source}:{line}" if line else self._source
        named = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        raise _RefusedError(f"{where}: {named.lstrip('.')}{': ' if named else ''}{what}")

    def _line_of(self, path: _Path) -> int | None:
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


class _Section:
    """A table of the document, whose fields are taken one by one."""

    def __init__(self, document: _Document, values: dict[str, Any], path: _Path) -> None:
        self.path = path
        self._document = document
        self._values = values
        self._known: list[str] = []

    def take(
        self,
        name: str,
        types: type | tuple[type, ...],
        default: Any = _NEEDED,  # noqa: ANN401
        *,
        least: int | None = None,
        most: int | None = None,
    ) -> Any:  # noqa: ANN401
        """The value of a field, or ``default`` where there is none."""
        self._known.append(name)
        if name not in self._values:
            if default is _NEEDED:
                self._document.fail(self.path, f"there is no '{name}'; it must be given")
            return default
        value = self._values[name]
        path = (*self.path, name)
        allowed = types if isinstance(types, tuple) else (types,)
        if type(value) not in allowed:
            words = " or ".join(_WORDS[kind] for kind in allowed)
            self._document.fail(path, f"{name} is {_shown(value)}; it must be {words}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            self._document.fail(path, f"{name} is {_shown(value)}; the bound is 64 bits")
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
                    (*self.path, name, index), f"it is {_shown(value)}; it must be {words}"
                )
        return values

    def section(self, name: str) -> _Section | None:
        """The table of that name, if there is one."""
        values = self.take(name, dict, None)
        return None if values is None else _Section(self._document, values, (*self.path, name))

    def end(self) -> None:
        """Refuses the fields that nobody took."""
        for name in self._values:
            if name not in self._known:
                self._document.fail(
                    (*self.path, name), f"there is no field '{name}'; {_hint(name, self._known)}"
                )


def _has(document: Any, path: _Path) -> bool:  # noqa: ANN401
    for part in path:
        if isinstance(document, dict):
            if part not in document:
                return False
        elif not isinstance(document, list) or not isinstance(part, int) or part >= len(document):
            return False
        document = document[part]
    return True


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def _toml_reader() -> Callable[[str], dict[str, Any]]:
    """From Python 3.11 on the standard library's, else that of which it was made."""
    for name in ("tomllib", "tomli"):
        if importlib.util.find_spec(name) is not None:
            loads: Callable[[str], dict[str, Any]] = importlib.import_module(name).loads
            return loads
    raise MissingPackageError(
        "this Python reads no TOML; use 3.11 or newer, pip install tomli, or write the "
        "configuration as a text proto"
    )
