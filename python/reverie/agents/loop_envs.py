"""The environments that a `Loop`'s actor steps together, each episode with a seed of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reverie import _reverie
from reverie._nests import mapped
from reverie._options import OptionValue
from reverie.agents.envs import START_S, is_native, trainings_errors
from reverie.agents.episodes import Played, PlayedActions, episode_seed, make_seeded
from reverie.agents.protocols import is_finite
from reverie.envs import native
from reverie.envs.backend import EnvSpec
from reverie.envs.pool import EnvPool
from reverie.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnsupportedTypeError,
)


@dataclass(frozen=True)
class LoopStep:
    """What a step gave: arrays ``[count, ...]`` of the program's own; observations may be nests."""

    observation: Any
    """What the next action answers: of a row whose episode ended, the first of the next one."""
    after: Any
    """What the action led to: of such a row, the last observation of its episode."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


# An episode of an evaluation that has not ended by then counts with its return so far.
_EVALUATION_STEPS_MAX = 100_000


def first_returns(
    pool: EnvPool,
    env: str,
    act: Callable[[Any], np.ndarray],
    is_stopped: Callable[[], bool],
    timeout_s: float,
) -> list[float] | None:
    """The returns of each environment's first episode; None if it was stopped.

    Raises:
        DeadlineExceededError: a step took longer than ``timeout_s``.
        InvalidArgumentError: a reward or an observation is not finite.
    """
    with trainings_errors(env, max(timeout_s, START_S)):
        rows = pool.reset().result()
    check_rows(env, rows.observation)
    returns = np.zeros(len(rows.reward))
    over = np.zeros(len(returns), bool)
    for _ in range(_EVALUATION_STEPS_MAX):
        if is_stopped():
            return None
        actions = act(rows.observation)
        with trainings_errors(env, timeout_s):
            rows = pool.step(actions).result(timeout_s)
        check_rows(env, rows.reward, rows.observation)
        returns += np.where(over, 0.0, rows.reward)
        over |= rows.terminated | rows.truncated
        if over.all():
            break
    return [float(value) for value in returns]


def check_rows(env: str, *nests: Any) -> None:  # noqa: ANN401
    """Refuses rewards or observations that are not finite.

    Raises:
        InvalidArgumentError: a number is not finite.
    """
    if not all(is_finite(leaf) for nest in nests for leaf in _reverie.flatten(nest)[1]):
        raise InvalidArgumentError(f"{env} gave a reward or an observation that is not finite")


class LoopEnvs:
    """Environments of one thread. `state` and `resume` where they are asked for by an id.

    Args:
        env: a native environment or a Gymnasium id, or a function that makes one.
        count: how many are stepped together.
        options: keyword arguments of the environment.
        backend: as for ``EnvPool``.
        timeout_s: how long a step may take.
        seed: environment ``i`` draws its episodes' seeds from ``seed + i``.

    Raises:
        NotFoundError, EnvError: the environment is not there, or cannot be made.
    """

    def __init__(
        self,
        env: object,
        count: int,
        *,
        options: dict[str, OptionValue],
        backend: str,
        timeout_s: float,
        seed: int,
    ) -> None:
        self._env, self._options = env, options
        self._backend, self._timeout_s = backend, timeout_s
        self.count, self._seed = count, seed
        self._native = self._native_pool()
        # Environments made by a function cannot repeat an episode.
        self._is_seeded = isinstance(env, str) and backend != "vector"
        self._pool: Any = self._native or self._python_pool([])
        self.spec: EnvSpec = self._pool.spec
        if isinstance(env, str):
            self.spec = dataclasses.replace(self.spec, id=env)
        self._played = PlayedActions(count)
        # The actions of a step that failed: taken again, it is what it would have been.
        self.untaken: np.ndarray | None = None

    @property
    def is_native(self) -> bool:
        """Whether they are stepped in C++, in this process."""
        return self._native is not None

    def reset(self, steps: int = 0) -> Any:  # noqa: ANN401
        """Begins the first episodes; others where ``steps`` were taken before."""
        if self._native is not None:
            return self._begin(np.ones(self.count, bool))
        seed = episode_seed(self._seed, steps) if steps else self._seed
        with trainings_errors(self.spec.id, max(self._timeout_s, START_S)):
            return _copied(self._pool.reset(seed).result().observation)

    def step(self, actions: np.ndarray) -> LoopStep:
        """Steps each with its row of ``actions``; one whose episode ended begins the next.

        Raises:
            InvalidArgumentError: a number is not finite. Then `state` is that before the step, and
                no other step may follow.
        """
        begun = self._pool.step(actions)  # which refuses wrong actions
        self.untaken = actions
        with trainings_errors(self.spec.id, self._timeout_s):
            rows = begun.result(self._timeout_s)
        is_over = rows.terminated | rows.truncated
        observation, after = _copied(rows.observation), _copied(rows.observation)
        ended = rows.reward.copy(), rows.terminated.copy(), rows.truncated.copy()
        if self._native is None and is_over.any():
            after = _with_rows(after, is_over, rows.final_observation)
        check_rows(self.spec.id, ended[0], observation, after)
        self.untaken = None
        if self._is_seeded:
            self._played.add(np.asarray(actions), is_over)
        if self._native is not None and is_over.any():
            observation[is_over] = self._begin(is_over)[is_over]
        return LoopStep(observation, after, *ended)

    def state(self) -> list[Any] | None:
        """Each as its episode's number and the actions since; None of what a function makes."""
        return self._played.state() if self._is_seeded else None

    def resume(self, state: Any) -> Any:  # noqa: ANN401
        """Begins the episodes of a `state`, and plays what was played; in place of `reset`.

        Raises:
            DataLossError: it is damaged.
            FailedPreconditionError: an environment does not repeat its episode.
        """
        try:
            played = PlayedActions.read(state, self.count)
        except (ValueError, TypeError) as error:
            raise DataLossError(f"the environments' state is damaged: {error!r}") from None
        self._played = PlayedActions(self.count, played, self._action_rows())
        if self._native is not None:
            return self._play_again(played)
        pool = self._python_pool(played)
        self._pool.close()
        self._pool = pool
        return _copied(pool.reset(self._seed).result().observation)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()

    def _begin(self, mask: np.ndarray) -> np.ndarray:
        assert self._native is not None
        seeds = [
            episode_seed(self._seed + env, self._played.episodes[env]) if is_chosen else None
            for env, is_chosen in enumerate(mask.tolist())
        ]
        return np.array(self._native.reset_some(mask.tolist(), seeds).result().observation)

    def _play_again(self, played: list[Played]) -> np.ndarray:
        """All are stepped together, so those of shorter episodes idle before they begin."""
        assert self._native is not None
        lengths = np.array([len(actions) for _, actions in played])
        steps = int(lengths.max())
        observation = self._begin(np.ones(self.count, bool))
        for number, actions in enumerate(self._played.rows()):
            rows = self._native.step(actions).result()
            is_over = rows.terminated | rows.truncated
            has_begun = number >= steps - lengths
            if (is_over & has_begun).any():
                raise FailedPreconditionError(
                    f"an episode of {self._env} ended before its actions did: the environment does "
                    "not repeat it from its seed, and cannot be resumed"
                )
            observation = np.array(rows.observation)
            begins = is_over | (number + 1 == steps - lengths)
            if begins.any():
                observation[begins] = self._begin(begins)[begins]
        return observation

    def _action_rows(self) -> np.ndarray:
        if self.spec.action_count is not None:
            return np.zeros(self.count, np.int64)
        shape = tuple(n or 1 for n in self.spec.action.shape)
        return np.zeros((self.count, *shape), self.spec.action.dtype)

    def _native_pool(self) -> native.NativePool | None:
        if not is_native(self._env, self._backend):
            return None
        try:
            return self._open_native(self.count)
        except (InvalidArgumentError, UnsupportedTypeError, TypeError):
            # An option that only the original understands.
            if self._backend == "native" or not self._options:
                raise
            return None

    def _open_native(self, count: int) -> native.NativePool:
        options: dict[str, Any] = dict(self._options)
        return native.NativePool(
            str(self._env),
            count,
            num_threads=0,
            timeout_s=self._timeout_s,
            autoreset_mode="Disabled",
            **options,
        )

    def _python_pool(self, played: list[Played]) -> EnvPool:
        seeded = {
            "env_id": self._env,
            "env_options": self._options,
            "played": {self._seed + env: one for env, one in enumerate(played)},
        }
        return EnvPool(
            make_seeded if self._is_seeded else self._env,
            self.count,
            backend=self._backend,
            env_kwargs=seeded if self._is_seeded else self._options,
            seed=self._seed,
            timeout_s=max(self._timeout_s, START_S),
        )


def _copied(nest: Any) -> Any:  # noqa: ANN401
    """The observations as arrays of their own: a single one, or a nest of a Dict or Tuple space."""
    return mapped(nest, np.array)


def _with_rows(nest: Any, chosen: np.ndarray, given: Any) -> Any:  # noqa: ANN401
    """The observations, with the chosen rows of others."""
    _, leaves, structure = _reverie.flatten(nest)
    for leaf, other in zip(leaves, _reverie.flatten(given)[1], strict=True):
        leaf[chosen] = other[chosen]
    return _reverie.fold(structure, leaves)
