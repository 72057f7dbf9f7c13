"""A pytest plugin: programs keep dm-reverb's clients, and get our servers.

``reverb.Server`` starts one of our servers with tables like those that it is given. Such a table
reports the state of the server's table.
"""

import dm_reverb  # noqa: F401
import reverb
import tensorflow  # noqa: F401 - before ours, as in programs
from reverb import server

import reverie.reverb as ours


def selector(options):
    kind = options.WhichOneof("distribution")
    if kind == "prioritized":
        return ours.selectors.Prioritized(options.prioritized.priority_exponent)
    if kind == "heap":
        return ours.selectors.MinHeap() if options.heap.min_heap else ours.selectors.MaxHeap()
    return {
        "fifo": ours.selectors.Fifo,
        "lifo": ours.selectors.Lifo,
        "uniform": ours.selectors.Uniform,
    }[kind]()


def like(table):
    """Our table with the settings of a dm-reverb table."""
    info = table.info
    limiter = info.rate_limiter_info
    return ours.Table(
        info.name,
        selector(info.sampler_options),
        selector(info.remover_options),
        info.max_size,
        ours.rate_limiters.RateLimiter(
            limiter.samples_per_insert,
            limiter.min_size_to_sample,
            limiter.min_diff,
            limiter.max_diff,
        ),
        info.max_times_sampled,
        signature=info.signature,
    )


class Server:
    def __init__(self, tables=None, port=None, checkpointer=None):  # noqa: ARG002
        self.tables = {table.info.name: like(table) for table in tables}
        self._server = ours.Server(list(self.tables.values()), port)
        for table in tables:
            table.served_by = self

    @property
    def port(self):
        return self._server.port

    def localhost_client(self):
        return reverb.Client(f"localhost:{self.port}")

    def stop(self):
        self._server.stop()

    def wait(self):
        self._server.wait()


def asked_of_the_server(name):
    """A method or property of a table, answered by our server if one serves the table."""
    own = getattr(server.Table, name)

    def info(table):
        if not hasattr(table, "served_by"):
            return own.fget(table)
        return table.served_by.localhost_client().server_info()[table.name]

    def can(table, count):
        if not hasattr(table, "served_by"):
            return own(table, count)
        return getattr(table.served_by.tables[table.name], name)(count)

    return property(info) if name == "info" else can


for name in ("info", "can_sample", "can_insert"):
    setattr(server.Table, name, asked_of_the_server(name))
reverb.Server = server.Server = Server
