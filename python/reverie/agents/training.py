"""`train`: a whole training in one call."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

from reverie import _checks
from reverie._options import OptionValue
from reverie.agents.checkpoints import (
    CHECKPOINTS,
    POLICY,
    Checkpoints,
    check_new,
    describe,
    described_in,
    has_checkpoint,
    remove_checkpoints,
)
from reverie.agents.folder_lock import FolderLock
from reverie.agents.run_folder import Events, save_curve
from reverie.agents.settings import TrainSettings
from reverie.agents.trainer import Episode, Trainer, TrainProgress
from reverie.errors import InvalidArgumentError, NotFoundError
from reverie.nn import Mlp

if TYPE_CHECKING:
    from reverie.agents.torch_training import TorchPolicy, TorchTrainer

__all__ = ["TrainResult", "evaluate", "train"]

AnyTrainer: TypeAlias = "Trainer | TorchTrainer"
LEARNERS = ("native", "torch")
_REPORT_INTERVAL_S = 1.0
_EPISODES_MAX = 1 << 16
# Evaluations draw from seeds that no training has.
_EVALUATION_SEED = 1 << 40


@dataclass(frozen=True)
class TrainResult:
    """The result of a training.

    Attributes:
        env_timeout_s: how long a step of an environment could take.
        agent_timeout_s: how long a batch or actions could take PyTorch; None with the native
            learner.
    """

    algorithm: str
    env: str
    env_options: dict[str, OptionValue]
    env_backend: str
    settings: TrainSettings
    """All of them, the seed among them."""
    progress: TrainProgress
    """At its end."""
    episodes: list[Episode]
    evaluations: list[tuple[int, float]]
    """Steps and mean return of those on the way, one every ``evaluation_interval`` steps."""
    policy: Mlp | TorchPolicy
    """The best of these, or the last."""
    greedy_returns: list[float]
    """Returns of the policy without exploration, after the training."""
    learner: str = "native"
    """``"native"`` or ``"torch"``."""
    env_timeout_s: float = 60.0
    agent_timeout_s: float | None = None

    @property
    def greedy_return(self) -> float:
        """Their mean."""
        return fmean(self.greedy_returns)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the curve, the evaluations, the policy and the settings into a folder.

        ``curve.csv``, ``evaluations.csv``, ``policy.safetensors``, ``settings.json``; with
        matplotlib ``curve.png``.

        Raises:
            OSError: the folder cannot be made or written.
            ReverieError: the policy cannot be written; an old file is unchanged.
        """
        save(folder, self, self.episodes, self.evaluations, self.policy)


