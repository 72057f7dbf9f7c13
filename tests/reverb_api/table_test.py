"""Tables and servers: what they refuse, and what they report about themselves."""

import importlib
import os
import pickle
import signal
import socket
import threading

import numpy as np
import pytest


@pytest.mark.parametrize(
    "options", [{"name": ""}, {"max_size": 0}, {"max_size": -1}, {"signature": {"a": 3}}]
)
def test_invalid_table_settings_are_refused(table, options):
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        table(**options)


def test_an_array_in_a_signature_is_refused(table):
    with pytest.raises(ValueError, match="Unsupported signature spec"):
        table(signature={"a": np.zeros(3)})


@pytest.mark.parametrize("options", [{"sampler": "fifo"}, {"remover": 3}])
def test_a_value_that_is_not_a_selector_raises_type_error(table, options):
    with pytest.raises(TypeError):
        table(**options)


@pytest.mark.parametrize("options", [{"name": 3}, {"max_size": 2.5}, {"max_times_sampled": "a"}])
def test_an_argument_of_a_wrong_type_raises_type_error(table, options):
    with pytest.raises(TypeError):
        table(**options)


@pytest.mark.parametrize("count", [0, -1, -3])
def test_max_times_sampled_below_one_means_no_limit(table, serve, count):
    made = table(max_times_sampled=count)
    client = serve(made)
    client.insert([1], {"t": 1.0})
    assert [s[0].info.times_sampled for s in client.sample("t", 3)] == [1, 2, 3]
    assert made.info.max_times_sampled == count
    assert client.server_info()["t"].max_times_sampled == count


def test_can_insert_and_can_sample_follow_the_limiter(reverb, table, serve):
    made = table(rate_limiter=reverb.rate_limiters.Queue(2))
    client = serve(made)
    assert (made.can_insert(1), made.can_insert(2), made.can_insert(3)) == (True, True, False)
    assert made.can_sample(1) is False
    client.insert([1], {"t": 1.0})
    client.insert([2], {"t": 1.0})
    assert (made.can_insert(1), made.can_sample(2), made.can_sample(3)) == (False, True, False)


@pytest.mark.parametrize("signature", [None, {}, [], ()])
def test_an_empty_signature_means_no_signature(table, signature):
    assert table(signature=signature).info.signature is None


def test_info_describes_a_table(reverb, table):
    made = table(
        "name",
        sampler=reverb.selectors.Prioritized(0.5),
        remover=reverb.selectors.MinHeap(),
        max_size=7,
        rate_limiter=reverb.rate_limiters.SampleToInsertRatio(2.0, 3, 10.0),
        max_times_sampled=4,
    )
    info = made.info
    assert isinstance(info, reverb.reverb_types.TableInfo)
    assert (made.name, info.name) == ("name", "name")
    assert (info.max_size, info.max_times_sampled, info.current_size) == (7, 4, 0)
    assert (info.num_episodes, info.num_deleted_episodes, info.num_unique_samples) == (0, 0, 0)
    assert info.signature is None
    assert info.sampler_options.WhichOneof("distribution") == "prioritized"
    assert info.sampler_options.prioritized.priority_exponent == 0.5
    assert info.sampler_options.is_deterministic is False
    assert info.remover_options.WhichOneof("distribution") == "heap"
    assert info.remover_options.heap.min_heap is True
    assert info.remover_options.is_deterministic is True
    assert info.remover_options.HasField("heap")
    assert not info.remover_options.HasField("fifo")
    limiter = info.rate_limiter_info
    assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (2.0, 3)
    assert (limiter.min_diff, limiter.max_diff) == (-4.0, 16.0)
    assert (limiter.insert_stats.completed, limiter.sample_stats.completed) == (0, 0)
    assert info.table_worker_time.inserting_ms == 0


@pytest.mark.parametrize(
    ("name", "kind", "is_deterministic"),
    [("Fifo", "fifo", True), ("Lifo", "lifo", True), ("Uniform", "uniform", False)],
)
def test_selectors_are_described_by_their_message(reverb, table, name, kind, is_deterministic):
    options = table(sampler=getattr(reverb.selectors, name)()).info.sampler_options
    assert options.WhichOneof("distribution") == kind
    assert getattr(options, kind) is True
    assert options.is_deterministic is is_deterministic


def test_the_info_of_a_table_can_be_pickled(table):
    info = table().info
    again = pickle.loads(pickle.dumps(info))
    assert again.name == info.name
    assert again.rate_limiter_info == info.rate_limiter_info
    assert again.sampler_options == info.sampler_options


