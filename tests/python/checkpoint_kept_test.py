"""The checkpoint and the journal in tests/data, which an earlier version wrote, can be opened."""

import importlib.util
import json
import shutil
import sys

import pytest

import reverie


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def maker(root):
    """The module tests/data/make_checkpoint.py, which wrote the checkpoint."""
    return loaded(root / "tests" / "data" / "make_checkpoint.py")


@pytest.fixture
def journal_maker(root, monkeypatch):
    """The module tests/data/make_journal.py, which wrote the journal."""
    monkeypatch.setattr(sys, "path", list(sys.path))  # the module extends sys.path
    return loaded(root / "tests" / "data" / "make_journal.py")


def test_the_stored_checkpoint_opens_with_the_expected_content_and_draws(maker, tmp_path):
    shutil.copytree(maker.KEPT / "checkpoint-0000000001", tmp_path / "checkpoint-0000000001")
    expected = json.loads((maker.KEPT / "expected.json").read_text())
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    with reverie.Store(maker.tables(), checkpointer=checkpointer) as store:
        assert store.loaded_payload == b"kept"
        found = json.loads(json.dumps(maker.about(store)))
    assert sorted(found) == sorted(expected)
    for name, told in expected.items():
        assert found[name] == told, name


def test_the_stored_checkpoint_holds_each_kind_of_table(maker):
    """Otherwise the test above would cover little."""
    expected = json.loads((maker.KEPT / "expected.json").read_text())
    assert len(expected) == 5
    assert all(told["size"] > 0 and told["samples"] > 0 for told in expected.values())
    assert sum(told["deletes"] > 0 for told in expected.values()) >= 4


def test_the_stored_journal_opens_with_the_expected_content(journal_maker, tmp_path):
    folder = journal_maker.copy_of_killed(journal_maker.KEPT, tmp_path / "kept")
    expected = json.loads((journal_maker.KEPT / "expected.json").read_text())
    with journal_maker.store(folder) as store:
        found = json.loads(json.dumps(journal_maker.about(store)))
    assert sorted(found) == sorted(expected)
    for name, told in expected.items():
        assert found[name] == told, name


def test_the_stored_journal_and_the_fuzz_corpus_have_every_record_type(journal_maker):
    files = journal_maker.KEPT.glob("journal-*")
    kept = {code for file in files for code, _ in journal_maker.records(file)}
    # The other types are in the file before the checkpoint, or are written by an orderly end.
    assert kept >= journal_maker.RECORD_TYPES - {6, 19, 23}
    corpus = b"".join(
        path.read_bytes()[1:] for path in (journal_maker.CORPUS / "journal").glob("server_*")
    )
    at, types = 0, set()
    while at < len(corpus):
        types.add(corpus[at])
        at += 5 + int.from_bytes(corpus[at + 1 : at + 5], "little")
    assert types == journal_maker.RECORD_TYPES
