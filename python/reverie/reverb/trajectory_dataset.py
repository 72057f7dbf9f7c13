"""``reverie.TrajectoryDataset`` as Reverb has it: a ``tf.data.Dataset``."""

from typing import Any

import reverie


class TrajectoryDataset:
    """A ``tf.data.Dataset`` over what ``reverie.TrajectoryDataset`` iterates over.

    Takes its arguments; imports TensorFlow.

    Raises:
        MissingPackageError: TensorFlow is not installed.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The dataset, which is no instance of this class."""
        return reverie.TrajectoryDataset(*args, **kwargs).as_tf()

    @classmethod
    def from_table_signature(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The same, with the dtypes and shapes of the table's signature."""
        return reverie.TrajectoryDataset.from_table_signature(*args, **kwargs).as_tf()
