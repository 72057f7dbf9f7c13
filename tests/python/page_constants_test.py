"""Constants that the pages state are equal to those of the code."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_UNITS = {
    "": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
    "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60,
}  # fmt: skip
_DURATIONS = {"microseconds": 1e-6, "milliseconds": 1e-3, "seconds": 1, "minutes": 60}

# A page of docs/concepts, its text with {} for the value, a source below src/reverie, the constant.
STATED = [
    ("threads", "in `blocking.h` it looks for up to {} (", "base/spin.h", "kLookMax"),
    ("threads", "at most {} items (a *breath*)", "replay/table.h", "kBreath"),
    ("threads", "of at most {} [items]", "../../python/bindings/convert.h", "kBriefItems"),
    ("threads", "and {} (`without_gil_in", "service/blocking.h", "kLongCopyBytes"),
    ("service", "A wait in `blocking.h` looks for up to {} whether", "base/spin.h", "kLookMax"),
    ("net", "looks again for up to {} before its thread sleeps", "base/spin.h", "kLookMax"),
    ("grpc", "| one message | {} |", "grpc/grpc_call.h", "message_bytes_max"),
    ("grpc", "of an InsertStream, from {} on) get", "grpc/field_scan.h", "kApartBytesMin"),
    ("grpc", "does not read, per call | {} |", "grpc/grpc_call.h", "queued_bytes_max"),
    ("grpc", "| metadata of a call | {},", "grpc/grpc_call.h", "metadata_bytes_max"),
    ("grpc", "| calls of a connection at a time | {} |", "grpc/grpc_call.h", "call_count_max"),
    ("grpc", "so its writer sends {} and then", "grpc/grpc_call.h", "call_window_bytes"),
    ("grpc", "have a window of {}.", "grpc/grpc_call.h", "long_call_window_bytes"),
    ("grpc", "then without any | {}, ", "grpc/grpc_server.h", "hello_timeout"),
    ("door", "first bytes, if there are more than {}. A", "door/door.cc", "kUndecidedKept"),
    ("peer_store", "no handshake for {}, ", "adapters/peer/peer_store_service.h", "hello"),
    ("peer_store", "no request for {} after", "adapters/peer/peer_store_service.h", "first_call"),
    ("peer_store", "or none for {} (`idle_s`)", "adapters/peer/peer_store_service.h", "idle"),
    ("shards", "(at least {}) is *late*", "shards/shard_sampler_core.h", "hedge_min"),
    ("shards", "returns what it has after {},", "shards/shard_sampler_core.h", "query_timeout"),
    ("shards", "or one waits for {} (then", "shards/shard_health.h", "probe_interval"),
    ("shards", "or not answered within {} (a frozen", "shards/shard_health.h", "probe_timeout"),
    ("shards", "is back | it is asked every {},", "shards/shard_health.h", "probe_interval"),
    ("client", "integers of at least {} a row", "client/chunk_packer.h", "kRowBytesMin"),
    ("peers", "for `dead_after_s` ({})", "rpc/peer.h", "dead_after"),
    ("peers", "`max_pending_calls` ({}) calls", "rpc/peer.h", "calls_max"),
    ("peers", "without an answer, with {} of arguments", "rpc/peer.h", "call_bytes_max"),
    ("rpc", "have {} of header, the function's name", "rpc/frame.h", "kFrameHeaderBytes"),
    ("rpc", "polls the rings and its sockets for up to {} (", "base/spin.h", "kLookMax"),
    ("client", "up to {} updates may be in progress", "service/update_window.h", "kUpdatesMax"),
    ("client", "share the work from {} on", "gather/encoded_gather.h", "kPartBytes"),
]


def stated(page, phrase):
    """The value that the page states, in bytes, seconds or pieces."""
    text = " ".join((_ROOT / f"docs/concepts/{page}.md").read_text().split())
    number = r"([\d,.]*\d)(?: (us|ms|s|min|bytes|KiB|MiB|GiB))?\\b".replace(r"\\b", r"\b")
    found = re.findall(re.escape(phrase).replace(r"\{\}", number), text)
    assert len(found) == 1, f"{page}.md says '{phrase}' {len(found)} times"
    digits, unit = found[0]
    return float(digits.replace(",", "")) * _UNITS[unit]


def defined(source, name):
    """The value of ``name = expression;`` in a source."""
    text = (_ROOT / "src/reverie" / source).read_text()
    found = re.findall(rf"\b{name} =\s([^;]+);", text)
    assert len(found) == 1, f"{source} defines {name} {len(found)} times"
    expression = re.sub(r"(\d)u\b", r"\1", found[0].replace("'", ""))
    if duration := re.fullmatch(r"std::chrono::(\w+)\((\d+)\)", expression):
        return int(duration[2]) * _DURATIONS[duration[1]]
    number = re.fullmatch(r"(?:std::size_t\{)?(\d+)\}?(?: << (\d+))?", expression)
    assert number, f"{source}: {name} = {expression}"
    return int(number[1]) << int(number[2] or 0)


@pytest.mark.parametrize(
    ("page", "phrase", "source", "name"), STATED, ids=lambda value: str(value)[:24]
)
def test_constants_on_pages_match_the_code(page, phrase, source, name):
    assert stated(page, phrase) == pytest.approx(defined(source, name), rel=1e-9)
