"""The module's public names: selectors, limiters, types."""

import importlib
import pickle
import sys

import numpy as np
import pytest

PUBLIC = [
    "Client",
    "DeadlineExceededError",
    "PatternDataset",
    "ReplaySample",
    "ReverbError",
    "SampleInfo",
    "Server",
    "TFClient",
    "Table",
    "TimestepDataset",
    "TrajectoryColumn",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "Writer",
    "checkpointers",
    "rate_limiters",
    "selectors",
    "structured",
]
MODULES = {
    "cc.checkpointing.checkpoint_pb2": ["PriorityTableCheckpoint", "RateLimiterCheckpoint"],
    "cc.patterns_pb2": ["Condition", "PatternNode", "Priority", "StructuredWriterConfig"],
    "cc.schema_pb2": ["ChunkData", "KeyDistributionOptions", "PrioritizedItem", "TableInfo"],
    "client": ["Client", "Writer"],
    "errors": ["DeadlineExceededError", "ReverbError"],
    "item_selectors": ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Uniform"],
    "pattern_dataset": ["PatternDataset", "pattern_dataset_with_info"],
    "platform.checkpointers_lib": [
        "CheckpointerBase",
        "DefaultCheckpointer",
        "TempDirCheckpointer",
    ],
    "platform.default.checkpointers": ["DefaultCheckpointer", "default_checkpointer"],
    "pybind": [
        "AutoTunedChunkerOptions",
        "Checkpointer",
        "ChunkerOptions",
        "Client",
        "ConstantChunkerOptions",
        "FifoSelector",
        "HeapSelector",
        "ItemSelector",
        "LifoSelector",
        "PrioritizedSelector",
        "RateLimiter",
        "Sampler",
        "Server",
        "StructuredWriter",
        "Table",
        "TableExtension",
        "TrajectoryWriter",
        "UniformSelector",
        "WeakCellRef",
        "Writer",
        "create_default_checkpointer",
        "selector_from_proto",
    ],
    "rate_limiters": ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"],
    "replay_sample": ["ReplaySample", "SampleInfo"],
    "reverb_types": ["SelectorType", "SpecNest", "TableInfo", "Fifo", "Heap", "Prioritized"],
    "server": ["Server", "Table", "TableExtensionBase"],
    "server_executable.reverb_config_pb2": ["ReverbServerConfig"],
    "server_executable.server_main": ["main"],
    "server_executable.server_from_proto": [
        "rate_limiter_from_proto",
        "selector_from_proto",
        "tables_from_proto",
    ],
    "structured_writer": ["Condition", "ConditionProto", "Config", "StructuredWriter"],
    "tf_client": ["TFClient"],
    "timestep_dataset": ["TimestepDataset"],
    "trajectory_dataset": ["TrajectoryDataset"],
    "trajectory_writer": ["TrajectoryColumn", "TrajectoryWriter"],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_module_has_each_public_name(reverb, name):
    assert hasattr(reverb, name)


@pytest.mark.parametrize("module", MODULES)
def test_each_inner_module_has_its_names(reverb, module):
    loaded = importlib.import_module(f"{reverb.__name__}.{module}")
    assert [name for name in MODULES[module] if not hasattr(loaded, name)] == []


def test_messages_are_available_without_importing_their_module(reverb):
    assert reverb.cc.schema_pb2.TableInfo(name="a").name == "a"
    assert reverb.cc.patterns_pb2.PatternNode(stop=-1).stop == -1


def test_the_module_has_no_version(reverb):
    assert not hasattr(reverb, "__version__")


def test_deadline_exceeded_error_is_a_reverb_error(reverb):
    assert issubclass(reverb.DeadlineExceededError, reverb.ReverbError)
    assert reverb.errors.ReverbError is reverb.ReverbError
    assert issubclass(reverb.ReverbError, Exception)
    assert not issubclass(reverb.ReverbError, (RuntimeError, ValueError))


SELECTORS = {
    "Fifo": ((), "FifoSelector", "FifoSelector"),
    "Lifo": ((), "LifoSelector", "LifoSelector"),
    "Uniform": ((), "UniformSelector", "UniformSelector"),
    "Prioritized": ((0.8,), "PrioritizedSelector", "PrioritizedSelector(priority_exponent=0.8)"),
    "MaxHeap": ((), "HeapSelector", "HeapSelector(sign=-1)"),
    "MinHeap": ((), "HeapSelector", "HeapSelector(sign=1)"),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_a_selector_is_a_native_selector(reverb, name):
    arguments, native, shown = SELECTORS[name]
    selector = getattr(reverb.selectors, name)(*arguments)
    assert isinstance(selector, getattr(reverb.pybind, native))
    assert isinstance(selector, reverb.pybind.ItemSelector)
    assert isinstance(selector, reverb.reverb_types.SelectorType)
    assert repr(selector) == shown


def test_heap_selectors_have_a_sign(reverb):
    assert repr(reverb.pybind.HeapSelector(True)) == "HeapSelector(sign=1)"
    assert repr(reverb.pybind.HeapSelector(False)) == "HeapSelector(sign=-1)"


def test_the_exponent_of_a_prioritized_selector_can_be_a_keyword(reverb):
    selector = reverb.selectors.Prioritized(priority_exponent=0.5)
    assert repr(selector) == "PrioritizedSelector(priority_exponent=0.5)"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"fifo": True}, "FifoSelector"),
        ({"lifo": True}, "LifoSelector"),
        ({"uniform": True}, "UniformSelector"),
        ({"heap": {"min_heap": True}}, "HeapSelector(sign=1)"),
        ({"heap": {}}, "HeapSelector(sign=-1)"),
        (
            {"prioritized": {"priority_exponent": 0.25}},
            "PrioritizedSelector(priority_exponent=0.25)",
        ),
    ],
)
def test_a_selector_can_be_made_from_its_message(reverb, options, shown):
    schema = importlib.import_module(f"{reverb.__name__}.cc.schema_pb2")
    message = schema.KeyDistributionOptions(**options)
    assert repr(reverb.pybind.selector_from_proto(message.SerializeToString())) == shown
    from_proto = importlib.import_module(f"{reverb.__name__}.server_executable.server_from_proto")
    assert repr(from_proto.selector_from_proto(message)) == shown


