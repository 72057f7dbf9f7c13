"""Nests are stored as columns and returned as nests."""

import collections
import collections.abc
import contextlib
import dataclasses
import enum
import gc
import json
import random
import sys
import types
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import reverie
from reverie import _reverie


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    second: Any
    first: Any


@dataclasses.dataclass
class Checked:
    """Its constructor refuses the values of a batch."""

    value: Any
    derived: Any = dataclasses.field(init=False)

    def __post_init__(self):
        assert np.ndim(self.value) == 0
        self.derived = 2 * self.value


class Color(enum.IntEnum):
    RED = 1
    BLUE = 2


@pytest.fixture
def client():
    table = reverie.Table(
        "t",
        reverie.selectors.Fifo(),
        reverie.selectors.Fifo(),
        10,
        reverie.rate_limiters.MinSize(1),
    )
    with reverie.Store([table]) as store:
        yield store.client()


def paths_of(nest):
    return _reverie.flatten(nest)[0]


def again(nest):
    _, leaves, text = _reverie.flatten(nest)
    json.loads(text)
    return _reverie.fold(text, leaves)


@pytest.mark.parametrize(
    ("nest", "paths"),
    [
        (1, [""]),
        ({"b": 1, "a": 2}, ["a", "b"]),
        ({"obs": {"speed": 1, "position": 2}}, ["obs/position", "obs/speed"]),
        ([1, (2, 3)], ["0", "1/0", "1/1"]),
        ({10: 1, 9: 2, "z": 3}, ["9", "10", "z"]),
        (Point(1, {"a": 2}), ["x", "y/a"]),
        (Frozen(1, 2), ["second", "first"]),
        ({"a": [], "b": 1}, ["b"]),
        ({Color.BLUE: 1, Color.RED: 2}, ["1", "2"]),
        (collections.OrderedDict(b=1, a=2), ["a", "b"]),
        (types.MappingProxyType({"a": 1}), ["a"]),
    ],
)
def test_columns_are_named_by_their_path_in_sorted_order(nest, paths):
    assert paths_of(nest) == paths


@pytest.mark.parametrize(
    "nest",
    [
        1,
        {"b": 1, "a": {"c": 2, "d": [3, (4,)]}},
        [],
        (),
        {},
        ({}, [()]),
        {"a": Point(1, [2]), "b": Frozen(3, Point(4, 5))},
        {'quote"back\\slash': 1, "line\nfeed": 2, "grün": 3, "": 4},
        {3: 1, -1: 2, 2**70: 3},
    ],
)
def test_nests_round_trip(nest):
    back = again(nest)
    assert back == nest
    assert type(back) is type(nest)


def random_nest(rng, depth):
    if depth == 0:
        return rng.random()
    kind = rng.choice(["leaf", "dict", "list", "tuple", "point", "frozen"])
    children = [random_nest(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == "dict":
        return {rng.choice([f"k{i}", i]): child for i, child in enumerate(children)}
    if kind == "list":
        return children
    if kind == "tuple":
        return tuple(children)
    if kind == "point":
        return Point(random_nest(rng, depth - 1), random_nest(rng, depth - 1))
    if kind == "frozen":
        return Frozen(random_nest(rng, depth - 1), random_nest(rng, depth - 1))
    return rng.random()


def test_random_nests_round_trip():
    rng = random.Random(5)
    for _ in range(500):
        nest = random_nest(rng, 4)
        assert again(nest) == nest


def test_the_order_of_a_dict_does_not_matter(client):
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    for step in ({"a": 1, "b": 2.0}, {"b": 3.0, "a": 4}):
        writer.append(step)
        picked = {name: writer.history[name][-1] for name in step}
        writer.create_item("t", 1.0, picked)
    writer.close()
    batch = client.sample_batch("t", 1)
    assert set(batch.data) == {"a", "b"}
    assert client.server_info()["t"].current_size == 2
    client.delete("t", batch.keys)
    second = client.sample_batch("t", 1).data
    assert (second["a"][0], second["b"][0]) == (4, 3.0)


def test_instances_are_returned_without_calling_their_constructor(client):
    client.insert({"p": Point(1, 2), "c": Checked(3), "f": Frozen(4, 5)}, {"t": 1.0})
    data = client.sample_batch("t", 2).data
    assert isinstance(data["p"], Point)
    np.testing.assert_array_equal(data["p"].y, [[2], [2]])
    np.testing.assert_array_equal(data["c"].derived, [[6], [6]])
    np.testing.assert_array_equal(data["f"].first, [[5], [5]])


def test_an_unknown_class_is_returned_as_a_dict():
    _, leaves, text = _reverie.flatten(Point(1, 2))
    elsewhere = text.replace("Point", "Nowhere")
    assert _reverie.fold(elsewhere, leaves) == {"x": 1, "y": 2}


def test_a_redefined_class_replaces_the_old_one():
    def make():
        @dataclasses.dataclass
        class Local:
            a: int

        return Local

    first, second = make(), make()
    _, leaves, text = _reverie.flatten(first(1))
    assert type(_reverie.fold(text, leaves)) is first
    _reverie.flatten(second(1))
    assert type(_reverie.fold(text, leaves)) is second


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("", 1),
        ("nonsense", 1),
        ("[]", 1),
        ("1", 1),
        ('"**"', 1),
        ("{}", 0),
        ('{"dict": 1}', 0),
        ('{"dict": [["a"]]}', 1),
        ('{"dict": [[1.5, "*"]]}', 1),
        ('{"namedtuple": "a:b"}', 0),
        ('{"list": ["*", "*"]}', 1),
        ('"*"', 2),
        ('{"list": [' * 1000 + '"*"' + "]}" * 1000, 1),
    ],
)
def test_a_damaged_structure_is_refused(text, leaves):
    with pytest.raises((reverie.errors.DataLossError, RecursionError)):
        _reverie.fold(text, [0] * leaves)


