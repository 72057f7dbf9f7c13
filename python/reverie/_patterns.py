"""What patterns are made of: rows of a reference step, conditions, priorities, configurations.

``reverie.structured`` is what programs use; it makes these, and says what they mean.
"""

import operator
from collections.abc import Iterator
from typing import Any

from reverie import _checks, _reverie
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


class Record:
    """Fields by name, compared and shown as such."""

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> Iterator[tuple[str, Any]]:
        for name in self.__slots__:
            yield name, getattr(self, name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return list(self._fields()) == list(other._fields())

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._fields())
        return f"{type(self).__name__}({given})"


class PatternNode(Record):
    """Rows of one leaf: what ``reference_step["a"][-3:]`` gives.

    Attributes:
        flat_source_index: the leaf, counted in the order in which steps are flattened.
        start: the first row, counted back from the newest step; None for the single row ``stop``.
        stop: one past the last row; None up to the newest step.
        step: from one row to the next; None for 1.
    """

    __slots__ = ("flat_source_index", "start", "step", "stop")

    def __init__(
        self,
        flat_source_index: int,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
    ) -> None:
        self.flat_source_index = flat_source_index
        self.start = start
        self.stop = stop
        self.step = step


class ReferenceNode:
    """A leaf of a reference step: index it with an integer or a slice to make a pattern of it."""

    __slots__ = ("_leaf",)

    def __init__(self, leaf: int) -> None:
        self._leaf = leaf

    def __getitem__(self, key: int | slice) -> PatternNode:
        """The rows that ``key`` names, counted back from the newest step.

        Raises:
            InvalidArgumentError: ``key`` is neither an integer nor a slice of integers.
        """
        if isinstance(key, slice):
            parts = {
                name: _index(name, getattr(key, name))
                for name in ("start", "stop", "step")
                if getattr(key, name) is not None
            }
            return PatternNode(self._leaf, **parts)
        return PatternNode(self._leaf, stop=_index("the index", key))

    def __iter__(self) -> Iterator[PatternNode]:
        raise UnsupportedTypeError("a leaf of a reference step has no end to iterate to; slice it")

    def __repr__(self) -> str:
        return f"<leaf {self._leaf} of a reference step>"


class ConditionProto(Record):
    """A condition of a configuration; see :class:`Condition`.

    Attributes:
        left: what is compared: ``"step_index"``, ``"steps_since_applied"``, ``"is_end_episode"`` or
            ``"flat_source_index"``.
        flat_source_index: the leaf that is looked at, in the last case.
        comparison: ``"eq"``, ``"ge"`` or ``"mod_eq"``.
        value: what it is compared with.
        mod: the divisor of ``"mod_eq"``.
        inverse: whether the condition holds where the comparison does not.
    """

    __slots__ = ("comparison", "flat_source_index", "inverse", "left", "mod", "value")

    def __init__(
        self,
        left: str,
        comparison: str,
        value: int,
        *,
        flat_source_index: int = 0,
        mod: int = 1,
        inverse: bool = False,
    ) -> None:
        self.left = left
        self.comparison = comparison
        self.value = value
        self.flat_source_index = flat_source_index
        self.mod = mod
        self.inverse = inverse


class ConditionBuilder:
    """The left side of a condition: compare it with an integer, or its remainder ``% m``."""

    __slots__ = ("_leaf", "_left", "_mod")

    def __init__(self, left: str, leaf: int = 0, mod: int | None = None) -> None:
        self._left = left
        self._leaf = leaf
        self._mod = mod

    def __mod__(self, divisor: int) -> "ConditionBuilder":
        if self._mod is not None:
            raise InvalidArgumentError("a remainder has no remainder; give one % only")
        return ConditionBuilder(self._left, self._leaf, _integer("the divisor", divisor))

    def __eq__(self, value: object) -> ConditionProto:  # type: ignore[override]
        if self._mod is None:
            return self._made("eq", value)
        return self._made("mod_eq", value, mod=self._mod)

    def __ne__(self, value: object) -> ConditionProto:  # type: ignore[override]
        condition = self == value
        condition.inverse = True
        return condition

    def __ge__(self, value: int) -> ConditionProto:
        return self._ordered(value, 0, False)

    def __gt__(self, value: int) -> ConditionProto:
        return self._ordered(value, 1, False)

    def __lt__(self, value: int) -> ConditionProto:
        return self._ordered(value, 0, True)

    def __le__(self, value: int) -> ConditionProto:
        return self._ordered(value, 1, True)

    __hash__ = None  # type: ignore[assignment]

    def _ordered(self, value: int, more: int, inverse: bool) -> ConditionProto:
        if self._mod is not None:
            raise InvalidArgumentError("a remainder can be compared with == and != only")
        return self._made("ge", _integer("the bound", value) + more, inverse=inverse)

    def _made(self, comparison: str, value: object, **given: Any) -> ConditionProto:  # noqa: ANN401
        return ConditionProto(
            self._left,
            comparison,
            _integer("what a condition compares with", value),
            flat_source_index=self._leaf,
            **given,
        )

    def __repr__(self) -> str:
        return f"<the left side of a condition on {self._left}; compare it with an integer>"


