"""Dense networks on the CPU, without a framework: call, train, save, load.

    net = reverie.nn.Mlp((8, 256, 256, 4), seed=1)
    adam = reverie.nn.Adam(net, learning_rate=5e-4)
    outputs = net.forward(obs)                          # [B, 4]
    gradient = net.backward(derivative_of_the_loss)     # of the shape of the outputs
    adam.step(net, gradient, norm_max=10.0)
    net.save("policy.safetensors")

All parameters of a network are in one flat float32 vector, in which each layer has a weight of
``[in, out]`` and a bias of ``[out]``, their rows padded with zeros to a multiple of 4. A gradient
is such a vector too: `Mlp.views` shows the layers of either, and whatever NumPy does with a vector
(sums of several learners' gradients, norms, averages) works on them.

A network allows one call at a time: a concurrent call of another thread is refused, so give each
thread a `Mlp.copy`. Calls release the interpreter's lock. The same seed gives the same bits on one
machine, whatever else it is running.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from reverie import _checks, _reverie
from reverie._options import checked_seed
from reverie._process_bound import ProcessBound
from reverie.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray: TypeAlias = NDArray[np.float32]

__all__ = ["Adam", "Mlp"]

Activation: TypeAlias = Literal["relu", "tanh", "none"]


def _activation(name: str, value: str | None) -> str | None:
    return None if value is None else _checks.choice(name, value, ("relu", "tanh", "none"))


class Mlp(ProcessBound):
    """Dense layers, each followed by an activation.

    Args:
        widths: from the inputs to the outputs, at least two: ``(8, 256, 256, 4)``.
        activation: after all layers but the last: ``"relu"``, ``"tanh"`` or ``"none"``.
        output_activation: after the last one.
        initializer: ``"uniform"`` draws weights and biases as ``torch.nn.Linear`` does, uniform
            within ``1 / sqrt(in)``; ``"orthogonal"`` draws orthogonal weights and biases of 0.
        gains: for ``"orthogonal"``, a factor for each layer's weights. Omitted: sqrt(2) before
            ReLU, 5/3 before tanh, 1 for the outputs.
        seed: seeds the initial parameters. Omitted: another seed each time, see `seed`.

    Raises:
        InvalidArgumentError: an invalid width, activation, initializer or gain.

    Sources:
        He et al. 2015 (uniform, as PyTorch has it), Saxe et al. 2014 (orthogonal).
    """

    _stays_because = "an Mlp cannot be pickled; save() it, and load() it in the other process"
    _keeps_no_rows = False  # of a forward pass of no rows, which the native one does not know

    def __init__(
        self,
        widths: Sequence[int],
        *,
        activation: Activation = "relu",
        output_activation: Activation = "none",
        initializer: Literal["uniform", "orthogonal"] = "uniform",
        gains: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> None:
        layers = [
            _checks.integer("each of widths", width, 1)
            for width in _checks.items("widths", widths, "integers")
        ]
        _checks.choice("initializer", initializer, ("uniform", "orthogonal"))
        _activation("activation", _checks.text("activation", activation))
        _activation("output_activation", _checks.text("output_activation", output_activation))
        seed = checked_seed(seed)
        self._native = _reverie.make_mlp(layers, activation, output_activation)
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little") >> 1  # seeds have 63 bits
        self._seed: int | None
        if initializer == "orthogonal":
            if gains is None:
                behind = {"relu": math.sqrt(2.0), "tanh": 5.0 / 3.0, "none": 1.0}[activation]
                gains = [behind] * (len(layers) - 2) + [1.0]
            scales = [
                _checks.number("each of gains", gain)
                for gain in _checks.items("gains", gains, "numbers")
            ]
            self._seed = self._native.initialize_orthogonal(scales, seed)
        else:
            if gains is not None:
                raise InvalidArgumentError("gains are for initializer='orthogonal'; leave them out")
            self._seed = self._native.initialize_uniform(seed)
        self._metadata: dict[str, str] = {}

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        activation: Activation | None = None,
        output_activation: Activation | None = None,
    ) -> Mlp:
        """The network that `save` wrote, or PyTorch for a ``Sequential`` of ``Linear`` layers.

        Args:
            path: a safetensors file.
            activation: needed for a file that does not name it, as PyTorch's.
            output_activation: likewise.

        Raises:
            NotFoundError: there is no such file.
            DataLossError: the file is damaged, or is not a chain of dense layers.
            InvalidArgumentError: an activation is missing, or differs from the file's.
        """
        native, metadata = _reverie.load_mlp(
            _checks.path("path", path),
            _activation("activation", activation),
            _activation("output_activation", output_activation),
        )
        return cls._around(native, metadata)

    @classmethod
    def _around(cls, native: _reverie.Mlp, metadata: dict[str, str]) -> Mlp:
        network = cls.__new__(cls)
        network._native = native
        network._seed = None
        network._metadata = metadata
        return network

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        """Writes a safetensors file that PyTorch's ``Sequential(Linear, ReLU, ...)`` can load.

        Args:
            path: replaced atomically, whatever happens meanwhile.
            metadata: stored beside the activations; `metadata` of a loaded network returns it.

        Raises:
            NotFoundError: there is no such folder.
            ResourceExhaustedError: the disk is full.
            PermissionDeniedError: the file may not be written.
        """
        words = self._metadata
        if metadata is not None:
            words = {
                _checks.text("each name of metadata", name): _checks.text("metadata", word)
                for name, word in _checks.mapping("metadata", metadata, "str").items()
            }
        self._native.save(_checks.path("path", path), dict(words))

    def copy(self) -> Mlp:
        """Another network with the same parameters."""
        return self._around(self._native.copy(), dict(self._metadata))

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Mlp:
        return self.copy()

    @property
    def widths(self) -> tuple[int, ...]:
        """From the inputs to the outputs."""
        return tuple(self._native.widths)

    @property
    def activation(self) -> str:
        """The activation after all layers but the last."""
        return self._native.hidden

    @property
    def output_activation(self) -> str:
        """The activation after the last layer."""
        return self._native.output

    @property
    def seed(self) -> int | None:
        """The seed of the initial parameters; None for a copy and a loaded network."""
        return self._seed

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the file that this network was loaded from."""
        return dict(self._metadata)

    @property
    def parameters(self) -> FloatArray:
        """All parameters as one vector: a view, so writing to it changes the network."""
        return self._native.parameters

    def views(self, vector: FloatArray | None = None) -> list[tuple[FloatArray, FloatArray]]:
        """The weight ``[in, out]`` and the bias ``[out]`` of each layer, as views into ``vector``.

        Args:
            vector: as long as `parameters`, such as a gradient. Omitted: the parameters.
        """
        flat = self._vector("vector", self.parameters if vector is None else vector)
        views = []
        for weight, bias, inputs, outputs, stride in self._native.layers:
            matrix = flat[weight : weight + inputs * stride].reshape(inputs, stride)
            views.append((matrix[:, :outputs], flat[bias : bias + outputs]))
        return views

    def state_dict(self) -> dict[str, FloatArray]:
        """Copies of the parameters by the names and in the shapes of PyTorch's ``Sequential``."""
        state = {}
        for name, (weight, bias) in zip(self._names(), self.views(), strict=True):
            state[f"{name}.weight"] = np.ascontiguousarray(weight.T)
            state[f"{name}.bias"] = bias.copy()
        return state

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Takes parameters by the names and in the shapes that `state_dict` gives.

        Raises:
            InvalidArgumentError: a name is missing or unknown, or a shape differs.
        """
        targets: dict[str, FloatArray] = {}
        for name, (weight, bias) in zip(self._names(), self.views(), strict=True):
            targets[f"{name}.weight"] = weight.T
            targets[f"{name}.bias"] = bias
        state = _checks.mapping("state", state, "arrays by name")
        if state.keys() != targets.keys():
            raise InvalidArgumentError(
                f"state has the names {_checks.shown(list(state))}; this network has "
                f"{sorted(targets)}"
            )
        arrays = {name: _checks.array(name, value) for name, value in state.items()}
        for name, array in arrays.items():
            if array.shape != targets[name].shape:
                raise InvalidArgumentError(
                    f"{name} has the shape {array.shape}; it must be {targets[name].shape}"
                )
        for name, array in arrays.items():
            targets[name][...] = array

    def _names(self) -> list[str]:
        modules = 1 if self.activation == "none" else 2
        return [str(modules * layer) for layer in range(len(self.widths) - 1)]

    def __call__(self, inputs: ArrayLike) -> FloatArray:
        """Only the outputs.

        Args:
            inputs: ``[B, in]``, or ``[in]`` for one row.

        Returns:
            ``[B, out]``, or ``[out]``; float32.
        """
        rows = _checks.array("inputs", inputs)
        if rows.ndim == 1:
            outputs: FloatArray = self._run(rows[None], keeps=False)[0]
            return outputs
        return self._run(rows, keeps=False)

    def forward(self, inputs: ArrayLike) -> FloatArray:
        """The outputs, with what `backward` needs kept until the next call.

        Args:
            inputs: ``[B, in]``.

        Returns:
            ``[B, out]`` float32.
        """
        return self._run(_checks.array("inputs", inputs), keeps=True)

    def _run(self, inputs: FloatArray, *, keeps: bool) -> FloatArray:
        width = self._native.widths[0]
        if inputs.ndim != 2 or inputs.shape[1] != width:
            raise InvalidArgumentError(
                f"inputs has the shape {inputs.shape}; it must be [B, {width}]"
            )
        outputs = np.empty((len(inputs), self._native.widths[-1]), np.float32)
        if len(inputs) > 0:
            self._native.forward(inputs, keeps, outputs)
        self._keeps_no_rows = keeps and len(inputs) == 0
        return outputs

    def backward(self, output_gradient: ArrayLike) -> FloatArray:
        """The gradient of a loss in the parameters.

        Args:
            output_gradient: ``[B, out]``, the loss's gradient in the outputs of the last `forward`.

        Returns:
            a vector of the length of `parameters`.

        Raises:
            FailedPreconditionError: there was no `forward`, or another call since.
        """
        array = self._output_gradient(output_gradient)
        if self._keeps_no_rows:
            return np.zeros(self._native.float_count, np.float32)
        return self._native.backward(array)

    def input_gradient(self, output_gradient: ArrayLike) -> FloatArray:
        """The gradient of a loss in the inputs, as an actor needs it from a critic.

        Args:
            output_gradient: ``[B, out]``, the loss's gradient in the outputs of the last `forward`.

        Returns:
            ``[B, in]`` float32.

        Raises:
            FailedPreconditionError: there was no `forward`, or another call since.
        """
        array = self._output_gradient(output_gradient)
        if self._keeps_no_rows:
            return np.zeros((0, self._native.widths[0]), np.float32)
        gradient = np.empty((self._native.kept_rows, self._native.widths[0]), np.float32)
        self._native.input_gradient(array, gradient)
        return gradient

    def _output_gradient(self, value: ArrayLike) -> FloatArray:
        """As an array of the outputs' shape; a flat one of as many numbers is taken too."""
        array: FloatArray = _checks.array("output_gradient", value)
        shape = (0 if self._keeps_no_rows else self._native.kept_rows, self._native.widths[-1])
        has_pass = self._keeps_no_rows or shape[0] > 0
        if has_pass and array.shape not in (shape, (math.prod(shape),)):
            raise InvalidArgumentError(
                f"output_gradient has the shape {array.shape}; it must be {shape}, as the outputs"
            )
        return array

    def approach(self, source: Mlp, rate: float) -> None:
        """``self += rate (source - self)``: a target network follows by Polyak averaging.

        Args:
            source: a network of the same widths.
            rate: in ``[0, 1]``; 1 copies.

        Source:
            Lillicrap et al. 2016, section 3.
        """
        _checks.instance("source", source, Mlp)
        if source.widths != self.widths:
            raise InvalidArgumentError(
                f"source has the widths {source.widths}; they must be {self.widths}"
            )
        rate = _checks.number("rate", rate, 0.0, 1.0)
        self._native.approach(source._native, rate)

    def _vector(self, name: str, value: ArrayLike) -> FloatArray:
        vector: FloatArray = _checks.array(name, value)
        count = self._native.float_count
        if vector.shape != (count,):
            raise InvalidArgumentError(
                f"{name} has the shape {vector.shape}; it must be ({count},), as the parameters"
            )
        return vector

    def __repr__(self) -> str:
        return (
            f"Mlp({self.widths}, activation={self.activation!r}, "
            f"output_activation={self.output_activation!r})"
        )


