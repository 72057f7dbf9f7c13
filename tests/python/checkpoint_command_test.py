"""``reverie checkpoint``: what it prints, and its exit status."""

import argparse
import os
import shutil
import signal
import threading

import numpy as np
import pytest

import reverie
from reverie import __main__ as command
from reverie import _reverie
from reverie._folder_commands import FolderCommand


def table(max_size=100):
    return reverie.Table(
        "t",
        sampler=reverie.selectors.Prioritized(0.8, seed=3),
        remover=reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints, and the journal after them."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path, keep=2)
    with reverie.Store([table()], checkpointer=checkpointer, durability="sync") as store:
        for i in range(30):
            store.client().insert({"x": np.float32(i)}, {"t": 1.0})
            if i in (10, 20):
                store.checkpoint(b"payload")
    return tmp_path


def test_ctrl_c_ends_an_action_at_once_unless_it_changes_files():
    seen = []

    def run():
        seen.append(signal.getsignal(signal.SIGINT))
        return 0

    def call(*, writes):
        parser = argparse.ArgumentParser()
        command = FolderCommand(parser.add_subparsers(), "look", summary="", description="")
        command.add("at", run, summary="", paths={}, writes=writes)
        given = parser.parse_args(["look", "at"])
        assert given.run(given) == 0

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        call(writes=False)
        call(writes=True)
        # Not in another thread, nor where a program ignores Ctrl-C or has a handler of its own.
        thread = threading.Thread(target=call, kwargs={"writes": False})
        thread.start()
        thread.join()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        call(writes=False)
    finally:
        signal.signal(signal.SIGINT, before)
    kept = signal.default_int_handler
    assert seen == [signal.SIG_DFL, kept, kept, signal.SIG_IGN]


def test_inspect_prints_checkpoints_tables_and_the_journal(folder, capsys):
    assert command.main(["checkpoint", "inspect", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{folder}/checkpoint-0000000001: " in lines[0]
    assert "payload of 7 bytes" in lines[1]
    assert "    items             21" in lines
    assert "    sampler           Prioritized(priority_exponent=0.8, seed=3)" in lines
    assert lines[-1].startswith("journal: records ")
    assert command.main(["checkpoint", "inspect", str(folder / "checkpoint-0000000001")]) == 0
    assert "    items             11" in capsys.readouterr().out.splitlines()


def test_the_journal_command_counts_records_and_reports_damage(folder, capsys):
    assert command.main(["journal", "inspect", str(folder)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["inserts", "9"] in lines
    assert ["ends", "1"] in lines
    (path,) = folder.glob("journal-*")
    assert lines[0][0].rstrip(":") == path.name
    assert command.main(["journal", "verify", str(folder)]) == 0
    assert ", good" in capsys.readouterr().out
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    for action in ("inspect", "verify"):
        assert command.main(["journal", action, str(folder)]) == 1
        assert f"'{path}' is damaged at byte" in capsys.readouterr().err
    path.unlink()
    assert command.main(["journal", "verify", str(folder)]) == 1
    assert "no journal" in capsys.readouterr().err
    assert command.main(["journal", "verify", str(folder / "nothing")]) == 1


def test_verify_accepts_good_checkpoints_and_names_damaged_files(folder, capsys):
    assert command.main(["checkpoint", "verify", str(folder)]) == 0
    assert capsys.readouterr().out.count(", good\n") == 2
    before = sorted(os.listdir(folder))
    for name, offset in (
        ("checkpoint-0000000002/tables", 100),
        ("checkpoint-0000000002/chunks-0000000002", 30),
        ("checkpoint-0000000002/manifest", 20),
    ):
        good = (folder / name).read_bytes()
        damaged = bytearray(good)
        damaged[offset] ^= 1
        (folder / name).write_bytes(damaged)
        assert command.main(["checkpoint", "verify", str(folder)]) == 1
        assert name.partition("/")[2] in capsys.readouterr().err
        (folder / name).write_bytes(good)
    (journal,) = folder.glob("journal-*")
    good = journal.read_bytes()
    journal.write_bytes(good[:700] + b"?" + good[701:])
    assert command.main(["checkpoint", "verify", str(folder)]) == 1
    assert f"{journal.name}' is damaged at byte" in capsys.readouterr().err
    journal.write_bytes(good[:-3])
    assert command.main(["checkpoint", "verify", str(folder)]) == 0
    assert "of an interrupted write" in capsys.readouterr().out
    assert sorted(os.listdir(folder)) == before


def test_diff_prints_the_differences(folder, capsys):
    one, two = (str(folder / f"checkpoint-000000000{k}") for k in (1, 2))
    assert command.main(["checkpoint", "diff", one, one]) == 0
    assert capsys.readouterr().out == ""
    assert command.main(["checkpoint", "diff", one, str(folder)]) == 1
    assert "table 't': items 11 | 21\n" in capsys.readouterr().out
    assert command.main(["checkpoint", "diff", one, str(folder / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
    shutil.rmtree(two)
    assert command.main(["checkpoint", "diff", one, two]) == 2


def saved(folder, dtype, values):
    """The path of a checkpoint of one table, with a signature of that type and these items."""
    signed = reverie.Table(
        "t",
        sampler=reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=100,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature={"x": reverie.TensorSpec((1,), dtype)},
    )
    checkpointer = reverie.checkpointers.DefaultCheckpointer(folder)
    with reverie.Store([signed], checkpointer=checkpointer, seed=5) as store:
        for value in values:
            store.client().insert({"x": dtype(value)}, {"t": 1.0})
        return store.checkpoint()


def test_diff_compares_types_and_items(tmp_path, capsys):
    one = saved(tmp_path / "one", np.float32, [1, 2])
    assert (
        command.main(["checkpoint", "diff", one, saved(tmp_path / "same", np.float32, [1, 2])]) == 0
    )
    assert capsys.readouterr().out == ""
    other = saved(tmp_path / "other", np.float32, [1, 3])
    assert command.main(["checkpoint", "diff", one, other]) == 1
    out = capsys.readouterr().out
    assert out.startswith("table 't': rows of key ")
    assert out.count("\n") == 1
    empty = saved(tmp_path / "float32", np.float32, [])
    wide = saved(tmp_path / "float64", np.float64, [])
    assert command.main(["checkpoint", "diff", empty, wide]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("table 't': signature ")
    assert "float32" in line
    assert "float64" in line


def test_verify_finds_every_flipped_byte(folder, capsys):
    for checkpoint in sorted(folder.glob("checkpoint-*")):
        for path in sorted(checkpoint.iterdir()):
            good = path.read_bytes()
            for offset in range(0, len(good), 7):
                damaged = bytearray(good)
                damaged[offset] ^= 1 << offset % 8
                path.write_bytes(damaged)
                assert command.main(["checkpoint", "verify", str(checkpoint)]) == 1
                assert path.name in capsys.readouterr().err
            path.write_bytes(good)
    assert command.main(["checkpoint", "verify", str(folder)]) == 0


def test_inspect_reports_an_empty_folder(tmp_path, capsys):
    assert command.main(["checkpoint", "inspect", str(tmp_path)]) == 1
    assert "neither a checkpoint nor a journal" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["checkpoint"])


@pytest.fixture
def store(tmp_path):
    """A running store that keeps one checkpoint, and a journal."""
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    with reverie.Store([table()], checkpointer=checkpointer, durability="sync") as store:
        store.client().insert({"x": np.float32(0)}, {"t": 1.0})
        store.checkpoint()
        yield store


def before_each(monkeypatch, name, act, times):
    """Calls `act` just before each of the first `times` calls of a native function."""
    native = getattr(_reverie, name)
    calls = []

    def called(*arguments):
        calls.append(arguments)
        if len(calls) <= times:
            act()
        return native(*arguments)

    monkeypatch.setattr(_reverie, name, called)
    return calls


@pytest.mark.parametrize("action", ["inspect", "verify"])
def test_verify_of_a_running_store_reports_no_damage(action, store, tmp_path, monkeypatch, capsys):
    before_each(monkeypatch, "inspect_checkpoint", store.checkpoint, 2)
    assert command.main(["checkpoint", action, str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert f"{tmp_path}/checkpoint-0000000001: the store removed it meanwhile\n" in said.out
    assert f"{tmp_path}/checkpoint-0000000003: " in said.out
    assert ("    items             1\n" in said.out) == (action == "inspect")


def test_verify_of_a_store_that_replaces_each_checkpoint_ends_with_2(
    store, tmp_path, monkeypatch, capsys
):
    calls = before_each(monkeypatch, "inspect_checkpoint", store.checkpoint, 100)
    assert command.main(["checkpoint", "verify", str(tmp_path)]) == 2
    assert "replaced each checkpoint" in capsys.readouterr().err
    assert len(calls) < 100


def test_a_checkpoint_that_is_given_and_gone_is_an_error(store, tmp_path, monkeypatch, capsys):
    before_each(monkeypatch, "inspect_checkpoint", store.checkpoint, 1)
    path = tmp_path / "checkpoint-0000000001"
    assert command.main(["checkpoint", "verify", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_diff_of_a_running_store_compares_its_next_checkpoint(store, tmp_path, monkeypatch, capsys):
    kept = tmp_path / "kept" / "checkpoint-0000000001"
    shutil.copytree(tmp_path / "checkpoint-0000000001", kept)
    before_each(monkeypatch, "compare_checkpoints", store.checkpoint, 2)
    assert command.main(["checkpoint", "diff", str(tmp_path), str(kept)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["journal", "verify"], ["checkpoint", "verify"]])
def test_a_journal_file_that_is_removed_meanwhile_is_not_damage(
    words, store, tmp_path, monkeypatch, capsys
):
    def fail():
        raise reverie.errors.NotFoundError("cannot open a file: No such file or directory")

    store.client().insert({"x": np.float32(1)}, {"t": 1.0})
    calls = before_each(monkeypatch, "inspect_journal", fail, 2)
    assert command.main([*words, str(tmp_path)]) == 0
    assert len(calls) == 3
    assert capsys.readouterr().err == ""
