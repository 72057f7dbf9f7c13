"""Several servers behind one client; some of them are killed."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors, reverb

SHARDS = 3
LIMIT_S = 120.0  # far above the time of a load that shares the machine with three servers


def table(sampler=None, limiter=None, **options):
    return reverie.Table(
        "t",
        sampler=sampler or reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=100_000,
        rate_limiter=limiter or reverie.rate_limiters.MinSize(1),
        **options,
    )


@pytest.fixture
def serve():
    """Starts servers, and returns a client of all of them."""
    servers = []

    def start(*tables, **options):
        servers.extend(reverie.Server([one]) for one in tables)
        addresses = [f"localhost:{server.port}" for server in servers]
        return servers, reverie.Client(addresses, **options)

    yield start
    for server in servers:
        server.stop(grace_s=0)


def sizes(servers):
    return [server.client().server_info()["t"].current_size for server in servers]


def fill(client, count):
    for value in range(count):
        client.insert(np.float32(value), {"t": 1.0 + value})


def test_items_are_inserted_round_robin_and_sampled_from_all_shards(serve):
    servers, client = serve(*(table() for _ in range(SHARDS)))
    fill(client, 30)
    assert sizes(servers) == [10, 10, 10]
    batch = client.sample_batch("t", 63)
    counts = np.bincount(batch.shards)
    assert counts.min() > 0  # 21 each, unless a shard was late
    assert batch.table_size == 30
    assert (batch.data[0][:, 0] % SHARDS == batch.shards).all()
    assert np.allclose(batch.probabilities, (counts / 63)[batch.shards] / 10)
    assert client.server_info()["t"].current_size == 30
    assert [shard.server_info()["t"].current_size for shard in client.shards] == [10, 10, 10]
    assert client.shards_down() == {}


def test_the_shards_of_reverbs_client_answer_as_reverbs(serve):
    servers, _ = serve(table(), table())
    client = reverb.Client([f"localhost:{server.port}" for server in servers])
    for shard in client.shards:
        assert isinstance(shard, reverb.Client)
        assert isinstance(shard.server_info(timeout=10)["t"], reverb.reverb_types.TableInfo)
        assert list(shard.sample("t", -1)) == []


def test_a_client_of_one_server_has_no_shards(serve):
    servers, _ = serve(table())
    client = servers[0].localhost_client()
    fill(client, 3)
    assert client.sample_batch("t", 2).shards is None
    assert client.shards == [client]


def test_an_episode_stays_on_one_shard_and_the_next_uses_another(serve):
    servers, client = serve(*(table() for _ in range(SHARDS)))
    with client.trajectory_writer(num_keep_alive_refs=4) as writer:
        for episode in range(6):
            for step in range(5):
                writer.append({"episode": np.int64(episode), "step": np.int64(step)})
                if step > 0:
                    pair = {name: column[-2:] for name, column in writer.history.items()}
                    writer.create_item("t", 1.0, pair)
            writer.end_episode()
    assert sizes(servers) == [8, 8, 8]
    batch = client.sample_batch("t", 60)
    episode, _ = batch.data
    assert (episode[:, 0] % SHARDS == batch.shards).all()


def test_the_legacy_writer_and_single_samples_work_with_shards(serve):
    _, client = serve(*(table() for _ in range(SHARDS)))
    for value in range(SHARDS):
        with client.writer(max_sequence_length=2) as writer:
            writer.append(np.float32(value))
            writer.append(np.float32(value))
            writer.create_item("t", num_timesteps=2, priority=1.0)
    drawn = {
        sample.data[0][0] for sample in client.sample("t", num_samples=30, emit_timesteps=False)
    }
    assert drawn == {0.0, 1.0, 2.0}


def test_a_dataset_draws_from_all_shards(serve):
    _, client = serve(*(table() for _ in range(SHARDS)))
    fill(client, 9)
    with client.dataset("t", batch_size=30, beta=0.5) as batches:
        for _ in range(4):
            batch = next(batches)
            assert np.bincount(batch.shards, minlength=SHARDS).min() > 0
            least = batch.probabilities.min()
            assert np.allclose(batch.weights, (least / batch.probabilities) ** 0.5)


def test_priorities_and_deletions_reach_the_shard_that_has_the_item(serve):
    servers, client = serve(*(table(reverie.selectors.Prioritized(1.0)) for _ in range(SHARDS)))
    fill(client, 6)
    batch = client.sample_batch("t", 60)
    assert client.update_priorities("t", batch.tickets, np.full(60, 5.0)) == 60
    again = client.sample_batch("t", 60)
    seen = np.isin(again.keys, batch.keys)
    assert (again.priorities[seen] == 5.0).all()
    assert [s.client().server_info()["t"].missing_updates for s in servers] == [0, 0, 0]
    # A client that did not draw the items asks all shards.
    other = reverie.Client([f"localhost:{server.port}" for server in servers])
    key = int(batch.keys[0])
    other.mutate_priorities("t", updates={key: 7.0})
    assert servers[batch.shards[0]].client().priorities("t", [key]).tolist() == [7.0]
    keys = np.unique(again.keys)
    other.delete("t", keys)
    assert sum(sizes(servers)) == 6 - len(keys)
    client.reset("t")
    assert sizes(servers) == [0, 0, 0]


def test_mass_sampling_matches_one_prioritized_table(serve):
    tables = [table(reverie.selectors.Prioritized(0.5)) for _ in range(2)]
    _, client = serve(*tables, sampling="mass")
    priorities = np.array([1.0, 400.0, 4.0, 900.0, 9.0, 1600.0])  # one shard has nearly all
    for value, priority in enumerate(priorities):
        client.insert(np.int64(value), {"t": float(priority)})
    mass = np.sqrt(priorities)
    want = mass / mass.sum()
    counts = np.zeros(6)
    near = 0
    # A shard that is late, which happens on a busy machine, leaves its part of a batch to the
    # others: such batches have other probabilities, and are not counted here.
    deadline = time.monotonic() + 60.0
    while near < 50 and time.monotonic() < deadline:
        batch = client.sample_batch("t", 128, beta=1.0)
        if np.allclose(batch.probabilities, want[batch.data[0][:, 0]], rtol=0.2):
            near += 1
            np.add.at(counts, batch.data[0][:, 0], 1)
    assert near == 50
    assert np.allclose(counts / counts.sum(), want, atol=0.03)
    assert np.allclose(batch.weights, batch.probabilities.min() / batch.probabilities, rtol=1e-5)


def test_a_shard_blocked_by_its_limiter_is_skipped(serve):
    _, client = serve(
        table(), table(limiter=reverie.rate_limiters.MinSize(1000)), table(), sampling="even"
    )
    fill(client, 30)
    for _ in range(3):
        assert 1 not in client.sample_batch("t", 30).shards
    assert client.shards_down() == {}
    # A client of a single shard is available too.
    strict = client.shards[1]
    assert strict.server_info()["t"].current_size == 10
    with pytest.raises(errors.DeadlineExceededError):
        strict.sample_batch("t", 1, timeout_s=0.1)
    # A full shard holds up the writers whose turn it is, and no others.
    servers, queues = serve(reverie.Table.queue("q", 1), reverie.Table.queue("q", 100))
    queues = reverie.Client([f"localhost:{server.port}" for server in servers[3:]])
    for _ in range(2):
        queues.insert(np.int64(0), {"q": 1.0})
    with pytest.raises(errors.DeadlineExceededError, match="shard 0 of 2"):
        queues.insert(np.int64(0), {"q": 1.0}, timeout_s=0.1)
    queues.insert(np.int64(0), {"q": 1.0})
    assert len(queues.sample_batch("q", 3)) == 3


def test_a_batch_is_drawn_from_whichever_shards_have_items(serve):
    servers, _ = serve(*(reverie.Table.queue("q", 100) for _ in range(SHARDS)))
    client = reverie.Client([f"localhost:{server.port}" for server in servers])
    for server, count in zip(servers, (2, 13, 0), strict=True):
        for value in range(count):
            server.localhost_client().insert(np.int64(value), {"q": 1.0})
    first = client.sample_batch("q", 10, timeout_s=30)
    rest = client.sample_batch("q", 5, timeout_s=30)
    assert len(np.unique(np.concatenate([first.keys, rest.keys]))) == 15
    with pytest.raises(errors.DeadlineExceededError, match="0 of 1"):
        client.sample_batch("q", 1, timeout_s=0.2)


@pytest.mark.parametrize("count", [1, SHARDS])
def test_distinct_samples_of_shards_are_refused(serve, count):
    _, client = serve(*(table() for _ in range(count)))
    fill(client, 8)
    with pytest.raises(errors.UnimplementedError, match=f"here of {count}; sample with replac"):
        client.sample_batch("t", 4, distinct=True)


def test_errors_name_the_shard(serve):
    servers, _ = serve(table(), table())
    addresses = [f"localhost:{server.port}" for server in servers]
    client = reverie.Client(addresses)
    with pytest.raises(errors.NotFoundError, match=r"shard \d of 2 \(localhost:\d+\): .*nope"):
        client.sample_batch("nope", 4, timeout_s=5)
    with pytest.raises(errors.ReverieError, match=f"shard {addresses[0]}: .*shard {addresses[1]}"):
        client.checkpoint()


@pytest.mark.parametrize(
    ("addresses", "options", "message"),
    [
        ([], {}, "no shards"),
        (["localhost:1", "localhost:1"], {}, "'localhost:1' is named twice"),
        (["localhost:1", "nonsense"], {}, "'nonsense' has no port"),
        (["localhost:1"], {"sampling": "most"}, "sampling is 'most'"),
    ],
)
def test_invalid_addresses_and_options_are_refused(addresses, options, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        reverie.Client(addresses, **options)


def test_grpc_targets_are_accepted_and_each_address_can_be_a_shard(serve):
    servers, _ = serve(table(), table())
    ports = [server.port for server in servers]
    target = f"ipv4:127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
    for server in servers:  # connections go to either address by turns, so both get an item
        fill(server.localhost_client(), 1)
    turns = reverie.Client(target)
    assert turns.sample_batch("t", 2, timeout_s=60).shards is None
    each = reverie.Client(target, each_address=True)
    assert [shard.server_address for shard in each.shards] == [f"127.0.0.1:{p}" for p in ports]
    assert each.server_info()["t"].current_size == 2
    named = reverie.Client([f"dns:///localhost:{ports[0]}", f"ipv4:127.0.0.1:{ports[1]}"])
    assert named.server_info()["t"].current_size == 2
    assert reverie.Client(f"dns:///localhost:{ports[0]}", each_address=True).shards_down() == {}


def test_a_client_of_shards_can_be_pickled(serve):
    _, client = serve(table(), table(), sampling="mass")
    fill(client, 4)
    copy = pickle.loads(pickle.dumps(client))
    assert repr(copy) == repr(client)
    assert copy.server_info()["t"].current_size == 4


def test_ctrl_c_ends_a_wait_for_all_shards(serve):
    servers, _ = serve(table(), table())
    program = textwrap.dedent(
        f"""
        import reverie
        client = reverie.Client({[f"localhost:{server.port}" for server in servers]})
        client.server_info()
        print("ready", flush=True)
        try:
            client.sample_batch("t", 4)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout.readline() == "ready\n"
        eventually(lambda: any(s.client().why_blocked("t").samples.waiting for s in servers))
        it.send_signal(signal.SIGINT)
        assert it.stdout.readline() == "interrupted\n"