def test_a_message_without_a_selector_is_refused(reverb):
    schema = importlib.import_module(f"{reverb.__name__}.cc.schema_pb2")
    from_proto = importlib.import_module(f"{reverb.__name__}.server_executable.server_from_proto")
    with pytest.raises(NotImplementedError):
        from_proto.selector_from_proto(schema.KeyDistributionOptions())
    with pytest.raises(ValueError, match="false"):
        from_proto.selector_from_proto(schema.KeyDistributionOptions(fifo=False))


def test_tables_can_be_made_from_the_message_of_a_server(reverb):
    config = importlib.import_module(f"{reverb.__name__}.server_executable.reverb_config_pb2")
    from_proto = importlib.import_module(f"{reverb.__name__}.server_executable.server_from_proto")
    message = config.ReverbServerConfig(port=7)
    message.tables.add(
        table_name="a",
        sampler={"prioritized": {"priority_exponent": 0.5}},
        remover={"fifo": True},
        max_size=9,
        max_times_sampled=2,
        rate_limiter={
            "samples_per_insert": 2.0,
            "min_size_to_sample": 3,
            "min_diff": -4.0,
            "max_diff": 40.0,
        },
    )
    [table] = from_proto.tables_from_proto(
        config.ReverbServerConfig.FromString(message.SerializeToString()).tables
    )
    assert (table.name, table.info.max_size, table.info.max_times_sampled) == ("a", 9, 2)
    assert table.info.rate_limiter_info.min_diff == -4.0
    assert table.info.sampler_options.prioritized.priority_exponent == 0.5


def test_a_limiter_can_be_made_from_its_message(reverb):
    checkpoint = importlib.import_module(f"{reverb.__name__}.cc.checkpointing.checkpoint_pb2")
    from_proto = importlib.import_module(f"{reverb.__name__}.server_executable.server_from_proto")
    limiter = from_proto.rate_limiter_from_proto(
        checkpoint.RateLimiterCheckpoint(
            samples_per_insert=2.0, min_size_to_sample=3, min_diff=-1.0, max_diff=9.0
        )
    )
    assert isinstance(limiter, reverb.rate_limiters.RateLimiter)
    assert repr(limiter) == (
        "RateLimiter(samples_per_insert=2, min_diff_=-1, max_diff=9, min_size_to_sample=3)"
    )


LIMITERS = {
    "MinSize": ((3,), (1.0, 3, -sys.float_info.max, sys.float_info.max)),
    "SampleToInsertRatio": ((2.0, 4, 6.0), (2.0, 4, 2.0, 14.0)),
    "Queue": ((5,), (1.0, 1, 0.0, 5)),
    "Stack": ((5,), (1.0, 1, 0.0, 5)),
    "RateLimiter": ((2.0, 3, -4.0, 5.0), (2.0, 3, -4.0, 5.0)),
}


@pytest.mark.parametrize("name", LIMITERS)
def test_a_limiter_keeps_its_numbers(reverb, name):
    arguments, (samples_per_insert, size, low, high) = LIMITERS[name]
    limiter = getattr(reverb.rate_limiters, name)(*arguments)
    assert isinstance(limiter, reverb.rate_limiters.RateLimiter)
    assert isinstance(limiter.internal_limiter, reverb.pybind.RateLimiter)
    assert limiter._samples_per_insert == samples_per_insert
    assert limiter._min_size_to_sample == size
    assert limiter._min_diff == low
    assert limiter._max_diff == high
    assert repr(limiter) == (
        f"RateLimiter(samples_per_insert={samples_per_insert:g}, min_diff_={low:g}, "
        f"max_diff={high:g}, min_size_to_sample={size})"
    )


def test_limiters_accept_their_numbers_as_keywords(reverb):
    limiter = reverb.rate_limiters.RateLimiter(
        samples_per_insert=1.0, min_size_to_sample=2, min_diff=-3.0, max_diff=4.0
    )
    assert limiter._min_diff == -3.0
    ratio = reverb.rate_limiters.SampleToInsertRatio(
        samples_per_insert=1.5, min_size_to_sample=2, error_buffer=(-8, 9)
    )
    assert (ratio._min_diff, ratio._max_diff) == (-8, 9)


