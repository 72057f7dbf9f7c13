"""Reverb's configuration: the tables that it makes, and the mistakes that are refused."""

import pytest

import reverie
from reverie.errors import InvalidArgumentError
from reverie.serve import reverb_config

TABLE = """tables: {
  table_name: "replay"
  sampler: { prioritized: { priority_exponent: 0.8 } }
  remover: { fifo: true }
  max_size: 200
  max_times_sampled: 5
  rate_limiter: { min_size_to_sample: 10 samples_per_insert: 2 min_diff: -20 max_diff: 60 }
}
"""


def read(text):
    return reverb_config.read(text, "server.pbtxt")


def test_a_configured_table_equals_one_made_in_python():
    config = read("port: 8000\n" + TABLE)
    assert config.port == 8000
    assert config.remarks == ()
    (table,) = config.tables
    assert repr(table) == repr(
        reverie.Table(
            "replay",
            reverie.selectors.Prioritized(0.8),
            reverie.selectors.Fifo(),
            200,
            reverie.rate_limiters.RateLimiter(2, 10, -20, 60),
            5,
        )
    )


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("fifo: true", reverie.selectors.Fifo()),
        ("lifo: true", reverie.selectors.Lifo()),
        ("uniform: true is_deterministic: false", reverie.selectors.Uniform()),
        ("heap: {}", reverie.selectors.MaxHeap()),
        ("heap: { min_heap: true }", reverie.selectors.MinHeap()),
        ("prioritized: {}", reverie.selectors.Prioritized(0.0)),
    ],
)
def test_every_selector_can_be_configured(text, selector):
    config = read(TABLE.replace("fifo: true", text))
    assert config.tables[0].info.remover_options == selector


def test_a_missing_or_zero_port_means_any_free_port():
    assert read(TABLE).port is None
    assert read("port: 0 " + TABLE).port is None


def test_ignored_fields_are_reported():
    text = TABLE.replace("max_size: 200", "max_size: 200 signature: { list_value: {} }")
    assert read(text).remarks == ("server.pbtxt:5: 'signature' means nothing here; left out",)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("max_size", "maxsize", "5: a table has no field 'maxsize'; did you mean 'max_size'?"),
        ("  max_size: 200\n", "", "1: a table lacks 'max_size'"),
        ("200", "0", "1: max_size of table 'replay' is 0; it must be an integer >= 1"),
        ("200", "'many'", "5: max_size is 'many'; it must be an integer of 64 bits"),
        ("200", "200 max_size: 3", "5: 'max_size' is given twice, here and on line 5"),
        ("200", "[200]", "5: 'max_size' is a list; it must be a single value"),
        ("5\n", "3000000000\n", "6: max_times_sampled is 3000000000; it must be an integer of 32"),
        ('"replay"', "replay", "2: table_name is replay; it must be a string in quotes"),
        ('"replay"', "''", "1: name is ''; a table needs a non-empty str"),
        ("fifo: true", "fifo: false", "4: remover.fifo is false; it must be true, or absent"),
        ("fifo: true", "fifo: 7", "4: fifo is 7; it must be true or false"),
        ("fifo: true", "", "4: remover names none; give it one of fifo, lifo, uniform"),
        ("fifo: true", "fifo: true lifo: true", "4: remover names fifo, lifo; give it one of"),
        ("{ fifo: true }", "fifo", "4: remover is fifo; it must be a message in braces"),
        ("fifo: true", "fifo {}", "4: fifo is a message; it must be a single value"),
        ("0.8", "-1", "3: sampler: priority_exponent is -1.0; it must be finite and >= 0"),
        (" samples_per_insert: 2", "", "7: rate_limiter lacks 'samples_per_insert'"),
        ("insert: 2", "insert: 0", "7: rate_limiter: samples_per_insert is 0"),
        ("to_sample: 10", "to_sample: 300", "1: table 'replay' has max_size 200, but its rate"),
        ("tables: {", "port: 65536 tables: {", "1: port is 65536; it must be between 0 and 65535"),
    ],
)
def test_an_invalid_table_is_refused_with_its_line(old, new, says):
    assert old in TABLE
    with pytest.raises(InvalidArgumentError) as caught:
        read(TABLE.replace(old, new))
    assert f"server.pbtxt:{says}" in str(caught.value)


def test_a_duplicate_table_name_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"pbtxt:9: table 'replay' is on line 1"):
        read(TABLE + TABLE)


def test_a_configuration_without_tables_is_refused():
    with pytest.raises(InvalidArgumentError, match="no tables; a server needs at least one"):
        read("port: 8000")
