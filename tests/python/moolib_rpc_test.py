"""moolib's calls between peers: its call shapes, its error type, its messages."""

import asyncio
import logging
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from eventually import eventually
from reverie import errors, moolib

DEADLINE_S = 30.0


@pytest.fixture
def pair():
    host, client = moolib.Rpc(), moolib.Rpc()
    host.set_name("host")
    client.set_name("client")
    host.listen("127.0.0.1:0")
    client.connect(host._rpc().addresses[0])
    yield host, client
    client.close()
    host.close()


def test_calls_return_values_and_futures(pair):
    host, client = pair
    host.define("add", lambda a, b: a + b)
    assert client.sync("host", "add", 1, b=2) == 3
    future = client.async_("host", "add", 3, 4)
    assert future.result() == 7
    assert future.done()
    assert future.exception() is None
    assert future.result(1.0) == 7
    assert (client.get_name(), host.get_name()) == ("client", "host")

    async def ask():
        return await client.async_("host", "add", 5, 6)

    assert asyncio.run(ask()) == 11


def test_errors_have_the_type_and_texts_of_moolib(pair):
    host, client = pair
    release = threading.Event()
    host.define("slow", lambda: release.wait(DEADLINE_S))

    def explode():
        raise ValueError("boom")

    host.define("explode", explode)
    with pytest.raises(RuntimeError, match=r"^RPC remote function host::'nothing' does not exist$"):
        client.sync("host", "nothing")
    with pytest.raises(RuntimeError, match=r"Remote exception during RPC call \(explode\).*boom"):
        client.sync("host", "explode")
    with pytest.raises(RuntimeError, match=r"Attempt to call function slow on myself!"):
        host.sync("host", "slow")
    future = client.async_("host", "slow")
    assert future.exception() is None
    with pytest.raises(RuntimeError, match=r"^The operation timed out$"):
        future.result(0.01)
    future.cancel()
    with pytest.raises(moolib.RpcError, match=r"^The operation was cancelled$"):
        future.result()
    assert isinstance(future.exception(), moolib.RpcError)
    client.set_timeout(0.1)
    with pytest.raises(RuntimeError, match=r"^Call \(host::slow\) timed out$"):
        client.sync("host", "slow")
    with pytest.raises(RuntimeError, match=r"^Call \(absent::f\) timed out$"):
        client.sync("absent", "f")
    release.set()
    with pytest.raises(RuntimeError):
        host.define("slow", print)
    for address in (host._rpc().addresses[0], "nonsense", "host:99999"):
        with pytest.raises(RuntimeError):
            client.listen(address)
    with pytest.raises(RuntimeError, match="nonsense"):
        client.connect("nonsense")


def test_arguments_that_cannot_be_sent_are_refused_at_once(pair):
    host, client = pair
    host.define("size", len)
    with pytest.raises(RuntimeError, match=r"^RPC request is too large! .*'size' on 'host'"):
        client.sync("host", "size", bytes(65 << 20))
    with pytest.raises(TypeError, match="args holds a object"):
        client.async_("host", "size", object())
    assert client.sync("host", "size", b"abc") == 3


def test_callbacks_get_a_result_or_an_error_text(pair):
    host, client = pair
    host.define("f", lambda: 1)
    got = []
    came = threading.Semaphore(0)

    def note(result, error):
        assert threading.current_thread() is not threading.main_thread()
        got.append((result, error))
        came.release()

    client.async_callback("host", "f", note)
    client.async_callback("host", "g", note)
    for _ in range(2):
        assert came.acquire(timeout=DEADLINE_S)
    assert (1, None) in got
    assert (None, "RPC remote function host::'g' does not exist") in got


