"""Reverb's client for programs whose steps are TensorFlow's tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reverie import errors
from reverie.errors import InvalidArgumentError, NotFoundError, ReverieError
from reverie.packages import import_package
from reverie.replay_sample import INFO_DTYPES, ReplaySample, SampleInfo
from reverie.reverb.client import Client
from reverie.reverb.errors import DeadlineExceededError
from reverie.tf_dataset import missing_file, raise_not_found

_TF_NAMES: dict[type, str] = {
    errors.CancelledError: "CancelledError",
    errors.InvalidArgumentError: "InvalidArgumentError",
    errors.UnsupportedTypeError: "InvalidArgumentError",
    errors.DeadlineExceededError: "DeadlineExceededError",
    DeadlineExceededError: "DeadlineExceededError",
    errors.NotFoundError: "NotFoundError",
    errors.ResourceExhaustedError: "ResourceExhaustedError",
    errors.FailedPreconditionError: "FailedPreconditionError",
    errors.OutOfRangeError: "OutOfRangeError",
    errors.UnimplementedError: "UnimplementedError",
    errors.InternalError: "InternalError",
    errors.UnavailableError: "UnavailableError",
    errors.DataLossError: "DataLossError",
}


class TFClient:
    """Calls of a client that work in eager mode and in graphs; imports TensorFlow.

    In a graph they run as Python functions, so a graph cannot be saved with them. Errors are
    TensorFlow's: of the class of their code in eager mode. A graph knows few codes of Python
    functions: there they are ``InvalidArgumentError``, ``NotFoundError``, ``UnimplementedError``
    or else ``UnknownError``.

    Args:
        server_address: a server's address.
        shared_name: means nothing.
        name: the name of the operations.
    """

    def __init__(
        self, server_address: str, shared_name: str | None = None, name: str = "reverb"
    ) -> None:
        del shared_name
        self._tf = import_package("tensorflow")
        self._client = Client(server_address)
        self._name = name

    @property
    def server_address(self) -> str | None:
        """Where the server is."""
        return self._client.server_address

    def _call(
        self, function: Callable[..., list[Any]], inputs: list[Any], dtypes: list[Any], name: str
    ) -> Any:  # noqa: ANN401
        """The tensors that a Python function gives, at once or when a graph runs."""
        tf = self._tf
        if tf.executing_eagerly():
            try:
                given = tf.numpy_function(function, inputs, dtypes, name=name)
                return given if dtypes else None
            except ReverieError as error:
                kind = _TF_NAMES.get(type(error), "UnknownError")
                raise getattr(tf.errors, kind)(None, None, str(error)) from error

        def sampled(*arrays: Any) -> list[Any]:  # noqa: ANN401
            try:
                return [b"", *function(*arrays)]
            except NotFoundError as error:
                nothing = [
                    b"" if dtype == tf.string else dtype.as_numpy_dtype() for dtype in dtypes
                ]
                return [missing_file(error).encode(), *nothing]

        missing, *given = tf.numpy_function(sampled, inputs, [tf.string, *dtypes], name=name)
        missing.set_shape(())

        def fail() -> Any:  # noqa: ANN401
            size = tf.strings.length(raise_not_found(missing))
            # Not reached, but has an effect: a graph keeps no operation that has none.
            with tf.control_dependencies([tf.debugging.Assert(size < 0, [missing])]):
                return tf.constant(False)

        found = tf.cond(tf.equal(missing, b""), lambda: tf.constant(True), fail)
        with tf.control_dependencies([found]):
            return [tf.identity(tensor) for tensor in given] if given else tf.no_op()

    def sample(self, table: str, data_dtypes: Any, name: str | None = None) -> ReplaySample:  # noqa: ANN401
        """Draws an item and gives the first of its steps.

        Args:
            table: its name.
            data_dtypes: a nest of the dtypes of its columns.
            name: the name of the operation.
        """
        tf = self._tf
        dtypes = [tf.as_dtype(dtype) for dtype in tf.nest.flatten(data_dtypes)]

        def draw(table: Any) -> list[Any]:  # noqa: ANN401
            step = next(self._client.sample(_text(table)))[0]
            if len(step.data) != len(dtypes):
                raise InvalidArgumentError(
                    f"data_dtypes has {len(dtypes)} leaves, but an item of table '{table}' has "
                    f"{len(step.data)} columns"
                )
            columns = [np.asarray(column) for column in step.data]
            for i, (column, dtype) in enumerate(zip(columns, dtypes, strict=True)):
                is_text = column.dtype.kind in "OSU"
                if (tf.string if is_text else tf.as_dtype(column.dtype)) != dtype:
                    raise InvalidArgumentError(
                        f"data_dtypes has {dtype.name} for column {i}, but an item of table "
                        f"'{table}' has {column.dtype}"
                    )
            info = [np.asarray(x, d) for x, d in zip(step.info, INFO_DTYPES, strict=True)]
            return info + columns

        info_dtypes = [*map(tf.as_dtype, INFO_DTYPES)]
        flat = self._call(draw, [table], info_dtypes + dtypes, name or f"{self._name}_sample")
        for scalar in flat[: len(INFO_DTYPES)]:
            scalar.set_shape(())
        data = tf.nest.pack_sequence_as(data_dtypes, flat[len(INFO_DTYPES) :])
        return ReplaySample(SampleInfo(*flat[: len(INFO_DTYPES)]), data)

    def insert(
        self,
        data: Sequence[Any],
        tables: Any,  # noqa: ANN401
        priorities: Any,  # noqa: ANN401
        name: str | None = None,
    ) -> Any:  # noqa: ANN401
        """Inserts one step, as an item of its own in each table.

        Args:
            data: the tensors of the step.
            tables: their names, a string tensor of rank 1; nothing is inserted if it is empty.
            priorities: one for each table, a float64 tensor of rank 1.
            name: the name of the operation.

        Raises:
            ValueError: ``tables`` or ``priorities`` is another tensor, or their shapes differ.
        """
        tf = self._tf
        tables, priorities = tf.convert_to_tensor(tables), tf.convert_to_tensor(priorities)
        for argument, tensor, dtype in (
            ("tables", tables, tf.string),
            ("priorities", priorities, tf.float64),
        ):
            if tensor.dtype != dtype or tensor.shape.rank != 1:
                raise InvalidArgumentError(
                    f"{argument} is {tensor.dtype.name} {tensor.shape}; it must be a {dtype.name} "
                    "tensor of rank 1"
                )
        if not tables.shape.is_compatible_with(priorities.shape):
            raise InvalidArgumentError(
                f"tables has shape {tables.shape} and priorities {priorities.shape}; give one each"
            )

        def put(tables: Any, priorities: Any, *step: Any) -> list[Any]:  # noqa: ANN401
            # A table named twice gets two items, so its second one needs another insert.
            inserts: list[dict[str, float]] = []
            for table, priority in zip(map(bytes.decode, tables), priorities, strict=True):
                free = next((one for one in inserts if table not in one), None)
                if free is None:
                    inserts.append(free := {})
                free[table] = float(priority)
            try:
                for by_table in inserts:
                    self._client.insert(list(step), by_table)
            except NotFoundError as error:  # as Reverb's, which looks for the table's signature
                raise InvalidArgumentError(str(error)) from error
            return []

        return self._call(put, [tables, priorities, *data], [], name or f"{self._name}_insert")

    def update_priorities(
        self,
        table: str,
        keys: Any,  # noqa: ANN401
        priorities: Any,  # noqa: ANN401
        name: str | None = None,
    ) -> Any:  # noqa: ANN401
        """Gives items new priorities; keys that are gone are ignored.

        Args:
            table: its name.
            keys: the items' keys, a uint64 tensor of rank 1.
            priorities: one for each, a float64 tensor.
            name: the name of the operation.

        Raises:
            ValueError: ``keys`` or ``priorities`` is a tensor of another type.
        """
        tf = self._tf
        keys = tf.convert_to_tensor(keys, tf.uint64)
        priorities = tf.convert_to_tensor(priorities, tf.float64)

        def update(table: Any, keys: Any, priorities: Any) -> list[Any]:  # noqa: ANN401
            self._client.update_priorities(_text(table), priorities=priorities, keys=keys)
            return []

        name = name or f"{self._name}_update_priorities"
        return self._call(update, [table, keys, priorities], [], name)


def _text(value: Any) -> str:  # noqa: ANN401
    """A name that may have come as a tensor."""
    value = getattr(value, "item", lambda: value)()
    return value.decode() if isinstance(value, bytes) else str(value)
