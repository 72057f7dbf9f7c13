"""Tensors on a GPU between peers: they are copied within the GPU, and else arrive on the CPU."""

import contextlib
import ctypes
import subprocess
import sys

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie.errors import DeadlineExceededError, UnavailableError

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

GPU = "cuda:0"

# Another process: it serves functions, and takes commands as lines of Python.
_PEER = """
import os, sys, threading
import reverie
import torch
ends = threading.Timer(300, os._exit, [3])
ends.daemon = True
ends.start()
rpc = reverie.Rpc(sys.argv[1], timeout_s=60.0)
held = []
def where(x):
    return str(x.device), str(x.dtype), tuple(x.shape)
rpc.define("where", where)
rpc.define("twice", lambda x: x["x"] * 2)
rpc.define("same", lambda *values: values)
rpc.define("sum", lambda x: float(x.double().sum()))
rpc.define("hold", lambda x: held.append(x))
rpc.define("make", lambda n, value: torch.full((n,), float(value), device="cuda:0"))
rpc.define("rows", lambda x: x * 3, batch_size=4)
rpc.define_queue("waits")
counts = []
def rows_and_count(x):
    if not counts:
        counts.append(torch.zeros((), device="cuda:0"))
    counts[0].add_(1)
    return x * counts[0], counts[0]
rpc.define("rows and count", rows_and_count, batch_size=4)
print(rpc.listen(), flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Process:
    def __init__(self, name="other", program=_PEER, uses_gpu=True):
        self.child = subprocess.Popen(
            [sys.executable, "-c", program, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self.child.stdout.readline().strip()
        if uses_gpu:
            self.run("torch.zeros(1, device='cuda:0')")

    def run(self, line):
        print(line, file=self.child.stdin, flush=True)
        assert self.child.stdout.readline() == "done\n"

    def kill(self):
        self.child.kill()
        self.child.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.child.stdin.close()
        self.child.stdout.close()


@pytest.fixture(scope="module")
def other():
    with Process() as process:
        yield process


@contextlib.contextmanager
def connected(process, **options):
    with reverie.Rpc("ours", timeout_s=60.0, **options) as rpc:
        rpc.connect(process.address)
        yield rpc


def released(rpc):
    eventually(lambda: rpc.debug_info()["devices"]["lent_bytes"] == 0)


def tensors():
    base = torch.arange(24.0, device=GPU).reshape(4, 6)
    return {
        "whole": base,
        "transposed": base.T,
        "columns": base[:, 1:4],
        "offset": base[1:],
        "one row": base[2],
        "scalar": base[1, 1],
        "expanded": base[:1].expand(3, 6),
        "empty": base[:0],
        "no columns": base[:, :0],
        "bfloat16": base.to(torch.bfloat16),
        "float16": base.half()[1:, ::2],
        "float8": base.to(torch.float8_e4m3fn),
        "bool": base > 5,
        "int64": base.long(),
        "uint8": base.to(torch.uint8)[:, 3:],
        "complex": torch.complex(base, base + 1),
        "conjugate": torch.complex(base, base + 1).conj(),
        "needs gradients": base.clone().requires_grad_(),
        "parameter": torch.nn.Parameter(base.clone()),
        "large": torch.randn(3 << 20, device=GPU),
    }


def is_equal(got, sent):
    sent = sent.detach().resolve_conj()
    if sent.dtype == torch.float8_e4m3fn:
        got, sent = got.view(torch.uint8), sent.view(torch.uint8)
    return torch.equal(got, sent)


def test_tensors_of_another_process_arrive_on_the_device(other):
    with connected(other) as rpc:
        for name, sent in tensors().items():
            device, _, shape = rpc.sync("other", "where", sent)
            assert (device, shape) == (GPU, tuple(sent.shape)), (name, rpc.debug_info()["devices"])
            nest = {"a": [sent, 1], "b": (sent, {"c": sent})}
            for got in (
                rpc.sync("other", "same", nest)[0],
                rpc.async_("other", "same", nest).result(60)[0],
            ):
                for leaf in (got["a"][0], got["b"][0], got["b"][1]["c"]):
                    assert leaf.device == torch.device(GPU), name
                    assert leaf.dtype == sent.dtype, name
                    assert is_equal(leaf, sent), name
        assert rpc.debug_info()["devices"]["lent"] > 100
        assert rpc.debug_info()["devices"]["received"] > 100
        released(rpc)


def test_the_first_call_waits_until_it_is_known_where_tensors_arrive(other):
    for _ in range(3):
        with connected(other) as rpc:
            assert rpc.sync("other", "where", torch.ones(3, device=GPU))[0] == GPU
        with connected(other) as rpc:
            assert rpc.sync("other", "make", 5, 2.5).tolist() == [2.5] * 5
            assert rpc.debug_info()["devices"]["received"] == 1


def test_work_that_is_queued_is_done_before_a_tensor_is_read(other):
    with connected(other) as rpc:
        a = torch.randn(2048, 2048, device=GPU)
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x = a
                for _ in range(50):
                    x = torch.tanh(x @ a)
                got = rpc.sync("other", "sum", x)
            torch.cuda.synchronize()
            assert got == float(x.double().sum())


def test_a_sender_may_change_and_free_its_tensors_at_once(other):
    with connected(other) as rpc:
        calls = []
        for i in range(100):
            x = torch.full((100_000,), float(i), device=GPU)
            calls.append(rpc.async_("other", "sum", x))
            x.fill_(-1.0)
            del x
        for i, call in enumerate(calls):
            assert call.result(60) == i * 100_000.0
        released(rpc)


def test_many_tensors_in_flight_arrive(other):
    with connected(other) as rpc:
        x = torch.randn(8, 1 << 20, device=GPU)
        total = [float(row.double().sum()) for row in x]
        calls = [(i % 8, rpc.async_("other", "sum", x[i % 8])) for i in range(300)]
        for row, call in calls:
            assert call.result(60) == pytest.approx(total[row])
        results = [rpc.async_("other", "make", 1 << 20, i) for i in range(50)]
        for i, call in enumerate(results):
            got = call.result(60)
            assert got.device == torch.device(GPU)
            assert float(got[0]) == float(got[-1]) == float(i)
        released(rpc)


def test_results_that_are_kept_stay_as_they_are(other):
    with connected(other) as rpc:
        kept = [rpc.sync("other", "make", 1000, i) for i in range(50)]
        torch.cuda.empty_cache()
        other.run("torch.cuda.empty_cache()")
        for i, tensor in enumerate(kept):
            assert tensor.eq(i).all()


def test_memory_that_its_sender_has_given_back_is_not_read_in_its_place(other):
    with connected(other) as rpc:
        for i in range(20):
            x = torch.full((4 << 20,), float(i), device=GPU)  # an allocation of its own
            assert rpc.sync("other", "sum", x) == i * float(4 << 20)
            del x
            torch.cuda.empty_cache()


def test_rows_of_a_batch_arrive_on_the_device(other):
    with connected(other) as rpc:
        for dtype in (torch.float32, torch.bfloat16):
            rows = [torch.full((5,), float(i), device=GPU, dtype=dtype) for i in range(8)]
            calls = [rpc.async_("other", "rows", row) for row in rows]
            for row, call in zip(rows, calls, strict=True):
                got = call.result(60)
                assert got.device == torch.device(GPU)
                assert torch.equal(got, row * 3)


def test_the_function_of_a_batch_may_change_its_result_afterwards(other):
    with connected(other) as rpc:
        calls = [
            rpc.async_("other", "rows and count", torch.ones(4, device=GPU)) for _ in range(32)
        ]
        # A lent tensor is copied when it is asked for: the function has run again until then.
        for call in reversed(calls):
            rows, count = call.result(60)
            assert rows.device == count.device == torch.device(GPU)
            assert torch.equal(rows, count.expand(4))


def test_idempotent_calls_have_their_tensors_on_the_device(other):
    with connected(other) as rpc:
        x = torch.randn(1000, device=GPU)[::2]
        before = rpc.debug_info()["devices"]["lent"]
        (got,) = rpc.sync("other", "same", x, idempotent=True)
        assert got.device == torch.device(GPU)
        assert torch.equal(got, x)
        assert rpc.debug_info()["devices"]["lent"] == before  # as bytes, which any run can read
        for name, sent in tensors().items():
            (got,) = rpc.sync("other", "same", sent, idempotent=True)
            assert is_equal(got, sent), name


@pytest.mark.parametrize("transports", [("tcp",), ("unix", "tcp")])
def test_without_shared_memory_tensors_arrive_on_the_cpu(other, transports):
    with connected(other, transports=transports) as rpc:
        x = torch.randn(1 << 20, device=GPU)
        assert rpc.sync("other", "where", x)[0] == "cpu"
        columns = x.view(1 << 10, 1 << 10).T
        (got,) = rpc.sync("other", "same", columns)
        assert torch.equal(got, columns.cpu())
        assert rpc.debug_info()["devices"]["lent"] == 0


def test_tensors_arrive_on_the_cpu_until_their_receiver_uses_the_device():
    with Process("lazy", uses_gpu=False) as process, connected(process) as rpc:
        x = torch.randn(1 << 20, device=GPU)
        assert rpc.sync("lazy", "where", x)[0] == "cpu"
        (got,) = rpc.sync("lazy", "same", x)
        assert torch.equal(got, x.cpu())
        process.run("assert not torch.cuda.is_initialized()")
        process.run("torch.zeros(1, device='cuda:0')")
        eventually(lambda: rpc.sync("lazy", "where", x)[0] == GPU)


def test_peers_of_one_process_have_tensors_on_the_device():
    with reverie.Rpc("a") as a, reverie.Rpc("b") as b:
        a.define("twice", lambda x: x["x"] * 2)
        a.define("back", lambda x: x.to(GPU) + 1)
        b.connect(a.listen())
        ours = torch.arange(6.0, device=GPU).reshape(2, 3)
        for value in (ours, ours.T, ours[:, 1:], ours.to(torch.bfloat16), ours.requires_grad_()):
            got = b.sync("a", "twice", {"x": value})
            assert got.device == torch.device(GPU)
            assert got.dtype == value.dtype
            assert torch.equal(got, value.detach() * 2)
        assert torch.equal(b.sync("a", "back", ours), ours.detach() + 1)
        assert torch.equal(b.sync("a", "back", ours.detach().cpu()), ours.detach() + 1)
        assert a.debug_info()["devices"]["open"] == b.debug_info()["devices"]["open"] == 0


def test_a_receiver_that_is_killed_releases_what_was_lent_to_it():
    with Process("victim") as process, connected(process) as rpc:
        x = torch.randn(1 << 20, device=GPU)
        assert rpc.sync("victim", "where", x)[0] == GPU
        calls = [rpc.async_("victim", "waits", x) for _ in range(20)]
        assert rpc.debug_info()["devices"]["lent_bytes"] >= 20 * x.nbytes
        process.kill()
        for call in calls:
            with pytest.raises(UnavailableError):
                call.result(60)
        released(rpc)
        assert float(x.sum()) == float(x.clone().sum())


_SENDER = """
import os, sys, threading
import reverie
import torch
ends = threading.Timer(300, os._exit, [3])
ends.daemon = True
ends.start()
rpc = reverie.Rpc(sys.argv[1], timeout_s=60.0)
print("up", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


def test_a_sender_that_is_killed_gives_an_error_or_its_tensor():
    with reverie.Rpc("ours") as rpc, Process("victim", _SENDER) as process:
        queue = rpc.define_queue("take")
        rpc.define("sum", lambda x: float(x.sum()))
        process.run(f"rpc.connect({rpc.listen()!r})")
        process.run("x = torch.ones(1 << 20, device='cuda:0')")
        process.run("assert rpc.sync('ours', 'sum', x) == 1 << 20")
        process.run("y = torch.ones(8 << 20, device='cuda:0')")  # another allocation
        process.run("calls = [rpc.async_('ours', 'take', v) for v in (x, y)]")
        eventually(lambda: len(queue) == 2)
        process.kill()
        for _ in range(2):
            try:
                _, (got,), _ = queue.get(timeout_s=1.0)
            except DeadlineExceededError:
                continue  # the arguments could not be read, and their call has ended
            assert got.eq(1).all()
        assert float(torch.ones(10, device=GPU).sum()) == 10.0  # the device still works
        eventually(lambda: rpc.debug_info()["devices"]["open"] == 0)


_EXPANDABLE = _SENDER.replace(
    "import torch",
    "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'; import torch",
)


def test_memory_without_a_handle_goes_through_the_host_to_the_device():
    with reverie.Rpc("ours") as rpc, Process("expanding", _EXPANDABLE) as process:
        rpc.define("where", lambda x: (str(x.device), float(x.sum())))
        process.run(f"rpc.connect({rpc.listen()!r})")
        process.run("x = torch.ones(1 << 20, device='cuda:0')")
        process.run(f"assert rpc.sync('ours', 'where', x) == ({GPU!r}, float(1 << 20))")


def test_questions_that_are_forged_are_refused(other):
    draws = np.random.default_rng(1)
    with connected(other) as rpc:
        x = torch.ones(1000, device=GPU)
        assert rpc.sync("other", "where", x)[0] == GPU
        for size in (112, 112, 112, 0, 5, 111, 113):
            record = draws.integers(0, 256, size, dtype=np.uint8).tobytes()
            assert rpc.sync("other", "reverie.device", record) == "the question is not a record"
        assert rpc.sync("other", "sum", x) == 1000.0


class _Handle(ctypes.Structure):
    _fields_ = (("words", ctypes.c_uint64 * 8),)


def test_the_driver_refuses_handles_of_random_bytes():
    """What `DeviceDriver::open` relies on: another process may send any bytes."""
    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device=GPU)
    draws = np.random.default_rng(1)
    for _ in range(500):
        handle = _Handle.from_buffer_copy(draws.bytes(64))
        address = ctypes.c_uint64()
        lazy_peer_access = ctypes.c_uint(1)
        assert driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, lazy_peer_access) != 0
    assert float(torch.ones(10, device=GPU).sum()) == 10.0
