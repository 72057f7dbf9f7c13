"""A ``reverie.ReplayBuffer`` behind the interface that Stable-Baselines3 gave to others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

import reverie
from reverie import _checks, frameworks
from reverie._options import Codec
from reverie.contrib.kept_batches import KeptBatches
from reverie.errors import InvalidArgumentError
from reverie.hindsight import Hindsight


class Samples(NamedTuple):
    """A batch of tensors: ``[B, ...]`` observations and actions, ``[B, 1]`` of the rest.

    ``discounts`` is what the value of ``next_observations`` counts, with several steps; else None.
    """

    observations: Any
    actions: Any
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None = None


class TransitionBuffer:
    """What ``contrib.cleanrl.ReplayBuffer`` and ``contrib.sb3.ReplayBuffer`` have in common."""

    replay: reverie.ReplayBuffer
    tickets: Any
    """The tickets of the last batch: for :meth:`update_priorities`."""
    weights: Any
    """The weights of the last batch, ``[B, 1]``: a factor of each loss."""
    _action_dtype: Any = None  # buffers that were pickled by an older version have none

    def _open(
        self,
        buffer_size: int,
        observation_space: Any,  # noqa: ANN401
        action_space: Any,  # noqa: ANN401
        device: Any,  # noqa: ANN401
        n_envs: int,
        *,
        handle_timeout_termination: bool,
        n_steps: int,
        gamma: float,
        prioritized: bool,
        alpha: float,
        beta: float,
        frame_stack: int,
        hindsight: Hindsight | None,
        codec: Codec,
        seed: int | None,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.device = device
        self.n_envs = _checks.integer("n_envs", n_envs)
        self.handle_timeout_termination = handle_timeout_termination
        self._is_dict = type(observation_space).__name__ == "Dict"
        self._shape: Any = _obs_shape(observation_space)
        self._dtype: Any = getattr(observation_space, "dtype", None)
        parts = observation_space.spaces if self._is_dict else {}
        self._parts = {key: (_obs_shape(part), part.dtype) for key, part in parts.items()}
        self._action_size = _action_size(action_space)
        self._action_dtype = _action_dtype(action_space)
        self._frame_stack = _checks.integer("frame_stack", frame_stack)
        self._channels = 1
        self._n_steps = n_steps
        self._none = np.zeros(n_envs, bool)
        if frame_stack > 1:
            self._check_stack()
        if seed is None:  # the buffers in whose place this is draw by NumPy's global generator
            seed = int(np.random.randint(2**31))  # noqa: NPY002
        self.replay = reverie.ReplayBuffer(
            buffer_size,
            n_envs,
            frame_stack,
            n_steps,
            gamma=gamma,
            prioritized=prioritized,
            alpha=alpha,
            beta=beta,
            hindsight=hindsight,
            codec=codec,
            seed=seed,
        )
        self._batches = KeptBatches()
        self.tickets = None
        self.weights = None

    @property
    def device(self) -> Any:  # noqa: ANN401
        """Where batches go. Stable-Baselines3 sets it again after it has loaded a buffer."""
        return self._device

    @device.setter
    def device(self, device: Any) -> None:  # noqa: ANN401
        self._is_on_cpu = frameworks.torch_device(device).type == "cpu"
        self._device = device

    def size(self) -> int:
        """Transitions that can be drawn."""
        return len(self.replay)

    def reset(self) -> None:
        """Drop all transitions."""
        self.replay.clear()

    def add(
        self,
        obs: Any,  # noqa: ANN401
        next_obs: Any,  # noqa: ANN401
        action: Any,  # noqa: ANN401
        reward: Any,  # noqa: ANN401
        done: Any,  # noqa: ANN401
        infos: Iterable[dict[str, Any]] | Mapping[str, Any],
    ) -> None:
        """Store one step of each environment.

        Args:
            obs: ``[n_envs, ...]``.
            next_obs: what the step led to; at an episode's end its last observation. Where it is
                not the ``obs`` of the next call, a new episode begins.
            action: ``[n_envs, ...]``, stored as the dtype of the action space, or float32 for
                float64.
            reward: ``[n_envs]``.
            done: ``[n_envs]``: the episode ended.
            infos: a dict for each environment, looked at with ``handle_timeout_termination``; or
                the dict of arrays of a vector environment, with ``"TimeLimit.truncated"``.

        Raises:
            InvalidArgumentError: an array has another number of rows, or ``infos`` does not say
                which episodes a time limit cut off.
        """
        # Few calls, since a gradient step between two calls leaves the caches cold.
        done = self._batched("done", np.asarray(done, bool), ())
        cut = self._none
        if self.handle_timeout_termination and True in done:
            time_limits = self._time_limits(infos)
            if True in time_limits:
                cut = np.array(time_limits) & done
                done = done & ~cut
        action = np.asarray(action, self._action_dtype)
        action = self._batched("action", action, (self._action_size,))
        if action.dtype == np.float64:  # of a space without a dtype
            action = action.astype(np.float32)
        reward = self._batched("reward", np.asarray(reward), ())
        self.replay.add(self._stored(obs), action, reward, self._stored(next_obs), done, cut)

    def sample(self, batch_size: int, env: Any = None) -> Any:  # noqa: ANN401
        """Draw a batch; ``env`` is SB3's ``VecNormalize``, which normalises it."""
        batch = self._batches.sample(self.replay, batch_size)
        self.tickets = batch["tickets"]
        self.weights = self._to_device(batch["weights"].reshape(-1, 1))
        reward = batch["reward"].reshape(-1, 1)
        if env is not None:
            reward = env.normalize_reward(reward).astype(np.float32)
        discounts = self._to_device(batch["discount"].reshape(-1, 1)) if self._n_steps > 1 else None
        return self._made(
            observations=self._given(batch["obs"], env),
            actions=self._to_device(batch["action"]),
            next_observations=self._given(batch["next_obs"], env),
            dones=self._to_device(batch["terminated"].astype(np.float32).reshape(-1, 1)),
            rewards=self._to_device(reward),
            discounts=discounts,
        )

    def update_priorities(self, priorities: Any) -> int:  # noqa: ANN401
        """Give the transitions of the last batch new priorities, ``[B]`` or ``[B, 1]``."""
        return self.replay.update_priorities(self.tickets, priorities)

    def _made(self, **arrays: Any) -> Any:  # noqa: ANN401
        return Samples(**arrays)

    def _time_limits(self, infos: Iterable[dict[str, Any]] | Mapping[str, Any]) -> list[bool]:
        """Which environments a time limit has cut off."""
        if not isinstance(infos, Mapping):
            return [bool(info.get("TimeLimit.truncated", False)) for info in infos]
        if "TimeLimit.truncated" not in infos:
            raise InvalidArgumentError(
                "infos is one dict without 'TimeLimit.truncated', so it does not say which "
                "episodes a time limit cut off; give a list with a dict for each environment, or "
                "make the buffer with handle_timeout_termination=False and give terminations alone"
            )
        limits = np.asarray(infos["TimeLimit.truncated"], bool)
        return list(self._batched("infos['TimeLimit.truncated']", limits, ()))

    def _check_stack(self) -> None:
        shape = self._shape
        if not shape or len(shape) != 3 or shape[0] % self._frame_stack:
            raise InvalidArgumentError(
                f"frame_stack is {self._frame_stack}, and observations are "
                f"{self.observation_space}; they must be pictures with the frames along the first "
                "axis, as VecTransposeImage and FrameStackObservation leave them"
            )
        self._channels = shape[0] // self._frame_stack

    def _stored(self, obs: Any) -> Any:  # noqa: ANN401
        """Observations as the space's dtype: programs set it for their networks."""
        if self._is_dict:
            return {key: self._stored_part(key, value) for key, value in obs.items()}
        obs = np.asarray(obs, self._dtype)
        if self._shape is not None:
            obs = self._batched("obs", obs, self._shape)
        return obs if self._frame_stack == 1 else np.ascontiguousarray(obs[:, -self._channels :])

    def _stored_part(self, key: str, value: Any) -> Any:  # noqa: ANN401
        """An entry of Dict observations."""
        shape, dtype = self._parts.get(key, (None, None))
        array = np.asarray(value, dtype)
        return array if shape is None else self._batched(f"obs[{key!r}]", array, shape)

    def _batched(self, name: str, array: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
        """``[n_envs, *shape]``: one environment need not have the first axis."""
        wanted = (self.n_envs, *shape)
        if array.shape == wanted:
            return array
        if array.size != math.prod(wanted):
            raise InvalidArgumentError(
                f"{name} has the shape {array.shape}; it must be {wanted}: one row for each of "
                f"n_envs={self.n_envs} environments"
            )
        return array.reshape(wanted)

    def _given(self, obs: Any, env: Any) -> Any:  # noqa: ANN401
        if self._frame_stack > 1:
            obs = obs.reshape((len(obs), *self._shape))
        if env is not None:
            obs = env.normalize_obs(obs)
        if self._is_dict:
            return {key: self._to_device(value) for key, value in obs.items()}
        return self._to_device(obs)

    def _to_device(self, array: Any) -> Any:  # noqa: ANN401
        tensor = torch.from_numpy(array)
        return tensor if self._is_on_cpu else tensor.to(self.device)


def _obs_shape(space: Any) -> Any:  # noqa: ANN401
    """The shape of an observation, of a ``Discrete`` space too; None where it has none."""
    return (1,) if type(space).__name__ == "Discrete" else getattr(space, "shape", None)


def _action_size(space: Any) -> int:  # noqa: ANN401
    """Numbers of an action, which is stored flat."""
    return int(np.prod(space.shape)) if getattr(space, "shape", None) else 1


def _action_dtype(space: Any) -> Any:  # noqa: ANN401
    """What actions are stored as, as in the buffers in whose place this is; None: as given."""
    dtype = getattr(space, "dtype", None)
    if dtype is None:
        return None
    return np.float32 if np.dtype(dtype) == np.float64 else np.dtype(dtype)
