"""``reverie.PatternDataset`` as Reverb has it: from tf.data, to tf.data. Eager only."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import reverie
from reverie import structured
from reverie.errors import InvalidArgumentError
from reverie.packages import import_package
from reverie.replay_sample import ReplaySample, SampleInfo
from reverie.reverb._tf_datasets import Kind, marked
from reverie.reverb.structured_writer import native_configs
from reverie.tf_dataset import tf_spec, tuples


class PatternDataset(metaclass=Kind):
    """A ``tf.data.Dataset`` over what ``reverie.PatternDataset`` makes of a ``tf.data.Dataset``.

    Takes its arguments, and configurations that are messages; imports TensorFlow.
    """

    def __new__(
        cls,
        input_dataset: Any,  # noqa: ANN401
        configs: Sequence[Any],
        respect_episode_boundaries: bool,
        is_end_of_episode: Callable[[Any], Any],
    ) -> Any:  # noqa: ANN401
        """The dataset, which ``isinstance`` takes for one of this class."""
        tf = import_package("tensorflow")
        configs = native_configs(configs)
        items = reverie.PatternDataset(
            input_dataset, configs, respect_episode_boundaries, is_end_of_episode
        )
        ends = input_dataset.map(is_end_of_episode).element_spec
        if not tf.TensorSpec([], tf.bool).is_compatible_with(ends):
            raise InvalidArgumentError(
                f"is_end_of_episode returns {ends}; it must return a single bool"
            )
        signature = structured.infer_signature(configs, input_dataset.element_spec)

        def made() -> Iterator[Any]:
            return (tuples(item) for item in items)

        dataset = tf.data.Dataset.from_generator(made, output_signature=tuples(signature, tf_spec))
        return marked(dataset, cls)


def pattern_dataset_with_info(
    input_dataset: Any,  # noqa: ANN401
    configs: Sequence[Any],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[[Any], Any],
) -> Any:  # noqa: ANN401
    """The same as ``ReplaySample``, as if the items were sampled; ``info`` is zeros."""
    items = PatternDataset(input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
    return items.map(lambda item: ReplaySample(SampleInfo.zeros(), item))
