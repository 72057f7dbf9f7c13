"""``reverie serve``, from its arguments to its last line."""

import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import pages
import reverie
from reverie import reverb

QUEUE = """
[[tables]]
name = "q"
kind = "queue"
max_size = 3
"""
TEXT_PROTO = """
tables: {
  table_name: "q"
  sampler: { fifo: true }
  remover: { fifo: true }
  max_size: 3
  max_times_sampled: 1
  rate_limiter: { min_size_to_sample: 1 samples_per_insert: 1 min_diff: 0 max_diff: 3 }
}
"""


# If this test run ignores SIGHUP, as under nohup, its children would too. Not by `preexec_fn`:
# Python code in a fork of a process with threads may never return.
DEFAULT_HUP = ("env", "--default-signal=HUP")


class Served:
    """A process of ``reverie serve``, and its output."""

    def __init__(self, *arguments, program=("-m", "reverie", "serve"), **keywords):
        self.process = subprocess.Popen(
            [*DEFAULT_HUP, sys.executable, *program, *(str(word) for word in arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **keywords,
        )

    def address(self):
        """The address that it listens at; waits for it."""
        self.first = self.process.stderr.readline()
        found = re.search(r"listens at ([^\s,]+)", self.first)
        assert found, self.first
        return found[1]

    def close(self):
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def stop(self, number=signal.SIGTERM):
        """Sends a signal; returns the exit status and the last line."""
        self.process.send_signal(number)
        return self.end()

    def end(self):
        output, errors = self.process.communicate(timeout=300)
        assert output == ""
        return self.process.returncode, errors


@pytest.fixture
def serve():
    """Starts servers, and ends all of them."""
    with contextlib.ExitStack() as stack:

        def start(*arguments, **keywords):
            served = Served(*arguments, **keywords)
            stack.callback(served.close)
            stack.callback(served.process.kill)
            return served

        yield start


@pytest.mark.parametrize("config", [QUEUE, TEXT_PROTO], ids=["toml", "textproto"])
@pytest.mark.parametrize("is_file", [False, True], ids=["inline", "file"])
def test_the_command_serves_the_tables_of_its_configuration(serve, config, is_file, tmp_path):
    if is_file:
        (tmp_path / "config").write_text(config)
    served = serve("--config", tmp_path / "config" if is_file else config)
    client = reverie.Client(served.address())
    client.insert([1, 2], {"q": 1.0})
    assert client.server_info()["q"].rate_limiter_info.max_diff == 3
    assert [int(column[0, 0]) for column in client.sample_batch("q", 1, timeout_s=30).data] == [
        1,
        2,
    ]
    status, errors = served.stop()
    assert status == 0
    said = r"reverie serve: stopped by SIGTERM after [\d.]+ s: 1 items inserted, 1 sampled\n"
    assert re.fullmatch(said, errors)
    assert served.first.endswith(", tables q, no secret\n")


@pytest.mark.parametrize("checks", [True, False])
def test_check_items_decides_whether_items_must_fit_the_signature(serve, checks):
    # TF-Agents' RLDS converter writes steps with one column more than its table has.
    signature = '[tables.signature]\nx = { shape = [-1], dtype = "float32" }\n'
    served = serve("--config", f"{QUEUE}check_items = {str(checks).lower()}\n{signature}")
    client = reverb.Client(served.address())
    writer = client.trajectory_writer(1, validate_items=False)
    writer.append({"x": np.float32(1), "y": np.int64(7)})
    writer.create_item("q", 1.0, {name: writer.history[name][-1:] for name in ("x", "y")})
    if checks:
        with pytest.raises(ValueError, match="signature"):
            writer.flush()
    else:
        writer.flush()
        sample = next(client.sample("q", emit_timesteps=False))
        assert [column.tolist() for column in sample.data] == [[1.0], [7]]
    writer.close()


@pytest.mark.parametrize("is_file", [False, True], ids=["arguments", "toml"])
def test_confirmed_items_survive_a_kill(serve, tmp_path, is_file):
    if is_file:
        config = tmp_path / "serve.toml"
        config.write_text('checkpoints = "kept"\ndurability = "sync"\n' + QUEUE)
        arguments = ("--config", config)
    else:
        arguments = ("--config", QUEUE, "--checkpoints", tmp_path / "kept", "--durability", "sync")
    served = serve(*arguments)
    client = reverie.Client(served.address())
    client.insert([1, 2], {"q": 1.0})
    assert client.checkpoint() == str(tmp_path / "kept" / "checkpoint-0000000001")
    client.insert([3, 4], {"q": 1.0})
    served.process.kill()
    served.end()
    client = reverie.Client(serve(*arguments).address())
    found = client.sample_batch("q", 2, timeout_s=30).data
    assert [np.ravel(column).tolist() for column in found] == [[1, 3], [2, 4]]


@pytest.mark.parametrize("checks", [["--check"], []])
@pytest.mark.parametrize(
    ("config", "arguments", "what"),
    [
        (QUEUE, ["--durability", "sync"], "durability is 'sync'"),
        (QUEUE, ["--checkpoint-every", "5"], "checkpoint_every is given"),
        (QUEUE + 'durability = "sync"\n', [], "durability of table 'q' is 'sync'"),
    ],
)
def test_durability_and_intervals_need_a_folder(serve, config, arguments, what, checks):
    status, errors = serve("--config", config, *arguments, *checks).end()
    assert status == 2
    assert f"{what} without a folder of checkpoints" in errors
    assert "--checkpoints FOLDER" in errors
    assert "DefaultCheckpointer" not in errors


@pytest.mark.parametrize("is_file", [False, True], ids=["argument", "toml"])
def test_a_served_table_may_be_made_larger(serve, tmp_path, is_file):
    kept = ("--checkpoints", tmp_path / "kept")
    served = serve("--config", QUEUE, *kept)
    client = reverie.Client(served.address())
    client.insert([1, 2], {"q": 1.0})
    client.checkpoint()
    assert served.stop()[0] == 0
    larger = QUEUE.replace("max_size = 3", "max_size = 5")
    status, errors = serve("--config", larger, *kept).end()
    assert status == 2
    assert "max_size is 5, and 3 in the checkpoint" in errors
    assert "on_mismatch" in errors
    given = 'on_mismatch = "mine"\n' if is_file else ""
    words = () if is_file else ("--on-mismatch", "mine")
    client = reverie.Client(serve("--config", given + larger, *kept, *words).address())
    info = client.server_info(timeout=30)["q"]
    assert (info.max_size, info.current_size) == (5, 1)


def test_an_unknown_on_mismatch_is_refused(serve):
    status, errors = serve("--config", 'on_mismatch = "ours"\n' + QUEUE, "--check").end()
    assert status == 2
    assert "on_mismatch is 'ours'; it must be one of 'refuse', 'mine', 'theirs'" in errors


def test_reverb_server_is_the_same_command(serve):
    code = "from reverie.serve.command import reverb_server as run; raise SystemExit(run())"
    served = serve("--config=" + TEXT_PROTO, "--port=0", program=("-c", code))
    client = reverie.Client(served.address())
    assert client.server_info()["q"].max_size == 3
    assert served.first.startswith("reverb_server: listens at ")
    assert served.stop(signal.SIGINT)[0] == 0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name
)
def test_stopping_confirms_exactly_the_inserted_items(serve, number):
    served = serve("--config", QUEUE)
    client = reverie.Client(served.address())
    writer = client.trajectory_writer(1)
    for i in range(5):  # two more than the table has room for
        writer.append(i)
        writer.create_item("q", 1.0, writer.history[-1:])
    writer.flush(2)
    assert writer.pending_items == 2
    status, errors = served.stop(number)
    assert status == 0
    assert f"stopped by {number.name}" in errors
    assert ": 3 items inserted, 0 sampled" in errors
    assert writer.pending_items == 2
    writer.close()


def test_the_server_continues_if_its_stderr_is_closed(serve):
    served = serve("--config", QUEUE)
    client = reverie.Client(served.address())
    served.process.stderr.close()
    client.insert(1, {"q": 1.0})
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=300) == 0


