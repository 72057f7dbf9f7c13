"""Damaged folders of checkpoints and journals: they raise typed errors, and nothing is
deleted."""

import os
import shutil
import struct

import numpy as np
import pytest

import reverie
from reverie import errors
from reverie.checkpointers import DefaultCheckpointer

MAGIC = b"RVRCKP\r\n"


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def section(kind, payload):
    head = struct.pack("<IQ", kind, len(payload))
    return struct.pack("<II", kind, crc32c(head + payload)) + head[4:] + payload


def table(name="t", max_size=100):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Uniform(seed=1),
        remover=reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )


def open_store(folder, tables=None, **options):
    return reverie.Store(tables or [table()], checkpointer=DefaultCheckpointer(folder), **options)


def insert(store, count):
    for i in range(count):
        store.client().insert({"x": np.float32(i)}, {"t": 1.0})


def tree(folder):
    """All files of a folder with their contents."""
    return {
        str(path.relative_to(folder)): None if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() or path.is_symlink()
    }


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "replay"
    with open_store(folder) as store:
        insert(store, 5)
        store.checkpoint(b"mine")
    return folder


def refused(folder, error, text, **options):
    """Checks that the folder is refused, twice, and does not change."""
    before = tree(folder)
    for _ in range(2):
        with pytest.raises(error, match=text):
            open_store(folder, **options)
    assert tree(folder) == before


def manifest_with(name):
    files = struct.pack("<I", 2)
    for one in ("tables", name):
        encoded = one.encode()
        files += struct.pack("<I", len(encoded)) + encoded + struct.pack("<QI", 10, 0)
    head = MAGIC + struct.pack("<II", 1, 1)
    return head + section(1, struct.pack("<Qq", 1, 0) + files) + section(2, b"")


@pytest.mark.parametrize(
    "name",
    ["../../secret", "/etc/passwd", "chunks-0000000001/..", "chunks-0000000001\0", "c" * 100_000,
     ".", ""],
)  # fmt: skip
def test_a_manifest_that_names_other_files_is_refused(saved, name):
    (saved / "checkpoint-0000000001" / "manifest").write_bytes(manifest_with(name))
    refused(saved, errors.DataLossError, "no checkpoint has a file of that name")


def test_links_pipes_and_folders_in_place_of_files_are_refused(saved, tmp_path):
    checkpoint = saved / "checkpoint-0000000001"
    os.rename(checkpoint / "tables", tmp_path / "elsewhere")
    for make in (
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("nowhere"),
        os.mkfifo,
        os.mkdir,
    ):
        make(checkpoint / "tables")
        with pytest.raises(
            (errors.DataLossError, errors.NotFoundError, errors.InvalidArgumentError),
            match="tables",
        ):
            open_store(saved)
        if (checkpoint / "tables").is_dir():
            os.rmdir(checkpoint / "tables")
        else:
            os.unlink(checkpoint / "tables")


@pytest.mark.parametrize("file", ["manifest", "tables"])
@pytest.mark.parametrize("version", [2, 0, 0x01000000])  # the last has the other byte order
def test_another_format_version_or_byte_order_is_reported(saved, file, version):
    path = saved / "checkpoint-0000000001" / file
    data = path.read_bytes()
    path.write_bytes(MAGIC + struct.pack("<I", version) + data[12:])
    refused(saved, errors.UnimplementedError, f"{file}' has format version {version}; this library")


def test_the_error_for_a_checkpoint_of_other_tables_names_the_difference(saved):
    refused(saved, errors.FailedPreconditionError, "max_size is 7, and 100", tables=[table("t", 7)])
    refused(saved, errors.FailedPreconditionError, "table 't'", tables=[table("u")])


def test_a_journal_without_its_checkpoint_is_refused_naming_the_missing_record(tmp_path):
    folder = tmp_path / "replay"
    with open_store(folder, durability="sync") as store:
        insert(store, 5)
        store.checkpoint()
        insert(store, 5)
    shutil.rmtree(folder / "checkpoint-0000000001")
    refused(folder, errors.DataLossError, "journal-.*record 1 or a later one is missing")
    refused(folder, errors.DataLossError, "is missing", durability="sync")


def test_a_journal_of_other_tables_is_refused(tmp_path):
    folder = tmp_path / "replay"
    with open_store(folder, durability="sync") as store:
        insert(store, 5)
    refused(
        folder, errors.FailedPreconditionError, "max_size", tables=[table("t", 7)],
        durability="sync",
    )  # fmt: skip


def test_a_payload_that_is_too_large_is_refused_with_both_sizes(tmp_path):
    with open_store(tmp_path / "replay") as store:
        with pytest.raises(errors.InvalidArgumentError, match=r"16777217 bytes.*16777216"):
            store.checkpoint(bytes((16 << 20) + 1))
        assert store.checkpoint(bytes(16 << 20)).endswith("0000000001")


def test_a_path_that_is_a_file_or_leads_through_one_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "deeper"):
        with pytest.raises(errors.InvalidArgumentError, match="file"):
            open_store(path)
    assert file.read_text() == "mine"


def test_a_folder_that_cannot_be_written_to_is_refused(saved):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    saved.chmod(0o500)
    try:
        refused(saved, errors.PermissionDeniedError, "replay")
    finally:
        saved.chmod(0o700)


def test_a_batch_larger_than_its_tables_memory_can_be_drawn(tmp_path):
    big = table()
    with reverie.Store([big], memory_bytes=16 << 20, spill_folder=tmp_path) as store:
        for i in range(40):
            store.client().insert({"x": np.full(1 << 18, i, np.float32)}, {"t": 1.0})
        batch = store.client().sample_batch("t", 40, distinct=True)  # 40 MiB
        assert sorted(batch.data["x"][:, 0, 0].tolist()) == list(range(40))
        assert (batch.data["x"] == batch.data["x"][:, :, :1]).all()
