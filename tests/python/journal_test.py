"""Stores and servers whose confirmed changes survive a kill."""

import importlib.util
import itertools
import json
import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import reverie
from cutting_proxy import CuttingProxy
from eventually import eventually
from reverie import __main__ as command
from reverie import errors

PROGRAM = Path(__file__).with_name("journal_kill_program.py")
_spec = importlib.util.spec_from_file_location("journal_kill_program", PROGRAM)
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)


def open_store(folder, durability="sync", made_of=None, **options):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(folder)
    return reverie.Store(
        made_of or program.tables(), checkpointer=checkpointer, durability=durability, **options
    )


def numbers(store, table):
    """The numbers of all items; checks that each item is complete."""
    size = store[table].info.current_size
    if size == 0:
        return []
    batch = store.client().sample_batch(table, size, distinct=True)
    found = np.ravel(batch.data["i"])
    assert (batch.data["pad"].reshape(size, -1) == (found % 251)[:, None]).all()
    return sorted(found.tolist())


# Makes and confirms changes of every kind; then the process is killed.
KILLED = """
    import json, os, signal, sys
    import journal_kill_program as program
    import reverie

    checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1])
    store = reverie.Store(program.tables(), checkpointer=checkpointer, durability=sys.argv[2])
    client = store.client()
    for i in range(40):
        client.insert(program.step(i), {"kept": 1.0, "queue": 1.0})
        if i == 10 and sys.argv[3] == "checkpoint":
            store.checkpoint(b"10")
    with client.trajectory_writer(4) as writer:
        for i in range(40, 60):
            writer.append(program.step(i))
            writer.create_item("kept", 2.0, {k: writer.history[k][-1:] for k in ("i", "pad")})
            writer.flush()
    assert client.sample_batch("queue", 5).data["i"].ravel().tolist() == list(range(5))
    batch = client.sample_batch("kept", 60, distinct=True)
    keys = dict(zip(batch.data["i"].ravel().tolist(), batch.keys.tolist()))
    client.mutate_priorities("kept", {keys[7]: 7.5}, [keys[3], keys[50]])
    client.insert(program.step(60), {"kept": 1.0})
    print(json.dumps([keys[7], store["kept"].info.rate_limiter_info.insert_stats.completed]))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("durability", ["sync", "interval"])
@pytest.mark.parametrize("history", ["journal", "checkpoint"])
def test_a_killed_store_keeps_confirmed_changes(tmp_path, durability, history):
    paths = (os.environ.get("PYTHONPATH"), str(PROGRAM.parent))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), tmp_path, durability, history],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    key, inserts = json.loads(done.stdout)
    for _ in range(2):  # opening the journal again changes nothing
        with open_store(tmp_path) as store:
            info = store["kept"].info
            assert info.rate_limiter_info.insert_stats.completed == inserts == 61
            assert info.rate_limiter_info.deletes == 2
            assert numbers(store, "kept") == [i for i in range(61) if i not in (3, 50)]
            lookup = store.client().sample_batch("kept", 200)
            assert set(lookup.priorities[lookup.keys == key].tolist()) == {7.5}
            assert store["queue"].info.current_size == 35
    with open_store(tmp_path) as store:
        assert numbers(store, "queue") == list(range(5, 40))


class Run:
    """A server in another process, and clients that write to it until it is gone."""

    def __init__(self, folder, durability, port=0, options=None):
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, folder, durability, str(port), json.dumps(options or {})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line, "the program ended by itself"
        self.port = json.loads(line)["port"]

    def client(self):
        return reverie.Client(f"localhost:{self.port}", retry_timeout_s=0.2)

    def end(self, by):
        self.process.send_signal(by)
        self.process.wait(60)
        self.process.stdin.close()
        self.process.stdout.close()


class Oracle:
    """What the clients requested, and what the server confirmed."""

    def __init__(self, pad):
        self.pad = pad
        self.asked = set()
        self.confirmed = set()
        self.sampled = []
        self.lock = threading.Lock()

    def write(self, client, begin, is_over):
        for i in itertools.count(begin):
            if is_over.is_set():
                return
            with self.lock:
                self.asked.add(i)
            try:
                client.insert(program.step(i, self.pad), {"kept": 1.0})
                client.insert(program.step(i, self.pad), {"queue": 1.0})
            except errors.ReverieError:
                continue  # not confirmed: the step may be stored or not
            with self.lock:
                self.confirmed.add(i)

    def read(self, client, is_over):
        while not is_over.is_set():
            try:
                # A long timeout, because the samples of an incomplete batch are lost.
                batch = client.sample_batch("queue", 3, timeout_s=30)
            except errors.ReverieError:
                return
            self.sampled += np.ravel(batch.data["i"]).tolist()


def kill_again_and_again(folder, durability, kills, seed, confirmed_max=190):
    """Checks that no confirmed item is lost, none is doubled, and none was never written.

    Each server is killed once it has confirmed 10 to ``confirmed_max`` items more.
    Meanwhile the writers' connections are cut at random. Tables, sizes and the server's options are
    drawn at random too.
    """
    draw = random.Random(seed)
    made_of = {
        "pad": draw.choice([1, 200, 3_000, 40_000]),
        "sampler": draw.choice(list(program.SAMPLERS)),
    }
    oracle = Oracle(made_of["pad"])
    cuts = 0
    for life in range(kills):
        options = {
            **made_of,
            "every": draw.choice([0.05, 0.2, 2.0]),
            "codec": draw.choice(["auto", "raw", "lz4", "zstd"]),
            "memory_bytes": draw.choice([None, 16 << 20]),
        }
        run = Run(folder, durability, options=options)
        is_over = threading.Event()
        begins = [1_000_000 * (10 * life + k + 1) for k in range(3)]
        with CuttingProxy(run.port, 0.01, seed=draw.random()) as proxy:
            writers = [
                reverie.Client(f"localhost:{proxy.port}", retry_timeout_s=0.3) for _ in begins
            ]
            threads = [
                threading.Thread(target=oracle.write, args=(client, begin, is_over))
                for client, begin in zip(writers, begins, strict=True)
            ]
            # The reader avoids the proxy: samples on a cut connection would be lost.
            threads.append(threading.Thread(target=oracle.read, args=(run.client(), is_over)))
            for thread in threads:
                thread.start()
            wanted = len(oracle.confirmed) + 10 * draw.randint(1, confirmed_max // 10)
            eventually(lambda wanted=wanted: len(oracle.confirmed) >= wanted)
            run.end(signal.SIGKILL)
            is_over.set()
            for thread in threads:
                thread.join()
            cuts += proxy.cuts
    assert cuts > kills
    with open_store(folder, durability, program.tables(**made_of)) as store:
        kept = numbers(store, "kept")
        queue = numbers(store, "queue")
    assert len(kept) == len(set(kept))
    assert len(queue) == len(set(queue))
    assert oracle.confirmed <= set(kept) <= oracle.asked
    # Items sampled just before a kill may still be in the queue; none is missing.
    assert oracle.confirmed <= set(queue) | set(oracle.sampled) <= oracle.asked
    return len(oracle.confirmed)


@pytest.mark.parametrize("durability", ["sync", "interval"])
def test_a_killed_server_keeps_confirmed_changes(tmp_path, durability):
    assert kill_again_and_again(tmp_path, durability, 20, seed=1) > 400


@pytest.mark.full(minutes=5)
@pytest.mark.parametrize("durability", ["sync", "interval"])
def test_a_server_killed_250_times_keeps_confirmed_changes(tmp_path, durability):
    # Fewer items than above: on a disk that takes 10 ms for each sync, 190 would take half an hour.
    assert kill_again_and_again(tmp_path, durability, 250, seed=2, confirmed_max=60) > 5_000


@pytest.mark.parametrize("durability", ["sync", "interval"])
def test_no_item_is_inserted_twice_into_a_killed_server(tmp_path, durability):
    run = Run(tmp_path, durability)
    sampled = []
    is_over = threading.Event()

    def read(client):
        while not is_over.is_set():
            try:
                batch = client.sample_batch("queue", 1, timeout_s=0.5)
            except errors.ReverieError:
                continue  # the queue is empty, or the server is down
            sampled.extend(np.ravel(batch.data["i"]).tolist())

    address = f"localhost:{run.port}"
    reader = threading.Thread(target=read, args=(run.client(),))
    reader.start()
    count = 0
    client = reverie.Client(address, retry_timeout_s=60)
    with client.trajectory_writer(1) as writer:
        for _ in range(4):
            for _ in range(400):
                writer.append(program.step(count))
                writer.create_item("queue", 1.0, {k: writer.history[k][-1:] for k in ("i", "pad")})
                count += 1
            wanted = len(sampled) + 30
            eventually(lambda wanted=wanted: len(sampled) >= wanted)
            port = run.port
            run.end(signal.SIGKILL)  # while items are in transit
            run = Run(tmp_path, durability, port)
        writer.flush(timeout_s=60)
    is_over.set()
    reader.join()
    run.end(signal.SIGKILL)
    with open_store(tmp_path, durability) as store:
        left = numbers(store, "queue")
        inserts = store["queue"].info.rate_limiter_info.insert_stats.completed
    assert inserts == count, "some are in twice, or not at all"
    assert len(sampled) > 100
    assert set(left) | set(sampled) == set(range(count))


def test_durability_needs_a_folder_and_a_valid_name(tmp_path):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    for kind in (reverie.Store, reverie.Server):
        with pytest.raises(errors.InvalidArgumentError, match="without a checkpointer"):
            kind(program.tables(), durability="sync")
        with pytest.raises(errors.InvalidArgumentError, match=r"durability.*'always'.*'sync'"):
            kind(program.tables(), checkpointer=checkpointer, durability="always")
    assert not list(tmp_path.iterdir())


def test_a_damaged_journal_is_refused_with_file_and_offset(tmp_path):
    with open_store(tmp_path) as store:
        for i in range(20):
            store.client().insert(program.step(i), {"kept": 1.0})
    (path,) = tmp_path.glob("journal-*")
    data = bytearray(path.read_bytes())
    data[1000] ^= 4
    path.write_bytes(data)
    with pytest.raises(errors.DataLossError, match=r"journal-0000000001' is damaged at byte \d+"):
        open_store(tmp_path)
    path.unlink()  # as the message advises
    with open_store(tmp_path) as store:
        assert store["kept"].info.current_size == 0


# Runs on a separate disk of a few MB.
FULL_DISK = """
    import json, os, sys
    import journal_kill_program as program
    import reverie
    from reverie import errors

    root = sys.argv[1]
    checkpointer = reverie.checkpointers.DefaultCheckpointer(root + "/replay")
    with reverie.Store(
        program.tables(), checkpointer=checkpointer, durability=sys.argv[2]
    ) as store:
        client = store.client()
        with open(root + "/ballast", "wb") as file:
            file.write(bytes(int(sys.argv[3])))
        confirmed = 0
        said = ""
        while not said:
            try:
                client.insert(program.step(confirmed), {"kept": 1.0})
                confirmed += 1
            except errors.ResourceExhaustedError as error:
                said = str(error)
        client.sample_batch("kept", 10)  # memory serves on
        os.remove(root + "/ballast")
        store.checkpoint()
        client.insert(program.step(100_000), {"kept": 1.0})
        size = store["kept"].info.current_size
    with reverie.Store(
        program.tables(), checkpointer=checkpointer, durability=sys.argv[2]
    ) as store:
        print(json.dumps([said, confirmed, size, store["kept"].info.current_size]))
