"""Values that only some programs send between peers: dataclasses, and pickles."""

import collections
import concurrent.futures
import dataclasses
import datetime
import subprocess
import sys
import threading
from typing import ClassVar

import numpy as np
import pytest

import reverie
from reverie import errors

DEADLINE_S = 30.0


@reverie.register_dataclass
@dataclasses.dataclass
class Config:
    learning_rate: float
    layers: list[int] = dataclasses.field(default_factory=list)
    steps: int = dataclasses.field(default=0, init=False)


@reverie.register_dataclass(name="tests.Point")
@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    label: str = dataclasses.field(default="", kw_only=True)


@reverie.register_dataclass
@dataclasses.dataclass
class Positive:
    value: float

    def __post_init__(self):
        if self.value <= 0:
            raise ValueError(f"value is {self.value}; it must be above 0")


@dataclasses.dataclass
class Private:
    secret: str


class Plain:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Plain) and other.x == self.x

    __hash__ = None


@pytest.fixture
def pair():
    with reverie.Rpc("server") as server, reverie.Rpc("client") as client:
        server.define("echo", lambda value: value)
        client.connect(server.listen())
        yield server, client


def test_registered_dataclasses_are_returned_as_instances_of_their_class(pair):
    _, client = pair
    config = Config(0.5, [1, 2])
    config.steps = 7
    nest = {"config": config, "points": [Point(1, label="a"), Point(2)], "deep": (Config(0.1),)}
    got = client.sync("server", "echo", nest)
    assert got == nest
    assert type(got["points"][0]) is Point
    assert got["config"].steps == 7
    arrays = client.sync("server", "echo", Config(np.ones(3), [np.arange(4)]))
    np.testing.assert_array_equal(arrays.learning_rate, np.ones(3))
    np.testing.assert_array_equal(arrays.layers[0], np.arange(4))


def test_a_dataclass_that_is_not_registered_cannot_be_sent(pair):
    _, client = pair
    with pytest.raises(errors.UnsupportedTypeError, match=r"args holds a Private.*registered"):
        client.sync("server", "echo", Private("x"))


def test_dataclasses_can_be_used_in_batches_and_streams(pair):
    server, client = pair
    server.define("batch", lambda points: [point.x * 2 for point in points], batch_size=4)
    server.define_stream("points", lambda n: (Point(i) for i in range(n)))
    futures = [client.async_("server", "batch", Point(i)) for i in range(8)]
    assert [future.result(DEADLINE_S) for future in futures] == [2 * i for i in range(8)]
    with client.stream("server", "points", 3) as points:
        assert list(points) == [Point(0), Point(1), Point(2)]


def test_invalid_instances_and_mismatched_classes_are_refused(pair):
    server, client = pair
    queue = server.define_queue("ask")
    wrong = Positive(1.0)
    wrong.value = -1.0
    with pytest.raises(errors.InvalidArgumentError, match=r"'Positive' that came cannot be made"):
        client.sync("server", "echo", wrong)

    # The class changes its name or its fields after a value was sent.
    def sent(value, then):
        future = client.async_("server", "ask", value)
        while not len(queue):
            client.ping("server")
        then()
        with pytest.raises(errors.DeadlineExceededError):
            queue.get(timeout_s=0.05)
        return future

    renamed = sent(Point(1), lambda: reverie.register_dataclass(Point, name="Renamed"))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"'tests.Point' came, which is not known"
    ):
        renamed.result(DEADLINE_S)
    reverie.register_dataclass(Point, name="tests.Point")

    @dataclasses.dataclass
    class Loaded:
        a: int

    reverie.register_dataclass(Loaded, name="Loaded")
    before = Loaded(1)

    def load_again():
        made = dataclasses.make_dataclass("Loaded", ["b"])
        made.__module__, made.__qualname__ = Loaded.__module__, Loaded.__qualname__
        reverie.register_dataclass(made, name="Loaded")

    with pytest.raises(errors.InvalidArgumentError, match=r"fields 'Loaded a'.*'Loaded b'"):
        sent(before, load_again).result(DEADLINE_S)


def test_wrong_classes_and_names_are_refused():
    with pytest.raises(errors.UnsupportedTypeError, match="cls is"):
        reverie.register_dataclass(Plain)
    with pytest.raises(errors.UnsupportedTypeError, match="cls is"):
        reverie.register_dataclass(Config(1.0))
    for name in ("", "two words", "a\tb", "x" * 257):
        with pytest.raises(errors.InvalidArgumentError, match="name is"):
            reverie.register_dataclass(Config, name=name)
    with pytest.raises(errors.AlreadyExistsError, match=r"'Config', by which .*Config travels"):
        reverie.register_dataclass(Private, name="Config")

    @dataclasses.dataclass
    class Needs:
        size: dataclasses.InitVar[int]
        x: int = 0

    with pytest.raises(errors.InvalidArgumentError, match="constructor needs 'size'"):
        reverie.register_dataclass(Needs)


def trusting(server_allows, client_allows):
    options = {"token": "secret"}
    return (
        reverie.Rpc("server", allow_pickle=server_allows, **options),
        reverie.Rpc("client", allow_pickle=client_allows, **options),
    )


