"""RLlib: a prioritised episode replay buffer over reverie's, by its import path.

    config = DQNConfig().training(
        n_step=3,
        gamma=0.99,
        replay_buffer_config={
            "type": "reverie.contrib.rllib.PrioritizedEpisodeReplayBuffer",
            "capacity": 100_000, "alpha": 0.6, "beta": 0.4, "n_step": 3, "gamma": 0.99,
        },
    )

For the new API stack, single agents, and modules without state. Tried with Ray 2.60.0.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

import reverie
from reverie import _checks
from reverie.contrib import versions
from reverie.errors import InvalidArgumentError

try:
    from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.utils.replay_buffers import episode_replay_buffer, prioritized_episode_buffer
except ImportError as error:
    raise versions.refusal(error, "ray", "reverie.contrib.rllib") from None

__all__ = ["PrioritizedEpisodeReplayBuffer"]

versions.check("ray", "reverie.contrib.rllib")

_LEAST = 1e-12  # of a priority, as RLlib has it
_RllibBuffer: Any = prioritized_episode_buffer.PrioritizedEpisodeReplayBuffer


class PrioritizedEpisodeReplayBuffer(_RllibBuffer):  # type: ignore[misc]
    """The last transitions of episodes, each observation stored once, drawn by priority.

    A chunk of an episode may come behind one of another; transitions over several steps end where
    a chunk does that nothing follows at once.

    Args:
        capacity: transitions; the oldest make room.
        batch_size_B: transitions of ``sample()`` without a number.
        batch_length_T: 1.
        alpha: the exponent of priorities.
        n_step: rewards of a transition; the algorithm's.
        gamma: of the sum of rewards; the algorithm's.
        seed: of the draws.
        metrics_num_episodes_for_smoothing: of RLlib's metrics.

    Raises:
        InvalidArgumentError: a number is out of range.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        batch_size_B: int = 16,  # noqa: N803 - RLlib's name
        batch_length_T: int = 1,  # noqa: N803
        alpha: float = 1.0,
        n_step: int = 1,
        gamma: float = 0.99,
        seed: int | None = None,
        metrics_num_episodes_for_smoothing: int = 100,
        **_options: Any,  # noqa: ANN401 - "beta", which sample() is given
    ) -> None:
        self.replay = reverie.ReplayBuffer(
            capacity, 1, 1, n_step, gamma=gamma, prioritized=True, alpha=alpha, seed=seed
        )
        self._n_step, self._gamma = n_step, gamma
        if batch_length_T not in (0, 1):
            raise InvalidArgumentError(
                f"batch_length_T is {_checks.shown(batch_length_T)}; sequences are not served: 1"
            )
        episode_replay_buffer.EpisodeReplayBuffer.__init__(
            self,
            capacity=capacity,
            batch_size_B=batch_size_B,
            batch_length_T=1,
            metrics_num_episodes_for_smoothing=metrics_num_episodes_for_smoothing,
        )
        self._tickets: Any = None
        self._template: Any = None  # an episode of one step

    def __len__(self) -> int:
        return len(self.replay)

    def add(self, episodes: Any, weight: float | None = None) -> None:  # noqa: ANN401
        """Store the steps of episodes, or of chunks of them.

        Raises:
            InvalidArgumentError: a ``weight``: new transitions get the largest priority so far.
        """
        if weight is not None:
            raise InvalidArgumentError(
                f"weight is {_checks.shown(weight)}; leave it out: new transitions get the largest "
                "priority so far"
            )
        chunks = episodes if isinstance(episodes, (list, tuple)) else [episodes]
        steps, ended = 0, 0
        for chunk in chunks:
            count = len(chunk)
            following = chunk.get_observations(0)
            for index in range(count):
                is_last = index == count - 1
                obs, following = following, chunk.get_observations(index + 1)
                self.replay.add(
                    obs,
                    chunk.get_actions(index),
                    float(chunk.get_rewards(index)),
                    following,
                    is_last and chunk.is_terminated,
                    is_last and chunk.is_truncated,
                )
            steps += count
            ended += chunk.is_done
        self._num_timesteps_added += steps
        self._update_add_metrics(
            num_episodes_added=ended,
            num_env_steps_added=steps,
            num_episodes_evicted=0,
            num_env_steps_evicted=0,
            agent_to_num_episodes_added={DEFAULT_AGENT_ID: ended},
            agent_to_num_steps_added={DEFAULT_AGENT_ID: steps},
            agent_to_num_episodes_evicted={DEFAULT_AGENT_ID: 0},
            agent_to_num_steps_evicted={DEFAULT_AGENT_ID: 0},
            module_to_num_steps_added={DEFAULT_MODULE_ID: steps},
            module_to_num_episodes_added={DEFAULT_MODULE_ID: ended},
            module_to_num_episodes_evicted={DEFAULT_MODULE_ID: 0},
            module_to_num_steps_evicted={DEFAULT_MODULE_ID: 0},
        )

    def sample(
        self,
        num_items: int | None = None,
        *,
        batch_size_B: int | None = None,  # noqa: N803
        batch_length_T: int | None = None,  # noqa: N803
        n_step: int | None = None,
        beta: float | None = 0.0,
        gamma: float | None = None,
        include_infos: bool = False,
        include_extra_model_outputs: bool = False,
        to_numpy: bool = False,
        **_options: Any,  # noqa: ANN401 - of other buffers
    ) -> list[Any]:
        """Draw transitions, as episodes of one step with ``weights`` and ``n_step``.

        ``n_step`` is how many rewards a transition has. If its episode terminated, or gamma is not
        between 0 and 1, it is the buffer's, and the transition may have fewer: after a termination
        no value follows, whose discount ``n_step`` would determine.

        Raises:
            InvalidArgumentError: another ``n_step`` or ``gamma`` than the buffer's, or sequences.
        """
        for name, given, own in (("n_step", n_step, self._n_step), ("gamma", gamma, self._gamma)):
            if given is not None and given != own:
                raise InvalidArgumentError(
                    f"{name} is {_checks.shown(given)}, and the buffer was made with {own}; give "
                    f'replay_buffer_config the entry "{name}": {_checks.shown(given)}'
                )
        if batch_length_T not in (None, 0, 1) or include_infos or include_extra_model_outputs:
            raise InvalidArgumentError(
                "batch_length_T above 1, include_infos and include_extra_model_outputs are not "
                "served by this buffer; use RLlib's own"
            )
        count = num_items or batch_size_B or self.batch_size_B
        batch = self.replay.sample(count, beta=beta or 0.0)
        self._tickets = batch["tickets"]
        made = [self._episode(batch, row, taken) for row, taken in enumerate(self._taken(batch))]
        if to_numpy:
            for episode in made:
                episode.to_numpy()
        self.sampled_timesteps += count
        agent, module = {DEFAULT_AGENT_ID: count}, {DEFAULT_MODULE_ID: count}
        self._update_sample_metrics(
            num_env_steps_sampled=count,
            num_episodes_per_sample=count,
            num_env_steps_per_sample=count,
            sampled_n_step=self._n_step,
            num_resamples=0,
            agent_to_num_steps_sampled=agent,
            agent_to_num_episodes_per_sample=agent,
            agent_to_num_steps_per_sample=agent,
            agent_to_sampled_n_step={DEFAULT_AGENT_ID: self._n_step},
            agent_to_num_resamples={DEFAULT_AGENT_ID: 0},
            module_to_num_steps_sampled=module,
            module_to_num_episodes_per_sample=module,
            module_to_num_steps_per_sample=module,
            module_to_sampled_n_step={DEFAULT_MODULE_ID: self._n_step},
            module_to_num_resamples={DEFAULT_MODULE_ID: 0},
        )
        return made

    def update_priorities(self, priorities: Any, module_id: Any = None) -> None:  # noqa: ANN401, ARG002
        """Give the transitions of the last sample new priorities."""
        self.replay.update_priorities(self._tickets, np.maximum(np.abs(priorities), _LEAST))

    def get_num_episodes(self, module_id: Any = None) -> int:  # noqa: ANN401, ARG002
        """Episodes that have ended so far."""
        return self.replay.stats["episodes"]

    def get_num_timesteps(self, module_id: Any = None) -> int:  # noqa: ANN401, ARG002
        """Transitions that can be drawn."""
        return len(self.replay)

    def get_state(self) -> dict[str, Any]:
        """A copy of what is stored, for a checkpoint (``store_buffer_in_checkpoints=True``)."""
        return {
            "replay": copy.deepcopy(self.replay),
            "sampled_timesteps": self.sampled_timesteps,
            "num_timesteps_added": self._num_timesteps_added,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on with what :meth:`get_state` gave.

        Raises:
            InvalidArgumentError: it is of another buffer.
        """
        replay = state.get("replay")
        if not isinstance(replay, reverie.ReplayBuffer):
            raise InvalidArgumentError(
                f"state has the entries {sorted(state)}; it must be of this buffer's get_state()"
            )
        self.replay = copy.deepcopy(replay)
        self.sampled_timesteps = state["sampled_timesteps"]
        self._num_timesteps_added = state["num_timesteps_added"]
        self._tickets = None

    def _taken(self, batch: dict[str, Any]) -> list[int]:
        """How many rewards each transition has: fewer than ``n_step`` at an end.

        Only the discount tells. It is 0 if the episode terminated: then ``n_step`` itself.
        """
        if self._n_step == 1 or not 0 < self._gamma < 1:
            return [self._n_step] * len(batch["tickets"])
        scale = 1 / math.log(self._gamma)
        return [
            self._n_step if discount == 0 else round(math.log(discount) * scale)
            for discount in batch["discount"].tolist()
        ]

    def _episode(self, batch: dict[str, Any], row: int, taken: int) -> Any:  # noqa: ANN401
        if self._template is None:
            # Without spaces: they are for steps before the first, and there are no such steps.
            self._template = SingleAgentEpisode(
                observations=[_row(batch["obs"], row), _row(batch["next_obs"], row)],
                actions=[_row(batch["action"], row)],
                rewards=[batch["reward"][row]],
                extra_model_outputs={"weights": [1.0], "n_step": [1]},
                len_lookback_buffer=0,
            )
        like = self._template
        # Making an episode checks and measures what is known here, and takes four times as long.
        made = SingleAgentEpisode.__new__(SingleAgentEpisode)
        for name in SingleAgentEpisode.__slots__:
            setattr(made, name, getattr(like, name))
        made.id_ = str(batch["tickets"][row])
        made.observations = _filled(
            like.observations, [_row(batch["obs"], row), _row(batch["next_obs"], row)]
        )
        made.actions = _filled(like.actions, [_row(batch["action"], row)])
        made.rewards = _filled(like.rewards, [batch["reward"][row]])
        made.infos = _filled(like.infos, list(like.infos.data))
        outputs = like.extra_model_outputs
        made.extra_model_outputs = {
            "weights": _filled(outputs["weights"], [batch["weights"][row]]),
            "n_step": _filled(outputs["n_step"], [taken]),
        }
        made.is_terminated = bool(batch["terminated"][row])
        made._custom_data = {}
        return made


def _filled(like: Any, data: list[Any]) -> Any:  # noqa: ANN401
    """A buffer of an episode like another one, with other values."""
    kind: Any = type(like)
    made = kind.__new__(kind)
    made.__dict__.update(like.__dict__)
    made.data = data
    return made


def _row(nest: Any, row: int) -> Any:  # noqa: ANN401
    if isinstance(nest, dict):
        return {key: _row(value, row) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_row(value, row) for value in nest)
    return nest[row]
