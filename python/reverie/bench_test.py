"""The figures of ``reverie bench``: present, positive, and refused where not measurable."""

import re

import pytest

from reverie import __main__ as command
from reverie import _reverie, bench


def test_bench_prints_figures_of_the_machine_and_of_the_store(monkeypatch, capsys):
    monkeypatch.setattr(bench, "_WINDOW_S", 0.002)
    assert command.main(["bench", "--items", "2000"]) == 0
    text = capsys.readouterr().out
    for what in ("memcpy from memory", "ReplayBuffer.sample", "sample_batch", "lz4"):
        assert what in text
    numbers = [float(n) for n in re.findall(r"(\d+\.?\d*) (?:us|ms|ns|GB/s)", text)]
    assert len(numbers) >= 12
    assert all(number > 0 for number in numbers)
    frames = re.findall(r"bytes a frame of 84 x 84, \w+ +([\d,]+)", text)
    raw, packed = (int(number.replace(",", "")) for number in frames)
    assert raw >= 84 * 84
    assert packed < raw / 10


def test_fewer_items_than_a_batch_are_refused(capsys):
    assert command.main(["bench", "--items", "10"]) == 2
    assert "at least 256" in capsys.readouterr().err


def test_a_missing_fanout_program_is_reported_with_how_to_build_it(tmp_path, capsys):
    assert command.main(["bench", "--fanout", "--program", str(tmp_path / "none")]) == 2
    assert "make figures" in capsys.readouterr().err


def test_the_fanout_table_has_a_row_for_each_tree():
    names = ["BM_Sample<Paper<16>>/10000/min_time:0.050", "BM_Sample<Ours>/10000/min_time:0.050"]
    measured = [{"name": name, "items_per_second": 1e7} for name in names]
    text = bench.fanout_table({"benchmarks": measured})
    assert re.search(r"sample +K = 16 +100\.0", text)
    assert re.search(r"sample +Reverie +100\.0", text)


def test_a_memory_size_too_small_to_measure_is_refused():
    with pytest.raises(ValueError, match="4096"):
        _reverie.measure_memory(10)
