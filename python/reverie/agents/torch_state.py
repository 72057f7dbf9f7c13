"""The state of a `TorchAgent` as arrays and tensors by name, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from reverie.errors import InvalidArgumentError

if TYPE_CHECKING:
    from reverie.agents.torch_agent import TorchAgent

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def described(agent: TorchAgent) -> dict[str, np.ndarray | Tensor]:
    """Networks, optimisers, generators and counts."""
    state: dict[str, np.ndarray | Tensor] = {
        "updates": np.array(agent._updates),
        "numbers": np.array(
            list(json.dumps(agent._numbers.bit_generator.state).encode()), np.uint8
        ),
        f"draws.{agent.device.type}": agent._draws.get_state(),
    }
    for part, module in _modules(agent).items():
        for name, tensor in module.state_dict().items():
            state[f"{part}.{name}"] = tensor
    for part, optimizer in _optimizers(agent).items():
        for number, parameter in enumerate(_parameters(optimizer)):
            for moment in _MOMENTS if parameter in optimizer.state else ():
                state[f"{part}.{number}.{moment}"] = optimizer.state[parameter][moment]
    if not agent._is_discrete:
        state["log_temperature"] = agent._log_temperature
    for name, tensor in (agent._best or {}).items():
        state[f"best.{name}"] = tensor
    return state


def restore(agent: TorchAgent, given: Mapping[str, np.ndarray | Tensor]) -> None:
    """Makes the agent what another one was, by what `described` gave.

    Raises:
        InvalidArgumentError: a name is missing, or an array has another shape.
    """
    state = {name: torch.as_tensor(value) for name, value in given.items()}
    try:
        for part, module in _modules(agent).items():
            module.load_state_dict(_part(state, part))
        for part, optimizer in _optimizers(agent).items():
            _restore_moments(optimizer, _part(state, part))
        if not agent._is_discrete:
            with torch.no_grad():
                agent._log_temperature.copy_(state["log_temperature"])
        agent._best = _part(state, "best") or None
        agent._updates = int(state["updates"])
        numbers = json.loads(state["numbers"].numpy().tobytes())
        agent._numbers.bit_generator.state = numbers
        draws = state.get(f"draws.{agent.device.type}")
        if draws is not None:
            agent._draws.set_state(draws)
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"the state is not of {agent.algorithm} with these networks: {error}"
        ) from None


def _modules(agent: TorchAgent) -> dict[str, nn.Module]:
    return {
        "critics": agent.critics,
        "target_critics": agent._target_critics,
        "actor": agent.actor,
        "target_actor": agent._target_actor,
        "acting": agent._acting,
    }


def _optimizers(agent: TorchAgent) -> dict[str, torch.optim.Optimizer]:
    if agent._is_discrete:
        return {"critic_step": agent._critic_step}
    return {
        "critic_step": agent._critic_step,
        "actor_step": agent._actor_step,
        "temperature_step": agent._temperature_step,
    }


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _restore_moments(optimizer: torch.optim.Optimizer, saved: dict[str, Tensor]) -> None:
    """Through ``load_state_dict``, which puts moments where their parameters are."""
    state: dict[Any, dict[str, Any]] = {}
    for name, tensor in saved.items():
        number, _, moment = name.partition(".")
        state.setdefault(int(number), {})[moment] = tensor
    for place, parameter in enumerate(_parameters(optimizer)):
        for moment in _MOMENTS[1:] if place in state else ():
            if state[place][moment].shape != parameter.shape:
                raise ValueError(
                    f"{moment} of parameter {place} is {list(state[place][moment].shape)}; it "
                    f"must be {list(parameter.shape)}"
                )
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _part(state: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }
