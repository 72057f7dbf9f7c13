"""Learning rules as pure functions: NumPy arrays in, new NumPy arrays out.

Arguments are anything that NumPy makes a float32 array of; results are float32 unless said
otherwise. ``B`` is the batch, ``T`` the steps of a row, ``A`` the actions or atoms, ``D`` the
dimensions of an action. Rewards and values have the environment's own unit. A discount is gamma, or
0 where the episode *terminated*, so that later steps do not count; a time limit does not terminate
an episode.

Every function raises `reverie.errors.InvalidArgumentError`, a ``ValueError``, for arrays that do
not fit and for numbers out of range. Each is a call into the C++ library, whose headers in
``src/reverie/rl`` have diagrams.

One file, so that a rule and its neighbours are read together: each function is a few lines of
checks under its documentation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from reverie import _checks, _reverie
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray: TypeAlias = NDArray[np.float32]

__all__ = [
    "actor_epsilon",
    "add_gaussian_noise",
    "categorical_projection",
    "clipped_double_q_targets",
    "double_q_targets",
    "epsilon_at",
    "epsilon_greedy",
    "generalized_advantages",
    "huber_derivatives",
    "huber_losses",
    "importance_weights",
    "n_step_returns",
    "ornstein_uhlenbeck_step",
    "q_targets",
    "soft_double_q_targets",
    "squashed_gaussian",
    "squashed_gaussian_gradient",
    "squashed_gaussian_log_probabilities",
    "td_targets",
    "v_trace",
]


def _floats(name: str, value: ArrayLike, axes: str, **extents: int) -> FloatArray:
    """``value`` as a contiguous float32 array with one dimension for each letter of ``axes``."""
    array: FloatArray = _checks.array(name, value)
    wanted = [extents.get(axis, -1) for axis in axes]
    fits = array.ndim == len(axes) and all(
        extent in (-1, actual) for extent, actual in zip(wanted, array.shape, strict=True)
    )
    if not fits:
        text = ", ".join(
            axis if extent == -1 else f"{axis}={extent}"
            for axis, extent in zip(axes, wanted, strict=True)
        )
        raise InvalidArgumentError(f"{name} has the shape {array.shape}; it must be [{text}]")
    if array.ndim > 1 and 0 in array.shape[1:]:
        raise InvalidArgumentError(
            f"{name} has the shape {array.shape}; rows must hold at least one element"
        )
    return array


def td_targets(rewards: ArrayLike, discounts: ArrayLike, next_values: ArrayLike) -> FloatArray:
    """``r + d v'``, the one-step target.

    Args:
        rewards: ``[B]``.
        discounts: ``[B]``.
        next_values: ``[B]``, the value of the state that each step led to.

    Returns:
        ``[B]`` targets.

    Source:
        Sutton & Barto, 2nd ed., equation 6.2.
    """
    rewards = _floats("rewards", rewards, "B")
    batch = len(rewards)
    targets = np.empty_like(rewards)
    _reverie.rl_td_targets(
        rewards,
        _floats("discounts", discounts, "B", B=batch),
        _floats("next_values", next_values, "B", B=batch),
        targets,
    )
    return targets


def n_step_returns(rewards: ArrayLike, discounts: ArrayLike, bootstrap: ArrayLike) -> FloatArray:
    """Sums of discounted rewards over one window of steps, closed by a value estimate.

    Args:
        rewards: ``[B, T]``.
        discounts: ``[B, T]``; 0 where the episode terminated, gamma where it was only cut off; a
            short window is filled with discounts of 1 and rewards of 0.
        bootstrap: ``[B]``, the value of the state after the last step.

    Returns:
        ``[B]`` returns.

    Source:
        Sutton & Barto, 2nd ed., equation 7.1.
    """
    rewards = _floats("rewards", rewards, "BT")
    batch, steps = rewards.shape
    bootstrap = _floats("bootstrap", bootstrap, "B", B=batch)
    returns = np.empty_like(bootstrap)
    discounts = _floats("discounts", discounts, "BT", B=batch, T=steps)
    _reverie.rl_n_step_returns(rewards, discounts, bootstrap, returns)
    return returns


def q_targets(rewards: ArrayLike, discounts: ArrayLike, next_values: ArrayLike) -> FloatArray:
    """``r + d max_a Q(s', a)``, the target of Q-learning.

    Args:
        rewards: ``[B]``.
        discounts: ``[B]``.
        next_values: ``[B, A]``, the target network's values of the next state.

    Returns:
        ``[B]`` targets.

    Source:
        Watkins & Dayan 1992; with a target network Mnih et al. 2015.
    """
    values = _floats("next_values", next_values, "BA", B=len(_floats("rewards", rewards, "B")))
    return double_q_targets(rewards, discounts, values, values)


def double_q_targets(
    rewards: ArrayLike,
    discounts: ArrayLike,
    next_online_values: ArrayLike,
    next_target_values: ArrayLike,
) -> FloatArray:
    """``r + d Q_target(s', argmax_a Q_online(s', a))``; of equal values the first action wins.

    Args:
        rewards: ``[B]``.
        discounts: ``[B]``.
        next_online_values: ``[B, A]``, of the network that chooses.
        next_target_values: ``[B, A]``, of the network that values the choice.

    Returns:
        ``[B]`` targets.

    Source:
        van Hasselt et al. 2016, equation 4.
    """
    rewards = _floats("rewards", rewards, "B")
    batch = len(rewards)
    online = _floats("next_online_values", next_online_values, "BA", B=batch)
    target = _floats("next_target_values", next_target_values, "BA", B=batch, A=online.shape[1])
    targets = np.empty_like(rewards)
    discounts = _floats("discounts", discounts, "B", B=batch)
    _reverie.rl_double_q_targets(rewards, discounts, online, target, targets)
    return targets


def clipped_double_q_targets(
    rewards: ArrayLike, discounts: ArrayLike, first_values: ArrayLike, second_values: ArrayLike
) -> FloatArray:
    """``r + d min(Q1(s', a'), Q2(s', a'))``, the target of TD3.

    Args:
        rewards: ``[B]``.
        discounts: ``[B]``.
        first_values: ``[B]``, of one target critic.
        second_values: ``[B]``, of the other.

    Returns:
        ``[B]`` targets. NaN where either critic gives NaN, unless the discount is 0.

    Source:
        Fujimoto et al. 2018, equation 10.
    """
    first_values = _floats("first_values", first_values, "B")
    log_probabilities = np.zeros_like(first_values)
    return soft_double_q_targets(
        rewards, discounts, first_values, second_values, log_probabilities, temperature=0.0
    )


def soft_double_q_targets(
    rewards: ArrayLike,
    discounts: ArrayLike,
    first_values: ArrayLike,
    second_values: ArrayLike,
    log_probabilities: ArrayLike,
    *,
    temperature: float,
) -> FloatArray:
    """``r + d (min(Q1, Q2)(s', a') - temperature log pi(a' | s'))``, the target of SAC.

    Args:
        rewards: ``[B]``.
        discounts: ``[B]``.
        first_values: ``[B]``, of one target critic.
        second_values: ``[B]``, of the other.
        log_probabilities: ``[B]``, of the actions ``a'`` that the policy drew, in nats.
        temperature: the reward that a nat of entropy is worth; at least 0.

    Returns:
        ``[B]`` targets.

    Source:
        Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", equations 3 and 5.
    """
    rewards = _floats("rewards", rewards, "B")
    batch = len(rewards)
    temperature = _checks.number("temperature", temperature, 0.0)
    targets = np.empty_like(rewards)
    _reverie.rl_soft_double_q_targets(
        rewards,
        _floats("discounts", discounts, "B", B=batch),
        _floats("first_values", first_values, "B", B=batch),
        _floats("second_values", second_values, "B", B=batch),
        _floats("log_probabilities", log_probabilities, "B", B=batch),
        temperature,
        targets,
    )
    return targets


def categorical_projection(
    rewards: ArrayLike,
    discounts: ArrayLike,
    next_probabilities: ArrayLike,
    *,
    value_min: float,
    value_max: float,
) -> FloatArray:
    """The distribution of ``r + d Z``, projected onto the atoms of ``Z``.

    Args:
        rewards: ``[B]``.
        discounts: ``[B]``.
        next_probabilities: ``[B, A]``, of ``A >= 2`` atoms, evenly spaced.
        value_min: the first atom.
        value_max: the last one.

    Returns:
        ``[B, A]`` probabilities; what falls outside the support goes to its ends.

    Source:
        Bellemare et al. 2017, algorithm 1.
    """
    rewards = _floats("rewards", rewards, "B")
    batch = len(rewards)
    probabilities = _floats("next_probabilities", next_probabilities, "BA", B=batch)
    if probabilities.shape[1] < 2:
        raise InvalidArgumentError(
            f"next_probabilities has {probabilities.shape[1]} atom; a distribution needs at least 2"
        )
    projected = np.empty_like(probabilities)
    discounts = _floats("discounts", discounts, "B", B=batch)
    ends = _checks.number("value_min", value_min), _checks.number("value_max", value_max)
    _reverie.rl_categorical_projection(rewards, discounts, probabilities, *ends, projected)
    return projected


def _trajectory(
    rewards: ArrayLike,
    discounts: ArrayLike,
    values: ArrayLike,
    next_values: ArrayLike,
    ends: ArrayLike | None,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, NDArray[np.uint8]]:
    rewards = _floats("rewards", rewards, "BT")
    batch, steps = rewards.shape
    marks = np.zeros((batch, steps)) if ends is None else ends
    return (
        rewards,
        _floats("discounts", discounts, "BT", B=batch, T=steps),
        _floats("values", values, "BT", B=batch, T=steps),
        _floats("next_values", next_values, "BT", B=batch, T=steps),
        _floats("ends", marks, "BT", B=batch, T=steps).astype(np.uint8),
    )


def generalized_advantages(
    rewards: ArrayLike,
    discounts: ArrayLike,
    values: ArrayLike,
    next_values: ArrayLike,
    *,
    lambda_: float,
    ends: ArrayLike | None = None,
) -> FloatArray:
    """Generalised advantage estimates (GAE); added to ``values`` they are the values' targets.

    Args:
        rewards: ``[B, T]``.
        discounts: ``[B, T]``.
        values: ``[B, T]``, of the state before each step.
        next_values: ``[B, T]``, of the state that each step led to: the next step's value inside an
            episode, the last observation's at its end.
        lambda_: in ``[0, 1]``; 0 is the one-step error, 1 the whole discounted sum.
        ends: ``[B, T]`` booleans, true where a step was its episode's last, terminated or cut off.
            Omitted: no episode ends inside a row.

    Returns:
        ``[B, T]`` advantages.

    Source:
        Schulman et al. 2016, equation 16.
    """
    steps = _trajectory(rewards, discounts, values, next_values, ends)
    advantages = np.empty_like(steps[0])
    lambda_ = _checks.number("lambda_", lambda_, 0.0, 1.0)
    _reverie.rl_generalized_advantages(*steps, lambda_, advantages)
    return advantages


def v_trace(
    rewards: ArrayLike,
    discounts: ArrayLike,
    values: ArrayLike,
    next_values: ArrayLike,
    ratios: ArrayLike,
    *,
    lambda_: float = 1.0,
    rho_max: float = 1.0,
    advantage_rho_max: float = 1.0,
    ends: ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray]:
    """V-trace: corrects steps that an older policy took.

    Args:
        rewards: ``[B, T]``.
        discounts: ``[B, T]``.
        values: ``[B, T]``, of the state before each step.
        next_values: ``[B, T]``, as for `generalized_advantages`.
        ratios: ``[B, T]``, the probability of each action by the policy that learns over that by
            the policy that acted; at least 0.
        lambda_: in ``[0, 1]``.
        rho_max: the greatest ratio in the errors; above 0.
        advantage_rho_max: the greatest ratio in the advantages; above 0.
        ends: ``[B, T]`` booleans, as for `generalized_advantages`.

    Returns:
        ``[B, T]`` targets of the values, and ``[B, T]`` advantages of the policy.

    Source:
        Espeholt et al. 2018, equation 1 and section 4.2.
    """
    steps = _trajectory(rewards, discounts, values, next_values, ends)
    batch, width = steps[0].shape
    targets, advantages = np.empty_like(steps[0]), np.empty_like(steps[0])
    ratios = _floats("ratios", ratios, "BT", B=batch, T=width)
    options = (
        _checks.number("lambda_", lambda_, 0.0, 1.0),
        _checks.number("rho_max", rho_max, above=0.0, finite=False),
        _checks.number("advantage_rho_max", advantage_rho_max, above=0.0, finite=False),
    )
    _reverie.rl_v_trace(*steps, ratios, options, targets, advantages)
    return targets, advantages


def _delta(delta: float) -> float:
    return _checks.number("delta", delta, above=0.0, finite=False)


def huber_losses(errors: ArrayLike, *, delta: float = 1.0) -> FloatArray:
    """Huber's loss of each error: ``e^2 / 2`` up to ``delta``, then a straight line.

    Args:
        errors: ``[B]``.
        delta: above 0; infinity is the squared loss.

    Returns:
        ``[B]`` losses.

    Source:
        Huber 1964.
    """
    errors = _floats("errors", errors, "B")
    losses = np.empty_like(errors)
    _reverie.rl_huber_losses(errors, _delta(delta), losses)
    return losses


def huber_derivatives(errors: ArrayLike, *, delta: float = 1.0) -> FloatArray:
    """The derivative of Huber's loss: the error, clipped to ``[-delta, delta]``.

    Args:
        errors: ``[B]``.
        delta: above 0.

    Returns:
        ``[B]`` derivatives.

    Source:
        Huber 1964.
    """
    errors = _floats("errors", errors, "B")
    derivatives = np.empty_like(errors)
    _reverie.rl_huber_derivatives(errors, _delta(delta), derivatives)
    return derivatives


def squashed_gaussian(
    mean: ArrayLike, log_std: ArrayLike, noise: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Actions ``tanh(mean + exp(log_std) noise)``, and their log probabilities.

    Args:
        mean: ``[B, D]``, before the tanh.
        log_std: ``[B, D]``, natural logarithm.
        noise: ``[B, D]``, draws from the standard normal distribution.

    Returns:
        ``[B, D]`` actions in ``[-1, 1]``, and their log probabilities, ``[B]``, in nats, with the
        correction for the tanh; finite also where an action rounds to 1.

    Source:
        Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", appendix C.
    """
    mean = _floats("mean", mean, "BD")
    batch, width = mean.shape
    actions, log_probabilities = np.empty_like(mean), np.empty(batch, np.float32)
    log_std = _floats("log_std", log_std, "BD", B=batch, D=width)
    noise = _floats("noise", noise, "BD", B=batch, D=width)
    _reverie.rl_squashed_gaussian(mean, log_std, noise, actions, log_probabilities)
    return actions, log_probabilities


