"""moolib's calls between peers: its call shapes, its one error type, its texts."""

import asyncio
import subprocess
import sys
import threading

import numpy as np
import pytest

from reverie import moolib

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


def test_errors_have_one_type_and_moolibs_texts(pair):
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
    with pytest.raises(RuntimeError):
        client.listen(host._rpc().addresses[0])


def test_callbacks_get_a_result_or_a_text(pair):
    host, client = pair
    host.define("f", lambda: 1)
    got = []
    came = threading.Semaphore(0)

    def note(result, error):
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


def test_a_queue_is_awaited(pair):
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


def test_a_host_that_is_deleted_and_made_again_is_found_again():
    host = moolib.Rpc()
    host.set_name("host")
    host.listen("127.0.0.1:0")
    address = next(a for a in host._rpc().addresses if a.startswith("127."))
    host.define("f", lambda: 1)
    client = moolib.Rpc()
    client.connect(address)
    assert client.sync("host", "f") == 1
    del host  # frees the port at once
    future = client.async_("host", "f")
    host = moolib.Rpc()
    host.set_name("host")
    host.define("f", lambda: 2)
    host.listen(address)
    try:
        assert future.result(DEADLINE_S) == 2
    except moolib.RpcError:  # it was on its way to the first one
        assert client.sync("host", "f") == 2
    client.close()
    host.close()


def test_names_and_transports_are_set_before_use():
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
    assert any(a.startswith("0.0.0.0:") for a in named._rpc().addresses)
    named.close()
    with pytest.raises(ValueError, match="tcp/ip"):
        moolib.Rpc().set_transports(["tcp/ip"])


def test_the_modules_functions():
    assert len(moolib.create_uid()) == 16
    int(moolib.create_uid(), 16)
    for level in ("none", "error", "info", "verbose", "debug", 0, 4):
        moolib.set_log_level(level)
    with pytest.raises(ValueError, match="level"):
        moolib.set_log_level("loud")
    import logging

    moolib.set_logging(logging)
    moolib.set_logging(None)
    moolib.set_max_threads(32)


def test_debug_info_prints(capsys):
    rpc = moolib.Rpc()
    rpc.set_name("me")
    assert rpc.debug_info() is None
    assert "name: me" in capsys.readouterr().out


def test_two_processes(tmp_path):
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
