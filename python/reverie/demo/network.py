"""A dense network in NumPy: forward, backward, and Adam.

All parameters of a network lie in one flat vector, and the layers are views into it. So a copy,
a Polyak average and an optimiser's step are each a few operations over one array, which at this
size costs less than the loop over the layers would.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


class Network:
    """Dense layers with rectifiers between them and a linear output.

    Args:
        sizes: the widths, from the input to the output: ``(4, 128, 128, 2)``.
        rng: draws the weights, He et al. 2015; biases start at 0.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator) -> None:
        self.sizes = tuple(sizes)
        shapes = list(pairwise(self.sizes))
        self.parameters: FloatArray = np.zeros(
            sum(rows * columns + columns for rows, columns in shapes), np.float32
        )
        self._layers = self._views(self.parameters)
        for weight, _ in self._layers:
            weight[:] = rng.normal(0.0, np.sqrt(2.0 / weight.shape[0]), weight.shape)

    def _views(self, flat: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """The weight and the bias of each layer, as views into ``flat``."""
        views = []
        begin = 0
        for rows, columns in pairwise(self.sizes):
            end = begin + rows * columns
            weight = flat[begin:end].reshape(rows, columns)
            views.append((weight, flat[end : end + columns]))
            begin = end + columns
        return views

    def __call__(self, inputs: FloatArray) -> FloatArray:
        """``[B, sizes[0]]`` or ``[sizes[0]]`` to the outputs, of ``sizes[-1]`` columns."""
        values = inputs
        for weight, bias in self._layers[:-1]:
            values = values @ weight
            values += bias
            np.maximum(values, 0.0, out=values)
        weight, bias = self._layers[-1]
        return values @ weight + bias

    def forward(self, inputs: FloatArray) -> list[FloatArray]:
        """The inputs of each layer, ``[B, width]``, and the outputs last: what `gradient` needs."""
        values = [inputs]
        for weight, bias in self._layers[:-1]:
            hidden = values[-1] @ weight
            hidden += bias
            values.append(np.maximum(hidden, 0.0, out=hidden))
        weight, bias = self._layers[-1]
        values.append(values[-1] @ weight + bias)
        return values

    def gradient(self, values: list[FloatArray], output_gradient: FloatArray) -> FloatArray:
        """The gradient of a loss in the parameters, as one flat vector.

        Args:
            values: what `forward` gave.
            output_gradient: ``[B, sizes[-1]]``, the gradient of the loss in the outputs.
        """
        flat = np.empty_like(self.parameters)
        upstream = output_gradient
        for index, (weight, bias) in reversed(list(enumerate(self._views(flat)))):
            np.matmul(values[index].T, upstream, out=weight)
            upstream.sum(axis=0, out=bias)
            if index > 0:
                upstream = upstream @ self._layers[index][0].T
                upstream *= values[index] > 0.0
        return flat


class Adam:
    """Adam over one flat vector of parameters.

    Args:
        parameters: changed in place by each `step`.

    Source:
        Kingma & Ba 2015, algorithm 1.
    """

    def __init__(self, parameters: FloatArray, *, epsilon: float = 1e-8) -> None:
        self._parameters = parameters
        self._mean = np.zeros_like(parameters)
        self._square = np.zeros_like(parameters)
        self._scratch = np.empty_like(parameters)
        self._epsilon = epsilon
        self._step_count = 0

    @property
    def state(self) -> dict[str, FloatArray]:
        """What it knows beside the parameters. The arrays are its own."""
        count = np.array([self._step_count], np.float32)
        return {"mean": self._mean, "square": self._square, "step_count": count}

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Goes on from a `state`."""
        self._mean[:] = state["mean"]
        self._square[:] = state["square"]
        self._step_count = int(state["step_count"][0])

    def step(self, gradient: FloatArray, learning_rate: float) -> None:
        """Moves the parameters against ``gradient``, a vector of the same length."""
        mean_decay, square_decay = 0.9, 0.999
        self._step_count += 1
        scratch = self._scratch
        self._mean *= mean_decay
        self._mean += np.multiply(gradient, 1.0 - mean_decay, out=scratch)
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1.0 - square_decay
        self._square *= square_decay
        self._square += scratch
        # Both moments start at 0; the correction is folded into the step and into epsilon.
        correction = math.sqrt(1.0 - square_decay**self._step_count)
        step_size = learning_rate * correction / (1.0 - mean_decay**self._step_count)
        np.sqrt(self._square, out=scratch)
        scratch += self._epsilon * correction
        np.divide(self._mean, scratch, out=scratch)
        scratch *= step_size
        self._parameters -= scratch
