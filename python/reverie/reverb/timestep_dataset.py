"""``reverie.TimestepDataset`` as Reverb has it: a ``tf.data.Dataset``."""

from typing import Any

import reverie
from reverie.reverb._tf_datasets import Kind, dataset, dataset_of_signature


class TimestepDataset(metaclass=Kind):
    """A ``tf.data.Dataset`` over what ``reverie.TimestepDataset`` iterates over.

    Imports TensorFlow. The address and the table may be string tensors, so ``Dataset.interleave``
    can go over servers. See ``reverie.TimestepDataset`` for the arguments.

    Raises:
        MissingPackageError: TensorFlow is not installed.
    """

    def __new__(
        cls,
        server_address: Any,  # noqa: ANN401
        table: Any,  # noqa: ANN401
        dtypes: Any,  # noqa: ANN401
        shapes: Any,  # noqa: ANN401
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        max_samples: int = -1,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """The dataset, which ``isinstance`` takes for one of this class."""
        return dataset(
            cls,
            reverie.TimestepDataset,
            server_address,
            table,
            dtypes=dtypes,
            shapes=shapes,
            max_in_flight_samples_per_worker=max_in_flight_samples_per_worker,
            num_workers_per_iterator=num_workers_per_iterator,
            max_samples_per_stream=max_samples_per_stream,
            rate_limiter_timeout_ms=rate_limiter_timeout_ms,
            max_samples=max_samples,
            **options,
        )

    @classmethod
    def from_table_signature(
        cls,
        server_address: Any,  # noqa: ANN401
        table: str,
        max_in_flight_samples_per_worker: int,
        num_workers_per_iterator: int = -1,
        max_samples_per_stream: int = -1,
        rate_limiter_timeout_ms: int = -1,
        get_signature_timeout_secs: float | None = None,
        max_samples: int = -1,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """The same, with the dtypes and shapes of the table's signature.

        Raises:
            ValueError: there is no such table, or it has no signature.
            DeadlineExceededError: no server answered within ``get_signature_timeout_secs``.
        """
        return dataset_of_signature(
            cls,
            reverie.TimestepDataset,
            server_address,
            table,
            max_in_flight_samples_per_worker=max_in_flight_samples_per_worker,
            num_workers_per_iterator=num_workers_per_iterator,
            max_samples_per_stream=max_samples_per_stream,
            rate_limiter_timeout_ms=rate_limiter_timeout_ms,
            get_signature_timeout_secs=get_signature_timeout_secs,
            max_samples=max_samples,
            **options,
        )
