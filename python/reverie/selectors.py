"""Selectors, which choose the item that a table samples or evicts next."""

from reverie import _checks, _options

__all__ = [
    "Custom",
    "Fifo",
    "Lifo",
    "MaxHeap",
    "MinHeap",
    "Prioritized",
    "Selector",
    "Uniform",
]


class Selector(_options.Component):
    """An order of a table's items. Give each table its own selector; it only holds options."""


class Fifo(Selector):
    """The item that was inserted first."""


class Lifo(Selector):
    """The item that was inserted last."""


class Uniform(Selector):
    """Any item, each with the same probability.

    Args:
        seed: seeds the generator; None takes a seed from the system.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed=_options.checked_seed(seed))


class Prioritized(Selector):
    """An item with probability ``priority ** priority_exponent``, relative to the others.

    Items of priority 0 are only drawn when all are.

    Args:
        priority_exponent: finite and >= 0; 0 makes all priorities but 0 equal.
        seed: seeds the generator; None takes a seed from the system.

    Raises:
        InvalidArgumentError: ``priority_exponent`` is negative or not finite.

    Source:
        Schaul et al. 2016, "Prioritized Experience Replay", section 3.3.
    """

    def __init__(self, priority_exponent: float, *, seed: int | None = None) -> None:
        exponent = _checks.number("priority_exponent", priority_exponent, 0.0)
        super().__init__(priority_exponent=exponent, seed=_options.checked_seed(seed))


class MaxHeap(Selector):
    """The item of the highest priority; among equals the one least recently inserted or updated."""


class MinHeap(Selector):
    """The item of the lowest priority; among equals the one least recently inserted or updated."""


class Custom(Selector):
    """A selector that a plugin or a program registered.

    Args:
        name: the name under which it was registered.
        options: bool, int, float or str values, which its factory gets.
    """

    def __init__(self, name: str, **options: _options.OptionValue) -> None:
        super().__init__(_name=_checks.text("name", name), **options)


def from_spec(spec: _options.ComponentSpec) -> Selector:
    """The selector with that registered name and those options."""
    name, options = spec
    for kind in (Fifo, Lifo, Uniform, MaxHeap, MinHeap):
        if kind.__name__ == name:
            return kind(**options)  # type: ignore[arg-type]
    if name == Prioritized.__name__:
        return Prioritized(**options)  # type: ignore[arg-type]
    return Custom(name, **options)