class ServerProcess:
    """A server in its own process, which can be killed and restarted at its port."""

    PROGRAM = textwrap.dedent(
        """
        import sys
        import reverie
        table = reverie.Table(
            "t", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 100_000,
            reverie.rate_limiters.MinSize(1))
        server = reverie.Server([table], port=int(sys.argv[1]))
        print(server.port, flush=True)
        sys.stdin.read()
        """
    )

    def __init__(self):
        self.port = 0
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.process.stdout.readline())

    def kill(self):
        with self.process:
            self.process.kill()


@pytest.fixture
def processes():
    started = [ServerProcess() for _ in range(SHARDS)]
    yield started
    for one in started:
        one.kill()


class Load:
    """A writer and a reader that run until they are stopped, and keep their errors."""

    def __init__(self, addresses):
        self.addresses = addresses
        self.written = 0
        self.read = 0
        self.longest_s = {"write": 0.0, "read": 0.0}
        self.last_shards = set()
        self.failures = []
        self.clients = []
        self.stopping = threading.Event()
        self.threads = [
            threading.Thread(target=self.run, args=[work]) for work in (self.write, self.learn)
        ]

    def run(self, work):
        try:
            self.clients.append(reverie.Client(self.addresses))
            work(self.clients[-1])
        except Exception as error:  # the test reports it
            self.failures.append(error)

    def timed(self, kind, begun):
        self.longest_s[kind] = max(self.longest_s[kind], time.monotonic() - begun)

    def write(self, client):
        with client.trajectory_writer(num_keep_alive_refs=2, max_in_flight_items=20) as writer:
            while not self.stopping.is_set():
                for step in range(5):
                    begun = time.monotonic()
                    writer.append({"x": np.full(100, step, np.float32)})
                    if step > 0:
                        writer.create_item("t", 1.0, {"x": writer.history["x"][-2:]})
                    self.timed("write", begun)
                begun = time.monotonic()
                writer.end_episode(timeout_s=60)
                self.timed("write", begun)
                self.written += 4

    def learn(self, client):
        while not self.stopping.is_set():
            begun = time.monotonic()
            batch = client.sample_batch("t", 32, timeout_s=60)
            client.update_priorities("t", batch.tickets, np.ones(32))
            self.timed("read", begun)
            self.last_shards = set(batch.shards.tolist())
            self.read += 32

    def await_shards(self):
        """Waits until all clients use all shards again."""
        self.until(lambda: not any(client.shards_down() for client in self.clients))

    def wait_for_more(self, written=200, read=2000):
        goal = (self.written + written, self.read + read)
        self.until(lambda: self.written >= goal[0] and self.read >= goal[1])

    def until(self, is_so):
        eventually(lambda: self.failures or is_so(), LIMIT_S)
        assert self.failures == []

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def test_calls_continue_without_a_killed_server_and_use_it_again_later(processes, ended_within):
    addresses = [f"localhost:{one.port}" for one in processes]
    watcher = reverie.Client(addresses)
    with Load(addresses) as load:
        load.wait_for_more()
        processes[1].kill()
        load.wait_for_more()
        load.until(lambda: 1 not in load.last_shards)
        left = processes[0], processes[2]
        held = [reverie.Client(f"localhost:{one.port}").server_info()["t"] for one in left]
        assert watcher.server_info()["t"].current_size >= sum(h.current_size for h in held)
        assert list(watcher.shards_down()) == [addresses[1]]
        processes[1].start()
        load.until(lambda: 1 in load.last_shards)
        load.wait_for_more()
        fresh = reverie.Client(addresses[1])
        assert fresh.server_info()["t"].current_size > 0
    assert load.failures == []
    # A refused connection is noticed at once; a writer probes after a quarter of a second.
    assert ended_within(time.monotonic() - max(load.longest_s.values()), 15.0)
    assert watcher.server_info()["t"].current_size > 0
    eventually(lambda: not watcher.shards_down(), LIMIT_S)