def test_static_batches_stack_tensors_and_keep_the_first_of_the_rest(pair):
    host, client = pair
    seen = []

    def serve(x, who):
        seen.append((x.shape, who))
        return {"y": x * 2, "note": [who]}

    host.define("serve", serve, batch_size=2)
    futures = [client.async_("host", "serve", np.full(3, i), "w") for i in range(4)]
    for i, future in enumerate(futures):
        result = future.result(DEADLINE_S)
        np.testing.assert_array_equal(result["y"], np.full(3, 2 * i))
        assert result["note"] == ["w"]
    assert seen == [((2, 3), "w")] * 2

    def later(return_callback, x):
        threading.Thread(target=return_callback, args=(x + 1,)).start()

    host.define_deferred("later", later, batch_size=2)
    futures = [client.async_("host", "later", np.float32(i)) for i in range(2)]
    assert [f.result(DEADLINE_S) for f in futures] == [1, 2]


def test_queues_of_calls_can_be_awaited(pair):
    host, client = pair
    queue = host.define_queue("ask", batch_size=8, dynamic_batching=True)
    plain = host.define_queue("plain")
    futures = [client.async_("host", "ask", np.ones(2) * i, i) for i in range(5)]
    single = client.async_("host", "plain", 1, k=2)

    async def serve():
        answered = 0
        while answered < 5:
            return_callback, (x, numbers), kwargs = await queue
            assert isinstance(numbers, tuple)
            assert kwargs == {}
            answered += len(x)
            return_callback((x.sum(axis=1), numbers))
        return_callback, args, kwargs = await plain
        return_callback((args, kwargs))

    asyncio.run(asyncio.wait_for(serve(), DEADLINE_S))
    for i, future in enumerate(futures):
        total, number = future.result(DEADLINE_S)
        assert (total, number) == (2 * i, i)
    assert single.result(DEADLINE_S) == ((1,), {"k": 2})


def test_callbacks_do_not_run_in_the_thread_of_the_caller(pair):
    host, client = pair
    host.define("f", lambda: 1)
    lock = threading.Lock()
    came = threading.Event()

    def note(_result, _error):
        with lock:
            came.set()

    for _ in range(100):  # some calls end before async_callback returns
        came.clear()
        with lock:
            client.async_callback("host", "f", note)
        assert came.wait(DEADLINE_S)


def test_a_queue_returns_the_entries_that_were_enqueued():
    queue = moolib.Queue()
    got = []
    queue.enqueue(got.append, (1, 2), {"k": 3})
    queue.enqueue(got.append)
    assert len(queue) == 2
    answer, args, kwargs = queue.get()
    answer(args)
    assert (got, kwargs) == ([(1, 2)], {"k": 3})

    async def take():
        first = await queue
        waiting = asyncio.gather(later(0), later(1))
        return [first, *await waiting]

    async def later(i):
        threading.Thread(target=queue.enqueue, args=(got.append, (i,))).start()
        return await queue

    first, *others = asyncio.run(asyncio.wait_for(take(), DEADLINE_S))
    assert first[1:] == (None, None)
    assert sorted(args for _, args, _ in others) == [(0,), (1,)]
    with pytest.raises(RuntimeError, match="timed out"):
        queue.get(0.01)
    with pytest.raises(TypeError, match="return_callback"):
        queue.enqueue(1)


@pytest.mark.parametrize("limit_s", [float("inf"), 1e100])
def test_a_queue_can_be_waited_for_without_a_limit(limit_s):
    queue = moolib.Queue()
    threading.Timer(0.05, queue.enqueue, (print, (1,))).start()
    assert queue.get(limit_s)[1] == (1,)


def test_a_cancelled_wait_takes_no_entry_from_a_queue():
    queue = moolib.Queue()

    async def take():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(queue._take(), 0.01)
        queue.enqueue(print, (1,))
        return await queue

    assert asyncio.run(take())[1] == (1,)
    assert not queue._awaiting._wakes


def test_nothing_can_be_enqueued_in_a_queue_of_calls(pair):
    host, client = pair
    queue = host.define_queue("ask")
    assert isinstance(queue, moolib.Queue)
    with pytest.raises(RuntimeError, match="define_queue"):
        queue.enqueue(print)
    future = client.async_("host", "ask", 4)
    answer, args, _ = queue.get(DEADLINE_S)
    answer(args[0] + 1)
    assert future.result(DEADLINE_S) == 5
    host.close()
    with pytest.raises(RuntimeError, match="closed"):
        queue.get(DEADLINE_S)


