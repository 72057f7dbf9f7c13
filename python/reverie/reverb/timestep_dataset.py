"""``reverie.TimestepDataset`` as Reverb has it: a ``tf.data.Dataset``."""

from typing import Any

import reverie


class TimestepDataset:
    """A ``tf.data.Dataset`` over what ``reverie.TimestepDataset`` iterates over.

    Takes its arguments; imports TensorFlow.

    Raises:
        MissingPackageError: TensorFlow is not installed.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The dataset, which is no instance of this class."""
        return reverie.TimestepDataset(*args, **kwargs).as_tf()

    @classmethod
    def from_table_signature(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The same, with the dtypes and shapes of the table's signature."""
        return reverie.TimestepDataset.from_table_signature(*args, **kwargs).as_tf()