def test_no_call_waits_long_for_a_frozen_server(processes, ended_within):
    addresses = [f"localhost:{one.port}" for one in processes]
    with Load(addresses) as load:
        load.wait_for_more()
        processes[2].process.send_signal(signal.SIGSTOP)
        load.wait_for_more()
        processes[2].process.send_signal(signal.SIGCONT)
        load.until(lambda: 2 in load.last_shards)
        load.wait_for_more()
    assert load.failures == []
    assert ended_within(time.monotonic() - max(load.longest_s.values()), 15.0)


def keys_in(address):
    """Removes all items of a server and returns their keys."""
    client = reverie.Client(address)
    keys = []
    while size := client.server_info()["t"].current_size:
        batch = client.sample_batch("t", min(size, 512), timeout_s=30)
        found = np.unique(batch.keys)
        keys.extend(found.tolist())
        assert client.delete("t", found) == len(found)
    return keys


def test_no_item_is_lost_or_doubled_while_a_shard_is_frozen(processes):
    addresses = [f"localhost:{one.port}" for one in processes]
    with contextlib.ExitStack() as stack:
        loads = [stack.enter_context(Load(addresses)) for _ in range(2)]
        loads[0].wait_for_more()
        for shard in (2, 0):
            processes[shard].process.send_signal(signal.SIGSTOP)
            loads[0].wait_for_more()
            processes[shard].process.send_signal(signal.SIGCONT)
            for load in loads:
                load.await_shards()
    assert [load.failures for load in loads] == [[], []]
    keys = [key for address in addresses for key in keys_in(address)]
    assert len(keys) == len(set(keys))
    assert len(keys) == sum(load.written for load in loads)


