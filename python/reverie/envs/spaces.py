"""Spaces of Gymnasium as the columns of a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie.envs.backend import EnvSpec
from reverie.errors import InvalidArgumentError, UnsupportedTypeError
from reverie.specs import TensorSpec, signature_columns, signature_nest

Column = tuple[str, str, list[int]]


def info_columns(
    info: Sequence[str] | Mapping[str, object] | None,
) -> list[tuple[str, TensorSpec]]:
    """The entries of info that a pool was asked for, which are float64 if it names no type.

    Raises:
        InvalidArgumentError: a text instead of a list, or a name that is not a text.
    """
    if isinstance(info, str):
        raise InvalidArgumentError(f"info is {info!r}; give a list of names, [{info!r}]")
    if info is not None and not isinstance(info, Mapping):
        info = _checks.items("info", info, "names")
        for name in info:
            _checks.text("an entry of info", name)
    chosen = info if isinstance(info, Mapping) else dict.fromkeys(info or (), "float64")
    return [
        (name, value if isinstance(value, TensorSpec) else TensorSpec((), value))
        for name, value in chosen.items()
    ]


def describe(env: Any, name: str) -> dict[str, Any]:  # noqa: ANN401
    """What an environment takes and gives, as JSON can carry it.

    An environment without ``observation_space`` is reset once and its first observation looked at;
    one without ``action_space`` takes integers.

    Raises:
        UnsupportedTypeError: a space whose values are not arrays of one shape.
    """
    space = getattr(env, "observation_space", None)
    if space is None:
        columns, structure = _columns_of_value(env.reset()[0])
    else:
        found = signature_columns(_fixed(space, "observation_space"))
        if found is None:
            raise UnsupportedTypeError(f"observation_space is {space}, which has no arrays")
        columns, structure = found
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    action_space = getattr(env, "action_space", None)
    described = {
        "id": name,
        "observation": [list(column) for column in columns],
        "structure": structure,
        "action": _describe_action(action_space),
        "max_episode_steps": limit,
    }
    plain = [_plain(space), _plain(action_space)]
    return described if None in plain else {**described, "spaces": plain}


def env_spec(described: Mapping[str, Any]) -> EnvSpec:
    """The specification that ``describe`` put into words."""
    action = described["action"]
    dtype, shape = action["dtype"], tuple(action["shape"])
    low, high = action.get("low"), action.get("high")
    return EnvSpec(
        id=described["id"],
        observation=signature_nest(described["observation"], described["structure"]),
        action=TensorSpec(shape, dtype),
        action_count=action.get("count"),
        action_low=None if low is None else np.array(low, dtype).reshape(shape),
        action_high=None if high is None else np.array(high, dtype).reshape(shape),
        max_episode_steps=described["max_episode_steps"],
        spaces=tuple(described["spaces"]) if "spaces" in described else None,
        action_start=action.get("start", 0),
    )


def gym_spaces(spec: EnvSpec) -> tuple[Any, Any]:
    """Gymnasium's observation and action space of a pool: the environment's own where it has any.

    Others are made from the arrays: bounds are those of the element type.
    """
    import gymnasium

    if spec.spaces is not None:
        return _space(gymnasium.spaces, spec.spaces[0]), _space(gymnasium.spaces, spec.spaces[1])
    if spec.observation_low is not None and spec.observation_high is not None:
        dtype = spec.observation.dtype.type
        box = gymnasium.spaces.Box
        observation = box(spec.observation_low, spec.observation_high, dtype=dtype)
    else:
        observation = _unbounded(gymnasium.spaces, spec.observation)
    if spec.action_count is not None:
        return observation, gymnasium.spaces.Discrete(spec.action_count)
    if spec.action_low is None or spec.action_high is None:
        return observation, _unbounded(gymnasium.spaces, spec.action)
    low, high, dtype = spec.action_low, spec.action_high, spec.action.dtype.type
    return observation, gymnasium.spaces.Box(low, high, dtype=dtype)


def as_gymnasiums(space: Any) -> Any:  # noqa: ANN401
    """A space of the old Gym as Gymnasium's; as it is where that is not installed."""
    try:
        import gymnasium
    except ModuleNotFoundError:
        return space
    plain = None if isinstance(space, gymnasium.Space) else _plain(space)
    return space if plain is None else _space(gymnasium.spaces, plain)


def _unbounded(spaces: Any, spec: Any) -> Any:  # noqa: ANN401
    if isinstance(spec, dict):
        return spaces.Dict({key: _unbounded(spaces, value) for key, value in spec.items()})
    if isinstance(spec, tuple):
        return spaces.Tuple([_unbounded(spaces, value) for value in spec])
    shape = tuple(extent or 0 for extent in spec.shape)
    if spec.dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, shape, spec.dtype.type)
    if spec.dtype.kind == "b":
        return spaces.MultiBinary(shape)
    limits = np.iinfo(spec.dtype)
    return spaces.Box(limits.min, limits.max, shape, spec.dtype.type)


