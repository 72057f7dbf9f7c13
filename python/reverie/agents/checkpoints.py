"""A training's folder: its description, and the checkpoints that it continues from."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from reverie._durable import replace_file
from reverie._options import OptionValue
from reverie.agents.settings import TrainSettings, saved_options
from reverie.agents.trainer import Trainer
from reverie.errors import DataLossError, FailedPreconditionError, ReverieError

if TYPE_CHECKING:
    from reverie.agents.torch_training import TorchTrainer

CHECKPOINTS = "checkpoints"
SETTINGS = "settings.json"
POLICY = "policy.safetensors"
_TIMEOUTS = ("env_timeout_s", "agent_timeout_s")
_FINISHED = ("all steps", "return reached")


class Described(Protocol):
    """What a training is: a `Trainer`, or a `TrainResult`."""

    @property
    def algorithm(self) -> str: ...  # noqa: D102
    @property
    def env(self) -> str: ...  # noqa: D102
    @property
    def env_options(self) -> dict[str, OptionValue]: ...  # noqa: D102
    @property
    def env_backend(self) -> str: ...  # noqa: D102
    @property
    def learner(self) -> str: ...  # noqa: D102
    @property
    def settings(self) -> TrainSettings: ...  # noqa: D102
    @property
    def env_timeout_s(self) -> float: ...  # noqa: D102
    @property
    def agent_timeout_s(self) -> float | None: ...  # noqa: D102


def describe(folder: str | os.PathLike[str], training: Described, *, end: str = "running") -> None:
    """Writes ``settings.json``: what is trained in what, how, and what ended it.

    The policy of a training before, if there was one, is not that of this one: until it ends, the
    newest checkpoint has it.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if end == "running":
        (path / POLICY).unlink(missing_ok=True)
    described = {
        "algorithm": training.algorithm,
        "env": training.env,
        "env_options": saved_options(training.env_options),
        "env_backend": training.env_backend,
        "learner": training.learner,
        "settings": training.settings.options(),
        **{name: getattr(training, name) for name in _TIMEOUTS},
        "end": end,
    }
    text = json.dumps(described, indent=2) + "\n"
    replace_file(path / SETTINGS, lambda file: file.write(text.encode()))


def described_in(folder: Path) -> dict[str, Any]:
    """What ``settings.json`` says: the learner, and the arguments of a `Trainer`.

    Raises:
        FileNotFoundError: it is missing.
        DataLossError: it is damaged.
    """
    path = folder / SETTINGS
    if not path.exists():
        raise FileNotFoundError(
            errno.ENOENT,
            f"there is no training ({SETTINGS} is missing); give a folder that one had as --out",
            str(folder),
        )
    try:
        described = json.loads(path.read_text())
        return {
            "algorithm": str(described["algorithm"]),
            "env": str(described["env"]),
            "env_options": dict(described.get("env_options") or {}),
            "env_backend": str(described.get("env_backend") or "auto"),
            "learner": str(described.get("learner") or "native"),
            "settings": dict(described["settings"]),
            # Not in every file, and the native learner has but one.
            **{
                name: float(described[name])
                for name in _TIMEOUTS
                if described.get(name) is not None
            },
        }
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataLossError(
            f"{path} is damaged: {error!r}; it must be as training wrote it"
        ) from None


def has_checkpoint(folder: Path) -> bool:
    """Whether a training that was saved there can be gone on with."""
    return any((folder / CHECKPOINTS).glob("checkpoint-*"))


def check_new(folder: Path) -> None:
    """Refuses a folder whose training did not come to its end: another would take its place.

    Raises:
        FailedPreconditionError: it can be gone on with.
    """
    if not has_checkpoint(folder) or not (folder / SETTINGS).exists():
        return
    try:
        end = json.loads((folder / SETTINGS).read_text()).get("end")
    except (ValueError, AttributeError, RecursionError):
        end = None
    if end not in _FINISHED:
        raise FailedPreconditionError(
            f"{folder} has a training that is not finished; continue it (--resume, or "
            f"resume=True), give another folder, or remove {folder / CHECKPOINTS} first"
        )


def remove_checkpoints(folder: Path) -> None:
    """Removes those of a finished training, before another one begins in its folder.

    The other one, killed before its first checkpoint, would go on from them.
    """
    for path in sorted((folder / CHECKPOINTS).glob("checkpoint-*")):
        shutil.rmtree(path)


class Checkpoints:
    """Saves a training now and then, and once more at the end, however it ends.

    One that cannot be written on the way is told by a warning, and the training goes on; the last
    one raises, unless another exception is on its way.
    """

    def __init__(self, trainer: Trainer | TorchTrainer, folder: Path, every_s: float) -> None:
        self._trainer = trainer
        self._path = folder / CHECKPOINTS
        self._every_s = every_s
        self._next = time.monotonic() + every_s

    def save_when_due(self) -> None:
        """Saves if it is time."""
        if time.monotonic() < self._next:
            return
        try:
            if self._has_state():
                self._trainer.save(self._path)
        except ReverieError as error:
            _warn(error)
        self._next = time.monotonic() + self._every_s

    def _has_state(self) -> bool:
        """PyTorch's learner has none before the first step tells what transitions are."""
        return self._trainer.learner == "native" or self._trainer.progress().steps > 0

    def __enter__(self) -> Checkpoints:
        # At the start: a run that is killed early can be resumed, a disk that accepts no
        # checkpoint is noticed before the work, and no other training gets the folder.
        if self._has_state():
            self._trainer.save(self._path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._trainer.stop()
        if not self._has_state():
            return
        try:
            self._trainer.save(self._path)
        except ReverieError as failure:
            if error is None:
                raise
            _warn(failure)


def _warn(error: ReverieError) -> None:
    warnings.warn(f"no checkpoint was written: {error}", RuntimeWarning, stacklevel=3)
