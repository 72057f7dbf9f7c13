"""Our gRPC against grpcio, in both directions."""

import shutil
import subprocess
from concurrent import futures

import pytest

grpc = pytest.importorskip("grpc")


def passed(message):
    """The serializer: messages are bytes already."""
    return message


@pytest.fixture(scope="module")
def peer(root):
    """The path of the program that is our end."""
    return root / "build" / "release" / "peers" / "grpc_peer"


class Server:
    """Our server, in its own process."""

    def __init__(self, peer, *arguments):
        self.process = subprocess.Popen(
            [peer, "serve", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = self.line()

    def line(self):
        return self.process.stdout.readline().strip()

    def stop(self):
        with self.process:
            self.process.stdin.close()
            rest = self.process.stdout.read()
        assert self.process.returncode == 0
        return rest


@pytest.fixture
def served(peer):
    server = Server(peer, "localhost:0")
    with grpc.insecure_channel(
        server.address, [("grpc.max_receive_message_length", -1)]
    ) as channel:
        yield server, channel
    if not server.process.stdin.closed:
        server.stop()


def call(channel, path, request=b"", **options):
    return channel.unary_unary(path)(request, **{"timeout": 30, **options})


def refusal(channel, path, request=b"", **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, path, request, **options)
    return caught.value.code(), caught.value.details()


def test_every_kind_of_call_is_served(served):
    _, channel = served
    assert call(channel, "/t/Upper", b"abc") == b"ABC"
    counted = channel.unary_stream("/t/Count")(b"100 400000", timeout=60)
    assert [len(message) for message in counted] == [400_000] * 100
    sizes = (0, 1, 70_000, 5_000_000)
    sent = [b"x" * size for size in sizes]
    assert channel.stream_unary("/t/Sum")(iter(sent), timeout=60) == b"4 5070001"
    assert list(channel.stream_stream("/t/Echo")(iter(sent), timeout=60)) == sent


@pytest.mark.parametrize(
    "code", [code for code in grpc.StatusCode if code.value[0] not in (0, 2, 10)]
)
def test_a_status_arrives_with_its_text(served, code):
    _, channel = served
    text = "nö\n100 %"
    assert refusal(channel, "/t/Fail", f"{code.value[0]} {text}".encode()) == (code, text)


def test_an_unknown_method_is_unimplemented(served):
    _, channel = served
    assert refusal(channel, "/t/Nothing")[0] == grpc.StatusCode.UNIMPLEMENTED


def test_a_long_status_text_is_cut_to_what_grpcio_accepts(served):
    _, channel = served
    code, text = refusal(channel, "/t/Fail", b"3 " + b"x" * 100_000)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert 7000 < len(text) < 8192


def test_metadata_reaches_the_method(served):
    _, channel = served
    metadata = [("x-text", "a b"), ("x-bytes-bin", b"\0\xff!")]
    text = call(channel, "/t/Info", metadata=metadata)
    assert b"x-text: a b\n" in text
    assert b"x-bytes-bin: \0\xff!\n" in text
    assert b"deadline true" in text


def test_a_deadline_ends_the_call(served):
    server, channel = served
    code, _ = refusal(channel, "/t/Never", timeout=0.1)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert server.line().split()[1] in ("DEADLINE_EXCEEDED:", "CANCELLED:")


def test_the_method_is_notified_of_a_cancelled_call(served):
    server, channel = served
    pending = channel.unary_unary("/t/Never").future(b"")
    assert call(channel, "/t/Upper", b"behind it") == b"BEHIND IT"
    pending.cancel()
    assert server.line() == "ended CANCELLED: the caller cancelled the call"


def test_gzip_is_accepted_and_deflate_is_refused(served):
    _, channel = served
    assert call(channel, "/t/Upper", b"a" * 100_000, compression=grpc.Compression.Gzip) == (
        b"A" * 100_000
    )
    code, text = refusal(channel, "/t/Upper", b"a" * 1000, compression=grpc.Compression.Deflate)
    assert code == grpc.StatusCode.UNIMPLEMENTED
    assert "deflate" in text


def test_thousands_of_cancelled_calls_do_not_break_the_connection(served):
    _, channel = served
    for _ in range(2500):
        stream = channel.unary_stream("/t/Count")(b"1000 400")
        next(stream)
        stream.cancel()
    assert call(channel, "/t/Upper", b"still here") == b"STILL HERE"


def test_a_stream_with_too_many_unread_messages_is_ended(served):
    _, channel = served
    stream = channel.unary_stream("/t/Flood")(b"", timeout=60)
    assert call(channel, "/t/Upper", b"others") == b"OTHERS"
    with pytest.raises(grpc.RpcError) as caught:
        for _ in stream:
            pass
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_stop_ends_open_calls_as_unavailable(served):
    server, channel = served
    pending = channel.unary_unary("/t/Never").future(b"")
    assert call(channel, "/t/Upper", b"a") == b"A"
    assert server.stop().splitlines()[-1] == "stopped"
    assert pending.exception(30).code() == grpc.StatusCode.UNAVAILABLE


def test_a_stop_with_grace_allows_open_calls_to_finish(peer):
    server = Server(peer, "localhost:0", "--grace", "30")
    with grpc.insecure_channel(server.address) as channel:
        requests = iter([b"one", b"two"])
        gate = futures.Future()

        def sent():
            yield next(requests)
            gate.result(30)
            yield next(requests)

        stream = channel.stream_stream("/t/Echo")(sent(), timeout=60)
        assert next(stream) == b"one"
        server.process.stdin.close()
        gate.set_result(None)
        assert list(stream) == [b"two"]
    server.stop()


def test_a_unix_socket_is_served(peer, tmp_path):
    server = Server(peer, f"unix:{tmp_path}/s")
    with grpc.insecure_channel(server.address) as channel:
        assert call(channel, "/t/Upper", b"abc") == b"ABC"
    server.stop()


def test_tls_works_with_a_token_and_client_certificates(peer, root):
    folder = root / "tests" / "data" / "tls"
    files = [folder / name for name in ("server.pem", "server_key.pem", "authority.pem")]
    server = Server(peer, "localhost:0", "--token", "secret", "--tls", *files)
    own = [(folder / name).read_bytes() for name in ("client_key.pem", "client.pem")]
    credentials = grpc.ssl_channel_credentials(files[2].read_bytes(), *own)
    with grpc.secure_channel(server.address, credentials) as channel:
        assert refusal(channel, "/t/Upper")[0] == grpc.StatusCode.UNAUTHENTICATED
        text = call(channel, "/t/Info", metadata=[("authorization", "Bearer secret")])
        assert b"peer_name reverie test client\n" in text
        assert b"secret" not in text
    nameless = grpc.ssl_channel_credentials(files[2].read_bytes())
    with grpc.secure_channel(server.address, nameless) as channel:
        assert refusal(channel, "/t/Upper")[0] == grpc.StatusCode.UNAVAILABLE
    server.stop()


@pytest.fixture
def grpcio_server():
    """A grpcio server with some of the same methods."""
    seen = []

    def upper(request, context):
        seen.append(dict(context.invocation_metadata()))
        return request.upper()

    def count(request, context):
        number, size = map(int, request.split())
        context.set_compression(grpc.Compression.NoCompression)
        for _ in range(number):
            yield b"c" * size

    def fail(request, context):
        code, text = request.split(b" ", 1)
        codes = {code.value[0]: code for code in grpc.StatusCode}
        context.abort(codes[int(code)], text.decode())

    def never(_, context):
        ended = futures.Future()
        context.add_callback(lambda: ended.set_result(None))
        ended.result(60)
        return b""

    handlers = {
        "Upper": grpc.unary_unary_rpc_method_handler(upper),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Never": grpc.unary_unary_rpc_method_handler(never),
    }
    server = grpc.server(futures.ThreadPoolExecutor(8), compression=grpc.Compression.Gzip)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", handlers),))
    server.seen = seen
    yield server
    server.stop(None).wait(30)


@pytest.fixture
def ask(peer):
    """Calls with our client; returns the lines that it printed."""

    def run(target, path, text, *options):
        done = subprocess.run(
            [peer, "call", target, path, text, *options],
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        return done.stdout.splitlines()

    return run


def test_our_client_is_served_by_grpcio(ask, grpcio_server):
    target = f"localhost:{grpcio_server.add_insecure_port('localhost:0')}"
    grpcio_server.start()
    assert ask(target, "/t/Upper", "abc", "--repeat", "3") == ["message 3 ABC", "OK"] * 3
    assert grpcio_server.seen[0]["x-text"] == "a b"
    assert grpcio_server.seen[0]["x-bytes-bin"] == b"\0\xff!"
    lines = ask(target, "/t/Count", "200 400000")
    assert [line.split()[:2] for line in lines[:-1]] == [["message", "400000"]] * 200
    assert lines[-1] == "OK"
    # The server compresses it: 100 kB of one letter.
    assert ask(target, "/t/Upper", "a" * 100_000)[0].split()[:2] == ["message", "100000"]


def test_grpcios_statuses_and_deadlines_reach_our_client(ask, grpcio_server):
    target = f"localhost:{grpcio_server.add_insecure_port('localhost:0')}"
    grpcio_server.start()
    assert ask(target, "/t/Fail", "5 nö\n%") == ["NOT_FOUND: nö", "%"]
    assert ask(target, "/t/Fail", "10 x") == ["INTERNAL: ABORTED: x"]
    assert ask(target, "/t/Nothing", "")[0].startswith("UNIMPLEMENTED")
    assert ask(target, "/t/Never", "", "--timeout", "0.2")[0].startswith("DEADLINE_EXCEEDED")


def test_our_client_speaks_tls_with_grpcio(ask, grpcio_server, root):
    folder = root / "tests" / "data" / "tls"
    key, chain = ((folder / name).read_bytes() for name in ("server_key.pem", "server.pem"))
    credentials = grpc.ssl_server_credentials([(key, chain)])
    target = f"localhost:{grpcio_server.add_secure_port('localhost:0', credentials)}"
    grpcio_server.start()
    authority = folder / "authority.pem"
    assert ask(target, "/t/Upper", "abc", "--tls", authority)[-1] == "OK"
    (refused,) = ask(target, "/t/Upper", "abc", "--tls", folder / "stranger.pem")
    assert refused.startswith("UNAUTHENTICATED")
    assert "certificate" in refused


def test_a_server_of_another_protocol_is_unavailable(ask, tmp_path):
    python = shutil.which("python3")
    server = subprocess.Popen(
        [python, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        text=True,
    )
    port = server.stdout.readline().split(" port ")[1].split()[0]
    try:
        (line,) = ask(f"127.0.0.1:{port}", "/t/Upper", "abc", "--timeout", "20")
        assert line.startswith("UNAVAILABLE")
    finally:
        server.kill()
        server.communicate()
