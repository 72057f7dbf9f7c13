"""Datasets of sampled items as tf.data. TensorFlow is imported when one is made, not before."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from reverie import _reverie
from reverie.errors import NotFoundError
from reverie.packages import import_package
from reverie.replay_sample import INFO_DTYPES, ReplaySample, SampleInfo
from reverie.specs import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Batch = tuple[list[np.ndarray], list[np.ndarray]]  # what SampleInfo has, and the columns

# Rows of elements of this size are returned as views of their batch.
_SLICED_BYTES = 32 * 1024
_POLL_S = 0.1
_FILE_NAME_BYTES_MAX = 250  # a longer one is another error


def tf_dataset(
    specs: list[TensorSpec],
    structure: Any,  # noqa: ANN401
    draw: Callable[..., Iterator[Batch | None]],
    arguments: tuple[Any, ...] = (),
) -> Any:  # noqa: ANN401
    """A ``tf.data.Dataset`` of elements of ``specs``, in the nest of ``structure``.

    ``draw(poll_s, *arguments)`` begins to draw; None comes where nothing did for so long. Arguments
    that are tensors come as arrays, of the time when an iterator begins. Elements cross the
    border by the batch: what is drawn at once and is alike is one array a column, which TensorFlow
    takes over without a copy, and takes apart itself.
    """
    tf = import_package("tensorflow")
    info = SampleInfo(*(tf.TensorSpec((None,), dtype) for dtype in INFO_DTYPES))
    columns = [tf_spec(TensorSpec((None, *spec.shape), spec.dtype_name)) for spec in specs]
    signature = ReplaySample(info, tuples(_reverie.fold(structure, columns)))

    # TensorFlow looks whether anybody still wants elements when it gets some, be they none.
    empty = (
        [np.empty(0, dtype) for dtype in INFO_DTYPES],
        [_empty_array(spec) for spec in specs],
    )

    # TensorFlow knows few codes of Python functions, and NOT_FOUND is none of them. So the batches
    # of an iterator end, and a second dataset behind them raises what is kept here.
    numbers = itertools.count()
    untold: dict[int, str] = {}

    def batches(number: Any, *arguments: Any) -> Iterator[ReplaySample]:  # noqa: ANN401
        try:
            for batch in draw(_POLL_S, *arguments):
                infos, arrays = empty if batch is None else batch
                data = tuples(_reverie.fold(structure, arrays))
                yield ReplaySample(SampleInfo(*infos), data)
        except NotFoundError as error:
            untold[int(number)] = missing_file(error)

    def errors(number: Any) -> Iterator[str]:  # noqa: ANN401
        text = untold.pop(int(number), None)
        if text is not None:
            yield text

    def raised(text: Any) -> Any:  # noqa: ANN401
        rows = tf.strings.length(raise_not_found(text))
        return tf.nest.map_structure(
            lambda spec: tf.zeros([rows, *(extent or 0 for extent in spec.shape[1:])], spec.dtype),
            signature,
        )

    def iterator_of(number: Any) -> Any:  # noqa: ANN401
        drawn = tf.data.Dataset.from_generator(
            batches, output_signature=signature, args=(number, *arguments)
        )
        generated = tf.data.Dataset.from_generator(
            errors, output_signature=tf.TensorSpec((), tf.string), args=(number,)
        )
        return drawn.concatenate(generated.map(as_is(raised)))

    as_is = tf.autograph.experimental.do_not_convert
    number_of = as_is(lambda _: tf.numpy_function(lambda: np.int64(next(numbers)), [], tf.int64))
    made = tf.data.Dataset.from_tensors(0).map(number_of).flat_map(as_is(iterator_of))
    if _row_bytes(specs) < _SLICED_BYTES:
        return made.unbatch()
    return made.flat_map(tf.data.Dataset.from_tensor_slices)


def missing_file(error: NotFoundError) -> str:
    """The text of an error, for ``raise_not_found``."""
    name = str(error).replace("/", "|").encode()[:_FILE_NAME_BYTES_MAX]
    return name.decode(errors="ignore")


def raise_not_found(missing_file: Any) -> Any:  # noqa: ANN401
    """An operation that fails with ``tf.errors.NotFoundError``, which has the tensor's text.

    No operation of TensorFlow's fails with a code of choice. One that reads a file that is not
    there fails with this one, and names the file.
    """
    return import_package("tensorflow").io.read_file(missing_file)


def tf_spec(spec: TensorSpec) -> Any:  # noqa: ANN401
    """The same as TensorFlow has it."""
    tf = import_package("tensorflow")
    is_text = spec.dtype_name in ("bytes", "str")
    return tf.TensorSpec(spec.shape, tf.string if is_text else spec.dtype_name)


def tuples(nest: Any, convert: Callable[[Any], Any] = lambda leaf: leaf) -> Any:  # noqa: ANN401
    """The nest with tuples for lists, which tf.data takes for tensors, and converted leaves."""
    if isinstance(nest, dict):
        return {key: tuples(value, convert) for key, value in nest.items()}
    if isinstance(nest, (list, tuple)):
        values = [tuples(value, convert) for value in nest]
        return type(nest)(*values) if hasattr(nest, "_fields") else tuple(values)
    return convert(nest)


def _empty_array(spec: TensorSpec) -> np.ndarray[Any, Any]:
    """An empty array with the type and shape of a column."""
    dtype = np.dtype(object) if spec.dtype_name in ("bytes", "str") else spec.dtype
    return np.empty((0, *(extent or 0 for extent in spec.shape)), dtype)


def _row_bytes(specs: list[TensorSpec]) -> int:
    """The bytes of an element as far as its shapes tell; unknown extents count as 1."""
    return sum(
        np.dtype(spec.dtype).itemsize * int(np.prod([extent or 1 for extent in spec.shape]))
        for spec in specs
        if spec.dtype_name not in ("bytes", "str")
    )
