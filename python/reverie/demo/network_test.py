"""Forward and backward passes against a model in float64, and Adam against a table."""

from itertools import pairwise

import numpy as np
import pytest

from reverie.demo.network import Adam, Network

SIZES = (3, 7, 5, 2)


def outputs_of(parameters, inputs):
    """The model: the network as it is defined, layer after layer, in float64."""
    begin = 0
    values = inputs.astype(np.float64)
    for index, (rows, columns) in enumerate(pairwise(SIZES)):
        weight = parameters[begin : begin + rows * columns].reshape(rows, columns)
        bias = parameters[begin + rows * columns : begin + rows * columns + columns]
        begin += rows * columns + columns
        values = values @ weight + bias
        if index < len(SIZES) - 2:
            values = np.maximum(values, 0.0)
    return values


@pytest.fixture
def network():
    made = Network(SIZES, np.random.default_rng(3))
    made.parameters += np.random.default_rng(4).normal(0, 0.1, made.parameters.shape)
    return made


@pytest.fixture
def inputs():
    return np.random.default_rng(5).normal(size=(6, SIZES[0])).astype(np.float32)


def test_the_outputs_are_those_of_the_definition(network, inputs):
    expected = outputs_of(network.parameters.astype(np.float64), inputs)
    np.testing.assert_allclose(network(inputs), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(network.forward(inputs)[-1], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(network(inputs[2]), expected[2], rtol=1e-4, atol=1e-6)


def test_the_gradient_is_that_of_finite_differences(network, inputs):
    mix = np.random.default_rng(6).normal(size=(6, SIZES[-1])).astype(np.float32)
    parameters = network.parameters.astype(np.float64)
    expected = np.empty_like(parameters)
    for index in range(len(parameters)):
        step = np.zeros_like(parameters)
        step[index] = 1e-6
        above = (mix * outputs_of(parameters + step, inputs)).sum()
        below = (mix * outputs_of(parameters - step, inputs)).sum()
        expected[index] = (above - below) / 2e-6
    gradient = network.gradient(network.forward(inputs), mix)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)


def test_all_arithmetic_stays_in_float32(network, inputs):
    values = network.forward(inputs)
    gradient = network.gradient(values, values[-1])
    Adam(network.parameters).step(gradient, 1e-3)
    assert {array.dtype for array in (*values, gradient, network.parameters)} == {
        np.dtype(np.float32)
    }


def test_adam_takes_the_steps_worked_by_hand():
    parameters = np.array([1.0, 1.0], np.float32)
    adam = Adam(parameters)
    # The first step is the learning rate, whatever the gradient's length.
    adam.step(np.array([4.0, -0.25], np.float32), 0.1)
    np.testing.assert_allclose(parameters, [0.9, 1.1], rtol=1e-6)
    # Second: mean = (.9 * .4 + 0) / .19, square = (.999 * .016 + 0) / .001999, both corrected.
    adam.step(np.array([0.0, 0.0], np.float32), 0.1)
    move = 0.1 * (0.36 / 0.19) / np.sqrt(0.015984 / 0.001999)
    np.testing.assert_allclose(parameters, [0.9 - move, 1.1 + move], rtol=1e-5)