def squashed_gaussian_log_probabilities(
    mean: ArrayLike, log_std: ArrayLike, actions: ArrayLike
) -> FloatArray:
    """The log probabilities of given actions under `squashed_gaussian`.

    Args:
        mean: ``[B, D]``, before the tanh.
        log_std: ``[B, D]``, natural logarithm.
        actions: ``[B, D]`` in ``[-1, 1]``; those beyond 1 - 1e-6 are clipped to it.

    Returns:
        ``[B]`` log probabilities, in nats.

    Source:
        as for `squashed_gaussian`.
    """
    mean = _floats("mean", mean, "BD")
    batch, width = mean.shape
    log_probabilities = np.empty(batch, np.float32)
    log_std = _floats("log_std", log_std, "BD", B=batch, D=width)
    actions = _floats("actions", actions, "BD", B=batch, D=width)
    _reverie.rl_squashed_gaussian_log_probabilities(mean, log_std, actions, log_probabilities)
    return log_probabilities


def squashed_gaussian_gradient(
    log_std: ArrayLike,
    noise: ArrayLike,
    actions: ArrayLike,
    action_gradient: ArrayLike,
    log_probability_gradient: ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    """The gradient of a loss of `squashed_gaussian`'s results, in its mean and log_std.

    Args:
        log_std: ``[B, D]``, as it was given.
        noise: ``[B, D]``, as it was given; a constant here.
        actions: ``[B, D]``, as they were returned.
        action_gradient: ``[B, D]``, of the loss in the actions.
        log_probability_gradient: ``[B]``, of the loss in the log probabilities.

    Returns:
        the gradients in the mean and in log_std, ``[B, D]`` each.

    Source:
        the reparameterisation of Haarnoja et al. 2018, equation 7, by the chain rule.
    """
    actions = _floats("actions", actions, "BD")
    batch, width = actions.shape
    mean_gradient, log_std_gradient = np.empty_like(actions), np.empty_like(actions)
    _reverie.rl_squashed_gaussian_gradient(
        _floats("log_std", log_std, "BD", B=batch, D=width),
        _floats("noise", noise, "BD", B=batch, D=width),
        actions,
        _floats("action_gradient", action_gradient, "BD", B=batch, D=width),
        _floats("log_probability_gradient", log_probability_gradient, "B", B=batch),
        mean_gradient,
        log_std_gradient,
    )
    return mean_gradient, log_std_gradient


def epsilon_at(
    step: int,
    *,
    first: float = 1.0,
    last: float = 0.05,
    step_count: int = 10_000,
    decay: Literal["linear", "exponential"] = "linear",
) -> float:
    """The share of exploring actions at ``step``: from ``first`` to ``last``, then ``last``.

    Args:
        step: counted from 0.
        first: in ``[0, 1]``; above 0 if the decay is exponential.
        last: the same.
        step_count: steps until ``last`` is reached.
        decay: how epsilon, or its logarithm, falls along a straight line.

    Source:
        Mnih et al. 2015, table 1 (linear).
    """
    _checks.choice("decay", decay, ("linear", "exponential"))
    return _reverie.rl_epsilon_at(
        _checks.integer("step", step, 0),
        _checks.number("first", first, 0.0, 1.0),
        _checks.number("last", last, 0.0, 1.0),
        _checks.integer("step_count", step_count, 0),
        decay == "exponential",
    )


def actor_epsilon(actor: int, actor_count: int, *, base: float = 0.4, alpha: float = 7.0) -> float:
    """The epsilon of one of several actors: a few explore often, most of them rarely.

    Args:
        actor: in ``[0, actor_count)``.
        actor_count: how many there are.
        base: the first actor's epsilon, in ``(0, 1]``.
        alpha: the last one has ``base ** (1 + alpha)``; at least 0.

    Source:
        Horgan et al. 2018, section 4.1.
    """
    count = _checks.integer("actor_count", actor_count)
    return _reverie.rl_actor_epsilon(
        _checks.integer("actor", actor, 0, count - 1),
        count,
        _checks.number("base", base, most=1.0, above=0.0),
        _checks.number("alpha", alpha, 0.0),
    )


def epsilon_greedy(
    values: ArrayLike, epsilon: float, rng: np.random.Generator
) -> NDArray[np.int32]:
    """The greedy action of each row, or with probability ``epsilon`` a uniform one.

    Args:
        values: ``[B, A]`` action values; of equal ones the first is greedy.
        epsilon: in ``[0, 1]``.
        rng: two numbers are drawn for each row, whatever they decide.

    Returns:
        ``[B]`` int32 actions.

    Source:
        Sutton & Barto, 2nd ed., section 2.2.
    """
    values = _floats("values", values, "BA")
    epsilon = _checks.number("epsilon", epsilon, 0.0, 1.0)
    actions = np.empty(len(values), np.int32)
    try:
        explore, choice = rng.random((2, len(values)))
    except (AttributeError, TypeError) as error:  # as that of the module random
        raise UnsupportedTypeError(
            f"rng is {_checks.shown(rng)}; it must be a numpy.random.Generator"
        ) from error
    _reverie.rl_epsilon_greedy(values, epsilon, explore, choice, actions)
    return actions


def add_gaussian_noise(
    actions: ArrayLike,
    normals: ArrayLike,
    *,
    sigma: float,
    low: ArrayLike,
    high: ArrayLike,
    noise_max: float = math.inf,
) -> FloatArray:
    """``actions + sigma normals``, clipped to the action space.

    Args:
        actions: ``[B, D]``.
        normals: ``[B, D]``, draws from the standard normal distribution.
        sigma: at least 0, in the unit of the actions.
        low: ``[D]``, the least action.
        high: ``[D]``, the greatest.
        noise_max: the bound that the noise itself is clipped to; TD3 smooths its targets with 0.5.

    Returns:
        ``[B, D]`` actions.

    Source:
        Fujimoto et al. 2018, equation 14.
    """
    actions = _floats("actions", actions, "BD")
    batch, width = actions.shape
    noisy = np.empty_like(actions)
    _reverie.rl_add_gaussian_noise(
        actions,
        _floats("normals", normals, "BD", B=batch, D=width),
        _checks.number("sigma", sigma, 0.0),
        _checks.number("noise_max", noise_max, 0.0, finite=False),
        _floats("low", low, "D", D=width),
        _floats("high", high, "D", D=width),
        noisy,
    )
    return noisy


def ornstein_uhlenbeck_step(
    state: ArrayLike,
    normals: ArrayLike,
    *,
    theta: float = 0.15,
    sigma: float = 0.2,
    dt: float = 1e-2,
    mean: float = 0.0,
) -> FloatArray:
    """One step of noise that drifts back to its mean.

    ``x + theta (mean - x) dt + sigma sqrt(dt) n``

    Args:
        state: ``[B, D]``, or any other shape.
        normals: draws, of the same shape, from the standard normal distribution.
        theta: how strongly it is drawn back, per second; at least 0.
        sigma: how strongly it is pushed; at least 0.
        dt: seconds per step; above 0.
        mean: where it drifts to.

    Returns:
        the next state.

    Source:
        Uhlenbeck & Ornstein 1930, as Lillicrap et al. 2016, section 7, use it.
    """
    following: FloatArray = _checks.array("state", state).copy()
    draws = _checks.array("normals", normals)
    if draws.shape != following.shape:
        raise InvalidArgumentError(
            f"normals has the shape {draws.shape}; it must be that of state, {following.shape}"
        )
    options = (
        _checks.number("theta", theta, 0.0),
        _checks.number("sigma", sigma, 0.0),
        _checks.number("dt", dt, above=0.0),
        _checks.number("mean", mean),
    )
    _reverie.rl_ornstein_uhlenbeck_step(options, draws, following)
    return following


def importance_weights(
    probabilities: ArrayLike, *, item_count: int, beta: float, by_maximum: bool = True
) -> FloatArray:
    """``(1 / (N p))^beta``: corrects a mean over prioritised draws.

    Args:
        probabilities: ``[B]`` in ``(0, 1]``, with which each item was drawn.
        item_count: ``N``, how many items there were; at least 1.
        beta: at least 0; 1 corrects in full, 0.4 is a usual start.
        by_maximum: divides by the greatest weight of the batch, so that no step grows.

    Returns:
        ``[B]`` weights.

    Source:
        Schaul et al. 2016, section 3.4.
    """
    drawn = _checks.array("probabilities", probabilities, np.float64)
    if drawn.ndim != 1 or not bool(np.all((drawn > 0.0) & (drawn <= 1.0))):
        raise InvalidArgumentError("probabilities must be [B] and in (0, 1]")
    weights = np.empty(len(drawn), np.float32)
    _reverie.rl_importance_weights(
        drawn,
        _checks.integer("item_count", item_count),
        _checks.number("beta", beta, 0.0),
        _checks.flag("by_maximum", by_maximum),
        weights,
    )
    return weights
