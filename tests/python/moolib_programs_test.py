"""Programs written for moolib, which import it by that name: a prologue aliases the name.

The names and call shapes are those of moolib's fact sheet; the tests check what each one does.
"""

import inspect
import subprocess
import sys
import textwrap

import pytest

from reverie import moolib

DEADLINE_S = 120.0

# The prologue of each program.
ALIASED = """
import sys
import reverie.moolib
sys.modules["moolib"] = reverie.moolib
"""
TRUSTED = ALIASED + 'reverie.moolib.configure(token="a secret", allow_pickle=True)\n'

F = None  # stands for a function, a tensor or a name in the signatures below
SHAPES = {
    "create_uid": ["()"],
    "set_log_level": ["(F)"],
    "set_logging": ["(F)"],
    "set_max_threads": ["(F)"],
    "Rpc": ["()"],
    "Rpc.set_name": ["(F)"],
    "Rpc.get_name": ["()"],
    "Rpc.listen": ["(F)"],
    "Rpc.connect": ["(F)"],
    "Rpc.define": ["(F, F)", "(F, F, batch_size=F, device=F)"],
    "Rpc.define_deferred": ["(F, F)", "(F, F, batch_size=F, device=F)"],
    "Rpc.define_queue": ["(F)", "(F, batch_size=F, device=F, dynamic_batching=F)"],
    "Rpc.undefine": ["(F)"],
    "Rpc.sync": ["(F, F)", "(F, F, F, F, key=F, name=F, peer=F, function=F)"],
    "Rpc.async_": ["(F, F)", "(F, F, F, F, key=F, name=F, peer=F, function=F)"],
    "Rpc.async_callback": ["(F, F, F)", "(F, F, F, F, F, key=F, callback=F)"],
    "Rpc.set_timeout": ["(F)"],
    "Rpc.set_transports": ["(F)"],
    "Rpc.debug_info": ["()"],
    **{
        f"{kind}.{name}": shapes
        for kind in ("Future", "AllReduce")
        for name, shapes in {
            "result": ["()", "(F)"],
            "wait": ["()", "(F)"],
            "done": ["()"],
            "cancel": ["()"],
            "exception": ["()"],
            "__await__": ["()"],
            "__iter__": ["()"],
        }.items()
    },
    "Queue": ["()"],
    "Queue.enqueue": ["(F)", "(F, F, F)"],
    "Queue.__await__": ["()"],
    "Group": ["(F, F)"],
    "Group.update": ["()"],
    "Group.set_broker_name": ["(F)"],
    "Group.set_timeout": ["(F)"],
    "Group.set_sort_order": ["(F)"],
    "Group.members": ["()"],
    "Group.sync_id": ["()"],
    "Group.name": ["()"],
    "Group.active": ["()"],
    "Group.all_reduce": ["(F, F)", "(F, F, op=F)", "(F, F, F)"],
    "Accumulator": ["(F, F, F)", "(F, F, F, group=F)"],
    **{
        f"Accumulator.{name}": ["()"]
        for name in (
            "update",
            "connected",
            "wants_state",
            "has_new_state",
            "state",
            "wants_gradients",
            "skip_gradients",
            "has_gradients",
            "zero_gradients",
            "model_version",
            "get_leader",
            "is_leader",
            "get_gradient_stats",
        )
    },
    **{
        f"Accumulator.{name}": ["(F)"]
        for name in (
            "connect",
            "set_state",
            "reduce_gradients",
            "set_model_version",
            "set_virtual_batch_size",
            "set_parallel_gradients",
        )
    },
    "Broker": ["()", "(F)"],
    "Broker.set_name": ["(F)"],
    "Broker.listen": ["(F)"],
    "Broker.update": ["()"],
    "broker.main": ["()"],
    "EnvPool": ["(F, F, F, F)", "(create_env=F, num_processes=F, batch_size=F, num_batches=F)"],
    "EnvPool.step": ["(F, F)", "(batch_index=F, action=F)"],
    "EnvStepperFuture.result": ["()"],
    "Batcher": ["(F)", "(F, F)", "(size=F, device=F, dim=F)"],
    "Batcher.stack": ["(F)"],
    "Batcher.cat": ["(F)"],
    "Batcher.empty": ["()"],
    "Batcher.size": ["()"],
    "Batcher.get": ["()"],
    "Batcher.__await__": ["()"],
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_function_accepts_the_arguments_that_moolib_accepts(name):
    home, _, method = name.partition(".")
    found = getattr(moolib, home)
    signature = inspect.signature(getattr(found, method) if method else found)
    if method and inspect.isclass(found):
        first = next(iter(signature.parameters), None)
        if first == "self":
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    for shape in SHAPES[name]:
        eval(f"signature.bind{shape}", {"signature": signature, "F": F})


def test_every_name_of_moolib_can_be_imported():
    names = """Accumulator AllReduce Batcher Broker EnvPool EnvRunner EnvStepper EnvStepperFuture
        Future Group Queue Rpc RpcDeferredReturn RpcError create_uid set_log_level set_logging
        set_max_threads"""
    for name in names.split():
        assert getattr(moolib, name).__doc__, name
        assert name in moolib.__all__
    for part in (moolib.EnvRunner, moolib.EnvStepper):
        with pytest.raises(TypeError, match="make an EnvPool"):
            part()


def run(*programs, first=ALIASED):
    """Runs programs in parallel; the first is the host, whose address the others get.

    Returns what each one printed.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", first + textwrap.dedent(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for program in programs
    ]
    try:
        for later in processes[1:]:
            out, err = later.communicate(timeout=DEADLINE_S)
            assert later.returncode == 0, err
            later.told = out
        out, err = processes[0].communicate("done\n", timeout=DEADLINE_S)
        assert processes[0].returncode == 0, err
        processes[0].told = out
    finally:
        for process in processes:
            process.kill()
    return [process.told.split("\n")[:-1] for process in processes]


@pytest.fixture
def address():
    return f"ipc://{moolib.create_uid()}"


def test_programs_of_a_host_and_a_client_run(address):
    host = f"""
        import sys, threading
        import moolib

        rpc = moolib.Rpc()
        rpc.set_name("host")
        rpc.define("add", lambda a, b=1: a + b)

        def later(return_callback, x):
            threading.Timer(0.01, lambda: return_callback(x + 1)).start()

        def fail():
            raise ValueError("bad")

        rpc.define_deferred("later", later)
        rpc.define("fail", fail)
        rpc.define("gone", print)
        rpc.undefine("gone")
        rpc.undefine("never there")
        try:
            rpc.define("add", print)
        except RuntimeError:
            print("defined twice")
        rpc.listen("{address}")
        sys.stdin.readline()
    """
    client = f"""
        import asyncio, threading
        import moolib

        rpc = moolib.Rpc()
        rpc.set_name("client")
        assert rpc.get_name() == "client"
        rpc.set_timeout(30)
        rpc.connect("{address}")
        print(rpc.sync("host", "add", 2, b=3))
        future = rpc.async_("host", "later", 6)
        future.wait()
        print(future.done(), future.exception(), future.result(5.0))

        async def both():
            return await asyncio.gather(one(), one())

        async def one():
            return await rpc.async_("host", "add", 1)

        print(asyncio.run(both()))

        came = threading.Event()
        def callback(result, error):
            print(result, error)
            assert threading.current_thread() is not threading.main_thread()
            came.set()
        rpc.async_callback("host", "add", callback, 4)
        assert came.wait(30)
        came.clear()
        rpc.async_callback("host", "gone", callback)
        assert came.wait(30)
        for function in ("gone", "fail"):
            try:
                rpc.sync("host", function)
            except RuntimeError as error:
                print(str(error).split(chr(10))[0])
        failed = rpc.async_("host", "fail")
        try:
            failed.wait()
        except RuntimeError:
            pass
        assert isinstance(failed.exception(), moolib.RpcError)
        rpc.set_timeout(0.2)
        try:
            rpc.sync("nowhere", "f")
        except RuntimeError as error:
            print(error)
    """
    told, got = run(host, client)
    assert told == ["defined twice"]
    assert got == [
        "5",
        "True None 7",
        "[2, 2]",
        "5 None",
        "None RPC remote function host::'gone' does not exist",
        "RPC remote function host::'gone' does not exist",
        "Remote exception during RPC call (fail): ValueError: bad",
        "Call (nowhere::f) timed out",
    ]


def test_a_program_that_serves_a_model_with_queues_and_batches_runs(address):
    pytest.importorskip("torch")
    host = f"""
        import asyncio, sys, threading
        import moolib, torch

        rpc = moolib.Rpc()
        rpc.set_name("host")
        rpc.define("twice", lambda obs: {{"action": obs["x"] * 2, "tag": "t"}}, batch_size=2)
        queue = rpc.define_queue("dynamic", batch_size=8, dynamic_batching=True)
        single = rpc.define_queue("single")
        rpc.listen("{address}")

        async def serve(queue):
            while True:
                return_callback, args, kwargs = await queue
                if queue is single:
                    return_callback((args, kwargs))
                    continue
                (x, n), kwargs = args, kwargs
                assert isinstance(n, tuple) and len(n) == x.shape[0], (n, x)
                return_callback((x.sum(1), n))

        async def main():
            served = [asyncio.create_task(serve(q)) for q in (queue, single)]
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            for task in served:
                task.cancel()

        asyncio.run(main())
    """
    client = f"""
        import moolib, torch

        rpc = moolib.Rpc()
        rpc.connect("{address}")
        rows = [torch.full((3,), float(i)) for i in range(4)]
        futures = [rpc.async_("host", "twice", {{"x": row}}) for row in rows]
        for i, future in enumerate(futures):
            result = future.result()
            assert result["tag"] == "t" and result["action"].tolist() == [2.0 * i] * 3, result
        futures = [rpc.async_("host", "dynamic", torch.ones(2) * i, i) for i in range(20)]
        for i, future in enumerate(futures):
            total, number = future.result()
            assert total.shape == () and (float(total), number) == (2.0 * i, i), (total, number)
        print(rpc.sync("host", "single", 1, key="value"))
    """
    _, got = run(host, client)
    assert got == ["((1,), {'key': 'value'})"]


PICKLED = """
        class Point:
            def __init__(self, x):
                self.x = x
            def __eq__(self, other):
                return isinstance(other, Point) and other.x == self.x
"""


def test_objects_can_be_pickled_if_one_line_allows_it(address):
    host = f"""
        import sys
        import moolib
        {PICKLED}
        rpc = moolib.Rpc()
        rpc.set_name("host")
        rpc.define("echo", lambda value: value)
        rpc.define("moved", lambda point: Point(point.x + 1))
        rpc.listen("{address}")
        sys.stdin.readline()
    """
    client = f"""
        import datetime
        import moolib
        import numpy as np
        {PICKLED}
        rpc = moolib.Rpc()
        rpc.connect("{address}")
        for value in (Point(3), [Point(1), {{"a": Point(2)}}], {{1, 2}}, b"x", 2**100, len,
                      datetime.timedelta(3), np.array(["text"]), np.array([None, Point(7)])):
            got = rpc.sync("host", "echo", value)
            assert np.array_equal(got, value), (got, value)
        print(rpc.sync("host", "moved", Point(3)).x)
        try:
            rpc.sync("host", "echo", lambda: 1)
        except TypeError as error:
            print(error)
    """
    _, got = run(host, client, first=TRUSTED)
    assert got[0] == "4"
    assert "args holds a function, which cannot be pickled" in got[1]


def test_a_peer_without_allow_pickle_reads_no_pickles(address):
    host = f"""
        import sys
        import moolib
        rpc = moolib.Rpc(allow_pickle=False)
        rpc.set_name("host")
        rpc.define("echo", lambda value: value)
        rpc.define("make", object)
        rpc.listen("{address}")
        sys.stdin.readline()
    """
    client = f"""
        import moolib
        rpc = moolib.Rpc()
        rpc.connect("{address}")
        for call in (("echo", object()), ("make",)):
            try:
                rpc.sync("host", *call)
            except (RuntimeError, ValueError, TypeError) as error:
                print(error)
    """
    _, got = run(host, client, first=TRUSTED)
    assert "the arguments of 'echo' cannot be read: a pickled value came" in got[0]
    assert "the answer holds a object, which has no encoding" in got[1]


TRAINING = """
    import sys, time
    import moolib, torch
    import numpy as np

    class Corridor:  # moolib's environments are Gym's first ones
        def reset(self):
            self.at = 0
            return np.zeros(1, np.float32)
        def step(self, action):
            self.at += 1
            return np.full(1, self.at, np.float32), float(action), self.at >= 5, {}

    class Stats:  # what examples of moolib sum over all peers: objects of their own
        def __init__(self, steps):
            self.steps = steps
        def __add__(self, other):
            return Stats(self.steps + other.steps)

    if __name__ == "__main__":
        envs = moolib.EnvPool(Corridor, num_processes=1, batch_size=2, num_batches=1)
        model = torch.nn.Linear(1, 2)
        optimizer = torch.optim.Adam(model.parameters())
        rpc = moolib.Rpc()
        rpc.set_name(sys.argv[1] if len(sys.argv) > 1 else NAME)
        rpc.connect(ADDRESS)
        group = moolib.Group(rpc, "project/group")
        accumulator = moolib.Accumulator("model", model.parameters(), model.buffers(), group=group)
        accumulator.set_virtual_batch_size(4)
        time_batcher = moolib.Batcher(3, "cpu")
        action = torch.zeros(2, dtype=torch.int64)
        future = envs.step(0, action)
        updates, steps, summed = 0, 0, None
        until = time.monotonic() + 100
        while updates < 10 or summed is None or not summed.done():
            assert time.monotonic() < until, (updates, summed)
            group.update()
            accumulator.update()
            if accumulator.wants_state():
                accumulator.set_state({"optimizer": optimizer.state_dict(), "steps": steps})
            if accumulator.has_new_state():
                optimizer.load_state_dict(accumulator.state()["optimizer"])
            if not accumulator.connected():
                time.sleep(0.01)
                continue
            if summed is None and len(group.members()) == 2:
                summed = group.all_reduce("stats", Stats(3), op=lambda a, b: a + b)
            if accumulator.has_gradients():
                optimizer.step()
                accumulator.zero_gradients()
                updates += 1
            elif not time_batcher.empty() and accumulator.wants_gradients():
                batch = time_batcher.get()
                model(batch["state"]).sum().backward()
                accumulator.reduce_gradients(2)
            else:
                if accumulator.wants_gradients():
                    accumulator.skip_gradients()
                outputs = future.result()
                future = envs.step(0, action)
                steps += 2
                if time_batcher.empty():
                    time_batcher.stack({"state": outputs["state"], "reward": outputs["reward"]})
        print(summed.result().steps)
        assert accumulator.model_version() >= 10
        assert accumulator.get_gradient_stats()["batch_size"] >= 4
        deadline = time.monotonic() + 3  # the other one may need rounds of two, still
        while len(group.members()) == 2 and time.monotonic() < deadline:
            group.update(); accumulator.update()
            if accumulator.has_gradients():
                accumulator.zero_gradients()
            elif accumulator.wants_gradients():
                accumulator.reduce_gradients(2)
            time.sleep(0.01)
"""


def test_two_peers_train_with_a_program_like_moolibs_examples(address):
    pytest.importorskip("torch")
    broker = f"""
        import sys, threading
        import moolib
        broker = moolib.Broker()
        broker.set_name("broker")
        broker.listen("{address}")
        over = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
        while not over.wait(0.25):
            broker.update()
    """
    program = TRAINING.replace("ADDRESS", repr(address))
    peers = [program.replace("NAME", repr(f"peer{i}")) for i in range(2)]
    _, *got = run(broker, *peers, first=TRUSTED)
    assert got == [["6"], ["6"]]