"""


@pytest.mark.parametrize(
    ("durability", "disk", "ballast"),
    [
        ("sync", "2m", 1_300_000),
        ("interval", "2m", 1_300_000),  # the disk is too small for the ring
        ("interval", "7m", 2_200_000),
    ],
)
def test_a_full_disk_confirms_nothing_until_a_checkpoint_can_be_written(
    tmp_path, durability, disk, ballast
):
    small_disk = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    script = f'mount -t tmpfs -o size={disk} none "$0" && exec "$@"'
    probe = subprocess.run(
        [*small_disk, script, tmp_path, "true"], capture_output=True, check=False
    )
    if probe.returncode != 0:
        pytest.skip(f"no small disk can be had here: {probe.stderr.decode()}")
    paths = (os.environ.get("PYTHONPATH"), str(PROGRAM.parent))
    command = [sys.executable, "-c", textwrap.dedent(FULL_DISK), tmp_path, durability]
    command.append(str(ballast))
    done = subprocess.run(
        [*small_disk, script, tmp_path, *command],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, confirmed, size, size_again = json.loads(done.stdout)
    assert "No space left on device" in said
    assert "once a checkpoint can be written" in said
    assert confirmed > 100
    assert confirmed + 1 <= size <= confirmed + 2  # the refused item may be in memory
    assert size_again == size


@pytest.mark.parametrize("protocol", ["grpc", "peer"])
def test_an_insert_without_time_to_wait_needs_none_for_the_journal(tmp_path, protocol):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    tables = [*program.tables(), reverie.Table.queue("short", 1)]
    with reverie.Server(tables, checkpointer=checkpointer, durability="sync") as server:
        client = reverie.Client(f"localhost:{server.port}", protocol=protocol)
        assert client.server_info()["kept"].current_size == 0
        for i in range(20):
            client.insert(program.step(i), {"kept": 1.0}, timeout_s=0)
        assert client.server_info()["kept"].current_size == 20
        client.insert({"x": 1}, {"short": 1.0}, timeout_s=0)
        with pytest.raises(errors.DeadlineExceededError):
            client.insert({"x": 2}, {"short": 1.0}, timeout_s=0)
        assert client.server_info()["short"].current_size == 1


def test_inserts_of_many_threads_are_all_journalled(tmp_path):
    with open_store(tmp_path) as store:

        def work(k):
            client = store.client()
            for i in range(50):
                client.insert(program.step(1000 * k + i), {"kept": 1.0})

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with open_store(tmp_path) as store:
        assert numbers(store, "kept") == sorted(1000 * k + i for k in range(8) for i in range(50))


def test_a_forked_child_cannot_write_to_the_journal(tmp_path):
    with open_store(tmp_path) as store:
        store.client().insert(program.step(1), {"kept": 1.0})
        child = os.fork()
        if child == 0:
            try:
                store.client().insert(program.step(2), {"kept": 1.0})
            except errors.FailedPreconditionError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        store.client().insert(program.step(3), {"kept": 1.0})
    with open_store(tmp_path) as store:
        assert numbers(store, "kept") == [1, 3]


# --- A reader of the format, written only from docs/formats/journal.md.

_spec = importlib.util.spec_from_file_location(
    "checkpoint_page", Path(__file__).with_name("checkpoint_test.py")
)
page = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(page)


def read_journal(path):
    """Number, type and payload of each record in a journal file."""
    data = page.read_file(path, 4)
    records, next_number, synced_max = [], None, 0
    while not data.is_done():
        (crc,) = struct.unpack("<I", data.raw(4))
        head = data.raw(28)
        count, first, synced, size = struct.unpack("<IQQQ", head)
        payload = data.raw(size)
        assert page.crc32c(head + payload) == crc
        assert next_number in (None, first)
        assert synced_max <= synced < first
        next_number, synced_max = first + count, synced
        group = page.Bytes(payload)
        for number in range(first, next_number):
            code, length = group.take("BI")
            records.append((number, code, page.Bytes(group.raw(length))))
        assert group.is_done()
    return records


def read_ring(path, last):
    """The records of the ring that follow record ``last``."""
    raw = path.read_bytes()
    data = page.read_file(path, 5)
    (count,) = struct.unpack_from("<I", raw, 16)
    groups = raw[4096 + 32 * count :]
    entries = {}
    for at in range(4096, 4096 + 32 * count, 32):
        first, file, offset, size, crc, own = struct.unpack_from("<QQIIII", raw, at)
        if first and page.crc32c(raw[at : at + 28]) == own:
            entries[first] = (file, groups[offset : offset + size], crc)
    records = []
    while last + 1 in entries:
        _, whole, crc = entries[last + 1]
        if struct.unpack_from("<I", whole)[0] != crc or page.crc32c(whole[4:]) != crc:
            break
        number, first, _, size = struct.unpack_from("<IQQQ", whole, 4)
        assert (first, size) == (last + 1, len(whole) - 32)
        group = page.Bytes(whole[32:])
        for _ in range(number):
            last += 1
            code, length = group.take("BI")
            records.append((last, code, page.Bytes(group.raw(length))))
        assert group.is_done()
    assert data is not None
    return records


def read_item(data, layouts):
    columns, pieces = layouts[data.take("I")]
    return columns, [data.take("III") for _ in range(pieces)]


def small():
    """A table that evicts items, and removes them after two samples."""
    return reverie.Table(
        "t",
        sampler=reverie.selectors.Uniform(seed=3),
        remover=reverie.selectors.Fifo(),
        max_size=6,
        rate_limiter=reverie.rate_limiters.MinSize(1),
        max_times_sampled=2,
    )


def test_a_reader_written_from_the_documentation_reads_a_journal(tmp_path):
    checkpointer = reverie.checkpointers.DefaultCheckpointer(tmp_path)
    with reverie.Store([small()], checkpointer=checkpointer, durability="sync") as store:
        client = store.client()
        for i in range(10):
            client.insert({"x": np.float32(i)}, {"t": 1.0 + i})
        keys = client.sample_batch("t", 4, distinct=True).keys.tolist()
        client.mutate_priorities("t", {keys[0]: 9.5}, [keys[1]])
        client.sample_batch("t", 4, distinct=True)  # the last draw of some items
    (path,) = tmp_path.glob("journal-*")
    slots, schemas, layouts, chunks, seen = {}, [], [], [], []
    for place, (number, code, data) in enumerate(read_journal(path)):
        assert number == place + 1
        seen.append(code)
        if code == 1:
            assert data.take("I") == 1
            made = page.read_table(page.Bytes(data.raw(len(data.data) - data.at)))
            assert (made["name"], made["max_size"], made["max_times_sampled"]) == ("t", 6, 2)
        elif code == 2:
            schemas.append([page.read_spec(data) for _ in range(data.take("I"))])
        elif code == 3:
            data.text()
            data.take("Q")
            columns = [(page.read_spec(data), data.take("IIIBB")) for _ in range(data.take("I"))]
            layouts.append((columns, max(end for _, (_, _, end, _, _) in columns)))
        elif code == 4:
            schema, _, _, _, _, _, _ = data.take("IQQIIIQ")
            form, _, count = data.take("BBI")
            places = [data.take("BQQ") for _ in range(count)]
            body = data.raw(len(data.data) - data.at)
            assert (form, count) == (0, len(schemas[schema]))
            chunks.append([bytearray(body[at : at + size]) for _, at, size in places])
        elif code == 5:
            chunk, _, _ = data.take("III")
            for column in chunks[chunk]:
                column += data.raw(data.take("Q"))
        elif code == 16:
            _, _, key, _, priority, _, slot = data.take("IqQBdqI")
            evicted = [data.take("I") for _ in range(data.take("I"))]
            columns, pieces = read_item(data, layouts)
            ((_, (column, begin, _, _, _)),) = columns
            chunk, row, rows = pieces[begin]
            assert rows == 1
            (value,) = struct.unpack_from("<f", chunks[chunk][column], 4 * row)
            assert slot not in slots
            slots[slot] = [key, value, priority, 0]
            for gone in evicted:
                del slots[gone]
        elif code == 17:
            data.take("Iq")
            for _ in range(data.take("I")):
                slot, priority = data.take("Id")
                slots[slot][2] = priority
        elif code == 18:
            data.take("Iq")
            gone = {data.take("Q") for _ in range(data.take("I"))}
            slots = {slot: item for slot, item in slots.items() if item[0] not in gone}
        elif code == 20:
            data.take("Iq")
            for _ in range(data.take("I")):
                slot = data.take("I")
                slots[slot][3] += 1
                if slots[slot][3] == 2:
                    del slots[slot]
        assert data.is_done() or code == 1
    assert seen[0] == 1
    assert seen[-1] == 6
    assert {16, 17, 18, 20} <= set(seen)
    found = sorted((value, priority) for _, value, priority, _ in slots.values())
    with reverie.Store([small()], checkpointer=checkpointer) as store:
        assert store["t"].info.current_size == len(found)
        batch = store.client().sample_batch("t", len(found), distinct=True)
        told = list(zip(np.ravel(batch.data["x"]).tolist(), batch.priorities.tolist(), strict=True))
    assert sorted(told) == found


LEFT_IN_THE_RING = """
    import os, signal, sys
    import journal_kill_program as program
    import reverie

    checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1])
    store = reverie.Store(program.tables(), checkpointer=checkpointer, durability="interval")
    client = store.client()
    for i in range(500):
        client.insert(program.step(i), {"kept": 1.0})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_changes_confirmed_by_a_killed_store_are_in_its_files_and_ring(tmp_path, capsys):
    paths = (os.environ.get("PYTHONPATH"), str(PROGRAM.parent))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LEFT_IN_THE_RING), tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    ring = tmp_path / "journal-ring"
    if not ring.exists():
        pytest.skip("the file system of the temporary folder has no ring")
    records = []
    for path in sorted(tmp_path.glob("journal-0*")):
        records += read_journal(path)
    in_files = len(records)
    records += read_ring(ring, records[-1][0] if records else 0)
    assert len(records) > in_files, "all of it was written before the kill"
    assert [number for number, _, _ in records] == list(range(1, len(records) + 1))
    assert sum(code == 16 for _, code, _ in records) == 500
    assert command.main(["journal", "inspect", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"journal-ring: records {in_files + 1} to {len(records)}" in said
    for durability in ("sync", "none"):  # either one replays the ring
        with open_store(tmp_path, durability) as store:
            assert numbers(store, "kept") == list(range(500))
        assert not ring.exists()


TABLES_THAT_DIFFER = """
    import os, signal, sys
    import numpy as np
    import reverie

    def table(name, durability):
        return reverie.Table(name, reverie.selectors.Fifo(), reverie.selectors.Fifo(), 1000,
                             reverie.rate_limiters.MinSize(1), durability=durability)

    tables = [table("none", "none"), table("interval", "interval"), table("sync", "sync"),
              table("as the store", None)]
    checkpointer = reverie.checkpointers.DefaultCheckpointer(sys.argv[1])
    store = reverie.Store(tables, checkpointer=checkpointer, durability=sys.argv[2])
    if len(sys.argv) > 3:
        for one in tables:
            print(one.info.current_size, one.info.num_unique_samples)
    else:
        for i in range(50):
            everywhere = {one.name: 1.0 for one in tables}
            store.client().insert({"x": np.float32(i)}, everywhere)
            if i == 19:
                store.checkpoint()
        for one in tables:
            keys = store.client().sample_batch(one.name, 3).keys
            store.client().mutate_priorities(one.name, {}, keys[:1])
        store.client().reset("none")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("durability", ["none", "sync"])
def test_a_table_may_have_its_own_durability(tmp_path, durability):
    command = [sys.executable, "-c", textwrap.dedent(TABLES_THAT_DIFFER), tmp_path, durability]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for _ in range(2):  # the second run finds the same
        again = subprocess.run(
            [*command, "again"], capture_output=True, text=True, timeout=60, check=False
        )
        sizes = [int(line.split()[0]) for line in again.stdout.splitlines()]
        as_the_store = 49 if durability == "sync" else 20
        assert sizes == [20, 49, 49, as_the_store], again.stderr


def test_the_durability_of_a_table_needs_a_folder_and_a_valid_name():
    queue = reverie.Table.queue("q", 10)
    with pytest.raises(errors.InvalidArgumentError, match="durability of table 'q' is 'always'"):
        queue.replace(durability="always")
    with pytest.raises(errors.InvalidArgumentError, match=r"of table 'q' is 'sync'.*checkpointer"):
        reverie.Store([queue.replace(durability="sync")])
    reverie.Store([queue.replace(durability="none")]).close()
