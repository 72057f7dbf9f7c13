"""Tianshou: environments that reverie steps, and its replay buffers.

    from reverie.contrib import tianshou

    envs = tianshou.VectorEnv("CartPole-v1", 8)
    buffer = tianshou.PrioritizedVectorReplayBuffer(100_000, 8, alpha=0.6, beta=0.4)
    collector = Collector(algorithm, envs, buffer)

For the off-policy algorithms: DQN and its kind, DDPG, TD3, SAC, REDQ. Tried with Tianshou 2.0.1.

One file, so that all that leans on the classes of a release of Tianshou is found together.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

import reverie
from reverie import _checks
from reverie.contrib import versions
from reverie.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
    UnsupportedTypeError,
)

try:
    from tianshou.data import Batch, ReplayBufferManager, to_numpy
    from tianshou.env import BaseVectorEnv
except ImportError as error:
    raise versions.refusal(error, "tianshou", "reverie.contrib.tianshou") from None

from reverie.envs import rows
from reverie.envs.vector_env import GymVectorEnv

if TYPE_CHECKING:
    from reverie._options import Codec

__all__ = ["PrioritizedVectorReplayBuffer", "VectorEnv", "VectorReplayBuffer"]

versions.check("tianshou", "reverie.contrib.tianshou")

_LEAST = float(np.finfo(np.float32).eps)  # of a priority, as Tianshou has it
_EPISODES = 1 << 60  # above: places of steps in the last episode of each environment
_EPISODE_STEPS = 1 << 40


class VectorEnv(BaseVectorEnv):  # type: ignore[misc]
    """Environments as Tianshou's collector has them, stepped by a ``GymVectorEnv``.

    Args:
        env: what ``GymVectorEnv`` takes: a Gymnasium id, a function, a list of functions; or a
            ``GymVectorEnv`` with ``autoreset_mode="Disabled"``.
        num_envs: environments.
        options: keyword arguments of ``GymVectorEnv``: ``backend``, ``env_kwargs``, ``wrappers``.

    Raises:
        InvalidArgumentError: a ``GymVectorEnv`` that resets by itself.
        UnsupportedTypeError: observations that are tuples, or actions that are no arrays.
    """

    def __init__(self, env: object, num_envs: int | None = None, **options: Any) -> None:  # noqa: ANN401
        if isinstance(env, GymVectorEnv):
            if env.autoreset_mode.value != "Disabled":
                raise InvalidArgumentError(
                    f"env resets by {env.autoreset_mode}; Tianshou's collector does the resets: "
                    'make it with autoreset_mode="Disabled"'
                )
            self.envs = env
        else:
            self.envs = GymVectorEnv(env, num_envs, autoreset_mode="Disabled", **options)
        space = self.envs.single_action_space
        if not rows.is_array(space) or type(self.envs.single_observation_space).__name__ == "Tuple":
            self.envs.close()
            raise UnsupportedTypeError(
                f"the spaces are {self.envs.single_observation_space} and {space}; Tianshou takes "
                "no tuples as observations, and actions that are single arrays"
            )
        # The base class without its workers.
        self.env_num = self.wait_num = self.envs.num_envs
        self.timeout = None
        self.is_async = self.is_closed = False
        self.ready_id = list(range(self.env_num))
        self.waiting_id: list[int] = []
        self._action_spaces = [copy.deepcopy(space) for _ in range(self.env_num)]

    def reset(
        self,
        env_id: Any = None,  # noqa: ANN401
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Reset the environments of ``env_id``, all by default.

        A ``seed`` is that of each environment, as Tianshou's vector environments have it;
        :meth:`seed` gives them seeds that differ.

        Returns:
            Their observations, and an info dict for each.
        """
        self._assert_is_not_closed()
        ids = self._ids(env_id)
        each = seed if isinstance(seed, list) else [seed] * len(ids)
        if len(each) != len(ids):
            raise InvalidArgumentError(
                f"seed has {len(each)} entries for {len(ids)} environments; give one for each"
            )
        seeds: list[int | None] = [None] * self.env_num
        mask = np.zeros(self.env_num, np.bool_)
        for index, one in zip(ids.tolist(), each, strict=True):
            mask[index] = True
            seeds[index] = None if one is None else _checks.integer("seed", one, 0)
        if not self.envs._is_reset and not mask.all():
            raise FailedPreconditionError(
                f"env_id is {ids.tolist()}, and no environment was reset yet: reset all first"
            )
        is_seeded = any(one is not None for one in seeds)
        observation, infos = self.envs._engine.reset(
            seeds if is_seeded else None, options, None if mask.all() else mask
        )
        self.envs._is_reset = True
        return self._picked(observation, ids), _dicts(infos, ids)

    def step(
        self,
        action: Any,  # noqa: ANN401
        id: Any = None,  # noqa: A002, ANN401 - Tianshou's name
    ) -> tuple[npt.NDArray[Any], ...]:
        """Step the environments of ``id``, all by default; the others stay as they are.

        Native environments are stepped all together: those that are left out must be reset before
        they are stepped again, which is what the collector does.

        Returns:
            Observations, rewards, terminations, truncations and info dicts with ``env_id``.

        Raises:
            InvalidArgumentError: another number of actions than environments.
            FailedPreconditionError: an environment that must be reset first.
        """
        self._assert_is_not_closed()
        ids = self._ids(id)
        actions = np.asarray(to_numpy(action)) if action is not None else np.zeros(0)
        if actions.ndim == 0 or len(actions) != len(ids):
            raise InvalidArgumentError(
                f"action is {_checks.shown(action)} for {len(ids)} environments; give one for each"
            )
        if not self.envs._is_reset:
            raise FailedPreconditionError("the environments were never reset; call reset() first")
        engine = self.envs._engine
        if len(ids) == self.env_num and (ids == np.arange(self.env_num)).all():
            observation, reward, terminated, truncated, infos = engine.step(actions)
        else:
            full = np.zeros((self.env_num, *actions.shape[1:]), self.envs.action_space.dtype)
            full[ids] = actions
            chosen = np.zeros(self.env_num, np.bool_)
            chosen[ids] = True
            observation, reward, terminated, truncated, infos = engine.step_some(full, chosen)
        given = _dicts(infos, ids)
        for index, info in zip(ids.tolist(), given, strict=True):
            info["env_id"] = index
        return self._picked(observation, ids), reward[ids], terminated[ids], truncated[ids], given

    def seed(self, seed: int | list[int | None] | None = None) -> list[list[int | None]]:
        """Reset environment i with ``seed + i``, or its entry of a list, and seed its actions."""
        self._assert_is_not_closed()
        each: list[int | None] = [None] * self.env_num
        if isinstance(seed, list):
            each = seed
        elif seed is not None:
            each = [seed + index for index in range(self.env_num)]
        self.reset(seed=each)
        for space, one in zip(self._action_spaces, each, strict=True):
            space.seed(one)
        return [[one] for one in each]

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:  # noqa: A002, ANN401
        """An attribute of each environment, or of those of ``id``; a method is not called."""
        self._assert_is_not_closed()
        ids = self._ids(id).tolist()
        if key == "action_space":
            return [self._action_spaces[index] for index in ids]
        if key == "observation_space":
            return [self.envs.single_observation_space for _ in ids]
        if key == "spec":
            return [self.envs.spec for _ in ids]
        found = self.envs._engine.read(key)
        return [found[index] for index in ids]

    def set_env_attr(self, key: str, value: Any, id: Any = None) -> None:  # noqa: A002, ANN401
        """Set an attribute of each environment, or of those of ``id``."""
        self._assert_is_not_closed()
        chosen = set(self._ids(id).tolist())
        values = [value] * self.env_num
        if len(chosen) < self.env_num:
            now = self.envs._engine.read(key)
            values = [value if index in chosen else now[index] for index in range(self.env_num)]
        self.envs.set_attr(key, values)

    def render(self, **_options: Any) -> list[Any]:  # noqa: ANN401
        """What each environment draws."""
        self._assert_is_not_closed()
        return list(self.envs.render())

    def close(self) -> None:
        """End the environments."""
        self._assert_is_not_closed()
        self.envs.close()
        self.is_closed = True

    def _ids(self, given: Any) -> npt.NDArray[np.int64]:  # noqa: ANN401
        if given is None:
            return np.arange(self.env_num)
        ids = np.atleast_1d(np.asarray(given))
        is_whole = ids.dtype.kind in "iu" and ids.ndim == 1 and len(ids) > 0
        if not is_whole or len(np.unique(ids)) != len(ids) or not 0 <= ids.min() <= ids.max():
            raise InvalidArgumentError(
                f"the environments are {_checks.shown(given)}; give their numbers, each once"
            )
        if ids.max() >= self.env_num:
            raise InvalidArgumentError(
                f"environment {ids.max()} is not there; there are {self.env_num}"
            )
        return ids.astype(np.int64)

    def _picked(self, observation: Any, ids: npt.NDArray[np.int64]) -> npt.NDArray[Any]:  # noqa: ANN401
        if isinstance(observation, np.ndarray):
            return observation[ids]
        made = np.empty(len(ids), object)
        for place, index in enumerate(ids.tolist()):
            made[place] = _row(observation, index)
        return made


