"""Reverb's ``reverie.structured``: patterns, conditions and configurations as its messages.

Where protobuf is installed, indexing a reference step, comparing a condition and ``create_config``
give the messages of ``reverb.cc.patterns_pb2``. Where it is not, they give the objects of
``reverie.structured``, which have no message's methods. A writer takes either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from reverie import _checks, _reverie, structured
from reverie.errors import InvalidArgumentError, UnsupportedTypeError
from reverie.reverb import _messages
from reverie.reverb._errors import ReverbEnds, in_its_class
from reverie.reverb._specs import shown_signature
from reverie.structured import ReferenceNode

Pattern: TypeAlias = Any  # a nest of PatternNode
ReferenceStep: TypeAlias = Any  # a nest of what makes them
PatternTransform: TypeAlias = Callable[[ReferenceStep], Pattern]


def create_reference_step(step_structure: Any) -> ReferenceStep:  # noqa: ANN401
    """A step to make patterns of: index its leaves with integers or slices.

    Args:
        step_structure: a nest as steps have it; its leaves mean nothing.
    """
    _, leaves, structure = _reverie.flatten(step_structure)
    return _reverie.fold(structure, [_RefNode(i) for i in range(len(leaves))])


def pattern_from_transform(step_structure: Any, transform: PatternTransform) -> Pattern:  # noqa: ANN401
    """``transform`` of a reference step: the pattern whose items it would make."""
    return transform(create_reference_step(step_structure))


def create_config(
    pattern: Pattern,
    table: str,
    conditions: Sequence[Any] = (),
    priority: Any = None,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """What a structured writer makes items of.

    Args:
        pattern: a nest of what indexing the leaves of a reference step gives.
        table: the name of the table.
        conditions: all of them must hold; see :class:`Condition`.
        priority: ``constant_priority_fn`` or ``td_error``; None for 1.0.
    """
    paths, nodes, structure = _reverie.flatten(pattern)
    config = structured.create_config(
        _reverie.fold(
            structure, [_native_node(p, node) for p, node in zip(paths, nodes, strict=True)]
        ),
        table,
        [
            _native_condition(condition)
            for condition in _checks.items("conditions", conditions, "conditions")
        ],
        None if priority is None else _native_priority(priority),
    )
    return _config_message(config) if _has_messages() else config


def unpack_pattern(config: Any) -> Pattern:  # noqa: ANN401
    """The pattern of a configuration, as the nest that was given."""
    if isinstance(config, structured.Config):
        return structured.unpack_pattern(config)
    if not hasattr(config, "pattern_structure"):
        raise UnsupportedTypeError(
            f"config is {_checks.shown(config)}; it must be what structured.create_config() makes"
        )
    if not config.HasField("pattern_structure"):
        return config.flat
    from reverie.reverb._nests import decode_nest

    structure = _reverie.flatten(decode_nest(config.pattern_structure))[2]
    return _reverie.fold(structure, list(config.flat))


def infer_signature(configs: Sequence[Any], step_spec: Any) -> Any:  # noqa: ANN401
    """The signature of a table whose items these configurations make.

    Args:
        configs: those of one table, whose patterns have one structure.
        step_spec: a nest of specifications as steps have it.

    Raises:
        ValueError: there are no configurations, or they differ in table, structure, dtype or shape.
    """
    if not configs:
        raise InvalidArgumentError("At least one config must be provided: configs is empty")
    native = native_configs(configs)
    tables = sorted({config.table for config in native})
    if len(tables) > 1:
        raise InvalidArgumentError(
            f"All configs must target the same table, but they are for {', '.join(tables)}; give "
            "those of one"
        )
    return shown_signature(structured.infer_signature(native, step_spec))


class Condition:
    """When a pattern makes an item. All conditions of a configuration must hold."""

    @staticmethod
    def step_index() -> _ConditionBuilder:
        """The newest step's place in its episode, from 0."""
        return _ConditionBuilder(structured.Condition.step_index())

    @staticmethod
    def steps_since_applied() -> _ConditionBuilder:
        """Steps since the configuration's last item, the newest included."""
        return _ConditionBuilder(structured.Condition.steps_since_applied())

    @staticmethod
    def is_end_episode() -> Any:  # noqa: ANN401
        """Only in ``end_episode``. Needs no comparison."""
        return _shown_condition(structured.Condition.is_end_episode())

    @staticmethod
    def data(step_structure: Any) -> Any:  # noqa: ANN401
        """What the newest step holds: a nest whose leaves can be compared."""
        _, leaves, structure = _reverie.flatten(structured.Condition.data(step_structure))
        return _reverie.fold(structure, [_ConditionBuilder(leaf) for leaf in leaves])


