"""The five algorithms with PyTorch, on a CPU or an accelerator: a policy and a learner for `Loop`.

The rules, defaults and settings are those of the native ones (docs/algorithms/); networks are
dense, with convolutions before them where observations are pictures.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from reverie import _reverie
from reverie.agents.envs import check_action_numbers
from reverie.agents.settings import TrainSettings, checked_algorithm, checked_settings
from reverie.envs.backend import EnvSpec
from reverie.errors import InvalidArgumentError, MissingPackageError

try:
    import torch
    from torch import Tensor, nn

    from reverie.agents import torch_state
    from reverie.agents.torch_device import begin_use, checked_device
    from reverie.agents.torch_networks import Network, Observations
except ImportError as error:
    raise MissingPackageError(
        "reverie.agents.torch_agent needs PyTorch: pip install torch"
    ) from error

_DISCRETE = ("dqn", "ddqn")
_LOG_STD = (-20.0, 2.0)
_PUBLISH = 16  # gradient steps between two copies for an actor on another thread
_CHECK_STEPS = 64  # gradient steps between two looks at an accelerator's gradients

# Losses by the name of what learns from them, each with the optimiser of its parameters.
_Losses: TypeAlias = "dict[str, tuple[torch.optim.Optimizer, Tensor]]"


class TorchAgent:
    """A policy and a learner in one, for `Loop`.

        agent = TorchAgent("ddqn", spec, settings, device="cuda:0")
        with Loop(agent, agent, env, settings, output="torch", device="cuda:0") as loop:
            loop.start()
            loop.wait()

    Thread-safe between one thread that acts and one that learns: the actor's networks are copies.

    Args:
        algorithm: one of ``algorithms()``.
        spec: the environment's; `EnvPool.spec`.
        settings: what differs from the algorithm's defaults.
        device: where it computes, ``"cpu"`` or ``"cuda:0"``.

    Raises:
        InvalidArgumentError: the algorithm does not serve the actions, or there is no such device.
        UnsupportedTypeError: observations other than a single array of numbers, or actions that are
            neither Discrete nor floating-point numbers.
    """

    def __init__(
        self,
        algorithm: str,
        spec: EnvSpec,
        settings: TrainSettings | None = None,
        *,
        device: str = "cpu",
    ) -> None:
        self.algorithm = checked_algorithm(algorithm)
        settings = checked_settings(settings)
        self._s: dict[str, Any] = _reverie.checked_settings(algorithm, settings.options())
        self.device = checked_device(device)
        # Whether each gradient is looked at before its step. Every look waits for a device.
        self._asks_at_once = self.device.type == "cpu"
        self._refused: dict[str, tuple[list[Tensor], Tensor]] = {}
        self._hidden = [int(width) for width in str(self._s["hidden"]).split(",") if width]
        self._obs = Observations(spec)
        self._is_discrete = spec.action_count is not None
        _check_actions(algorithm, spec)
        seed = int(self._s.get("seed", 0))
        # The initial weights use the program's generator, whose state is then restored.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            self._make_networks(spec)
        self._numbers = np.random.default_rng(seed)
        self._draws = torch.Generator(device=self.device)
        self._draws.manual_seed(seed % 2**63)
        self._updates = 0
        self._loss: Tensor | None = None
        self._lock = threading.Lock()
        self._acting = copy.deepcopy(self.actor)
        self._is_held = False
        self._best: dict[str, Tensor] | None = None

    @property
    def loss(self) -> float:
        """The loss of the last batch; NaN before the first. Waits for the device."""
        return float("nan") if self._loss is None else float(self._loss)

    # --- Networks.

    def _make_networks(self, spec: EnvSpec) -> None:
        optimizer: dict[str, Any] = {"eps": float(self._s["adam_epsilon"])}
        if not self._asks_at_once:
            optimizer["fused"] = True  # the one that leaves a step out by itself
        if self._is_discrete:
            self._action_count = int(spec.action_count or 0)
            self.actor = self._network(self._action_count)
            self.critics = nn.ModuleList([self.actor])
        else:
            low = torch.as_tensor(np.asarray(spec.action_low, np.float32).ravel())
            high = torch.as_tensor(np.asarray(spec.action_high, np.float32).ravel())
            half = (high - low) / 2
            middle = low + half
            self._scale = middle.numpy(), half.numpy()
            self._middle, self._half = middle.to(self.device), half.to(self.device)
            self._action_shape = tuple(n or 1 for n in spec.action.shape)
            self._action_dtype = np.dtype(spec.action.dtype)
            self._bounds = spec.action_low, spec.action_high
            width = low.numel()
            self.actor = self._network(2 * width if self.algorithm == "sac" else width)
            count = 1 if self.algorithm == "ddpg" else 2
            self.critics = nn.ModuleList([self._network(1, width) for _ in range(count)])
            entropy = self._s.get("target_entropy")
            self._target_entropy = -float(width) if entropy is None else float(entropy)
            first = float(self._s["temperature"]) or 1.0
            self._log_temperature = torch.tensor(
                np.log(first), dtype=torch.float32, device=self.device, requires_grad=True
            )
            rate = float(self._s["policy_learning_rate"])
            self._actor_step = torch.optim.Adam(self.actor.parameters(), rate, **optimizer)
            self._temperature_step = torch.optim.Adam([self._log_temperature], rate, **optimizer)
        self._target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self._target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        rate = float(self._s["learning_rate"])
        self._critic_step = torch.optim.Adam(self.critics.parameters(), rate, **optimizer)
        self._rates = [
            (optimizer, group["lr"])
            for optimizer in vars(self).values()
            if isinstance(optimizer, torch.optim.Optimizer)
            for group in optimizer.param_groups
        ]

    def _network(self, outputs: int, more_inputs: int = 0) -> Network:
        made: Network = Network(self._obs, self._hidden, outputs, more_inputs).to(self.device)
        return made

    # --- Acting.

    def act(self, observation: Any, *, step: int, explore: bool) -> np.ndarray:  # noqa: ANN401
        """Actions as the environment takes them; see `Policy`."""
        rows = len(observation)
        if self._is_discrete:
            if not explore:
                return self._greedy_actions(observation)
            is_random = self._numbers.random(rows) < self._epsilon(step)
            chosen = self._numbers.integers(self._action_count, size=rows)
            if is_random.all():
                return chosen
            return np.where(is_random, chosen, self._greedy_actions(observation))
        width = self._half.numel()
        if explore and step < self._s["warmup_steps"]:
            unit = self._numbers.uniform(-1, 1, (rows, width)).astype(np.float32)
        else:
            out = self._forward(observation)
            if self.algorithm == "sac":
                mean, log_std = out.chunk(2, 1)
                noise = self._numbers.standard_normal((rows, width)) if explore else 0.0
                out = mean + log_std.clamp(*_LOG_STD).exp() * torch.as_tensor(
                    noise, dtype=torch.float32, device=self.device
                )
            unit = out.tanh().cpu().numpy()
            if explore and self.algorithm != "sac":
                noise = self._numbers.standard_normal((rows, width)) * self._s["noise_sigma"]
                unit = np.clip(unit + noise, -1, 1)
        middle, half = self._scale
        scaled = middle + unit * half
        shaped = scaled.reshape(rows, *self._action_shape).astype(self._action_dtype)
        bounded: np.ndarray = np.clip(shaped, *self._bounds)
        return bounded

    def _greedy_actions(self, observation: Any) -> np.ndarray:  # noqa: ANN401
        best: np.ndarray = self._forward(observation).argmax(1).cpu().numpy()
        return best

    def _epsilon(self, step: int) -> float:
        first, last = float(self._s["epsilon_first"]), float(self._s["epsilon_last"])
        over = float(self._s["epsilon_share"]) * float(self._s["steps"])
        return last if step >= over else first + (last - first) * step / over

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def _forward(self, observation: Any) -> Tensor:  # noqa: ANN401
        inputs = torch.as_tensor(np.ascontiguousarray(observation), device=self.device)
        with self._lock:
            made: Tensor = self._acting(inputs)
        return made

    # --- Learning.

    def learn(self, batch: dict[str, Any], *, progress: float) -> Tensor:
        """One gradient step, by the algorithm's rule; gives the absolute TD errors."""
        begin_use(self.device)
        left = 1.0 - progress * (1.0 - float(self._s["learning_rate_last_share"]))
        for optimizer, rate in self._rates:
            for group in optimizer.param_groups:
                group["lr"] = rate * left
        tensors = {
            name: torch.as_tensor(value, device=self.device)
            for name, value in batch.items()
            if name != "tickets"
        }
        rule = self._learn_q if self._is_discrete else self._learn_continuous
        errors = rule(tensors)
        self._updates += 1
        self._follow()
        if self._s["actors"] == 0 or self._updates % _PUBLISH == 0:
            self.publish()
        if not self._asks_at_once and self._updates % _CHECK_STEPS == 0:
            self.check_finite()
        return errors

    def publish(self) -> None:
        """Gives the actor the networks as they are, unless those that act are `held`."""
        with self._lock, torch.no_grad():
            if not self._is_held:
                _copy(self.actor, self._acting, 1.0)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The networks that act stay as they are, for an evaluation; learning goes on."""
        with self._lock:
            self._is_held = True
        try:
            yield
        finally:
            with self._lock:
                self._is_held = False

    def _learn_q(self, batch: dict[str, Tensor]) -> Tensor:
        with torch.no_grad():
            after = self._target_critics[0](batch["next_obs"])
            if self.algorithm == "ddqn":
                best = self.actor(batch["next_obs"]).argmax(1, keepdim=True)
                value = after.gather(1, best).squeeze(1)
            else:
                value = after.amax(1)
            target = _td_target(batch, value)
        chosen = self.actor(batch["obs"]).gather(1, batch["action"].long().view(-1, 1)).squeeze(1)
        error = chosen - target
        loss = self._regression(error, batch)
        self._loss = loss.detach()
        self._step({"the value network": (self._critic_step, loss)})
        return error.detach().abs()

    def _learn_continuous(self, batch: dict[str, Tensor]) -> Tensor:
        taken = batch["action"].reshape(len(batch["reward"]), -1).float()
        unit = ((taken - self._middle) / self._half).clamp(-1, 1)
        with torch.no_grad():
            after, log_density = self._target_action(batch["next_obs"])
            values = [critic(batch["next_obs"], after) for critic in self._target_critics]
            value = torch.stack(values).amin(0).squeeze(1)
            if self.algorithm == "sac":
                value = value - self._log_temperature.exp() * log_density
            target = _td_target(batch, value)
        errors = [critic(batch["obs"], unit).squeeze(1) - target for critic in self.critics]
        loss = torch.stack([self._regression(error, batch) for error in errors]).sum()
        self._loss = loss.detach()
        losses: _Losses = {"a critic": (self._critic_step, loss)}
        if (self._updates + 1) % int(self._s["policy_delay"]) == 0:
            losses |= self._policy_losses(batch["obs"])
        self._step(losses)
        return torch.stack(errors).detach().abs().mean(0)

    def _policy_losses(self, obs: Tensor) -> _Losses:
        if self.algorithm != "sac":
            loss = -self.critics[0](obs, self.actor(obs).tanh()).mean()
            return {"the policy": (self._actor_step, loss)}
        action, log_density = self._sampled(self.actor(obs))
        values = torch.stack([critic(obs, action) for critic in self.critics])
        value = values.amin(0).squeeze(1)
        temperature = self._log_temperature.detach().exp()
        loss = (temperature * log_density - value).mean()
        losses: _Losses = {"the policy": (self._actor_step, loss)}
        if float(self._s["temperature"]) == 0:
            wanted = (log_density.detach() + self._target_entropy).mean()
            loss = -self._log_temperature * wanted
            losses["the temperature"] = (self._temperature_step, loss)
        return losses

    def _target_action(self, obs: Tensor) -> tuple[Tensor, Tensor | float]:
        if self.algorithm == "sac":
            return self._sampled(self.actor(obs))
        action = self._target_actor(obs).tanh()
        sigma = float(self._s["target_noise"])
        if sigma > 0:
            most = float(self._s["target_noise_max"])
            noise = self._normal(action.shape) * sigma
            action = (action + noise.clamp(-most, most)).clamp(-1, 1)
        return action, 0.0

    def _sampled(self, out: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = out.chunk(2, 1)
        log_std = log_std.clamp(*_LOG_STD)
        noise = self._normal(mean.shape)
        before = mean + log_std.exp() * noise
        density = -0.5 * noise**2 - log_std - 0.5 * float(np.log(2 * np.pi))
        # log(1 - tanh(x)^2), without the difference of numbers near 1.
        squash = 2 * (float(np.log(2)) - before - nn.functional.softplus(-2 * before))
        return before.tanh(), (density - squash).sum(1)

    def _normal(self, shape: Sequence[int]) -> Tensor:
        return torch.randn(*shape, generator=self._draws, device=self.device)

    def _regression(self, error: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """mean(w * Huber(error))."""
        delta = float(self._s["huber_delta"])
        if np.isinf(delta):
            losses = 0.5 * error**2
        else:
            losses = nn.functional.huber_loss(
                error, torch.zeros_like(error), reduction="none", delta=delta
            )
        return (batch["weights"] * losses).mean()

    def _step(self, losses: _Losses) -> None:
        """A step of each optimiser by its loss, from the same weights: all are taken, or none."""
        found: dict[str, tuple[list[Tensor], Tensor]] = {}
        for name, (optimizer, loss) in losses.items():
            optimizer.zero_grad(set_to_none=True)
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            loss.backward(inputs=parameters)
            found[name] = parameters, torch.stack(torch._foreach_norm([p.grad for p in parameters]))
        refused = {name: (of, ~norms.isfinite()) for name, (of, norms) in found.items()}
        if self._asks_at_once:
            self._refuse(refused)
        is_refused = torch.cat([which for _, which in refused.values()]).any().float()
        most = float(self._s["gradient_norm_max"]) or float("inf")
        for name, (optimizer, _) in losses.items():
            parameters, norms = found[name]
            scale = (most / (torch.linalg.vector_norm(norms) + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_([p.grad for p in parameters], scale)
            if not self._asks_at_once:
                optimizer.found_inf = is_refused
                before = self._refused.get(name)
                which = refused[name][1]
                self._refused[name] = parameters, which if before is None else before[1] | which
            optimizer.step()

    def check_finite(self) -> None:
        """Tells of a gradient whose step the device left out.

        Raises:
            InvalidArgumentError: one was not finite; the message names its layer.
        """
        refused, self._refused = self._refused, {}
        self._refuse(refused)

    def _refuse(self, refused: dict[str, tuple[list[Tensor], Tensor]]) -> None:
        for name, (parameters, which) in refused.items():
            if bool(which.any()):
                raise self._not_finite(name, parameters, which)

    def _not_finite(
        self, name: str, parameters: list[Tensor], refused: Tensor
    ) -> InvalidArgumentError:
        first = parameters[int(refused.nonzero()[0])]
        modules = self.critics if name == "a critic" else self.actor
        layer = next((n for n, p in modules.named_parameters() if p is first), "it")
        return InvalidArgumentError(
            f"the gradient of {name} is not finite in {layer}; no step was taken. Look for NaN or "
            "infinite rewards and observations, or lower the learning rate"
        )

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def _follow(self) -> None:
        is_deterministic = self.algorithm in ("ddpg", "td3")
        tau = float(self._s["tau"])
        # A share is taken with each step of the policy; copies are counted in gradient steps.
        interval = int(self._s["policy_delay"]) if is_deterministic else 1
        if tau == 0:
            interval = int(self._s["target_interval"])
        if self._updates % interval != 0:
            return
        _copy(self.critics, self._target_critics, tau or 1.0)
        if is_deterministic:
            _copy(self.actor, self._target_actor, tau or 1.0)

    # --- What is kept.

    def keep_best(self) -> None:
        """Keeps the networks that act now, as the best so far."""
        self._best = self.acting_state()

    def acting_state(self) -> dict[str, Tensor]:
        """The networks that act now."""
        with self._lock:
            state = self._acting.state_dict()
            return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def policy_state(self) -> dict[str, Tensor]:
        """The networks that act: the best kept, or the latest."""
        if self._best is not None:
            return dict(self._best)
        state = self.actor.state_dict()
        return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def state_dict(self) -> dict[str, np.ndarray | Tensor]:
        """All that it is, by name: networks, moments of the optimisers, generators, the best."""
        with self._lock:
            return torch_state.described(self)

    def load_state_dict(self, state: Mapping[str, np.ndarray | Tensor]) -> None:
        """Goes on as the agent whose `state_dict` this is.

        Random draws on an accelerator begin again where the state is of another device.

        Raises:
            InvalidArgumentError: it is of another algorithm or of networks of another shape.
        """
        with self._lock:
            torch_state.restore(self, state)

    def load_policy(self, state: dict[str, Tensor]) -> None:
        """Acts by these networks, until `publish`. What is learned does not change.

        Raises:
            InvalidArgumentError: they are of another shape.
        """
        try:
            with self._lock:
                self._acting.load_state_dict(state)
        except RuntimeError as error:
            raise InvalidArgumentError(f"the policy is of another shape: {error}") from None


def _td_target(batch: dict[str, Tensor], value: Tensor) -> Tensor:
    """Only r where d is 0, else r + d v: values behind an end mean nothing, NaN among them."""
    reward, discount = batch["reward"], batch["discount"]
    return torch.where(discount == 0, reward, reward + discount * value)


def _check_actions(algorithm: str, spec: EnvSpec) -> None:
    if spec.action_count is None:
        check_action_numbers(spec, spec.id)
    takes_discrete = algorithm in _DISCRETE
    if takes_discrete != (spec.action_count is not None):
        others = "ddpg, td3 or sac" if takes_discrete else "dqn or ddqn"
        kind = "numbers" if takes_discrete else "discrete actions"
        raise InvalidArgumentError(f"{algorithm} does not serve {kind} as actions; use {others}")
    if takes_discrete:
        return
    # Bounds of the largest floats are finite, while their difference is not.
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.asarray([spec.action_low, spec.action_high]).astype(np.float32)
        half_range = (high - low) / 2
    if not np.isfinite(half_range).all() or not (half_range > 0).all():
        raise InvalidArgumentError(
            f"{spec.id} has actions from {spec.action_low} to {spec.action_high}; {algorithm} "
            "needs finite bounds with a finite difference above 0: rescale them with a wrapper"
        )


def _copy(source: nn.Module, target: nn.Module, share: float) -> None:
    to, of = list(target.parameters()), list(source.parameters())
    if share < 1:
        torch._foreach_lerp_(to, of, share)
    else:
        torch._foreach_copy_(to, of)
