"""Networks compared with PyTorch and the safetensors package, and what they refuse."""

import copy
import math
import resource
import signal
import threading

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from reverie import errors, nn

SHAPES = [
    ((8, 64, 64, 4), "relu", "none"),
    ((3, 17, 5, 1), "tanh", "none"),
    ((6, 33, 30, 2), "relu", "tanh"),
    ((5, 7), "relu", "none"),
    ((4, 6, 3), "none", "relu"),
]
MODULES = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}


def torch_twin(net):
    """The same network in PyTorch, with the same parameters."""
    layers = []
    last = len(net.widths) - 2
    for index in range(last + 1):
        layers.append(torch.nn.Linear(net.widths[index], net.widths[index + 1]))
        activation = net.activation if index < last else net.output_activation
        if activation != "none":
            layers.append(MODULES[activation]())
    twin = torch.nn.Sequential(*layers)
    state = {name: torch.from_numpy(value) for name, value in net.state_dict().items()}
    twin.load_state_dict(state)
    return twin


def torch_gradients(twin):
    return {name: value.grad.numpy() for name, value in twin.named_parameters()}


def named(net, vector):
    """A flat vector as layers, with PyTorch's names and shapes."""
    other = net.copy()
    other.parameters[:] = vector
    return other.state_dict()


