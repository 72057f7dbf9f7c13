"""What Reverb's two datasets of samples have in common: a ``tf.data.Dataset`` of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import reverie
from reverie import _reverie
from reverie.reverb._errors import in_time
from reverie.reverb._specs import decoded_signature, tensorflow
from reverie.tf_dataset import tf_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reverie.sample_datasets import SampleDataset
    from reverie.specs import TensorSpec

# Whose specifications are looked at before the address is known.
_NOWHERE = "localhost:1"


class Kind(type):
    """The metaclass of classes whose objects are datasets of TensorFlow's own classes."""

    def __instancecheck__(cls, instance: object) -> bool:
        return getattr(instance, "_reverb_kind", None) is cls


class TfDataset(metaclass=Kind):
    """A class of Reverb's whose objects are ``tf.data.Dataset``."""

    _kind: str  # the class of ``reverie`` that gives the samples

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
            getattr(reverie, cls._kind),
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
            getattr(reverie, cls._kind),
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


def dataset(
    shown_as: Kind,
    kind: type[SampleDataset],
    server_address: Any,  # noqa: ANN401
    table: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """The samples of ``kind`` as tf.data.

    ``server_address`` and ``table`` may be string tensors, of a graph too: then each iterator
    connects to where they say when it begins.
    """
    tf = tensorflow()
    if tf is None or not (tf.is_tensor(server_address) or tf.is_tensor(table)):
        return marked(kind(server_address, table, **kwargs).as_tf(), shown_as)
    shown = kind(_NOWHERE, "any", **kwargs)  # checks the arguments

    def draw(poll_s: float, address: bytes, name: bytes) -> Iterator[Any]:
        samples = kind(address.decode(), name.decode(), **kwargs)
        return samples._persistent_batches(poll_s)

    made = tf_dataset(shown._specs, shown._structure, draw, (server_address, table))
    return marked(made, shown_as)


def marked(made: Any, shown_as: Kind) -> Any:  # noqa: ANN401
    """The dataset, which ``isinstance`` takes for one of that class from now on."""
    made._reverb_kind = shown_as
    return made


def dataset_of_signature(
    shown_as: Kind,
    kind: type[SampleDataset],
    server_address: Any,  # noqa: ANN401
    table: str,
    **kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """The same, with the dtypes and shapes of the table's signature.

    Args:
        shown_as: the class that the dataset is taken for.
        kind: the class of samples.
        server_address: the server's.
        table: its name.
        kwargs: the other arguments of ``kind.from_table_signature``.
    """

    class OfSignature(kind):  # type: ignore[misc, valid-type]
        """With the containers that TensorFlow reads of the signature: named tuples too."""

        @classmethod
        def _signature(cls, table: dict[str, Any]) -> tuple[list[str], list[TensorSpec], str]:
            paths, specs, structure = super()._signature(table)
            nest = decoded_signature(table.get("signature_message", b""))
            if nest is not None:
                paths, _, structure = _reverie.flatten(nest)
            return paths, specs, structure

    made = in_time(OfSignature.from_table_signature, server_address, table, **kwargs)
    return marked(made.as_tf(), shown_as)
