"""Items by pattern: a writer that makes an item wherever a pattern fits.

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
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from reverie import _checks, _reverie
from reverie._closing import Flushing
from reverie._patterns import (
    Condition,
    ConditionProto,
    Config,
    PatternNode,
    Priority,
    checked_configs,
    priority_number,
)
from reverie._patterns import ConditionBuilder as ConditionBuilder
from reverie._patterns import ReferenceNode as ReferenceNode
from reverie._process_bound import ProcessBound
from reverie.errors import InvalidArgumentError, UnsupportedTypeError
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
    return Priority(priority_number("value", value))


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
            f"get_field_from_step_fn gave {_checks.shown(node)}; it must give a leaf of the step "
            "it was called with"
        )
    weight = priority_number("max_priority_weight", max_priority_weight)
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
                f"column '{path}' of the pattern is {_checks.shown(node)}; it must be rows of a "
                "reference step, such as step['a'][-3:]"
            )
    if not isinstance(table, str):
        raise UnsupportedTypeError(f"table is {_checks.shown(table)}; it must be the name of one")
    conditions = _checks.items("conditions", conditions, "conditions")
    for condition in conditions:
        if not isinstance(condition, ConditionProto):
            raise UnsupportedTypeError(
                f"conditions holds {_checks.shown(condition)}; each must be complete, such as "
                "Condition.step_index() >= 2"
            )
    if priority is not None and not isinstance(priority, Priority):
        raise UnsupportedTypeError(
            f"priority is {_checks.shown(priority)}; it must be constant_priority_fn(...) or "
            "td_error(...)"
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
    configs = checked_configs(configs)
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
                f"{spec.shape}; they may differ only in the number of rows"
            )
    shape = first.shape
    if any(spec.shape != shape for spec in specs):
        shape = (None, *shape[1:])
    return TensorSpec(shape, first.dtype_name, path or None)


_OPENS = "that of a reverie.Client; call its structured_writer()"


class StructuredWriter(ProcessBound, _reverie.StructuredWriter, Flushing):
    """Turns a stream of steps into the items that its configurations say.

    ``reverie.Client.structured_writer()`` makes one. After each append, partial ones too, and at an
    episode's end, the configurations are tried in order. Each makes at most one item a step, if all
    its conditions hold and every row that it refers to is there. Leaves that none of them refers to
    are not written.

    A context manager: leaving it flushes, unless one of our own errors is on its way, and leaves
    the writer open. A writer that is dropped unclosed flushes for at most a second, then warns with
    the number of items lost. Use it from one thread at a time.
    """

    __slots__ = ()

    _stays_because = (
        "a StructuredWriter cannot be pickled; open one in the other process, with a client of "
        "its own"
    )
    # As `TrajectoryWriter._explain`, of append.
    _explain: ClassVar[Callable[[BaseException, Any], BaseException] | None] = None

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
            [config._native() for config in checked_configs(configs)],
            chunk_length=chunk_length,
            max_in_flight_items=max_in_flight_items,
            codec=codec,
            explain=type(self)._explain,
        )


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