def train(
    algorithm: str,
    env: str,
    settings: TrainSettings | None = None,
    *,
    env_options: dict[str, OptionValue] | None = None,
    env_backend: str = "auto",
    env_timeout_s: float = 60.0,
    learner: str = "native",
    device: str = "cpu",
    agent_timeout_s: float | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    checkpoint_every_s: float = 60.0,
    final_episodes: int = 20,
    report: Callable[[TrainProgress], None] | None = None,
) -> TrainResult:
    """Trains an agent, and evaluates it with episodes without exploration.

    Args:
        algorithm: one of `algorithms`.
        env: a native environment, one of ``reverie.envs.native.ids()``, or a Gymnasium id.
        settings: what differs from the algorithm's defaults.
        env_options: keyword arguments of the environment.
        env_backend: ``"auto"`` steps native environments in C++ and others in worker processes;
            ``"process"``, ``"thread"`` and ``"native"`` insist.
        env_timeout_s: how long a step may take, of an environment that is not native.
        learner: ``"native"``: in C++; ``"torch"``: the same algorithms in PyTorch, with
            convolutions where observations are pictures.
        device: where PyTorch computes, ``"cpu"`` or ``"cuda:0"``.
        agent_timeout_s: how long a batch, or actions, may take PyTorch before the training is given
            up; None: 300.
        out: a folder for the curve, the policy and the settings (see `TrainResult.save`), and for
            its checkpoints.
        resume: go on from the newest checkpoint in ``out``, if there is one; everything else must
            be as it was then, except for the settings that the error for another
            difference lists. An omitted seed is that of the checkpoint. If False, an unfinished
            training in ``out`` is an error.
        checkpoint_every_s: how often one is written; another one at the end, also after Ctrl-C.
        final_episodes: the number of episodes of the final evaluation.
        report: called about once a second with the progress.

    Raises:
        NotFoundError: no such algorithm or environment; the message has the nearest names.
        InvalidArgumentError: a setting is out of range, the algorithm does not serve the
            environment's actions, or a gradient was not finite: the message names the layer.
        EnvError: an environment cannot be made, or raised.
        DataLossError: the checkpoint is damaged.
        FailedPreconditionError: ``out`` has another training, which is running or unfinished.
        KeyboardInterrupt: Ctrl-C; the training was stopped, and its checkpoint written.
    """
    final_episodes = _checks.integer("final_episodes", final_episodes, 1, _EPISODES_MAX)
    if out is not None:
        out = _checks.path("out", out)
    if report is not None:
        _checks.function("report", report, "a function of a TrainProgress")
    _checks.flag("resume", resume)
    every_s = _checks.number("checkpoint_every_s", checkpoint_every_s, above=0.0)
    if resume and out is None:
        raise InvalidArgumentError("resume is True without out; name the folder to go on in")
    with contextlib.ExitStack() as held:
        checkpoint = None
        if out is not None:
            held.callback(FolderLock(Path(out)).close)
            if not resume:
                check_new(Path(out))
            elif has_checkpoint(Path(out)):
                checkpoint = Path(out) / CHECKPOINTS
                settings = _with_seed_of(Path(out), settings)
        with make_trainer(
            algorithm,
            env,
            settings,
            learner=learner,
            device=device,
            agent_timeout_s=agent_timeout_s,
            env_options=env_options,
            env_backend=env_backend,
            env_timeout_s=env_timeout_s,
            resume=checkpoint,
        ) as trainer:
            if out is None:
                run(trainer, report or _say_nothing, out)
            else:
                if checkpoint is None:
                    remove_checkpoints(Path(out))
                describe(out, trainer)
                with Checkpoints(trainer, Path(out), every_s) as checkpoints:
                    run(trainer, report or _say_nothing, out, checkpoints)
            result = finish(trainer, final_episodes)
        if out is not None:
            result.save(out)
    return result


