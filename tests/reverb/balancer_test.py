"""dm-reverb's clients with two of our servers, behind nginx as a gRPC load balancer."""

import shutil
import socket
import subprocess

import numpy as np
import pytest
import reverb
import tensorflow as tf

import reverie
from eventually import eventually

pytestmark = pytest.mark.skipif(
    shutil.which("nginx", path="/usr/sbin:/usr/bin") is None,
    reason="needs nginx: apt-get install nginx-light",
)

# gRPC needs HTTP/2 on both sides, streams without a time limit, and bodies without a size limit.
CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  # In strict turns a client that makes two calls each time would meet one server for ever.
  upstream shards {{ random; {servers} }}
  server {{
    listen 127.0.0.1:{port} http2;
    client_max_body_size 0;
    client_body_timeout 1h;
    keepalive_requests 100000;
    location / {{
      grpc_pass grpc://shards;
      grpc_read_timeout 1h;
      grpc_send_timeout 1h;
    }}
  }}
}}
"""


def table(max_times_sampled=0):
    return reverie.Table(
        "t",
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=1000,
        max_times_sampled=max_times_sampled,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def balanced(serve, tmp_path):
    """Two servers, and the address of the balancer."""
    servers = [serve(table()) for _ in range(2)]
    port = free_port()
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(
            folder=tmp_path,
            port=port,
            servers=" ".join(f"server 127.0.0.1:{server.port};" for server in servers),
        )
    )
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    with subprocess.Popen([nginx, "-p", tmp_path, "-c", configuration]) as process:
        eventually(lambda: process.poll() is not None or answers(port))
        assert process.poll() is None
        yield servers, f"127.0.0.1:{port}"
        process.terminate()


def sizes(servers):
    return [server.client().server_info()["t"].current_size for server in servers]


def test_dm_reverbs_inserts_are_spread_over_the_servers(balanced):
    servers, address = balanced
    client = reverb.Client(address)
    for value in range(20):
        client.insert(np.float32(value), {"t": 1.0})
    assert sum(sizes(servers)) == 20
    assert min(sizes(servers)) > 0
    drawn = {float(sample[0].data[0]) for _ in range(20) for sample in client.sample("t", 5)}
    assert len(drawn) > 10
    assert client.server_info()["t"].current_size in sizes(servers)


def test_a_stream_of_dm_reverbs_writer_goes_to_one_server(balanced):
    servers, address = balanced
    for _ in range(16):
        client = reverb.Client(address)
        with client.trajectory_writer(num_keep_alive_refs=3) as writer:
            for step in range(30):
                writer.append({"x": np.full((84, 84), step, np.uint8), "n": np.int64(step)})
                if step >= 2:
                    rows = {name: column[-3:] for name, column in writer.history.items()}
                    writer.create_item("t", 1.0, rows)
            writer.end_episode()
    assert sum(sizes(servers)) == 16 * 28
    assert all(size % 28 == 0 for size in sizes(servers))
    assert min(sizes(servers)) > 0


def test_dm_reverbs_sampler_and_dataset_read_through_the_balancer(balanced):
    servers, address = balanced
    for server in servers:
        for value in range(10):
            server.client().insert({"x": np.full(3, value, np.float32)}, {"t": 1.0})
    dataset = reverb.TrajectoryDataset(
        server_address=address,
        table="t",
        dtypes={"x": tf.float32},
        shapes={"x": tf.TensorShape([None, 3])},
        max_in_flight_samples_per_worker=5,
        max_samples_per_stream=10,
        num_workers_per_iterator=2,
    )
    seen = [sample.data["x"].numpy()[0, 0] for sample in dataset.take(200)]
    assert len(set(seen)) == 10
    assert min(server.client().server_info()["t"].num_unique_samples for server in servers) > 0


def test_reveries_client_reads_and_writes_through_the_balancer(balanced):
    servers, address = balanced
    client = reverie.Client(address)
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for step in range(50):
            writer.append({"x": np.full(3, step, np.float32)})
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1:]})
        writer.flush(timeout_s=60)
    assert sum(sizes(servers)) == 50
    # A stream only reads from one server; the next stream may read from the other.
    for server in servers:
        if server.client().server_info()["t"].current_size == 0:
            server.client().insert({"x": np.zeros(3, np.float32)}, {"t": 1.0})
    for _ in range(10):
        assert len(client.sample_batch("t", 32, timeout_s=60)) == 32