class Condition:
    """When a pattern makes an item. All conditions of a configuration must hold."""

    @staticmethod
    def step_index() -> ConditionBuilder:
        """The newest step's place in its episode, from 0."""
        return ConditionBuilder("step_index")

    @staticmethod
    def steps_since_applied() -> ConditionBuilder:
        """Steps since the configuration's last item, the newest included.

        Before the first item, steps since the writer began. Episodes make no difference, and steps
        without any leaf that a configuration uses do not count.
        """
        return ConditionBuilder("steps_since_applied")

    @staticmethod
    def is_end_episode() -> ConditionProto:
        """Only in ``end_episode``. Needs no comparison."""
        return ConditionProto("is_end_episode", "eq", 1)

    @staticmethod
    def data(step_structure: Any) -> Any:  # noqa: ANN401
        """What the newest step holds.

        A step without the leaf meets no condition on it.

        Args:
            step_structure: a nest as steps have it; its leaves mean nothing.

        Returns:
            The same nest, whose leaves can be compared. In the steps they must be single integers
            or booleans.
        """
        _, leaves, structure = _reverie.flatten(step_structure)
        builders = [ConditionBuilder("flat_source_index", i) for i in range(len(leaves))]
        return _reverie.fold(structure, builders)


class Priority(Record):
    """How the priority of items is found; see ``constant_priority_fn`` and ``td_error``.

    Attributes:
        value: the priority, if it is a constant.
        flat_source_index: the leaf that holds TD errors; None for a constant.
        max_priority_weight: w in ``w max|e| + (1 - w) mean|e|``.
    """

    __slots__ = ("flat_source_index", "max_priority_weight", "value")

    def __init__(
        self,
        value: float = 1.0,
        flat_source_index: int | None = None,
        max_priority_weight: float = 0.0,
    ) -> None:
        self.value = value
        self.flat_source_index = flat_source_index
        self.max_priority_weight = max_priority_weight


class Config(Record):
    """What a structured writer makes items of; ``create_config`` makes one.

    Attributes:
        flat: a ``PatternNode`` for each column of the items, in flat order.
        pattern_structure: the text that folds them back into the nest that was given.
        table: the name of the table.
        priority: the items' priority.
        conditions: all of them must hold.
    """

    __slots__ = ("_paths", "conditions", "flat", "pattern_structure", "priority", "table")

    def __init__(
        self,
        flat: tuple[PatternNode, ...],
        paths: tuple[str, ...],
        pattern_structure: str,
        table: str,
        priority: Priority,
        conditions: tuple[ConditionProto, ...],
    ) -> None:
        self.flat = flat
        self.pattern_structure = pattern_structure
        self.table = table
        self.priority = priority
        self.conditions = conditions
        self._paths = paths

    def _fields(self) -> Iterator[tuple[str, Any]]:
        return (field for field in super()._fields() if field[0] != "_paths")

    def _to(self, table: str) -> "Config":
        """The same for another table, with a constant priority."""
        return Config(
            self.flat, self._paths, self.pattern_structure, table, Priority(), self.conditions
        )

    def _native(self) -> tuple[Any, ...]:
        """The configuration as the native writer takes it."""
        columns = [
            (path, node.flat_source_index, node.start, node.stop, node.step)
            for path, node in zip(self._paths, self.flat, strict=True)
        ]
        conditions = [
            (
                _LEFT_SIDES.index(condition.left),
                condition.flat_source_index,
                _COMPARISONS.index(condition.comparison),
                condition.value,
                condition.mod,
                condition.inverse,
            )
            for condition in self.conditions
        ]
        priority = (
            self.priority.value,
            self.priority.flat_source_index,
            self.priority.max_priority_weight,
        )
        return columns, self.pattern_structure, self.table, conditions, priority


# In the order of the native enumerations.
_LEFT_SIDES = ("step_index", "steps_since_applied", "is_end_episode", "flat_source_index")
_COMPARISONS = ("eq", "ge", "mod_eq")


def checked_configs(configs: object) -> list[Config]:
    """Configurations, if that is what was given."""
    given = _checks.items("configs", configs, "what structured.create_config() makes")
    for config in given:
        if not isinstance(config, Config):
            raise UnsupportedTypeError(
                f"configs holds {_checks.shown(config)}, which is not a configuration; make it "
                "with structured.create_config()"
            )
    if not given:
        raise InvalidArgumentError(
            "configs is empty: there are no configurations; give at least one"
        )
    return given


def _index(name: str, value: object) -> int:
    """An integer of Python's or NumPy's that fits a pattern."""
    try:
        given = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(
            f"{name} of a pattern is {_checks.shown(value)} of type {type(value).__name__}; it "
            "must be an int, or a slice of them"
        ) from None
    return _in_range(f"{name} of a pattern", given)


def _integer(name: str, value: object) -> int:
    most = _checks.INT64_MAX
    return _in_range(name, _checks.integer(name, value, -most, most))


def _in_range(name: str, value: int) -> int:
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise InvalidArgumentError(f"{name} is {value}; it must fit into 32 bits")
    return value


def priority_number(name: str, value: object) -> float:
    """A number; one that makes no priority is refused where it is used."""
    if isinstance(value, float) and value != value:
        return value
    return _checks.number(name, value, finite=False)