def test_the_info_holds_messages_of_the_schema(reverb, table):
    schema = importlib.import_module(f"{reverb.__name__}.cc.schema_pb2")
    info = table(remover=reverb.selectors.MinHeap()).info
    assert info.sampler_options == schema.KeyDistributionOptions(fifo=True, is_deterministic=True)
    assert isinstance(info.rate_limiter_info, schema.RateLimiterInfo)
    assert isinstance(info.table_worker_time, schema.TableWorkerTime)


@pytest.mark.parametrize(("kind", "distribution"), [("queue", "fifo"), ("stack", "lifo")])
def test_queues_and_stacks_have_their_settings(reverb, kind, distribution):
    made = getattr(reverb.Table, kind)("name", 3)
    info = made.info
    assert info.sampler_options.WhichOneof("distribution") == distribution
    assert info.remover_options.WhichOneof("distribution") == distribution
    assert (info.max_size, info.max_times_sampled) == (3, 1)
    assert (info.rate_limiter_info.min_diff, info.rate_limiter_info.max_diff) == (0.0, 3.0)


def test_queues_accept_their_arguments_as_keywords(reverb, spec):
    signature = {"a": spec((2,), "float32")}
    made = reverb.Table.queue(name="q", max_size=3, extensions=(), signature=signature)
    assert made.info.signature["a"].shape == (2,)


def test_a_new_table_allows_inserts_but_no_samples(table):
    made = table()
    assert made.can_insert(1)
    assert not made.can_sample(1)


def test_signatures_are_returned_by_info_and_server_info(reverb, table, spec, serve):
    signature = {"a": spec((None, 3), "float32"), "b": [spec((), "int64"), spec((2,), "bool")]}
    made = table(signature=signature)
    client = serve(made)
    for shown in (made.info.signature, client.server_info()["t"].signature):
        assert list(shown) == ["a", "b"]
        assert isinstance(shown["b"], list)
        assert shown["a"].shape.rank == 2
        assert shown["a"].shape.as_list() == [None, 3]
        assert shown["a"].dtype.as_numpy_dtype is np.float32
        assert shown["b"][0].dtype == np.int64
        assert shown["b"][0].shape == ()
        assert shown["a"].is_compatible_with(spec((7, 3), "float32"))
        assert not shown["a"].is_compatible_with(spec((7, 4), "float32"))
        assert not shown["b"][0].is_compatible_with(spec((), "int32"))
        common = shown["b"][1].most_specific_compatible_type(spec((3,), "bool"))
        assert common.shape.as_list() == [None]
    del reverb


def test_replace_makes_a_table_with_other_settings(reverb, table, spec):
    original = table("a", max_size=5, signature=spec((), "float32"), max_times_sampled=2)
    same = original.replace()
    assert same is not original
    assert (same.name, same.info.max_size, same.info.max_times_sampled) == ("a", 5, 2)
    assert same.info.signature == original.info.signature
    other = original.replace(
        name="b",
        sampler=reverb.selectors.Lifo(),
        remover=reverb.selectors.Uniform(),
        max_size=6,
        rate_limiter=reverb.rate_limiters.MinSize(2),
        max_times_sampled=3,
        signature=spec((1,), "int64"),
    )
    assert (other.name, other.info.max_size, other.info.max_times_sampled) == ("b", 6, 3)
    assert other.info.sampler_options.lifo
    assert other.info.remover_options.uniform
    assert other.info.rate_limiter_info.min_size_to_sample == 2
    assert isinstance(other, reverb.Table)


def test_a_replaced_table_is_empty(table, serve):
    original = table()
    client = serve(original)
    client.insert([1], {"t": 1.0})
    assert original.info.current_size == 1
    assert original.replace().info.current_size == 0


def test_the_repr_of_a_table_shows_its_settings(reverb, table):
    shown = repr(table("name", sampler=reverb.selectors.Prioritized(0.5)))
    assert shown == (
        "Table(sampler=PrioritizedSelector(priority_exponent=0.5), remover=FifoSelector, "
        "max_size=100, max_times_sampled=0, name=name, rate_limiter=RateLimiter("
        "samples_per_insert=1, min_diff_=-1.79769e+308, max_diff=1.79769e+308, "
        "min_size_to_sample=1), signature=nullptr)"
    )


def test_the_repr_of_a_table_shows_its_signature(table, spec):
    shown = repr(table("name", signature={"obs": spec((7,), "float32")}))
    assert shown.startswith("Table(sampler=FifoSelector, ")
    signature = shown.partition(", signature=")[2]
    assert "nullptr" not in signature
    for part in ("obs", "7"):
        assert part in signature