def test_both_kinds_of_queue_raise_rpc_error_when_the_time_is_up(pair):
    host, _ = pair
    for queue in (host.define_queue("ask"), host.define_queue("b", batch_size=2), moolib.Queue()):
        for limit_s in (0.0, 0.01):
            with pytest.raises(moolib.RpcError, match=r"^The operation timed out$"):
                queue.get(limit_s)


def test_a_queue_of_calls_raises_rpc_error_once_it_is_closed(pair):
    host, _ = pair
    undefined, queue = host.define_queue("gone"), host.define_queue("ask")
    threading.Timer(0.05, host.undefine, ("gone",)).start()
    with pytest.raises(moolib.RpcError, match="undefined"):
        undefined.get(DEADLINE_S)

    async def take():
        threading.Timer(0.05, host.close).start()
        await queue

    with pytest.raises(moolib.RpcError, match="closed"):
        asyncio.run(asyncio.wait_for(take(), DEADLINE_S))
    with pytest.raises(moolib.RpcError, match="closed"):
        queue.get(DEADLINE_S)
    with pytest.raises(moolib.RpcError, match="closed"):
        asyncio.run(asyncio.wait_for(take(), DEADLINE_S))


def test_configure_applies_to_objects_created_later():
    with pytest.raises(ValueError, match="token"):
        moolib.Rpc().listen("0.0.0.0:0")
    moolib.configure(token="secret")
    try:
        broker = moolib.Broker()
        broker.listen("0.0.0.0:0")
        accumulator = moolib.Accumulator("a", [np.zeros(2)])
        accumulator.connect(f"tcp://127.0.0.1:{broker._rpc._rpc().addresses[0].split(':')[-1]}")
        eventually(lambda: accumulator.update() or accumulator.connected())
        accumulator.close()
        broker.close()
    finally:
        moolib.configure()
    with pytest.raises(RuntimeError, match="token"):
        moolib.Rpc().listen("0.0.0.0:0")


def port_of(rpc):
    (port,) = (a.rpartition(":")[2] for a in rpc._rpc().addresses if not a.startswith("unix"))
    return int(port)


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("address", ["*:0", ":0", "0", "tcp://*:0"])
def test_a_wildcard_address_listens_at_ipv4_and_ipv6(address):
    host = moolib.Rpc(insecure=True)
    host.set_name("host")
    host.define("f", lambda: 1)
    host.listen(address)
    for host_name in ["127.0.0.1"] + ["[::1]"] * has_ipv6():
        client = moolib.Rpc()
        client.set_transports(["tcp"])
        client.set_timeout(DEADLINE_S)
        client.connect(f"{host_name}:{port_of(host)}")
        assert client.sync("host", "f") == 1
        client.close()
    host.close()


def test_a_wildcard_address_is_refused_where_ipv4_is_taken():
    with socket.create_server(("0.0.0.0", 0)) as taken:
        rpc = moolib.Rpc(insecure=True)
        with pytest.raises(RuntimeError, match="another process listens"):
            rpc.listen(f":{taken.getsockname()[1]}")
        rpc.close()


def test_a_wildcard_address_listens_at_ipv4_where_there_is_no_ipv6(monkeypatch):
    rpc = moolib.Rpc(insecure=True)
    listen = rpc._rpc().listen

    def listen_by_ipv4(address):
        if address.startswith("["):
            raise errors.UnavailableError("cannot listen: Address family not supported by protocol")
        return listen(address)

    monkeypatch.setattr(rpc._rpc(), "listen", listen_by_ipv4)
    rpc.listen(":0")
    client = moolib.Rpc()
    client.connect(f":{port_of(rpc)}")
    rpc.define("f", lambda: 1)
    assert client.sync(rpc.get_name(), "f") == 1
    client.close()
    rpc.close()


