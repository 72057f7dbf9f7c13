"""Spaces of Gymnasium as the columns of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reverie import _reverie
from reverie.envs.backend import EnvSpec
from reverie.errors import UnsupportedTypeError
from reverie.specs import TensorSpec, signature_columns, signature_nest

Column = tuple[str, str, list[int]]


def describe(env: Any, name: str) -> dict[str, Any]:  # noqa: ANN401
    """What an environment takes and gives, as JSON can carry it.

    An environment without ``observation_space`` is reset once and its first observation looked at;
    one without ``action_space`` takes integers.

    Raises:
        UnsupportedTypeError: a space whose values are no arrays of one shape.
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
    return {
        "id": name,
        "observation": [list(column) for column in columns],
        "structure": structure,
        "action": _describe_action(getattr(env, "action_space", None)),
        "max_episode_steps": limit,
    }


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
    )


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
            f"{path} is {space}, whose values are no numbers of one shape; wrap the environment so "
            "that it gives a Box, Discrete, MultiBinary, MultiDiscrete, or a Dict or Tuple of them"
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
            "start": int(space.start),
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
        highest = (space.nvec - 1).ravel().tolist()
        described |= {"low": [0] * len(highest), "high": highest}
    return described
