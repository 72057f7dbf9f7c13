"""Specifications of tensors with the questions that TensorFlow's answer.

Where TensorFlow is loaded, a signature is shown in its own ``tf.TensorSpec``. Where it is not, a
program that asks ``spec.shape.rank`` or ``spec.dtype.as_numpy_dtype`` finds it here.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from reverie import _reverie
from reverie.errors import InvalidArgumentError
from reverie.specs import TensorSpec as PlainSpec
from reverie.specs import leaf_spec

_TEXT = ("bytes", "str")


class TensorShape(tuple[int | None, ...]):
    """Extents, outermost first; None where any will do."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        """How many extents there are."""
        return len(self)

    ndims = rank

    @property
    def dims(self) -> list[int | None]:
        """The extents."""
        return list(self)

    def as_list(self) -> list[int | None]:
        """The extents."""
        return list(self)

    def is_fully_defined(self) -> bool:
        """Whether every extent is known."""
        return None not in self

    def num_elements(self) -> int | None:
        """Their product; None where one is unknown."""
        return int(np.prod(np.array(self, np.int64))) if self.is_fully_defined() else None

    def is_compatible_with(self, other: Any) -> bool:  # noqa: ANN401
        """Whether an array could have both shapes."""
        extents = _extents(other)
        return len(extents) == len(self) and all(
            a is None or b is None or a == b for a, b in zip(self, extents, strict=True)
        )

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:  # noqa: ANN401
        """The shape with None wherever the two differ."""
        extents = _extents(other)
        if len(extents) != len(self):
            raise InvalidArgumentError(f"{self} and {extents} differ in rank; no shape has both")
        return TensorShape(a if a == b else None for a, b in zip(self, extents, strict=True))

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        part = super().__getitem__(key)
        return TensorShape(part) if isinstance(key, slice) else part

    def __repr__(self) -> str:
        return f"TensorShape({list(self)})"


class DType:
    """An element type, equal to NumPy's, TensorFlow's and the name of the same."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """``"float32"``; ``"string"`` for text."""
        return "string" if self._name in _TEXT else self._name

    @property
    def as_numpy_dtype(self) -> Any:  # noqa: ANN401
        """NumPy's class of the elements; ``object`` for text."""
        return np.object_ if self._name in _TEXT else _reverie.numpy_dtype(self._name).type

    @property
    def is_integer(self) -> bool:
        """Whether the elements are whole numbers, with a sign or without."""
        return np.issubdtype(self.as_numpy_dtype, np.integer)

    @property
    def is_floating(self) -> bool:
        """Whether the elements are floating point numbers."""
        return "float" in self._name

    @property
    def is_bool(self) -> bool:
        """Whether the elements are booleans."""
        return self._name == "bool"

    def is_compatible_with(self, other: object) -> bool:
        """Whether it is the same type."""
        return self == other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.name == other.name
        if isinstance(other, str):
            return other == self.name
        if other is None:  # which NumPy takes for float64
            return False
        try:
            kind = np.dtype(getattr(other, "as_numpy_dtype", other))  # type: ignore[call-overload]
        except (TypeError, ValueError):
            return NotImplemented
        if self._name in _TEXT:
            return bool(kind.kind in "OSU")
        return bool(kind == _reverie.numpy_dtype(self._name))

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"dtype {self.name}"


class TensorSpec(PlainSpec):
    """A ``reverie.TensorSpec`` that can be asked what ``tf.TensorSpec`` can be asked."""

    __slots__ = ()

    @property
    def shape(self) -> TensorShape:
        """Extents, outermost first; None where any will do."""
        return TensorShape(super().shape)

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The element type."""
        return DType(self.dtype_name)

    def is_compatible_with(self, spec_or_value: Any) -> bool:  # noqa: ANN401
        """Whether an array, or what another specification describes, fits this one."""
        shape, dtype = getattr(spec_or_value, "shape", None), getattr(spec_or_value, "dtype", None)
        if shape is None or dtype is None:
            array = np.asarray(spec_or_value)
            shape, dtype = array.shape, array.dtype
        return self.dtype == dtype and self.shape.is_compatible_with(shape)

    def most_specific_compatible_type(self, other: PlainSpec) -> TensorSpec:
        """A specification of everything that either describes.

        Raises:
            InvalidArgumentError: they differ in dtype or rank.
        """
        if self.dtype_name != other.dtype_name:
            raise InvalidArgumentError(f"{self} and {other} differ in dtype; no type has both")
        shape = self.shape.most_specific_compatible_shape(other.shape)
        return TensorSpec(shape, self.dtype_name)


def tensorflow() -> Any:  # noqa: ANN401
    """TensorFlow, if the program has imported it; else None."""
    loaded = sys.modules.get("tensorflow")
    # One that is being imported has no TensorSpec yet.
    return loaded if hasattr(loaded, "TensorSpec") else None


def shown_spec(path: str, leaf: Any) -> Any:  # noqa: ANN401
    """A specification as Reverb shows it: TensorFlow's if it is loaded."""
    tf = tensorflow()
    if tf is not None and isinstance(leaf, tf.TensorSpec):
        return leaf
    spec = leaf_spec(path, leaf)
    if tf is not None:
        dtype = tf.string if spec.dtype_name in _TEXT else spec.dtype_name
        return tf.TensorSpec(tuple(spec.shape), dtype, spec.name)
    return TensorSpec(spec.shape, spec.dtype_name, spec.name)


def shown_signature(signature: Any) -> Any:  # noqa: ANN401
    """A nest of specifications as Reverb shows it."""
    if signature is None:
        return None
    paths, leaves, structure = _reverie.flatten(signature)
    shown = [shown_spec(path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
    return _reverie.fold(structure, shown)


def signature_message(signature: Any) -> bytes:  # noqa: ANN401
    """The signature as TensorFlow writes it, with names and bounds; empty where it cannot."""
    coder = _coder()
    if coder is None or signature is None:
        return b""
    try:
        return bytes(coder.encode_structure(signature).SerializeToString())
    except Exception:  # a specification of ours, or a container that TensorFlow does not know
        return b""


def decoded_signature(message: bytes) -> Any:  # noqa: ANN401
    """What ``signature_message`` or dm-reverb wrote; None where TensorFlow cannot read it."""
    coder = _coder()
    if coder is None or not message:
        return None
    from tensorflow.core.protobuf import struct_pb2

    try:
        return coder.decode_proto(struct_pb2.StructuredValue.FromString(message))
    except Exception:  # what the library made of the message is shown instead
        return None


def _coder() -> Any:  # noqa: ANN401
    if tensorflow() is None:
        return None
    try:
        from tensorflow.python.saved_model import nested_structure_coder
    except ImportError:
        return None
    return nested_structure_coder


def is_spec(leaf: object) -> bool:
    """Whether it is a specification of a tensor, of ours or TensorFlow's."""
    if isinstance(leaf, PlainSpec):
        return True
    tf = tensorflow()
    return tf is not None and isinstance(leaf, tf.TensorSpec)


def _extents(shape: Any) -> tuple[int | None, ...]:  # noqa: ANN401
    return tuple(getattr(extent, "value", extent) for extent in shape)
