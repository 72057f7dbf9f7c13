"""Which peers trust each other: errors that no retry can heal come at once; retries are logged."""

import logging
import socket
import threading
import time

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors

SOON_S = 60  # half of the default timeout for an unreachable server


def table():
    return reverie.Table(
        "t",
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


@pytest.fixture
def files(root):
    return root / "tests" / "data" / "tls"


@pytest.fixture
def server(files):
    tls = reverie.ServerTls(files / "server.pem", files / "server_key.pem")
    with reverie.Server([table()], tls=tls) as server:
        yield server


def insert(client):
    client.insert(np.float32(1), {"t": 1.0})


def write(client):
    with client.trajectory_writer(1, validate_items=False) as writer:
        writer.append(np.float32(1))
        writer.create_item("t", 1.0, writer.history[-1:])
        writer.flush()


def write_as_reverb(client):
    with client.writer(1) as writer:
        writer.append(np.float32(1))
        writer.create_item("t", 1, 1.0)


def read_ahead(client):
    with client.dataset("t", 2) as batches:
        next(batches)


DOORS = {
    "info": lambda client: client.server_info(),
    "insert": insert,
    "sample": lambda client: next(client.sample("t")),
    "sample_batch": lambda client: client.sample_batch("t", 2),
    "update": lambda client: client.update_priorities("t", keys=[1], priorities=[1.0]),
    "reset": lambda client: client.reset("t"),
    "writer": write_as_reverb,
    "trajectory_writer": write,
    "dataset": read_ahead,
}


def refused_at_once(call, client, kind, match):
    begun = time.monotonic()
    with pytest.raises(kind, match=match):
        call(client)
    assert time.monotonic() - begun < SOON_S


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("is_sharded", [False, True], ids=["one", "shards"])
def test_an_untrusted_certificate_fails_every_call_at_once(server, files, door, is_sharded):
    addresses = [f"{host}:{server.port}" for host in ("localhost", "127.0.0.1")]
    client = reverie.Client(
        addresses if is_sharded else addresses[0], tls=reverie.ClientTls(files / "stranger.pem")
    )
    refused_at_once(
        DOORS[door], client, errors.UnauthenticatedError, "certificate of .* is not accepted"
    )


@pytest.mark.parametrize(
    ("tls", "kind", "match"),
    [
        (("stranger.pem",), errors.UnauthenticatedError, "as authorities"),
        ((None,), errors.UnauthenticatedError, "as authorities"),  # the system's authorities
        (
            ("authority.pem", None, None, "replay.local"),
            errors.UnauthenticatedError,
            "'replay.local': hostname mismatch; .*server_name",
        ),
        (None, errors.FailedPreconditionError, "speaks TLS"),
    ],
)
def test_permanent_tls_errors_are_raised_at_once_with_the_reason(server, files, tls, kind, match):
    if tls is not None:
        named = [files / name if name and name.endswith(".pem") else name for name in tls]
        tls = reverie.ClientTls(*(name or "" if i == 3 else name for i, name in enumerate(named)))
    client = reverie.Client(f"localhost:{server.port}", tls=tls)
    refused_at_once(lambda client: client.server_info(), client, kind, match)


def test_an_untrusted_client_certificate_is_reported_at_once(files):
    tls = reverie.ServerTls(files / "server.pem", files / "server_key.pem", files / "authority.pem")
    with reverie.Server([table()], tls=tls) as server:
        address = f"localhost:{server.port}"
        for own in ((), (files / "stranger.pem", files / "stranger_key.pem")):
            client = reverie.Client(address, tls=reverie.ClientTls(files / "authority.pem", *own))
            refused_at_once(insert, client, errors.UnauthenticatedError, "our certificate")
        own = (files / "client.pem", files / "client_key.pem")
        insert(reverie.Client(address, tls=reverie.ClientTls(files / "authority.pem", *own)))


def test_a_client_with_tls_and_a_server_without_is_reported_at_once(files):
    with reverie.Server([table()]) as server:
        tls = reverie.ClientTls(files / "authority.pem")
        client = reverie.Client(f"localhost:{server.port}", tls=tls)
        refused_at_once(insert, client, errors.FailedPreconditionError, "has no TLS in common")


def test_the_error_for_an_untrusted_shard_names_it(files):
    tls = [
        reverie.ServerTls(files / f"{name}.pem", files / f"{name}_key.pem")
        for name in ("server", "stranger")
    ]
    with (
        reverie.Server([table()], tls=tls[0]) as good,
        reverie.Server([table()], tls=tls[1]) as bad,
    ):
        addresses = [f"localhost:{server.port}" for server in (good, bad)]
        client = reverie.Client(addresses, tls=reverie.ClientTls(files / "authority.pem"))
        match = rf"shard 1 of 2 \({addresses[1]}\): the certificate"
        refused_at_once(
            lambda client: client.server_info(), client, errors.UnauthenticatedError, match
        )


@pytest.mark.parametrize("name", ["expired", "early"])
def test_expired_and_not_yet_valid_certificates_are_refused(files, name):
    pair = (files / f"{name}.pem", files / f"{name}_key.pem")
    with pytest.raises(errors.InvalidArgumentError, match=r"the certificate (was|is) valid"):
        reverie.Server([table()], tls=reverie.ServerTls(*pair))
    with pytest.raises(errors.InvalidArgumentError, match=r"the certificate (was|is) valid"):
        reverie.Client("localhost:1", tls=reverie.ClientTls(None, *pair))


class Lines(logging.Handler):
    """The lines that the library logs, and an event for the first one."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self.first = threading.Event()

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage()))
        self.first.set()


@pytest.fixture
def log():
    lines = Lines()
    logger = logging.getLogger("reverie")
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)


@pytest.fixture
def silent():
    """An address that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, but not listening
        yield f"localhost:{held.getsockname()[1]}"


@pytest.mark.parametrize("door", ["insert", "sample_batch", "trajectory_writer", "dataset"])
def test_a_retry_is_logged_after_two_seconds(silent, log, door):
    client = reverie.Client(silent, retry_timeout_s=4)
    begun = time.monotonic()
    errors_seen = []

    def run():
        try:
            DOORS[door](client)
        except errors.ReverieError as error:
            errors_seen.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert log.first.wait(timeout=30)
    assert time.monotonic() - begun >= 2
    level, line = log.lines[0]
    assert level == "WARNING"
    assert f"no server has answered at {silent} for 2 s" in line
    assert "Connection refused" in line
    thread.join()
    assert isinstance(errors_seen[0], errors.UnavailableError)


def test_shards_that_do_not_answer_are_logged(silent, log):
    with reverie.Server([table()]) as server:
        address = f"localhost:{server.port}"
        client = reverie.Client([address, silent])
        for _ in range(3):
            insert(client)
        # The thread that connects may tell it after the inserts, which the other shard took.
        eventually(lambda: any(silent in line and level == "WARNING" for level, line in log.lines))


@pytest.mark.parametrize("token", [" ", "a\nb", " a", "a\t", "gr\u00fcn", "\0", "x" * 4097])
def test_a_token_that_is_not_printable_ascii_is_refused(token):
    for make in (
        lambda: reverie.Server([table()], token=token),
        lambda: reverie.Client("localhost:1", token=token),
        lambda: reverie.Client(["localhost:1", "localhost:2"], token=token),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="a token is printable ASCII"):
            make()


def test_any_printable_token_is_accepted():
    token = "".join(map(chr, range(33, 127))) + " and more"
    with reverie.Server([table()], token=token) as server:
        insert(server.localhost_client())
        other = reverie.Client(f"localhost:{server.port}", token=token[1:])
        refused_at_once(insert, other, errors.UnauthenticatedError, "token")
