"""Items by pattern: a writer that makes them by itself, wherever a pattern fits.

A pattern says beforehand what items are made of, in terms of a reference step::

    step = structured.create_reference_step({"obs": None, "reward": None})
    config = structured.create_config(
        pattern={"obs": step["obs"][-3:], "reward": step["reward"][-1]},
        table="replay",
        conditions=[structured.Condition.step_index() >= 2],
    )
    writer = client.structured_writer([config])

From then on each ``writer.append`` makes the items whose conditions hold. Rows are counted back
from the newest step: ``[-3:]`` are the last three, ``[-3:-1]`` the two before the newest,
``[-5::2]`` each second of five; ``[-1]`` is one row without a leading axis.

One file, since patterns, conditions and priorities are one small language, read as a whole.
"""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from reverie import _checks, _reverie
from reverie._process_bound import ProcessBound
from reverie.errors import InvalidArgumentError, ReverieError, UnsupportedTypeError
from reverie.specs import TensorSpec, leaf_spec

__all__ = [
    "Condition",
    "ConditionProto",
    "Config",
    "PatternNode",
    "Priority",
    "StructuredWriter",
    "constant_priority_fn",
    "create_config",
    "create_reference_step",
    "infer_signature",
    "pattern_from_transform",
    "td_error",
    "unpack_pattern",
]

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


class _Record:
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


class PatternNode(_Record):
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


class ConditionProto(_Record):
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
        """In ``end_episode``, and there alone. Needs no comparison."""
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


class Priority(_Record):
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


class Config(_Record):
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


def create_reference_step(step_structure: Any) -> Any:  # noqa: ANN401
    """A step to make patterns of.

    Args:
        step_structure: a nest as steps have it; its leaves mean nothing.

    Returns:
        The same nest; index its leaves to make patterns.
    """
    _, leaves, structure = _reverie.flatten(step_structure)
    return _reverie.fold(structure, [ReferenceNode(i) for i in range(len(leaves))])


def pattern_from_transform(
    step_structure: Any,  # noqa: ANN401
    transform: Callable[[Any], Any],
) -> Any:  # noqa: ANN401
    """``transform`` of a reference step: the pattern whose items it would make."""
    _checks.function("transform", transform, "a function of a step")
    return transform(create_reference_step(step_structure))


def constant_priority_fn(value: float) -> Priority:
    """One priority for all items.

    Raises:
        UnsupportedTypeError: ``value`` is not a number.
    """
    return Priority(_number("value", value))


def td_error(
    max_priority_weight: float,
    step_structure: Any,  # noqa: ANN401
    get_field_from_step_fn: Callable[[Any], Any],
) -> Priority:
    """Priorities of TD errors: ``w max|e| + (1 - w) mean|e|`` over the rows of an item.

    Args:
        max_priority_weight: w.
        step_structure: a nest as steps have it.
        get_field_from_step_fn: picks the leaf with the errors: single float32, float64, int32 or
            int64. The rows are those of the last column that the pattern makes of that leaf; where
            it makes none the priority is 0.

    Raises:
        UnsupportedTypeError: the weight is not a number, or no leaf was picked.
    """
    _checks.function("get_field_from_step_fn", get_field_from_step_fn, "a function of a step")
    node = get_field_from_step_fn(create_reference_step(step_structure))
    if not isinstance(node, ReferenceNode):
        raise UnsupportedTypeError(
            f"get_field_from_step_fn gave {node!r}; it must give a leaf of the step it was called "
            "with"
        )
    weight = _number("max_priority_weight", max_priority_weight)
    return Priority(flat_source_index=node._leaf, max_priority_weight=weight)


def create_config(
    pattern: Any,  # noqa: ANN401
    table: str,
    conditions: Sequence[ConditionProto] = (),
    priority: Priority | None = None,
) -> Config:
    """What a structured writer makes items of.

    Args:
        pattern: a nest of what indexing the leaves of a reference step gives; the items have it.
        table: the name of the table.
        conditions: when to make an item; all of them must hold. See :class:`Condition`.
        priority: ``constant_priority_fn`` or ``td_error``; None for 1.0.

    Raises:
        UnsupportedTypeError: the pattern or the conditions hold something else.
    """
    paths, nodes, structure = _reverie.flatten(pattern)
    for path, node in zip(paths, nodes, strict=True):
        if not isinstance(node, PatternNode):
            raise UnsupportedTypeError(
                f"column '{path}' of the pattern is {node!r}; it must be rows of a reference step, "
                "such as step['a'][-3:]"
            )
    if not isinstance(table, str):
        raise UnsupportedTypeError(f"table is {table!r}; it must be the name of one")
    conditions = _checks.items("conditions", conditions, "conditions")
    for condition in conditions:
        if not isinstance(condition, ConditionProto):
            raise UnsupportedTypeError(
                f"conditions holds {_checks.shown(condition)}; each must be complete, such as "
                "Condition.step_index() >= 2"
            )
    if priority is not None and not isinstance(priority, Priority):
        raise UnsupportedTypeError(
            f"priority is {priority!r}; it must be constant_priority_fn(...) or td_error(...)"
        )
    return Config(
        tuple(nodes),
        tuple(paths),
        structure,
        table,
        Priority() if priority is None else priority,
        tuple(conditions),
    )


def unpack_pattern(config: Config) -> Any:  # noqa: ANN401
    """The pattern of a configuration, as the nest that was given."""
    _checks.instance("config", config, Config)
    return _reverie.fold(config.pattern_structure, list(config.flat))