def _plain(space: Any) -> Any:  # noqa: ANN401
    """A space in values that JSON can carry; None for one of another kind."""
    kind = type(space).__name__
    if kind == "Dict":
        inner = {key: _plain(value) for key, value in space.spaces.items()}
        return None if None in inner.values() else {"kind": kind, "spaces": list(inner.items())}
    if kind == "Tuple":
        each = [_plain(value) for value in space.spaces]
        return None if None in each else {"kind": kind, "spaces": each}
    if kind == "Discrete":
        # The old Gym's has no start.
        return {"kind": kind, "n": int(space.n), "start": int(getattr(space, "start", 0))}
    if kind == "MultiBinary":
        return {"kind": kind, "n": [int(n) for n in space.shape]}
    if kind == "MultiDiscrete":
        start = getattr(space, "start", np.zeros_like(space.nvec))
        given = {"nvec": space.nvec.tolist(), "start": start.tolist()}
        return {"kind": kind, "dtype": np.dtype(space.dtype).name, **given}
    if kind != "Box":
        return None
    bounds = {name: _bound(getattr(space, name)) for name in ("low", "high")}
    shape = [int(n) for n in space.shape]
    return {"kind": kind, "dtype": np.dtype(space.dtype).name, "shape": shape, **bounds}


def _bound(bound: np.ndarray) -> Any:  # noqa: ANN401
    """One number where all are the same, as pictures have it."""
    if bound.size and (bound == bound.flat[0]).all():
        return bound.flat[0].item()
    return bound.tolist()


def _space(spaces: Any, plain: dict[str, Any]) -> Any:  # noqa: ANN401
    """The space that ``_plain`` put into words."""
    kind = plain["kind"]
    if kind == "Dict":
        return spaces.Dict([(key, _space(spaces, value)) for key, value in plain["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([_space(spaces, value) for value in plain["spaces"]])
    if kind == "Discrete":
        return spaces.Discrete(plain["n"], start=plain["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(plain["n"] if len(plain["n"]) > 1 else plain["n"][0])
    dtype = np.dtype(plain["dtype"]).type
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(plain["nvec"], dtype=dtype, start=plain["start"])
    low, high = (_full(plain[name], plain["shape"], dtype) for name in ("low", "high"))
    return spaces.Box(low, high, dtype=dtype)


def _full(bound: Any, shape: list[int], dtype: Any) -> np.ndarray:  # noqa: ANN401
    return np.full(shape, bound, dtype)


def _columns_of_value(observation: object) -> tuple[list[Column], str]:
    paths, leaves, structure = _reverie.flatten(observation)
    columns = []
    for path, leaf in zip(paths, leaves, strict=True):
        dtype, shape = _reverie.describe(leaf, path)
        columns.append((path, dtype, list(shape)))
    return columns, structure


def _fixed(space: Any, path: str) -> Any:  # noqa: ANN401
    """The space as a nest of what has a shape and a dtype."""
    kind = type(space).__name__
    inner = getattr(space, "spaces", None)
    if isinstance(inner, Mapping):
        return {key: _fixed(value, f"{path}[{key!r}]") for key, value in inner.items()}
    if isinstance(inner, tuple) and kind == "Tuple":
        return tuple(_fixed(value, f"{path}[{i}]") for i, value in enumerate(inner))
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape is None or dtype is None or np.dtype(dtype).kind not in "biufc":
        raise UnsupportedTypeError(
            f"{path} is {space}, whose values are not numbers of one shape; wrap the environment "
            "so that it gives a Box, Discrete, MultiBinary, MultiDiscrete, or a Dict or Tuple of "
            "these"
        )
    return TensorSpec(tuple(shape), dtype)


def _describe_action(space: Any) -> dict[str, Any]:  # noqa: ANN401
    if space is None:
        return {"dtype": "int64", "shape": [], "start": 0}
    kind = type(space).__name__
    if kind == "Discrete":
        return {
            "dtype": "int64",
            "shape": [],
            "start": int(getattr(space, "start", 0)),
            "count": int(space.n),
        }
    if kind not in ("Box", "MultiDiscrete", "MultiBinary"):
        raise UnsupportedTypeError(
            f"action_space is {space}; actions must be one array: wrap the environment so that it "
            "takes a Discrete, Box, MultiDiscrete or MultiBinary"
        )
    described = {"dtype": np.dtype(space.dtype).name, "shape": [int(n) for n in space.shape]}
    if kind == "Box":
        described |= {"low": space.low.ravel().tolist(), "high": space.high.ravel().tolist()}
    elif kind == "MultiDiscrete":
        start = getattr(space, "start", np.zeros_like(space.nvec))  # the old Gym's has none
        described |= {
            "low": start.ravel().tolist(),
            "high": (start + space.nvec - 1).ravel().tolist(),
        }
    return described
