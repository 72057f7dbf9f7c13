"""The networks of a `TorchAgent`: dense, behind convolutions where observations are pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from reverie import _checks
from reverie.envs.backend import EnvSpec
from reverie.errors import InvalidArgumentError, UnsupportedTypeError


class Observations:
    """What observations are, and what a network's first layers make of them."""

    def __init__(self, spec: EnvSpec) -> None:
        shape = getattr(spec.observation, "shape", None)
        if shape is None:
            raise UnsupportedTypeError(
                f"{spec.id} observes a nest; the algorithms take a single array: wrap it with "
                "gymnasium.wrappers.FlattenObservation"
            )
        self.shape = tuple(1 if n is None else int(n) for n in shape)
        dtype = np.dtype(spec.observation.dtype)
        self.is_picture = len(self.shape) == 3 and dtype == np.uint8
        # Channels first, or last as most environments have them.
        self.is_last = self.is_picture and self.shape[2] <= 4 < self.shape[0]
        plain = spec.spaces[0] if spec.spaces else {"kind": "Box"}
        if plain["kind"] == "MultiDiscrete" or 0 in shape:
            raise UnsupportedTypeError(
                f"{spec.id} observes a {plain['kind']} space of the shape {self.shape}; the "
                "algorithms take Box, Discrete or MultiBinary with at least one number: register "
                "it with gymnasium.wrappers.FlattenObservation around it"
            )
        self.env = spec.id
        self.count = int(plain["n"]) if plain["kind"] == "Discrete" else 0
        self.first = int(plain.get("start", 0)) if self.count else 0

    def one_hot(self, observation: Tensor) -> Tensor:
        """``[B, count]`` for ``[B]`` observations of a Discrete space.

        Raises:
            InvalidArgumentError: one is not of the space; on a CPU, which looks.
        """
        try:
            made = nn.functional.one_hot(observation.long() - self.first, self.count)
        except RuntimeError:
            if observation.device.type != "cpu":
                raise
            raise InvalidArgumentError(
                f"{self.env} gave the observations {_checks.shown(observation.numpy())}; its "
                f"Discrete space has {self.first} to {self.first + self.count - 1}"
            ) from None
        return made.float()


class Network(nn.Module):  # type: ignore[misc,unused-ignore]
    """Dense layers with rectifiers, behind convolutions where observations are pictures."""

    def __init__(
        self, observations: Observations, hidden: Sequence[int], outputs: int, more_inputs: int
    ) -> None:
        super().__init__()
        self._obs = observations
        self.front: nn.Module | None = None
        width = observations.count or int(np.prod(observations.shape, dtype=np.int64))
        if observations.is_picture:
            shape = observations.shape
            channels, height, across = (shape[2], *shape[:2]) if observations.is_last else shape
            self.front = _convolutions(channels, min(height, across))
            with torch.no_grad():
                width = self.front(torch.zeros(1, channels, height, across)).shape[1]
        layers: list[nn.Module] = []
        for before, after in zip([width + more_inputs, *hidden], hidden, strict=False):
            layers += [nn.Linear(before, after), nn.ReLU()]
        layers.append(nn.Linear(hidden[-1] if hidden else width + more_inputs, outputs))
        self.dense = nn.Sequential(*layers)

    def forward(self, observation: Tensor, action: Tensor | None = None) -> Tensor:
        """``[B, outputs]`` for ``[B, ...]`` observations, and ``[B, width]`` actions."""
        if self._obs.count:
            inputs = self._obs.one_hot(observation)
        elif self.front is not None:
            picture = observation.permute(0, 3, 1, 2) if self._obs.is_last else observation
            inputs = self.front(picture.float() / 255)
        else:
            inputs = observation.reshape(len(observation), -1).float()
        if action is not None:
            inputs = torch.cat([inputs, action], 1)
        made: Tensor = self.dense(inputs)
        return made


def _convolutions(channels: int, side: int) -> nn.Module:
    """Those of Mnih et al. 2015; smaller ones for pictures that these would not fit."""
    if side >= 36:
        sizes = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    else:
        sizes = [(16, 3, 2 if side > 12 else 1), (32, 3, 2 if side > 8 else 1)]
    padding = 0 if side >= 36 else 1
    layers: list[nn.Module] = []
    for outputs, kernel, stride in sizes:
        layers += [nn.Conv2d(channels, outputs, kernel, stride, padding), nn.ReLU()]
        channels = outputs
    return nn.Sequential(*layers, nn.Flatten())
