"""``reverie serve``: the arguments, the signals, and the lines that it says.

Imports what reads configurations only when it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reverie._command_parser import path_argument
from reverie._stop_signals import signals_end_at_once, signals_held

if TYPE_CHECKING:
    from reverie.serve.config import ServerConfig
    from reverie.server import Server

_STOPPED_BY = (signal.SIGINT, signal.SIGTERM)
_STDIN = 0
_POLL_S = 0.25
_REFUSED = 2  # as argparse: the arguments, or the file that they name, are wrong
_IN_USE = 1  # the port: another time it may be free
_TEXT_PROTO_SUFFIXES = (".pbtxt", ".proto.txt", ".textpb", ".textproto", ".txtpb")
# How a text proto begins, and TOML cannot.
_TEXT_PROTO = re.compile(r"(?:[ \t\r\n]|#[^\n]*\n)*[A-Za-z_]\w*[ \t\r\n]*[:{<]")
_LIMITS = {
    "connections": "connections at a time",
    "message_bytes": "bytes of one message",
    "bytes_in_flight": "bytes of all clients' messages on their way in",
}


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``serve`` to the subcommands of ``reverie``."""
    serve = commands.add_parser(
        "serve",
        help="serve tables to clients of reverie and of dm-reverb",
        description=(
            "Serves the tables that a configuration describes, until SIGINT, SIGTERM or "
            "SIGHUP. Options given here override the configuration."
        ),
    )
    _add_arguments(serve)
    serve.set_defaults(run=lambda arguments: _run(arguments, "reverie serve"))


def reverb_server(argv: Sequence[str] | None = None) -> int:
    """The command ``reverb_server``: ``reverie serve`` by the name that Reverb's has."""
    parser = argparse.ArgumentParser(
        prog="reverb_server", description="The same as 'reverie serve'."
    )
    _add_arguments(parser)
    return _run(parser.parse_args(argv), parser.prog)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        required=True,
        metavar="FILE_OR_TEXT",
        help="TOML, or Reverb's text proto: the name of a file, or the text itself",
    )
    parser.add_argument(
        "--format",
        choices=("toml", "textproto"),
        help="format of --config, if it cannot be detected",
    )
    parser.add_argument("--host", help="name or address to listen at (default: localhost)")
    parser.add_argument("--port", type=int, help="port to listen at (default: a free one)")
    parser.add_argument(
        "--unix-path",
        type=path_argument,
        help="path of a Unix socket to listen at too, for this user's clients",
    )
    parser.add_argument(
        "--token-file", type=path_argument, help="file with the secret that clients must send"
    )
    parser.add_argument(
        "--tls-certificate", type=path_argument, help="PEM file; encrypts, with --tls-key"
    )
    parser.add_argument("--tls-key", type=path_argument, help="PEM file of the private key")
    parser.add_argument(
        "--tls-client-authorities",
        type=path_argument,
        help="PEM file of the authorities that sign clients' certificates",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        default=None,
        help="accept every client that can reach --host, without a secret",
    )
    parser.add_argument("--max-bytes", type=int, help="bound of all steps and items together")
    parser.add_argument(
        "--memory-bytes",
        type=int,
        help="memory of the steps, beyond which they are moved to a file",
    )
    parser.add_argument(
        "--spill-folder",
        type=path_argument,
        metavar="FOLDER",
        help="folder of that file, which has no name",
    )
    parser.add_argument(
        "--checkpoints",
        type=path_argument,
        metavar="FOLDER",
        help="folder whose newest checkpoint is loaded, and to which Client.checkpoint() writes",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=float,
        metavar="SECONDS",
        help="write a checkpoint automatically after this time",
    )
    parser.add_argument(
        "--durability",
        choices=("none", "interval", "sync"),
        help="which changes confirmed after the last checkpoint survive a crash",
    )
    parser.add_argument(
        "--on-journal-failure",
        choices=("serve", "stop"),
        help="serve on from memory without confirming anything (default), or stop with status 1",
    )
    parser.add_argument(
        "--on-mismatch",
        choices=("refuse", "mine", "theirs", "drop"),
        help="a table that differs from the checkpoint's: refuse to start (default), load its "
        "items into the configured table, take the checkpoint's table, or begin empty",
    )
    for name, what in _LIMITS.items():
        parser.add_argument(f"--max-{name.replace('_', '-')}", type=int, help=what)
    parser.add_argument(
        "--grace", type=float, default=1.0, metavar="SECONDS", help="time for clients when it stops"
    )
    parser.add_argument(
        "--stop-with-stdin",
        action="store_true",
        help="stop as well when stdin is closed: a child that must not outlive its parent",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the configuration without listening or loading a checkpoint, and exit",
    )


