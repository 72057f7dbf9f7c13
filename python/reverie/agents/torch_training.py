"""``learner="torch"``: a training as `Trainer` has it, with PyTorch's learners."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reverie import _checks, _reverie
from reverie._closing import Scoped
from reverie._durable import replace_file
from reverie._options import OptionValue, checked_seed
from reverie._process_bound import ProcessBound
from reverie.agents import loop_checkpoint
from reverie.agents.checkpoints import CHECKPOINTS, POLICY, has_checkpoint
from reverie.agents.envs import START_S
from reverie.agents.loop import Loop
from reverie.agents.loop_envs import LoopEnvs
from reverie.agents.settings import TrainSettings, checked_algorithm, checked_settings
from reverie.agents.torch_agent import TorchAgent
from reverie.agents.torch_device import checked_device, device_errors
from reverie.agents.trainer import Episode, Trainer, TrainProgress
from reverie.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    MissingPackageError,
    NotFoundError,
)


class TorchPolicy:
    """The networks that act, as a state dict of tensors on the CPU."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes them as safetensors, which replaces a file whole."""
        data = _safetensors().save({name: one.contiguous() for name, one in self.state.items()})
        replace_file(path, lambda file: file.write(data))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TorchPolicy:
        """What `save` wrote.

        Raises:
            NotFoundError: there is no such file.
            DataLossError: it is damaged.
        """
        try:
            return cls(_safetensors().load(Path(path).read_bytes()))
        except FileNotFoundError as error:
            raise NotFoundError(f"{os.fspath(path)!r} cannot be read: {error}") from None
        except Exception as error:
            raise DataLossError(f"{os.fspath(path)!r} is damaged: {error}") from None


