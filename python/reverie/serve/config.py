"""The configuration of a server, from any kind of file."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any, NamedTuple

from reverie import _checks
from reverie._options import DURABILITY, ON_MISMATCH, Codec, Durability, OnMismatch
from reverie.checkpointers import DefaultCheckpointer, native_options, what_needs_a_folder
from reverie.errors import InvalidArgumentError
from reverie.server import Server, ServerLimits, check_server
from reverie.table import Table
from reverie.tls import ServerTls

CONFIG_MAX = 1 << 20  # bytes of a file
JOURNAL_FAILURES = ("serve", "stop")
_TOKEN_MAX = 4096


class ServerConfig(NamedTuple):
    """A server to be.

    Attributes:
        remarks: for the operator: what a file says that has no meaning here.
    """

    tables: tuple[Table, ...]
    host: str = "localhost"
    port: int | None = None
    token_file: Path | None = None
    tls: ServerTls | None = None
    insecure: bool = False
    unix_path: Path | None = None
    max_bytes: int | None = None
    memory_bytes: int | None = None
    spill_folder: Path | None = None
    limits: ServerLimits = ServerLimits()
    codec: Codec = "auto"
    checkpoints: Path | None = None
    checkpoint_every: float | None = None
    durability: Durability = "none"
    on_journal_failure: str = "serve"
    on_mismatch: OnMismatch = "refuse"
    remarks: tuple[str, ...] = ()

    def open(self) -> Server:
        """The server, listening.

        Raises:
            ReverieError: what ``reverie.Server`` refuses.
            OSError: a file of the token or of TLS cannot be read.
        """
        self._check_choices()
        return Server(
            self.tables,
            self.port,
            self._checkpointer(),
            checkpoint_every=self.checkpoint_every,
            durability=self.durability,
            **self._options(),
        )

    def check(self) -> None:
        """Does what :meth:`open` does, except that it neither listens nor loads a checkpoint.

        The folder of the checkpoints is neither read nor locked, so a running server may have it.

        Raises:
            ReverieError: what ``reverie.Server`` refuses, except for a port that is in use.
            OSError: a file of the token or of TLS cannot be read.
        """
        self._check_choices()
        native_options(
            self._checkpointer(), self.checkpoint_every, None, self.durability, self.tables
        )
        check_server(self.tables, self.port, **self._options())

    def _check_choices(self) -> None:
        _checks.choice("on_journal_failure", self.on_journal_failure, JOURNAL_FAILURES)
        _checks.choice("on_mismatch", self.on_mismatch, ON_MISMATCH)
        _checks.choice("durability", self.durability, DURABILITY)
        if self.checkpoints is not None:
            return
        reason = what_needs_a_folder(self.checkpoint_every, None, self.durability, self.tables)
        if reason is not None:
            raise InvalidArgumentError(
                f"{reason} without a folder of checkpoints, which also holds the journal; give "
                'checkpoints = "FOLDER" in the configuration, or --checkpoints FOLDER'
            )

    def _checkpointer(self) -> DefaultCheckpointer | None:
        if self.checkpoints is None:
            return None
        return DefaultCheckpointer(self.checkpoints, on_mismatch=self.on_mismatch)

    def _options(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "token": "" if self.token_file is None else read_token(self.token_file),
            "tls": self.tls,
            "insecure": self.insecure,
            "unix_path": None if self.unix_path is None else str(self.unix_path),
            "max_bytes": self.max_bytes,
            "memory_bytes": self.memory_bytes,
            "spill_folder": self.spill_folder,
            "limits": self.limits,
            "codec": self.codec,
        }


def read_token(path: Path) -> str:
    """The secret in a file, without the white space around it.

    Raises:
        InvalidArgumentError: it is empty, longer than 4096 bytes, no printable ASCII, or others
            than its owner and group can read it.
        OSError: it cannot be read.
    """
    if path.stat().st_mode & stat.S_IROTH:
        raise InvalidArgumentError(
            f"{path} can be read by every user; chmod 640 it, since it is a secret"
        )
    with path.open("rb") as file:
        held = file.read(_TOKEN_MAX + 1)
    if len(held) > _TOKEN_MAX:
        raise InvalidArgumentError(f"{path} is longer than {_TOKEN_MAX} bytes; a token is one line")
    token = held.decode("ascii", errors="replace").strip()
    if not token:
        raise InvalidArgumentError(f"{path} is empty; put a token into it")
    if not token.isascii() or not token.isprintable():
        raise InvalidArgumentError(
            f"{path} holds more than printable ASCII; a token is one line of it"
        )
    return token