class Adam(ProcessBound):
    """Adam over the parameters of one network.

    Args:
        network: the one that it will step.
        learning_rate: from 1e-30 to 1e30; may be set later, then to any above 0 and up to 1e30.
        betas: the decay of the means of the gradient and of its square, each in ``[0, 1)``.
        epsilon: from 1e-30 to 1e30.

    Raises:
        InvalidArgumentError: a number out of range.

    Source:
        Kingma & Ba 2015, algorithm 1; ``torch.optim.Adam`` within rounding.
    """

    _stays_because = (
        "an Adam cannot be pickled or copied; make another, and restore() there what state() gives"
    )

    def __init__(
        self,
        network: Mlp,
        *,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self._widths = _checks.instance("network", network, Mlp).widths
        decays = _checks.items("betas", betas, "two numbers")
        if len(decays) != 2:
            raise InvalidArgumentError(f"betas is {_checks.shown(betas)}; it must be two numbers")
        self._native = _reverie.Adam(
            network._native,
            _checks.number("learning_rate", learning_rate, above=0.0),
            _checks.number("each of betas", decays[0]),
            _checks.number("each of betas", decays[1]),
            _checks.number("epsilon", epsilon),
        )

    @property
    def learning_rate(self) -> float:
        """The size of a step, about."""
        return self._native.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._native.learning_rate = _checks.number("learning_rate", value, above=0.0)

    @property
    def step_count(self) -> int:
        """Steps so far."""
        return self._native.step_count

    def step(self, network: Mlp, gradient: ArrayLike, *, norm_max: float | None = None) -> float:
        """Moves the parameters against ``gradient``.

        Args:
            network: a network of the widths that this was made for.
            gradient: what `Mlp.backward` gave.
            norm_max: a longer gradient is scaled to this norm first.

        Returns:
            the norm of ``gradient`` as it was given.

        Raises:
            InvalidArgumentError: the gradient has a NaN or an infinity, with the layer's name;
                nothing was changed, and training may continue.
        """
        _checks.instance("network", network, Mlp)
        if network.widths != self._widths:
            raise InvalidArgumentError(
                f"network has the widths {network.widths}; this Adam is for {self._widths}"
            )
        if norm_max is not None:
            norm_max = _checks.number("norm_max", norm_max, above=0.0, finite=False)
        vector = network._vector("gradient", gradient)
        return self._native.step(network._native, vector, norm_max)

    def state(self) -> tuple[FloatArray, FloatArray, int]:
        """Copies of both moments, and the number of steps: what a checkpoint keeps."""
        return (*self._native.state(), self._native.step_count)

    def restore(self, mean: ArrayLike, square: ArrayLike, step_count: int) -> None:
        """Restores what `state` returned."""
        first = _checks.array("mean", mean)
        second = _checks.array("square", square)
        count = len(self._native.state()[0])
        step_count = _checks.integer("step_count", step_count, 0)
        for name, moment in (("mean", first), ("square", second)):
            if moment.shape != (count,):
                raise InvalidArgumentError(
                    f"{name} has the shape {moment.shape}; it must be ({count},)"
                )
        self._native.restore(first, second, step_count)
