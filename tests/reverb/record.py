"""Records what dm-reverb's clients and servers say to each other, for tests without them.

A proxy between the two, which does not interpret messages, writes each down as a line

    <method> <call> <direction> <message in hex>

with ``>`` for what the client sent and ``<`` for what the server sent.

Usage: record.py FOLDER
"""

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
import reverb
import tensorflow as tf

_STREAMS = {"InsertStream", "SampleStream"}


class Proxy(grpc.GenericRpcHandler):
    """Forwards every call to ``target`` and records the messages."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target)
        self._calls = itertools.count()
        self._lock = threading.Lock()
        self.lines: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """The handler of a method."""
        method = details.method.rsplit("/", 1)[-1]
        call = next(self._calls)

        def note(direction: str, message: bytes) -> bytes:
            with self._lock:
                self.lines.append(f"{method} {call} {direction} {message.hex()}".rstrip())
            return message

        def noted(messages: Iterator[bytes], direction: str) -> Iterator[bytes]:
            for message in messages:
                yield note(direction, message)

        def refuse(messages: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
            # Otherwise the sampler would bypass the proxy, since the server is in its process.
            note(">", next(messages))
            yield note("<", b"")

        def stream(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            answers = self._channel.stream_stream(details.method)(noted(messages, ">"))
            context.add_callback(answers.cancel)
            try:
                yield from noted(answers, "<")
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.CANCELLED:
                    context.abort(error.code(), error.details())

        def unary(message: bytes, _context: grpc.ServicerContext) -> bytes:
            return note("<", self._channel.unary_unary(details.method)(note(">", message)))

        if method == "InitializeConnection":
            return grpc.stream_stream_rpc_method_handler(refuse)
        if method in _STREAMS:
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)


def steps(count: int) -> Iterator[dict[str, object]]:
    """Steps with a column of each kind that the protocol treats differently."""
    for i in range(count):
        yield {
            "c": np.complex64(i + 2j),
            "f": np.full((2,), i / 2, np.float32),
            "flag": np.bool_(i % 2),
            "i": np.array([250 + i, -i], np.int16),
            "s": np.array([b"ab", str(i).encode()], dtype=object),
        }


def older_writer(client: reverb.Client, delta_encoded: bool) -> None:
    """Writes chunks that hold all columns."""
    with client.writer(4, delta_encoded=delta_encoded, chunk_length=3) as writer:
        for step in steps(6):
            writer.append(step)
        writer.create_item("t", num_timesteps=4, priority=1.5)
    next(client.sample("t", 1, emit_timesteps=False))


def trajectory_writer(client: reverb.Client) -> None:
    """Writes chunks that hold one column."""
    with client.trajectory_writer(4) as writer:
        writer.configure(("i",), num_keep_alive_refs=4, max_chunk_length=2)
        for i, step in enumerate(steps(5)):
            writer.append(step)
            if i >= 3:
                history = writer.history
                trajectory = {name: history[name][-3:] for name in step}
                trajectory["last"] = history["i"][-1]
                writer.create_item("t", 2.0 + i, trajectory)
        writer.flush()
    next(client.sample("t", 2, emit_timesteps=False))


def other_calls(client: reverb.Client) -> None:
    """Makes every call that is not a stream."""
    client.insert(np.float32(1), {"t": 1.0})
    (sample,) = next(client.sample("t", 1))
    client.mutate_priorities("t", updates={sample.info.key: 3.0}, deletes=[1, 2**64 - 2])
    client.server_info()
    client.reset("t")


def record(folder: Path, name: str, run: Callable[[reverb.Client], None]) -> None:
    """Records one conversation in a file."""
    signature = {
        "x": tf.TensorSpec([None, 3], tf.float32, name="a name"),
        "y": [tf.TensorSpec([], tf.int64), (reverb_bounded(),)],
    }
    tables = [
        reverb.Table(
            "t",
            sampler=reverb.selectors.Prioritized(0.8),
            remover=reverb.selectors.Fifo(),
            max_size=100,
            max_times_sampled=7,
            rate_limiter=reverb.rate_limiters.MinSize(1),
        ),
        reverb.Table.stack("u", 5, signature=signature),
    ]
    server = reverb.Server(tables)
    proxy = Proxy(f"localhost:{server.port}")
    front = grpc.server(futures.ThreadPoolExecutor(16))
    front.add_generic_rpc_handlers((proxy,))
    port = front.add_insecure_port("localhost:0")
    front.start()
    run(reverb.Client(f"localhost:{port}"))
    front.stop(grace=1).wait()
    server.stop()
    (folder / f"{name}.txt").write_text("\n".join(proxy.lines) + "\n", encoding="ascii")


def reverb_bounded() -> tf.TypeSpec:
    """A specification with bounds."""
    from tensorflow.python.framework.tensor_spec import BoundedTensorSpec

    return BoundedTensorSpec([2], tf.uint8, 0, 9)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    record(out, "older_writer", lambda client: older_writer(client, delta_encoded=False))
    record(out, "older_writer_delta", lambda client: older_writer(client, delta_encoded=True))
    record(out, "trajectory_writer", trajectory_writer)
    record(out, "other_calls", other_calls)
