"""A server's configuration in TOML: each argument has a field, and each mistake names its line."""

import pytest

import reverie
from reverie.errors import InvalidArgumentError
from reverie.serve import toml_config

CONFIG = """# A server.
host = "::1"
port = 8000
unix_path = "/run/s.sock"
token_file = "token"
insecure = true
max_bytes = 1_000_000_000

[tls]
certificate = "c.pem"
key = "/k.pem"
client_authorities = "a.pem"

[limits]
connections = 100
message_bytes = 1_000_000

[[tables]]
name = "replay"
sampler = { kind = "prioritized", priority_exponent = 0.8, seed = 7 }
remover = "fifo"
max_size = 200
max_times_sampled = 5
max_bytes = 1_000_000
rate_limiter = { kind = "sample_to_insert_ratio", samples_per_insert = 2.0, min_size_to_sample = 10, error_buffer = [
  -20,
  60.5,
] }
extensions = ["statistics", { kind = "priority_diffusion", radius = 2 }]

[tables.signature]
action = { shape = [], dtype = "int64" }
obs = [{ shape = [-1, 3], dtype = "float32" }]

[[tables]]
name = "queue"
kind = "queue"
max_size = 10
"""  # noqa: E501


def read(text):
    return toml_config.read(text, "server.toml")


def test_configured_tables_equal_those_made_in_python():
    replay, queue = read(CONFIG).tables
    assert repr(replay) == repr(
        reverie.Table(
            "replay",
            reverie.selectors.Prioritized(0.8, seed=7),
            reverie.selectors.Fifo(),
            200,
            reverie.rate_limiters.SampleToInsertRatio(2.0, 10, (-20.0, 60.5)),
            5,
            [reverie.extensions.Statistics(), reverie.extensions.PriorityDiffusion(radius=2)],
            {
                "action": reverie.TensorSpec([], "int64"),
                "obs": [reverie.TensorSpec([None, 3], "float32")],
            },
            max_bytes=1_000_000,
        )
    )
    assert repr(queue) == repr(reverie.Table.queue("queue", 10))


def test_top_level_fields_configure_the_server():
    config = read(CONFIG)
    assert (config.host, config.port, config.insecure) == ("::1", 8000, True)
    assert config.max_bytes == 1_000_000_000
    assert str(config.unix_path) == "/run/s.sock"
    assert str(config.token_file) == "token"
    assert [str(name) for name in config.tls] == ["c.pem", "/k.pem", "a.pem"]
    assert config.limits == reverie.ServerLimits(connections=100, message_bytes=1_000_000)


def test_the_codec_undo_unsent_and_check_items_can_be_configured():
    text = CONFIG.replace("max_size = 200", "max_size = 200\nundo_unsent = true")
    text = text.replace("max_size = 10", "max_size = 10\ncheck_items = false")
    config = read('codec = "zstd"\n' + text)
    assert config.codec == "zstd"
    assert [table._options()["undoes_unsent"] for table in config.tables] == [True, False]
    assert [table._options()["checks_items"] for table in config.tables] == [True, False]
    with pytest.raises(InvalidArgumentError, match="1: codec: codec is 'gif'; it must be 'auto'"):
        read('codec = "gif"\n' + CONFIG)


def test_relative_paths_are_resolved_beside_the_configuration_file(tmp_path):
    path = tmp_path / "server.toml"
    path.write_text(CONFIG)
    config = toml_config.read(CONFIG, str(path))
    assert config.token_file == tmp_path / "token"
    assert [str(name) for name in config.tls] == [
        str(tmp_path / "c.pem"),
        "/k.pem",
        str(tmp_path / "a.pem"),
    ]