@pytest.mark.parametrize("nest", [Point(1, 2), Frozen(1, 2)])
def test_a_class_with_other_fields_is_returned_as_a_dict(nest):
    names, _, text = _reverie.flatten(nest)
    longer = text.replace(f'["{names[1]}", "*"]', f'["{names[1]}", "*"], ["z", "*"]')
    assert _reverie.fold(longer, [1, 2, 3]) == {names[0]: 1, names[1]: 2, "z": 3}


@pytest.mark.parametrize("key", [1.5, None, (1,), b"a", True])
def test_keys_of_other_types_are_refused(key):
    with pytest.raises(TypeError, match="keys must be str or int"):
        _reverie.flatten({key: 1})


@pytest.mark.parametrize("nest", [{"a": {"b": 1}, "a/b": 2}, {0: 1, "0": 2}])
def test_two_leaves_with_the_same_path_are_refused(nest):
    with pytest.raises(ValueError, match="two leaves of the nest have the path"):
        _reverie.flatten(nest)


def test_a_nest_that_contains_itself_is_refused():
    nest = {}
    nest["self"] = nest
    with pytest.raises(reverie.errors.InvalidArgumentError, match="lies within itself"):
        _reverie.flatten(nest)


def test_a_key_that_is_not_valid_text_is_refused():
    with pytest.raises(reverie.errors.InvalidArgumentError, match=r"'\\ud800'; it must be text"):
        _reverie.flatten({"\ud800": 1})


def test_an_integer_key_too_long_to_print_is_refused():
    with pytest.raises(reverie.errors.InvalidArgumentError, match="more digits than Python"):
        _reverie.flatten({10**5000: 1.0})


def test_a_leaf_that_changes_its_nest_while_it_is_read_is_harmless(client):
    class Vicious:
        def __array__(self, dtype=None, copy=None):
            step.clear()
            return np.ones(1000)

    step = {"a": Vicious(), "b": np.full(1000, 2.0)}
    client.insert(step, {"t": 1.0})
    assert step == {}
    np.testing.assert_array_equal(client.sample_batch("t", 1).data["b"][0, 0], np.full(1000, 2.0))


def test_a_step_that_appends_to_its_own_writer_is_refused(client):
    class Recursive:
        def __array__(self, dtype=None, copy=None):
            writer.append({"a": 1.0})
            return np.ones(1)

    writer = client.trajectory_writer(num_keep_alive_refs=1)
    with pytest.raises(TypeError, match="in use by another call"):
        writer.append({"a": Recursive()})
    writer.append({"a": 1.0})
    writer.close()


def test_nests_up_to_depth_100_round_trip_and_deeper_ones_are_refused(client):
    def nest_of(depth):
        nest = np.ones(2)
        for level in range(depth):
            nest = ({"a": nest}, [nest], (nest,))[level % 3]
        return nest

    client.insert(nest_of(100), {"t": 1.0})
    data = client.sample_batch("t", 1).data
    assert paths_of(data) == paths_of(nest_of(100))
    for depth in (101, 250, 100_000):
        with pytest.raises(reverie.errors.InvalidArgumentError, match="more than 100 deep"):
            client.insert(nest_of(depth), {"t": 1.0})


def test_integer_keys_with_a_custom_order_are_sorted_as_numbers():
    class Key(int):
        """A key whose own order puts it before every other key."""

        def __lt__(self, other):
            return True

        def __gt__(self, other):
            return True

        __hash__ = int.__hash__

    nest = {Key(i): np.float32(i) for i in range(500)}
    assert paths_of(nest) == [str(i) for i in range(500)]
    assert paths_of({**nest, "a": 1.0})[:2] == ["0", "1"]


