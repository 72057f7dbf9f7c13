"""The learning rules compared with the table that the C++ tests read too, and their refusals."""

import inspect
import math
import random
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie import rl

TABLE = Path(__file__).resolve().parents[2] / "tests" / "data" / "learning_rules.txt"


def read_table():
    """The cases: (rule, the function it was compared with, arguments, results)."""
    cases = []
    for text in TABLE.read_text().splitlines():
        words = text.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "case":
            cases.append((words[1], " ".join(words[3:]), {}, {}))
            continue
        kept = cases[-1][2]
        if words[0] == "->":
            kept = cases[-1][3]
            words = words[1:]
        colon = words.index(":")
        shape = tuple(int(extent) for extent in words[1:colon])
        numbers = np.array([float(word) for word in words[colon + 1 :]])
        kept[words[0]] = numbers.reshape(shape) if shape else float(numbers[0])
    return cases


CASES = read_table()


class Draws:
    """A generator whose draws are those of the table."""

    def __init__(self, explore_draws, action_draws):
        self.draws = np.stack([explore_draws, action_draws])

    def random(self, shape):
        assert shape == self.draws.shape
        return self.draws


def results_of(rule, arguments):
    given = {"lambda_" if name == "lambda" else name: value for name, value in arguments.items()}
    if rule == "epsilon_at":
        steps = given.pop("steps")
        given["decay"] = ["linear", "exponential"][int(given["decay"])]
        given["step_count"] = int(given["step_count"])
        return ([rl.epsilon_at(int(step), **given) for step in steps],)
    if rule == "actor_epsilon":
        count = int(given.pop("actor_count"))
        return ([rl.actor_epsilon(actor, count, **given) for actor in range(count)],)
    if rule == "epsilon_greedy":
        draws = Draws(given.pop("explore_draws"), given.pop("action_draws"))
        return (rl.epsilon_greedy(**given, rng=draws),)
    result = getattr(rl, rule)(**given)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize(
    ("rule", "arguments", "results"),
    [(rule, arguments, results) for rule, _, arguments, results in CASES],
    ids=[f"{rule}-{about}" for rule, about, _, _ in CASES],
)
def test_each_rule_matches_the_shared_table(rule, arguments, results):
    actual = results_of(rule, arguments)
    assert len(actual) == len(results)
    for array, (name, expected) in zip(actual, results.items(), strict=True):
        np.testing.assert_allclose(array, expected, rtol=2e-5, atol=2e-5, err_msg=name)


def test_the_table_covers_every_rule_without_a_separate_test():
    elsewhere = {"n_step_returns", "importance_weights", "squashed_gaussian_log_probabilities"}
    assert {rule for rule, *_ in CASES} | elsewhere == set(rl.__all__)


def test_n_step_returns_match_values_computed_by_hand():
    returns = rl.n_step_returns([[1, 1, 1], [1, 1, 0]], [[0.5] * 3, [0.5, 0, 1]], [10, 10])
    np.testing.assert_array_equal(returns, [3.0, 1.5])


def test_importance_weights_match_values_computed_by_hand():
    drawn = [0.5, 0.25, 0.125]
    plain = rl.importance_weights(drawn, item_count=4, beta=1.0, by_maximum=False)
    np.testing.assert_allclose(plain, [0.5, 1, 2], rtol=1e-6)
    scaled = rl.importance_weights(drawn, item_count=4, beta=1.0)
    np.testing.assert_allclose(scaled, [0.25, 0.5, 1], rtol=1e-6)


def test_log_probabilities_of_actions_match_those_returned_by_sampling():
    mean, log_std, noise = np.random.default_rng(3).normal(0, 0.5, (3, 20, 2))
    actions, log_probabilities = rl.squashed_gaussian(mean, log_std, noise)
    again = rl.squashed_gaussian_log_probabilities(mean, log_std, actions)
    np.testing.assert_allclose(again, log_probabilities, rtol=1e-4, atol=1e-4)


def test_the_squashed_gaussian_density_integrates_to_one():
    actions = np.linspace(-1, 1, 20_001)[1:-1, None]
    ones = np.ones_like(actions)
    density = np.exp(rl.squashed_gaussian_log_probabilities(0.3 * ones, -0.5 * ones, actions))
    assert density.sum() * 1e-4 == pytest.approx(1.0, abs=1e-3)


def test_a_truncated_episode_bootstraps_from_its_last_value():
    # One step of reward 1 before a time limit, in a state worth 10; then another episode begins.
    advantages = rl.generalized_advantages(
        [[1, 0]], [[0.5, 0.5]], [[0, 0]], [[10, 0]], lambda_=1.0, ends=[[True, False]]
    )
    np.testing.assert_array_equal(advantages, [[6, 0]])