def test_stop_with_stdin_ends_the_server_when_stdin_closes(serve):
    served = serve("--config", QUEUE, "--stop-with-stdin", stdin=subprocess.PIPE)
    reverie.Client(served.address()).server_info(timeout=30)
    served.process.stdin.close()
    served.process.stdin = None
    status, errors = served.end()
    assert status == 0
    assert "stopped by the end of stdin" in errors


def test_stop_with_stdin_is_refused_without_a_stdin():
    words = (sys.executable, "-m", "reverie", "serve", "--config", QUEUE, "--stop-with-stdin")
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "reverie serve: --stop-with-stdin wants a stdin, but it is closed already\n"
    )


def test_the_next_process_can_listen_at_the_same_port_at_once(serve):
    first = serve("--config", QUEUE)
    address = first.address()
    reverie.Client(address).insert(1, {"q": 1.0})
    assert first.stop()[0] == 0
    second = serve("--config", QUEUE, "--port", address.rpartition(":")[2])
    assert second.address() == address
    assert reverie.Client(address).server_info(timeout=30)["q"].current_size == 0
    assert second.stop()[0] == 0


def blocks(page, language):
    return [block.code for block in pages.blocks(page) if block.language == language]


def test_the_readme_example_of_two_terminals_works(serve, root, tmp_path):
    (config,) = blocks(root / "README.md", "toml")
    (said,) = (code for code in blocks(root / "README.md", "console") if "serve" in code)
    (program,) = (code for code in blocks(root / "README.md", "python") if "localhost:8000" in code)
    (tmp_path / "serve.toml").write_text(config.replace("port = 8000", "port = 0"))
    arguments = shlex.split(said.splitlines()[0].removeprefix("$ reverie serve"))
    served = serve(*arguments, cwd=tmp_path)
    address = served.address()
    assert served.first.replace(address, "127.0.0.1:8000") == said.splitlines()[1] + "\n"
    done = subprocess.run(
        [sys.executable, "-c", program.replace("localhost:8000", address)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "197\n"), done.stderr
    assert served.stop(signal.SIGINT)[0] == 0


def test_the_configuration_and_output_on_the_serving_page_are_correct(serve, root):
    page = root / "docs" / "serve.md"
    (config,) = blocks(page, "toml")
    status, errors = serve("--config", config, "--check").end()
    assert (status, errors) == (
        0,
        "reverie serve: tables replay, unrolls: the configuration is right\n",
    )
    first, second, third = blocks(page, "console")
    assert first.endswith(
        "reverie serve: listens at 127.0.0.1:8000, tables replay, weights, no secret\n"
    )
    wrong = config.replace("exponent = 0.6", "exponent = -0.6")
    status, errors = serve("--config", wrong, "--check").end()
    assert errors.replace("--config", "serve.toml") == second.splitlines()[1] + "\n"
    words = shlex.split(third.removeprefix("$ reverb_server"))
    assert serve(*words, "--check").end()[0] == 0


def test_the_serving_page_lists_every_limit_with_its_default(root):
    text = (root / "docs" / "serve.md").read_text()
    for name, default in reverie.ServerLimits()._asdict().items():
        (row,) = re.findall(rf"^\| `{name}`.*\| ([^|]+) \|$", text, re.MULTILINE)
        if default is None:
            assert row in ("none", "an eighth of the memory")
            continue
        number, _, unit = row.partition(" ")
        scale = {"": 1, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
        assert default == int(number.replace(",", "")) * scale


def test_a_port_in_use_is_refused(serve):
    first = serve("--config", QUEUE)
    port = first.address().rpartition(":")[2]
    status, errors = serve("--config", QUEUE, "--port", port).end()
    assert status == 1
    assert re.fullmatch(rf"reverie serve: .*{port}.*choose another port.*\n", errors)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "the following arguments are required: --config"),
        (["--config", "no_such_file"], "No such file or directory: 'no_such_file'"),
        (["--config", "max_size = "], "--config:1: no TOML: "),
        (["--config", "tables {"], "--config:1: the end of the text where 'tables' of line 1"),
        (["--config", QUEUE, "--format", "textproto"], "--config:3: '=' means nothing here"),
        (
            ["--config", QUEUE, "--port", "65536"],
            "port is 65536; it must be an integer between 0 and 65535",
        ),
        (["--config", QUEUE, "--grace", "-1"], "--grace is -1.0; it must be between 0 and 3600"),
        (["--config", QUEUE, "--host", "0.0.0.0"], "can be reached from other machines"),
        (["--config", QUEUE, "--host", "no port"], "no port"),
        (["--config", QUEUE, "--max-bytes", "0"], "max_bytes is 0; it must be an integer >= 1"),
        (["--config", QUEUE, "--max-connections", "0"], "limit connections is 0; it must be at l"),
        (
            ["--config", QUEUE, "--max-message-bytes", "5000000000"],
            "it must be at least 1 and at m",
        ),
        (["--config", QUEUE, "--token-file", "/no/file"], "No such file or directory: '/no/file'"),
        (["--config", QUEUE, "--token-file", os.devnull], "can be read by every user"),
        (["--config", QUEUE, "--tls-key", "k.pem"], "--tls-certificate and --tls-key go together"),
        (["--config", QUEUE, "--tls-client-authorities", "a.pem"], "wants TLS; give"),
        (["--config", QUEUE, "--checkpoints", ""], "argument --checkpoints: the path is empty"),
        (["--config", "x" * 300], "File name too long"),
    ],
)
def test_a_wrong_argument_is_refused_without_a_traceback(serve, arguments, says):
    status, errors = serve(*arguments).end()
    assert status == 2
    assert errors.startswith("reverie serve: ")
    assert says in errors
    assert "Traceback" not in errors


