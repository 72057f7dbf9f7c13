"""External columns: rows that stay in files, named when they are inserted, read when sampled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from reverie import _checks
from reverie.errors import DataLossError, InvalidArgumentError, UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    _Native: TypeAlias = str | Callable[..., npt.NDArray[Any] | tuple[bool, str]]

_ROWS_MAX = 2**31 - 1


class External:
    """A column of ``Client.insert_rows`` whose rows are in a file: where they are, and their type.

    Args:
        file: a name that readers understand: a path below the folder that they give as ``files=``,
            or any name for their function.
        shape: ``[rows, ...]``.
        dtype: of the rows.
        offset: where the part of the file begins that contains the rows.
        size_bytes: of that part; None: the size of raw rows. Required for encoded rows, such as a
            video.

    Raises:
        InvalidArgumentError: a number is out of range, or the name is invalid.
        UnsupportedTypeError: elements of that type have no fixed size.
    """

    __slots__ = ("dtype", "file", "offset", "shape", "size_bytes")

    def __init__(
        self,
        file: str | os.PathLike[str],
        *,
        shape: Iterable[int],
        dtype: object,
        offset: int = 0,
        size_bytes: int | None = None,
    ) -> None:
        self.file = _checks.path("file", file)
        extents = tuple(_checks.items("shape", shape, "extents, such as (1000, 84, 84)"))
        if not extents:
            raise InvalidArgumentError("shape is (); its first extent is the number of rows")
        rows = _checks.integer("shape[0]", extents[0], 1, _ROWS_MAX)
        self.shape = (rows, *(_checks.integer("an extent of shape", n, 0) for n in extents[1:]))
        try:
            self.dtype = np.dtype(dtype)  # type: ignore[call-overload]
        except (TypeError, ValueError):  # a text may be no UTF-8
            raise UnsupportedTypeError(
                f"dtype is {_checks.shown(dtype)}; it must be one of NumPy's"
            ) from None
        if self.dtype.hasobject or self.dtype.kind in "SUV":
            raise UnsupportedTypeError(f"dtype is {self.dtype}; rows in files have a fixed size")
        if not self.dtype.isnative:
            raise UnsupportedTypeError(
                f"dtype is {self.dtype.str}, of the other byte order; give a function as files= "
                "that swaps it"
            )
        self.offset = _checks.integer("offset", offset, 0)
        raw = self.dtype.itemsize
        for extent in self.shape:
            raw *= extent
        self.size_bytes = (
            raw if size_bytes is None else _checks.integer("size_bytes", size_bytes, 0)
        )

    def __repr__(self) -> str:
        return (
            f"External({self.file!r}, shape={self.shape}, dtype={self.dtype}, "
            f"offset={self.offset}, size_bytes={self.size_bytes})"
        )


class ExternalRows(NamedTuple):
    """Rows that are requested from a function given as ``files=``."""

    file: str
    offset: int
    size_bytes: int
    first_row: int
    """Counted from where the file's part begins."""
    row_count: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """The shape of one row."""


Files: TypeAlias = str | os.PathLike[str] | Callable[[ExternalRows], Any]


def native_files(files: Files) -> _Native:
    """A client's ``files`` as the native client takes it: a folder, or a function.

    Raises:
        InvalidArgumentError: an empty path.
        UnsupportedTypeError: it is neither.
    """
    if not callable(files):
        folder = _checks.path("files", files)
        if not folder:
            raise InvalidArgumentError("files is empty; give the path of a folder")
        return os.path.abspath(folder)
    return _answering(files)


def _answering(
    resolve: Callable[[ExternalRows], npt.ArrayLike],
) -> Callable[..., npt.NDArray[Any] | tuple[bool, str]]:
    """The function with its errors as answers: whether the rows are missing, and why."""

    def answer(
        file: str,
        offset: int,
        size_bytes: int,
        first_row: int,
        row_count: int,
        dtype: np.dtype[Any],
        shape: Sequence[int],
    ) -> npt.NDArray[Any] | tuple[bool, str]:
        rows = ExternalRows(
            file, offset, size_bytes, first_row, row_count, np.dtype(dtype), tuple(shape)
        )
        place = (
            f"rows {first_row} to {first_row + row_count - 1} of {file!r} at offset {offset}, "
            f"{size_bytes} bytes"
        )
        try:
            given = np.asarray(resolve(rows))
        except (FileNotFoundError, DataLossError) as error:
            return True, f"{place}, are missing: {_text(error)}"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return False, f"the function of files= failed for {place}: {_text(error)}"
        wanted = (row_count, *rows.shape)
        if given.shape != wanted or given.dtype != rows.dtype:
            return False, (
                f"the function of files= gave {given.dtype} of shape {given.shape} for {place}; "
                f"it must give {rows.dtype} of shape {wanted}"
            )
        return np.ascontiguousarray(given)

    return answer


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def ranges_of(
    items: Sequence[tuple[int, int]] | npt.ArrayLike | None,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Where items begin and end; none for one item over all rows."""
    if items is None:
        return np.empty(0, np.uint32), np.empty(0, np.uint32)
    try:
        given = np.asarray(items)
    except ValueError:
        given = np.empty(0, object)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"items is {_checks.shown(items)}; it must be pairs of integers, [first row, end row]"
        )
    if len(given) == 0:
        raise InvalidArgumentError("items is empty; give the rows of at least one item")
    if (given < 0).any() or (given > _ROWS_MAX).any():
        raise InvalidArgumentError(
            f"items holds rows from {given.min()} to {given.max()}; they must be in [0, "
            f"{_ROWS_MAX}]"
        )
    return (
        np.ascontiguousarray(given[:, 0], np.uint32),
        np.ascontiguousarray(given[:, 1], np.uint32),
    )
