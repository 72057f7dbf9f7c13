"""Checkpoints of stores and servers, through Python."""

import os
import signal
import struct
import threading

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors


def table(name="t", max_size=100, signature=None):
    return reverie.Table(
        name,
        sampler=reverie.selectors.Prioritized(0.8, seed=3),
        remover=reverie.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        signature=signature,
    )


def checkpointer(path, **options):
    return reverie.checkpointers.DefaultCheckpointer(path, **options)


def fill(client, begin, end):
    for i in range(begin, end):
        client.insert({"x": np.float32(i), "name": f"step {i}"}, {"t": 1.0 + i % 5})


def draws(client, count=50):
    batch = client.sample_batch("t", count)
    return batch.keys.tolist(), batch.tickets.tolist(), np.ravel(batch.data["x"]).tolist()


def test_ctrl_c_while_a_store_loads_leaves_the_folder_free(tmp_path):
    def open_store():
        return reverie.Store([table()], checkpointer=checkpointer(tmp_path))

    with open_store() as store:
        rows = np.random.default_rng(1).integers(0, 256, (16, 1 << 20), np.uint8)
        for row in rows:
            store.client().insert({"x": row}, {"t": 1.0})
        store.checkpoint()
    begins = threading.Event()

    def press():
        begins.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    def load_again_and_again():
        begins.set()
        for _ in range(1000):
            open_store().close()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Thread(target=press)
    try:
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            load_again_and_again()
    finally:
        presser.join()
        signal.signal(signal.SIGINT, before)
    with open_store() as store:
        assert store["t"].info.current_size == len(rows)


def test_a_store_resumes_from_its_checkpoint(tmp_path):
    with reverie.Store([table()], checkpointer=checkpointer(tmp_path)) as store:
        assert store.loaded_checkpoint is None
        assert store.loaded_payload is None
        fill(store.client(), 0, 60)
        draws(store.client())
        path = store.checkpoint(b"step 60")
        assert path == str(tmp_path / "checkpoint-0000000001")
        expected = draws(store.client())
        assert draws(store.client()) != expected
    with reverie.Store([table()], checkpointer=checkpointer(tmp_path)) as store:
        assert store.loaded_checkpoint == path
        assert store.loaded_payload == b"step 60"
        assert draws(store.client()) == expected
        assert store["t"].info.current_size == 60
        fill(store.client(), 60, 61)
        assert store.client().checkpoint() == str(tmp_path / "checkpoint-0000000002")
    with reverie.Store([table()], checkpointer=checkpointer(tmp_path)) as store:
        assert store["t"].info.current_size == 61
    assert not (tmp_path / "checkpoint-0000000001").exists()


def test_a_server_resumes_from_its_checkpoint(tmp_path):
    server = reverie.Server([table()], checkpointer=checkpointer(tmp_path, keep=2))
    client = server.localhost_client()
    fill(client, 0, 20)
    path = client.checkpoint(timeout_s=20.0)
    assert os.path.isdir(path)
    server.checkpoint(b"second")
    server.stop()
    server = reverie.Server([table()], checkpointer=checkpointer(path))
    assert server.loaded_payload == b""
    assert server.localhost_client().server_info()["t"].current_size == 20
    server.stop()


@pytest.mark.parametrize("protocol", ["grpc", "peer"])
def test_a_client_can_save_a_payload_and_read_it_after_a_restart(tmp_path, protocol):
    payload = b"step 20\0" + bytes(range(256))
    for expected in (None, payload):
        with reverie.Server([table()], checkpointer=checkpointer(tmp_path)) as server:
            client = reverie.Client(f"localhost:{server.port}", protocol=protocol)
            assert client.loaded_payload(timeout_s=20.0) == expected
            assert server.loaded_payload == expected
            assert client.server_info()["t"].current_size == (0 if expected is None else 20)
            if expected is None:
                fill(client, 0, 20)
                assert client.checkpoint(payload, timeout_s=20.0) == str(
                    tmp_path / "checkpoint-0000000001"
                )