def test_a_configuration_that_is_not_text_or_too_large_is_refused(serve, tmp_path):
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfe")
    assert "is no UTF-8" in serve("--config", path).end()[1]
    path.write_bytes(b"#" * ((1 << 20) + 1))
    assert "is larger than 1048576 bytes" in serve("--config", path).end()[1]


def test_a_configuration_can_be_checked_without_serving(serve):
    text = QUEUE + "[limits]\nmessage_bytes = 9\n"
    assert serve("--config", text, "--check").end() == (
        0,
        "reverie serve: tables q: the configuration is right\n",
    )


def test_a_check_reads_the_files_that_a_configuration_names(serve):
    for named in ('token_file = "none"', '[tls]\ncertificate = "none"\nkey = "none"'):
        status, errors = serve("--config", f"{named}\n{QUEUE}", "--check").end()
        assert status == 2
        assert "No such file or directory: 'none'" in errors


def test_a_check_refuses_settings_that_serving_refuses(serve, tmp_path, root):
    tls = root / "tests" / "data" / "tls"
    (tmp_path / "file").write_text("nonsense")
    pair = ("--tls-certificate", tls / "server.pem", "--tls-key")
    for words, said in (
        (("--host", "0.0.0.0"), "nothing restricts access"),
        (("--host", "192.0.2.1", "--insecure"), "cannot listen at"),
        ((*pair, tls / "stranger_key.pem"), "does not fit"),
        ((*pair, tmp_path / "file"), "private key is not valid PEM"),
        (
            ("--tls-certificate", tls / "expired.pem", "--tls-key", tls / "expired_key.pem"),
            "was valid until Jan  1 00:00:00 2001",
        ),
        (
            ("--tls-certificate", tls / "early.pem", "--tls-key", tls / "early_key.pem"),
            "is valid from Jan  1 00:00:00 2100",
        ),
        (("--unix-path", tmp_path / "none" / "s"), "No such file or directory"),
        (("--unix-path", tmp_path / "file"), "is a file and no socket"),
        (("--unix-path", tmp_path / ("x" * 200)), "1 to 107 are possible"),
    ):
        checked = serve("--config", QUEUE, *words, "--check").end()
        served = serve("--config", QUEUE, *words).end()
        assert said in checked[1]
        assert checked[1] == served[1]
        assert checked[0] != 0