class TorchTrainer(ProcessBound, Scoped):
    """A training whose learner is PyTorch's, with the methods of `Trainer`.

    Args:
        algorithm: one of `algorithms`.
        env: a native environment or a Gymnasium id.
        settings: what differs from the algorithm's defaults; ``learners`` is 1.
        env_options: keyword arguments of the environment.
        env_backend: what steps it.
        env_timeout_s: how long a step may take.
        agent_timeout_s: how long a batch, or actions, may take PyTorch, before it is given up.
        device: ``"cpu"``, or where PyTorch computes else, as ``"cuda:0"``.
        resume: a folder that `save` wrote to, or one checkpoint of it; as for `Trainer`. The device
            may be another one than before.

    Raises:
        NotFoundError: no such algorithm or environment.
        InvalidArgumentError: a setting is out of range, the algorithm does not serve the actions,
            or PyTorch has no such device.
        MissingPackageError: PyTorch is not installed.
        DataLossError: the checkpoint to resume from is damaged, or cut short.
    """

    _stays_because = Trainer._stays_because.replace("a Trainer", "a TorchTrainer")

    learner = "torch"

    def __init__(
        self,
        algorithm: str,
        env: str,
        settings: TrainSettings | None = None,
        *,
        env_options: dict[str, OptionValue] | None = None,
        env_backend: str = "auto",
        env_timeout_s: float = 60.0,
        agent_timeout_s: float = 300.0,
        device: str = "cpu",
        resume: str | os.PathLike[str] | None = None,
    ) -> None:
        checked_algorithm(algorithm)
        checkpoint = None if resume is None else _checks.path("resume", resume)
        settings = checked_settings(settings)
        checked_seed(settings.seed)
        checked_device(device)
        self.algorithm, self.env, self.device = algorithm, env, device
        self.env_options = dict(env_options or {})
        self.env_backend = env_backend
        self.env_timeout_s = env_timeout_s
        self.agent_timeout_s: float | None = agent_timeout_s
        self._agent: TorchAgent | None = None
        self._half_step: BaseException | None = None  # what ended one
        self._loop = Loop(
            self,
            self,
            env,
            settings,
            env_options=self.env_options,
            env_backend=env_backend,
            env_timeout_s=env_timeout_s,
            agent_timeout_s=agent_timeout_s,
            output="torch",
            device=None if device == "cpu" else device,
            algorithm=algorithm,
        )
        self.settings = self._loop.settings
        try:
            self._agent = TorchAgent(algorithm, self._loop.spec, self.settings, device=device)
            if checkpoint is not None:
                self._loop.load(checkpoint)
        except BaseException:
            self._loop._leave(None)
            raise

    @property
    def agent(self) -> TorchAgent:
        """The policy and learner."""
        assert self._agent is not None
        return self._agent

    # What the loop asks; it is made before the agent, which needs its spaces.

    def act(self, observation: Any, *, step: int, explore: bool) -> Any:  # noqa: ANN401
        """See `Policy`."""
        with device_errors(self.device):
            return self.agent.act(observation, step=step, explore=explore)

    def learn(self, batch: dict[str, Any], *, progress: float) -> Any:  # noqa: ANN401
        """See `Learner`."""
        with device_errors(self.device):
            try:
                return self.agent.learn(batch, progress=progress)
            except InvalidArgumentError:
                raise  # a gradient that is not finite: the step was not taken
            except BaseException as error:
                self._half_step = error
                raise

    @property
    def loss(self) -> float:
        """See `TorchAgent.loss`."""
        with device_errors(self.device):
            return self.agent.loss

    def held(self) -> contextlib.AbstractContextManager[None]:
        """See `TorchAgent.held`."""
        return self.agent.held()

    def keep_best(self) -> None:
        """Keeps the networks that act now as the best so far."""
        with device_errors(self.device):
            self.agent.keep_best()

    def _check_finite(self) -> None:
        """See `TorchAgent.check_finite`. For the loop."""
        with device_errors(self.device):
            self.agent.check_finite()

    def state_dict(self) -> dict[str, Any]:
        """What the loop saves of it: the agent's.

        Raises:
            FailedPreconditionError: a gradient step failed on its way.
        """
        if self._half_step is not None:
            raise FailedPreconditionError(
                f"a gradient step failed ({self._half_step}), so the networks are between "
                "two steps; continue from the last checkpoint"
            )
        with device_errors(self.device):
            state = self.agent.state_dict()
            # Here, so that a device that is gone is reported as such.
            return {
                name: value if isinstance(value, np.ndarray) else value.detach().cpu()
                for name, value in state.items()
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with what `state_dict` gave."""
        self.agent.load_state_dict(state)

    # What a caller asks.

    def start(self) -> None:
        """Starts the threads."""
        self._loop.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the training is over; see `Trainer.wait`."""
        return self._loop.wait(timeout_s)

    def stop(self) -> None:
        """Ends the training within a step of each thread, and waits for that."""
        self._loop.stop()

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes a checkpoint, to go on from with ``resume=``; see `Loop.save`.

        With ``actors=0`` and an environment that repeats its episodes, a training on the CPU that
        goes on from it ends in the same bits as one that was never interrupted.
        """
        return self._loop.save(path)

    def progress(self) -> TrainProgress:
        """How it stands."""
        return self._loop.progress()

    def idle_share(self) -> float:
        """How much of its time the learner waited for batches."""
        return self._loop.idle_share()

    def episodes(self, first: int = 0) -> list[Episode]:
        """The finished episodes from number ``first`` on."""
        return self._loop.episodes(first)

    def evaluations(self) -> list[tuple[int, float]]:
        """Steps and mean return of each evaluation so far."""
        return self._loop.evaluations()

    def best_policy(self) -> TorchPolicy:
        """The policy of the best evaluation; else the latest."""
        with device_errors(self.device):
            return TorchPolicy(self.agent.policy_state())

    def evaluate(
        self, policy: TorchPolicy | None = None, *, episodes: int = 20, seed: int = 0
    ) -> list[float]:
        """The returns of episodes without exploration; not while it trains."""
        with device_errors(self.device):
            before = self.agent.acting_state()
        try:
            with device_errors(self.device):
                if policy is not None:
                    self.agent.load_policy(policy.state)
                else:
                    self.agent.publish()
            return self._loop.evaluate(episodes=episodes, seed=seed)
        finally:
            with device_errors(self.device):
                self.agent.load_policy(before)

    def _leave(self, error: BaseException | None) -> None:
        self._loop._leave(error)


def evaluate_saved(
    folder: Path, described: dict[str, Any], *, episodes: int, seed: int
) -> list[float]:
    """The returns of a policy that was trained with PyTorch; ``described`` is its settings.json.

    Of a training that is under way or was killed, its newest checkpoint's.
    """
    env, backend = described["env"], described["env_backend"]
    options = described["env_options"]
    settings = TrainSettings.from_options({**described["settings"], "actors": 0})
    saved = folder / POLICY
    policy = TorchPolicy.load(saved) if saved.exists() or not has_checkpoint(folder) else None
    envs = LoopEnvs(env, 1, options=options, backend=backend, timeout_s=START_S, seed=0)
    envs.close()
    agent = TorchAgent(described["algorithm"], envs.spec, settings)
    if policy is None:
        # Only what is attached: the replay is not needed, and the folder may be a running
        # training's.
        kept = _reverie.ReplayBuffer._arguments_of(str(folder / CHECKPOINTS))  # type: ignore[attr-defined]
        saved_loop, arrays = loop_checkpoint.unpack(kept["attached"])
        asked = {
            "algorithm": described["algorithm"],
            "env": env,
            "env_options": options,
            "settings": described["settings"],
        }
        difference = loop_checkpoint.first_difference(saved_loop, asked)
        if difference is not None:
            raise FailedPreconditionError(
                f"the training in {folder} has no checkpoint yet, and the one that is there is of "
                f"the training before: {difference}; wait for the first checkpoint"
            )
        loop_checkpoint.restore("learner", agent, arrays, as_torch=True)
        policy = TorchPolicy(agent.policy_state())
    agent.load_policy(policy.state)
    with Loop(
        agent,
        agent,
        env,
        settings,
        env_options=options,
        env_backend=backend,
        algorithm=described["algorithm"],
    ) as loop:
        return loop.evaluate(episodes=episodes, seed=seed)


def _safetensors() -> Any:  # noqa: ANN401
    try:
        import safetensors.torch
    except ImportError:
        raise MissingPackageError(
            "policies of PyTorch are written as safetensors: pip install safetensors"
        ) from None
    return safetensors.torch
