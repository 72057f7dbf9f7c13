"""CleanRL's off-policy files over reverie's replay buffer: one import changes.

    from reverie.contrib.cleanrl import ReplayBuffer  # for: from cleanrl_utils.buffers import ...

The arguments, ``add`` and ``sample`` are those of the buffer that these files use, which was
Stable-Baselines3's; neither is needed here. Tried with the loops of CleanRL's ``dqn.py``,
``dqn_atari.py`` and ``sac_continuous_action.py``.
"""

from __future__ import annotations

from typing import Any

from reverie._options import Codec
from reverie.errors import MissingPackageError
from reverie.hindsight import Hindsight

try:
    from reverie.contrib.transitions import Samples, TransitionBuffer
except ModuleNotFoundError as error:
    raise MissingPackageError(
        f"reverie.contrib.cleanrl needs {error.name}: pip install 'reverie[torch]'"
    ) from None

__all__ = ["ReplayBuffer", "Samples"]


class ReplayBuffer(TransitionBuffer):
    """The last transitions, each observation stored once.

    Args:
        buffer_size: transitions of all environments together.
        observation_space: that of one environment; Dict spaces too. Observations are stored as its
            dtype.
        action_space: that of one environment. Actions are stored as its dtype, float64 as float32.
        device: where batches go.
        n_envs: environments.
        optimize_memory_usage: changes nothing: observations are stored once in any case.
        handle_timeout_termination: tells by ``info["TimeLimit.truncated"]`` what a time limit cut
            off from what ended.
        n_steps: rewards of a transition.
        gamma: the discount of one step in sums of rewards, with ``n_steps`` above 1.
        prioritized: draws by priority; give them with :meth:`update_priorities`.
        alpha: the exponent of priorities.
        beta: the exponent of ``weights``, which are of the last batch that was sampled.
        frame_stack: how many frames an observation stacks along its first axis: the
            newest alone is stored. Where an episode is too young, its first frame is repeated, as
            ``FrameStackObservation`` does.
        hindsight: a ``reverie.Hindsight``: draws some transitions with goals that their episode
            reached, of Dict observations.
        codec: ``"auto"`` keeps pictures compressed, in 1 to 5 % of the bytes: ``codec`` of
            ``reverie.ReplayBuffer``.
        seed: seeds the draws; None takes a number of NumPy's global generator, so that a program
            that seeds it draws the same again.

    Raises:
        InvalidArgumentError: a number is out of range, a device that is not there, or a
            ``frame_stack`` that does not divide the observations' first axis.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,  # noqa: ANN401
        action_space: Any,  # noqa: ANN401
        device: Any = "cpu",  # noqa: ANN401
        n_envs: int = 1,
        optimize_memory_usage: bool = False,  # noqa: ARG002
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
        self._open(
            buffer_size,
            observation_space,
            action_space,
            device,
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