def test_a_check_does_not_affect_a_running_server_or_its_socket(serve, tmp_path):
    words = ("--config", QUEUE, "--unix-path", tmp_path / "s")
    served = serve(*words)
    port = served.address().rpartition(":")[2]
    assert serve(*words, "--port", port, "--check").end()[0] == 0
    client = reverie.Client(f"unix:{tmp_path / 's'}")
    assert client.server_info(timeout=30)["q"].current_size == 0


def test_a_check_neither_locks_nor_loads_checkpoints(serve, tmp_path):
    folder = tmp_path / "kept"
    words = ("--config", QUEUE, "--checkpoints", folder, "--durability", "sync")
    assert serve(*words, "--check").end()[0] == 0
    assert not folder.exists()
    client = reverie.Client(serve(*words).address())
    client.insert([1, 2], {"q": 1.0})
    (folder / "checkpoint-0000000009").mkdir()  # no server could load it
    before = sorted(path.name for path in folder.iterdir())
    assert serve(*words, "--check").end()[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == before


def test_sighup_stays_ignored_under_nohup(serve):
    """The server starts with the signal ignored, as under nohup."""
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "from reverie.serve.command import reverb_server as run; raise SystemExit(run())"
    )
    served = serve("--config=" + TEXT_PROTO, program=("-c", code))
    client = reverie.Client(served.address())
    served.process.send_signal(signal.SIGHUP)
    assert client.server_info(timeout=30)["q"].current_size == 0
    assert "stopped by SIGTERM" in served.stop()[1]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name
)
def test_a_signal_ends_a_server_that_still_loads(serve, number):
    code = textwrap.dedent(
        """
        import os, sys
        from reverie.serve.command import reverb_server
        from reverie.serve.config import ServerConfig

        def load(config):  # as long as it takes: a handler that returns does not end the read
            print("loads", file=sys.stderr, flush=True)
            os.read(os.pipe()[0], 1)

        ServerConfig.open = load
        raise SystemExit(reverb_server())
        """
    )
    served = serve("--config", QUEUE, program=("-c", code))
    assert served.process.stderr.readline() == "loads\n"
    assert served.stop(number) == (-number, "")


