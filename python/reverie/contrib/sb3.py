"""Stable-Baselines3: environments that reverie steps, and its replay buffer.

    from reverie.contrib import sb3

    envs = sb3.VecEnv("CartPole-v1", 8)
    model = DQN("MlpPolicy", envs, replay_buffer_class=sb3.ReplayBuffer)

Tried with Stable-Baselines3 2.9.2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from reverie import _checks
from reverie._options import Codec
from reverie.contrib import versions
from reverie.errors import InvalidArgumentError, UnsupportedTypeError

try:
    from stable_baselines3.common import buffers as sb3_buffers
    from stable_baselines3.common import vec_env as sb3_vec_env
    from stable_baselines3.common.type_aliases import (
        DictReplayBufferSamples,
        ReplayBufferSamples,
    )
except ImportError as error:
    raise versions.refusal(error, "stable_baselines3", "reverie.contrib.sb3") from None

from reverie.contrib.transitions import TransitionBuffer
from reverie.envs.vector_env import GymVectorEnv
from reverie.hindsight import Hindsight

__all__ = ["ReplayBuffer", "VecEnv"]

versions.check("stable_baselines3", "reverie.contrib.sb3")


class VecEnv(sb3_vec_env.VecEnv):  # type: ignore[misc]
    """Environments as Stable-Baselines3 has them, stepped by a ``GymVectorEnv``.

    Returns and lengths of episodes are in ``info["episode"]``, as ``Monitor`` puts them there, so
    that SB3's log has ``ep_rew_mean`` without another wrapper. An environment with a ``Monitor``
    keeps the entries of that.

    Args:
        env: what ``GymVectorEnv`` takes: a Gymnasium id, a function, a list of functions; or a
            ``GymVectorEnv`` with ``autoreset_mode="SameStep"``.
        num_envs: environments.
        options: keyword arguments of ``GymVectorEnv``: ``backend``, ``env_kwargs``, ``wrappers``.

    Raises:
        InvalidArgumentError: a ``GymVectorEnv`` that resets in another way.
    """

    def __init__(self, env: object, num_envs: int | None = None, **options: Any) -> None:  # noqa: ANN401
        if isinstance(env, GymVectorEnv):
            if env.autoreset_mode.value != "SameStep":
                raise InvalidArgumentError(
                    f"env resets by {env.autoreset_mode}; Stable-Baselines3 resets in the same "
                    'step: make it with autoreset_mode="SameStep"'
                )
            self.envs = env
        else:
            self.envs = GymVectorEnv(env, num_envs, autoreset_mode="SameStep", **options)
        count = self.envs.num_envs
        self._actions: Any = None
        self._is_monitored = np.full(count, self._has_monitors())  # gives an "episode" itself
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)
        self._begin_s = time.time()
        spaces_of = (self.envs.single_observation_space, self.envs.single_action_space)
        super().__init__(count, *spaces_of)

    def reset(self) -> Any:  # noqa: ANN401
        """Reset all environments, with the seeds and options that were set."""
        options = self._options[0]
        if any(one != options for one in self._options):
            raise InvalidArgumentError(
                "options differ from environment to environment; give all the same"
            )
        seeds = self._seeds if any(seed is not None for seed in self._seeds) else None
        observations, infos = self.envs.reset(seed=seeds, options=dict(options) or None)
        self.reset_infos = _rows(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0
        self._lengths[:] = 0
        return observations

    def step_async(self, actions: Any) -> None:  # noqa: ANN401
        """Take the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Step, and give observations, rewards, ends and infos."""
        observations, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        dones = terminated | truncated
        rows = _rows(infos, self.num_envs) if infos else [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(dones).tolist():
            rows[index] = self._ended(index, rows[index], infos["final_obs"][index])
        for row, is_cut in zip(rows, (truncated & ~terminated).tolist(), strict=True):
            row["TimeLimit.truncated"] = is_cut
        self._returns[dones] = 0
        self._lengths[dones] = 0
        return observations, rewards.astype(np.float32), dones, rows

    def _ended(self, index: int, row: dict[str, Any], last: Any) -> dict[str, Any]:  # noqa: ANN401
        """The info of an episode's last step, of a row that has that of the reset too."""
        row.pop("final_obs", None)
        if "final_info" in row:
            row, self.reset_infos[index] = dict(row.pop("final_info")), row
        else:  # a pool's columns are the step's
            self.reset_infos[index] = {}
        row["terminal_observation"] = last
        self._is_monitored[index] |= "episode" in row
        if not self._is_monitored[index]:
            row["episode"] = {
                "r": round(float(self._returns[index]), 6),
                "l": int(self._lengths[index]),
                "t": round(time.time() - self._begin_s, 6),
            }
        return row

    def close(self) -> None:
        """End the environments."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ANN401
        """An attribute of each environment, or of those of ``indices``; a method is not called."""
        found = self.envs._engine.read(attr_name)
        return [found[index] for index in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether each environment has an attribute or a method of that name."""
        try:
            self.envs._engine.read(attr_name)
        except AttributeError:
            return False
        except UnsupportedTypeError:  # it stays in its worker process
            return True
        return True

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ANN401
        """Set an attribute of each environment, or of those of ``indices``."""
        chosen = set(self._get_indices(indices))
        if len(chosen) == self.num_envs:
            return self.envs.set_attr(attr_name, [value] * self.num_envs)
        now = self.envs._engine.read(attr_name)
        self.envs.set_attr(attr_name, [value if i in chosen else now[i] for i in range(len(now))])
        return None

    def env_method(
        self,
        method_name: str,
        *method_args: Any,  # noqa: ANN401
        indices: Any = None,  # noqa: ANN401
        **method_kwargs: Any,  # noqa: ANN401
    ) -> list[Any]:
        """Call a method of each environment.

        Raises:
            InvalidArgumentError: ``indices`` leaves some out; all of them are called or none.
        """
        chosen = list(self._get_indices(indices))
        if len(chosen) != self.num_envs:
            raise InvalidArgumentError(
                f"indices is {_checks.shown(indices)}; a method is called of all environments: "
                "leave indices out"
            )
        found = self.envs.call(method_name, *method_args, **method_kwargs)
        return [found[index] for index in chosen]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:  # noqa: ANN401
        """Whether environments are wrapped so: by ``Monitor`` they are as good as."""
        is_monitor = wrapper_class.__name__ == "Monitor"
        return [is_monitor for _ in self._get_indices(indices)]

    def _has_monitors(self) -> bool:
        try:
            self.envs.call("get_episode_rewards")
        except AttributeError:
            return False
        return True

    def get_images(self) -> Sequence[Any]:
        """What each environment draws."""
        return list(self.envs.render())


