"""Files that are replaced whole, and durably."""

import os
import stat
from pathlib import Path

import pytest

from reverie._durable import replace_file


@pytest.fixture
def calls(monkeypatch):
    """The calls of the system that matter, in their order."""
    made = []
    fsync, replace = os.fsync, Path.replace

    def traced_fsync(descriptor):
        made.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        fsync(descriptor)

    def traced_replace(self, target):
        made.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "replace", traced_replace)
    return made


def test_a_file_is_synced_before_its_rename_and_its_folder_after_it(tmp_path, calls):
    path = tmp_path / "file"
    for content in (b"old", b"new"):
        calls.clear()
        replace_file(path, lambda file, content=content: file.write(content))
        assert path.read_bytes() == content
        assert calls == ["sync file", "rename", "sync folder"]
    assert os.listdir(tmp_path) == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, calls):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def half(file):
        file.write(b"ne")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        replace_file(path, half)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    assert calls == []


def test_only_replace_file_renames():
    package = Path(__file__).parent
    for source in package.rglob("*.py"):
        if source.name in ("_durable.py", "_durable_test.py"):
            continue
        text = source.read_text()
        for name in ("os.rename(", "os.replace(", "os.renames(", "shutil.move(", ".rename("):
            assert name not in text, f"{source} has {name}"
        assert "beside.replace(" not in text, source
        assert "new.replace(" not in text, source