def constant_priority_fn(value: float) -> Any:  # noqa: ANN401
    """One priority for all items."""
    return _shown_priority(structured.constant_priority_fn(value))


def td_error(
    max_priority_weight: float,
    step_structure: Any,  # noqa: ANN401
    get_field_from_step_fn: Callable[[Any], Any],
) -> Any:  # noqa: ANN401
    """Priorities of TD errors; see ``reverie.structured.td_error``."""
    return _shown_priority(
        structured.td_error(max_priority_weight, step_structure, get_field_from_step_fn)
    )


class StructuredWriter(ReverbEnds, structured.StructuredWriter):
    """A ``reverie.structured.StructuredWriter``; see there."""

    __slots__ = ()

    _explain = staticmethod(in_its_class)


def native_configs(configs: Any) -> list[structured.Config]:  # noqa: ANN401
    """Configurations as the library's writer takes them.

    Raises:
        ValueError: the list is empty, or one is invalid; the message begins "Invalid
            configuration at position i".
    """
    given = _checks.items("configs", configs, "what structured.create_config() makes")
    if not given:
        raise InvalidArgumentError("At least one config must be provided: configs is empty")
    return [_placed_config(i, config) for i, config in enumerate(given)]


def _placed_config(position: int, config: Any) -> structured.Config:  # noqa: ANN401
    try:
        return _native_config(config)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"Invalid configuration at position {position}: {error}"
        ) from None


class _RefNode(ReferenceNode):
    """A leaf of a reference step."""

    __slots__ = ()

    def __getitem__(self, key: int | slice) -> Any:  # noqa: ANN401
        node = super().__getitem__(key)
        return _node_message(node) if _has_messages() else node


class _ConditionBuilder:
    """The left side of a condition: compare it with an integer, or its remainder ``% m``."""

    __slots__ = ("_left",)

    def __init__(self, left: structured.ConditionBuilder) -> None:
        self._left = left

    def __mod__(self, divisor: int) -> _ConditionBuilder:
        return _ConditionBuilder(self._left % divisor)

    def __eq__(self, value: object) -> Any:  # noqa: ANN401
        return _shown_condition(self._left == value)

    def __ne__(self, value: object) -> Any:  # noqa: ANN401
        return _shown_condition(self._left != value)

    def __gt__(self, value: int) -> Any:  # noqa: ANN401
        return _shown_condition(self._left > value)

    def __ge__(self, value: int) -> Any:  # noqa: ANN401
        return _shown_condition(self._left >= value)

    def __lt__(self, value: int) -> Any:  # noqa: ANN401
        return _shown_condition(self._left < value)

    def __le__(self, value: int) -> Any:  # noqa: ANN401
        return _shown_condition(self._left <= value)

    __hash__ = None  # type: ignore[assignment]


# --- Our objects as messages -----------------------------------------------------------------


def _has_messages() -> bool:
    from reverie.reverb.reverb_types import has_protobuf

    return has_protobuf()


def _pattern_message(name: str) -> Any:  # noqa: ANN401
    return _messages.message_class(f"deepmind.reverb.{name}")


def _node_message(node: structured.PatternNode) -> Any:  # noqa: ANN401
    return _pattern_message("PatternNode")(
        flat_source_index=node.flat_source_index, start=node.start, stop=node.stop, step=node.step
    )


def _shown_condition(condition: structured.ConditionProto) -> Any:  # noqa: ANN401
    return _condition_message(condition) if _has_messages() else condition


def _condition_message(condition: structured.ConditionProto) -> Any:  # noqa: ANN401
    is_leaf = condition.left == "flat_source_index"
    message = _pattern_message("Condition")(
        **{condition.left: condition.flat_source_index if is_leaf else True}
    )
    if condition.comparison == "mod_eq":
        message.mod_eq.mod = condition.mod
        message.mod_eq.eq = condition.value
    else:
        setattr(message, condition.comparison, condition.value)
    message.inverse = condition.inverse
    return message


def _shown_priority(priority: structured.Priority) -> Any:  # noqa: ANN401
    return _priority_message(priority) if _has_messages() else priority


def _priority_message(priority: structured.Priority) -> Any:  # noqa: ANN401
    message = _pattern_message("Priority")()
    if priority.flat_source_index is None:
        message.constant_fn.value = priority.value
    else:
        message.td_error.max_priority_weight = priority.max_priority_weight
        message.td_error.flat_source_index = priority.flat_source_index
    return message


