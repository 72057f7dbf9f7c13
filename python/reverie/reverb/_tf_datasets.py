"""What Reverb's two datasets of samples have in common: a ``tf.data.Dataset`` of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reverie.reverb._specs import tensorflow
from reverie.tf_dataset import tf_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reverie.sample_datasets import SampleDataset

# Whose specifications are looked at before the address is known.
_NOWHERE = "localhost:1"


class Kind(type):
    """Of classes whose objects are datasets of TensorFlow's own classes."""

    def __instancecheck__(cls, instance: object) -> bool:
        return getattr(instance, "_reverb_kind", None) is cls


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
        return _marked(kind(server_address, table, **kwargs).as_tf(), shown_as)
    shown = kind(_NOWHERE, "any", **kwargs)  # checks the arguments

    def draw(poll_s: float, address: bytes, name: bytes) -> Iterator[Any]:
        samples = kind(address.decode(), name.decode(), **kwargs)
        return samples._batches(samples._open(), poll_s)

    made = tf_dataset(shown._specs, shown._structure, draw, (server_address, table))
    return _marked(made, shown_as)


def _marked(made: Any, shown_as: Kind) -> Any:  # noqa: ANN401
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
        kind: of samples.
        server_address: of the server.
        table: its name.
        args: of ``kind.from_table_signature``.
        kwargs: as ``args``.
    """
    made = kind.from_table_signature(server_address, table, **kwargs)
    return _marked(made.as_tf(), shown_as)