def _run(arguments: argparse.Namespace, program: str) -> int:
    from reverie.errors import AlreadyExistsError, ReverieError

    begin = time.monotonic()
    try:
        config = _config(arguments)
        for remark in config.remarks:
            _print_line(program, remark)
        if arguments.check:
            config.check()
            _print_line(program, f"{_tables_text(config)}: the configuration is right")
            return 0
        return _serve(config, program, begin, arguments)
    except AlreadyExistsError as error:
        return _refuse(program, str(error), status=_IN_USE)
    except (ReverieError, OSError, UnicodeError) as error:
        return _refuse(program, str(error))


def _serve(
    config: ServerConfig,
    program: str,
    begin: float,
    arguments: argparse.Namespace,
) -> int:
    stopped_by = _stopped_by()
    # No client knows of the server while it loads, so it can end at once.
    with signals_end_at_once(stopped_by):
        opened = config.open()
        with signals_held(stopped_by) as signals, opened as server:
            return _serve_until_stopped(server, config, program, signals, begin, arguments)


def _serve_until_stopped(
    server: Server,
    config: ServerConfig,
    program: str,
    signals: socket.socket,
    begin: float,
    arguments: argparse.Namespace,
) -> int:
    _notify("READY=1")
    status_parts = (_addresses_text(server, config), _tables_text(config), _doors_text(config))
    _print_line(program, "listens at " + ", ".join(status_parts))
    stops_by_journal = config.on_journal_failure == "stop"
    why = _wait(
        signals,
        stops_with_stdin=arguments.stop_with_stdin,
        failure=(lambda: server.journal_error) if stops_by_journal else None,
    )
    has_failed = stops_by_journal and server.journal_error is not None
    _notify("STOPPING=1")
    server.stop(grace_s=arguments.grace)
    _print_line(program, _farewell(server, why, time.monotonic() - begin))
    return 1 if has_failed else 0


def _config(arguments: argparse.Namespace) -> ServerConfig:
    """The configuration, with the arguments in the place of what it says."""
    from reverie.errors import InvalidArgumentError
    from reverie.tls import ServerTls

    if not 0 <= arguments.grace <= 3600:
        raise InvalidArgumentError(f"--grace is {arguments.grace}; it must be between 0 and 3600")
    if arguments.stop_with_stdin and sys.stdin is None:  # something else has its number by now
        raise InvalidArgumentError("--stop-with-stdin wants a stdin, but it is closed already")
    config = _read_config(arguments.config, arguments.format)
    given = {
        name: value
        for name in (
            "host",
            "port",
            "unix_path",
            "token_file",
            "insecure",
            "max_bytes",
            "memory_bytes",
            "spill_folder",
            "checkpoints",
            "checkpoint_every",
            "durability",
            "on_journal_failure",
            "on_mismatch",
        )
        if (value := getattr(arguments, name)) is not None
    }
    files = (arguments.tls_certificate, arguments.tls_key)
    if any(files):
        if not all(files):
            raise InvalidArgumentError("--tls-certificate and --tls-key go together; give both")
        given["tls"] = ServerTls(*files, arguments.tls_client_authorities)
    elif arguments.tls_client_authorities:
        if config.tls is None:
            raise InvalidArgumentError(
                "--tls-client-authorities wants TLS; give --tls-certificate and --tls-key too"
            )
        given["tls"] = config.tls._replace(client_authorities=arguments.tls_client_authorities)
    limits = {
        name: value for name in _LIMITS if (value := getattr(arguments, f"max_{name}")) is not None
    }
    return config._replace(**given, limits=config.limits._replace(**limits).checked())