@pytest.mark.parametrize("protocol", ["grpc", "peer"])
def test_a_payload_that_is_too_large_is_refused_with_its_size(tmp_path, protocol):
    most = 16 << 20
    with reverie.Server([table()], checkpointer=checkpointer(tmp_path)) as server:
        fill(server.localhost_client(), 0, 3)
        client = reverie.Client(f"localhost:{server.port}", protocol=protocol)
        with pytest.raises(errors.InvalidArgumentError, match=f"{most + 1} bytes.* {most}"):
            client.checkpoint(b"x" * (most + 1))
        with pytest.raises(errors.UnsupportedTypeError, match=r"payload is 'step'.*bytes"):
            client.checkpoint("step")
        assert not list(tmp_path.glob("checkpoint-*"))
        client.checkpoint(b"x" * most)
    with reverie.Server([table()], checkpointer=checkpointer(tmp_path)) as server:
        client = reverie.Client(f"localhost:{server.port}", protocol=protocol)
        assert client.loaded_payload() == b"x" * most
        assert client.server_info()["t"].current_size == 3


def test_shards_loaded_from_different_checkpoints_are_reported(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, payload in zip(folders, (b"step 1", b"step 2"), strict=True):
        with reverie.Store([table()], checkpointer=checkpointer(folder)) as store:
            store.checkpoint(payload)
    with (
        reverie.Server([table()], checkpointer=checkpointer(folders[0])) as first,
        reverie.Server([table()], checkpointer=checkpointer(folders[1])) as second,
    ):
        addresses = [f"localhost:{server.port}" for server in (first, second)]
        client = reverie.Client(addresses)
        with pytest.raises(errors.FailedPreconditionError, match=r"step 2.*step 1"):
            client.loaded_payload(timeout_s=20.0)
        assert [shard.loaded_payload() for shard in client.shards] == [b"step 1", b"step 2"]
        paths = client.checkpoint(b"step 3").splitlines()
        assert [os.path.dirname(path) for path in paths] == [str(folder) for folder in folders]
    for folder in folders:
        with reverie.Store([table()], checkpointer=checkpointer(folder)) as store:
            assert store.client().loaded_payload() == b"step 3"


def test_a_store_without_a_checkpointer_has_no_loaded_payload():
    with reverie.Server([table()]) as server:
        assert server.localhost_client().loaded_payload() is None
    with reverie.Store([table()]) as store:
        assert store.client().loaded_payload() is None


def test_clients_continue_while_a_checkpoint_is_written(tmp_path):
    with reverie.Store([table(max_size=500)], checkpointer=checkpointer(tmp_path)) as store:
        fill(store.client(), 0, 200)
        is_over = threading.Event()

        def work():
            client = store.client()
            i = 200
            while not is_over.is_set():
                fill(client, i, i + 1)
                client.sample_batch("t", 8)
                i += 1

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for _ in range(10):
                store.checkpoint(timeout_s=20.0)
        finally:
            is_over.set()
            worker.join()
    with reverie.Store([table(max_size=500)], checkpointer=checkpointer(tmp_path)) as store:
        assert store["t"].info.current_size >= 200


def test_a_checkpoint_is_written_after_checkpoint_every_inserts(tmp_path):
    with reverie.Store(
        [table()], checkpointer=checkpointer(tmp_path), checkpoint_every_inserts=10
    ) as store:
        fill(store.client(), 0, 10)
        eventually(lambda: any(n.startswith("checkpoint-") for n in os.listdir(tmp_path)))


def test_a_locked_folder_or_a_checkpoint_that_does_not_fit_is_refused(tmp_path):
    with reverie.Store([table()], checkpointer=checkpointer(tmp_path)) as store:
        fill(store.client(), 0, 5)
        store.checkpoint()
        with pytest.raises(errors.FailedPreconditionError, match=r"reverie\.lock"):
            reverie.Store([table()], checkpointer=checkpointer(tmp_path))
    with pytest.raises(errors.FailedPreconditionError, match="max_size is 4, and 100"):
        reverie.Store([table(max_size=4)], checkpointer=checkpointer(tmp_path))
    with reverie.Store(
        [table(max_size=4)], checkpointer=checkpointer(tmp_path, on_mismatch="mine")
    ) as store:
        assert store["t"].info.current_size == 4
    with open(tmp_path / "a file", "w") as file:
        file.write("mine")
    with pytest.raises(errors.InvalidArgumentError, match="a file"):
        reverie.Store([table()], checkpointer=checkpointer(tmp_path / "a file"))
    with open(tmp_path / "checkpoint-0000000001" / "tables", "r+b") as file:
        file.seek(40)
        file.write(b"\xff\xff")
    with pytest.raises(errors.DataLossError, match="tables"):
        reverie.Store([table()], checkpointer=checkpointer(tmp_path))
    assert (tmp_path / "a file").read_text() == "mine"
    with reverie.Store([table()]) as store, pytest.raises(errors.UnimplementedError):
        store.checkpoint()
    with pytest.raises(errors.UnsupportedTypeError, match="payload"):
        reverie.Store([table()]).checkpoint("text")


def test_items_that_do_not_match_a_new_signature_are_not_reported_as_damage(tmp_path):
    with reverie.Store([table()], checkpointer=checkpointer(tmp_path)) as store:
        store.client().insert({"x": np.float32(1)}, {"t": 1.0})
        store.checkpoint()
    signature = {"x": reverie.TensorSpec((1,), np.int64)}
    with pytest.raises(
        errors.FailedPreconditionError, match=r"float32.*int64.*not damaged.*on_mismatch"
    ):
        reverie.Store(
            [table(signature=signature)], checkpointer=checkpointer(tmp_path, on_mismatch="mine")
        )
    with reverie.Store(
        [table(signature=signature)], checkpointer=checkpointer(tmp_path, on_mismatch="theirs")
    ) as store:
        assert store["t"].info.current_size == 1


# --- A reader of the format, written only from docs/formats/checkpoint.md.


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def raw(self, size):
        assert self.at + size <= len(self.data)
        self.at += size
        return self.data[self.at - size : self.at]

    def take(self, form):
        values = struct.unpack("<" + form, self.raw(struct.calcsize("<" + form)))
        return values if len(values) > 1 else values[0]

    def text(self):
        return self.raw(self.take("I")).decode()

    def is_done(self):
        return self.at == len(self.data)


def read_file(path, kind):
    data = Bytes(path.read_bytes())
    assert data.raw(8) == bytes.fromhex("525652434b500d0a")
    assert data.take("II") == (1, kind)
    return data


def sections(path, kind):
    data = read_file(path, kind)
    found = []
    while not data.is_done():
        code, crc, size = data.take("IIQ")
        payload = data.raw(size)
        assert crc32c(struct.pack("<IQ", code, size) + payload) == crc
        found.append((code, payload))
    return found


def read_spec(data):
    name, dtype, rank = data.text(), data.take("B"), data.take("I")
    return name, dtype, [data.take("q") for _ in range(rank)]


def read_component(data):
    name, options = data.text(), {}
    for _ in range(data.take("I")):
        key, form = data.text(), data.take("B")
        options[key] = data.text() if form == 3 else data.take("Bqd"[form])
    return name, options


def read_table(data):
    made = {"name": data.text(), "sampler": read_component(data), "remover": read_component(data)}
    made["max_size"], made["max_bytes"], made["max_times_sampled"] = data.take("qqq")
    made["limiter"] = data.take("dqdd")
    for _ in range(data.take("I")):
        read_component(data)
        data.raw(data.take("I"))
    if data.take("B"):
        for _ in range(data.take("I")):
            read_spec(data)
        data.text()
        data.raw(data.take("I"))
    _, _, made["is_keyed"], made["has_records"] = data.take("BBBB")
    made["inserts"], made["samples"], made["deletes"], _ = data.take("qqqq")
    data.take("dqqqq")
    made["slots"] = data.take("IIII")
    assert data.is_done()
    return made


def read_items(data, made, layouts, items):
    first, count = data.take("QI")
    assert first == len(items)
    for _ in range(count):
        layout, times_sampled, generation = data.take("III")
        item = {"times_sampled": times_sampled & 0x7FFFFFFF, "generation": generation}
        item["is_redelivered"] = times_sampled >> 31 == 1
        if layout == 0xFFFFFFFF:
            items.append(None)
            continue
        if made["has_records"]:
            item["key"], item["priority"], item["time"], item["version"] = data.take("Qdqq")
        item["pieces"] = [data.take("III") for _ in range(layouts[layout][1])]
        item["columns"] = layouts[layout][0]
        items.append(item)
    assert data.is_done()


def read_checkpoint(folder):
    (code, manifest), (payload_code, payload) = sections(folder / "manifest", 1)
    assert (code, payload_code) == (1, 2)
    data = Bytes(manifest)
    data.take("Qq")
    files = [(data.text(), *data.take("QI")) for _ in range(data.take("I"))]
    tables_bytes = (folder / "tables").read_bytes()
    assert files[0] == ("tables", len(tables_bytes), crc32c(tables_bytes))
    found = sections(folder / "tables", 2)
    schemas, layouts, chunks = [], [], []
    for code, section in found:
        data = Bytes(section)
        if code == 32:
            schemas.extend(
                [read_spec(data) for _ in range(data.take("I"))] for _ in range(data.take("I"))
            )
        elif code == 33:
            for _ in range(data.take("I")):
                data.text()
                data.take("Q")
                columns = [(read_spec(data), data.take("IIIBB")) for _ in range(data.take("I"))]
                layouts.append((columns, max(end for _, (_, _, end, _, _) in columns)))
        elif code == 34:
            chunks.extend(data.take("QQIIIIQQI") for _ in range(data.take("I")))
    tables = []
    for code, section in found:
        if code == 16:
            tables.append((read_table(Bytes(section)), []))
        elif code == 17:
            read_items(Bytes(section), tables[-1][0], layouts, tables[-1][1])
    rows = []
    for _, _, _, count, schema, file, offset, size, crc in chunks:
        name, file_size, _ = files[file]
        assert (folder / name).stat().st_size == file_size
        read_file(folder / name, 3)
        chunk = (folder / name).read_bytes()[offset : offset + size]
        assert crc32c(chunk) == crc
        data = Bytes(chunk)
        form, _, columns = data.take("BBI")
        places = [data.take("BQQ") for _ in range(columns)]
        body = data.raw(len(chunk) - data.at)
        assert form == 0
        rows.append((count, schemas[schema], [body[at : at + n] for _, at, n in places]))
    return payload, tables, rows


def test_a_reader_written_from_the_documentation_reads_a_checkpoint(tmp_path):
    with reverie.Store([table()], checkpointer=checkpointer(tmp_path)) as store:
        fill(store.client(), 0, 130)  # the first 30 are evicted
        folder = store.checkpoint(b"mine")
        lookup = store.client().sample_batch("t", 20)
        by_key = dict(zip(lookup.keys.tolist(), np.ravel(lookup.data["x"]).tolist(), strict=True))
    payload, tables, rows = read_checkpoint(tmp_path / os.path.basename(folder))
    assert payload == b"mine"
    ((made, items),) = tables
    assert made["name"] == "t"
    assert made["sampler"][0] == "Prioritized"
    assert (made["inserts"], made["deletes"]) == (130, 30)
    values = {}
    for item in filter(None, items):
        for (name, dtype, _), (column, begin, _, _, _) in (
            (spec, about) for spec, about in item["columns"]
        ):
            if name != "x":
                continue
            assert dtype == 11
            chunk, first, _ = item["pieces"][begin]
            values[item["key"]] = struct.unpack_from("<f", rows[chunk][2][column], 4 * first)[0]
    assert sorted(values.values()) == list(range(30, 130))
    assert {key: values[key] for key in by_key} == by_key