def test_epsilon_greedy_explores_as_often_as_epsilon_says():
    rng = np.random.default_rng(11)
    actions = rl.epsilon_greedy(np.tile([0.0, 1.0, 0.0, 0.0], (40_000, 1)), 0.4, rng)
    counts = np.bincount(actions, minlength=4) / len(actions)
    np.testing.assert_allclose(counts, [0.1, 0.7, 0.1, 0.1], atol=5 * 0.5 / math.sqrt(40_000))


def test_results_are_new_arrays_and_arguments_are_unchanged():
    state = np.array([1.0, 2.0], np.float32)
    following = rl.ornstein_uhlenbeck_step(state, [0, 0])
    assert following is not state
    np.testing.assert_array_equal(state, [1, 2])


def test_tensors_that_require_grad_are_taken_as_their_values():
    torch = pytest.importorskip("torch")
    values = torch.tensor([2.0, 3.0], requires_grad=True)
    targets = rl.clipped_double_q_targets([1, 1], [1, 0], values, values + 1)
    np.testing.assert_array_equal(targets, [3, 1])


def test_a_generator_of_another_kind_is_refused():
    for rng in (random.Random(1), None):
        with pytest.raises(reverie.errors.UnsupportedTypeError, match="must be a numpy"):
            rl.epsilon_greedy(np.eye(2), 0.5, rng)


def test_empty_batches_have_empty_results():
    assert rl.td_targets([], [], []).shape == (0,)
    assert rl.q_targets([], [], np.zeros((0, 3))).shape == (0,)
    assert rl.v_trace(*[np.zeros((0, 4))] * 5)[0].shape == (0, 4)


two, pairs = [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]
REFUSALS = {
    "rewards has the shape (2, 2); it must be [B]": lambda: rl.td_targets(pairs, two, two),
    "discounts has the shape (1,); it must be [B=2]": lambda: rl.td_targets(two, [1], two),
    "next_target_values has the shape (2, 3); it must be [B=2, A=2]": lambda: rl.double_q_targets(
        two, two, pairs, np.ones((2, 3))
    ),
    "rewards has the shape (2, 0); rows must hold": lambda: rl.v_trace(*[np.ones((2, 0))] * 5),
    "it must be an array of numbers: could not convert": lambda: rl.td_targets("x", two, two),
    "first_values is [[1], [1, 2]]; it must be an array": lambda: rl.clipped_double_q_targets(
        two, two, [[1], [1, 2]], two
    ),
    "temperature is nan; it must be finite and >= 0": lambda: rl.soft_double_q_targets(
        two, two, two, two, two, temperature=math.nan
    ),
    "next_probabilities has 1 atom": lambda: rl.categorical_projection(
        two, two, [[1], [1]], value_min=0, value_max=1
    ),
    "value_min is 1 and value_max is 0": lambda: rl.categorical_projection(
        two, two, pairs, value_min=1, value_max=0
    ),
    "lambda_ is 2; it must be >= 0 and at most 1": lambda: rl.generalized_advantages(
        *[pairs] * 4, lambda_=2
    ),
    "rho_max is 0": lambda: rl.v_trace(*[pairs] * 5, rho_max=0),
    "delta is -1; it must be > 0": lambda: rl.huber_losses(two, delta=-1),
    "first is 2; it must be": lambda: rl.epsilon_at(0, first=2),
    "decay is 'square'; it must be": lambda: rl.epsilon_at(0, decay="square"),
    "step is -1; it must be": lambda: rl.epsilon_at(-1),
    "actor is 4; it must be an integer between 0 and 3": lambda: rl.actor_epsilon(4, 4),
    "base is 0.0; it must be": lambda: rl.actor_epsilon(0, 4, base=0.0),
    "epsilon is 1.5; it must be": lambda: rl.epsilon_greedy(pairs, 1.5, np.random.default_rng(1)),
    "low[1] is 2 and high[1] is 1": lambda: rl.add_gaussian_noise(
        pairs, pairs, sigma=1, low=[0, 2], high=[1, 1]
    ),
    "sigma is inf": lambda: rl.add_gaussian_noise(pairs, pairs, sigma=math.inf, low=two, high=two),
    "normals has the shape (2,); it must be that of state": lambda: rl.ornstein_uhlenbeck_step(
        pairs, two
    ),
    "dt is 0; it must be finite and > 0": lambda: rl.ornstein_uhlenbeck_step(two, two, dt=0),
    "probabilities must be [B] and in (0, 1]": lambda: rl.importance_weights(
        [0.5, 0.0], item_count=2, beta=1
    ),
    "item_count is 0": lambda: rl.importance_weights([0.5], item_count=0, beta=1),
    "beta is -1": lambda: rl.importance_weights([0.5], item_count=1, beta=-1),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_arguments_that_do_not_fit_are_refused(message):
    with pytest.raises(reverie.errors.InvalidArgumentError) as caught:
        REFUSALS[message]()
    assert message in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", rl.__all__)
def test_every_docstring_names_its_source(name):
    doc = inspect.getdoc(getattr(rl, name))
    assert "Source:" in doc
    assert "Args:" in doc
