"""Reverb's command line on Reverie: ``reverb_server`` with a configuration as text.

The table is that of Reverb's documentation: a FIFO order, each item sampled at most five times, and
a rate limiter that is ``MinSize(1)`` written out.
"""

import subprocess
import sys

import reverie as reverb

CONFIG = f"""
port: 0
tables: {{
  table_name: "my_table"
  sampler: {{ fifo: true }}
  remover: {{ fifo: true }}
  max_size: 200
  max_times_sampled: 5
  rate_limiter: {{
    min_size_to_sample: 1
    samples_per_insert: 1
    min_diff: {-sys.float_info.max}
    max_diff: {sys.float_info.max}
  }}
}}
"""


def main() -> None:
    # In a shell: reverb_server --config="..."
    program = "from reverie.serve.command import reverb_server; raise SystemExit(reverb_server())"
    server = subprocess.Popen(
        [sys.executable, "-c", program, f"--config={CONFIG}"], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    first = server.stderr.readline()
    print(first.rstrip())
    client = reverb.Client(first.split(" at ")[1].split(",")[0])

    info = client.server_info()["my_table"]
    limiter = info.rate_limiter_info
    as_python = reverb.rate_limiters.MinSize(1)
    assert (limiter.samples_per_insert, limiter.min_diff, limiter.max_diff) == (
        as_python.samples_per_insert,
        as_python.min_diff,
        as_python.max_diff,
    )
    for i in range(2):
        client.insert(i, {"my_table": 1.0})
    drawn = [int(steps[0].data[0]) for steps in client.sample("my_table", num_samples=10)]
    assert drawn == [0] * 5 + [1] * 5  # each item is drawn five times, and then removed
    assert client.server_info()["my_table"].current_size == 0

    server.terminate()
    print(server.stderr.read().rstrip())
    assert server.wait() == 0
    server.stderr.close()


if __name__ == "__main__":
    main()
