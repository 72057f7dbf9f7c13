"""Reverb's ``ReverbServerConfig`` as text, the way its ``reverb_server`` takes it.

Reads what that reads, and refuses what that would stumble over: unknown fields, fields given twice,
numbers out of the range of their type. Differs: a field that it ignores (``signature`` and the
counts of a checkpoint) gives a warning, a heap may be named for tables as well as the other
selectors, and a limiter that would deadlock is refused here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

from reverie import rate_limiters, selectors
from reverie.errors import InvalidArgumentError, ReverieError
from reverie.serve import text_proto
from reverie.serve.config import ServerConfig
from reverie.serve.text_proto import Field, Message, Word
from reverie.table import Table

_Scalar: TypeAlias = Callable[[Field], Any]  # raises ValueError with what would do


class _Checked(NamedTuple):
    """A field whose value is what the schema asks for."""

    name: str
    value: Any
    line: int


_Schema: TypeAlias = "Mapping[str, _Scalar | _Schema | None]"

_TRUE = ("true", "True", "t", "1")
_FALSE = ("false", "False", "f", "0")


def _integer(bits: int) -> _Scalar:
    def read(field: Field) -> int:
        limit = 1 << (bits - 1)
        if not isinstance(field.value, int) or not -limit <= field.value < limit:
            raise ValueError(f"it must be an integer of {bits} bits")
        return field.value

    return read


def _number(field: Field) -> float:
    if not isinstance(field.value, int | float):
        raise ValueError("it must be a number")
    return float(field.value)


def _text(field: Field) -> str:
    if not isinstance(field.value, str):
        raise ValueError("it must be a string in quotes")
    return field.value


def _bool(field: Field) -> bool:
    if isinstance(field.value, Word | int) and str(field.value) in _TRUE + _FALSE:
        return str(field.value) in _TRUE
    raise ValueError("it must be true or false")


# None: known, but without meaning for a server that starts empty.
_SELECTOR: _Schema = {
    "fifo": _bool,
    "uniform": _bool,
    "prioritized": {"priority_exponent": _number},
    "heap": {"min_heap": _bool},
    "lifo": _bool,
    "is_deterministic": None,
}
_LIMITER: _Schema = {
    "samples_per_insert": _number,
    "min_diff": _number,
    "max_diff": _number,
    "min_size_to_sample": _integer(64),
    "sample_count": None,
    "insert_count": None,
    "delete_count": None,
}
_TABLE: _Schema = {
    "table_name": _text,
    "sampler": _SELECTOR,
    "remover": _SELECTOR,
    "max_size": _integer(64),
    "max_times_sampled": _integer(32),
    "rate_limiter": _LIMITER,
    "signature": None,
    "deprecated_items": None,
    "num_deleted_episodes": None,
    "num_unique_samples": None,
}
_SERVER: _Schema = {"tables": _TABLE, "port": _integer(32)}
_REPEATED = ("tables", "deprecated_items")


def read(text: str, source: str) -> ServerConfig:
    """The server that ``text`` describes.

    Args:
        text: a ``ReverbServerConfig`` in protobuf's text format.
        source: the file's name, for messages.

    Raises:
        InvalidArgumentError: it describes none; the message says where, and what would.
    """
    return _Reader(source).server(text_proto.read(text, source))


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._remarks: list[str] = []

    def server(self, message: Message) -> ServerConfig:
        fields = self._fields(message, _SERVER, "the configuration")
        tables = [field for field in message.fields if field.name == "tables"]
        if not tables:
            raise InvalidArgumentError(f"{self._source}: no tables; a server needs at least one")
        names: dict[str, int] = {}
        made = []
        for field in tables:
            table = self._table(field)
            if table.name in names:
                self._fail(
                    field.line,
                    f"table '{table.name}' is on line {names[table.name]} already; each name "
                    "must be unique",
                )
            names[table.name] = field.line
            made.append(table)
        port = fields.get("port")
        if port is not None and not 0 <= port.value < 2**16:
            self._fail(port.line, f"port is {port.value}; it must be between 0 and 65535")
        number = None if port is None else port.value or None  # 0 is what is not given
        return ServerConfig(tuple(made), port=number, remarks=tuple(self._remarks))

    def _table(self, at: Field) -> Table:
        assert isinstance(at.value, Message)
        fields = self._fields(at.value, _TABLE, "a table")
        for name in ("table_name", "sampler", "remover", "max_size", "rate_limiter"):
            if name not in fields:
                self._fail(at.line, f"a table lacks '{name}'")
        limiter = fields["rate_limiter"]
        numbers = self._fields(limiter.value, _LIMITER, "rate_limiter")
        for name in ("samples_per_insert", "min_size_to_sample", "min_diff", "max_diff"):
            if name not in numbers:
                self._fail(limiter.line, f"rate_limiter lacks '{name}'")
        sampler = self._selector(fields["sampler"])
        remover = self._selector(fields["remover"])
        try:
            made = rate_limiters.RateLimiter(
                **{name: field.value for name, field in numbers.items() if _LIMITER[name]}
            )
        except ReverieError as error:
            self._fail(limiter.line, f"rate_limiter: {error}")
        times = fields.get("max_times_sampled")
        try:
            return Table(
                fields["table_name"].value,
                sampler,
                remover,
                fields["max_size"].value,
                made,
                0 if times is None else times.value,
            )
        except ReverieError as error:
            self._fail(at.line, str(error))

    def _selector(self, at: _Checked) -> selectors.Selector:
        assert isinstance(at.value, Message)
        fields = self._fields(at.value, _SELECTOR, at.name)
        kinds = [field for name, field in fields.items() if name != "is_deterministic"]
        if len(kinds) != 1:
            found = ", ".join(field.name for field in kinds) or "none"
            self._fail(
                at.line,
                f"{at.name} names {found}; give it one of fifo, lifo, uniform, heap, prioritized",
            )
        (kind,) = kinds
        if kind.value is False:
            self._fail(kind.line, f"{at.name}.{kind.name} is false; it must be true, or absent")
        if kind.name == "prioritized":
            options = self._fields(kind.value, _SELECTOR["prioritized"], kind.name)
            exponent = options["priority_exponent"].value if options else 0.0
            try:
                return selectors.Prioritized(exponent)
            except ReverieError as error:
                self._fail(kind.line, f"{at.name}: {error}")
        if kind.name == "heap":
            options = self._fields(kind.value, _SELECTOR["heap"], kind.name)
            is_min = "min_heap" in options and options["min_heap"].value
            return selectors.MinHeap() if is_min else selectors.MaxHeap()
        plain: dict[str, type[selectors.Selector]] = {
            "fifo": selectors.Fifo,
            "lifo": selectors.Lifo,
            "uniform": selectors.Uniform,
        }
        return plain[kind.name]()

    def _fields(self, message: Any, schema: Any, where: str) -> dict[str, _Checked]:  # noqa: ANN401
        """The fields by name, their values checked and converted; of repeated ones the last."""
        found: dict[str, _Checked] = {}
        for field in message.fields:
            name = field.name
            if name not in schema:
                near = difflib.get_close_matches(name, schema, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(schema)}"
                self._fail(field.line, f"{where} has no field '{name}'; {hint}")
            if name in found and name not in _REPEATED:
                self._fail(
                    field.line, f"'{name}' is given twice, here and on line {found[name].line}"
                )
            if field.is_element and name not in _REPEATED:
                self._fail(field.line, f"'{name}' is a list; it must be a single value")
            found[name] = self._checked(field, schema[name])
        return found

    def _checked(self, field: Field, kind: Any) -> _Checked:  # noqa: ANN401
        if kind is None:
            remark = f"{self._source}:{field.line}: '{field.name}' means nothing here; left out"
            if field.name != "is_deterministic":
                self._remarks.append(remark)
            return _Checked(field.name, field.value, field.line)
        if isinstance(kind, Mapping):
            if not isinstance(field.value, Message):
                self._fail(
                    field.line,
                    f"{field.name} is {_shown(field)}; it must be a message in braces",
                )
            return _Checked(field.name, field.value, field.line)
        if isinstance(field.value, Message):
            self._fail(field.line, f"{field.name} is a message; it must be a single value")
        try:
            return _Checked(field.name, kind(field), field.line)
        except ValueError as error:
            self._fail(field.line, f"{field.name} is {_shown(field)}; {error}")

    def _fail(self, line: int, what: str) -> NoReturn:
        raise InvalidArgumentError(f"{self._source}:{line}: {what}")


def _shown(field: Field) -> str:
    text = str(field.value) if isinstance(field.value, Word) else repr(field.value)
    return text if len(text) <= 40 else text[:40] + "..."