def _read_config(given: str, form: str | None) -> ServerConfig:
    from reverie.errors import InvalidArgumentError
    from reverie.serve import reverb_config, toml_config
    from reverie.serve.config import CONFIG_MAX

    source, text = "--config", given
    # A text names no file: it has a line's end, or a value.
    if not re.search(r"[\n={}:]", given) or _is_file(given):
        path = Path(given)
        source = given
        with path.open("rb") as file:
            held = file.read(CONFIG_MAX + 1)
        if len(held) > CONFIG_MAX:
            raise InvalidArgumentError(
                f"{path} is larger than {CONFIG_MAX} bytes; it holds no data"
            )
        try:
            text = held.decode("utf-8-sig")  # some editors begin with a byte-order mark
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(f"{path} is no UTF-8: {error.reason}") from None
        if form is None and path.name.endswith((".toml", *_TEXT_PROTO_SUFFIXES)):
            form = "toml" if path.suffix == ".toml" else "textproto"
    if form is None:
        form = "textproto" if _TEXT_PROTO.match(text) else "toml"
    if form == "toml":
        return toml_config.read(text, source)
    return reverb_config.read(text, source)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a name, or a NUL in it
        return False


def _stopped_by() -> tuple[signal.Signals, ...]:
    """The signals that stop a server: not SIGHUP where nohup has it ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return _STOPPED_BY if is_ignored else (*_STOPPED_BY, signal.SIGHUP)


def _wait(
    signals: socket.socket,
    *,
    stops_with_stdin: bool,
    failure: Callable[[], str | None] | None,
) -> str:
    """Blocks until it is time to stop; tells why. A signal after it ends the process at once.

    ``failure`` is asked from time to time.
    """
    poll_s = None if failure is None else _POLL_S
    sources: list[socket.socket | int] = [signals]
    if stops_with_stdin:
        sources.append(_STDIN)
    why = ""
    while not why:
        if failure is not None and (reason := failure()) is not None:
            why = reason
        for ready in select.select(sources, [], [], 0 if why else poll_s)[0]:
            if ready is signals:
                why = signal.Signals(signals.recv(1)[0]).name
            elif not os.read(_STDIN, 4096):
                why = "the end of stdin"
    for number in _stopped_by():
        signal.signal(number, signal.SIG_DFL)
    return why


def _addresses_text(server: Server, config: ServerConfig) -> str:
    return server.address + ("" if config.unix_path is None else f" and {config.unix_path}")


def _tables_text(config: ServerConfig) -> str:
    names = ", ".join(table.name for table in config.tables[:5])
    more = len(config.tables) - 5
    return f"tables {names}" + (f" and {more} more" if more > 0 else "")


def _doors_text(config: ServerConfig) -> str:
    """Who is let in, and how."""
    doors = []
    if config.tls is not None:
        doors.append("TLS" if config.tls.client_authorities is None else "TLS for known clients")
    if config.token_file is not None:
        doors.append("a token")
    return (
        " and ".join(doors)
        if doors
        else ("no secret: insecure" if config.insecure else "no secret")
    )


def _farewell(server: Server, why: str, after_s: float) -> str:
    figures = server.figures
    return (
        f"stopped by {why} after {after_s:.1f} s: {figures['inserts']} items "
        f"inserted, {figures['samples']} sampled"
    )


def _notify(state: str) -> None:
    """Tells systemd, where it started this process (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
        contextlib.suppress(OSError),  # who does not listen need not know
    ):
        notices.sendto(state.encode(), address.replace("@", "\0", 1))


def _print_line(program: str, text: str) -> None:
    try:
        print(f"{program}: {text}", file=sys.stderr, flush=True)
    except OSError:
        # The reader is gone; the server is not. What was not read goes nowhere: left where it
        # is, it would be written once more at the end, and fail the program.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def _refuse(program: str, text: str, *, status: int = _REFUSED) -> int:
    _print_line(program, text)
    return status
