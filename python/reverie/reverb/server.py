"""Reverb's tables and server: those of ``reverie``, with Reverb's arguments and answers."""

from __future__ import annotations

import abc
import collections
import contextlib
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reverie import _checks, _reverie, server, specs, table
from reverie._options import Durability, OnCorrupt, raises_on_corrupt
from reverie.errors import AlreadyExistsError, InvalidArgumentError
from reverie.extensions import Extension
from reverie.rate_limiters import RateLimiter
from reverie.reverb import item_selectors, rate_limiters, reverb_types
from reverie.reverb._specs import is_spec, shown_signature, signature_message
from reverie.reverb.client import Client
from reverie.reverb.platform.checkpointers_lib import named_place
from reverie.reverb.platform.default import checkpointers
from reverie.selectors import Selector

if TYPE_CHECKING:
    from reverie.external import Files


class TableExtensionBase(metaclass=abc.ABCMeta):
    """What a table may be given besides ``reverie.extensions``: something that makes them."""

    @abc.abstractmethod
    def build_internal_extensions(self, table_name: str) -> Sequence[Extension]:
        """The extensions for a table of that name."""


class Table(table.Table):
    """A set of items, the orders in which they are sampled and evicted, and a rate limiter.

    A ``reverie.Table`` that says what it is in Reverb's words; see there for the arguments.

    Args:
        name: not empty, and unique in its server.
        sampler: which item is sampled.
        remover: which item goes when the table is full.
        max_size: items; >= 1.
        rate_limiter: see ``reverb.rate_limiters``.
        max_times_sampled: an item is removed once it was sampled so often; < 1 for never.
        extensions: from ``reverie.extensions``, or ``TableExtensionBase``.
        signature: a nest of ``TensorSpec``, of TensorFlow's or ours; None for any items. As in
            Reverb clients look at it, and the table does not: what a writer creates with
            ``validate_items=False`` goes in.
        max_bytes: as for ``reverie.Table``, as are ``memory_bytes`` and ``undo_unsent``.
        memory_bytes: see there.
        undo_unsent: see there.

    Raises:
        ValueError: the name is empty, ``max_size`` is below 1, or a leaf of the signature is no
            ``TensorSpec``.
        TypeError: an argument is not a selector, limiter or extension.
    """

    def __init__(
        self,
        name: str,
        sampler: Selector,
        remover: Selector,
        max_size: int,
        rate_limiter: RateLimiter,
        max_times_sampled: int = 0,
        extensions: Sequence[TableExtensionBase | Extension] = (),
        signature: reverb_types.SpecNest | None = None,
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        durability: Durability | None = None,
        undo_unsent: bool = False,
        check_items: bool = False,
    ) -> None:
        if isinstance(name, str) and not name:
            raise InvalidArgumentError("name must be nonempty: a table is spoken of by its name")
        extensions = _checks.items("extensions", extensions, "reverie.extensions.Extension")
        native: list[Extension] = []
        for extension in extensions:
            if hasattr(extension, "build_internal_extensions"):
                native += extension.build_internal_extensions(name)
            else:
                native.append(extension)
        if isinstance(signature, (dict, list, tuple)) and not signature:
            signature = None
        if signature is not None:
            for leaf in _reverie.flatten(signature)[1]:
                if not is_spec(leaf):
                    raise InvalidArgumentError(f"Unsupported signature spec: {_checks.shown(leaf)}")
        super().__init__(
            name,
            sampler,
            remover,
            max_size,
            rate_limiter,
            max_times_sampled,
            native,
            signature,
            max_bytes=max_bytes,
            memory_bytes=memory_bytes,
            durability=durability,
            undo_unsent=undo_unsent,
            check_items=check_items,
        )
        self._given_extensions = tuple(extensions)

    @classmethod
    def queue(
        cls,
        name: str,
        max_size: int,
        extensions: Sequence[TableExtensionBase | Extension] = (),
        signature: reverb_types.SpecNest | None = None,
    ) -> Table:
        """A table whose items are sampled once, in the order of their insertion."""
        _checks.integer("max_size", max_size)
        return cls(
            name,
            item_selectors.Fifo(),
            item_selectors.Fifo(),
            max_size,
            rate_limiters.Queue(max_size),
            1,
            extensions,
            signature,
        )

    @classmethod
    def stack(
        cls,
        name: str,
        max_size: int,
        extensions: Sequence[TableExtensionBase | Extension] = (),
        signature: reverb_types.SpecNest | None = None,
    ) -> Table:
        """A table whose items are sampled once, the newest first."""
        _checks.integer("max_size", max_size)
        return cls(
            name,
            item_selectors.Lifo(),
            item_selectors.Lifo(),
            max_size,
            rate_limiters.Stack(max_size),
            1,
            extensions,
            signature,
        )

    @property
    def info(self) -> reverb_types.TableInfo:  # type: ignore[override]
        """What the table is and how it stands now."""
        native = super().info
        info = reverb_types.table_info(native)
        now = specs.signature_columns(native.signature)
        # Else it is that of the checkpoint which the table was loaded from.
        if now is not None and self._columns is not None and now[0] == self._columns[0]:
            info.signature = shown_signature(self._signature)
        return info

    def _options(self) -> dict[str, Any]:
        return {
            **super()._options(),
            "signature_message": signature_message(self._signature),
        }

    @property
    def internal_table(self) -> Table:
        """The table itself: there is no other."""
        return self

    def replace(
        self,
        name: str | None = None,
        sampler: Selector | None = None,
        remover: Selector | None = None,
        max_size: int | None = None,
        rate_limiter: RateLimiter | None = None,
        max_times_sampled: int | None = None,
        extensions: Sequence[TableExtensionBase | Extension] | None = None,
        signature: reverb_types.SpecNest | None = None,
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        durability: Durability | None = None,
        undo_unsent: bool | None = None,
        check_items: bool | None = None,
    ) -> Table:
        """A new, empty table of the same settings, except those given here."""
        return Table(
            self._name if name is None else name,
            sampler or self._sampler,
            remover or self._remover,
            self._max_size if max_size is None else max_size,
            rate_limiter or self._rate_limiter,
            self._max_times_sampled if max_times_sampled is None else max_times_sampled,
            self._given_extensions if extensions is None else extensions,
            self._signature if signature is None else signature,
            max_bytes=self._max_bytes if max_bytes is None else max_bytes,
            memory_bytes=self._memory_bytes if memory_bytes is None else memory_bytes,
            durability=self._durability if durability is None else durability,
            undo_unsent=self._undo_unsent if undo_unsent is None else undo_unsent,
            check_items=self._check_items if check_items is None else check_items,
        )

    def __repr__(self) -> str:
        extensions = f", extensions={list(self._extensions)}" if self._extensions else ""
        signature = "nullptr" if self._signature is None else repr(self._signature)
        return (
            f"Table(sampler={self._sampler!r}, remover={self._remover!r}, "
            f"max_size={self._max_size}, max_times_sampled={self._max_times_sampled}, "
            f"name={self._name}, rate_limiter={self._rate_limiter!r}{extensions}, "
            f"signature={signature})"
        )