def test_pickles_need_a_token():
    for token in (None, ""):
        with pytest.raises(errors.InvalidArgumentError, match=r"allow_pickle is True.*token"):
            reverie.Rpc(allow_pickle=True, token=token)


def test_objects_are_pickled_if_both_peers_allow_it():
    server, client = trusting(True, True)
    with server, client:
        server.define("echo", lambda value: value)
        client.connect(server.listen())
        when = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
        for value in (
            Plain(1),
            [Plain(1), {"a": (Plain(2), np.ones(2).tolist())}],
            when,
            Private("x"),
            len,
            collections.Counter,
            np.array("2020-01-01", "datetime64[D]"),
        ):
            assert client.sync("server", "echo", value) == value
        objects = np.array([None, Plain(3)])
        assert client.sync("server", "echo", objects).tolist() == [None, Plain(3)]
        with pytest.raises(errors.UnsupportedTypeError, match="function, which cannot be pickled"):
            client.sync("server", "echo", lambda: 1)
        assert isinstance(client.sync("server", "echo", Config(1.0)), Config)

        server.define("points", lambda xs: [Plain(x.x + 1) for x in xs], batch_size=2)
        futures = [client.async_("server", "points", Plain(i)) for i in range(4)]
        assert [future.result(DEADLINE_S) for future in futures] == [Plain(i + 1) for i in range(4)]


HARM_DONE = []


class Harm:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self):
        return (HARM_DONE.append, ("read",))


class Watched:
    """Is unpickled slowly, unless another thread unpickles it too."""

    readers: ClassVar[list[int]] = []
    again = threading.Event()

    def __setstate__(self, state):
        self.readers.append(1)
        if len(self.readers) > 1:
            self.again.set()
        self.again.wait(0.5)
        self.__dict__.update(state)


def test_an_answer_is_read_once_though_several_threads_ask_for_it():
    value = Watched()
    value.number = 7
    server, client = trusting(True, True)
    with server, client:
        server.define("value", lambda: value)
        client.connect(server.listen())
        future = client.async_("server", "value")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            first, *others = pool.map(lambda _: future.result(30), range(4))
        assert first.number == 7
        assert all(other is first for other in others)
        assert Watched.readers == [1]


def test_pickles_are_refused_if_one_peer_does_not_allow_them():
    for server_allows in (True, False):
        server, client = trusting(server_allows, not server_allows)
        with server, client:
            server.define("echo", lambda value: value)
            server.define("harm", lambda: Harm())
            client.connect(server.listen())
            if server_allows:
                with pytest.raises(errors.UnsupportedTypeError, match="args holds a Harm"):
                    client.sync("server", "echo", Harm())
                with pytest.raises(errors.UnsupportedTypeError, match="a pickled value came"):
                    client.sync("server", "harm")
            else:
                with pytest.raises(errors.InvalidArgumentError, match="a pickled value came"):
                    client.sync("server", "echo", Harm())
    assert HARM_DONE == []


def test_groups_reduce_objects_if_their_peers_allow_pickles():
    options = {"token": "secret", "allow_pickle": True}
    with (
        reverie.Broker(token="secret") as broker,
        reverie.Rpc("a", **options) as a,
        reverie.Rpc("b", **options) as b,
    ):
        address = broker.listen()
        groups = []
        for rpc in (a, b):
            rpc.connect(address)
            groups.append(reverie.Group(rpc, "g"))
        for group in groups:
            group.wait(2)
        rounds = [
            group.all_reduce("sum", Plain(i + 1), lambda x, y: Plain(x.x + y.x))
            for i, group in enumerate(groups)
        ]
        assert [round_.result(DEADLINE_S) for round_ in rounds] == [Plain(3), Plain(3)]


def test_weights_are_pickled_if_their_peers_allow_it():
    publisher, reader = trusting(True, True)
    stranger = reverie.Rpc("stranger", token="secret")
    with publisher, reader, stranger:
        address = publisher.listen()
        published = reverie.Weights(publisher, "w")
        published.publish(1, {"w": np.ones(2), "plain": Plain(1)})
        assert published.held().value["plain"] == Plain(1)
        reader.connect(address)
        taken = reverie.Weights(reader, "w", sources=["server"]).pull(timeout_s=DEADLINE_S)
        assert taken.value["plain"] == Plain(1)
        stranger.connect(address)
        refused = reverie.Weights(stranger, "w", sources=["server"])
        with pytest.raises(errors.UnsupportedTypeError, match="a pickled value came"):
            refused.pull(timeout_s=DEADLINE_S)
        with pytest.raises(errors.UnsupportedTypeError, match="has no encoding"):
            reverie.Weights(stranger, "own").publish(1, Plain(1))
        published.publish(2, 3.0)
        assert refused.pull(timeout_s=DEADLINE_S) == (2, 3.0)


def test_a_peer_that_is_asked_for_a_gpu_loads_neither_torch_nor_a_driver():
    program = """
import sys
import reverie
with reverie.Rpc("a") as a, reverie.Rpc("b") as b:
    b.connect(a.listen())
    for record in (bytes(112), bytes(5), [1], None):
        assert isinstance(b.sync("a", "reverie.device", record), str)
    assert "reverie.device" not in a.functions()
    assert "torch" not in sys.modules
    assert "libcuda" not in open("/proc/self/maps").read()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
