"""Writes learning_rules.txt: numbers that both the C++ and the Python tests of `rl` read.

Each rule is computed here as its paper states it, in float64 and with plain loops, and compared
with the rlax function named beside it, where rlax has one. Needs ``rlax==0.1.9`` and ``distrax``,
which depend on a nightly build of TensorFlow Probability; so the tests read the table instead of
computing it. Run it in a separate environment, and commit what it writes:

    python make_learning_rules.py > learning_rules.txt
"""

from __future__ import annotations

import math

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import rlax

rng = np.random.default_rng(7)


def rounded(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Random numbers with two decimals, so that the table is readable."""
    return np.round(rng.uniform(low, high, shape), 2)


def line(prefix: str, name: str, value: object) -> None:
    """One array: its name, its extents, its numbers in row-major order."""
    array = np.asarray(value, np.float64)
    extents = "".join(f" {extent}" for extent in array.shape)
    print(f"{prefix}{name}{extents} : " + " ".join(f"{number:.9g}" for number in array.ravel()))


def case(rule: str, about: str, arguments: dict[str, object], results: dict[str, object]) -> None:
    """One block of the table."""
    print(f"\ncase {rule} : {about}")
    for name, value in arguments.items():
        line("  ", name, value)
    for name, value in results.items():
        line("  -> ", name, value)


def agree(ours: object, theirs: object) -> None:
    """Stops unless rlax gives the same values, within float32."""
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def td() -> None:
    """One-step targets."""
    rewards, discounts, values = rounded(5), np.array([0.99, 0, 0.9, 1, 0.5]), rounded(5, low=-9)
    targets = rewards + discounts * values
    agree(targets, jax.vmap(rlax.td_learning)(jnp.zeros(5), rewards, discounts, values))
    case(
        "td_targets",
        "rlax.td_learning at a value of 0",
        {"rewards": rewards, "discounts": discounts, "next_values": values},
        {"targets": targets},
    )


def q() -> None:
    """Q-learning and double Q-learning."""
    rewards, discounts = rounded(4), np.array([0.99, 0.9, 0, 1])
    online, target = rounded(4, 3), rounded(4, 3)
    plain = [r + d * max(row) for r, d, row in zip(rewards, discounts, target, strict=True)]
    double = [
        r + d * t[int(np.argmax(o))]
        for r, d, o, t in zip(rewards, discounts, online, target, strict=True)
    ]
    zeros, actions = jnp.zeros((4, 3)), jnp.zeros(4, int)
    agree(plain, jax.vmap(rlax.q_learning)(zeros, actions, rewards, discounts, target))
    agree(
        double, jax.vmap(rlax.double_q_learning)(zeros, actions, rewards, discounts, target, online)
    )
    given = {"rewards": rewards, "discounts": discounts}
    case("q_targets", "rlax.q_learning at 0", {**given, "next_values": target}, {"targets": plain})
    case(
        "double_q_targets",
        "rlax.double_q_learning at 0",
        {**given, "next_online_values": online, "next_target_values": target},
        {"targets": double},
    )


def clipped() -> None:
    """Targets from two critics, which use the lower value."""
    rewards, discounts = rounded(4), np.array([0.99, 0.9, 0, 1])
    first, second, log_probabilities = rounded(4), rounded(4), rounded(4, low=-3, high=1)
    lower = [min(pair) for pair in zip(first, second, strict=True)]
    given = {
        "rewards": rewards,
        "discounts": discounts,
        "first_values": first,
        "second_values": second,
    }
    case(
        "clipped_double_q_targets",
        "Fujimoto et al. 2018, equation 10",
        given,
        {"targets": rewards + discounts * lower},
    )
    soft = lower - 0.2 * log_probabilities
    case(
        "soft_double_q_targets",
        "Haarnoja et al. 2018b, equations 3 and 5",
        {**given, "log_probabilities": log_probabilities, "temperature": 0.2},
        {"targets": rewards + discounts * soft},
    )


def categorical() -> None:
    """Distributions projected back onto their support."""
    rewards, discounts = np.array([0.25, -1.5, 9, 0.4, 0]), np.array([1, 0.9, 0.99, 0, 1])
    probabilities = rng.dirichlet(np.ones(5), 5).round(3)
    probabilities[:, 0] += 1 - probabilities.sum(axis=1)
    support = np.linspace(-2, 2, 5)
    projected = np.zeros((5, 5))
    for i in range(5):
        for a in range(5):
            moved = min(max(rewards[i] + discounts[i] * support[a], -2), 2)
            for b in range(5):  # the hat function around each atom of the support
                projected[i, b] += probabilities[i, a] * max(0, 1 - abs(moved - support[b]))
        moved = rewards[i] + discounts[i] * support
        agree(projected[i], rlax.categorical_l2_project(moved, probabilities[i], support))
    case(
        "categorical_projection",
        "rlax.categorical_l2_project",
        {
            "rewards": rewards,
            "discounts": discounts,
            "next_probabilities": probabilities,
            "value_min": -2,
            "value_max": 2,
        },
        {"projected": projected},
    )


def trajectory(rows: int, steps: int) -> dict[str, np.ndarray]:
    """Random rows of steps; one episode of the first row terminates."""
    values = rounded(rows, steps)
    discounts = np.full((rows, steps), 0.9)
    discounts[0, 2] = 0
    next_values = np.concatenate([values[:, 1:], rounded(rows, 1)], axis=1)
    return {
        "rewards": rounded(rows, steps),
        "discounts": discounts,
        "values": values,
        "next_values": next_values,
    }


def advantages() -> None:
    """Generalised advantage estimates."""
    t = trajectory(2, 5)
    result = np.zeros((2, 5))
    for row in range(2):
        for start in range(5):  # the sum of equation 16, term by term
            factor = 1.0
            for i in range(start, 5):
                delta = (
                    t["rewards"][row, i]
                    + t["discounts"][row, i] * t["next_values"][row, i]
                    - t["values"][row, i]
                )
                result[row, start] += factor * delta
                factor *= t["discounts"][row, i] * 0.8
        values = np.append(t["values"][row], t["next_values"][row, -1])
        agree(
            result[row],
            rlax.truncated_generalized_advantage_estimation(
                t["rewards"][row], t["discounts"][row], 0.8, values
            ),
        )
    case(
        "generalized_advantages",
        "rlax.truncated_generalized_advantage_estimation",
        {**t, "lambda": 0.8},
        {"advantages": result},
    )


def v_trace() -> None:
    """V-trace, with two sets of options."""
    t = trajectory(2, 5)
    ratios = rounded(2, 5, low=0.1, high=2.5)
    for lam, rho_max, advantage_rho_max in ((1.0, 1.0, 1.0), (0.7, 1.5, 2.0)):
        targets, results = np.zeros((2, 5)), np.zeros((2, 5))
        for row in range(2):
            r, d = t["rewards"][row], t["discounts"][row]
            v, nv, ratio = t["values"][row], t["next_values"][row], ratios[row]
            for start in range(5):  # equation 1, term by term
                factor, total = 1.0, v[start]
                for i in range(start, 5):
                    total += factor * min(rho_max, ratio[i]) * (r[i] + d[i] * nv[i] - v[i])
                    factor *= d[i] * lam * min(1.0, ratio[i])
                targets[row, start] = total
            for i in range(5):
                q = nv[i] if i == 4 else lam * targets[row, i + 1] + (1 - lam) * v[i + 1]
                results[row, i] = min(advantage_rho_max, ratio[i]) * (r[i] + d[i] * q - v[i])
            theirs = rlax.vtrace_td_error_and_advantage(
                v,
                nv,
                r,
                d,
                ratio,
                lambda_=lam,
                clip_rho_threshold=rho_max,
                clip_pg_rho_threshold=advantage_rho_max,
            )
            agree(targets[row] - v, theirs.errors)
            agree(results[row], theirs.pg_advantage)
        case(
            "v_trace",
            "rlax.vtrace_td_error_and_advantage",
            {
                **t,
                "ratios": ratios,
                "lambda": lam,
                "rho_max": rho_max,
                "advantage_rho_max": advantage_rho_max,
            },
            {"targets": targets, "advantages": results},
        )


def huber() -> None:
    """Losses and derivatives."""
    errors = np.array([-3, -1.5, -0.5, 0, 0.25, 1, 4])
    for delta in (1.0, 0.5):
        losses = [
            e * e / 2 if abs(e) <= delta else delta * (abs(e) - delta / 2) for e in errors.tolist()
        ]
        agree(losses, rlax.huber_loss(errors, delta))
        given = {"errors": errors, "delta": delta}
        case("huber_losses", "rlax.huber_loss", given, {"losses": losses})
        slopes = jax.vmap(jax.grad(lambda e, d=delta: rlax.huber_loss(e, d)))(jnp.asarray(errors))
        agree(np.clip(errors, -delta, delta), slopes)
        case(
            "huber_derivatives",
            "the gradient of rlax.huber_loss",
            given,
            {"derivatives": np.clip(errors, -delta, delta)},
        )


def squashed_gaussian() -> None:
    """Actions, log probabilities and gradients."""
    mean, log_std, noise = rounded(3, 2), rounded(3, 2, high=0.5), rounded(3, 2, low=-1.5, high=1.5)
    u = mean + np.exp(log_std) * noise
    actions = np.tanh(u)
    density = np.exp(-(noise**2) / 2) / (np.exp(log_std) * math.sqrt(2 * math.pi))
    log_probabilities = (np.log(density) - np.log(1 - actions**2)).sum(axis=1)
    with jax.enable_x64(True):
        theirs = distrax.Transformed(distrax.Normal(mean, np.exp(log_std)), distrax.Tanh())
        agree(log_probabilities, theirs.log_prob(actions).sum(axis=1))
    case(
        "squashed_gaussian",
        "distrax.Transformed(Normal, Tanh)",
        {"mean": mean, "log_std": log_std, "noise": noise},
        {"actions": actions, "log_probabilities": log_probabilities},
    )

    action_gradient, log_probability_gradient = rounded(3, 2), rounded(3)

    def loss(m: jax.Array, s: jax.Array) -> jax.Array:
        pre = m + jnp.exp(s) * noise
        a = jnp.tanh(pre)
        log_p = -(noise**2) / 2 - s - math.log(2 * math.pi) / 2 - jnp.log(1 - a**2)
        return (a * action_gradient).sum() + (log_p.sum(axis=1) * log_probability_gradient).sum()

    with jax.enable_x64(True):
        mean_gradient, log_std_gradient = jax.grad(loss, (0, 1))(
            jnp.asarray(mean), jnp.asarray(log_std)
        )
    case(
        "squashed_gaussian_gradient",
        "jax.grad of the definition",
        {
            "log_std": log_std,
            "noise": noise,
            "actions": actions,
            "action_gradient": action_gradient,
            "log_probability_gradient": log_probability_gradient,
        },
        {"mean_gradient": mean_gradient, "log_std_gradient": log_std_gradient},
    )


def exploration() -> None:
    """Schedules and epsilon-greedy choices."""
    steps = np.array([0, 25, 50, 100, 1000])
    for decay in (0, 1):
        given = {"first": 1, "last": 0.01, "step_count": 100, "decay": decay, "steps": steps}
        shares = np.minimum(steps / 100, 1)
        epsilons = 1 + shares * (0.01 - 1) if decay == 0 else 0.01**shares
        case("epsilon_at", "linear" if decay == 0 else "exponential", given, {"epsilons": epsilons})
    case(
        "actor_epsilon",
        "Horgan et al. 2018, section 4.1",
        {"actor_count": 4, "base": 0.4, "alpha": 7},
        {"epsilons": [0.4, 0.4 ** (1 + 7 / 3), 0.4 ** (1 + 14 / 3), 0.4**8]},
    )
    case(
        "epsilon_greedy",
        "by hand: rows 0 and 3 are greedy, the others explore",
        {
            "values": [[1, 3, 2], [1, 3, 2], [1, 3, 2], [5, 5, 5]],
            "epsilon": 0.3,
            "explore_draws": [0.3, 0.29, 0, 0.9],
            "action_draws": [0, 0, 0.999, 0.5],
        },
        {"actions": [1, 0, 2, 0]},
    )


def noise() -> None:
    """Noise on continuous actions."""
    actions, normals = rounded(3, 2, low=-1, high=1), rounded(3, 2)
    for sigma, noise_max in ((0.2, 0.25), (0.5, 10.0)):
        added = np.clip(sigma * normals, -noise_max, noise_max)
        case(
            "add_gaussian_noise",
            "Fujimoto et al. 2018, equation 14",
            {
                "actions": actions,
                "normals": normals,
                "sigma": sigma,
                "noise_max": noise_max,
                "low": [-1, -0.5],
                "high": [1, 0.5],
            },
            {"noisy": np.clip(actions + added, [-1, -0.5], [1, 0.5])},
        )
    state, normals = rounded(4), rounded(4)
    theta, sigma, dt, mean = 0.15, 0.2, 0.01, 0.5
    case(
        "ornstein_uhlenbeck_step",
        "the Euler step of the stochastic equation",
        {
            "state": state,
            "normals": normals,
            "theta": theta,
            "sigma": sigma,
            "dt": dt,
            "mean": mean,
        },
        {"state": state + theta * (mean - state) * dt + sigma * math.sqrt(dt) * normals},
    )


if __name__ == "__main__":
    print(
        "# Worked numbers of the learning rules, written by make_learning_rules.py, which says how."
    )
    print("# case RULE : what it was compared with")
    print("#   argument EXTENTS : numbers, row-major        -> result EXTENTS : numbers")
    for write in (
        td,
        q,
        clipped,
        categorical,
        advantages,
        v_trace,
        huber,
        squashed_gaussian,
        exploration,
        noise,
    ):
        write()
