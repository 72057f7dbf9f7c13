"""Episodes that can be begun again: each has a seed of its own, and its actions are kept.

An environment is then its episode's seed and the actions since, which a checkpoint holds and which
are played once more when a training goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from reverie._options import OptionValue
from reverie.envs import source
from reverie.errors import FailedPreconditionError

_KEPT_ROWS = 256  # of episodes that are over, before they are dropped together
_MASK = (1 << 64) - 1


def episode_seed(seed: int, episode: int) -> int:
    """The seed of one episode of an environment: 31 bits, mixed as SplitMix64 does."""
    x = (seed * 0x9E3779B97F4A7C15 + episode + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) >> 33


def environment_seed(seed: int) -> int:
    """One that every environment takes: the upper 31 bits of a mixed one, a small one as it is."""
    return seed >> 33 if seed >> 33 else seed & 0x7FFFFFFF


# The number of an episode, and the actions so far.
Played: TypeAlias = tuple[int, list[Any]]


class SeededEpisodes:
    """An environment whose every episode begins with a seed that follows from the first one."""

    def __init__(self, env: Any, played: Mapping[int, Played] | None = None) -> None:  # noqa: ANN401
        self._env = env
        self._played = dict(played or {})
        self._seed = 0
        self._episode = 0
        self.step: Callable[..., Any] = env.step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        """Begins the next episode; with a seed, the first one of another run of episodes.

        Where something was played after that seed, it is played again.
        """
        actions: list[Any] = []
        if seed is None:
            self._episode += 1
        else:
            self._seed = int(seed)
            self._episode, actions = self._played.pop(self._seed, (0, []))
        given = {} if options is None else {"options": options}
        first = self._env.reset(seed=episode_seed(self._seed, self._episode), **given)
        return self._play(first, actions)

    def _play(self, first: Any, actions: list[Any]) -> Any:  # noqa: ANN401
        space: Any = self._env.action_space if actions else None
        for count, action in enumerate(actions, start=1):
            if type(space).__name__ == "Discrete":  # a MultiBinary has an ``n`` too
                made: Any = np.int64(action + int(getattr(space, "start", 0)))
            else:
                made = np.array(action, space.dtype).reshape(space.shape)
            observation, _, terminated, truncated, info = self._env.step(made)
            if terminated or truncated:
                raise FailedPreconditionError(
                    f"the episode ended after {count} of its {len(actions)} actions: the "
                    "environment does not repeat it from its seed, and cannot be resumed"
                )
            first = (observation, info)
        return first

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._env, name)


def make_seeded(
    *,
    env_id: str,
    env_options: dict[str, OptionValue],
    played: Mapping[int, Played] | None = None,
) -> SeededEpisodes:
    """What a pool's worker makes its environments with."""
    return SeededEpisodes(source.maker(source.local(env_id, env_options))(0), played)


class PlayedActions:
    """The actions of each environment since its episode began, as long as the episode lasts.

    Args:
        count: environments, which are stepped together.
        played: what `read` gave, to go on from.
        row: an array ``[count, ...]`` as the actions of a step are; needed with ``played``.
    """

    def __init__(
        self,
        count: int,
        played: Sequence[Played] | None = None,
        row: np.ndarray | None = None,
    ) -> None:
        # Rows of actions, the first of step number _base; where each episode began, and its number.
        self._actions: list[np.ndarray] = []
        self._base = 0
        self._begins = [0] * count
        self.episodes = [0] * count
        if played is None or row is None:
            return
        self.episodes = [episode for episode, _ in played]
        # As if all had been stepped together so far.
        length = max(len(actions) for _, actions in played)
        self._begins = [length - len(actions) for _, actions in played]
        self._actions = [np.zeros_like(row) for _ in range(length)]
        for env, (_, actions) in enumerate(played):
            for kept, action in zip(self._actions[self._begins[env] :], actions, strict=True):
                kept[env] = action

    @staticmethod
    def read(state: Any, count: int) -> list[Played]:  # noqa: ANN401
        """What `state` gave, read back.

        Raises:
            ValueError, TypeError: it is damaged, or of another number of environments.
        """
        played = [(int(episode), list(actions)) for episode, actions in state]
        if len(played) != count:
            raise ValueError(f"{count} environments are given the state of {len(played)}")
        return played

    def rows(self) -> list[np.ndarray]:
        """The actions of each step that is kept, the oldest first; 0 where none was played yet."""
        return self._actions

    def state(self) -> list[Any]:
        """The number of each environment's episode, and the actions since it began."""
        return [
            [self.episodes[env], [row[env].tolist() for row in self._actions[begin - self._base :]]]
            for env, begin in enumerate(self._begins)
        ]

    def add(self, actions: np.ndarray, is_over: np.ndarray) -> None:
        """Keeps the actions of a step. ``is_over``: ``[count]``, which episodes it ended."""
        self._actions.append(actions.copy())
        now = self._base + len(self._actions)
        for env in np.flatnonzero(is_over).tolist():
            self._begins[env] = now
            self.episodes[env] += 1
        first = min(self._begins) - self._base
        if first > _KEPT_ROWS or first == len(self._actions):
            del self._actions[:first]
            self._base += first
