"""The checkpoint in tests/data, which an earlier version wrote, opens for ever."""

import importlib.util
import json
import shutil

import pytest

import reverie


@pytest.fixture
def maker(root):
    """tests/data/make_checkpoint.py, which wrote it."""
    spec = importlib.util.spec_from_file_location(
        "make_checkpoint", root / "tests" / "data" / "make_checkpoint.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_kept_checkpoint_opens_and_draws_what_was_drawn_then(maker, tmp_path):
    shutil.copytree(maker.KEPT / "checkpoint-0000000001", tmp_path / "checkpoint-0000000001")
    expected = json.loads((maker.KEPT / "expected.json").read_text())
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    with reverie.Store(maker.tables(), checkpointer=checkpointer) as store:
        assert store.loaded_payload == b"kept"
        found = json.loads(json.dumps(maker.about(store)))
    assert sorted(found) == sorted(expected)
    for name, told in expected.items():
        assert found[name] == told, name


def test_the_kept_checkpoint_holds_each_kind_of_table(maker):
    """Or the test above would show little."""
    expected = json.loads((maker.KEPT / "expected.json").read_text())
    assert len(expected) == 5
    assert all(told["size"] > 0 and told["samples"] > 0 for told in expected.values())
    assert sum(told["deletes"] > 0 for told in expected.values()) >= 4