def infer_signature(configs: Sequence[Config], step_spec: Any) -> Any:  # noqa: ANN401
    """The signature of a table whose items these configurations make.

    Args:
        configs: those of one table, whose patterns have one structure.
        step_spec: a nest as steps have it, of specifications: ``TensorSpec``, those of TensorFlow
            or JAX, NumPy arrays.

    Returns:
        The nest of the pattern, of ``TensorSpec``. Where the configurations differ in how many rows
        they take, the number of rows is None.

    Raises:
        InvalidArgumentError: there are no configurations; they differ in table, structure, dtype or
            shape; or a step has fewer leaves than they refer to.
    """
    configs = _configs(configs)
    tables = sorted({config.table for config in configs})
    if len(tables) > 1:
        raise InvalidArgumentError(f"the configurations are for the tables {tables}; give one's")
    structure = configs[0].pattern_structure
    if any(config.pattern_structure != structure for config in configs):
        raise InvalidArgumentError(
            "the patterns of the configurations differ in structure; a signature has one"
        )
    paths, leaves, _ = _reverie.flatten(step_spec)
    specs = [leaf_spec(path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
    made = ([_column(node, specs) for node in config.flat] for config in configs)
    columns = zip(*made, strict=True)
    merged = [
        _merged(path, column) for path, column in zip(configs[0]._paths, columns, strict=True)
    ]
    return _reverie.fold(structure, merged)


def _column(node: PatternNode, specs: list[TensorSpec]) -> TensorSpec:
    """What one configuration makes of a leaf."""
    if node.flat_source_index >= len(specs):
        raise InvalidArgumentError(
            f"a configuration refers to leaf {node.flat_source_index}, but step_spec has "
            f"{len(specs)} leaves; give the specification of the steps that it was made for"
        )
    spec = specs[node.flat_source_index]
    if node.start is None:
        return spec
    rows = len(range(node.start, node.stop or 0, node.step or 1))
    return TensorSpec((rows, *spec.shape), spec.dtype_name)


def _merged(path: str, specs: Sequence[TensorSpec]) -> TensorSpec:
    """One specification for the same column of several configurations."""
    first = specs[0]
    for spec in specs:
        if spec.dtype_name != first.dtype_name:
            raise InvalidArgumentError(
                f"the configurations make column '{path}' {first.dtype_name} and "
                f"{spec.dtype_name}; a column has one dtype"
            )
        if len(spec.shape) != len(first.shape) or spec.shape[1:] != first.shape[1:]:
            raise InvalidArgumentError(
                f"the configurations make column '{path}' of the shapes {first.shape} and "
                f"{spec.shape}; they may differ in the number of rows alone"
            )
    shape = first.shape
    if any(spec.shape != shape for spec in specs):
        shape = (None, *shape[1:])
    return TensorSpec(shape, first.dtype_name, path or None)


_OPENS = "that of a reverie.Client; call its structured_writer()"


class StructuredWriter(ProcessBound, _reverie.StructuredWriter):
    """Turns a stream of steps into the items that its configurations say.

    ``reverie.Client.structured_writer()`` makes one. After each append, partial ones too, and at an
    episode's end, the configurations are tried in order. Each makes at most one item a step, if all
    its conditions hold and every row that it refers to is there. Leaves that none of them refers to
    are not written.

    A context manager: leaving it flushes, unless one of our own errors is on its way, and leaves
    the writer open. A writer that is dropped unclosed flushes for at most a second, then warns with
    the number of items lost. One thread at a time.
    """

    __slots__ = ()

    _stays_because = (
        "a StructuredWriter cannot be pickled; open one in the other process, with a client of "
        "its own"
    )

    def __init__(
        self,
        client: _reverie.Client,
        configs: Sequence[Config],
        *,
        chunk_length: int | None = None,
        max_in_flight_items: int = 1000,
        codec: str = "auto",
    ) -> None:
        super().__init__(
            _checks.instance("client", client, _reverie.Client, _OPENS),
            [config._native() for config in _configs(configs)],
            chunk_length=chunk_length,
            max_in_flight_items=max_in_flight_items,
            codec=codec,
        )

    def __enter__(self) -> "StructuredWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or not issubclass(kind, ReverieError):
            self.flush()


def open_writer(
    native: _reverie.Client,
    configs: Sequence[Config],
    chunk_length: int | None,
    max_in_flight_items: int,
    codec: str,
) -> StructuredWriter:
    """A structured writer of a native client."""
    return StructuredWriter(
        native,
        configs,
        chunk_length=chunk_length,
        max_in_flight_items=max_in_flight_items,
        codec=codec,
    )


def _configs(configs: object) -> list[Config]:
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
    """A Python integer that fits a pattern."""
    if not isinstance(value, int):
        raise InvalidArgumentError(
            f"{name} of a pattern is {value!r} of type {type(value).__name__}; it must be an int, "
            "or a slice of them"
        )
    return _in_range(f"{name} of a pattern", int(value))


def _integer(name: str, value: object) -> int:
    most = _checks.INT64_MAX
    return _in_range(name, _checks.integer(name, value, -most, most))


def _in_range(name: str, value: int) -> int:
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise InvalidArgumentError(f"{name} is {value}; it must lie within 32 bits")
    return value


def _number(name: str, value: object) -> float:
    """A number; one that makes no priority is refused where it is used."""
    if isinstance(value, float) and value != value:
        return value
    return _checks.number(name, value, finite=False)
