"""The agents of a parallel environment of PettingZoo, as rows: see ``adapters.AgentRows``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from reverie.errors import InvalidArgumentError


@functools.cache
def rows_class(base: type) -> type:
    """The class, over Gymnasium's ``VectorEnv``."""

    class _AgentRows(base):  # type: ignore[misc]
        def __init__(self, env: Any, agents: list[Any]) -> None:  # noqa: ANN401
            import gymnasium

            self.env = env
            self.agent_ids = tuple(agents)
            self.num_envs = len(agents)
            self.single_observation_space = _common(env.observation_space, agents, "observation")
            self.single_action_space = _common(env.action_space, agents, "action")
            batch = gymnasium.vector.utils.batch_space
            self.observation_space = batch(self.single_observation_space, self.num_envs)
            self.action_space = batch(self.single_action_space, self.num_envs)
            self.metadata = {
                **getattr(env, "metadata", {}),
                "autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP,
            }
            self.render_mode = getattr(env, "render_mode", None)
            self._utils = gymnasium.vector.utils
            self._blank = self._utils.create_empty_array(self.single_observation_space, n=1)
            self._blank = next(
                iter(self._utils.iterate(batch(self.single_observation_space, 1), self._blank))
            )

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:  # noqa: ANN401
            """Start an episode of all agents."""
            observations, infos = self.env.reset(seed=seed, options=options)
            return self._stacked(observations), self._infos(infos, {})

        def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:  # noqa: ANN401
            """One step of those that are alive."""
            each = list(self._utils.iterate(self.action_space, actions))
            alive = set(self.env.agents)
            chosen = {a: each[i] for i, a in enumerate(self.agent_ids) if a in alive}
            observations, rewards, terminated, truncated, infos = self.env.step(chosen)
            flags = [
                np.array([bool(of.get(agent, False)) for agent in self.agent_ids])
                for of in (terminated, truncated)
            ]
            over = flags[0] | flags[1]
            made: dict[str, Any] = {}
            for i in np.flatnonzero(over).tolist():
                agent = self.agent_ids[i]
                final = {"final_obs": observations.get(agent, self._blank)}
                made = self._add_info(made, {**final, "final_info": infos.get(agent, {})}, i)
            shown = {a: value for a, value in observations.items() if a in self.env.agents}
            if not self.env.agents:
                shown, infos = self.env.reset()
            reward = np.array([rewards.get(agent, 0.0) for agent in self.agent_ids], np.float64)
            return self._stacked(shown), reward, *flags, self._infos(infos, made)

        def render(self) -> Any:  # noqa: ANN401
            """What the environment draws of all agents."""
            return self.env.render()

        def close_extras(self, **_options: Any) -> None:  # noqa: ANN401
            """Close the environment."""
            self.env.close()

        def _stacked(self, observations: dict[Any, Any]) -> Any:  # noqa: ANN401
            rows = [observations.get(agent, self._blank) for agent in self.agent_ids]
            out = self._utils.create_empty_array(self.single_observation_space, n=self.num_envs)
            return self._utils.concatenate(self.single_observation_space, rows, out)

        def _infos(self, infos: dict[Any, Any], made: dict[str, Any]) -> dict[str, Any]:
            for i, agent in enumerate(self.agent_ids):
                made = self._add_info(made, infos.get(agent, {}), i)
            alive = np.array([agent in self.env.agents for agent in self.agent_ids])
            return {**made, "alive": alive}

    _AgentRows.__name__ = _AgentRows.__qualname__ = "AgentRows"
    return _AgentRows


def _common(space_of: Any, agents: list[Any], what: str) -> Any:  # noqa: ANN401
    first = space_of(agents[0])
    for agent in agents[1:]:
        if space_of(agent) != first:
            raise InvalidArgumentError(
                f"the {what} space of agent {agent!r} is {space_of(agent)}, and that of "
                f"{agents[0]!r} is {first}; rows are of one kind: pad them with a wrapper, or make "
                "AgentRows of the agents that are alike"
            )
    return first