def test_a_nest_may_be_built_while_one_of_its_classes_registers_others():
    numbers = iter(range(10**6))

    def register(self, value):
        seen = collections.namedtuple(f"Seen{next(numbers)}", ["x"])
        _, leaves, text = _reverie.flatten(seen(value))
        assert isinstance(_reverie.fold(text, leaves), seen)
        vars(self)["kept"] = value

    @dataclasses.dataclass
    class Registering:
        first: Any = None
        second: Any = None
        third: Any = None

    Registering.first = property(lambda self: vars(self)["kept"], register)
    _, leaves, text = _reverie.flatten([Registering(i, i + 1, i + 2) for i in range(100)])
    for _ in range(10):
        built = [dataclasses.astuple(part) for part in _reverie.fold(text, leaves)]
        assert built == [(i, i + 1, i + 2) for i in range(100)]


def test_nests_may_be_read_when_a_class_goes_since_its_kind_was_forgotten():
    class Alone(type):
        """Makes classes that go with the last reference: they are not in their own order."""

        def mro(cls):
            return [base for base in super().mro() if base is not cls or "alone" not in vars(cls)]

    class Base:
        __slots__ = ()

    class Other:
        __slots__ = ()

    class Kept:
        pass

    def read_other_classes(count):
        for _ in range(count):
            _reverie.flatten([type("New", (), {})()])

    references = sys.getrefcount(Kept)
    lone = Alone("Lone", (Base,), {"__slots__": ()})
    lone.alone = True
    lone.__bases__ = (Other,)  # its order is made again
    watch = weakref.ref(lone, lambda _: read_other_classes(1))
    _reverie.flatten([Kept(), lone()])
    del lone
    read_other_classes(300)  # more than are known at a time
    gc.collect()
    assert watch() is None
    assert sys.getrefcount(Kept) == references


def changing(kind, change):
    """A mapping or a dataclass that runs code while the nest around it is read."""
    kept = []

    def read():
        change()
        # Reuses the memory that was freed.
        kept[:] = [np.zeros(count) for count in (10_000, 5_000) for _ in range(20)]
        return 1.0

    if kind == "dataclass":

        @dataclasses.dataclass
        class Changing:
            field: Any = None

        Changing.field = property(lambda _: read(), lambda _self, _value: None)
        return Changing()

    class Mapping(collections.abc.Mapping):
        def __getitem__(self, key):
            return read()

        def __iter__(self):
            return iter("x")

        def __len__(self):
            return 1

    return Mapping()


def nests_that_change(kind):
    """Nests of ones and sevens, which lose values that were read or are about to be read."""
    nest = {"a": np.full(10_000, 7.0)}
    nest["z"] = changing(kind, lambda: nest.update(a=None))
    yield nest
    numbers = iter(range(10**6))
    grown = {"a": np.full(10_000, 7.0)}
    grown["z"] = changing(kind, lambda: grown.update({f"more {next(numbers)}": 1.0}))
    grown["zz"] = 1.0
    yield grown
    rows = [np.full(5_000, 7.0)]
    rows += [changing(kind, lambda: rows.__delitem__(slice(2, None))), *[1.0] * 20]
    yield {"a": rows}
    inner = {}
    columns = [np.full(10_000, 7.0), changing(kind, inner.clear), 1.0, np.full(5_000, 7.0)]
    inner["a"] = {"b": columns}
    del columns
    yield inner


@pytest.mark.parametrize("kind", ["mapping", "dataclass"])
@pytest.mark.parametrize("way", ["insert", "append", "add", "stack"])
def test_a_nest_that_changes_while_it_is_read_is_stored_whole_or_refused(client, way, kind):
    stored = []

    def append(writer, nest):
        writer.append(nest)
        whole = _reverie.flatten(writer.history)
        stored.extend(c[-1].numpy() for c in whole[1] if isinstance(c, reverie.ColumnHistory))

    def appender():
        writer = client.trajectory_writer(2)
        return lambda nest: append(writer, nest)

    def adder():
        buffer = reverie.ReplayBuffer(10)

        def add(nest):
            buffer.add(nest, 0, 0.0, nest, False)
            stored.extend(_reverie.flatten(buffer.sample(1)["obs"])[1])

        return add

    def stacker():
        batcher = reverie.Batcher(1)

        def stack(nest):
            batcher.stack(nest)
            leaves = _reverie.flatten(batcher.get())[1]
            stored.extend(leaf for leaf in leaves if leaf is not None)  # None stays in a batch

        return stack

    def inserter():
        def insert(nest):
            client.insert(nest, {"t": 1.0})
            stored.extend(_reverie.flatten(client.sample_batch("t", 1).data)[1])

        return insert

    make = {"insert": inserter, "append": appender, "add": adder, "stack": stacker}[way]
    for nest in nests_that_change(kind):
        give = make()
        with contextlib.suppress(reverie.ReverieError):
            give(nest)
        # A second time, when the structure of the nest is known.
        with contextlib.suppress(reverie.ReverieError):
            give(nest)
    assert stored
    for leaf in stored:
        assert set(np.unique(leaf)) in ({1.0}, {7.0})
