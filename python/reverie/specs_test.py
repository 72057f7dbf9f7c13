"""Signatures from all the objects with which users specify arrays."""

import collections

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie import TensorSpec, specs


class FakeTensorFlowDType:
    """Like TensorFlow's dtype, which is not NumPy's but names one."""

    def __init__(self, numpy_type):
        self.as_numpy_dtype = numpy_type


class FakeTensorFlowSpec:
    def __init__(self, shape, numpy_type):
        self.shape = shape
        self.dtype = FakeTensorFlowDType(numpy_type)


def columns(signature):
    return specs.signature_columns(signature)[0]


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float32, "float32"),
        ("float32", "float32"),
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (np.dtype(">i2"), "int16"),
        (bytes, "bytes"),
        (str, "str"),
        (object, "bytes"),
        ("S5", "bytes"),
        ("bfloat16", "bfloat16"),
        ("float8_e5m2", "float8_e5m2"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (torch.float32, "float32"),
        (torch.bool, "bool"),
        (torch.bfloat16, "bfloat16"),
        (FakeTensorFlowDType(np.uint8), "uint8"),
        (FakeTensorFlowDType(object), "bytes"),
    ],
)
def test_every_spelling_of_a_dtype_gives_one_name(dtype, name):
    assert TensorSpec((), dtype).dtype_name == name


@pytest.mark.parametrize("name", [*specs._STORED, "bytes", "str"])
def test_every_dtype_name_round_trips(name):
    spec = TensorSpec((), name)
    assert TensorSpec((), spec.dtype) == spec


def test_none_and_minus_one_in_a_shape_mean_any_length():
    spec = TensorSpec([None, 3, -1, np.int64(4)], "float32", name="obs")
    assert spec.shape == (None, 3, None, 4)
    assert spec.name == "obs"
    assert repr(spec) == "TensorSpec(shape=(None, 3, None, 4), dtype='float32', name='obs')"
    assert TensorSpec(5, "float32").shape == (5,)
    assert spec == TensorSpec((None, 3, None, 4), np.float32)
    assert hash(spec) == hash(TensorSpec((None, 3, None, 4), np.float32))
    assert spec != TensorSpec((None, 3, None, 5), np.float32)


@pytest.mark.parametrize(
    ("leaf", "column"),
    [
        (TensorSpec([None, 2], np.int8), ("", "int8", [-1, 2])),
        (jax.ShapeDtypeStruct((3,), np.float32), ("", "float32", [3])),
        (np.zeros((2, 3), np.uint8), ("", "uint8", [2, 3])),
        (np.dtype("int16"), ("", "int16", [])),
        (np.float16, ("", "float16", [])),
        (torch.zeros(2), ("", "float32", [2])),
        (FakeTensorFlowSpec((None, 4), np.float32), ("", "float32", [-1, 4])),
        (spaces.Box(0, 1, (2, 2)), ("", "float32", [2, 2])),
        (spaces.Discrete(5), ("", "int64", [])),
        (spaces.MultiDiscrete([2, 3]), ("", "int64", [2])),
        (spaces.MultiBinary(4), ("", "int8", [4])),
    ],
)
def test_leaves_of_any_library_are_accepted(leaf, column):
    assert columns(leaf) == [column]


def test_dict_and_tuple_spaces_nest_like_dicts_and_tuples():
    space = spaces.Dict({"hand": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (3,))])})
    assert columns({"obs": space, "reward": np.float32}) == [
        ("obs/hand/0", "int64", []),
        ("obs/hand/1", "float32", [3]),
        ("reward", "float32", []),
    ]


def test_a_signature_round_trips_as_a_nest_of_specs():
    point = collections.namedtuple("point", "x y")
    nest = {
        "b": [TensorSpec([None], "int64")],
        "a": point(TensorSpec([], str), TensorSpec([2], float)),
    }
    assert specs.signature_nest(*specs.signature_columns(nest)) == nest


@pytest.mark.parametrize("nothing", [None, {}, (), {"a": {}}])
def test_an_empty_nest_means_no_signature(nothing):
    assert specs.signature_columns(nothing) is None


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (3, ValueError),
        (None, ValueError),
        (spaces.Text(5), ValueError),
        (np.zeros(2, "M8[s]"), TypeError),
        (jax.ShapeDtypeStruct((2,), "int4"), TypeError),
    ],
)
def test_a_leaf_that_specifies_nothing_is_refused_by_its_column(leaf, kind):
    with pytest.raises(kind, match="column 'a'"):
        specs.signature_columns({"a": leaf})
