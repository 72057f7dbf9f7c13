"""Items by pattern from existing steps, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reverie import _checks, _reverie
from reverie._patterns import Config, checked_configs
from reverie.errors import InvalidArgumentError, UnsupportedTypeError
from reverie.replay_sample import ReplaySample, SampleInfo
from reverie.store import Store
from reverie.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_TABLE = "items"


class PatternDataset:
    """An iterable over the items that patterns make of the steps of another iterable.

    What ``StructuredWriter`` would insert, in the same order. Each iteration runs through
    ``input_dataset`` again.

    Args:
        input_dataset: an iterable of steps, nests of arrays.
        configs: at least one, of ``structured.create_config``, all for the same table, which need
            not exist. Their priorities are ignored.
        respect_episode_boundaries: whether an episode's end forgets its steps; else items may span
            both episodes.
        is_end_of_episode: whether a step is the last of its episode: a single bool.

    Raises:
        InvalidArgumentError: there are no configurations, they differ in table, or one cannot make
            items.
    """

    def __init__(
        self,
        input_dataset: Iterable[Any],
        configs: Sequence[Config],
        respect_episode_boundaries: bool,
        is_end_of_episode: Callable[[Any], Any],
    ) -> None:
        if isinstance(input_dataset, (str, bytes)) or not hasattr(input_dataset, "__iter__"):
            raise UnsupportedTypeError(
                f"input_dataset is {_checks.shown(input_dataset)}; it must be an iterable of steps"
            )
        configs = checked_configs(configs)
        tables = sorted({config.table for config in configs})
        if len(tables) > 1:
            raise InvalidArgumentError(
                f"the configurations are for the tables {tables}; give one's"
            )
        self._steps = input_dataset
        self._configs = [config._to(_TABLE) for config in configs]
        self._respects = _checks.flag("respect_episode_boundaries", respect_episode_boundaries)
        self._is_end = _checks.function(
            "is_end_of_episode", is_end_of_episode, "a function of a step"
        )
        self._open().close()  # refuses what can make no items

    def __iter__(self) -> Iterator[Any]:
        """Plays the steps.

        Raises:
            InvalidArgumentError: ``is_end_of_episode`` returns something other than a bool, or a
                step cannot be written.
        """
        with self._open() as store:
            client = store.client()
            writer = client.structured_writer(self._configs)
            for step in self._steps:
                writer.append(step)
                yield from _drained(client._native)
                if self._ends(step):
                    writer.end_episode(clear_buffers=self._respects)
                    yield from _drained(client._native)
            writer.close()

    def _open(self) -> Store:
        store = Store([Table.queue(_TABLE, max(1, len(self._configs)))])
        store.client().structured_writer(self._configs).close()
        return store

    def _ends(self, step: Any) -> bool:  # noqa: ANN401
        given = np.asarray(self._is_end(step))
        if given.dtype != np.bool_ or given.shape != ():
            raise InvalidArgumentError(
                f"is_end_of_episode gave {given.dtype.name} {given.shape}; it must give a single "
                "bool"
            )
        return bool(given)

    def __repr__(self) -> str:
        return f"<PatternDataset of {len(self._configs)} patterns>"


def pattern_dataset_with_info(
    input_dataset: Iterable[Any],
    configs: Sequence[Config],
    respect_episode_boundaries: bool,
    is_end_of_episode: Callable[[Any], Any],
) -> Iterator[ReplaySample]:
    """The same as ``ReplaySample``, as if they were sampled; ``info`` is zeros."""
    items = PatternDataset(input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
    return (ReplaySample(SampleInfo.zeros(), item) for item in items)


def _drained(client: _reverie.Client) -> Iterator[Any]:
    while client.can_sample(_TABLE, 1):
        _, columns, _, _, structure = client.sample_one(_TABLE, 0)
        yield _reverie.fold(structure, columns)