def test_a_writer_can_be_opened_while_a_shard_is_frozen(processes, ended_within):
    """The first call has to work, when nothing is known about the tables."""
    addresses = [f"localhost:{one.port}" for one in processes]
    frozen = processes[0].process
    frozen.send_signal(signal.SIGSTOP)
    # Ends the freeze, in case the call holds the interpreter's lock until then.
    thaw = f"sleep 20; kill -CONT {frozen.pid}"
    with subprocess.Popen(["sh", "-c", thaw], start_new_session=True) as thawing:
        try:
            begun = time.monotonic()
            client = reverie.Client(addresses)
            with client.trajectory_writer(1) as writer:
                writer.append(np.float32(1))
                writer.create_item("t", 1.0, writer.history[-1:])
                writer.flush(timeout_s=30)
            with reverie.Client(addresses).writer(1) as writer:
                writer.append(np.float32(1))
                writer.create_item("t", 1, 1.0)
            assert ended_within(begun, 15.0)
        finally:
            os.killpg(thawing.pid, signal.SIGKILL)
            frozen.send_signal(signal.SIGCONT)
    # Items that it got before the freeze was noticed went to another shard too; it deletes them.
    look = reverie.Client(addresses)
    eventually(lambda: look.server_info()["t"].current_size == 2, LIMIT_S)
