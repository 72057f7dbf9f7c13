"""Specifications of arrays; a nest of them is a table's signature, which its items match."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

_SMALL_FLOATS = (
    "bfloat16",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)
_STORED = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    *_SMALL_FLOATS,
)


class TensorSpec:
    """The shape and element type of an array.

    Args:
        shape: extents, outermost first; None (or -1) for any extent.
        dtype: what NumPy takes as a dtype, ``bytes`` or ``str`` for text, the name of a small float
            such as ``"bfloat16"``, or a dtype of TensorFlow or PyTorch.
        name: for readers; it is not compared.

    Raises:
        InvalidArgumentError: an extent is negative or not an integer.
        UnsupportedTypeError: arrays of that type cannot be stored.
    """

    __slots__ = ("_dtype_name", "_name", "_shape")

    def __init__(
        self, shape: Iterable[int | None] | int, dtype: object, name: str | None = None
    ) -> None:
        self._shape = _checked_shape(shape)
        self._dtype_name = _dtype_name(dtype)
        self._name = None if name is None else _checks.text("name", name)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Extents, outermost first; None for any extent."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's element type; ``S`` for bytes and ``U`` for str.

        Raises:
            MissingPackageError: the type comes from ml_dtypes, which is not installed.
        """
        return _reverie.numpy_dtype(self._dtype_name)

    @property
    def dtype_name(self) -> str:
        """The element type as messages name it, ``"float32"``."""
        return self._dtype_name

    @property
    def name(self) -> str | None:
        """The name of the specification, if it has one."""
        return self._name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorSpec):
            return NotImplemented
        return (self._shape, self._dtype_name) == (other._shape, other._dtype_name)

    def __hash__(self) -> int:
        return hash((self._shape, self._dtype_name))

    def __repr__(self) -> str:
        name = "" if self._name is None else f", name={self._name!r}"
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype_name!r}{name})"


def signature_columns(signature: object) -> tuple[list[tuple[str, str, list[int]]], str] | None:
    """A signature as the native store takes it; None if there is none.

    Args:
        signature: a nest whose leaves are ``TensorSpec``, the specifications of TensorFlow or JAX,
            NumPy arrays or dtypes, or spaces of Gymnasium. None or an empty nest: none.

    Returns:
        The columns as ``(path, dtype name, shape with -1 for any)``, and the text that folds them
        back into the nest.
    """
    if signature is None:
        return None
    paths, leaves, structure = _reverie.flatten(_expanded(signature))
    if not leaves:
        return None
    columns = []
    for path, leaf in zip(paths, leaves, strict=True):
        spec = leaf_spec(path, leaf)
        shape = [-1 if extent is None else extent for extent in spec.shape]
        columns.append((path, spec.dtype_name, shape))
    return columns, structure


def signature_nest(columns: Sequence[tuple[str, str, list[int]]], structure: str) -> Any:  # noqa: ANN401
    """The nest of ``TensorSpec`` that ``signature_columns`` took apart."""
    specs = [
        TensorSpec([None if extent < 0 else extent for extent in shape], dtype)
        for _, dtype, shape in columns
    ]
    return _reverie.fold(structure, specs)


def _checked_shape(shape: Iterable[int | None] | int) -> tuple[int | None, ...]:
    extents = (shape,) if isinstance(shape, int) else _extents(shape)
    checked: list[int | None] = []
    for extent in extents:
        extent = getattr(extent, "value", extent)  # TensorFlow 1's Dimension
        is_integer = isinstance(extent, (int, np.integer))
        if extent is None or (is_integer and extent == -1):
            checked.append(None)
        elif is_integer and extent >= 0:
            checked.append(int(extent))
        else:
            raise InvalidArgumentError(
                f"shape {_checks.shown(extents)} has the extent {_checks.shown(extent)}; give it "
                "integers >= 0, or None for any"
            )
    return tuple(checked)


def _extents(shape: object) -> tuple[Any, ...]:
    return tuple(_checks.items("shape", shape, "integers >= 0, or None for any extent"))


def _dtype_name(dtype: object) -> str:
    written = _checks.written("dtype", dtype, "one that NumPy knows")
    name = written.removeprefix("torch.")
    if name in _SMALL_FLOATS:
        return name
    if name != written:
        dtype = name
    dtype = getattr(dtype, "as_numpy_dtype", dtype)  # TensorFlow
    try:
        resolved: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise UnsupportedTypeError(
            f"dtype is {_checks.shown(dtype)}; it must be one that NumPy knows"
        ) from None
    if resolved.kind in "SO":
        return "bytes"
    if resolved.kind in "UT":
        return "str"
    if resolved.name not in _STORED:
        raise UnsupportedTypeError(
            f"arrays of dtype {resolved} cannot be stored; the types are {', '.join(_STORED)}, "
            "bytes and str"
        )
    return resolved.name


def _expanded(nest: Any) -> Any:  # noqa: ANN401
    """The same nest with Gymnasium's Dict and Tuple spaces as dicts and tuples."""
    if isinstance(nest, Mapping):
        return {key: _expanded(value) for key, value in nest.items()}
    if type(nest) in (list, tuple):
        return type(nest)(_expanded(value) for value in nest)
    if isinstance(nest, tuple):  # a named tuple
        return type(nest)(*(_expanded(value) for value in nest))
    if isinstance(getattr(nest, "spaces", None), tuple):
        return tuple(_expanded(space) for space in nest.spaces)
    return nest


def leaf_spec(path: str, leaf: Any) -> TensorSpec:  # noqa: ANN401
    """The specification of one leaf, of whichever library; ``path`` is for messages."""
    if isinstance(leaf, TensorSpec):
        return leaf
    where = f"column '{path}'" if path else "the signature"
    try:
        if isinstance(leaf, np.dtype) or (isinstance(leaf, type) and issubclass(leaf, np.generic)):
            return TensorSpec((), leaf)
        shape = getattr(leaf, "shape", None)
        dtype = getattr(leaf, "dtype", None)
        if shape is not None and dtype is not None:
            return TensorSpec(tuple(shape), dtype)
    except (InvalidArgumentError, UnsupportedTypeError) as error:
        raise type(error)(f"{where}: {error}") from None
    raise InvalidArgumentError(
        f"{where} of the signature is {_checks.shown(leaf)}; give it a TensorSpec, or anything "
        "with a shape and a dtype"
    )