@pytest.mark.parametrize(
    "make",
    [
        lambda limiters: limiters.MinSize(0),
        lambda limiters: limiters.MinSize(-1),
        lambda limiters: limiters.SampleToInsertRatio(0.0, 1, 5.0),
        lambda limiters: limiters.SampleToInsertRatio(-1.0, 1, 5.0),
        lambda limiters: limiters.SampleToInsertRatio(1.0, 0, 5.0),
        lambda limiters: limiters.SampleToInsertRatio(1.0, 1, 0.5),
        lambda limiters: limiters.SampleToInsertRatio(8.0, 1, 7.0),
        lambda limiters: limiters.SampleToInsertRatio(1.0, 1, (0.0, 1.5)),
        lambda limiters: limiters.SampleToInsertRatio(1.0, 1, (2.0, 9.0)),
    ],
)
def test_a_limiter_with_invalid_numbers_is_refused(reverb, make):
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        make(reverb.rate_limiters)


@pytest.mark.parametrize(
    "make",
    [
        lambda reverb: reverb.rate_limiters.MinSize(1.5),
        lambda reverb: reverb.rate_limiters.MinSize("1"),
        lambda reverb: reverb.rate_limiters.SampleToInsertRatio("a", 1, 5.0),
        lambda reverb: reverb.selectors.Prioritized("a"),
        lambda reverb: reverb.selectors.Prioritized(),
        lambda reverb: reverb.Client(3),
        lambda reverb: reverb.Client(None),
    ],
)
def test_an_argument_of_a_wrong_type_raises_type_error(reverb, make):
    with pytest.raises(TypeError):
        make(reverb)


def test_bounds_may_be_a_list_and_may_be_narrow(reverb):
    limiter = reverb.rate_limiters.SampleToInsertRatio(1.0, 1, [-5.0, 5.0])
    assert (limiter._min_diff, limiter._max_diff) == (-5.0, 5.0)
    # Inserts will wait before anything can be sampled, which causes a warning.
    reverb.rate_limiters.SampleToInsertRatio(1.0, 10, (-50.0, 5.0))


def test_sample_info_has_five_fields(reverb):
    info = reverb.SampleInfo.zeros()
    assert info._fields == ("key", "probability", "table_size", "priority", "times_sampled")
    assert info == (0, 0.0, 0, 0.0, 0)
    assert reverb.ReplaySample._fields == ("info", "data")
    assert reverb.pybind.Sampler.NUM_INFO_TENSORS == 5
    assert pickle.loads(pickle.dumps(info)) == info


def test_chunkers_accept_their_options_as_keywords(reverb):
    constant = reverb.pybind.ConstantChunkerOptions(max_chunk_length=3, num_keep_alive_refs=4)
    tuned = reverb.pybind.AutoTunedChunkerOptions(num_keep_alive_refs=4, throughput_weight=1.0)
    assert isinstance(constant, reverb.pybind.ChunkerOptions)
    assert isinstance(tuned, reverb.pybind.ChunkerOptions)


def test_checkpointers_have_a_path_and_their_base_class(reverb, tmp_path):
    made = reverb.checkpointers.DefaultCheckpointer(path=str(tmp_path / "new"))
    assert (made.path, made.group, made.fallback_checkpoint_path) == (
        str(tmp_path / "new"),
        "",
        None,
    )
    assert isinstance(made, reverb.checkpointers.CheckpointerBase)
    assert isinstance(made.internal_checkpointer(), reverb.pybind.Checkpointer)
    default = reverb.checkpointers.default_checkpointer()
    assert isinstance(default, reverb.checkpointers.TempDirCheckpointer)
    assert isinstance(default, reverb.checkpointers.DefaultCheckpointer)
    with pytest.raises(TypeError):
        reverb.checkpointers.CheckpointerBase()


def test_a_checkpointer_path_need_not_exist(reverb, tmp_path, table):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path / "new"))
    server = reverb.Server([table()], checkpointer=checkpointer)
    server.localhost_client().insert([1], {"t": 1.0})
    server.stop()


def test_table_info_can_be_made_from_a_serialised_message(reverb, is_ours):
    schema = importlib.import_module(f"{reverb.__name__}.cc.schema_pb2")
    message = schema.TableInfo(name="a", max_size=7, current_size=3, sampler_options={"lifo": True})
    made = reverb.reverb_types.TableInfo.from_serialized_proto(message.SerializeToString())
    assert (made.name, made.max_size, made.current_size, made.signature) == ("a", 7, 3, None)
    assert made.sampler_options.WhichOneof("distribution") == "lifo"
    assert made.sampler_options.HasField("fifo") is False
    del is_ours


def test_numpy_integers_are_accepted_by_limiters(reverb):
    limiter = reverb.rate_limiters.MinSize(int(np.int64(3)))
    assert limiter._min_size_to_sample == 3