def run(
    trainer: AnyTrainer,
    report: Callable[[TrainProgress], None],
    out: str | os.PathLike[str] | None = None,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Trains until it is over, telling how it stands about once a second.

    Where TensorBoard is installed, ``out`` gets event files for it.
    """
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
    with Events(trainer, out) as events:
        trainer.start()
        while True:
            is_over = trainer.wait(_REPORT_INTERVAL_S)
            events.add(trainer.progress())
            if is_over:
                break
            report(trainer.progress())
            if checkpoints is not None:
                checkpoints.save_when_due()


def _say_nothing(_progress: TrainProgress) -> None:
    pass


def make_trainer(
    algorithm: str,
    env: str,
    settings: TrainSettings | None,
    *,
    learner: str = "native",
    device: str = "cpu",
    agent_timeout_s: float | None = None,
    resume: Path | None = None,
    served: Mapping[str, Any] | None = None,
    **options: Any,  # noqa: ANN401
) -> AnyTrainer:
    """The trainer of that learner; ``options`` are the environment's.

    ``served`` says where its actors join (``listen``, ``tls``, ``insecure``).

    Raises:
        MissingPackageError: ``learner`` is ``"torch"``, and PyTorch is not installed.
    """
    if _checks.choice("learner", learner, LEARNERS) == "torch":
        from reverie.agents.torch_training import TorchTrainer

        if served:
            raise InvalidArgumentError(
                "listen is given with learner='torch', whose actors are threads of its process; "
                "give learner='native'"
            )
        if agent_timeout_s is not None:
            options["agent_timeout_s"] = agent_timeout_s
        return TorchTrainer(algorithm, env, settings, device=device, resume=resume, **options)
    if _checks.text("device", device) != "cpu":
        raise InvalidArgumentError(
            f"device is {device!r} with learner='native', which computes on the CPU; give "
            "learner='torch'"
        )
    if agent_timeout_s is not None:
        raise InvalidArgumentError(
            f"agent_timeout_s is {_checks.shown(agent_timeout_s)} with learner='native', which "
            "calls no code of yours; give learner='torch'"
        )
    return Trainer(algorithm, env, settings, resume=resume, **options, **(served or {}))


def _with_seed_of(folder: Path, settings: TrainSettings | None) -> TrainSettings:
    settings = TrainSettings() if settings is None else settings
    if settings.seed is not None:
        return settings
    return dataclasses.replace(settings, seed=described_in(folder)["settings"].get("seed"))


def finish(trainer: AnyTrainer, final_episodes: int) -> TrainResult:
    """The result of a training that is over."""
    policy = trainer.best_policy()
    returns = trainer.evaluate(
        policy,  # type: ignore[arg-type]  # its own
        episodes=final_episodes,
        seed=_EVALUATION_SEED,
    )
    return TrainResult(
        trainer.algorithm,
        trainer.env,
        trainer.env_options,
        trainer.env_backend,
        trainer.settings,
        trainer.progress(),
        trainer.episodes(),
        trainer.evaluations(),
        policy,
        returns,
        trainer.learner,
        trainer.env_timeout_s,
        trainer.agent_timeout_s,
    )


def evaluate(
    folder: str | os.PathLike[str], *, episodes: int = 100, seed: int = _EVALUATION_SEED
) -> list[float]:
    """The returns of a saved policy's episodes, without exploration.

    Args:
        folder: written by `TrainResult.save`, or by a training that was killed: if it has no
            ``policy.safetensors``, its newest checkpoint is evaluated. The training may be
            running meanwhile.
        episodes: how many; each the first of an environment of its own.
        seed: seeds the environments.

    Raises:
        FileNotFoundError: ``settings.json`` is missing.
        NotFoundError: there is neither a policy nor a checkpoint, or no such environment any more.
        DataLossError: a file is damaged.
        InvalidArgumentError: the policy is not of the shape that the settings say.
    """
    path = Path(_checks.path("folder", folder))
    described = described_in(path)
    is_unfinished = not (path / POLICY).exists()
    if is_unfinished and not has_checkpoint(path):
        raise NotFoundError(
            f"{path} has neither {POLICY} nor a checkpoint yet; wait for the training's first "
            "checkpoint, or for its end"
        )
    if described.pop("learner") == "torch":
        from reverie.agents.torch_training import evaluate_saved

        return evaluate_saved(path, described, episodes=episodes, seed=seed)
    options = {**described.pop("settings"), "actors": 0, "learners": 1}
    policy = None if is_unfinished else Mlp.load(path / POLICY)
    with Trainer(settings=TrainSettings.from_options(options), **described) as trainer:
        if policy is None:
            trainer._native.load_policy(str(path / CHECKPOINTS))
            policy = trainer.best_policy()
        return trainer.evaluate(policy, episodes=episodes, seed=seed)


def _write(path: Path, names: Sequence[str], rows: Iterable[Sequence[float]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def save(
    folder: str | os.PathLike[str],
    training: AnyTrainer | TrainResult,
    episodes: list[Episode],
    evaluations: list[tuple[int, float]],
    policy: Mlp | TorchPolicy,
) -> None:
    """What `TrainResult.save` writes."""
    path = Path(folder)
    progress = training.progress if isinstance(training, TrainResult) else training.progress()
    describe(path, training, end=progress.end)
    _write(path / "curve.csv", ("step", "return", "length"), episodes)
    save_curve(path / "curve.png", episodes, evaluations)
    _write(path / "evaluations.csv", ("step", "mean_return"), evaluations)
    policy.save(path / POLICY)