class VectorReplayBuffer(ReplayBufferManager):  # type: ignore[misc]
    """A ``reverie.ReplayBuffer`` for a collector: each observation is stored once.

    A sample is a small buffer of its own: what an off-policy algorithm asks of the buffer behind
    ``sample()`` (``next``, ``rew``, ``done``, ``terminated``, items by index) is answered of the
    transitions that were drawn last, so it costs what the batch does and not what the buffer does.

    Args:
        total_size: transitions of all environments together; the oldest make room.
        buffer_num: environments.
        n_step: rewards of a transition; the algorithm's ``n_step_return_horizon``. ``rew`` of a
            sample is then their sum, ``obs_next`` what follows them.
        gamma: the algorithm's; needed with ``n_step`` above 1.
        stack_num: frames that make an observation. The newest alone is stored.
        save_only_last_obs: observations come as stacks, of which the last frame is taken.
        ignore_obs_next: changes nothing: observations are stored once in any case.
        codec: ``"auto"`` keeps pictures compressed, in 1 to 5 % of the bytes: ``codec`` of
            ``reverie.ReplayBuffer``.
        random_seed: seeds the draws.

    Raises:
        InvalidArgumentError: a number is out of range, or ``gamma`` is needed.
    """

    _dtypes: Any = None  # of obs and act of the first step, in their nests

    def __init__(
        self,
        total_size: int,
        buffer_num: int = 1,
        *,
        n_step: int = 1,
        gamma: float | None = None,
        stack_num: int = 1,
        ignore_obs_next: bool = False,  # noqa: ARG002
        save_only_last_obs: bool = False,
        codec: Codec = "raw",
        random_seed: int | None = 42,
    ) -> None:
        self._open(
            total_size,
            buffer_num,
            n_step,
            gamma,
            stack_num,
            save_only_last_obs,
            random_seed,
            codec=codec,
        )

    def _open(
        self,
        total_size: int,
        buffer_num: int,
        n_step: int,
        gamma: float | None,
        stack_num: int,
        save_only_last_obs: bool,
        random_seed: int | None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.buffer_num = _checks.integer("buffer_num", buffer_num)
        self.n_step = _checks.integer("n_step", n_step)
        self.stack_num = _checks.integer("stack_num", stack_num)
        if n_step > 1 and gamma is None:
            raise InvalidArgumentError(
                f"n_step is {n_step} and gamma None; give the gamma of the algorithm too"
            )
        self._gamma = 1.0 if gamma is None else _checks.number("gamma", gamma, 0.0, 1.0)
        self.replay = reverie.ReplayBuffer(
            total_size,
            buffer_num,
            stack_num,
            n_step,
            gamma=self._gamma,
            seed=random_seed,
            **options,
        )
        self.maxsize = self.replay.capacity
        self._takes_last = _checks.flag("save_only_last_obs", save_only_last_obs)
        self._begin()

    def _begin(self) -> None:
        self._drawn: dict[str, Any] | None = None
        self._last: Any = None  # (rew, done, terminated) of what was drawn, [B * n_step]
        self._walked = 0
        self._returns = np.zeros(self.buffer_num)
        self._rewards: list[list[float]] = [[] for _ in range(self.buffer_num)]
        self._episodes: list[Any] = [None] * self.buffer_num
        self._has_null = False

    def add(
        self,
        batch: Any,  # noqa: ANN401
        buffer_ids: Any = None,  # noqa: ANN401
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Store a step of each environment of ``buffer_ids``, all by default.

        ``info`` and ``policy`` are not stored. Observations and actions are stored as the dtypes of
        the first step: floats are rounded, and integers that do not fit are refused.

        Returns:
            Where each step is in its episode, return and length of the episodes that ended (0 of
            the others), and where they began.

        Raises:
            InvalidArgumentError: another number of rewards than environments, or arrays that do not
                fit those of the first step.
        """
        ids = np.arange(self.buffer_num) if buffer_ids is None else np.asarray(buffer_ids)
        rewards = np.asarray(to_numpy(batch.rew), np.float64)
        terminated = np.asarray(to_numpy(batch.terminated), np.bool_)
        truncated = np.asarray(to_numpy(batch.truncated), np.bool_) & ~terminated
        if rewards.shape != (len(ids),):
            raise InvalidArgumentError(
                f"rew has the shape {rewards.shape} for {len(ids)} environments; it must be one "
                "number for each"
            )
        obs, obs_next, act = _nest(batch.obs), _nest(batch.obs_next), _nest(batch.act)
        if self._takes_last:
            obs, obs_next = obs[:, -1], obs_next[:, -1]
        if not self._has_null:
            self._has_null = any(_has_nan(one) for one in (obs, obs_next, act, rewards))
        mask = None
        obs_dtypes, act_dtypes = self._dtypes or (_dtypes(obs), _dtypes(act))
        obs, obs_next, act = (
            _cast(one, dtypes)
            for one, dtypes in ((obs, obs_dtypes), (obs_next, obs_dtypes), (act, act_dtypes))
        )
        given = (obs, act, rewards, obs_next, terminated, truncated)
        if len(ids) != self.buffer_num or (ids != np.arange(self.buffer_num)).any():
            mask = np.zeros(self.buffer_num, np.bool_)
            mask[ids] = True
            given = tuple(_spread(one, ids, self.buffer_num) for one in given)
        self.replay.add(*given, mask=mask)
        self._dtypes = obs_dtypes, act_dtypes
        return self._counted(ids, rewards, terminated, truncated)

    def _counted(
        self,
        ids: npt.NDArray[np.int64],
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        self._returns[ids] += rewards
        begins = _EPISODES + ids.astype(np.int64) * _EPISODE_STEPS
        returns, lengths = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
        places = begins.copy()
        for row, index in enumerate(ids.tolist()):
            steps = self._rewards[index]
            places[row] += len(steps)
            steps.append(float(rewards[row]))
            if terminated[row] or truncated[row]:
                returns[row], lengths[row] = self._returns[index], len(steps)
                self._episodes[index] = (np.array(steps), bool(terminated[row]))
                self._returns[index] = 0
                self._rewards[index] = []
        return places, returns, lengths, begins

    def sample(self, batch_size: int | None) -> tuple[Any, npt.NDArray[np.int64]]:
        """Draw transitions; their indices are good until the next call.

        Raises:
            UnimplementedError: ``batch_size`` is 0 or None, for all that there is.
            FailedPreconditionError: nothing was stored yet.
        """
        if not batch_size:
            raise UnimplementedError(
                f"batch_size is {batch_size}, for all transitions in their order; on-policy and "
                "imitation algorithms need that: give them Tianshou's VectorReplayBuffer"
            )
        drawn = self.replay.sample(_checks.integer("batch_size", batch_size), **self._options())
        self._drawn = drawn
        self._last = None
        self._walked = 0
        indices = np.arange(batch_size) * self.n_step
        return self[indices], indices

    def _options(self) -> dict[str, Any]:
        return {}

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401
        """Transitions of the last sample by their indices; or the last episode's, as added."""
        indices = np.atleast_1d(np.asarray(index)) if not isinstance(index, slice) else None
        if indices is None or indices.dtype.kind not in "iu":
            raise UnimplementedError(
                f"index is {_checks.shown(index)}; this buffer gives the transitions that were "
                "drawn last, by their indices: sample() them"
            )
        if len(indices) and indices[0] >= _EPISODES:
            return self._episode(indices)
        drawn, chosen = self._rows(indices)
        terminated = drawn["terminated"][chosen]
        made = Batch(
            obs=_chosen(drawn["obs"], chosen),
            act=_chosen(drawn["action"], chosen),
            rew=drawn["reward"][chosen],
            terminated=terminated,
            truncated=np.zeros_like(terminated),
            done=terminated.copy(),
            obs_next=_chosen(drawn["next_obs"], chosen),
            info=Batch(),
            policy=Batch(),
        )
        if self.replay.prioritized:
            made.weight = drawn["weights"][chosen]
        return made

    def _rows(self, indices: npt.NDArray[np.int64]) -> tuple[dict[str, Any], Any]:
        if self._drawn is None:
            raise FailedPreconditionError("nothing was drawn yet; sample() first")
        chosen = indices // self.n_step
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self._drawn["tickets"]):
            raise InvalidArgumentError(
                f"index is {_checks.shown(indices)}; the last sample has "
                f"{len(self._drawn['tickets'])} transitions, whose indices sample() gave"
            )
        return self._drawn, chosen

    def _episode(self, indices: npt.NDArray[np.int64]) -> Any:  # noqa: ANN401
        """The rewards and flags of an episode that ended, for the collector's statistics."""
        env, begin = divmod(int(indices[0]) - _EPISODES, _EPISODE_STEPS)
        kept = self._episodes[env] if env < self.buffer_num else None
        if kept is None or begin + len(indices) > len(kept[0]):
            raise InvalidArgumentError(
                f"index is {_checks.shown(indices)}; there is no such episode that ended last"
            )
        chosen = indices - indices[0] + begin
        rewards, is_terminated = kept
        is_last = chosen == len(rewards) - 1
        return Batch(
            rew=rewards[chosen],
            terminated=is_last & is_terminated,
            truncated=is_last & (not is_terminated),
            done=is_last,
            info=Batch(),
            policy=Batch(),
        )

    def get_buffer_indices(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The places from ``start`` to ``stop``, as :meth:`add` gave them."""
        return np.arange(start, stop)

    def next(self, index: Any) -> Any:  # noqa: ANN401
        """One step on, within the steps of a drawn transition."""
        self._walked += 1
        indices = np.asarray(index)
        is_last = self._flat()[1][indices] | (indices % self.n_step == self.n_step - 1)
        return np.where(is_last, indices, indices + 1)

    @property
    def rew(self) -> npt.NDArray[np.float64]:
        """``[B * n_step]``: what is drawn, the sum of its rewards at its first step.

        Raises:
            InvalidArgumentError: the algorithm takes another number of steps than the buffer.
        """
        if self._walked != self.n_step - 1:
            raise InvalidArgumentError(
                f"n_step of the buffer is {self.n_step}, and the algorithm's "
                f"n_step_return_horizon {self._walked + 1}; give both the same"
            )
        rewards: npt.NDArray[np.float64] = self._flat()[0]
        return rewards

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """``[B * n_step]``: where the steps of a drawn transition end."""
        done: npt.NDArray[np.bool_] = self._flat()[1]
        return done

    @property
    def terminated(self) -> npt.NDArray[np.bool_]:
        """``[B * n_step]``: where the value of what follows does not count."""
        terminated: npt.NDArray[np.bool_] = self._flat()[2]
        return terminated

    def _flat(self) -> Any:  # noqa: ANN401
        """A drawn transition of k rewards as k steps, of which the first has the sum of all.

        The algorithm's own sum over ``next`` is then that sum, and its factor of the value of
        ``obs_next`` is gamma to the power of k.
        """
        if self._last is None:
            drawn, _ = self._rows(np.zeros(0, np.int64))
            count, steps = len(drawn["tickets"]), self.n_step
            terminated = drawn["terminated"]
            rewards = np.zeros((count, steps))
            rewards[:, 0] = drawn["reward"]
            if steps == 1:
                self._last = rewards[:, 0], terminated, terminated
                return self._last
            taken = np.full(count, steps)  # of what terminated or is not discounted it is nothing
            if 0 < self._gamma < 1:
                known = ~terminated
                log = np.log(drawn["discount"][known].astype(np.float64))
                taken[known] = np.rint(log / math.log(self._gamma)).astype(np.int64)
            done = np.zeros((count, steps), np.bool_)
            done[np.arange(count), taken - 1] = True
            ends = done & terminated[:, None]
            self._last = rewards.reshape(-1), done.reshape(-1), ends.reshape(-1)
        return self._last

    def unfinished_index(self) -> npt.NDArray[np.int64]:
        """None: each drawn transition has its end."""
        return np.zeros(0, np.int64)

    def hasnull(self) -> bool:
        """Whether a NaN was stored since the last :meth:`reset`."""
        return self._has_null

    def reset(self, keep_statistics: bool = False) -> None:
        """Drop all transitions; with ``keep_statistics`` the episodes under way count on."""
        self.replay.clear()
        returns, rewards = self._returns, self._rewards
        self._begin()
        if keep_statistics:
            self._returns, self._rewards = returns, rewards

    def __len__(self) -> int:
        return len(self.replay)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self.replay!r}>"

    def __getattr__(self, key: str) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__} of reverie has no {key!r}; where it is needed use Tianshou's "
            "own buffer"
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # the base class reads its own

    def set_batch(self, batch: Any) -> None:  # noqa: ANN401
        """Refused: add transitions instead."""
        _refuse("set_batch", batch)

    def update(self, buffer: Any) -> npt.NDArray[np.int64]:  # noqa: ANN401
        """Refused: add transitions instead."""
        _refuse("update", buffer)

    def save_hdf5(self, path: str, compression: str | None = None) -> None:  # noqa: ARG002
        """Refused: ``replay.save(path)`` saves what is stored."""
        raise UnimplementedError(
            f"path is {_checks.shown(path)}; this buffer is not saved as HDF5: "
            "buffer.replay.save(path) writes a checkpoint of what is stored"
        )

    @classmethod
    def load_hdf5(cls, path: str, device: str | None = None) -> NoReturn:  # noqa: ARG003
        """Refused: use Tianshou's own buffer."""
        _refuse("load_hdf5", path)

    @classmethod
    def from_data(cls, *arrays: Any, **columns: Any) -> NoReturn:  # noqa: ANN401
        """Refused: add transitions instead."""
        _refuse("from_data", (arrays, columns))


class PrioritizedVectorReplayBuffer(VectorReplayBuffer):
    """The same, drawn by priority; ``weight`` of a batch is a factor of each loss.

    Args:
        total_size: transitions of all environments together.
        buffer_num: environments.
        alpha: the exponent of priorities.
        beta: the exponent of weights; :meth:`set_beta` changes it.
        weight_norm: the largest weight of a batch is 1; else the largest of the whole buffer is.
        options: those of ``VectorReplayBuffer``.

    Raises:
        InvalidArgumentError: a number is out of range, or ``gamma`` is needed.
    """

    def __init__(
        self,
        total_size: int,
        buffer_num: int = 1,
        *,
        alpha: float,
        beta: float,
        weight_norm: bool = True,
        n_step: int = 1,
        gamma: float | None = None,
        stack_num: int = 1,
        ignore_obs_next: bool = False,  # noqa: ARG002
        save_only_last_obs: bool = False,
        codec: Codec = "raw",
        random_seed: int | None = 42,
    ) -> None:
        self.set_beta(beta)
        self._open(
            total_size,
            buffer_num,
            n_step,
            gamma,
            stack_num,
            save_only_last_obs,
            random_seed,
            codec=codec,
            prioritized=True,
            alpha=alpha,
            weights="batch" if _checks.flag("weight_norm", weight_norm) else "buffer",
        )

    def set_beta(self, beta: float) -> None:
        """The exponent of weights from now on; finite and >= 0."""
        self._beta = _checks.number("beta", beta, 0.0)

    def _options(self) -> dict[str, Any]:
        return {"beta": self._beta}

    def update_weight(self, index: Any, new_weight: Any) -> None:  # noqa: ANN401
        """Give transitions of the last sample new priorities, the TD errors of a batch."""
        drawn, chosen = self._rows(np.asarray(index))
        priorities = np.abs(np.asarray(to_numpy(new_weight), np.float64)).reshape(-1) + _LEAST
        self.replay.update_priorities(drawn["tickets"][chosen], priorities)


def _refuse(name: str, given: object) -> NoReturn:
    raise UnimplementedError(
        f"{name} was given {_checks.shown(given)}; this buffer is filled only by add(): "
        "use Tianshou's own buffer"
    )


def _dicts(infos: Iterable[tuple[int, dict[str, Any]]], ids: npt.NDArray[np.int64]) -> Any:  # noqa: ANN401
    """An array of the environments' info dicts."""
    found: dict[int, dict[str, Any]] = {}
    for index, info in infos:
        found.setdefault(index, {}).update(info)
    made = np.empty(len(ids), object)
    for place, index in enumerate(ids.tolist()):
        made[place] = dict(found.get(index, {}))
    return made


def _row(nest: Any, index: int) -> Any:  # noqa: ANN401
    if isinstance(nest, dict):
        return {key: _row(value, index) for key, value in nest.items()}
    return nest[index]


def _nest(value: Any) -> Any:  # noqa: ANN401
    """A Batch as a dict of arrays."""
    if isinstance(value, Batch):
        return {key: _nest(value[key]) for key in value.get_keys()}
    return np.asarray(to_numpy(value))


def _dtypes(nest: Any) -> Any:  # noqa: ANN401
    if isinstance(nest, dict):
        return {key: _dtypes(value) for key, value in nest.items()}
    return nest.dtype


def _cast(nest: Any, dtypes: Any) -> Any:  # noqa: ANN401
    """Numbers as those dtypes; as given, for ``replay`` to refuse, if they would not be the same.

    Floats are rounded, as Tianshou's buffer does.
    """
    if isinstance(nest, dict) and isinstance(dtypes, dict):
        return {key: _cast(value, dtypes.get(key)) for key, value in nest.items()}
    if not isinstance(nest, np.ndarray) or not isinstance(dtypes, np.dtype):
        return nest
    kinds = nest.dtype.kind + dtypes.kind
    if nest.dtype == dtypes or kinds not in ("ff", "if", "uf", "cc", "ii", "iu", "ui", "uu"):
        return nest
    made = nest.astype(dtypes)
    is_kept = dtypes.kind not in "iu" or bool((made == nest).all())
    return made if is_kept else nest


def _chosen(nest: Any, chosen: Any) -> Any:  # noqa: ANN401
    if isinstance(nest, dict):
        return Batch({key: _chosen(value, chosen) for key, value in nest.items()})
    return nest[chosen]


def _spread(nest: Any, ids: npt.NDArray[np.int64], count: int) -> Any:  # noqa: ANN401
    """Rows of some environments, among zeros for the others."""
    if isinstance(nest, dict):
        return {key: _spread(value, ids, count) for key, value in nest.items()}
    made = np.zeros((count, *nest.shape[1:]), nest.dtype)
    made[ids] = nest
    return made


def _has_nan(nest: Any) -> bool:  # noqa: ANN401
    if isinstance(nest, dict):
        return any(_has_nan(value) for value in nest.values())
    return nest.dtype.kind == "f" and bool(np.isnan(nest).any())