class Server(server.Server):
    """A ``reverie.Server`` with Reverb's arguments. What it takes besides is named.

    Args:
        tables: at least one, of different names.
        port: to listen at; None takes a free one.
        checkpointer: from ``reverb.checkpointers``, or a program's own ``CheckpointerBase``; None
            for a new directory among the temporary files, which is deleted with the server unless
            it has a checkpoint.
        options: those of ``reverie.Server``: ``host``, ``token``, ``tls``, ``insecure`` and the
            others.

    Raises:
        ValueError: no tables, a name twice, a port that is taken, or a checkpointer with a group.
        TypeError: ``checkpointer`` is not a checkpointer.
    """

    def __init__(
        self,
        tables: Sequence[table.Table] | None = None,
        port: int | None = None,
        checkpointer: checkpointers.CheckpointerBase | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        given = () if tables is None else tables
        tables = _checks.items("tables", given, "reverb.Table, such as [table]")
        if not tables:
            raise InvalidArgumentError(
                "At least one table must be provided: tables is empty; a server stores nothing else"
            )
        names = collections.Counter(getattr(one, "name", None) for one in tables)
        repeated = [str(name) for name, count in names.items() if count > 1]
        if repeated:
            raise InvalidArgumentError(
                f"Multiple items in tables have the same name: {', '.join(repeated)}"
            )
        self._checkpointer = named_place(
            checkpointers.default_checkpointer() if checkpointer is None else checkpointer
        )
        if checkpointer is None:
            weakref.finalize(self, _remove_unused, self._checkpointer.path, os.getpid())
        try:
            super().__init__(tables, port, self._checkpointer, **options)
        except AlreadyExistsError as error:  # the port is taken, for which Reverb has a ValueError
            raise InvalidArgumentError(f"Failed to BuildAndStart gRPC server: {error}") from None

    def localhost_client(
        self, *, on_corrupt: OnCorrupt = "remove", files: Files | None = None
    ) -> Client:
        """A client that connects to the server as those of other processes do."""
        return Client(self._local_address, token=self._token, on_corrupt=on_corrupt, files=files)

    def client(self, *, on_corrupt: OnCorrupt = "remove", files: Files | None = None) -> Client:
        """A client within this process: nothing travels."""
        native = self._native.client(raises_on_corrupt(on_corrupt))
        made: Client = Client._embedded(native, self._codec, files)  # type: ignore[assignment]
        return made

    def __repr__(self) -> str:
        return (
            f"Server(port={self.port}, reverb_service=ReverbServiceAsync(tables="
            f"{list(self.tables)}, checkpointer={self._checkpointer}))"
        )


def _remove_unused(directory: str, process: int) -> None:
    """Removes a directory of checkpoints that has none, in the process that made it."""
    if os.getpid() != process:  # a forked child ends; its parent serves on
        return
    with contextlib.suppress(OSError):  # another program removed it first, or may not
        if os.listdir(directory) == ["reverie.lock"]:
            os.remove(os.path.join(directory, "reverie.lock"))
        os.rmdir(directory)  # which fails where it has a checkpoint
