"""A server in TOML: every argument of ``reverie.Server`` and ``reverie.Table``.

See docs/serve.md for the fields. What is not known, or has another type or range than it must, is
refused with the line that it stands on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import reverie
from reverie import extensions, rate_limiters, selectors
from reverie._options import CODECS, Codec
from reverie.errors import ReverieError
from reverie.serve.config import ServerConfig
from reverie.serve.toml_document import NEEDED, Document, Place, RefusedError, Section, hint, shown
from reverie.server import ServerLimits
from reverie.specs import TensorSpec
from reverie.table import Table
from reverie.tls import ServerTls


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
    return _Reader(Document(text, source)).server()


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document

    def server(self) -> ServerConfig:
        top = self._document.top
        for name in top.take_list("plugins", str):
            self._load_plugin(name)
        tables = []
        names: set[str] = set()
        for index, values in enumerate(top.take_list("tables", dict)):
            path: Place = ("tables", index)
            table = self._table(Section(self._document, values, path))
            if table.name in names:
                self._document.fail((*path, "name"), f"there is a table '{table.name}' already")
            names.add(table.name)
            tables.append(table)
        if not tables:
            self._document.fail((), "no [[tables]]; a server needs at least one")
        config = ServerConfig(
            tuple(tables),
            host=top.take("host", str, "localhost"),
            port=top.take("port", int, None, least=0, most=2**16 - 1),
            token_file=self._file(top, "token_file", None),
            tls=self._tls(top.section("tls")),
            insecure=top.take("insecure", bool, False),
            unix_path=self._file(top, "unix_path", None),
            max_bytes=top.take("max_bytes", int, None, least=1),
            memory_bytes=top.take("memory_bytes", int, None),
            spill_folder=self._file(top, "spill_folder", None),
            limits=self._limits(top.section("limits")),
            codec=self._codec(top),
            checkpoints=self._file(top, "checkpoints", None),
            checkpoint_every=top.take("checkpoint_every", (int, float), None),
            durability=top.take("durability", str, "none"),
            on_journal_failure=top.take("on_journal_failure", str, "serve"),
            on_mismatch=top.take("on_mismatch", str, "refuse"),
        )
        top.end()
        return config

    def _file(self, section: Section, name: str, *default: None) -> Any:  # noqa: ANN401
        given = section.take(name, str, *default)
        return None if given is None else self._document.path(given)

    def _load_plugin(self, name: str) -> None:
        try:
            reverie.load_plugin(str(self._document.path(name)))
        except ReverieError as error:
            self._document.fail(("plugins",), str(error))

    def _codec(self, top: Section) -> Codec:
        given: Codec = top.take("codec", str, "auto")
        if given not in CODECS:
            self._document.fail(
                ("codec",), f"codec is {given!r}; it must be 'auto', 'raw', 'lz4' or 'zstd'"
            )
        return given

    def _tls(self, section: Section | None) -> ServerTls | None:
        if section is None:
            return None
        certificate = self._file(section, "certificate")
        key = self._file(section, "key")
        authorities = self._file(section, "client_authorities", None)
        section.end()
        return ServerTls(certificate, key, authorities)

    def _limits(self, section: Section | None) -> ServerLimits:
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
            self._document.fail(("limits",), str(error))

    def _table(self, section: Section) -> Table:
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
            durability = section.take("durability", str, None)
            check_items = section.take("check_items", bool, True)
            if kind in ("queue", "stack"):
                section.end()
                make = Table.queue if kind == "queue" else Table.stack
                made = make(name, most, extras, nest)
                return made.replace(durability=durability, check_items=check_items)
            if kind != "table":
                self._document.fail(
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
                memory_bytes=section.take("memory_bytes", int, None),
                durability=durability,
                undo_unsent=section.take("undo_unsent", bool, False),
                check_items=check_items,
            )
        except RefusedError:
            raise
        except ReverieError as error:
            self._document.fail(section.path, str(error))
        section.end()
        return table

    def _one(
        self,
        section: Section,
        name: str,
        kinds: Mapping[str, _Kind],
        custom: Callable[..., Any] | None,
    ) -> Any:  # noqa: ANN401
        return self._component(section, (name,), section.take(name, (str, dict)), kinds, custom)

    def _component(
        self,
        section: Section,
        place: Place,
        value: str | dict[str, Any],
        kinds: Mapping[str, _Kind],
        custom: Callable[..., Any] | None,
    ) -> Any:  # noqa: ANN401
        path = (*section.path, *place)
        fields = Section(self._document, {"kind": value} if isinstance(value, str) else value, path)
        kind = fields.take("kind", str)
        if kind == "custom" and custom is not None:
            name = fields.take("name", str)
            options = fields.take("options", dict, {})
            fields.end()
            return self._made(path, custom, {"name": name, **options})
        if kind not in kinds:
            known = [*kinds, *(["custom"] if custom is not None else [])]
            self._document.fail(path, f"kind is {kind!r}; {hint(kind, known)}")
        given = {
            name: fields.take(name, types, None if name not in kinds[kind].needed else NEEDED)
            for name, types in kinds[kind].fields.items()
        }
        fields.end()
        options = {name: option for name, option in given.items() if option is not None}
        if isinstance(options.get("error_buffer"), list):
            options["error_buffer"] = self._pair(path, options["error_buffer"])
        return self._made(path, kinds[kind].make, options)

    def _pair(self, path: Place, values: list[Any]) -> tuple[float, float]:
        if len(values) != 2 or any(type(value) not in _NUMBER for value in values):
            self._document.fail(
                (*path, "error_buffer"),
                f"error_buffer is {shown(values)}; it must be a number or two",
            )
        return float(values[0]), float(values[1])

    def _made(self, path: Place, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:  # noqa: ANN401
        try:
            return make(**options)
        except ReverieError as error:
            self._document.fail(path, str(error))

    def _nest(self, value: Any, path: Place) -> Any:  # noqa: ANN401
        if isinstance(value, list):
            return [self._nest(each, (*path, index)) for index, each in enumerate(value)]
        if not isinstance(value, dict):
            self._document.fail(
                path,
                f"{shown(value)} is not part of a signature; its leaves are "
                '{ shape = [3], dtype = "float32" }',
            )
        if set(value) != {"shape", "dtype"}:
            return {key: self._nest(each, (*path, key)) for key, each in value.items()}
        leaf = Section(self._document, value, path)
        shape = leaf.take_list("shape", int)
        return self._made(path, TensorSpec, {"shape": shape, "dtype": leaf.take("dtype", str)})
