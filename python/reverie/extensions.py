"""Extensions run with each insert, sample, update and delete of a table, atomically with it."""

from reverie import _checks, _options, _reverie
from reverie.errors import FailedPreconditionError


class Extension(_options.Component):
    """Called by a table. It belongs to the table that it is given to."""

    __slots__ = ("_place",)

    def __init__(self, *, _name: str | None = None, **options: _options.OptionValue | None) -> None:
        super().__init__(_name=_name, **options)
        self._place: tuple[_reverie.Store | _reverie.Server, str, int] | None = None

    def summary(self) -> dict[str, float]:
        """Figures by name; which ones depends on the extension.

        Raises:
            FailedPreconditionError: the table does not belong to a store yet.
        """
        if self._place is None:
            raise FailedPreconditionError(
                f"{self!r} does not belong to an open table; give its table to a "
                "reverie.Store first"
            )
        store, table, index = self._place
        return store.extension_summary(table, index)

    def _attach(self, store: _reverie.Store | _reverie.Server, table: str, index: int) -> None:
        """Called by the store that opened the table."""
        self._place = (store, table, index)


class Statistics(Extension):
    """Counts what happens to a table's items.

    ``summary()`` gives, since the table was opened or reset: ``inserts``, ``samples``, ``updates``
    and ``deletes``; ``priority_min``, ``priority_mean``, ``priority_max`` of inserts and updates;
    ``sampled_age_mean_s`` and ``sampled_age_max_s``, how long sampled items had been there;
    ``deleted_age_mean_s``, ``deleted_times_sampled_mean`` and ``deleted_never_sampled`` of items
    that left; ``inserts_per_s`` and ``samples_per_s`` since the first insert.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()


class PriorityDiffusion(Extension):
    """Passes a share of each priority update on to the neighbouring items of the same episode.

    Args:
        radius: how many items on either side; at least 1.
        decay: the share of the nearest; for others, this to the power of the distance; in (0, 1].

    Raises:
        InvalidArgumentError: ``radius`` or ``decay`` is out of range.

    Source:
        Gruslys et al. 2017, "The Reactor", section 3.3.
    """

    __slots__ = ()

    def __init__(self, radius: int = 1, decay: float = 0.5) -> None:
        super().__init__(
            radius=_checks.integer("radius", radius),
            decay=_checks.number("decay", decay, most=1.0, above=0.0),
        )


class Custom(Extension):
    """An extension that a plugin or a program registered.

    Args:
        name: the registered name.
        options: bool, int, float or str values, passed to its factory.
    """

    __slots__ = ()

    def __init__(self, name: str, **options: _options.OptionValue) -> None:
        super().__init__(_name=_checks.text("name", name), **options)