def test_extensions_are_built_with_the_name_of_their_table(reverb, table):
    base = importlib.import_module(f"{reverb.__name__}.server").TableExtensionBase
    built = []

    class Extension(base):
        def build_internal_extensions(self, table_name):
            built.append(table_name)
            return []

    table("a", extensions=[Extension()]).replace(name="b")
    assert built == ["a", "b"]
    with pytest.raises(TypeError):
        base()


@pytest.mark.parametrize("tables", [None, [], ()])
def test_a_server_without_tables_is_refused(reverb, tables):
    with pytest.raises(ValueError, match="At least one table must be provided"):
        reverb.Server(tables)
    with pytest.raises(ValueError, match="At least one table must be provided"):
        reverb.Server()


def test_a_server_with_duplicate_table_names_is_refused(reverb, table):
    with pytest.raises(ValueError, match="Multiple items in tables have the same name: a"):
        reverb.Server([table("a"), table("b"), table("a")])


def test_a_server_listens_at_the_given_port(reverb, table):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = reverb.Server(tables=[table()], port=port)
    assert server.port == port
    assert repr(server).startswith(f"Server(port={port}, reverb_service=ReverbServiceAsync(tables=")
    client = reverb.Client(f"localhost:{port}")
    client.insert([1], {"t": 1.0})
    server.stop()
    server.stop()
    server.wait()


def test_localhost_client_returns_a_client(reverb, table):
    server = reverb.Server([table()])
    client = server.localhost_client()
    assert isinstance(client, reverb.Client)
    assert client.server_address == client._server_address == f"localhost:{server.port}"
    assert repr(client) == f"Client, server_address=localhost:{server.port}"
    assert pickle.loads(pickle.dumps(client)).server_address == client.server_address
    assert isinstance(pickle.loads(pickle.dumps(client)), reverb.Client)
    server.stop()


def test_waiting_for_a_server_ends_with_stop_or_ctrl_c(reverb, table):
    server = reverb.Server([table()])
    stopper = threading.Timer(0.2, server.stop)
    stopper.start()
    server.wait()
    stopper.join()
    server = reverb.Server([table()])
    interrupter = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        server.wait()
    interrupter.join()
    server.stop()


def test_a_fallback_checkpoint_need_not_exist(reverb, table, tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(
        str(tmp_path / "new"), fallback_checkpoint_path=str(tmp_path / "nothing")
    )
    server = reverb.Server([table()], checkpointer=checkpointer)
    client = server.localhost_client()
    client.insert([1], {"t": 1.0})
    assert client.checkpoint().startswith(str(tmp_path / "new"))
    server.stop()


def test_a_server_loads_the_fallback_checkpoint(reverb, table, tmp_path):
    made = reverb.checkpointers.DefaultCheckpointer
    server = reverb.Server([table()], checkpointer=made(str(tmp_path / "old")))
    client = server.localhost_client()
    client.insert([7], {"t": 1.0})
    path = client.checkpoint()
    server.stop()
    other = made(str(tmp_path / "new"), fallback_checkpoint_path=path)
    server = reverb.Server([table()], checkpointer=other)
    assert int(next(server.localhost_client().sample("t"))[0].data[0]) == 7
    server.stop()


def test_a_dropped_server_stops_listening(reverb, table):
    server = reverb.Server([table()])
    port = server.port
    del server
    import gc

    gc.collect()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", port), timeout=1)


def test_server_info_follows_inserts_samples_and_resets(table, serve):
    client = serve(table(), table("u"))
    client.insert([1], {"t": 1.0, "u": 1.0})
    client.insert([2], {"t": 1.0})
    list(client.sample("t", 3))
    info = client.server_info()
    assert sorted(info) == ["t", "u"]
    assert (info["t"].current_size, info["u"].current_size) == (2, 1)
    assert info["t"].rate_limiter_info.insert_stats.completed == 2
    assert info["t"].rate_limiter_info.sample_stats.completed == 3
    assert (info["t"].num_episodes, info["t"].num_unique_samples) == (2, 1)
    client.reset("t")
    assert client.server_info()["t"].current_size == 0


def test_server_info_without_a_server_times_out(reverb):
    with socket.socket() as silent:
        silent.bind(("localhost", 0))
        client = reverb.Client(f"localhost:{silent.getsockname()[1]}")
        with pytest.raises(reverb.DeadlineExceededError):
            client.server_info(timeout=1)