@pytest.mark.parametrize(("widths", "activation", "output"), SHAPES)
def test_outputs_and_both_gradients_match_pytorch(widths, activation, output):
    rng = np.random.default_rng(5)
    net = nn.Mlp(widths, activation=activation, output_activation=output, seed=1)
    inputs = rng.normal(size=(37, widths[0])).astype(np.float32)
    shares = rng.normal(size=(37, widths[-1])).astype(np.float32)

    twin = torch_twin(net)
    torch_inputs = torch.from_numpy(inputs).requires_grad_()
    expected = twin(torch_inputs)
    expected.backward(torch.from_numpy(shares))

    np.testing.assert_allclose(net(inputs), expected.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(net.forward(inputs), net(inputs))
    net.forward(inputs)
    gradients = named(net, net.backward(shares))
    for name, value in torch_gradients(twin).items():
        np.testing.assert_allclose(gradients[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    net.forward(inputs)
    np.testing.assert_allclose(net.input_gradient(shares), torch_inputs.grad, rtol=1e-4, atol=1e-5)


def test_a_hundred_clipped_adam_steps_match_pytorch():
    rng = np.random.default_rng(6)
    net = nn.Mlp((5, 32, 32, 3), seed=2)
    twin = torch_twin(net)
    adam = nn.Adam(net, learning_rate=3e-3, betas=(0.8, 0.99), epsilon=1e-6)
    theirs = torch.optim.Adam(twin.parameters(), lr=3e-3, betas=(0.8, 0.99), eps=1e-6)
    for _ in range(100):
        inputs = rng.normal(size=(16, 5)).astype(np.float32)
        targets = np.sin(inputs[:, :3]).astype(np.float32)
        outputs = net.forward(inputs)
        norm = adam.step(net, net.backward(outputs - targets), norm_max=1.0)
        loss = ((twin(torch.from_numpy(inputs)) - torch.from_numpy(targets)) ** 2).sum() / 2
        theirs.zero_grad()
        loss.backward()
        their_norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
        theirs.step()
        assert norm == pytest.approx(float(their_norm), rel=1e-3)
    for name, value in twin.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], value, atol=2e-4, err_msg=name)
    assert adam.step_count == 100


def test_a_network_learns_a_function():
    rng = np.random.default_rng(7)
    net = nn.Mlp((1, 32, 32, 1), activation="tanh", seed=3)
    adam = nn.Adam(net, learning_rate=1e-2)
    for _ in range(600):
        x = rng.uniform(-1, 1, (64, 1))
        error = net.forward(x) - np.sin(3 * x)
        adam.step(net, net.backward(error / len(x)))
    x = np.linspace(-1, 1, 50)[:, None]
    assert np.abs(net(x) - np.sin(3 * x)).max() < 0.05


def test_a_single_row_needs_no_batch_axis():
    net = nn.Mlp((3, 8, 2), seed=4)
    row = np.array([0.1, -0.2, 0.3], np.float32)
    assert net(row).shape == (2,)
    np.testing.assert_allclose(net(row), net(row[None])[0], rtol=1e-6)
    assert net(np.zeros((0, 3))).shape == (0, 2)


def test_the_same_seed_gives_the_same_network_and_no_seed_a_new_one():
    first, second = nn.Mlp((4, 8, 2), seed=9), nn.Mlp((4, 8, 2), seed=9)
    np.testing.assert_array_equal(first.parameters, second.parameters)
    drawn = nn.Mlp((4, 8, 2))
    assert (drawn.parameters != nn.Mlp((4, 8, 2)).parameters).any()
    np.testing.assert_array_equal(drawn.parameters, nn.Mlp((4, 8, 2), seed=drawn.seed).parameters)


def test_uniform_parameters_are_distributed_as_in_pytorch():
    ours = np.concatenate([nn.Mlp((100, 50), seed=s).state_dict()["0.weight"] for s in range(20)])
    torch.manual_seed(1)
    theirs = np.concatenate([torch.nn.Linear(100, 50).weight.detach() for _ in range(20)])
    probabilities = np.linspace(0, 1, 21)
    np.testing.assert_allclose(
        np.quantile(ours, probabilities), np.quantile(theirs, probabilities), atol=3e-3
    )


def test_orthogonal_weights_have_the_gains_of_their_activations():
    weight, bias = nn.Mlp((6, 16, 16, 3), initializer="orthogonal", seed=5).views()[1]
    np.testing.assert_allclose(weight.T @ weight, 2 * np.eye(16), atol=1e-5)
    assert not bias.any()
    small = nn.Mlp((6, 3), initializer="orthogonal", gains=[0.01], seed=5).views()[0][0]
    np.testing.assert_allclose(small.T @ small, 1e-4 * np.eye(3), atol=1e-8)


@pytest.mark.parametrize(("widths", "activation", "output"), SHAPES)
def test_a_saved_network_can_be_read_by_safetensors_pytorch_and_mlp(
    widths, activation, output, tmp_path
):
    path = tmp_path / "net.safetensors"
    net = nn.Mlp(widths, activation=activation, output_activation=output, seed=8)
    net.save(path, metadata={"algorithm": 'a "name"\n\\ ü'})

    arrays = safetensors.numpy.load_file(path)
    assert arrays.keys() == net.state_dict().keys()
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(arrays[name], value)
    with safetensors.safe_open(path, "numpy") as opened:
        assert opened.metadata()["algorithm"] == 'a "name"\n\\ ü'
    torch_twin(net).load_state_dict(safetensors.torch.load_file(path))

    loaded = nn.Mlp.load(path)
    assert repr(loaded) == repr(net)
    assert loaded.metadata["algorithm"] == 'a "name"\n\\ ü'
    np.testing.assert_array_equal(loaded.parameters, net.parameters)


def test_a_pytorch_file_can_be_read_if_the_activations_are_given(tmp_path):
    path = tmp_path / "theirs.safetensors"
    twin = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    safetensors.torch.save_file(twin.state_dict(), path)
    with pytest.raises(errors.InvalidArgumentError, match="does not name its hidden activation"):
        nn.Mlp.load(path)
    net = nn.Mlp.load(path, activation="tanh", output_activation="none")
    inputs = torch.randn(10, 3, generator=torch.Generator().manual_seed(2))
    np.testing.assert_allclose(net(inputs), twin(inputs).detach(), rtol=1e-5, atol=1e-6)


def test_damaged_missing_and_foreign_files_raise_typed_errors(tmp_path):
    path = tmp_path / "net.safetensors"
    nn.Mlp((3, 4, 2), seed=1).save(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(errors.DataLossError, match=r"net\.safetensors"):
        nn.Mlp.load(path)
    with pytest.raises(errors.NotFoundError):
        nn.Mlp.load(tmp_path / "none")
    with pytest.raises(errors.NotFoundError):
        nn.Mlp((3, 4, 2), seed=1).save(tmp_path / "none" / "net")
    safetensors.numpy.save_file({"0.weight": np.ones((2, 3), np.float16)}, path)
    with pytest.raises(errors.UnimplementedError, match="F16"):
        nn.Mlp.load(path)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.safetensors"
    net = nn.Mlp((3, 4, 2), seed=1)
    net.save(path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(errors.ResourceExhaustedError):
            net.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.safetensors"]


def test_a_nan_gradient_changes_nothing_and_the_error_names_the_layer():
    net = nn.Mlp((3, 4, 2), seed=1)
    adam = nn.Adam(net)
    before = net.parameters.copy()
    net.forward(np.ones((2, 3)))
    gradient = net.backward(np.ones((2, 2)))
    net.views(gradient)[1][1][0] = math.nan
    with pytest.raises(errors.InvalidArgumentError, match="bias of layer 1 holds nan"):
        adam.step(net, gradient)
    np.testing.assert_array_equal(net.parameters, before)
    assert adam.step_count == 0
    net.forward(np.ones((2, 3)))
    adam.step(net, net.backward(np.ones((2, 2))))
    assert np.isfinite(net.parameters).all()


def test_writing_to_parameters_and_views_changes_the_network():
    net = nn.Mlp((2, 3, 1), seed=1)
    net.parameters[:] = 0
    weight, bias = net.views()[1]
    weight[:] = 1
    bias[:] = 0.5
    net.views()[0][1][:] = 2
    assert net([0, 0])[0] == 6.5
    del net
    assert weight.sum() == 3  # a view keeps its memory alive


def test_approach_averages_parameters_and_copies_are_independent():
    net, target = nn.Mlp((2, 3, 1), seed=1), nn.Mlp((2, 3, 1), seed=2)
    other = net.copy()
    expected = 0.75 * target.parameters + 0.25 * net.parameters
    target.approach(net, 0.25)
    np.testing.assert_allclose(target.parameters, expected, rtol=1e-5, atol=1e-7)
    net.parameters[:] = 0
    assert other.parameters.any()


def test_a_restored_optimiser_continues_where_it_was():
    net = nn.Mlp((2, 8, 1), seed=1)
    adam = nn.Adam(net)
    gradient = net.parameters.copy()
    for _ in range(3):
        adam.step(net, gradient)
    other, restored = net.copy(), nn.Adam(net)
    restored.restore(*adam.state())
    adam.step(net, -gradient)
    restored.step(other, -gradient)
    np.testing.assert_array_equal(net.parameters, other.parameters)


def test_backward_needs_a_forward_before_it():
    net = nn.Mlp((2, 3, 1), seed=1)
    with pytest.raises(errors.FailedPreconditionError, match="call forward"):
        net.backward(np.ones((1, 1)))
    net.forward(np.ones((4, 2)))
    net(np.ones((4, 2)))
    with pytest.raises(errors.FailedPreconditionError, match="call forward"):
        net.backward(np.ones((4, 1)))


def test_the_shape_of_an_output_gradient_is_that_of_the_outputs():
    net = nn.Mlp((2, 3, 2), seed=1)
    net.forward(np.ones((4, 2)))
    for function in (net.backward, net.input_gradient):
        with pytest.raises(errors.InvalidArgumentError, match=r"\(2, 4\); it must be \(4, 2\)"):
            function(np.ones((2, 4)))
    assert net.backward(np.ones((4, 2))).any()


def test_a_pass_of_no_rows_has_a_gradient_of_zeros():
    net = nn.Mlp((2, 3, 1), seed=1)
    net.forward(np.ones((1, 2)))
    net.forward(np.ones((0, 2)))
    assert not net.backward(np.ones((0, 1))).any()
    assert net.input_gradient(np.ones((0, 1))).shape == (0, 2)
    with pytest.raises(errors.InvalidArgumentError, match="output_gradient has the shape"):
        net.backward(np.ones((1, 1)))


def test_tensors_that_require_grad_are_taken_as_their_values():
    net = nn.Mlp((2, 3, 1), seed=1)
    twin = torch_twin(net)
    inputs = torch.ones((4, 2), requires_grad=True)
    np.testing.assert_array_equal(net(inputs), net(np.ones((4, 2))))
    net.load_state_dict(dict(twin.named_parameters()))


REFUSALS = {
    "widths has 1 entries": lambda: nn.Mlp((3,)),
    "each of widths is 0": lambda: nn.Mlp((3, 0, 1)),
    "activation is 'gelu'": lambda: nn.Mlp((3, 1), activation="gelu"),
    "initializer is 'zeros'": lambda: nn.Mlp((3, 1), initializer="zeros"),
    "gains are for": lambda: nn.Mlp((3, 1), gains=[1.0]),
    "gains has 2 entries": lambda: nn.Mlp((3, 1), initializer="orthogonal", gains=[1.0, 1.0]),
    "inputs has the shape (2, 4); it must be [B, 3]": lambda: nn.Mlp((3, 1))(np.ones((2, 4))),
    "it must be an array of numbers": lambda: nn.Mlp((3, 1))([[object()] * 3]),
    "learning_rate is 0": lambda: nn.Adam(nn.Mlp((3, 1)), learning_rate=0.0),
    "mean_decay is 1": lambda: nn.Adam(nn.Mlp((3, 1)), betas=(1.0, 0.9)),
    "norm_max is 0": lambda: nn.Adam(nn.Mlp((3, 1))).step(nn.Mlp((3, 1)), [0.0], norm_max=0.0),
    "gradient has the shape (1,)": lambda: nn.Adam(nn.Mlp((3, 1))).step(nn.Mlp((3, 1)), [0.0]),
    "this Adam is for (3, 1)": lambda: nn.Adam(nn.Mlp((3, 1))).step(nn.Mlp((2, 1)), [0.0]),
    "source has the widths (2, 1)": lambda: nn.Mlp((3, 1)).approach(nn.Mlp((2, 1)), 0.5),
    "rate is 1.5": lambda: nn.Mlp((3, 1)).approach(nn.Mlp((3, 1)), 1.5),
    "state has the names": lambda: nn.Mlp((3, 1)).load_state_dict({}),
    "0.weight has the shape (3, 1); it must be (1, 3)": lambda: nn.Mlp((3, 1)).load_state_dict(
        {"0.weight": np.ones((3, 1)), "0.bias": np.ones(1)}
    ),
}


def test_a_copied_network_does_not_share_parameters():
    net = nn.Mlp((3, 4, 2), seed=1)
    for again in (net.copy(), copy.copy(net), copy.deepcopy(net)):
        np.testing.assert_array_equal(again.parameters, net.parameters)
        again.parameters[:] = 0
        assert net.parameters.any()


def test_a_network_allows_one_call_at_a_time():
    """A network's memory holds one pass: two calls would overwrite each other's rows."""
    net = nn.Mlp((64, 512, 64), seed=1)
    inputs = {rows: np.ones((rows, 64), np.float32) for rows in (1, 700)}
    expected = {rows: net(rows_in) for rows, rows_in in inputs.items()}
    refused = []

    def run_once(rows):
        try:
            np.testing.assert_array_equal(net(inputs[rows]), expected[rows])
            net.backward(net.forward(inputs[rows]))
        except (errors.FailedPreconditionError, errors.InvalidArgumentError) as error:
            refused.append(str(error))

    def run(rows):
        for _ in range(100):
            run_once(rows)

    threads = [threading.Thread(target=run, args=(rows,)) for rows in (1, 700, 700)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    # Another thread may have made a forward pass between a pass and its gradient.
    words = ("in use by another call", "call forward", "output_gradient has")
    assert all(any(word in text for word in words) for text in refused), refused


@pytest.mark.parametrize("message", REFUSALS)
def test_arguments_that_do_not_fit_are_refused(message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        REFUSALS[message]()
    assert message in str(caught.value)


def test_a_state_with_one_wrong_shape_changes_nothing():
    net = nn.Mlp((3, 4, 2), seed=1)
    before = net.parameters.copy()
    state = copy.deepcopy(nn.Mlp((3, 4, 2), seed=2).state_dict())
    state["2.bias"] = np.ones(3)
    with pytest.raises(errors.InvalidArgumentError, match=r"2\.bias"):
        net.load_state_dict(state)
    np.testing.assert_array_equal(net.parameters, before)
