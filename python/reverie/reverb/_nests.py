"""Nests as the message ``tensorflow.StructuredValue``, which Reverb keeps them in."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

from reverie.errors import UnsupportedTypeError
from reverie.reverb._messages import message_class
from reverie.reverb._specs import TensorSpec
from reverie.specs import TensorSpec as PlainSpec
from reverie.specs import leaf_spec

# TensorFlow's numbers of the element types.
_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "bytes",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
}
_NUMBERS = {name: number for number, name in _DTYPES.items()} | {"str": 7}


def encode_nest(nest: Any) -> Any:  # noqa: ANN401
    """A nest of specifications, numbers, texts and None as a ``StructuredValue``.

    Raises:
        UnsupportedTypeError: a leaf is of another type.
    """
    value = message_class("tensorflow.StructuredValue")()
    _encode(nest, value)
    return value


def _encode(nest: Any, value: Any) -> None:  # noqa: ANN401
    if nest is None:
        value.none_value.SetInParent()
    elif isinstance(nest, bool):
        value.bool_value = nest
    elif isinstance(nest, int):
        value.int64_value = nest
    elif isinstance(nest, float):
        value.float64_value = nest
    elif isinstance(nest, str):
        value.string_value = nest
    elif isinstance(nest, Mapping):
        value.dict_value.SetInParent()
        for key, part in nest.items():
            _encode(part, value.dict_value.fields[key])
    elif isinstance(nest, tuple) and hasattr(nest, "_fields"):
        value.named_tuple_value.name = type(nest).__name__
        for key, part in zip(nest._fields, nest, strict=True):
            pair = value.named_tuple_value.values.add(key=key)
            _encode(part, pair.value)
    elif isinstance(nest, (list, tuple)):
        parts = value.list_value if isinstance(nest, list) else value.tuple_value
        parts.SetInParent()
        for part in nest:
            _encode(part, parts.values.add())
    else:
        _encode_spec(nest, value.tensor_spec_value)


def _encode_spec(leaf: Any, proto: Any) -> None:  # noqa: ANN401
    spec = leaf_spec("", leaf)
    if spec.dtype_name not in _NUMBERS:
        raise UnsupportedTypeError(f"TensorFlow has no number for {spec.dtype_name}")
    proto.dtype = _NUMBERS[spec.dtype_name]
    proto.name = spec.name or ""
    proto.shape.SetInParent()
    for extent in spec.shape:
        proto.shape.dim.add(size=-1 if extent is None else extent)


def decode_nest(value: Any) -> Any:  # noqa: ANN401
    """The nest that a ``StructuredValue`` holds, of ours or TensorFlow's own.

    Raises:
        UnsupportedTypeError: it holds something that no signature has.
    """
    kind = value.WhichOneof("kind")
    if kind not in _DECODERS:
        raise UnsupportedTypeError(f"a StructuredValue holds {kind}, which is not part of a nest")
    return _DECODERS[kind](getattr(value, kind))


def _named_tuple(proto: Any) -> Any:  # noqa: ANN401
    made = collections.namedtuple(proto.name, [pair.key for pair in proto.values])  # type: ignore[misc]
    return made(*(decode_nest(pair.value) for pair in proto.values))


def _spec(proto: Any) -> PlainSpec:  # noqa: ANN401
    if proto.dtype not in _DTYPES:
        raise UnsupportedTypeError(f"TensorFlow's dtype {proto.dtype} cannot be stored")
    shape = [None if dim.size < 0 else dim.size for dim in proto.shape.dim]
    return TensorSpec(shape, _DTYPES[proto.dtype], proto.name or None)


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


_DECODERS: dict[str | None, Callable[[Any], Any]] = {
    "none_value": lambda _: None,
    "float64_value": _same,
    "int64_value": _same,
    "string_value": _same,
    "bool_value": _same,
    "tensor_spec_value": _spec,
    "bounded_tensor_spec_value": _spec,
    "list_value": lambda proto: [decode_nest(part) for part in proto.values],
    "tuple_value": lambda proto: tuple(decode_nest(part) for part in proto.values),
    "dict_value": lambda proto: {
        key: decode_nest(proto.fields[key]) for key in sorted(proto.fields)
    },
    "named_tuple_value": _named_tuple,
}