def token_file(folder, text, mode=0o600):
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("secret", 0o644, "can be read by every user; chmod 640 it"),
        (" \n", 0o600, "is empty; put a token into it"),
        ("a\nb", 0o600, "holds more than printable ASCII"),
        ("s\u00e9cret", 0o600, "holds more than printable ASCII"),
        ("x" * 5000, 0o600, "is longer than 4096 bytes"),
    ],
)
def test_an_invalid_token_file_is_refused(serve, tmp_path, text, mode, says):
    path = token_file(tmp_path, text, mode)
    status, errors = serve("--config", QUEUE, "--token-file", path).end()
    assert status == 2
    assert says in errors


def test_clients_without_the_token_are_refused(serve, tmp_path):
    served = serve("--config", QUEUE, "--token-file", token_file(tmp_path, "secret\n"))
    address = served.address()
    assert served.first.endswith(", a token\n")
    assert reverie.Client(address, token="secret").server_info()["q"].current_size == 0
    with pytest.raises(reverie.errors.UnauthenticatedError):
        reverie.Client(address).server_info()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_server_uses_the_tls_files_of_its_arguments(serve, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    subprocess.run(
        [*command.split(), "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    files = ("--tls-certificate", certificate, "--tls-key", key)
    served = serve("--config", QUEUE, *files, "--tls-client-authorities", certificate)
    address = f"localhost:{served.address().rpartition(':')[2]}"
    assert served.first.endswith(", TLS for known clients\n")
    known = reverie.ClientTls(certificate, certificate, key)
    assert reverie.Client(address, tls=known).server_info()["q"].current_size == 0
    stranger = reverie.Client(address, tls=reverie.ClientTls(certificate))
    with pytest.raises(reverie.errors.ReverieError):
        stranger.server_info(timeout=1)


def test_the_server_also_listens_at_a_unix_socket(serve, tmp_path):
    path = tmp_path / "s"
    served = serve("--config", QUEUE, "--unix-path", path)
    address = re.search(r"listens at (\S+) and (\S+), tables", served.process.stderr.readline())
    assert address[2] == str(path)
    reverie.Client(f"unix:{path}").insert(1, {"q": 1.0})
    assert reverie.Client(address[1]).server_info()["q"].current_size == 1
    assert served.stop()[0] == 0
    again = serve("--config", QUEUE, "--unix-path", path)
    again.process.stderr.readline()
    assert reverie.Client(f"unix:{path}").server_info(timeout=30)["q"].current_size == 0
    assert again.stop()[0] == 0
    status, errors = serve("--config", QUEUE, "--unix-path", tmp_path / ("x" * 200)).end()
    assert status == 2
    assert "x" * 100 in errors


def test_the_server_uses_the_limits_of_its_arguments(serve):
    served = serve("--config", QUEUE, "--max-message-bytes", 10_000, "--max-connections", 1)
    address = served.address()
    client = reverie.Client(address)
    client.insert(b"x" * 100, {"q": 1.0})
    with pytest.raises(reverie.errors.ResourceExhaustedError, match="10000"):
        client.insert(os.urandom(20_000), {"q": 1.0}, timeout_s=30)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as another:
        assert another.recv(1) == b""  # the server closes it at once


def test_the_server_notifies_systemd_when_it_is_ready_and_stops(serve, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(tmp_path / "notices"))
        notices.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notices")}
        served = serve("--config", QUEUE, env=environment)
        assert notices.recv(100) == b"READY=1"
        reverie.Client(served.address()).server_info(timeout=30)
        assert served.stop()[0] == 0
        assert notices.recv(100) == b"STOPPING=1"


def test_a_second_signal_ends_the_grace_period(serve):
    served = serve("--config", QUEUE, "--grace", 600)
    address = served.address()
    program = textwrap.dedent(
        f"""
        import reverie, socket
        client = reverie.Client("{address}")
        client.server_info()
        held = socket.create_connection(("127.0.0.1", {address.rpartition(":")[2]}))
        print("ready", flush=True)
        client.sample_batch("q", 1)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGSTOP)  # it neither reads nor closes its connection
        served.process.send_signal(signal.SIGTERM)
        served.process.send_signal(signal.SIGTERM)
        status, _ = served.end()
        assert status in (0, -signal.SIGTERM)
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("wanted", ["serve", "stop"])
def test_on_journal_failure_decides_whether_the_server_continues_or_stops(serve, tmp_path, wanted):
    served = serve(
        "--config", QUEUE.replace("max_size = 3", "max_size = 1000"), "--checkpoints", tmp_path,
        "--durability", "sync", "--on-journal-failure", wanted,
    )  # fmt: skip
    client = reverie.Client(served.address(), retry_timeout_s=0.2)
    step = {"x": np.zeros(1000, np.float32)}
    client.insert(step, {"q": 1.0})
    # No file can grow any more, so that checkpoints fail as well.
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))

    def insert_many():
        for _ in range(100):
            client.insert(step, {"q": 1.0})

    with pytest.raises((reverie.errors.ResourceExhaustedError, reverie.errors.UnavailableError)):
        insert_many()
    if wanted == "serve":
        assert client.sample_batch("q", 1, timeout_s=30).data[0].shape == (1, 1, 1000)
        assert served.stop()[0] == 0
    else:
        status, said = served.end()
        assert status == 1
        assert "the journal cannot be written" in said


def test_an_unknown_on_journal_failure_is_refused(serve):
    config = 'on_journal_failure = "panic"\n' + QUEUE
    status, said = serve("--config", config, "--check").end()
    assert status == 2
    assert "on_journal_failure is 'panic'; it must be one of 'serve', 'stop'" in said
