"""``reverie.TrajectoryDataset`` as Reverb has it: a ``tf.data.Dataset``."""

from typing import Any

import reverie
from reverie.reverb._tf_datasets import Kind, dataset, dataset_of_signature


class TrajectoryDataset(metaclass=Kind):
    """A ``tf.data.Dataset`` over what ``reverie.TrajectoryDataset`` iterates over.

    Takes its arguments; imports TensorFlow. The address and the table may be string tensors, so
    ``Dataset.interleave`` can go over servers.

    Raises:
        MissingPackageError: TensorFlow is not installed.
    """

    def __new__(cls, server_address: Any, table: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The dataset, which ``isinstance`` takes for one of this class."""
        return dataset(cls, reverie.TrajectoryDataset, server_address, table, *args, **kwargs)

    @classmethod
    def from_table_signature(
        cls,
        server_address: str,
        table: str,
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """The same, with the dtypes and shapes of the table's signature."""
        return dataset_of_signature(
            cls, reverie.TrajectoryDataset, server_address, table, *args, **kwargs
        )