def _config_message(config: structured.Config) -> Any:  # noqa: ANN401
    from reverie.reverb._nests import encode_nest

    structure = _reverie.fold(config.pattern_structure, [None] * len(config.flat))
    return _pattern_message("StructuredWriterConfig")(
        flat=[_node_message(node) for node in config.flat],
        pattern_structure=encode_nest(structure),
        table=config.table,
        priority=_priority_message(config.priority),
        conditions=[_condition_message(condition) for condition in config.conditions],
    )


# --- Messages as our objects -----------------------------------------------------------------


def _native_node(path: str, node: Any) -> structured.PatternNode:  # noqa: ANN401
    if isinstance(node, structured.PatternNode):
        return node
    if not hasattr(node, "HasField"):
        raise UnsupportedTypeError(
            f"column '{path}' of the pattern is {_checks.shown(node)}; it must be rows of a "
            "reference step, such as step['a'][-3:]"
        )
    parts = {name: getattr(node, name) for name in ("start", "stop", "step") if node.HasField(name)}
    return structured.PatternNode(node.flat_source_index, **parts)


def _native_condition(condition: Any) -> structured.ConditionProto:  # noqa: ANN401
    if isinstance(condition, structured.ConditionProto):
        return condition
    if not hasattr(condition, "WhichOneof"):
        raise UnsupportedTypeError(
            f"conditions holds {_checks.shown(condition)}; each must be complete, such as "
            "Condition.step_index() >= 2"
        )
    left, comparison = condition.WhichOneof("left"), condition.WhichOneof("cmp")
    if left is None or comparison is None:
        raise InvalidArgumentError(
            f"a condition lacks {'what is compared' if left is None else 'a comparison'}; make it "
            "with structured.Condition"
        )
    value, mod = getattr(condition, comparison), 1
    if comparison == "mod_eq":
        value, mod = value.eq, value.mod
    leaf = condition.flat_source_index if left == "flat_source_index" else 0
    return structured.ConditionProto(
        left, comparison, value, flat_source_index=leaf, mod=mod, inverse=condition.inverse
    )


def _native_priority(priority: Any) -> structured.Priority:  # noqa: ANN401
    if isinstance(priority, structured.Priority):
        return priority
    if not hasattr(priority, "WhichOneof"):
        raise UnsupportedTypeError(
            f"priority is {_checks.shown(priority)}; it must be constant_priority_fn(...) or "
            "td_error(...)"
        )
    match priority.WhichOneof("priority_fn"):
        case "constant_fn":
            return structured.Priority(priority.constant_fn.value)
        case "td_error":
            return structured.Priority(
                flat_source_index=priority.td_error.flat_source_index,
                max_priority_weight=priority.td_error.max_priority_weight,
            )
    return structured.Priority()


def _native_config(config: Any) -> structured.Config:  # noqa: ANN401
    if isinstance(config, structured.Config):
        return config
    if not hasattr(config, "HasField"):
        raise UnsupportedTypeError(
            f"configs holds {_checks.shown(config)}, which is not a configuration; make it with "
            "structured.create_config()"
        )
    conditions = [
        _native_condition(condition)
        for condition in config.conditions
        if condition.WhichOneof("left") != "buffer_length"
    ]
    pattern = unpack_pattern(config)
    nodes = [_native_node(str(i), node) for i, node in enumerate(config.flat)]
    longest = max((-min(node.start or 0, node.stop or 0) for node in nodes), default=0)
    for condition in config.conditions:
        is_implied = condition.WhichOneof("cmp") == "ge" and not condition.inverse
        if condition.WhichOneof("left") == "buffer_length" and not (
            is_implied and condition.ge <= longest
        ):
            raise InvalidArgumentError(
                f"a condition on buffer_length asks for other than at least the {longest} steps "
                "that the pattern needs; use Condition.step_index()"
            )
    return structured.create_config(
        _reverie.fold(
            _reverie.flatten(list(pattern) if pattern is config.flat else pattern)[2], nodes
        ),
        config.table,
        conditions,
        _native_priority(config.priority),
    )


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in ("Config", "ConditionProto"):
        message = {"Config": "StructuredWriterConfig", "ConditionProto": "Condition"}[name]
        return _pattern_message(message) if _has_messages() else getattr(structured, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Condition",
    "Pattern",
    "PatternTransform",
    "ReferenceStep",
    "StructuredWriter",
    "constant_priority_fn",
    "create_config",
    "create_reference_step",
    "infer_signature",
    "pattern_from_transform",
    "td_error",
    "unpack_pattern",
]
