"""``reverie.TimestepDataset`` as Reverb has it: a ``tf.data.Dataset``."""

from reverie.reverb._tf_datasets import TfDataset


class TimestepDataset(TfDataset):
    """A ``tf.data.Dataset`` over what ``reverie.TimestepDataset`` iterates over.

    Imports TensorFlow. The address and the table may be string tensors, so ``Dataset.interleave``
    can go over servers. See ``reverie.TimestepDataset`` for the arguments.

    Raises:
        MissingPackageError: TensorFlow is not installed.
    """

    _kind = "TimestepDataset"