@pytest.mark.parametrize(
    ("limiter", "made"),
    [
        ('{ kind = "min_size", min_size_to_sample = 3 }', reverie.rate_limiters.MinSize(3)),
        ('{ kind = "queue", size = 3 }', reverie.rate_limiters.Queue(3)),
        ('{ kind = "stack", size = 3 }', reverie.rate_limiters.Stack(3)),
        (
            '{ kind = "bounds", samples_per_insert = 1, min_size_to_sample = 2, '
            "min_diff = -inf, max_diff = 9 }",
            reverie.rate_limiters.RateLimiter(1, 2, -float("inf"), 9),
        ),
        (
            '{ kind = "sample_to_insert_ratio", samples_per_insert = 1, min_size_to_sample = 2, '
            "error_buffer = 5 }",
            reverie.rate_limiters.SampleToInsertRatio(1, 2, 5),
        ),
    ],
)
def test_every_limiter_can_be_configured(limiter, made):
    text = f"""
[[tables]]
name = "t"
sampler = "lifo"
remover = "min_heap"
max_size = 10
rate_limiter = {limiter}
"""
    table = read(text).tables[0]
    assert repr(made) in repr(table)
    assert table.info.sampler_options == reverie.selectors.Lifo()
    assert table.info.remover_options == reverie.selectors.MinHeap()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("port = 8000", "port = 65536", "3: port: port is 65536; it must be at most 65535"),
        ("port = 8000", "port = '8000'", "3: port: port is '8000'; it must be an integer"),
        ("port = 8000", "port = true", "3: port: port is true; it must be an integer"),
        ("port = 8000", "prot = 8", "3: prot: there is no field 'prot'; did you mean 'port'?"),
        ("port = 8000", "port =", "3: no TOML: Invalid value"),
        ("port = 8000", "port = 1\nport = 2", "4: no TOML: Cannot overwrite a value"),
        ("1_000_000_000", "0", "7: max_bytes: max_bytes is 0; it must be at least 1"),
        ("1_000_000_000", "9" * 30, "7: max_bytes: max_bytes is 999999999999"),
        ("1_000_000_000", "9" * 5000, ": no TOML: Exceeds the limit"),
        ('key = "/k.pem"', "", "9: tls: there is no 'key'; it must be given"),
        ("connections = 100", "connections = 0", "15: limits.connections: connections is 0"),
        ("_bytes = 1_000_000\n", "_bytes = 5_000_000_000\n", "14: limits: limit message_bytes is"),
        ('"replay"', '"queue"', "36: tables[1].name: there is a table 'queue' already"),
        ('"replay"', '""', "18: tables[0]: name is ''; a table needs a non-empty str"),
        ('"fifo"', '"fif"', "21: tables[0].remover: kind is 'fif'; did you mean 'fifo'?"),
        ('"fifo"', "3", "21: tables[0].remover: remover is 3; it must be a string or a table"),
        ("0.8", "-0.8", "20: tables[0].sampler: priority_exponent is -0.8; it must be finite"),
        (", priority_exponent = 0.8", "", "20: tables[0].sampler: there is no 'priority_exponent'"),
        ("seed = 7", "seeds = 7", "20: tables[0].sampler.seeds: there is no field 'seeds'; did"),
        ("max_size = 200", "max_size = 5", "18: tables[0]: table 'replay' has max_size 5, but"),
        ("  60.5,\n", "", "25: tables[0].rate_limiter.error_buffer: error_buffer is [-20]"),
        ("60.5", "-19", "25: tables[0].rate_limiter: error_buffer (-20.0, -19.0) leaves"),
        ("radius = 2", "radius = 0", "29: tables[0].extensions[1]: radius is 0"),
        ('"statistics"', '"stats"', "29: tables[0].extensions[0]: kind is 'stats'; did you mean"),
        ('"statistics"', "7", "29: tables[0].extensions[0]: it is 7; it must be a string or a"),
        ('"int64"', '"int65"', "32: tables[0].signature.action: dtype is 'int65'; it must be"),
        ("[-1, 3]", "[-1, 3.5]", "33: tables[0].signature.obs[0].shape[1]: it is 3.5; it must"),
        ('shape = [], dtype = "int64"', "x = 3", "32: tables[0].signature.action.x: 3 is not part"),
        ('kind = "queue"', 'kind = "set"', "37: tables[1].kind: kind is 'set'; it must be 'tabl"),
        ("max_size = 10\n", "max_size = 10\nsampler = 'fifo'\n", "39: tables[1].sampler: there"),
        ("max_size = 10\n", "", "35: tables[1]: there is no 'max_size'; it must be given"),
    ],
)
def test_invalid_values_are_refused_with_their_line(old, new, says):
    assert old in CONFIG
    with pytest.raises(InvalidArgumentError) as caught:
        read(CONFIG.replace(old, new))
    assert str(caught.value).startswith("server.toml:")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "port = 8000", "tables = []", "tables = 3"])
def test_a_server_without_tables_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="tables"):
        read(text)


def test_a_missing_plugin_file_is_refused_with_its_line():
    with pytest.raises(InvalidArgumentError, match=r"server\.toml:1: plugins: "):
        read('plugins = ["nothing.so"]\n' + CONFIG)


@pytest.mark.parametrize("opening", ["a = [", "a = {b = ", "[a."])
def test_endless_nesting_is_refused(opening):
    with pytest.raises(InvalidArgumentError):
        read(opening * 100_000)


def test_a_truncated_configuration_is_valid_or_refused():
    def is_server(text):
        try:
            return bool(read(text).tables)
        except InvalidArgumentError:
            return False

    servers = [is_server(CONFIG[:length]) for length in range(len(CONFIG))]
    assert 5 < sum(servers) < 100
