"""What is done to each array of a nest: of a dict, a tuple, a dataclass, or a single one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reverie import _reverie


def mapped(nest: Any, function: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """The same nest with ``function(leaf)`` in the place of each leaf."""
    if isinstance(nest, np.ndarray):
        return function(nest)
    if isinstance(nest, dict):
        return {key: mapped(value, function) for key, value in nest.items()}
    if type(nest) in (list, tuple):
        return type(nest)(mapped(value, function) for value in nest)
    _, leaves, structure = _reverie.flatten(nest)  # a named tuple, a dataclass
    return _reverie.fold(structure, [function(leaf) for leaf in leaves])