def _rows(infos: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """A dict an environment, of the dict of arrays and their masks."""
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, values in infos.items():
        mask = infos.get(f"_{name}")
        if name.startswith("_") or mask is None:
            continue
        each = _rows(values, count) if isinstance(values, dict) else values
        for index in np.flatnonzero(mask).tolist():
            rows[index][name] = each[index]
    return rows


class ReplayBuffer(TransitionBuffer, sb3_buffers.ReplayBuffer):  # type: ignore[misc]
    """A ``reverie.ReplayBuffer`` for ``replay_buffer_class=``: each observation is stored once.

    Args:
        buffer_size: transitions of all environments together.
        observation_space: that of the environments; Dict spaces too. Observations are stored as its
            dtype.
        action_space: that of the environments. Actions are stored as its dtype, float64 as float32.
        device: where batches go.
        n_envs: environments.
        optimize_memory_usage: must be False: observations are stored once in any case.
        handle_timeout_termination: tells what a time limit cut off from what ended.
        n_steps: rewards of a transition.
        gamma: the discount of one step in sums of rewards, with ``n_steps`` above 1. Give the
            algorithm's.
        prioritized: draws by priority; give them with :meth:`update_priorities`.
        alpha: the exponent of priorities.
        beta: the exponent of ``weights``, which are of the last batch that was sampled.
        frame_stack: for observations of ``VecFrameStack`` (or ``FrameStackObservation``): how many
            frames one has. The newest alone is stored; where an episode is too young, its first
            frame is repeated.
        hindsight: a ``reverie.Hindsight``: draws some transitions with goals that their episode
            reached, of Dict observations.
        codec: ``"auto"`` keeps pictures compressed, in 1 to 5 % of the bytes: ``codec`` of
            ``reverie.ReplayBuffer``.
        seed: seeds the draws; None takes a number of NumPy's global generator, so that a program
            that seeds it draws the same again.

    Raises:
        InvalidArgumentError: ``optimize_memory_usage``, or a ``frame_stack`` that does not divide
            the observations' first axis.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,  # noqa: ANN401
        action_space: Any,  # noqa: ANN401
        device: Any = "auto",  # noqa: ANN401
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        prioritized: bool = False,
        alpha: float = 0.6,
        beta: float = 0.4,
        frame_stack: int = 1,
        hindsight: Hindsight | None = None,
        codec: Codec = "raw",
        seed: int | None = None,
    ) -> None:
        if optimize_memory_usage:
            raise InvalidArgumentError(
                "optimize_memory_usage is True; leave it out: this buffer stores each observation "
                "once in any case"
            )
        sb3_buffers.BaseBuffer.__init__(
            self, buffer_size, observation_space, action_space, device, n_envs=n_envs
        )
        self.optimize_memory_usage = False
        self._open(
            buffer_size,
            observation_space,
            action_space,
            self.device,
            n_envs,
            handle_timeout_termination=handle_timeout_termination,
            n_steps=n_steps,
            gamma=gamma,
            prioritized=prioritized,
            alpha=alpha,
            beta=beta,
            frame_stack=frame_stack,
            hindsight=hindsight,
            codec=codec,
            seed=seed,
        )

    @property
    def full(self) -> bool:
        """Whether the oldest transitions make room."""
        return len(self.replay) >= self.replay.capacity

    @full.setter
    def full(self, _value: bool) -> None:
        """Settled by what is stored."""

    def add(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        """Store one step of each environment; see ``TransitionBuffer.add``."""
        TransitionBuffer.add(self, *arguments, **named)
        self.pos += 1

    def _made(self, **arrays: Any) -> Any:  # noqa: ANN401
        if self._is_dict:
            return DictReplayBufferSamples(**arrays)
        return ReplayBufferSamples(**arrays)
