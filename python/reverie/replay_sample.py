"""One sampled item, as Reverb hands it out."""

from typing import Any, NamedTuple

from reverie.packages import import_package

# The fields of SampleInfo.
INFO_DTYPES = ("uint64", "float64", "int64", "float64", "int32")


class SampleInfo(NamedTuple):
    """Information about a sampled item.

    Attributes:
        key: the item's key.
        probability: the probability with which it was drawn.
        table_size: items in the table, before any removal that the draw caused.
        priority: the item's priority.
        times_sampled: this draw included. Reverb's earlier releases had no such field, so programs
            written for those leave it out.
    """

    key: int
    probability: float
    table_size: int
    priority: float
    times_sampled: int = 0

    @property
    def redelivered(self) -> bool:
        """Whether an earlier draw of the item was undone because its reader went away.

        See ``Table(undo_unsent=)``.
        """
        return False

    @classmethod
    def zeros(cls) -> "SampleInfo":
        """What is known of an item that was never sampled."""
        return cls(0, 0.0, 0, 0.0, 0)

    @classmethod
    def tf_dtypes(cls) -> Any:  # noqa: ANN401
        """TensorFlow's dtypes of the fields, as a ``SampleInfo``; imports TensorFlow."""
        tf = import_package("tensorflow")
        return cls(tf.uint64, tf.double, tf.int64, tf.double, tf.int32)

    @classmethod
    def tf_shapes(cls) -> Any:  # noqa: ANN401
        """TensorFlow's shapes of the fields, as a ``SampleInfo``; imports TensorFlow."""
        shape = import_package("tensorflow").TensorShape([])
        return cls(shape, shape, shape, shape, shape)


class RedeliveredInfo(SampleInfo):
    """Information about an item of which an earlier draw was undone; see ``redelivered``."""

    __slots__ = ()

    @property
    def redelivered(self) -> bool:
        """True."""
        return True


class ReplaySample(NamedTuple):
    """A sampled item, or one step of it.

    Attributes:
        info: information about the item.
        data: its columns: a list in flat order, or a nest.
    """

    info: SampleInfo
    data: Any