def test_messages_go_to_the_configured_logger(capsys):
    lines = []

    class Log:
        info = staticmethod(lambda text: lines.append(("info", text)))
        error = staticmethod(lambda text: lines.append(("error", text)))

    logger = logging.getLogger("reverie")
    before = list(logger.handlers)
    try:
        moolib.set_logging(Log)
        logger.warning("100 %")
        logger.error("bad")
        assert lines == [("info", "100 %"), ("error", "bad")]
        moolib.set_logging(None)
        logger.error("seen")
        assert capsys.readouterr().out == "seen\n"
        with pytest.raises(TypeError, match="logging_module"):
            moolib.set_logging(object())
    finally:
        moolib.set_logging(logging)
    assert logger.handlers == before
    assert len(lines) == 2


def test_a_deleted_and_recreated_host_is_found_again():
    host = moolib.Rpc()
    host.set_name("host")
    host.listen("127.0.0.1:0")
    address = next(a for a in host._rpc().addresses if a.startswith("127."))
    host.define("f", lambda: 1)
    client = moolib.Rpc()
    client.connect(address)
    assert client.sync("host", "f") == 1
    del host  # closes the port at once
    future = client.async_("host", "f")
    host = moolib.Rpc()
    host.set_name("host")
    host.define("f", lambda: 2)
    host.listen(address)
    try:
        assert future.result(DEADLINE_S) == 2
    except moolib.RpcError:  # the call was sent to the first host
        assert client.sync("host", "f") == 2
    client.close()
    host.close()


def test_names_and_transports_can_only_be_set_before_use():
    rpc = moolib.Rpc()
    rpc.set_transports(["TCP"])
    rpc.listen("tcp://127.0.0.1:0")
    with pytest.raises(RuntimeError, match="before"):
        rpc.set_name("late")
    with pytest.raises(RuntimeError, match="before"):
        rpc.set_transports(["ipc"])
    rpc.close()
    named = moolib.Rpc(insecure=True)
    named.listen(":0")
    named.listen("ipc://reverie-moolib-test")
    assert any(a.startswith(("[::]:", "0.0.0.0:")) for a in named._rpc().addresses)
    named.close()
    with pytest.raises(RuntimeError, match="tcp/ip"):
        moolib.Rpc().set_transports(["tcp/ip"])


@pytest.mark.parametrize(
    ("names", "transport"),
    [(["tcp", "ipc"], "shared memory"), (["IPC"], "shared memory"), (["tcp"], "TCP")],
)
def test_transports_named_as_in_moolib_keep_shared_memory(names, transport):
    host, client = moolib.Rpc(), moolib.Rpc()
    host.set_name("host")
    for rpc in (host, client):
        rpc.set_transports(names)
    host.define("f", lambda: 2)
    address = f"ipc://{moolib.create_uid()}" if names == ["IPC"] else "127.0.0.1:0"
    host.listen(address)
    client.connect(address if names == ["IPC"] else host._rpc().addresses[0])
    assert client.sync("host", "f") == 2
    eventually(lambda: client._rpc().debug_info()["peers"][0]["transport"] == transport)
    client.close()
    host.close()


def test_module_functions_accept_the_values_of_moolib():
    assert len(moolib.create_uid()) == 16
    int(moolib.create_uid(), 16)
    for level in ("none", "error", "info", "verbose", "debug", 0, 4):
        moolib.set_log_level(level)
    with pytest.raises(ValueError, match="level"):
        moolib.set_log_level("loud")
    moolib.set_max_threads(32)


def test_debug_info_prints_the_name(capsys):
    rpc = moolib.Rpc()
    rpc.set_name("me")
    assert rpc.debug_info() is None
    assert "name: me" in capsys.readouterr().out


def test_two_processes_can_call_each_other(tmp_path):
    program = tmp_path / "host.py"
    program.write_text(
        "import sys\n"
        "from reverie import moolib\n"
        "rpc = moolib.Rpc()\n"
        "rpc.set_name('host')\n"
        "rpc.define('double', lambda x: x * 2)\n"
        "rpc.listen('127.0.0.1:0')\n"
        "print(rpc._rpc().addresses[0], flush=True)\n"
        "sys.stdin.read()\n"
    )
    host = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    client = moolib.Rpc()
    client.connect(host.stdout.readline().strip())
    np.testing.assert_array_equal(client.sync("host", "double", np.arange(5)), np.arange(5) * 2)
    client.close()
    host.communicate()
