"""``reverie.TrajectoryDataset`` as Reverb has it: a ``tf.data.Dataset``."""

from reverie.reverb._tf_datasets import TfDataset


class TrajectoryDataset(TfDataset):
    """A ``tf.data.Dataset`` over what ``reverie.TrajectoryDataset`` iterates over.

    Imports TensorFlow. The address and the table may be string tensors, so ``Dataset.interleave``
    can go over servers. See ``reverie.TrajectoryDataset`` for the arguments.

    Raises:
        MissingPackageError: TensorFlow is not installed.
    """

    _kind = "TrajectoryDataset"
